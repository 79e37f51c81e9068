#include "engine/memtable/memtable.h"

#include <cstring>
#include <new>

#include "io/check.h"

namespace ashlar {

// Behind the node's tower of `height` links lie the key and the value.
struct Memtable::Node {
  SequenceNumber sequence;
  uint32_t key_bytes;
  uint32_t value_bytes;
  EntryKind kind;
  uint8_t height;

  std::atomic<Node*>* links() { return reinterpret_cast<std::atomic<Node*>*>(this + 1); }
  const char* bytes() const {
    return reinterpret_cast<const char*>(this + 1) + height * sizeof(std::atomic<Node*>);
  }
  std::string_view key() const { return {bytes(), key_bytes}; }
  std::string_view value() const { return {bytes() + key_bytes, value_bytes}; }
  Node* next(int level) { return links()[level].load(std::memory_order_acquire); }
};

Memtable::Memtable(size_t bytes) : capacity_(bytes), memory_(new std::byte[bytes]) {
  static_assert(sizeof(Node) % alignof(std::atomic<Node*>) == 0);
  const size_t head_bytes = sizeof(Node) + kMaxHeight * sizeof(std::atomic<Node*>);
  head_ = new (Take(head_bytes)) Node{0, 0, 0, EntryKind::kValue, kMaxHeight};
  for (int i = 0; i < kMaxHeight; ++i) new (&head_->links()[i]) std::atomic<Node*>(nullptr);
}

Memtable::~Memtable() = default;

std::byte* Memtable::Take(size_t bytes) {
  bytes = (bytes + 7) / 8 * 8;
  CHECK(bytes <= capacity_ - used_);
  std::byte* const p = memory_.get() + used_;
  used_ += bytes;
  return p;
}

int Memtable::RandomHeight() {
  int height = 1;
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  for (uint64_t r = random_; height < kMaxHeight && (r & 3) == 0; r >>= 2) ++height;
  return height;
}

Memtable::Node* Memtable::FindAtOrAfter(std::string_view key, SequenceNumber sequence,
                                        Node** previous) const {
  Node* x = head_;
  int level = height_.load(std::memory_order_relaxed) - 1;
  for (;;) {
    Node* const next = x->next(level);
    bool before = false;
    if (next != nullptr) {
      const int c = next->key().compare(key);
      before = c < 0 || (c == 0 && next->sequence > sequence);
    }
    if (before) {
      x = next;
      continue;
    }
    if (previous != nullptr) previous[level] = x;
    if (level == 0) return next;
    --level;
  }
}

Memtable::Node* Memtable::FindBefore(std::string_view key, SequenceNumber sequence) const {
  Node* previous[kMaxHeight];
  FindAtOrAfter(key, sequence, previous);
  return previous[0] == head_ ? nullptr : previous[0];
}

Memtable::Node* Memtable::FindLast() const {
  Node* x = head_;
  for (int level = height_.load(std::memory_order_relaxed) - 1; level >= 0; --level) {
    while (Node* const next = x->next(level)) x = next;
  }
  return x == head_ ? nullptr : x;
}

void Memtable::Add(SequenceNumber sequence, EntryKind kind, std::string_view key,
                   std::string_view value) {
  Node* previous[kMaxHeight];
  FindAtOrAfter(key, sequence, previous);
  int height = RandomHeight();
  const size_t flat = sizeof(Node) + key.size() + value.size() + 8;
  if (flat + height * sizeof(std::atomic<Node*>) > bytes_free()) height = 1;
  const int old_height = height_.load(std::memory_order_relaxed);
  for (int i = old_height; i < height; ++i) previous[i] = head_;

  std::byte* const p =
      Take(sizeof(Node) + height * sizeof(std::atomic<Node*>) + key.size() + value.size());
  Node* const node =
      new (p) Node{sequence, static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size()),
                   kind, static_cast<uint8_t>(height)};
  char* const bytes = const_cast<char*>(node->bytes());
  std::memcpy(bytes, key.data(), key.size());
  if (!value.empty()) std::memcpy(bytes + key.size(), value.data(), value.size());
  for (int i = 0; i < height; ++i) {
    new (&node->links()[i])
        std::atomic<Node*>(previous[i]->links()[i].load(std::memory_order_relaxed));
  }
  // A reader that sees the new height before the links finds null links of the head: it goes down.
  if (height > old_height) height_.store(height, std::memory_order_relaxed);
  for (int i = 0; i < height; ++i) {
    previous[i]->links()[i].store(node, std::memory_order_release);
  }
  entries_.fetch_add(1, std::memory_order_relaxed);
  if (kind == EntryKind::kDelete) tombstones_.fetch_add(1, std::memory_order_relaxed);
  record_bytes_ += key.size() + value.size();
  if (sequence > max_sequence_) max_sequence_ = sequence;
}

Memtable::Found Memtable::Get(std::string_view key, SequenceNumber sequence,
                              std::string_view* value) const {
  const Node* const node = FindAtOrAfter(key, sequence, nullptr);
  if (node == nullptr || node->key() != key) return Found::kNo;
  if (node->kind == EntryKind::kDelete) return Found::kDeleted;
  *value = node->value();
  return Found::kValue;
}

class MemtableIterator : public InternalIterator {
 public:
  explicit MemtableIterator(const Memtable* memtable) : memtable_(memtable) {}
  void SeekToFirst() override { node_ = memtable_->head_->next(0); }
  void Seek(std::string_view target) override {
    node_ = memtable_->FindAtOrAfter(target, UINT64_MAX, nullptr);
  }
  void Next() override { node_ = node_->next(0); }
  void SeekToLast() override { node_ = memtable_->FindLast(); }
  void SeekBefore(std::string_view target) override {
    node_ = memtable_->FindBefore(target, UINT64_MAX);
  }
  void Prev() override { node_ = memtable_->FindBefore(node_->key(), node_->sequence); }
  bool Valid() const override { return node_ != nullptr; }
  std::string_view key() const override { return node_->key(); }
  std::string_view value() const override { return node_->value(); }
  SequenceNumber sequence() const override { return node_->sequence; }
  EntryKind kind() const override { return node_->kind; }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const Memtable* const memtable_;
  Memtable::Node* node_ = nullptr;
};

std::unique_ptr<InternalIterator> Memtable::NewIterator() const {
  return std::make_unique<MemtableIterator>(this);
}

}  // namespace ashlar
