// GET: one view (memtables, version) and one sequence number; memtables, then level 0 newest first,
// then the sorted runs downwards; the first hit wins. ITERATE: the same view as one merged stream,
// of which the newest visible version of each key is shown.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/db/db_impl.h"
#include "engine/db/store_iterator.h"
#include "engine/iter/merging_iterator.h"
#include "engine/table/run_iterator.h"

namespace ashlar {

absl::StatusOr<ViewPtr> DBImpl::TakeView() {
  MutexLock lock(&mutex_);
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the store is closed");
  return view_;
}

absl::StatusOr<SequenceNumber> DBImpl::SequenceFor(const ReadOptions& options) const {
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the store is closed");
  if (options.snapshot == nullptr) return last_sequence_;
  const auto* const snapshot = static_cast<const ListedSnapshot*>(options.snapshot);
  if (!snapshot->IsOf(snapshots_.get())) {
    return absl::InvalidArgumentError("a snapshot of another store, or of an earlier open of it");
  }
  return snapshot->sequence_number();
}

std::unique_ptr<const Snapshot> DBImpl::GetSnapshot() {
  MutexLock lock(&mutex_);
  return std::make_unique<ListedSnapshot>(snapshots_, last_sequence_);
}

namespace {

absl::Status GetFrom(const ReadView& view, SequenceNumber sequence, std::string_view key,
                     Value* value) {
  const absl::Status not_found = absl::NotFoundError("");
  for (const MemtablePtr& m : view.memtables) {
    std::string_view found;
    switch (m->table.Get(key, sequence, &found)) {
      case Memtable::Found::kNo:
        continue;
      case Memtable::Found::kDeleted:
        return not_found;
      case Memtable::Found::kValue:
        value->buffer()->assign(found);
        return absl::OkStatus();
    }
  }
  const auto look = [&](const TableMeta& table, bool* done) -> absl::Status {
    ASSIGN_OR_RETURN(const TableReader::Found found,
                     view.files->tables->Get(table, key, sequence, value->buffer()));
    *done = found != TableReader::Found::kNo;
    return found == TableReader::Found::kDeleted ? not_found : absl::OkStatus();
  };
  bool done = false;
  const auto& levels = view.version->levels;
  for (const TablePtr& t : levels[0]) {
    RETURN_IF_ERROR(look(*t, &done));
    if (done) return absl::OkStatus();
  }
  for (int level = 1; level <= kLastLevel; ++level) {
    const TablePtr* const t = TableFor(levels[level], key);
    if (t == nullptr) continue;
    RETURN_IF_ERROR(look(**t, &done));
    if (done) return absl::OkStatus();
  }
  return not_found;
}

}  // namespace

absl::Status DBImpl::Get(const ReadOptions& options, std::string_view key, Value* value) {
  if (key.empty()) return absl::InvalidArgumentError("a key must not be empty");
  if (key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key of ", key.size(), " bytes; the limit is ", kMaxKeyBytes));
  }
  ViewPtr view;
  SequenceNumber sequence;
  {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(sequence, SequenceFor(options));
    if (PLANT("get.two_moments")) {
      mutex_.Unlock();
      mutex_.Lock();
    }
    view = view_;
  }
  absl::Status status = GetFrom(*view, sequence, key, value);
  if (status.ok() || absl::IsNotFound(status)) gets_.Add(1);
  if (status.ok()) gets_found_.Add(1);
  return status;
}

std::unique_ptr<InternalIterator> NewViewIterator(const ReadView& view, DamageSink damage) {
  std::vector<std::unique_ptr<InternalIterator>> children;
  for (const MemtablePtr& m : view.memtables) children.push_back(m->table.NewIterator());
  const TableReader* const tables = view.files->tables.get();
  const auto& levels = view.version->levels;
  for (const TablePtr& t : levels[0]) children.push_back(tables->NewIterator(t, damage));
  for (int level = 1; level <= kLastLevel; ++level) {
    if (!levels[level].empty()) children.push_back(NewRunIterator(tables, levels[level], damage));
  }
  return NewMergingIterator(std::move(children));
}

// ---- iterator ----

class StoreIterator : public Iterator {
 public:
  // With an error it is one that shows nothing and answers with that.
  StoreIterator(std::shared_ptr<DBImpl::IteratorState> state, const ReadOptions& options,
                absl::Status refused)
      : state_(std::move(state)),
        lower_(options.lower_bound),
        upper_(options.upper_bound),
        refused_(std::move(refused)),
        status_(refused_) {}

  ~StoreIterator() override {
    MutexLock lock(&state_->mutex);
    state_->LetGo();
    if (state_->db != nullptr) state_->db->Forget(state_);
  }

  void SeekToFirst() override { Seek({}); }

  void Seek(std::string_view target) override {
    MutexLock lock(&state_->mutex);
    valid_ = false;
    if (!Ready()) return;
    state_->stream->Seek(std::max(target, std::string_view(lower_)));
    backward_ = false;
    FindVisible(nullptr);
  }

  void SeekToLast() override {
    MutexLock lock(&state_->mutex);
    valid_ = false;
    if (!Ready()) return;
    upper_.empty() ? state_->stream->SeekToLast() : state_->stream->SeekBefore(upper_);
    backward_ = true;
    FindVisibleBackward();
  }

  void SeekForPrev(std::string_view target) override {
    MutexLock lock(&state_->mutex);
    valid_ = false;
    if (!Ready()) return;
    std::string behind(target);
    behind.push_back('\0');  // the next key there can be
    const bool within = upper_.empty() || PLANT("iterator.upper_inclusive");
    state_->stream->SeekBefore(within ? behind : std::min(behind, upper_));
    backward_ = true;
    FindVisibleBackward();
  }

  void Next() override {
    CHECK(valid_);
    MutexLock lock(&state_->mutex);
    valid_ = false;
    const bool kept = state_->stream != nullptr;
    if (!Ready()) return;
    // Built anew, or turned round: back to where it was. The versions of the current key are passed
    // over below.
    if (!kept || backward_) state_->stream->Seek(key_);
    backward_ = false;
    FindVisible(&key_);
  }

  void Prev() override {
    CHECK(valid_);
    MutexLock lock(&state_->mutex);
    valid_ = false;
    const bool kept = state_->stream != nullptr;
    if (!Ready()) return;
    if (!kept || !backward_) state_->stream->SeekBefore(key_);
    backward_ = true;
    FindVisibleBackward();
  }

  bool Valid() const override { return valid_; }
  std::string_view key() const override {
    CHECK(valid_);
    return key_;
  }
  std::string_view value() const override {
    CHECK(valid_);
    return value_;
  }
  absl::Status status() const override { return status_; }

 private:
  // Makes sure there is a stream; false with status_ set when there can't be one.
  bool Ready() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    if (!refused_.ok()) return false;
    if (state_->db == nullptr) {
      status_ = absl::FailedPreconditionError("the store of this iterator is closed");
      return false;
    }
    status_ = absl::OkStatus();
    if (state_->stream != nullptr) return true;
    auto view = state_->db->TakeView();
    if (!view.ok()) {
      status_ = view.status();
      return false;
    }
    state_->view = *std::move(view);
    state_->stream = NewViewIterator(*state_->view);
    return true;
  }

  // From where the stream stands to the newest visible version of a key greater than *passed that
  // is not deleted.
  void FindVisible(const std::string* passed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    InternalIterator& s = *state_->stream;
    bool skip = passed != nullptr;
    if (skip) skip_key_ = *passed;
    for (; s.Valid(); s.Next()) {
      if (!upper_.empty() && s.key() >= upper_) return;
      if (s.sequence() > state_->sequence) continue;
      if (skip && s.key() == skip_key_) continue;
      if (s.kind() == EntryKind::kValue) {
        if (!s.LoadValue()) break;
        key_.assign(s.key());
        value_.assign(s.value());
        valid_ = true;
        return;
      }
      skip = true;
      skip_key_.assign(s.key());
    }
    status_ = s.status();
  }

  // Backwards a key's oldest version comes first: the newest visible one is known when the stream
  // has left the key.
  void FindVisibleBackward() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    InternalIterator& s = *state_->stream;
    bool seen = false, shown = false;  // a version of key_, and whether it is a value
    for (; s.Valid() && s.key() >= lower_; s.Prev()) {
      if (seen && s.key() != key_) {
        if (shown) break;
        seen = false;
      }
      if (s.sequence() > state_->sequence) continue;
      if (seen && PLANT("iterator.oldest_backwards")) continue;
      seen = true;
      key_.assign(s.key());
      shown = s.kind() == EntryKind::kValue;
      if (!shown) continue;
      if (!s.LoadValue()) break;
      value_.assign(s.value());
    }
    status_ = s.status();
    valid_ = status_.ok() && shown;
  }

  const std::shared_ptr<DBImpl::IteratorState> state_;
  const std::string lower_, upper_;
  const absl::Status refused_;
  std::string key_, value_, skip_key_;
  bool valid_ = false;
  bool backward_ = false;  // the stream's way, on which it stands behind what is shown
  absl::Status status_;
};

std::unique_ptr<Iterator> DBImpl::NewIterator(const ReadOptions& options) {
  auto state = std::make_shared<IteratorState>();
  MutexLock state_lock(&state->mutex);
  MutexLock lock(&mutex_);
  const absl::StatusOr<SequenceNumber> sequence = SequenceFor(options);
  if (!sequence.ok()) return std::make_unique<StoreIterator>(state, options, sequence.status());
  state->db = this;
  state->sequence = *sequence;
  if (PLANT("iterator.known_late")) {
    mutex_.Unlock();
    mutex_.Lock();
  }
  state->number = ++iterators_made_;
  iterators_[state->number] = state;
  return std::make_unique<StoreIterator>(std::move(state), options, absl::OkStatus());
}

void DBImpl::Forget(const std::shared_ptr<IteratorState>& state) {
  MutexLock lock(&mutex_);
  iterators_.erase(state->number);
}

}  // namespace ashlar
