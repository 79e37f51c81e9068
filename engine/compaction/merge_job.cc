#include "engine/compaction/merge_job.h"

#include <algorithm>

#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/iter/merging_iterator.h"
#include "engine/table/run_iterator.h"

namespace ashlar {

bool VisibilityFilter::Keep(std::string_view key, SequenceNumber sequence) {
  const bool newest = first_ || key != key_;
  bool keep = newest;
  kept_for_.reset();
  if (!newest) {
    // Seen by a reader at s when sequence <= s and the next newer one is not: s < newer_.
    const auto s = std::lower_bound(snapshots_.begin(), snapshots_.end(), sequence);
    keep = s != snapshots_.end() && *s < newer_;
    if (keep) kept_for_ = *s;
  }
  if (newest) key_.assign(key);
  first_ = false;
  newer_ = sequence;
  return keep;
}

absl::StatusOr<VersionEdit> RunMergeStep(const MergePlan& plan, const MergeInput& input,
                                         std::vector<ExtentId>* taken) {
  std::vector<std::unique_ptr<InternalIterator>> children;
  for (const TablePtr& t : plan.level0) children.push_back(input.tables->NewIterator(t));
  children.push_back(NewRunIterator(input.tables, plan.run));
  const auto it = NewMergingIterator(std::move(children));

  // The step ends early where level 0 does: what follows in the run stays as it is.
  const std::string* level0_end = plan.level0.empty() ? nullptr : &plan.level0.front()->largest;
  for (const TablePtr& t : plan.level0) {
    if (t->largest > *level0_end) level0_end = &t->largest;
  }

  VisibilityFilter visible(input.snapshots);
  VersionEdit edit;
  std::string last;  // the last key consumed
  bool any = false;
  bool kept = false;  // anything for a reader of the past
  SequenceNumber kept_from = 0, kept_to = 0;
  {
    TableBuilder builder(input.io, input.store, input.id, input.extents);
    const auto merge = [&]() -> absl::Status {
      for (it->SeekToFirst(); it->Valid(); it->Next()) {
        const bool new_key = !any || it->key() != last;
        if (new_key && any &&
            (builder.bytes() >= input.output_bytes ||
             (level0_end != nullptr && last >= *level0_end))) {
          break;
        }
        if (new_key) last.assign(it->key());
        any = true;
        if (!visible.Keep(it->key(), it->sequence())) continue;
        if (it->kind() == EntryKind::kDelete &&
            (visible.Bottom(it->sequence()) || PLANT("merge.drop_seen_delete"))) {
          continue;
        }
        std::optional<SequenceNumber> reader = visible.kept_for();
        if (!reader && it->kind() == EntryKind::kDelete) reader = input.snapshots.front();
        if (reader) {
          kept_from = kept ? std::min(kept_from, *reader) : *reader;
          kept_to = kept ? std::max(kept_to, *reader) : *reader;
          kept = true;
        }
        if (!it->LoadValue()) break;
        RETURN_IF_ERROR(builder.Add(it->kind(), it->sequence(), it->key(), it->value()));
      }
      // An end is an end only when no input failed.
      if (!PLANT("merge.ignore_failed_input")) RETURN_IF_ERROR(it->status());
      if (!any) return absl::DataLossError("a merge whose inputs hold nothing within their bounds");
      if (builder.entries() == 0) return absl::OkStatus();
      ASSIGN_OR_RETURN(TableMeta meta, builder.Finish());
      meta.level = 1;
      meta.kept = kept;
      meta.kept_from = kept_from;
      meta.kept_to = kept_to;
      edit.add_tables.push_back(std::move(meta));
      return absl::OkStatus();
    };
    const absl::Status status = merge();
    *taken = builder.extents();
    if (!status.ok()) return builder.Abandon(status);
  }
  if (!taken->empty() && !PLANT("merge.skip_device_flush")) {
    ExtentIo::Lease lease = input.io->Acquire();
    RETURN_IF_ERROR(input.io->Flush(lease.queue()));
  }

  const std::string next = last + '\0';  // the smallest key behind `last`
  for (const auto* tables : {&plan.level0, &plan.run}) {
    for (const TablePtr& t : *tables) {
      if (t->smallest > last) continue;
      if (t->largest <= last) {
        edit.remove_tables.push_back(t->id);
        continue;
      }
      ASSIGN_OR_RETURN(const uint32_t dropped, input.tables->ExtentsBefore(*t, next));
      edit.shorten_tables.push_back({t->id, dropped, next});
    }
  }
  return edit;
}

}  // namespace ashlar
