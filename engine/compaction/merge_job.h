// One step of a merge: reads the plan's tables from their smallest key on, writes one table of the
// output level, and says in one edit what that makes of the inputs: those passed are removed, the
// others shortened from the front. Knows extents and the write id as arguments only; does not
// install anything.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/compaction/picker.h"
#include "engine/table/table_builder.h"
#include "engine/table/table_reader.h"

namespace ashlar {

// Which versions of a key are still needed, given the sequence numbers that readers look back to.
// Takes the entries of a stream in order.
class VisibilityFilter {
 public:
  // `snapshots` ascending.
  explicit VisibilityFilter(std::vector<SequenceNumber> snapshots)
      : snapshots_(std::move(snapshots)) {}

  // Whether this entry can be seen by someone: it is the newest of its key, or the newest at a
  // snapshot.
  bool Keep(std::string_view key, SequenceNumber sequence);
  // The snapshot that the last entry was kept for, when it was not for being the newest.
  std::optional<SequenceNumber> kept_for() const { return kept_for_; }
  // Whether nobody can see behind this entry: then a delete with nothing beneath it has done its
  // work.
  bool Bottom(SequenceNumber sequence) const {
    return snapshots_.empty() || snapshots_.front() >= sequence;
  }

 private:
  const std::vector<SequenceNumber> snapshots_;
  bool first_ = true;
  std::string key_;
  SequenceNumber newer_ = 0;
  std::optional<SequenceNumber> kept_for_;
};

struct MergeInput {
  ExtentIo* io;
  const TableReader* tables;
  StoreId store;
  WriteId id;  // of the output table
  std::vector<SequenceNumber> snapshots;
  uint64_t output_bytes;  // of a table, index and footer included: the step ends at the last key
                          // boundary before it, where there is one
  uint64_t input_bytes;   // or at the first behind that much of what is read
  ExtentSource extents;
};

// The step's output is durable when this returns (it ends with a device flush). On error *taken
// holds the extents to be given back. DataLoss: an input is damaged, and nothing was decided.
absl::StatusOr<VersionEdit> RunMergeStep(const MergePlan& plan, const MergeInput& input,
                                         std::vector<ExtentId>* taken);

}  // namespace ashlar
