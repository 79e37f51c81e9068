// The snapshots of a store that are alive, shared with each of them so that either may end first.
// Any thread; its mutex is the last that is taken. Private to engine/db.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "ashlar/snapshot.h"
#include "engine/base/sync.h"
#include "engine/base/types.h"

namespace ashlar {

class SnapshotList {
 public:
  void Add(SequenceNumber sequence) {
    MutexLock lock(&mutex_);
    sequences_.insert(sequence);
  }
  void Remove(SequenceNumber sequence) {
    MutexLock lock(&mutex_);
    sequences_.erase(sequences_.find(sequence));
  }
  size_t size() const {
    MutexLock lock(&mutex_);
    return sequences_.size();
  }
  void AppendTo(std::vector<SequenceNumber>* sequences) const {
    MutexLock lock(&mutex_);
    sequences->insert(sequences->end(), sequences_.begin(), sequences_.end());
  }

 private:
  mutable Mutex mutex_;
  std::multiset<SequenceNumber> sequences_ ABSL_GUARDED_BY(mutex_);
};

// The only implementation of Snapshot.
class ListedSnapshot : public Snapshot {
 public:
  ListedSnapshot(std::shared_ptr<SnapshotList> list, SequenceNumber sequence)
      : list_(std::move(list)), sequence_(sequence) {
    list_->Add(sequence_);
  }
  ~ListedSnapshot() override { list_->Remove(sequence_); }

  uint64_t sequence_number() const override { return sequence_; }
  bool IsOf(const SnapshotList* list) const { return list_.get() == list; }

 private:
  const std::shared_ptr<SnapshotList> list_;
  const SequenceNumber sequence_;
};

}  // namespace ashlar
