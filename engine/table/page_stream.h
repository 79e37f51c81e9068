// Verified data pages of one table through one buffer, and the records in them. The common ground
// of Get and iterators; private to engine/table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/table/table_reader.h"

namespace ashlar {

class PageStream {
 public:
  // `buffer` holds `capacity` pages (at most 64). With a lease the buffer is the lease's own and
  // reads go straight into it; without, reads go through a lease taken for each.
  PageStream(const TableReader& reader, const TableMeta& meta, std::byte* buffer, uint32_t capacity,
             ExtentIo::Lease* lease)
      : reader_(reader), meta_(meta), buffer_(buffer), capacity_(capacity), lease_(lease) {}

  // Page `page`, verified; reads it together with up to `ahead` pages behind it when it is not
  // buffered, but none at or past `end`.
  absl::Status Page(uint32_t page, uint32_t ahead, uint32_t end, const std::byte** bytes,
                    PageHeader* header);

  // Page `page` on the way back: reads it together with up to `behind` pages before it, but none
  // before `begin`, and with `ahead` pages after it, which its last record runs on into.
  absl::Status PageBackward(uint32_t page, uint32_t ahead, uint32_t behind, uint32_t begin,
                            const std::byte** bytes, PageHeader* header);

  // One record, its position and its end. The views point into the buffer or into `scratch`.
  struct Record {
    RecordHead head;
    std::string_view key, value;
    uint32_t end_page = 0, end_offset = 0;
  };
  // The record that starts at (page, offset). Without `want_value` the value of a record that
  // leaves its page is not put together (and its view is empty). Pages up to `end` may be read.
  absl::Status ReadRecord(uint32_t page, uint32_t offset, uint32_t end, bool want_value,
                          std::string* scratch, Record* record);

  // From the end of a record to the start of the next; *found = false at `end`.
  absl::Status NextStart(uint32_t* page, uint32_t* offset, uint32_t ahead, uint32_t end,
                         bool* found);

 private:
  absl::Status Fill(uint32_t page, uint32_t count);
  // A page that is in the buffer, verified.
  absl::Status Buffered(uint32_t page, const std::byte** bytes, PageHeader* header);

  const TableReader& reader_;
  const TableMeta& meta_;
  std::byte* const buffer_;
  const uint32_t capacity_;
  ExtentIo::Lease* const lease_;
  uint32_t first_ = 0, count_ = 0;  // pages in the buffer
  uint64_t verified_ = 0;           // bit i: page first_ + i
};

}  // namespace ashlar
