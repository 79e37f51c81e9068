// The store as it was at one point in time, for as many reads as one likes: ReadOptions::snapshot.
#pragma once

#include <cstdint>

namespace ashlar {

// Any thread, several at a time. Lives at least as long as the calls that are given it; an iterator
// made with it may live longer. Must end before the DB: Close answers FailedPrecondition while one
// is alive; one that outlives its DB is no harm, and good for nothing. It holds no table or
// memtable back: only, merges keep what it can still see, and the space that takes is not free
// until it ends.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Of the last change it shows; the changes of a store are numbered in the order in which they
  // became visible, from 1.
  virtual uint64_t sequence_number() const = 0;

 protected:
  Snapshot() = default;
};

}  // namespace ashlar
