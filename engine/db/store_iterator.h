// The state behind an Iterator, shared with the store so that either may end first. Private to
// engine/db.
#pragma once

#include <memory>
#include <string>

#include "engine/db/db_impl.h"

namespace ashlar {

struct DBImpl::IteratorState {
  Mutex mutex;                                  // held for the length of each call of the iterator
  DBImpl* db ABSL_GUARDED_BY(mutex) = nullptr;  // null once the store is gone
  SequenceNumber sequence = 0;                  // constant after NewIterator
  uint64_t number = 0;                          // likewise
  ViewPtr view ABSL_GUARDED_BY(mutex);
  std::unique_ptr<InternalIterator> stream ABSL_GUARDED_BY(mutex);

  // Drops what is held of the store; the next call builds it anew on a newer view at the same
  // sequence number.
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    stream.reset();
    view.reset();
  }
};

// Everything a view holds as one stream. With `damage` damaged pages are reported and passed over.
std::unique_ptr<InternalIterator> NewViewIterator(const ReadView& view,
                                                  DamageSink damage = nullptr);

}  // namespace ashlar
