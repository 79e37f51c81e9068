#include "engine/compaction/picker.h"

#include <algorithm>

namespace ashlar {

std::optional<MergePlan> PickMerge(const Version& version) {
  if (version.level0.empty()) return std::nullopt;
  MergePlan plan;
  plan.level0 = version.level0;
  const std::string* smallest = &plan.level0.front()->smallest;
  for (const TablePtr& t : plan.level0) {
    if (t->smallest < *smallest) smallest = &t->smallest;
  }
  const auto first =
      std::lower_bound(version.run.begin(), version.run.end(), *smallest,
                       [](const TablePtr& t, const std::string& k) { return t->largest < k; });
  plan.run.assign(first, version.run.end());
  return plan;
}

std::optional<MergePlan> PickRewrite(const Version& version,
                                     const std::vector<SequenceNumber>& readers) {
  for (const TablePtr& t : version.run) {
    if (!t->kept && t->tombstones == 0) continue;
    // Without `kept` they were there before the store was opened.
    const auto reader = std::lower_bound(readers.begin(), readers.end(), t->kept_from);
    if (t->kept && reader != readers.end() && *reader <= t->kept_to) continue;
    MergePlan plan;
    plan.run = {t};
    return plan;
  }
  return std::nullopt;
}

}  // namespace ashlar
