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

namespace {

// Where a step may end, and what a delete may be dropped over: walks along the levels beneath the
// output as the keys ascend.
class Beneath {
 public:
  explicit Beneath(const MergePlan& plan) {
    for (int i = plan.output_level + 1; i <= kLastLevel; ++i) {
      at_.push_back({&plan.version->levels[i], 0});
    }
    // Of a merge within level 0 older tables of it lie beneath too.
    whole_ = plan.output_level > 0 || PLANT("merge.drop_delete_in_tier");
  }

  // Whether no table there has bounds that hold `key`.
  bool Nothing(std::string_view key) {
    for (Place& p : at_) {
      Advance(&p, key);
      if (p.next < p.run->size() && key >= (*p.run)[p.next]->smallest) {
        return PLANT("merge.drop_delete_over_older");
      }
    }
    return whole_;
  }
  // How many tables of the next level end before `key`.
  size_t Passed(std::string_view key) {
    if (at_.empty()) return 0;
    Advance(&at_.front(), key);
    return at_.front().next;
  }

 private:
  struct Place {
    const std::vector<TablePtr>* run;
    size_t next;  // the first that ends at or behind the key
  };
  static void Advance(Place* p, std::string_view key) {
    if (p->next < p->run->size() && (*p->run)[p->next]->largest < key) {
      p->next = static_cast<size_t>(FirstEndingAt(*p->run, key) - p->run->begin());
    }
  }
  std::vector<Place> at_;
  bool whole_;
};

// The last key of the upper inputs, and the end of the lower table that holds it (else the same):
// what follows stays as it is.
struct Ends {
  std::string_view upper, lower;
};
Ends EndsOf(const MergePlan& plan) {
  Ends ends;
  for (const TablePtr& t : plan.upper)
    ends.upper = std::max(ends.upper, std::string_view(t->largest));
  ends.lower = ends.upper;
  if (const TablePtr* t = TableFor(plan.lower, ends.upper); t != nullptr)
    ends.lower = (*t)->largest;
  return ends;
}

// What passing an entry of the inputs costs in bytes read, about: of one that is dropped the size
// is not asked.
uint64_t AverageEntry(const MergePlan& plan) {
  uint64_t bytes = 0, entries = 0;
  for (const auto* tables : {&plan.upper, &plan.lower}) {
    for (const TablePtr& t : *tables) {
      bytes += uint64_t{t->pages} * kPageBytes;
      entries += t->entries;
    }
  }
  return bytes / std::max<uint64_t>(entries, 1) + 1;
}

}  // namespace

absl::StatusOr<VersionEdit> RunMergeStep(const MergePlan& plan, const MergeInput& input,
                                         std::vector<ExtentId>* taken) {
  std::vector<std::unique_ptr<InternalIterator>> children;
  if (plan.level == 0) {
    for (const TablePtr& t : plan.upper) children.push_back(input.tables->NewIterator(t));
  } else {
    children.push_back(NewRunIterator(input.tables, plan.upper));
  }
  children.push_back(NewRunIterator(input.tables, plan.lower));
  const auto it = NewMergingIterator(std::move(children));

  const Ends ends = EndsOf(plan);
  VisibilityFilter visible(input.snapshots);
  Beneath beneath(plan);
  VersionEdit edit;
  std::string last;  // the last key consumed
  const uint64_t per_entry = AverageEntry(plan);
  uint64_t read = 0;
  bool any = false;
  bool kept = false;  // anything for a reader of the past
  SequenceNumber kept_from = 0, kept_to = 0;
  {
    TableBuilder builder(input.io, input.store, input.id, input.extents);
    size_t passed = 0;  // tables of the next level that end before the last key
    // Between `last` and `key`, both known.
    const auto ends_before = [&](std::string_view key) {
      const uint64_t bytes = builder.bytes_if_finished();
      if (bytes >= input.output_bytes || read >= input.input_bytes) return true;
      const bool half = bytes >= input.output_bytes / 2;
      // Behind the upper inputs only to leave no small table.
      if (last >= ends.upper && (half || last >= ends.lower)) return true;
      // At the border of a table of the next level, so that the output meets few of them later.
      const size_t before = passed;
      passed = beneath.Passed(key);
      return half && passed > before;
    };
    const auto merge = [&]() -> absl::Status {
      for (it->SeekToFirst(); it->Valid(); it->Next()) {
        const bool new_key = !any || it->key() != last;
        if ((new_key || PLANT("merge.end_within_a_key")) && any && ends_before(it->key())) break;
        if (new_key) last.assign(it->key());
        any = true;
        read += per_entry;
        if (!visible.Keep(it->key(), it->sequence())) continue;
        const bool deletes_nothing = it->kind() == EntryKind::kDelete && beneath.Nothing(it->key());
        if (deletes_nothing &&
            (visible.Bottom(it->sequence()) || PLANT("merge.drop_seen_delete"))) {
          continue;
        }
        std::optional<SequenceNumber> reader = visible.kept_for();
        if (!reader && deletes_nothing) reader = input.snapshots.front();
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
      meta.level = static_cast<uint8_t>(plan.output_level);
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
  for (const auto* tables : {&plan.upper, &plan.lower}) {
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
