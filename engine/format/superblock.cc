#include "engine/format/superblock.h"

#include <bit>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"
#include "io/check.h"

namespace ashlar {
namespace {

constexpr char kMagic[8] = {'A', 'S', 'H', 'L', 'A', 'R', 'S', 'B'};
constexpr char kOrder[16] = "bytewise";
constexpr uint32_t kChecksumXxh3 = 1;

// Offsets; `content` begins behind checksum and place.
constexpr size_t kMagicAt = 0, kChecksumAt = 8, kCopyAt = 16, kVersionAt = 20, kChecksumIdAt = 24,
                 kLbaAt = 28, kStoreAt = 32, kGenerationAt = 48, kPredecessorAt = 56, kEpochAt = 64,
                 kExtentAt = 68, kBytesAt = 72, kCompatAt = 80, kRoCompatAt = 88, kIncompatAt = 96,
                 kOrderAt = 104, kDevicesAt = 120, kNsidAt = 124, kSerialAt = 128, kNguidAt = 136,
                 kEuiAt = 152, kBootAt = 160, kPidAt = 176, kManifestCountAt = 180, kStartAt = 184,
                 kManifestAt = 192, kManifestSumAt = 200, kExtentsAt = 208,
                 kReservedAt = kExtentsAt + 2 * 4 * kManifestExtentsMax;
static_assert(kReservedAt <= kSuperblockBytes);
constexpr size_t kContentAt = kVersionAt;

uint64_t Sum(const std::byte* block) {
  // The version decides how the rest is read, so the magic, place and everything else are covered.
  return Checksum(block + kCopyAt, kSuperblockBytes - kCopyAt, 0x41534853);
}

bool ValidExtentBytes(uint32_t bytes) {
  return bytes >= kMinExtentBytes && bytes <= kMaxExtentBytes && std::has_single_bit(bytes);
}

}  // namespace

uint64_t SuperblockPlace(int copy, uint64_t store_bytes) {
  constexpr uint64_t kMiB = 1ull << 20;
  switch (copy) {
    case 0:
      return 0;
    case 1:
      return 32 * kMiB;
    case 2:
      return store_bytes / 4 * 3 / kMiB * kMiB;
    default:
      CHECK(copy == 3);
      return store_bytes / kMiB * kMiB - kMiB;
  }
}

void EncodeSuperblock(const Superblock& sb, int copy, std::byte* out) {
  std::memset(out, 0, kSuperblockBytes);
  std::memcpy(out + kMagicAt, kMagic, sizeof kMagic);
  StoreLe<uint32_t>(out + kCopyAt, static_cast<uint32_t>(copy));
  StoreLe<uint32_t>(out + kVersionAt, sb.format_version);
  StoreLe<uint32_t>(out + kChecksumIdAt, kChecksumXxh3);
  StoreLe<uint32_t>(out + kLbaAt, sb.lba_bytes);
  std::memcpy(out + kStoreAt, sb.store.bytes.data(), 16);
  StoreLe<uint64_t>(out + kGenerationAt, sb.generation);
  StoreLe<uint64_t>(out + kPredecessorAt, sb.predecessor);
  StoreLe<uint32_t>(out + kEpochAt, sb.epoch);
  StoreLe<uint32_t>(out + kExtentAt, sb.extent_bytes);
  StoreLe<uint64_t>(out + kBytesAt, sb.store_bytes);
  StoreLe<uint64_t>(out + kCompatAt, sb.features_compatible);
  StoreLe<uint64_t>(out + kRoCompatAt, sb.features_read_only_compatible);
  StoreLe<uint64_t>(out + kIncompatAt, sb.features_incompatible);
  std::memcpy(out + kOrderAt, kOrder, sizeof kOrder);
  StoreLe<uint32_t>(out + kDevicesAt, 1);
  StoreLe<uint32_t>(out + kNsidAt, sb.nsid);
  StoreLe<uint64_t>(out + kSerialAt, sb.serial_hash);
  std::memcpy(out + kNguidAt, sb.nguid.data(), 16);
  std::memcpy(out + kEuiAt, sb.eui64.data(), 8);
  std::memcpy(out + kBootAt, sb.owner.boot_id.data(), 16);
  StoreLe<uint32_t>(out + kPidAt, sb.owner.pid);
  StoreLe<uint64_t>(out + kStartAt, sb.owner.start_time);
  StoreLe<uint64_t>(out + kManifestAt, sb.manifest.raw());
  StoreLe<uint64_t>(out + kManifestSumAt, sb.manifest_first_checksum);
  const size_t count = sb.manifest_extents[0].size();
  CHECK(count <= kManifestExtentsMax && count == sb.manifest_extents[1].size());
  StoreLe<uint32_t>(out + kManifestCountAt, static_cast<uint32_t>(count));
  for (size_t m = 0; m < 2; ++m) {
    for (size_t i = 0; i < count; ++i) {
      StoreLe<uint32_t>(out + kExtentsAt + 4 * (m * kManifestExtentsMax + i),
                        Raw(sb.manifest_extents[m][i]));
    }
  }
  StoreLe<uint64_t>(out + kChecksumAt, Sum(out));
}

uint64_t ContentChecksum(const Superblock& sb) {
  std::byte block[kSuperblockBytes];
  EncodeSuperblock(sb, 0, block);
  return Checksum(block + kContentAt, kSuperblockBytes - kContentAt, 0);
}

Superblock SuccessorOf(const Superblock& sb, uint64_t generation) {
  Superblock next = sb;
  next.generation = generation;
  next.predecessor = PLANT("superblock.wrong_predecessor") ? sb.predecessor : ContentChecksum(sb);
  return next;
}

SuperblockParse ParseSuperblock(const std::byte* in, int copy, Superblock* sb,
                                std::string* detail) {
  if (std::memcmp(in + kMagicAt, kMagic, sizeof kMagic) != 0) return SuperblockParse::kNotOurs;
  const auto damaged = [&](std::string_view why) {
    *detail = std::string(why);
    return SuperblockParse::kDamaged;
  };
  if (LoadLe<uint64_t>(in + kChecksumAt) != Sum(in)) return damaged("checksum does not match");
  if (LoadLe<uint32_t>(in + kCopyAt) != static_cast<uint32_t>(copy)) {
    return damaged(absl::StrCat("it is copy ", LoadLe<uint32_t>(in + kCopyAt)));
  }
  sb->format_version = LoadLe<uint32_t>(in + kVersionAt);
  if (sb->format_version > kFormatVersion) {
    *detail = absl::StrCat("format version ", sb->format_version, "; this program knows up to ",
                           kFormatVersion);
    return SuperblockParse::kNewer;
  }
  if (sb->format_version == 0) return damaged("format version 0");
  sb->features_compatible = LoadLe<uint64_t>(in + kCompatAt);
  sb->features_read_only_compatible = LoadLe<uint64_t>(in + kRoCompatAt);
  sb->features_incompatible = LoadLe<uint64_t>(in + kIncompatAt);
  if (sb->features_incompatible != 0 || LoadLe<uint32_t>(in + kChecksumIdAt) != kChecksumXxh3 ||
      std::memcmp(in + kOrderAt, kOrder, sizeof kOrder) != 0 ||
      LoadLe<uint32_t>(in + kDevicesAt) != 1) {
    *detail =
        absl::StrCat("features ", absl::Hex(sb->features_incompatible), ", checksum id ",
                     LoadLe<uint32_t>(in + kChecksumIdAt), ", ", LoadLe<uint32_t>(in + kDevicesAt),
                     " devices, or an order of keys, that this program does not know");
    return SuperblockParse::kNewer;
  }
  std::memcpy(sb->store.bytes.data(), in + kStoreAt, 16);
  sb->lba_bytes = LoadLe<uint32_t>(in + kLbaAt);
  sb->generation = LoadLe<uint64_t>(in + kGenerationAt);
  sb->predecessor = LoadLe<uint64_t>(in + kPredecessorAt);
  sb->epoch = LoadLe<uint32_t>(in + kEpochAt);
  sb->extent_bytes = LoadLe<uint32_t>(in + kExtentAt);
  sb->store_bytes = LoadLe<uint64_t>(in + kBytesAt);
  sb->nsid = LoadLe<uint32_t>(in + kNsidAt);
  sb->serial_hash = LoadLe<uint64_t>(in + kSerialAt);
  std::memcpy(sb->nguid.data(), in + kNguidAt, 16);
  std::memcpy(sb->eui64.data(), in + kEuiAt, 8);
  std::memcpy(sb->owner.boot_id.data(), in + kBootAt, 16);
  sb->owner.pid = LoadLe<uint32_t>(in + kPidAt);
  sb->owner.start_time = LoadLe<uint64_t>(in + kStartAt);
  sb->manifest = WriteId::FromRaw(LoadLe<uint64_t>(in + kManifestAt));
  sb->manifest_first_checksum = LoadLe<uint64_t>(in + kManifestSumAt);
  const uint32_t count = LoadLe<uint32_t>(in + kManifestCountAt);
  if ((sb->lba_bytes != 512 && sb->lba_bytes != 4096) || !ValidExtentBytes(sb->extent_bytes) ||
      sb->store_bytes < kMinStoreBytes || sb->store_bytes / sb->extent_bytes > kMaxExtents ||
      sb->generation == 0 || count == 0 || count > kManifestExtentsMax) {
    return damaged("impossible fields");
  }
  const uint64_t extents = sb->store_bytes / sb->extent_bytes;
  for (size_t m = 0; m < 2; ++m) {
    sb->manifest_extents[m].clear();
    for (size_t i = 0; i < kManifestExtentsMax; ++i) {
      const uint32_t e = LoadLe<uint32_t>(in + kExtentsAt + 4 * (m * kManifestExtentsMax + i));
      if (i < count ? e >= extents : e != 0) return damaged("impossible manifest extents");
      if (i < count) sb->manifest_extents[m].push_back(ExtentId{e});
    }
  }
  for (size_t i = kReservedAt; i < kSuperblockBytes; ++i) {
    if (in[i] != std::byte{0}) return damaged("reserved bytes in use");
  }
  return SuperblockParse::kOk;
}

std::string FormatStoreId(const StoreId& id) {
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()));
}

}  // namespace ashlar
