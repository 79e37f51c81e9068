#include "engine/format/table_format.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"
#include "io/check.h"

namespace ashlar {

void AppendRecordHead(std::string* out, EntryKind kind, size_t key_bytes, size_t value_bytes,
                      SequenceNumber sequence) {
  out->push_back(static_cast<char>(kind));
  out->push_back(0);  // flags
  AppendVarint(out, key_bytes);
  AppendVarint(out, value_bytes);
  AppendVarint(out, sequence);
}

absl::Status ParseRecordHead(std::string_view bytes, RecordHead* head) {
  Cursor in(bytes);
  uint8_t kind = 0, flags = 0;
  uint64_t key_bytes = 0, value_bytes = 0;
  if (!in.Fixed(&kind) || !in.Fixed(&flags) || !in.VarintAtMost(kMaxKeyBytes, &key_bytes) ||
      !in.VarintAtMost(kMaxValueBytes, &value_bytes) || !in.Varint(&head->sequence) ||
      key_bytes == 0) {
    return absl::DataLossError("a record with impossible sizes");
  }
  if ((kind != static_cast<uint8_t>(EntryKind::kValue) &&
       kind != static_cast<uint8_t>(EntryKind::kDelete)) ||
      flags != 0) {
    return absl::DataLossError(
        absl::StrCat("a record of unknown kind ", kind, " or flags ", flags));
  }
  head->kind = static_cast<EntryKind>(kind);
  if (head->kind == EntryKind::kDelete && value_bytes != 0) {
    return absl::DataLossError("a delete with a value");
  }
  head->key_bytes = static_cast<uint32_t>(key_bytes);
  head->value_bytes = static_cast<uint32_t>(value_bytes);
  head->head_bytes = static_cast<uint32_t>(bytes.size() - in.left());
  return absl::OkStatus();
}

std::string_view ShortestSeparator(std::string_view before, std::string_view key) {
  size_t n = 0;
  const size_t common = std::min(before.size(), key.size());
  while (n < common && before[n] == key[n]) ++n;
  // before < key, so key has a byte at n that is greater, or goes on where `before` ends.
  return key.substr(0, std::min(n + 1, key.size()));
}

// ---- filter ----

namespace {
constexpr uint64_t kBitsPerKey = 12;
constexpr uint8_t kProbes = 8;
constexpr uint64_t kFilterSeed = 0x66696c746572;

uint64_t FilterBytes(size_t keys) { return std::max<uint64_t>(8, (keys * kBitsPerKey + 7) / 8); }
}  // namespace

void FilterBuilder::Add(std::string_view key) {
  const uint64_t h = Checksum(key.data(), key.size(), kFilterSeed);
  if (hashes_.empty() || hashes_.back() != h) hashes_.push_back(h);
}

size_t FilterBuilder::bytes() const { return 1 + FilterBytes(hashes_.size()); }

std::string FilterBuilder::Finish() {
  const uint64_t bytes = FilterBytes(hashes_.size());
  std::string filter(1 + bytes, '\0');
  filter[0] = static_cast<char>(kProbes);
  const uint64_t bits = bytes * 8;
  for (uint64_t h : hashes_) {
    const uint64_t delta = h >> 33 | h << 31;
    for (int i = 0; i < kProbes; ++i, h += delta) {
      const uint64_t bit = h % bits;
      filter[1 + bit / 8] = static_cast<char>(filter[1 + bit / 8] | 1 << bit % 8);
    }
  }
  hashes_.clear();
  return filter;
}

bool FilterMayContain(std::string_view filter, std::string_view key) {
  if (filter.size() < 2) return true;
  const int probes = static_cast<uint8_t>(filter[0]);
  const uint64_t bits = (filter.size() - 1) * 8;
  uint64_t h = Checksum(key.data(), key.size(), kFilterSeed);
  const uint64_t delta = h >> 33 | h << 31;
  for (int i = 0; i < probes; ++i, h += delta) {
    const uint64_t bit = h % bits;
    if ((filter[1 + bit / 8] & 1 << bit % 8) == 0) return false;
  }
  return true;
}

// ---- partition ----

void EncodePartition(const std::vector<Fence>& fences, std::string_view filter, std::string* out) {
  AppendVarint(out, fences.size());
  uint32_t page = 0;
  for (const Fence& f : fences) {
    AppendVarint(out, f.page - page);
    page = f.page;
    AppendVarint(out,
                 uint64_t{f.run_on} << 2 | (f.tail_bytes == 0 ? 0 : 2) | (f.continues ? 1 : 0));
    AppendBytes(out, f.key);
    if (f.tail_bytes > 0) AppendBytes(out, f.tail());
  }
  AppendBytes(out, filter);
}

absl::Status DecodePartition(std::string bytes, uint32_t data_pages, Partition* partition) {
  partition->bytes = std::move(bytes);
  Cursor in(partition->bytes);
  uint64_t count;
  // A fence takes at least three bytes.
  if (!in.VarintAtMost(in.left() / 3, &count) || count == 0) {
    return absl::DataLossError("an index partition with an impossible number of fences");
  }
  partition->fences.resize(count);
  uint64_t page = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Fence& f = partition->fences[i];
    uint64_t delta, run_on;
    std::string_view tail;
    if (!in.Varint(&delta) || !in.VarintAtMost(uint64_t{data_pages} << 2 | 3, &run_on) ||
        !in.Bytes(kMaxKeyBytes, &f.key) ||
        ((run_on & 2) != 0 &&
         (!in.Bytes(kTailBytesMax, &tail) || tail.empty() || tail < f.key || run_on < 4)) ||
        delta >= data_pages || (i > 0 && delta == 0)) {
      return absl::DataLossError("an index partition with an impossible fence");
    }
    page += delta;
    f.page = static_cast<uint32_t>(page);
    f.run_on = static_cast<uint32_t>(run_on >> 2);
    f.tail_bytes = static_cast<uint8_t>(tail.size());
    f.continues = (run_on & 1) != 0;
    if (page + f.run_on >= data_pages) {
      return absl::DataLossError("an index partition that points past the data");
    }
    if (i > 0) {
      const int c = partition->fences[i - 1].key.compare(f.key);
      if (c > 0 || (c == 0 && !f.continues)) {
        return absl::DataLossError("an index partition with fences out of order");
      }
    }
  }
  if (!in.Bytes(partition->bytes.size(), &partition->filter) || !in.done()) {
    return absl::DataLossError("an index partition with an impossible filter");
  }
  return absl::OkStatus();
}

void EncodeTop(const std::vector<TopEntry>& entries, std::string* out) {
  AppendVarint(out, entries.size());
  for (const TopEntry& e : entries) {
    AppendVarint(out, e.first_page);
    AppendVarint(out, e.pages);
    AppendBytes(out, e.key);
  }
}

absl::Status DecodeTop(std::string_view bytes, uint32_t data_pages, uint32_t top_page,
                       std::vector<TopEntry>* entries) {
  Cursor in(bytes);
  uint64_t count;
  if (!in.VarintAtMost(in.left() / 3, &count) || count == 0) {
    return absl::DataLossError("a top index with an impossible number of partitions");
  }
  entries->resize(count);
  uint64_t next = data_pages;
  for (TopEntry& e : *entries) {
    uint64_t first, pages;
    std::string_view key;
    if (!in.Varint(&first) || !in.Varint(&pages) || !in.Bytes(kMaxKeyBytes, &key) ||
        first != next || pages == 0 || pages > top_page - next) {
      return absl::DataLossError("a top index with an impossible entry");
    }
    next = first + pages;
    e.first_page = static_cast<uint32_t>(first);
    e.pages = static_cast<uint32_t>(pages);
    e.key = std::string(key);
  }
  for (size_t i = 1; i < entries->size(); ++i) {
    if ((*entries)[i - 1].key >= (*entries)[i].key) {
      return absl::DataLossError("a top index with partitions out of order");
    }
  }
  if (next != top_page || !in.done()) {
    return absl::DataLossError("a top index that does not cover the index pages");
  }
  return absl::OkStatus();
}

// ---- footer ----

namespace {
constexpr uint32_t kFooterMagic = 0x46545341;  // "ASTF"
}

std::string EncodeFooter(const Footer& f) {
  std::string out;
  AppendLe<uint32_t>(&out, kFooterMagic);
  AppendLe<uint32_t>(&out, f.data_pages);
  AppendLe<uint32_t>(&out, f.index_pages);
  AppendLe<uint32_t>(&out, f.top_pages);
  AppendLe<uint32_t>(&out, f.partitions);
  AppendLe<uint32_t>(&out, 0);
  AppendLe<uint64_t>(&out, f.entries);
  AppendLe<uint64_t>(&out, f.tombstones);
  AppendLe<uint64_t>(&out, f.record_bytes);
  AppendLe<uint64_t>(&out, f.min_sequence);
  AppendLe<uint64_t>(&out, f.max_sequence);
  return out;
}

absl::Status DecodeFooter(std::string_view bytes, uint32_t pages, Footer* f) {
  Cursor in(bytes);
  uint32_t magic = 0, reserved = 1;
  if (!in.Fixed(&magic) || !in.Fixed(&f->data_pages) || !in.Fixed(&f->index_pages) ||
      !in.Fixed(&f->top_pages) || !in.Fixed(&f->partitions) || !in.Fixed(&reserved) ||
      !in.Fixed(&f->entries) || !in.Fixed(&f->tombstones) || !in.Fixed(&f->record_bytes) ||
      !in.Fixed(&f->min_sequence) || !in.Fixed(&f->max_sequence) || !in.done() ||
      magic != kFooterMagic || reserved != 0) {
    return absl::DataLossError("not a table's footer");
  }
  const uint64_t sum = uint64_t{f->data_pages} + f->index_pages + f->top_pages + 1;
  if (sum != pages || f->data_pages == 0 || f->index_pages == 0 || f->top_pages == 0) {
    return absl::DataLossError(
        absl::StrCat("a footer that counts ", sum, " pages in a table of ", pages));
  }
  return absl::OkStatus();
}

}  // namespace ashlar
