#include "engine/version/superblock_store.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"

namespace ashlar {
namespace {

struct Copy {
  SuperblockParse parse = SuperblockParse::kNotOurs;
  Superblock sb;
  std::string detail;
};

absl::Status ReadCopy(ExtentIo* io, ExtentIo::Lease& lease, int copy, uint64_t store_bytes,
                      Copy* out) {
  const uint64_t at = SuperblockPlace(copy, store_bytes);
  if (at + io->geometry().lba_bytes > io->geometry().capacity_bytes()) {
    out->parse = SuperblockParse::kDamaged;
    out->detail = "it lies behind the end of the device";
    return absl::OkStatus();
  }
  const absl::Status s = io->ReadRaw(lease.queue(), at, {lease.buffer(), io->geometry().lba_bytes});
  if (!s.ok()) {
    out->parse = SuperblockParse::kDamaged;
    out->detail = std::string(s.message());
    return absl::OkStatus();
  }
  out->parse = ParseSuperblock(lease.buffer(), copy, &out->sb, &out->detail);
  if (out->parse == SuperblockParse::kOk && out->sb.store_bytes != store_bytes && copy >= 2) {
    out->parse = SuperblockParse::kDamaged;
    out->detail = "it speaks of a store of another size";
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SuperblockScan> ReadSuperblocks(ExtentIo* io) {
  ExtentIo::Lease lease = io->Acquire();
  Copy copies[kSuperblockCopies];
  const uint64_t capacity = io->geometry().capacity_bytes();
  RETURN_IF_ERROR(ReadCopy(io, lease, 0, capacity, &copies[0]));
  RETURN_IF_ERROR(ReadCopy(io, lease, 1, capacity, &copies[1]));
  uint64_t store_bytes = capacity;
  uint64_t newest = 0;
  for (int i = 0; i < 2; ++i) {
    if (copies[i].parse == SuperblockParse::kOk && copies[i].sb.generation > newest) {
      newest = copies[i].sb.generation;
      store_bytes = copies[i].sb.store_bytes;
    }
  }
  if (store_bytes > capacity) {
    return absl::FailedPreconditionError(
        absl::StrCat("the device has ", capacity, " bytes, its store ", store_bytes,
                     ": it was cut short, or this is a copy onto a smaller device"));
  }
  if (store_bytes >= kMinStoreBytes) {
    RETURN_IF_ERROR(ReadCopy(io, lease, 2, store_bytes, &copies[2]));
    RETURN_IF_ERROR(ReadCopy(io, lease, 3, store_bytes, &copies[3]));
  }

  bool any_ours = false;
  for (const Copy& c : copies) {
    if (c.parse == SuperblockParse::kNewer) {
      return absl::FailedPreconditionError(
          absl::StrCat("an Ashlar store of a newer kind: ", c.detail));
    }
    any_ours |= c.parse == SuperblockParse::kOk || c.parse == SuperblockParse::kDamaged;
  }
  SuperblockScan scan;
  const Superblock* best = nullptr;
  int best_copy = 0;
  for (int i = 0; i < kSuperblockCopies; ++i) {
    if (copies[i].parse != SuperblockParse::kOk) continue;
    const Superblock& sb = copies[i].sb;
    scan.highest_generation = std::max(scan.highest_generation, sb.generation);
    scan.highest_epoch = std::max(scan.highest_epoch, sb.epoch);
    const uint64_t content = ContentChecksum(sb);
    bool trusted = PLANT("superblock.trust_alone");
    for (int k = 0; k < kSuperblockCopies && !trusted; ++k) {
      if (k == i || copies[k].parse != SuperblockParse::kOk) continue;
      const uint64_t other = ContentChecksum(copies[k].sb);
      trusted = other == content || other == sb.predecessor;
    }
    if (!trusted) continue;
    // A format leaves none of the store before: whose tables and log these are, nothing can say.
    if (best != nullptr && sb.store != best->store) {
      return absl::DataLossError(
          absl::StrCat("superblock: byte ", SuperblockPlace(best_copy, store_bytes), " and byte ",
                       SuperblockPlace(i, store_bytes), ": copies of two stores, ",
                       FormatStoreId(best->store), " and ", FormatStoreId(sb.store)));
    }
    if (best == nullptr || sb.generation > best->generation) {
      best = &sb;
      best_copy = i;
    }
  }
  if (best == nullptr) {
    if (!any_ours) {
      return absl::FailedPreconditionError("not an Ashlar store: no superblock at its places");
    }
    std::string found;
    for (int i = 0; i < kSuperblockCopies; ++i) {
      absl::StrAppend(&found, i == 0 ? "" : "; ", "copy ", i, ": ",
                      copies[i].parse == SuperblockParse::kOk        ? "alone of its generation"
                      : copies[i].parse == SuperblockParse::kNotOurs ? "no signature"
                                                                     : copies[i].detail);
    }
    return absl::DataLossError(absl::StrCat("superblock: no two copies agree (", found, ")"));
  }
  scan.current = *best;
  const uint64_t content = ContentChecksum(*best);
  bool is_current[kSuperblockCopies];
  for (int i = 0; i < kSuperblockCopies; ++i) {
    is_current[i] =
        copies[i].parse == SuperblockParse::kOk && ContentChecksum(copies[i].sb) == content;
  }
  // An update writes copies 2 and 3 once 0 and 1 are durable, so 0 and 1 are never the older ones.
  const bool second_half_begun = is_current[2] || is_current[3];
  for (int i = 0; i < kSuperblockCopies; ++i) {
    if (is_current[i]) continue;
    if (copies[i].parse != SuperblockParse::kOk) {
      scan.damaged.emplace_back(
          i, copies[i].parse == SuperblockParse::kNotOurs ? "no signature" : copies[i].detail);
      continue;
    }
    if (copies[i].sb.store != best->store) {
      scan.damaged.emplace_back(
          i, absl::StrCat("of another store, ", FormatStoreId(copies[i].sb.store)));
      continue;
    }
    const uint64_t generation = copies[i].sb.generation;
    auto& list =
        i < 2 && second_half_begun && generation <= best->generation ? scan.damaged : scan.outdated;
    list.emplace_back(i, absl::StrCat("generation ", generation, " instead of ", best->generation));
  }
  return scan;
}

absl::Status WriteSuperblocks(ExtentIo* io, const Superblock& next) {
  ExtentIo::Lease lease = io->Acquire();
  const uint32_t lba_bytes = io->geometry().lba_bytes;
  std::byte* const block = lease.buffer();
  for (const int half : {0, 2}) {
    for (int copy = half; copy < half + 2; ++copy) {
      std::memset(block, 0, lba_bytes);
      EncodeSuperblock(next, copy, block);
      RETURN_IF_ERROR(
          io->WriteRaw(lease.queue(), SuperblockPlace(copy, next.store_bytes), {block, lba_bytes}));
    }
    if (half == 2 || !PLANT("superblock.skip_middle_flush")) {
      RETURN_IF_ERROR(io->Flush(lease.queue()));
    }
  }
  std::byte expected[kSuperblockBytes];
  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    const uint64_t at = SuperblockPlace(copy, next.store_bytes);
    RETURN_IF_ERROR(io->ReadRaw(lease.queue(), at, {block, lba_bytes}));
    EncodeSuperblock(next, copy, expected);
    if (std::memcmp(expected, block, kSuperblockBytes) != 0) {
      return absl::DataLossError(
          absl::StrCat("superblock copy ", copy, " at byte ", at, " reads back differently"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ashlar
