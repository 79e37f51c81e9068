#include "engine/table/page_stream.h"

#include <algorithm>
#include <cstring>

#include "engine/base/status.h"
#include "engine/format/page.h"

namespace ashlar {
absl::Status PageStream::Fill(uint32_t page, uint32_t count) {
  if (lease_ != nullptr) {
    return reader_.ReadPages(lease_->queue(), meta_, page, count, buffer_);
  }
  ExtentIo::Lease lease = reader_.io_->Acquire();
  RETURN_IF_ERROR(reader_.ReadPages(lease.queue(), meta_, page, count, lease.buffer()));
  std::memcpy(buffer_, lease.buffer(), size_t{count} * kPageBytes);
  return absl::OkStatus();
}

absl::Status PageStream::Page(uint32_t page, uint32_t ahead, uint32_t end, const std::byte** bytes,
                              PageHeader* header) {
  if (page < first_ || page >= first_ + count_) {
    count_ = 0;
    verified_ = 0;
    uint32_t n = std::min({capacity_, end - page, ahead + 1});
    absl::Status status = Fill(page, n);
    // One bad block must not take its neighbours along.
    if (!status.ok() && n > 1) status = Fill(page, n = 1);
    RETURN_IF_ERROR(status);
    first_ = page;
    count_ = n;
  }
  return Buffered(page, bytes, header);
}

absl::Status PageStream::PageBackward(uint32_t page, uint32_t ahead, uint32_t behind,
                                      uint32_t begin, const std::byte** bytes, PageHeader* header) {
  // What does not fit beside its page is read when it is asked for.
  if (ahead >= capacity_) ahead = 0;
  if (page < first_ || page + ahead >= first_ + count_) {
    count_ = 0;
    verified_ = 0;
    behind = std::min({behind, capacity_ - ahead - 1, page - begin});
    uint32_t first = page - behind, n = behind + 1 + ahead;
    absl::Status status = Fill(first, n);
    if (!status.ok() && n > 1) status = Fill(first = page, n = 1);
    RETURN_IF_ERROR(status);
    first_ = first;
    count_ = n;
  }
  return Buffered(page, bytes, header);
}

absl::Status PageStream::Buffered(uint32_t page, const std::byte** bytes, PageHeader* header) {
  const uint32_t i = page - first_;
  *bytes = buffer_ + size_t{i} * kPageBytes;
  if ((verified_ >> i & 1) != 0) {
    *header = ReadPageHeader(*bytes);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(reader_.VerifyAt(meta_, page, PageKind::kData, *bytes, header));
  verified_ |= uint64_t{1} << i;
  return absl::OkStatus();
}

absl::Status PageStream::ReadRecord(uint32_t page, uint32_t offset, uint32_t end, bool want_value,
                                    std::string* scratch, Record* record) {
  const std::byte* bytes;
  PageHeader header;
  RETURN_IF_ERROR(Page(page, 0, end, &bytes, &header));
  const std::string_view rest(reinterpret_cast<const char*>(bytes) + offset, header.used - offset);
  RecordHead& head = record->head;
  if (absl::Status s = ParseRecordHead(rest, &head); !s.ok()) {
    return reader_.Damaged(meta_, page, s.message());
  }
  const uint64_t total = head.bytes();
  if (total <= rest.size()) {
    record->key = rest.substr(head.head_bytes, head.key_bytes);
    record->value = rest.substr(head.head_bytes + head.key_bytes, head.value_bytes);
    record->end_page = page;
    record->end_offset = offset + static_cast<uint32_t>(total);
    return absl::OkStatus();
  }
  if (header.used != kPageBytes) {
    return reader_.Damaged(meta_, page, "a record that ends past the page's contents");
  }
  // It runs on. Where it ends follows from its size; what is wanted of it is put together in
  // scratch.
  const uint64_t beyond = total - rest.size();
  const uint64_t more_pages = (beyond + kPagePayloadBytes - 1) / kPagePayloadBytes;
  if (more_pages >= end - page) {
    return reader_.Damaged(meta_, page, "a record that runs on past the data pages");
  }
  record->end_page = page + static_cast<uint32_t>(more_pages);
  record->end_offset =
      kPageHeaderBytes + static_cast<uint32_t>(beyond - (more_pages - 1) * kPagePayloadBytes);
  const uint64_t body = uint64_t{head.key_bytes} + (want_value ? head.value_bytes : 0);
  scratch->clear();
  scratch->reserve(body);
  scratch->append(rest.substr(head.head_bytes, body));
  for (uint32_t p = page + 1; scratch->size() < body; ++p) {
    RETURN_IF_ERROR(Page(p, record->end_page - p, end, &bytes, &header));
    const uint64_t n = std::min<uint64_t>(body - scratch->size(), kPagePayloadBytes);
    if (header.used < kPageHeaderBytes + n) {
      return reader_.Damaged(meta_, p, "a page that ends inside a record");
    }
    scratch->append(reinterpret_cast<const char*>(bytes) + kPageHeaderBytes, n);
  }
  record->key = std::string_view(*scratch).substr(0, head.key_bytes);
  record->value = std::string_view(*scratch).substr(head.key_bytes);
  return absl::OkStatus();
}

absl::Status PageStream::NextStart(uint32_t* page, uint32_t* offset, uint32_t ahead, uint32_t end,
                                   bool* found) {
  *found = false;
  if (*page >= end) return absl::OkStatus();
  const std::byte* bytes;
  PageHeader header;
  RETURN_IF_ERROR(Page(*page, ahead, end, &bytes, &header));
  if (*offset < header.used) {
    *found = true;
    return absl::OkStatus();
  }
  for (++*page; *page < end; ++*page) {
    RETURN_IF_ERROR(Page(*page, ahead, end, &bytes, &header));
    if (header.used == kPageHeaderBytes) continue;  // left empty in front of an extent's end
    if (header.first_record != kPageHeaderBytes) {
      return reader_.Damaged(meta_, *page, "a page that does not go on where the last one ended");
    }
    *offset = kPageHeaderBytes;
    *found = true;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace ashlar
