// The root of a store: four copies of one 512-byte block. FORMAT.md, "Superblock".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/limits.h"
#include "engine/base/types.h"

namespace ashlar {

constexpr uint32_t kFormatVersion = 1;

// Who has the store open, so that a second open can name it. All zero: nobody, closed in order.
struct Owner {
  std::array<uint8_t, 16> boot_id{};
  uint32_t pid = 0;
  uint64_t start_time = 0;  // of the process, in clock ticks since boot
  bool operator==(const Owner&) const = default;
};

struct Superblock {
  uint32_t format_version = kFormatVersion;
  StoreId store;
  uint64_t generation = 0;
  uint64_t predecessor = 0;  // ContentChecksum of the generation before, 0 for the first
  uint32_t epoch = 0;
  uint32_t lba_bytes = 0;
  uint32_t extent_bytes = 0;
  uint64_t store_bytes = 0;
  uint64_t features_compatible = 0;
  uint64_t features_read_only_compatible = 0;
  uint64_t features_incompatible = 0;
  // Of the device it was made on.
  uint64_t serial_hash = 0;  // 0: it reported none
  uint32_t nsid = 0;
  std::array<uint8_t, 16> nguid{};
  std::array<uint8_t, 8> eui64{};
  Owner owner;
  // The manifest: its stream, the checksum of its first record, the extents of both copies.
  WriteId manifest;
  uint64_t manifest_first_checksum = 0;
  std::array<std::vector<ExtentId>, 2> manifest_extents;
};

// Byte offset of a copy on a device of `store_bytes`.
uint64_t SuperblockPlace(int copy, uint64_t store_bytes);

// Fills kSuperblockBytes.
void EncodeSuperblock(const Superblock& sb, int copy, std::byte* out);

// What the copies of one generation have in common: all but place and checksum.
uint64_t ContentChecksum(const Superblock& sb);

// The same state under the next generation: what an update starts from.
Superblock SuccessorOf(const Superblock& sb, uint64_t generation);

enum class SuperblockParse {
  kOk,
  kNotOurs,  // no magic
  kDamaged,  // magic, but checksum or place wrong, or impossible fields
  kNewer,  // a format version or an incompatible feature this code does not know; `detail` names it
};
SuperblockParse ParseSuperblock(const std::byte* in, int copy, Superblock* sb, std::string* detail);

std::string FormatStoreId(const StoreId& id);

}  // namespace ashlar
