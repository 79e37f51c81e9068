#include "engine/iter/merging_iterator.h"

#include <algorithm>

namespace ashlar {
namespace {

class MergingIterator : public InternalIterator {
 public:
  explicit MergingIterator(std::vector<std::unique_ptr<InternalIterator>> children)
      : children_(std::move(children)) {
    heap_.reserve(children_.size());
  }

  void SeekToFirst() override {
    for (auto& c : children_) c->SeekToFirst();
    Rebuild();
  }
  void Seek(std::string_view target) override {
    for (auto& c : children_) c->Seek(target);
    Rebuild();
  }
  void Next() override {
    heap_.front()->Next();
    Settle();
  }
  bool Valid() const override { return !heap_.empty(); }
  std::string_view key() const override { return heap_.front()->key(); }
  bool LoadValue() override {
    InternalIterator* const top = heap_.front();
    if (top->LoadValue()) return true;
    if (!top->status().ok()) {
      Fail(top->status());
    } else {
      Settle();
    }
    return false;
  }
  std::string_view value() const override { return heap_.front()->value(); }
  SequenceNumber sequence() const override { return heap_.front()->sequence(); }
  EntryKind kind() const override { return heap_.front()->kind(); }
  absl::Status status() const override { return status_; }

 private:
  // The front child has moved: puts it where it belongs, or out.
  void Settle() {
    InternalIterator* const top = heap_.front();
    if (top->Valid()) {
      // Runs are long: the same child often stays in front, and then one comparison with each of
      // the heap's second row is all.
      return SiftDown();
    }
    if (!top->status().ok()) return Fail(top->status());
    std::pop_heap(heap_.begin(), heap_.end(), After);
    heap_.pop_back();
  }
  static bool After(const InternalIterator* a, const InternalIterator* b) {
    const int c = a->key().compare(b->key());
    return c > 0 || (c == 0 && a->sequence() < b->sequence());
  }
  void Fail(absl::Status status) {
    status_ = std::move(status);
    heap_.clear();
  }
  void Rebuild() {
    heap_.clear();
    status_ = absl::OkStatus();
    for (auto& c : children_) {
      if (c->Valid()) {
        heap_.push_back(c.get());
      } else if (!c->status().ok()) {
        return Fail(c->status());
      }
    }
    std::make_heap(heap_.begin(), heap_.end(), After);
  }
  void SiftDown() {
    size_t i = 0;
    for (;;) {
      size_t best = 2 * i + 1;
      if (best >= heap_.size()) return;
      if (best + 1 < heap_.size() && After(heap_[best], heap_[best + 1])) ++best;
      if (!After(heap_[i], heap_[best])) return;
      std::swap(heap_[i], heap_[best]);
      i = best;
    }
  }

  const std::vector<std::unique_ptr<InternalIterator>> children_;
  std::vector<InternalIterator*> heap_;  // the front has the smallest entry
  absl::Status status_;
};

}  // namespace

std::unique_ptr<InternalIterator> NewMergingIterator(
    std::vector<std::unique_ptr<InternalIterator>> children) {
  return std::make_unique<MergingIterator>(std::move(children));
}

}  // namespace ashlar
