// The one loop that asks what is next (an edit that found no room, a sealed memtable, a missing
// spare segment, a merge) and does one unit of it. Without threads the same unit is done by whoever
// would wait for it.
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/compaction/picker.h"
#include "engine/db/db_impl.h"
#include "engine/db/writer.h"

namespace ashlar {
namespace {

constexpr uint64_t kFullRetryNs = 1'000'000'000;
// How often an idle store looks whether a reader of the past is gone.
constexpr uint64_t kReadersLookNs = 1'000'000'000;

}  // namespace

bool DBImpl::BackgroundStep() {
  if (background_busy_ || !failed_.ok()) return false;
  background_busy_ = true;
  bool did = true;
  absl::Status status;
  if (unfinished_) {
    const VersionEdit edit = *unfinished_;
    status = Install(edit);
  } else if (sealed_ != nullptr) {
    status = FlushSealed();
  } else if (!spare_) {
    VersionEdit edit;
    auto segment = NewSegment();
    status = segment.status();
    if (segment.ok()) {
      edit.assign_segments.push_back(*std::move(segment));
      status = Install(std::move(edit));
    }
  } else if (const auto plan = NextMerge(idle_)) {
    status = MergeStep(*plan);
  } else {
    did = false;
  }
  // With nothing left to do, nothing waits for room any more.
  full_ = absl::IsResourceExhausted(status) ? status : absl::OkStatus();
  if (did) {
    if (!status.ok() && !absl::IsResourceExhausted(status)) Fail(status);
    FreeUnreferenced();
  }
  ++background_turns_;
  background_busy_ = false;
  progress_.SignalAll();
  SayErrors();
  return did;
}

void DBImpl::BackgroundThread() {
  mutex_.Lock();
  while (!stopping_) {
    const bool did = BackgroundStep();
    if (stopping_) break;
    if (!full_.ok()) {
      work_.WaitFor(&mutex_, kFullRetryNs);
    } else if (!did && idle_ && !LiveSequences().empty()) {
      work_.WaitFor(&mutex_, kReadersLookNs);
    } else if (!did) {
      work_.Wait(&mutex_);
    }
  }
  mutex_.Unlock();
}

void DBImpl::RunBackground() {
  MutexLock lock(&mutex_);
  while (!stopping_ && BackgroundStep() && full_.ok()) {
  }
}

absl::Status DBImpl::AwaitBackground() {
  RETURN_IF_ERROR(CheckNotFailed());
  if (stopping_) return absl::FailedPreconditionError("the store is closed");
  if (has_threads_) {
    if (!full_.ok()) return FullError();
    const uint64_t turns = background_turns_;
    WakeBackground();
    while (background_turns_ == turns && failed_.ok() && !stopping_) progress_.Wait(&mutex_);
  } else if (background_busy_) {
    // Another caller does a step: whoever waits looks again after it.
    while (background_busy_) progress_.Wait(&mutex_);
  } else if (!BackgroundStep()) {
    return absl::InternalError("the store waits for work that it does not know how to do");
  }
  RETURN_IF_ERROR(CheckNotFailed());
  return full_.ok() ? absl::OkStatus() : FullError();
}

void DBImpl::Fail(const absl::Status& cause) {
  if (!failed_.ok()) return;
  failed_ = cause;
  since_unix_ms_ = env_.clock->UnixMs();
  unsaid_.push_back(absl::StrCat("writes are refused from now on: ", cause.message()));
  progress_.SignalAll();
  pace_.SignalAll();
}

void DBImpl::SayErrors() {
  if (unsaid_.empty()) return;
  const std::vector<std::string> texts = std::move(unsaid_);
  unsaid_.clear();
  mutex_.Unlock();
  for (const std::string& text : texts) Log(LogLevel::kError, text);
  mutex_.Lock();
}

absl::Status DBImpl::Flush() { return FlushMemtable(false); }

absl::Status DBImpl::FlushMemtable(bool own) {
  Writer seal{Writer::Kind::kSeal};
  seal.own = own;
  RETURN_IF_ERROR(Enqueue(&seal));
  MutexLock lock(&mutex_);
  const MemtablePtr target = sealed_;
  while (target != nullptr && sealed_ == target) RETURN_IF_ERROR(AwaitBackground());
  return absl::OkStatus();
}

absl::Status DBImpl::MergeAll() { return Compact({"", "", false}); }

absl::Status DBImpl::CompactRange(std::string_view begin, std::string_view end) {
  return Compact({std::string(begin), std::string(end), true});
}

absl::Status DBImpl::Compact(const Compaction& what) {
  RETURN_IF_ERROR(Flush());
  MutexLock lock(&mutex_);
  while (compacting_ && !stopping_) progress_.Wait(&mutex_);
  if (stopping_) return absl::FailedPreconditionError("the store is closed");
  compacting_ = what;
  absl::Status status;
  while (status.ok() && (NextMerge(idle_) || background_busy_)) status = AwaitBackground();
  compacting_.reset();
  progress_.SignalAll();
  return status.ok() ? merge_blocked_ : status;
}

Health DBImpl::health() const {
  MutexLock lock(&mutex_);
  Health health;
  if (!failed_.ok()) {
    health = {Health::State::kFailed, failed_, since_unix_ms_};
  } else if (options_.read_only || state_ != State::kOpen) {
    health = {Health::State::kReadOnly, CheckWritable(), since_unix_ms_};
  } else if (!full_.ok() || !log_full_.ok() || (was_full_ && LowOnSpace(false))) {
    health = {Health::State::kFull, FullError(), since_unix_ms_};
  } else if (!merge_blocked_.ok()) {
    health = {Health::State::kWritable, merge_blocked_, since_unix_ms_};
  }
  return health;
}

}  // namespace ashlar
