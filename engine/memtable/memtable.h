// The newest changes, in memory, in order: a skip list in one arena of fixed size. One writer at a
// time (externally synchronised), any number of readers beside it without locks: a node is
// published with one release store and never changes. Source of the structure: Pugh, "Skip Lists"
// (1990), in the single-writer form that LevelDB made common.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/base/internal_iterator.h"
#include "engine/base/types.h"

namespace ashlar {

class Memtable {
 public:
  // Takes `bytes` of memory at once.
  explicit Memtable(size_t bytes);
  ~Memtable();
  Memtable(const Memtable&) = delete;
  Memtable& operator=(const Memtable&) = delete;

  size_t bytes_free() const { return capacity_ - used_; }

  // Requires room: kEntryOverhead + key + value for each entry of a group, and kGroupSlack for the
  // group, is enough. A sequence number is used once per memtable.
  static constexpr size_t kEntryOverhead = 56;  // node, tower (1.33 links on average) and alignment
  static constexpr size_t kGroupSlack = 1024;   // towers of small groups can be higher than average
  void Add(SequenceNumber sequence, EntryKind kind, std::string_view key, std::string_view value);

  enum class Found { kNo, kValue, kDeleted };
  // The newest entry for `key` at or before `sequence`. *value points into the memtable.
  Found Get(std::string_view key, SequenceNumber sequence, std::string_view* value) const;

  // The memtable outlives it. Sees what was added before it moved there, and perhaps more.
  std::unique_ptr<InternalIterator> NewIterator() const;

  bool empty() const { return entries() == 0; }
  uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }
  uint64_t tombstones() const { return tombstones_.load(std::memory_order_relaxed); }
  uint64_t record_bytes() const { return record_bytes_; }
  SequenceNumber max_sequence() const { return max_sequence_; }

 private:
  friend class MemtableIterator;
  struct Node;
  static constexpr int kMaxHeight = 12;

  std::byte* Take(size_t bytes);
  int RandomHeight();
  // First node at or after (key, sequence); fills previous[] when not null.
  Node* FindAtOrAfter(std::string_view key, SequenceNumber sequence, Node** previous) const;
  // Last node before (key, sequence), or null. Nodes have no links back: it is searched for.
  Node* FindBefore(std::string_view key, SequenceNumber sequence) const;
  Node* FindLast() const;

  const size_t capacity_;
  std::unique_ptr<std::byte[]> memory_;
  size_t used_ = 0;
  Node* head_;
  std::atomic<int> height_{1};
  uint64_t random_ = 0x9e3779b97f4a7c15;
  std::atomic<uint64_t> entries_{0};
  std::atomic<uint64_t> tombstones_{0};
  uint64_t record_bytes_ = 0;
  SequenceNumber max_sequence_ = 0;
};

}  // namespace ashlar
