// What a store has done since it was opened, and what it is like now: DB::stats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar {

// Each figure is right for some moment of the call; together they may be of slightly different
// ones.
struct Stats {
  // ---- counted since the store was opened ----
  uint64_t batches = 0;  // acknowledged, each Put and Delete is one
  uint64_t changes = 0;  // in them
  uint64_t gets = 0;     // answered, found or not
  uint64_t gets_found = 0;

  // Commands handed to the device, the superblocks' at open apart; one that is larger than the
  // device takes at once is more than one on its side.
  uint64_t device_reads = 0, device_bytes_read = 0;
  uint64_t device_writes = 0, device_bytes_written = 0;
  uint64_t device_flushes = 0;
  // Of the bytes written; what is left is of manifest and superblocks.
  uint64_t log_bytes_written = 0, flush_bytes_written = 0, merge_bytes_written = 0;
  uint64_t flushes = 0, merge_steps = 0;
  uint64_t merge_moves = 0;  // tables that changed their level as they are

  // Writes that had to wait, by what for.
  struct Stall {
    uint64_t count = 0;
    uint64_t total_ns = 0, longest_ns = 0;
  };
  Stall memtable_stalls;  // for the last memtable to be written to a table
  Stall merge_stalls;     // for merges: too many tables in level 0
  Stall paced_stalls;     // so that merges keep up: a little, before there are too many
  Stall space_stalls;     // for merges to give room back

  // ---- as it is now ----
  struct Level {
    uint64_t tables = 0;
    uint64_t entries = 0, tombstones = 0;  // as the tables were written
    uint64_t bytes = 0;                    // in extents
  };
  std::vector<Level> levels;  // level 0, where tables arrive, to the last, which holds most
  uint64_t extent_bytes = 0;
  uint64_t extents_total = 0, extents_free = 0;
  uint64_t extents_reserved = 0;  // of the free ones, kept for deletes, merges and reopening
  uint64_t extents_pinned = 0;    // freed, and still looked at by a reader
  uint64_t memtable_bytes = 0;    // taken, of both memtables
  uint64_t iterators = 0, snapshots = 0;
  uint64_t last_sequence = 0;    // of the last visible change
  uint64_t oldest_sequence = 0;  // that a reader of the past holds; without one, the last
  // No full memtable waits to become a table, and nothing to be merged, even when nobody writes any
  // more (Options::idle_ms).
  bool settled = false;

  // One object, the names as above.
  std::string ToJson() const;
};

}  // namespace ashlar
