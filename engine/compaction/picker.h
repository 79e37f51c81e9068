// What to merge: a pure choice. Level 0 is merged into the sorted run (level 1) whole, in steps of
// key ranges.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/version/version.h"

namespace ashlar {

struct MergePlan {
  std::vector<TablePtr> level0;  // all of level 0: only then may a delete be dropped
  std::vector<TablePtr>
      run;  // the tables of the run that reach to or past the smallest level 0 key
};

// The next step's inputs; nothing when level 0 is empty. How far the step goes is the job's to see.
std::optional<MergePlan> PickMerge(const Version& version);

// A table of the run that holds what was kept for readers of whom none is left; `readers`
// ascending. Nothing: there is none.
std::optional<MergePlan> PickRewrite(const Version& version,
                                     const std::vector<SequenceNumber>& readers);

}  // namespace ashlar
