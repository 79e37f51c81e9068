// A forward walk over the store as it was when the iterator was made, in the order of the keys'
// bytes.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace ashlar {

// One thread at a time. Must end before the DB: Close answers FailedPrecondition while one is
// alive, and every call on an iterator after its DB is gone answers with that error and touches
// nothing else. It holds no table or memtable back: when the store wants them, it goes on by itself
// over newer ones at the same point in time; what it can still see is kept until it ends.
class Iterator {
 public:
  virtual ~Iterator() = default;
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;

  // Bounds are those of ReadOptions.
  virtual void SeekToFirst() = 0;
  // To the first key >= target within the bounds.
  virtual void Seek(std::string_view target) = 0;
  virtual void SeekToLast() = 0;
  // To the last key <= target within the bounds.
  virtual void SeekForPrev(std::string_view target) = 0;
  // Require Valid(): a call that does not have it ends the process. Past either end the iterator is
  // not Valid(), and a seek brings it back. Turning round costs as much as a seek.
  virtual void Next() = 0;
  virtual void Prev() = 0;

  // False at the end and after an error: then status() tells which.
  virtual bool Valid() const = 0;
  // Require Valid(); the views hold until the next call that moves the iterator.
  virtual std::string_view key() const = 0;
  virtual std::string_view value() const = 0;
  // DataLoss names the place of damage; the iterator stays where it failed and is not Valid().
  virtual absl::Status status() const = 0;

 protected:
  Iterator() = default;
};

}  // namespace ashlar
