// MERGE: pick -> read, merge and write one step, durable -> one edit. Repeated by the background
// until there is nothing to pick; each step leaves a state that a crash may find.
#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/compaction/merge_job.h"
#include "engine/compaction/picker.h"
#include "engine/db/db_impl.h"

namespace ashlar {

absl::Status DBImpl::MergeStep() {
  std::optional<MergePlan> plan = PickMerge(*version_);
  if (!plan) plan = PickRewrite(*version_, LiveSequences());
  CHECK(plan);
  MergeInput input;
  input.io = io_;
  input.tables = tables_;
  input.store = superblock_.store;
  input.id = NextWriteId();
  input.snapshots = LiveSequences();
  input.output_bytes = sizing_.step_bytes;
  input.extents = [this] { return TakeExtent(Purpose::kLevelN); };
  std::vector<ExtentId> taken;
  mutex_.Unlock();
  auto edit = RunMergeStep(*plan, input, &taken);
  mutex_.Lock();
  if (!edit.ok()) {
    if (!PLANT("merge.leak_after_failure")) space_->Free(taken);
    // Damage of an input stops merging for good, so that it is never copied or merged away. Any
    // other error, and any of Install, is the store's.
    if (!absl::IsDataLoss(edit.status())) return edit.status();
    merge_blocked_ = edit.status();
    since_unix_ms_ = env_.clock->UnixMs();
    unsaid_.push_back(absl::StrCat("merging stopped: ", merge_blocked_.message()));
    return absl::OkStatus();
  }
  uint64_t pages = 0;
  for (const TableMeta& t : edit->add_tables) pages += t.pages;
  RETURN_IF_ERROR(Install(*std::move(edit)));
  ++counted_.merge_steps;
  counted_.merge_bytes_written += pages * kPageBytes;
  return absl::OkStatus();
}

}  // namespace ashlar
