// The one stream of entries inside the engine: ascending by key, for equal keys newest first.
// Memtables and tables give it; merges, the store's iterator and flush take it. One thread at a
// time.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "engine/base/types.h"

namespace ashlar {

class InternalIterator {
 public:
  virtual ~InternalIterator() = default;

  virtual void SeekToFirst() = 0;
  // To the first entry with a key >= target.
  virtual void Seek(std::string_view target) = 0;
  virtual void Next() = 0;  // requires Valid(), and a way here that led forward

  // Backwards, against that order: to the last entry; to the last one with a key < target; to the
  // one before. There is no turning round but by a seek, which finds the place anew.
  virtual void SeekToLast() = 0;
  virtual void SeekBefore(std::string_view target) = 0;
  virtual void Prev() = 0;  // requires Valid(), and a way here that led backwards

  virtual bool Valid() const = 0;
  // Views hold until the next move.
  virtual std::string_view key() const = 0;
  // Makes value() ready, which may read: a value that lies in several pages is put together only
  // now, so that of many streams beside each other one holds such a value. False when that failed:
  // the stream has ended, status() says why (or, where damage is passed over, it has moved on: look
  // at Valid()).
  virtual bool LoadValue() { return true; }
  // Requires LoadValue().
  virtual std::string_view value() const = 0;
  virtual SequenceNumber sequence() const = 0;
  virtual EntryKind kind() const = 0;
  // Not OK: the stream failed where it stands and is not Valid(). Whoever consumes a stream to its
  // end must look here: an end is an end only when this is OK.
  virtual absl::Status status() const = 0;
};

}  // namespace ashlar
