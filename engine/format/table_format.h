// Records, index partitions, top index and footer of a table. FORMAT.md, "Table".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/types.h"
#include "engine/format/page.h"

namespace ashlar {

// ---- records ----

// The fixed part of a record never crosses a page: a record starts only where this much room is
// left.
constexpr uint32_t kRecordHeadMax = 32;

struct RecordHead {
  EntryKind kind = EntryKind::kValue;
  uint32_t key_bytes = 0, value_bytes = 0;
  SequenceNumber sequence = 0;
  uint32_t head_bytes = 0;  // of the encoding itself
  uint64_t bytes() const { return uint64_t{head_bytes} + key_bytes + value_bytes; }
};
void AppendRecordHead(std::string* out, EntryKind kind, size_t key_bytes, size_t value_bytes,
                      SequenceNumber sequence);
absl::Status ParseRecordHead(std::string_view in, RecordHead* head);

// The shortest key S with before < S <= key. Source: LevelDB's FindShortestSeparator, turned to
// bound from below.
std::string_view ShortestSeparator(std::string_view before, std::string_view key);

// ---- index ----

constexpr size_t kTailBytesMax = 64;  // longer ones are not worth their place in memory

// One fence for each data page in which a record starts.
struct Fence {
  std::string_view key;  // greater than every key that starts before the page, unless `continues`
  uint32_t page = 0;
  uint32_t run_on = 0;     // pages after this one that its last record reaches into
  bool continues = false;  // the first record that starts here has the same key as the one before
  // 0: as below, but unknown. Kept small: a store has one of these for each of its pages.
  uint8_t tail_bytes = 0;

  // Greater than every key that starts in the page but the last, not greater than that: below it
  // the page alone is enough. It stands where the key ends, after one byte.
  std::string_view tail() const { return {key.data() + key.size() + 1, tail_bytes}; }
  uint32_t RunOn(std::string_view for_key) const {
    return tail_bytes > 0 && for_key < tail() ? 0 : run_on;
  }
};

// Filter of a partition: a Bloom filter with 12 bits a key and 8 probes.
class FilterBuilder {
 public:
  void Add(std::string_view key);
  size_t keys() const { return hashes_.size(); }
  size_t bytes() const;
  std::string Finish();  // and starts over

 private:
  std::vector<uint64_t> hashes_;
};
bool FilterMayContain(std::string_view filter, std::string_view key);

struct Partition {
  std::string bytes;          // what fences and filter point into
  std::vector<Fence> fences;  // ascending
  std::string_view filter;
  Partition() = default;
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;
  size_t charge() const { return bytes.capacity() + fences.capacity() * sizeof(Fence) + 128; }
};
void EncodePartition(const std::vector<Fence>& fences, std::string_view filter, std::string* out);
// Takes `bytes` over.
absl::Status DecodePartition(std::string bytes, uint32_t data_pages, Partition* partition);

struct TopEntry {
  std::string key;  // of the partition's first fence
  uint32_t first_page = 0;
  uint32_t pages = 0;
};
void EncodeTop(const std::vector<TopEntry>& entries, std::string* out);
absl::Status DecodeTop(std::string_view bytes, uint32_t data_pages, uint32_t top_page,
                       std::vector<TopEntry>* entries);

struct Footer {
  uint32_t data_pages = 0;   // pages 0 to data_pages - 1
  uint32_t index_pages = 0;  // then these
  uint32_t top_pages = 0;    // then these, then the footer
  uint32_t partitions = 0;
  uint64_t entries = 0, tombstones = 0, record_bytes = 0;
  SequenceNumber min_sequence = 0, max_sequence = 0;
};
std::string EncodeFooter(const Footer& footer);
absl::Status DecodeFooter(std::string_view bytes, uint32_t pages, Footer* footer);

}  // namespace ashlar
