#include "engine/table/run_iterator.h"

#include <algorithm>

namespace ashlar {
namespace {

class RunIterator : public InternalIterator {
 public:
  RunIterator(const TableReader* reader, std::vector<std::shared_ptr<const TableMeta>> tables,
              DamageSink damage)
      : reader_(reader), tables_(std::move(tables)), damage_(std::move(damage)) {}

  void SeekToFirst() override {
    Open(0);
    if (current_ != nullptr) current_->SeekToFirst();
    SkipEnded();
  }
  void Seek(std::string_view target) override {
    const auto at =
        std::lower_bound(tables_.begin(), tables_.end(), target,
                         [](const auto& table, std::string_view t) { return table->largest < t; });
    Open(static_cast<size_t>(at - tables_.begin()));
    if (current_ != nullptr) current_->Seek(target);
    SkipEnded();
  }
  void Next() override {
    current_->Next();
    SkipEnded();
  }
  void SeekToLast() override {
    OpenLast(tables_.size());
    if (current_ != nullptr) current_->SeekToLast();
    SkipEndedBackward();
  }
  void SeekBefore(std::string_view target) override {
    const auto behind =
        std::lower_bound(tables_.begin(), tables_.end(), target,
                         [](const auto& table, std::string_view t) { return table->smallest < t; });
    OpenLast(static_cast<size_t>(behind - tables_.begin()));
    if (current_ != nullptr) current_->SeekBefore(target);
    SkipEndedBackward();
  }
  void Prev() override {
    current_->Prev();
    SkipEndedBackward();
  }
  bool Valid() const override { return current_ != nullptr && current_->Valid(); }
  std::string_view key() const override { return current_->key(); }
  bool LoadValue() override {
    if (current_->LoadValue()) return true;
    SkipEnded();
    return false;
  }
  std::string_view value() const override { return current_->value(); }
  SequenceNumber sequence() const override { return current_->sequence(); }
  EntryKind kind() const override { return current_->kind(); }
  absl::Status status() const override {
    return current_ == nullptr ? absl::OkStatus() : current_->status();
  }

 private:
  void Open(size_t index) {
    index_ = index;
    current_ = index < tables_.size() ? reader_->NewIterator(tables_[index], damage_) : nullptr;
  }
  // The last of the first `count` tables.
  void OpenLast(size_t count) {
    if (count > 0) return Open(count - 1);
    current_ = nullptr;
  }
  void SkipEndedBackward() {
    while (current_ != nullptr && !current_->Valid() && current_->status().ok()) {
      OpenLast(index_);
      if (current_ != nullptr) current_->SeekToLast();
    }
  }
  void SkipEnded() {
    while (current_ != nullptr && !current_->Valid() && current_->status().ok()) {
      Open(index_ + 1);
      if (current_ != nullptr) current_->SeekToFirst();
    }
  }

  const TableReader* const reader_;
  const std::vector<std::shared_ptr<const TableMeta>> tables_;
  const DamageSink damage_;
  size_t index_ = 0;
  std::unique_ptr<InternalIterator> current_;
};

}  // namespace

std::unique_ptr<InternalIterator> NewRunIterator(
    const TableReader* reader, std::vector<std::shared_ptr<const TableMeta>> tables,
    DamageSink damage) {
  return std::make_unique<RunIterator>(reader, std::move(tables), std::move(damage));
}

}  // namespace ashlar
