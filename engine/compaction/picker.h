// What to merge next: a pure choice, by sizes and bounds alone.
//
// Level 0 takes the flushed tables, newest first. Below it lie sorted runs, numbered so that the
// last level is always kLastLevel; the first in use (the base) moves up as the store grows, so that
// the last run stays most of the store (as RocksDB's dynamic level sizes do). Between base and last
// level the sizes grow by one factor, at most kFanoutMax.
//
// A merge goes in steps by key: a step takes of its inputs what lies below some key, so between
// steps the store is in order, and whoever picks next may pick something else.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/version/version.h"

namespace ashlar {

struct MergePlan {
  std::shared_ptr<const Version> version;  // what it was picked from
  int level = 0;
  // Level 0: some of its tables, newest first, no older one left out unless it stays in level 0
  // too. Deeper: ascending tables of the level.
  std::vector<TablePtr> upper;
  int output_level = 0;
  std::vector<TablePtr> lower;  // of the output level: those whose bounds meet the upper ones'
  bool move = false;            // there are none, and upper[0] is to be moved as it is
};

struct MergePolicy {
  uint64_t base_bytes = 0;  // size of the base; level 0 is merged when it holds half of it
  uint64_t step_bytes = 0;  // output of one step, and so the size of a table
  int level0_stop = kLevel0StopMax;
};

struct MergeDemand {
  // Nobody writes: what takes needless space is worth a merge, as long as it is a tenth of the
  // store.
  bool idle = false;
  bool all = false;        // down to the last level, whatever it takes
  bool rewrite = false;    // and then what was kept for readers of whom none is left
  std::string begin, end;  // of both: only tables with keys in [begin, end); empty: no such bound
  std::vector<SequenceNumber> readers;  // ascending
};

// The merge under way, so that it is gone on with. Not kept over a close.
struct MergeCursor {
  std::vector<WriteId> level0;  // tables of the pass over level 0; later ones wait for the next
  WriteId table;                // of a deeper level
};

// The next step's inputs; nothing when there is nothing to do. How far the step goes is the job's
// to see.
std::optional<MergePlan> PickMerge(const std::shared_ptr<const Version>& version,
                                   const MergePolicy& policy, const MergeDemand& demand,
                                   const MergeCursor& cursor);
// What a step of this plan leaves under way.
MergeCursor CursorBehind(const MergePlan& plan, const MergeCursor& before);

// About how many bytes of pages a table still holds.
uint64_t LiveBytes(const TableMeta& table);

// The size that each level may have before it is merged into the next.
struct LevelShape {
  int base = kLastLevel;
  std::array<uint64_t, kLastLevel + 1> target{};
};
LevelShape ShapeOf(const Version& version, const MergePolicy& policy);

}  // namespace ashlar
