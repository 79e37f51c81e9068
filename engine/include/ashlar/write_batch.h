// A list of changes that is applied whole or not at all, in the order added. Not thread-safe; may
// be reused after Clear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace ashlar {

class WriteBatch {
 public:
  WriteBatch() = default;

  // Copies key and value. Sizes are checked when the batch is written: see DB::Write.
  void Put(std::string_view key, std::string_view value);
  void Delete(std::string_view key);
  void Clear();

  size_t count() const { return count_; }
  // What the batch takes in the memtable, about: the figure that the limit on batches is about.
  // Keys, values and kEntryOverhead for each change.
  static constexpr size_t kEntryOverhead = 56;
  size_t bytes() const { return rep_.size() + count_ * kEntryOverhead; }

  // For the engine: the changes in the log's encoding (engine/format/entry.h).
  const std::string& rep() const { return rep_; }
  // Largest key and value seen, and whether all changes are deletes.
  size_t max_key_bytes() const { return max_key_; }
  size_t max_value_bytes() const { return max_value_; }
  bool has_empty_key() const { return empty_key_; }
  bool only_deletes() const { return puts_ == 0; }

 private:
  std::string rep_;
  size_t count_ = 0;
  size_t puts_ = 0;
  size_t max_key_ = 0;
  size_t max_value_ = 0;
  bool empty_key_ = false;
};

}  // namespace ashlar
