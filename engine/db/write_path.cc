// PUT: check, join the queue of writers; whoever stands in front leads: makes room, takes those
// behind it that can go along, appends them to the log as one group, waits until it is as durable
// as one of them asked, inserts, publishes. Durable, then inserted, then visible. On a failed log
// write: no insert.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/compaction/picker.h"
#include "engine/db/db_impl.h"
#include "engine/db/writer.h"
#include "engine/format/entry.h"

namespace ashlar {
namespace {

// A group is cut here, so that those who wait for it do not wait for more than a write of this
// size.
constexpr size_t kGroupBytes = 1u << 20;

absl::Status CheckSizes(const WriteBatch& batch, const DB::Limits& limits) {
  if (batch.has_empty_key()) return absl::InvalidArgumentError("a key must not be empty");
  if (batch.max_key_bytes() > limits.key_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a key of ", batch.max_key_bytes(),
                                                   " bytes; the limit is ", limits.key_bytes));
  }
  if (batch.max_value_bytes() > limits.value_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a value of ", batch.max_value_bytes(),
                                                   " bytes; the limit of this store is ",
                                                   limits.value_bytes));
  }
  if (batch.bytes() > limits.batch_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.bytes(), " bytes; the limit of this store is ", limits.batch_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DB::Put(const WriteOptions& options, std::string_view key, std::string_view value) {
  WriteBatch batch;
  batch.Put(key, value);
  return Write(options, batch);
}

absl::Status DB::Delete(const WriteOptions& options, std::string_view key) {
  WriteBatch batch;
  batch.Delete(key);
  return Write(options, batch);
}

DB::Limits DBImpl::limits() const {
  return {kMaxKeyBytes, sizing_.value_bytes_max, sizing_.batch_bytes_max};
}

absl::Status DBImpl::Write(const WriteOptions& options, const WriteBatch& batch) {
  RETURN_IF_ERROR(CheckSizes(batch, limits()));
  Writer writer{Writer::Kind::kWrite};
  writer.batch = &batch;
  writer.durable = options.durability == Durability::kDurable;
  return Enqueue(&writer);
}

absl::Status DBImpl::Sync() {
  Writer writer{Writer::Kind::kSync};
  writer.durable = true;
  return Enqueue(&writer);
}

// For a caller that comes now.
absl::Status DBImpl::CheckWritable() const {
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the store is closed");
  if (options_.read_only) return absl::FailedPreconditionError("the store was opened read-only");
  return CheckNotFailed();
}

// For one that came before Close.
absl::Status DBImpl::CheckNotFailed() const {
  if (!failed_.ok()) {
    return absl::Status(failed_.code(), absl::StrCat("the store refuses writes since a failure: ",
                                                     failed_.message()));
  }
  return absl::OkStatus();
}

absl::Status DBImpl::Enqueue(Writer* writer) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(writer->own ? CheckNotFailed() : CheckWritable());
  writers_.push_back(writer);
  while (!writer->done && writers_.front() != writer) writer->turn.Wait(&mutex_);
  if (!writer->done) {
    Lead(writer);
    if (!has_threads_ && !stopping_) BackgroundStep();
    SayErrors();
  }
  return writer->status;
}

void DBImpl::Lead(Writer* self) {
  std::vector<Writer*> group = {self};
  absl::Status status = CheckNotFailed();
  if (status.ok()) {
    switch (self->kind) {
      case Writer::Kind::kWrite:
        status = MakeRoom(*self->batch);
        if (status.ok()) status = LeadGroup(self, &group);
        break;
      case Writer::Kind::kSync:
        status = LeadGroup(self, &group);
        break;
      case Writer::Kind::kSeal:
        while (status.ok() && sealed_ != nullptr && !memtable_->table.empty()) {
          status = AwaitBackground();
        }
        if (status.ok() && !memtable_->table.empty()) status = Seal();
        break;
      case Writer::Kind::kTimers:
        status = LeadTimers(self->now_ns);
        break;
    }
  }
  for (Writer* w : group) {
    CHECK(writers_.front() == w);
    writers_.pop_front();
    w->status = status;
    w->done = true;
    if (w != self) w->turn.SignalOne();
  }
  if (!writers_.empty()) {
    writers_.front()->turn.SignalOne();
  } else if (stopping_) {
    progress_.SignalAll();
  }
}

absl::Status DBImpl::LeadGroup(Writer* self, std::vector<Writer*>* group) {
  std::vector<std::string_view> parts;
  uint64_t payload = 0, memtable_bytes = Memtable::kGroupSlack;
  bool durable = self->durable;
  const auto join = [&](const Writer& w) {
    durable |= w.durable;
    if (w.batch == nullptr || w.batch->count() == 0) return;
    parts.push_back(w.batch->rep());
    payload += w.batch->rep().size();
    memtable_bytes += w.batch->bytes();
  };
  join(*self);
  for (size_t i = 1; i < writers_.size(); ++i) {
    const Writer& w = *writers_[i];
    if (w.kind != Writer::Kind::kWrite && w.kind != Writer::Kind::kSync) break;
    if (w.batch != nullptr &&
        (payload + w.batch->rep().size() > kGroupBytes || LowOnSpace(w.batch->only_deletes()) ||
         !RoomFor(payload + w.batch->rep().size(), memtable_bytes + w.batch->bytes()))) {
      break;
    }
    join(w);
    group->push_back(writers_[i]);
  }

  const SequenceNumber first = next_sequence_;
  Memtable& memtable = memtable_->table;
  SequenceNumber last = first - 1;
  if (PLANT("write.visible_early")) {
    for (const Writer* w : *group) last_sequence_ += w->batch != nullptr ? w->batch->count() : 0;
  }
  mutex_.Unlock();
  absl::Status status;
  if (!parts.empty()) {
    for (const Writer* w : *group) next_sequence_ += w->batch != nullptr ? w->batch->count() : 0;
    status = log_->Append(first, parts);
  }
  if (status.ok() && durable) {
    status = PLANT("write.acknowledge_early") ? log_->Submit() : log_->MakeDurable();
  }
  if (status.ok() && log_->unsubmitted_bytes() >= kBufferedMaxBytes) status = log_->Submit();
  if (status.ok() || PLANT("write.insert_after_failure")) {
    for (const std::string_view part : parts) {
      Cursor in(part);
      while (!in.done()) {
        Entry entry;
        CHECK(DecodeEntry(&in, &entry).ok());  // encoded by WriteBatch, sizes checked
        memtable.Add(++last, entry.kind, entry.key, entry.value);
      }
    }
  }
  mutex_.Lock();
  if (status.ok() && last >= first) {
    last_sequence_ = last;
    counted_.batches += parts.size();
    counted_.changes += last - first + 1;
    idle_ = false;
    NotePace(payload);
  }
  if (!status.ok() && !absl::IsResourceExhausted(status)) Fail(status);
  log_full_ = absl::IsResourceExhausted(status) ? status : absl::OkStatus();
  last_write_ns_ = env_.clock->NowNs();
  NoteLogState();
  return status;
}

// ---- room ----

bool DBImpl::RoomFor(uint64_t payload_bytes, uint64_t memtable_bytes) const {
  return memtable_bytes <= memtable_->table.bytes_free() && log_->Fits(payload_bytes);
}

void DBImpl::CountStall(Stats::Stall* stall, uint64_t ns) {
  ++stall->count;
  stall->total_ns += ns;
  stall->longest_ns = std::max(stall->longest_ns, ns);
}

absl::Status DBImpl::Stall(Stats::Stall* stall) {
  const uint64_t begin = env_.clock->NowNs();
  const absl::Status status = AwaitBackground();
  CountStall(stall, env_.clock->NowNs() - begin);
  return status;
}

absl::Status DBImpl::MakeRoom(const WriteBatch& batch) {
  Pace();
  for (;;) {
    RETURN_IF_ERROR(CheckNotFailed());
    RETURN_IF_ERROR(MakeSpace(batch.only_deletes()));
    const int level0 = static_cast<int>(version_->levels[0].size());
    if (!merge_blocked_.ok() && level0 >= 4 * kLevel0StopMin) {
      return absl::Status(
          merge_blocked_.code(),
          absl::StrCat("damage keeps the store from merging, and too much has piled "
                       "up: ",
                       merge_blocked_.message()));
    }
    if (merge_blocked_.ok() && level0 >= sizing_.level0_stop) {
      RETURN_IF_ERROR(Stall(&counted_.merge_stalls));
      continue;
    }
    if (RoomFor(batch.rep().size(), batch.bytes() + Memtable::kGroupSlack)) return absl::OkStatus();
    if (sealed_ != nullptr || !spare_) {
      RETURN_IF_ERROR(Stall(&counted_.memtable_stalls));
      continue;
    }
    RETURN_IF_ERROR(Seal());
  }
}

// The memtable and its segment become the sealed ones; the spare segment becomes the open one.
absl::Status DBImpl::Seal() {
  CHECK(sealed_ == nullptr);
  if (!spare_) return FullError();
  const SegmentMeta next = *spare_;
  mutex_.Unlock();
  const absl::Status status = log_->StartSegment(next);
  mutex_.Lock();
  if (!status.ok()) {
    if (!absl::IsResourceExhausted(status)) Fail(status);
    return status;
  }
  spare_.reset();
  sealed_ = memtable_;
  memtable_ = std::make_shared<LoggedMemtable>(sizing_.memtable_bytes, next.id);
  RebuildView();
  NoteLogState();
  WakeBackground();
  return absl::OkStatus();
}

// ---- space ----

bool DBImpl::LowOnSpace(bool only_deletes) const {
  return space_->free() < (only_deletes ? sizing_.reserve_deletes : sizing_.reserve_writes);
}

// Whether merging what is in memory and above the last level can give back at least an extent.
bool DBImpl::WorthReclaiming() const {
  if (!merge_blocked_.ok()) return false;
  if (sealed_ != nullptr) return true;
  MergeDemand everything;
  everything.all = everything.rewrite = true;
  everything.readers = LiveSequences();
  if (NextMerge(everything)) return true;
  uint64_t entries = 0, bytes = 0;
  for (const TablePtr& t : version_->levels[kLastLevel]) {
    entries += t->entries;
    bytes += t->extents.size() * uint64_t{superblock_.extent_bytes};
  }
  const uint64_t per_entry = entries == 0 ? 0 : bytes / entries;
  const Memtable& m = memtable_->table;
  return m.tombstones() * per_entry >= 2 * uint64_t{superblock_.extent_bytes} ||
         m.bytes_free() < sizing_.memtable_bytes / 2;
}

absl::Status DBImpl::FullError() const {
  std::string text;
  for (const absl::Status& below : {full_, log_full_}) {
    if (!below.ok()) {
      absl::StrAppend(&text, text.empty() ? "no room below the store: " : "; ", below.message());
    }
  }
  if (text.empty() || LowOnSpace(false)) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "device full: ", space_->free(),
                    " extents of ", superblock_.extent_bytes, " bytes free, of which ",
                    sizing_.reserve_writes, " are kept for deletes, merges and reopening (",
                    sizing_.reserve_deletes, " against deletes too)");
  }
  uint64_t pinned = 0;
  for (const Pending& p : pending_) pinned += p.extents.size();
  if (const std::vector<SequenceNumber> live = LiveSequences(); !live.empty()) {
    absl::StrAppend(&text, "; the oldest of ", iterators_.size(), " iterators and ",
                    live.size() - iterators_.size(), " snapshots is at sequence number ",
                    live.front(), " of ", last_sequence_, " and keeps what it can see");
  }
  if (pinned > 0) absl::StrAppend(&text, "; readers hold ", pinned, " freed extents");
  return absl::ResourceExhaustedError(text);
}

// Returns OK once there is space for a write of this kind. When there is not, merges what may give
// some back first, and answers ResourceExhausted when that was not enough.
absl::Status DBImpl::MakeSpace(bool only_deletes) {
  while (LowOnSpace(only_deletes)) {
    RETURN_IF_ERROR(CheckNotFailed());
    FreeUnreferenced();
    if (!LowOnSpace(only_deletes)) break;
    if (!WorthReclaiming()) {
      reclaiming_ = false;
      if (!was_full_) since_unix_ms_ = env_.clock->UnixMs();
      was_full_ = true;
      return FullError();
    }
    reclaiming_ = true;
    if (sealed_ == nullptr && !memtable_->table.empty() && spare_) {
      RETURN_IF_ERROR(Seal());
    }
    WakeBackground();
    RETURN_IF_ERROR(Stall(&counted_.space_stalls));
  }
  reclaiming_ = false;
  was_full_ = false;
  return absl::OkStatus();
}

// ---- timers of the log ----

void DBImpl::NoteLogState() {
  const uint64_t now = env_.clock->NowNs();
  const bool unsubmitted = log_->unsubmitted_bytes() > 0, undurable = !log_->all_durable();
  unsubmitted_since_ns_ = !unsubmitted                 ? 0
                          : unsubmitted_since_ns_ != 0 ? unsubmitted_since_ns_
                                                       : now;
  undurable_since_ns_ = !undurable ? 0 : undurable_since_ns_ != 0 ? undurable_since_ns_ : now;
  mark_due_ = log_->mark_is_due();
  if (LogDue() < log_sleeps_until_ns_) log_wake_.SignalOne();
}

absl::Status DBImpl::LeadTimers(uint64_t now) {
  const bool flush = undurable_since_ns_ != 0 && now >= undurable_since_ns_ + kBufferedFlushNs;
  const bool mark = mark_due_ && now >= last_write_ns_ + kDurableMarkNs;
  const SequenceNumber next = next_sequence_;
  mutex_.Unlock();
  absl::Status status = log_->Submit();
  if (status.ok() && flush) status = log_->MakeDurable();
  if (status.ok() && mark && log_->mark_is_due()) {
    status = log_->AppendMark(next);
    if (status.ok()) status = log_->MakeDurable();
  }
  mutex_.Lock();
  if (!status.ok() && !absl::IsResourceExhausted(status)) Fail(status);
  log_full_ = absl::IsResourceExhausted(status) ? status : absl::OkStatus();
  if (!status.ok()) {
    // No room below: again in a second.
    unsubmitted_since_ns_ = 0;
    undurable_since_ns_ = env_.clock->NowNs();
    mark_due_ = false;
    return status;
  }
  NoteLogState();
  return status;
}

// When the log thread has something to do next; UINT64_MAX: nothing.
uint64_t DBImpl::LogDue() const {
  uint64_t due = UINT64_MAX;
  if (!failed_.ok()) return due;
  if (unsubmitted_since_ns_ != 0) due = std::min(due, unsubmitted_since_ns_ + kBufferedMaxAgeNs);
  if (undurable_since_ns_ != 0) due = std::min(due, undurable_since_ns_ + kBufferedFlushNs);
  if (mark_due_) due = std::min(due, last_write_ns_ + kDurableMarkNs);
  if (!idle_) due = std::min(due, last_write_ns_ + idle_ns());
  return due;
}

bool DBImpl::LogStep() {
  const uint64_t now = env_.clock->NowNs();
  if (now < LogDue()) return false;
  // Once for each idle time: a seal that found no room is not due again before the next write, and
  // must not stand in front of what is.
  bool seal = false;
  if (!idle_ && now >= last_write_ns_ + idle_ns()) {
    idle_ = true;
    seal = !memtable_->table.empty();
    WakeBackground();
    if (!seal && now < LogDue()) return true;
  }
  mutex_.Unlock();
  Writer timers{seal ? Writer::Kind::kSeal : Writer::Kind::kTimers};
  timers.now_ns = now;
  timers.own = true;
  Enqueue(&timers).IgnoreError();  // what is for good is kept in failed_
  mutex_.Lock();
  return true;
}

void DBImpl::LogThread() {
  mutex_.Lock();
  while (!stopping_) {
    log_sleeps_until_ns_ = 0;
    if (LogStep()) continue;
    log_sleeps_until_ns_ = LogDue();
    const uint64_t now = env_.clock->NowNs();
    if (log_sleeps_until_ns_ == UINT64_MAX) {
      log_wake_.Wait(&mutex_);
    } else if (now < log_sleeps_until_ns_) {
      log_wake_.WaitFor(&mutex_, log_sleeps_until_ns_ - now);
    }
  }
  mutex_.Unlock();
}

void DBImpl::RunLogTimers() {
  MutexLock lock(&mutex_);
  while (!stopping_ && LogStep()) {
  }
}

}  // namespace ashlar
