#include "engine/format/page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/plant.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"

namespace ashlar {
namespace {

constexpr size_t kChecksumAt = 0, kWriteIdAt = 8, kKindAt = 16, kFlagsAt = 17, kFirstAt = 18,
                 kUsedAt = 20, kReservedAt = 22;
static_assert(kReservedAt + 2 == kPageHeaderBytes);

uint64_t Compute(const std::byte* page, const StoreId& store, WriteId write_id, ExtentId extent,
                 uint32_t page_in_extent) {
  return Checksum(page + kWriteIdAt, kPageBytes - kWriteIdAt,
                  PageSeed(store, write_id, extent, page_in_extent));
}

}  // namespace

void SealPage(std::byte* page, const PageHeader& header, const StoreId& store, ExtentId extent,
              uint32_t page_in_extent) {
  StoreLe<uint64_t>(page + kWriteIdAt, header.write_id.raw());
  StoreLe<uint8_t>(page + kKindAt, static_cast<uint8_t>(header.kind));
  StoreLe<uint8_t>(page + kFlagsAt, 0);
  StoreLe<uint16_t>(page + kFirstAt, header.first_record);
  StoreLe<uint16_t>(page + kUsedAt, header.used);
  StoreLe<uint16_t>(page + kReservedAt, 0);
  StoreLe<uint64_t>(page + kChecksumAt,
                    Compute(page, store, header.write_id, extent, page_in_extent));
}

PageHeader ReadPageHeader(const std::byte* page) {
  PageHeader header;
  header.write_id = WriteId::FromRaw(LoadLe<uint64_t>(page + kWriteIdAt));
  header.kind = static_cast<PageKind>(LoadLe<uint8_t>(page + kKindAt));
  header.first_record = LoadLe<uint16_t>(page + kFirstAt);
  header.used = LoadLe<uint16_t>(page + kUsedAt);
  return header;
}

uint64_t PageChecksum(const std::byte* page) { return LoadLe<uint64_t>(page + kChecksumAt); }

absl::Status VerifyPage(const std::byte* page, PageKind kind, WriteId write_id,
                        const StoreId& store, ExtentId extent, uint32_t page_in_extent,
                        PageHeader* header) {
  const uint64_t found = PageChecksum(page);
  const uint64_t expected = Compute(page, store, write_id, extent, page_in_extent);
  if (found != expected && !PLANT("page.skip_checksum")) {
    return absl::DataLossError(absl::StrFormat("checksum %016x, expected %016x", found, expected));
  }
  *header = ReadPageHeader(page);
  if (header->write_id != write_id || header->kind != kind) {
    return absl::DataLossError(absl::StrCat(
        "a page of kind ", static_cast<int>(header->kind), " and write id ", header->write_id.raw(),
        ", expected kind ", static_cast<int>(kind), " and write id ", write_id.raw()));
  }
  if (LoadLe<uint8_t>(page + kFlagsAt) != 0 || LoadLe<uint16_t>(page + kReservedAt) != 0 ||
      header->used < kPageHeaderBytes || header->used > kPageBytes ||
      (header->first_record != kNoRecordStarts &&
       (header->first_record < kPageHeaderBytes || header->first_record >= header->used))) {
    return absl::DataLossError("a page header with impossible fields");
  }
  return absl::OkStatus();
}

}  // namespace ashlar
