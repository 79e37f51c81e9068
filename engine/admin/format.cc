// format: nothing is written before everything that speaks against it was looked at, and the
// signature last.
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/base/limits.h"
#include "engine/base/rounding.h"
#include "engine/base/status.h"
#include "engine/db/sizing.h"
#include "engine/db/store_file.h"
#include "engine/space/extent_io.h"
#include "engine/space/extent_map.h"
#include "engine/version/manifest_log.h"
#include "engine/version/superblock_store.h"
#include "io/device.h"

namespace ashlar {
namespace {

constexpr uint64_t kMiB = 1ull << 20;

uint32_t DefaultExtentBytes(uint64_t store_bytes) {
  if (store_bytes < 1024 * kMiB) return 64u << 10;
  if (store_bytes <= kMiB * kMiB) return 1u << 20;
  if (store_bytes <= 16 * kMiB * kMiB) return 4u << 20;
  return 16u << 20;
}

// The superblock places, then the first and last MiB.
std::vector<std::pair<uint64_t, uint64_t>> TellingPlaces(uint64_t capacity, uint32_t lba_bytes) {
  const uint64_t end = capacity / lba_bytes * lba_bytes;
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    places.emplace_back(SuperblockPlace(copy, capacity), std::max<uint64_t>(4096, lba_bytes));
  }
  places.emplace_back(0, kMiB);
  places.emplace_back(end - kMiB, kMiB);
  return places;
}

absl::StatusOr<bool> AllZero(ExtentIo* io) {
  ExtentIo::Lease lease = io->Acquire();
  for (auto [at, bytes] :
       TellingPlaces(io->geometry().capacity_bytes(), io->geometry().lba_bytes)) {
    while (bytes > 0) {
      const uint64_t n = std::min<uint64_t>(bytes, lease.buffer_bytes());
      RETURN_IF_ERROR(io->ReadRaw(lease.queue(), at, {lease.buffer(), n}));
      if (std::any_of(lease.buffer(), lease.buffer() + n,
                      [](std::byte b) { return b != std::byte{0}; })) {
        return false;
      }
      at += n;
      bytes -= n;
    }
  }
  return true;
}

// The superblocks are durably gone before anything else of an older store is touched: a crash
// leaves that store whole or none.
absl::Status ZeroPlaces(ExtentIo* io) {
  ExtentIo::Lease lease = io->Acquire();
  std::memset(lease.buffer(), 0, lease.buffer_bytes());
  int place = 0;
  for (auto [at, bytes] :
       TellingPlaces(io->geometry().capacity_bytes(), io->geometry().lba_bytes)) {
    if (place++ == kSuperblockCopies) RETURN_IF_ERROR(io->Flush(lease.queue()));
    while (bytes > 0) {
      const uint64_t n = std::min<uint64_t>(bytes, lease.buffer_bytes());
      RETURN_IF_ERROR(io->WriteRaw(lease.queue(), at, {lease.buffer(), n}));
      at += n;
      bytes -= n;
    }
  }
  return io->Flush(lease.queue());
}

// Whether the content of the device may be replaced, given what the operator has named.
absl::Status MayReplace(const std::string& path, io::Device* device, const FormatOptions& options) {
  const std::string& serial = device->geometry().identity.serial;
  if (!serial.empty() && options.serial != serial) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": the device reports the serial \"", serial, "\"",
        options.serial.empty() ? absl::StrCat(": name it to format it (--serial=", serial, ")")
                               : absl::StrCat(", not \"", options.serial, "\"")));
  }
  ASSIGN_OR_RETURN(auto io, ExtentIo::Create(device, kMinExtentBytes, 1, 64u << 10, 0));
  ASSIGN_OR_RETURN(const bool zero, AllZero(io.get()));
  if (zero) return absl::OkStatus();
  auto scan = ReadSuperblocks(io.get());
  if (scan.ok()) {
    const std::string id = FormatStoreId(scan->current.store);
    if (options.wipe_store == id) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": holds the Ashlar store ", id, ", which would be lost",
        options.wipe_store.empty() ? "" : absl::StrCat("; it is not ", options.wipe_store),
        ": to replace it give --wipe-store=", id));
  }
  if (options.wipe_foreign) return absl::OkStatus();
  std::string found;
  if (!absl::IsFailedPrecondition(scan.status()) ||
      !absl::StrContains(scan.status().message(), "not an Ashlar store")) {
    found = absl::StrCat("an Ashlar store that can't be opened (", scan.status().message(), ")");
  } else {
    auto recognised = io::RecognisedContent(path);
    if (recognised.ok()) found = *recognised;
  }
  if (found.empty()) found = "data of a kind that is not recognised";
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": holds ", found, ", which would be lost: to replace it give --wipe-foreign"));
}

}  // namespace

absl::Status FormatDevice(io::Device* device, uint32_t extent_bytes, const StoreId& id) {
  const io::Geometry& g = device->geometry();
  const uint64_t capacity = g.capacity_bytes();
  if (capacity < kMinStoreBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the device has ", capacity, " bytes; a store needs at least ", kMinStoreBytes));
  }
  if (extent_bytes == 0) extent_bytes = DefaultExtentBytes(capacity);
  if (extent_bytes < kMinExtentBytes || extent_bytes > kMaxExtentBytes ||
      !std::has_single_bit(extent_bytes) || capacity / extent_bytes > kMaxExtents) {
    return absl::InvalidArgumentError(
        absl::StrCat("extents of ", extent_bytes, " bytes; a power of two from ", kMinExtentBytes,
                     " to ", kMaxExtentBytes, ", at most ", kMaxExtents, " of them, is possible"));
  }
  ASSIGN_OR_RETURN(const Sizing sizing,
                   ComputeSizing(capacity, extent_bytes, g.lba_bytes, 1ull << 40));
  if (sizing.reserve_writes > capacity / extent_bytes / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "extents of ", extent_bytes, " bytes are too large for a store of ", capacity, " bytes"));
  }

  ASSIGN_OR_RETURN(auto io, ExtentIo::Create(device, extent_bytes, 1, 64u << 10, 0));
  RETURN_IF_ERROR(ZeroPlaces(io.get()));
  Superblock sb;
  sb.store = id;
  sb.generation = 1;
  sb.epoch = 1;
  sb.lba_bytes = g.lba_bytes;
  sb.extent_bytes = extent_bytes;
  sb.store_bytes = capacity;
  sb.serial_hash = SerialHash(g.identity.serial);
  sb.nsid = g.identity.nsid;
  sb.nguid = g.identity.nguid;
  sb.eui64 = g.identity.eui64;
  sb.manifest = {1, 1};
  ExtentMap map(capacity, extent_bytes);
  Version empty;
  empty.clean = true;
  for (auto& copy : sb.manifest_extents) {
    const uint64_t bytes = ManifestLog::WantedBytes(empty, g.lba_bytes);
    ASSIGN_OR_RETURN(copy, map.Allocate(Purpose::kManifest,
                                        static_cast<uint32_t>(CeilDiv(bytes, extent_bytes))));
  }
  ManifestLog manifest(io.get(), id);
  RETURN_IF_ERROR(manifest.Start(sb.manifest, sb.manifest_extents, empty));
  sb.manifest_first_checksum = manifest.first_checksum();
  return WriteSuperblocks(io.get(), sb);
}

absl::StatusOr<std::string> FormatStore(const std::string& path, const FormatOptions& options) {
  struct stat st;
  const bool exists = stat(path.c_str(), &st) == 0;
  if (exists && options.file_bytes != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": exists already; a size is for a file that is to be made"));
  }
  if (!exists) {
    if (options.file_bytes == 0) {
      return absl::NotFoundError(
          absl::StrCat(path, ": no such device or file; give a size to make a file"));
    }
    if (options.file_bytes < kMinStoreBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.file_bytes, " bytes; a store needs at least ", kMinStoreBytes));
    }
    RETURN_IF_ERROR(io::CreateSparseFile(path, options.file_bytes));
  }
  StoreId id;
  absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto device, OpenStoreDevice(Options(), path));
    if (exists) RETURN_IF_ERROR(MayReplace(path, device.get(), options));
    if (getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size())) {
      return absl::InternalError("the kernel gives no random bytes");
    }
    return FormatDevice(device.get(), options.extent_bytes, id);
  }();
  if (!status.ok()) {
    if (!exists) unlink(path.c_str());
    return status;
  }
  return FormatStoreId(id);
}

}  // namespace ashlar
