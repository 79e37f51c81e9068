#include "engine/table/table_builder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/limits.h"
#include "engine/base/plant.h"
#include "engine/base/rounding.h"
#include "engine/base/status.h"

namespace ashlar {
namespace {

// A partition is closed when its encoding is about to outgrow one page.
constexpr size_t kPartitionBytes = kPagePayloadBytes - 400;
// A record that does not fit into the rest of its extent starts in the next one when it is at most
// this part of an extent: then one command reads it. Larger ones run through.
constexpr uint32_t kKeepWholeShare = 16;

}  // namespace

TableBuilder::TableBuilder(ExtentIo* io, const StoreId& store, WriteId id, ExtentSource extents)
    : io_(io), store_(store), id_(id), source_(std::move(extents)), lease_(io->Acquire()) {
  half_pages_ = lease_.buffer_bytes() / kPageBytes / 2;
  CHECK(half_pages_ > 0);
  halves_[0].base = lease_.buffer();
  halves_[1].base = lease_.buffer() + size_t{half_pages_} * kPageBytes;
}

TableBuilder::~TableBuilder() { lease_.queue().Drain(); }

absl::Status TableBuilder::Await(Half* half) {
  std::array<io::Request*, 8> finished;
  while (half->pending > 0) {
    const size_t n = lease_.queue().Poll(finished, true);
    for (size_t i = 0; i < n; ++i) --halves_[finished[i]->cookie].pending;
  }
  for (const ExtentIo::Command& c : half->commands) {
    if (!c.request.status.ok()) return io::ToStatus(c.request, io_->device());
  }
  half->commands.clear();
  return absl::OkStatus();
}

absl::Status TableBuilder::Abandon(const absl::Status& why) {
  for (Half& half : halves_) {
    (void)Await(&half);
    for (const ExtentIo::Command& c : half.commands) {
      if (c.request.status.cls <= io::IoClass::kFull) continue;
      return io::ToStatus(c.request, io_->device());
    }
  }
  return why;
}

absl::Status TableBuilder::WriteHalf() {
  Half& h = halves_[half_];
  if (h.pages > 0) {
    io_->Prepare(io::Op::kWrite, extents_, uint64_t{h.first_page} * kPageBytes,
                 {h.base, size_t{h.pages} * kPageBytes}, io::kBackground, &h.commands);
    for (ExtentIo::Command& c : h.commands) {
      // More runs than the queue is deep: wait for the other half, then for this one's earlier
      // runs.
      while (lease_.queue().in_flight() == lease_.queue().depth()) {
        std::array<io::Request*, 8> finished;
        const size_t n = lease_.queue().Poll(finished, true);
        for (size_t i = 0; i < n; ++i) --halves_[finished[i]->cookie].pending;
      }
      c.request.cookie = static_cast<uint64_t>(half_);
      ++h.pending;
      io::Request* const one[] = {&c.request};
      lease_.queue().Submit(one);
    }
  }
  half_ ^= 1;
  Half& next = halves_[half_];
  RETURN_IF_ERROR(Await(&next));
  next.pages = 0;
  next.first_page = next_page_;
  return absl::OkStatus();
}

absl::Status TableBuilder::OpenPage() {
  if (halves_[half_].pages == half_pages_) RETURN_IF_ERROR(WriteHalf());
  if (next_page_ == extents_.size() * PagesPerExtent()) {
    ASSIGN_OR_RETURN(const ExtentId extent, source_());
    extents_.push_back(extent);
  }
  Half& h = halves_[half_];
  page_ = h.base + size_t{h.pages} * kPageBytes;
  std::memset(page_, 0, kPageBytes);
  used_ = kPageHeaderBytes;
  first_record_ = kNoRecordStarts;
  ++next_page_;
  return absl::OkStatus();
}

absl::Status TableBuilder::SealCurrent(PageKind kind) {
  const uint32_t page = next_page_ - 1;
  PageHeader header;
  header.write_id = id_;
  header.kind = kind;
  header.first_record = first_record_;
  header.used = static_cast<uint16_t>(used_);
  SealPage(page_, header, store_, extents_[page / PagesPerExtent()],
           static_cast<uint32_t>(page % PagesPerExtent()));
  ++halves_[half_].pages;
  page_ = nullptr;
  return absl::OkStatus();
}

absl::Status TableBuilder::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (used_ == kPageBytes) {
      RETURN_IF_ERROR(SealCurrent(PageKind::kData));
      RETURN_IF_ERROR(OpenPage());
    }
    const size_t n = std::min<size_t>(bytes.size(), kPageBytes - used_);
    std::memcpy(page_ + used_, bytes.data(), n);
    used_ += static_cast<uint32_t>(n);
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

void TableBuilder::StartFence(std::string_view key, bool continues) {
  // A partition is never cut between two versions of one key: the top index then needs no such
  // case.
  const size_t estimate = fence_keys_.size() + fences_.size() * 7 + filter_.bytes() + 16;
  if (!fences_.empty() && !continues && estimate > kPartitionBytes) ClosePartition();
  const std::string_view fence =
      continues || footer_.entries == 0 ? key : ShortestSeparator(last_key_, key);
  fences_.push_back({{}, next_page_ - 1, 0, continues});
  fence_keys_at_.push_back({fence_keys_.size(), fence.size()});
  fence_keys_.append(fence);
}

void TableBuilder::ClosePartition() {
  for (size_t i = 0; i < fences_.size(); ++i) {
    fences_[i].key =
        std::string_view(fence_keys_).substr(fence_keys_at_[i].first, fence_keys_at_[i].second);
  }
  top_.push_back({std::string(fences_.front().key), 0, 0});
  EncodePartition(fences_, filter_.Finish(), &index_);
  partition_ends_.push_back(index_.size());
  fences_.clear();
  fence_keys_at_.clear();
  fence_keys_.clear();
}

absl::Status TableBuilder::Add(EntryKind kind, SequenceNumber sequence, std::string_view key,
                               std::string_view value) {
  bool continues = false;
  if (footer_.entries > 0) {
    const int c = last_key_.compare(key);
    if (c > 0 || (c == 0 && last_sequence_ <= sequence)) {
      return absl::DataLossError("records out of order: an input of this table is damaged");
    }
    continues = c == 0;
  }
  scratch_.clear();
  AppendRecordHead(&scratch_, kind, key.size(), value.size(), sequence);
  const uint64_t bytes = scratch_.size() + key.size() + value.size();

  if (page_ != nullptr && kPageBytes - used_ < kRecordHeadMax) {
    RETURN_IF_ERROR(SealCurrent(PageKind::kData));
  }
  if (page_ == nullptr) RETURN_IF_ERROR(OpenPage());
  uint64_t pages_behind = (PagesPerExtent() - next_page_ % PagesPerExtent()) % PagesPerExtent();
  const uint64_t room = kPageBytes - used_ + pages_behind * kPagePayloadBytes;
  if (bytes > room && bytes <= io_->extent_bytes() / kKeepWholeShare) {
    for (; pages_behind > 0; --pages_behind) {
      RETURN_IF_ERROR(SealCurrent(PageKind::kData));
      RETURN_IF_ERROR(OpenPage());
    }
    RETURN_IF_ERROR(SealCurrent(PageKind::kData));
    RETURN_IF_ERROR(OpenPage());
  }

  const bool starts_page = first_record_ == kNoRecordStarts;
  if (starts_page) {
    first_record_ = static_cast<uint16_t>(used_);
    StartFence(key, continues);
  }
  if (!PLANT("table.forget_filter_keys") || footer_.entries % 97 != 0) filter_.Add(key);
  const uint32_t start = next_page_ - 1;
  RETURN_IF_ERROR(Append(scratch_));
  RETURN_IF_ERROR(Append(key));
  RETURN_IF_ERROR(Append(value));
  Fence& fence = fences_.back();
  fence.run_on = PLANT("table.forget_run_on") ? 0 : next_page_ - 1 - start;
  if (fence.run_on > 0 && !starts_page) {
    const std::string_view tail = continues ? key : ShortestSeparator(last_key_, key);
    if (tail.size() <= kTailBytesMax) {
      fence_keys_.push_back('\0');
      fence_keys_.append(tail);
      fence.tail_bytes = static_cast<uint8_t>(tail.size());
    }
  }

  if (footer_.entries == 0) {
    smallest_ = std::string(key);
    footer_.min_sequence = footer_.max_sequence = sequence;
  }
  ++footer_.entries;
  footer_.tombstones += kind == EntryKind::kDelete;
  footer_.record_bytes += key.size() + value.size();
  footer_.min_sequence = std::min(footer_.min_sequence, sequence);
  footer_.max_sequence = std::max(footer_.max_sequence, sequence);
  last_key_.assign(key);
  last_sequence_ = sequence;
  return absl::OkStatus();
}

absl::Status TableBuilder::AppendStream(PageKind kind, std::string_view bytes) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(OpenPage());
    const size_t n = std::min<size_t>(bytes.size(), kPagePayloadBytes);
    std::memcpy(page_ + kPageHeaderBytes, bytes.data(), n);
    used_ = kPageHeaderBytes + static_cast<uint32_t>(n);
    bytes.remove_prefix(n);
    RETURN_IF_ERROR(SealCurrent(kind));
  }
  return absl::OkStatus();
}

uint64_t TableBuilder::bytes_if_finished() const {
  if (footer_.entries == 0) return 0;
  const uint64_t record = footer_.record_bytes / footer_.entries + kRecordHeadMax;
  const uint64_t partitions = top_.size() + 2;  // the open one, and one that the record may begin
  // A key of the top index is a fence: taken to be as long as the last record's.
  const uint64_t top = partitions * (last_key_.size() + 16);
  return kPageBytes * (next_page_ + CeilDiv(record, kPagePayloadBytes) + partitions +
                       CeilDiv(top, kPagePayloadBytes) + 1);
}

absl::StatusOr<TableMeta> TableBuilder::Finish() {
  CHECK(footer_.entries > 0);
  if (page_ != nullptr) RETURN_IF_ERROR(SealCurrent(PageKind::kData));
  ClosePartition();
  footer_.data_pages = next_page_;
  size_t begin = 0;
  for (size_t i = 0; i < top_.size(); ++i) {
    top_[i].first_page = next_page_;
    RETURN_IF_ERROR(AppendStream(
        PageKind::kIndex, std::string_view(index_).substr(begin, partition_ends_[i] - begin)));
    top_[i].pages = next_page_ - top_[i].first_page;
    begin = partition_ends_[i];
  }
  footer_.index_pages = next_page_ - footer_.data_pages;
  footer_.partitions = static_cast<uint32_t>(top_.size());
  std::string top;
  EncodeTop(top_, &top);
  RETURN_IF_ERROR(AppendStream(PageKind::kTop, top));
  footer_.top_pages = next_page_ - footer_.data_pages - footer_.index_pages;

  RETURN_IF_ERROR(OpenPage());
  const std::string footer = EncodeFooter(footer_);
  std::memcpy(page_ + kPageHeaderBytes, footer.data(), footer.size());
  used_ = kPageHeaderBytes + static_cast<uint32_t>(footer.size());
  std::byte* const footer_page = page_;
  RETURN_IF_ERROR(SealCurrent(PageKind::kFooter));

  TableMeta meta;
  meta.id = id_;
  meta.extents = extents_;
  meta.pages = next_page_;
  meta.tail_pages = footer_.top_pages + 1;
  meta.footer_checksum = PageChecksum(footer_page);
  meta.entries = footer_.entries;
  meta.tombstones = footer_.tombstones;
  meta.record_bytes = footer_.record_bytes;
  meta.min_sequence = footer_.min_sequence;
  meta.max_sequence = footer_.max_sequence;
  meta.smallest = smallest_;
  meta.largest = last_key_;
  RETURN_IF_ERROR(WriteHalf());
  RETURN_IF_ERROR(Await(&halves_[0]));
  RETURN_IF_ERROR(Await(&halves_[1]));
  return meta;
}

}  // namespace ashlar
