// The 4 KiB page of a table: a 24-byte header and 4,072 bytes of payload. FORMAT.md, "Page".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/limits.h"
#include "engine/base/types.h"

namespace ashlar {

enum class PageKind : uint8_t { kData = 1, kIndex = 2, kTop = 3, kFooter = 4 };

constexpr uint32_t kPageHeaderBytes = 24;
constexpr uint32_t kPagePayloadBytes = kPageBytes - kPageHeaderBytes;
constexpr uint16_t kNoRecordStarts = 0xffff;

// The header, decoded. Offsets count from the start of the page.
struct PageHeader {
  WriteId write_id;
  PageKind kind = PageKind::kData;
  uint16_t first_record = kNoRecordStarts;  // data: where the first record that starts here lies
  uint16_t used = kPageHeaderBytes;         // end of the payload in use; zeros behind it
};

// Writes header and checksum into `page` (kPageBytes, payload in place).
void SealPage(std::byte* page, const PageHeader& header, const StoreId& store, ExtentId extent,
              uint32_t page_in_extent);

// Checks that `page` is the page asked for, whole: checksum with its place, kind, write id, header
// fields. DataLoss says what was expected and found; the caller adds the place.
absl::Status VerifyPage(const std::byte* page, PageKind kind, WriteId write_id,
                        const StoreId& store, ExtentId extent, uint32_t page_in_extent,
                        PageHeader* header);

// The header of a page that has been verified.
PageHeader ReadPageHeader(const std::byte* page);

// The checksum of a sealed page, for references to it.
uint64_t PageChecksum(const std::byte* page);

inline std::string_view PagePayload(const std::byte* page) {
  return {reinterpret_cast<const char*>(page) + kPageHeaderBytes, kPagePayloadBytes};
}

}  // namespace ashlar
