#include "engine/db/store_file.h"

#include "absl/strings/str_cat.h"
#include "ashlar/admin.h"
#include "engine/base/status.h"
#include "engine/base/sync.h"
#include "engine/db/owner.h"
#include "engine/format/checksum.h"
#include "engine/space/extent_io.h"
#include "engine/version/superblock_store.h"

namespace ashlar {
namespace {

constexpr uint64_t kClaimPollNs = 5'000'000;

// Names the live process that has the store at `path` open, if its superblock can tell.
std::string OwnerOf(const std::string& path) {
  auto device = io::OpenDevice(path, io::OpenMode::kReadOnly);
  if (!device.ok()) return {};
  auto probe = ExtentIo::Create(device->get(), kMinExtentBytes, 1, kPageBytes, 0);
  if (!probe.ok()) return {};
  auto scan = ReadSuperblocks(probe->get());
  return scan.ok() ? LiveOwner(scan->current.owner) : std::string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<io::Device>> OpenStoreDevice(const Options& options,
                                                            const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a path with a zero byte in it");
  }
  if (options.read_only) return io::OpenDevice(path, io::OpenMode::kReadOnly);
  Clock* const clock = SystemClock();
  const uint64_t give_up = clock->NowNs() + uint64_t{options.claim_wait_ms} * 1'000'000;
  bool made = false;
  for (;;) {
    auto device = io::OpenDevice(path, io::OpenMode::kClaim);
    if (absl::IsNotFound(device.status()) && options.create_if_missing && !made) {
      FormatOptions format;
      format.file_bytes = options.create_bytes;
      RETURN_IF_ERROR(FormatStore(path, format).status());
      made = true;
      continue;
    }
    if (device.ok() || !absl::IsUnavailable(device.status())) return device;
    if (const std::string owner = OwnerOf(path); !owner.empty()) {
      return absl::UnavailableError(absl::StrCat(path, ": in use by ", owner));
    }
    if (clock->NowNs() >= give_up) return device;
    clock->SleepNs(kClaimPollNs);
  }
}

uint64_t SerialHash(std::string_view serial) {
  if (serial.empty()) return 0;
  const uint64_t h = Checksum(serial.data(), serial.size(), 0);
  return h == 0 ? 1 : h;
}

std::vector<RecordStream> LogStreams(const Version& version) {
  std::vector<RecordStream> streams;
  for (const auto& [id, segment] : version.segments) {
    const std::string name = absl::StrCat("log segment ", id.epoch, ".", id.counter);
    streams.push_back({name, id, {segment.extents}});
  }
  return streams;
}

absl::StatusOr<ExtentMap> DeriveSpace(const Superblock& sb, const Version& version) {
  ExtentMap map(sb.store_bytes, sb.extent_bytes);
  for (const auto& copy : sb.manifest_extents) RETURN_IF_ERROR(map.Claim(copy));
  for (const auto& [id, segment] : version.segments) RETURN_IF_ERROR(map.Claim(segment.extents));
  const uint64_t per_extent = sb.extent_bytes / kPageBytes;
  for (const TablePtr& t : version.AllTables()) {
    if ((t->dropped_extents + t->extents.size()) * per_extent < t->pages) {
      return absl::DataLossError(absl::StrCat("manifest: a table of ", t->pages, " pages with ",
                                              t->extents.size(), " extents"));
    }
    RETURN_IF_ERROR(map.Claim(t->extents));
  }
  return map;
}

}  // namespace ashlar
