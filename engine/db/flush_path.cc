// FLUSH: the sealed memtable as a sorted stream -> one level 0 table -> device flush -> one edit
// that adds the table, releases the log segment and assigns the next spare one.
#include <algorithm>

#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/compaction/merge_job.h"
#include "engine/db/db_impl.h"
#include "engine/table/table_builder.h"

namespace ashlar {

absl::StatusOr<std::optional<TableMeta>> DBImpl::WriteTable(
    const Memtable& memtable, const std::vector<SequenceNumber>& snapshots) {
  if (memtable.empty()) return std::optional<TableMeta>();
  WriteId id;
  {
    MutexLock lock(&mutex_);
    id = NextWriteId();
  }
  TableBuilder builder(io_, superblock_.store, id, [&] { return TakeExtent(Purpose::kLevel0); });
  const auto it = memtable.NewIterator();
  VisibilityFilter visible(snapshots);
  absl::Status status;
  for (it->SeekToFirst(); it->Valid() && status.ok(); it->Next()) {
    if (!visible.Keep(it->key(), it->sequence())) continue;
    status = builder.Add(it->kind(), it->sequence(), it->key(), it->value());
  }
  absl::StatusOr<TableMeta> meta = status.ok() ? builder.Finish() : status;
  if (meta.ok()) {
    ExtentIo::Lease lease = io_->Acquire();
    const absl::Status s =
        PLANT("flush.skip_device_flush") ? absl::OkStatus() : io_->Flush(lease.queue());
    if (!s.ok()) meta = s;
  }
  if (!meta.ok()) {
    meta = builder.Abandon(meta.status());
    // Nothing refers to them. What failed otherwise than for lack of space may still land there;
    // then the store has failed too, and nobody is given them.
    ReturnExtents(builder.extents());
    return meta.status();
  }
  meta->level = 0;
  return std::optional<TableMeta>(*std::move(meta));
}

absl::Status DBImpl::FlushSealed() {
  const MemtablePtr sealed = sealed_;
  const std::vector<SequenceNumber> snapshots = LiveSequences();
  mutex_.Unlock();
  auto table = WriteTable(sealed->table, snapshots);
  mutex_.Lock();
  RETURN_IF_ERROR(table.status());
  VersionEdit edit;
  if (table->has_value()) edit.add_tables.push_back(**table);
  edit.release_segments.push_back(sealed->segment);
  edit.last_sequence = std::max(version_->last_sequence, sealed->table.max_sequence());
  if (!spare_) {
    // Without room for it the flush counts all the same; the background asks again.
    auto segment = NewSegment();
    if (segment.ok()) edit.assign_segments.push_back(*std::move(segment));
  }
  const uint64_t pages = table->has_value() ? (*table)->pages : 0;
  RETURN_IF_ERROR(Install(std::move(edit)));
  ++counted_.flushes;
  counted_.flush_bytes_written += pages * kPageBytes;
  return absl::OkStatus();
}

}  // namespace ashlar
