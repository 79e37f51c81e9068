#include "engine/iter/merging_iterator.h"

#include <utility>

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
    Rebuild(false);
  }
  void Seek(std::string_view target) override {
    for (auto& c : children_) c->Seek(target);
    Rebuild(false);
  }
  void Next() override {
    heap_.front()->Next();
    Settle();
  }
  void SeekToLast() override {
    for (auto& c : children_) c->SeekToLast();
    Rebuild(true);
  }
  void SeekBefore(std::string_view target) override {
    for (auto& c : children_) c->SeekBefore(target);
    Rebuild(true);
  }
  void Prev() override {
    heap_.front()->Prev();
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
      return SiftDown(0);
    }
    if (!top->status().ok()) return Fail(top->status());
    std::swap(heap_.front(), heap_.back());
    heap_.pop_back();
    SiftDown(0);
  }
  // Whether `a` comes after `b` on the way.
  bool After(const InternalIterator* a, const InternalIterator* b) const {
    const int c = a->key().compare(b->key());
    return backward_ ? c < 0 || (c == 0 && a->sequence() > b->sequence())
                     : c > 0 || (c == 0 && a->sequence() < b->sequence());
  }
  void Fail(absl::Status status) {
    status_ = std::move(status);
    heap_.clear();
  }
  void Rebuild(bool backward) {
    backward_ = backward;
    heap_.clear();
    status_ = absl::OkStatus();
    for (auto& c : children_) {
      if (c->Valid()) {
        heap_.push_back(c.get());
      } else if (!c->status().ok()) {
        return Fail(c->status());
      }
    }
    for (size_t i = heap_.size() / 2; i-- > 0;) SiftDown(i);
  }
  void SiftDown(size_t i) {
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
  std::vector<InternalIterator*> heap_;  // the front has the entry that comes first
  bool backward_ = false;
  absl::Status status_;
};

}  // namespace

std::unique_ptr<InternalIterator> NewMergingIterator(
    std::vector<std::unique_ptr<InternalIterator>> children) {
  return std::make_unique<MergingIterator>(std::move(children));
}

}  // namespace ashlar
