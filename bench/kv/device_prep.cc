#include "kv/device_prep.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ashlar/admin.h"
#include "ashlar/db.h"

namespace ashlar::bench {
namespace {

constexpr uint64_t kMiB = 1ull << 20;

absl::Status Errno(const std::string& path, const char* what) {
  return absl::InternalError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// Whether the store may be replaced: it carries the mark, or nothing at all.
absl::Status CheckOwnStore(const std::string& path) {
  Options options;
  options.read_only = true;
  auto db = DB::Open(options, path);
  if (!db.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": holds an Ashlar store that can't be opened (", db.status().message(),
                     "), so nobody knows what it is: kv_bench --destroy-data replaces it"));
  }
  Value value;
  const absl::Status got = (*db)->Get({}, kMarkKey, &value);
  if (got.ok()) return absl::OkStatus();
  if (absl::IsNotFound(got)) {
    auto it = (*db)->NewIterator({});
    it->SeekToFirst();
    if (!it->Valid() && it->status().ok()) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   ": holds an Ashlar store that kv_bench did not make, which would be lost: "
                   "--destroy-data replaces it"));
}

// How FormatStore is to be called, by what the path holds.
absl::StatusOr<FormatOptions> Replacing(const Config& config) {
  FormatOptions options;
  options.serial = config.serial;
  switch (KindOf(config.device)) {
    case PathKind::kMissing:
      options.file_bytes = config.file_size != 0
                               ? config.file_size
                               : std::max<uint64_t>(1024 * kMiB, 4 * config.data_bytes());
      return options;
    case PathKind::kFile:
    case PathKind::kBlockDevice:
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(config.device, ": is neither a block device nor a file"));
  }
  auto info = InspectStore(config.device);
  if (info.ok()) {
    if (!config.destroy_data) {
      if (absl::Status own = CheckOwnStore(config.device); !own.ok()) return own;
    }
    options.wipe_store = info->store_id;
    return options;
  }
  options.wipe_store = BenchFileSystemId(config.device);
  options.wipe_foreign = config.destroy_data || !options.wipe_store.empty();
  if (!config.wipe_store.empty()) options.wipe_store = config.wipe_store;
  return options;
}

bool AllZero(int fd, off_t at, uint64_t bytes) {
  std::vector<char> buffer(bytes);
  const ssize_t n = pread(fd, buffer.data(), bytes, at);
  return n >= 0 && std::all_of(buffer.begin(), buffer.begin() + n, [](char c) { return c == 0; });
}

bool IsLoopDevice(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 || !S_ISBLK(st.st_mode)) return false;
  return access(absl::StrCat("/sys/dev/block/", major(st.st_rdev), ":", minor(st.st_rdev), "/loop")
                    .c_str(),
                F_OK) == 0;
}

// Every byte written once. O_EXCL: not while a file system or another store has it.
absl::Status WriteZeros(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_EXCL | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return Errno(path, "opening it for the first touch");
  const off_t end = lseek(fd, 0, SEEK_END);
  std::unique_ptr<char, decltype(&std::free)> zeros(
      static_cast<char*>(std::aligned_alloc(4096, 4 * kMiB)), &std::free);
  std::memset(zeros.get(), 0, 4 * kMiB);
  absl::Status status;
  for (off_t at = 0; at < end && status.ok();) {
    const ssize_t n = pwrite(fd, zeros.get(), std::min<off_t>(4 * kMiB, end - at), at);
    if (n <= 0) {
      status = Errno(path, "the first touch");
    } else {
      at += n;
    }
  }
  if (status.ok() && fsync(fd) != 0) status = Errno(path, "the first touch");
  close(fd);
  return status;
}

}  // namespace

PathKind KindOf(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return PathKind::kMissing;
  if (S_ISREG(st.st_mode)) return PathKind::kFile;
  if (S_ISBLK(st.st_mode)) return PathKind::kBlockDevice;
  if (S_ISDIR(st.st_mode)) return PathKind::kDirectory;
  return PathKind::kOther;
}

// ext4's superblock: byte 1024; magic at 0x38, UUID at 0x68, label of 16 bytes at 0x78.
std::string BenchFileSystemId(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char sb[1024] = {};
  const bool read = pread(fd, sb, sizeof sb, 1024) == sizeof sb;
  close(fd);
  char label[17] = {};
  std::memcpy(label, sb + 0x78, 16);
  if (!read || std::memcmp(sb + 0x38, "\x53\xef", 2) != 0 ||
      std::strcmp(label, kFileSystemLabel) != 0) {
    return "";
  }
  return absl::BytesToHexString(absl::string_view(sb + 0x68, 16));
}

absl::Status CheckUsable(const Config& config) {
  auto options = Replacing(config);
  if (!options.ok()) return options.status();
  if (options->file_bytes != 0 || !options->wipe_store.empty() || options->wipe_foreign) {
    return absl::OkStatus();
  }
  // Format looks at more places, and decides; this much is seen before anything is done.
  const int fd = open(config.device.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Errno(config.device, "opening it");
  const off_t end = lseek(fd, 0, SEEK_END);
  const bool zero =
      AllZero(fd, 0, kMiB) && AllZero(fd, std::max<off_t>(0, end - static_cast<off_t>(kMiB)), kMiB);
  close(fd);
  if (zero) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(config.device,
                   ": is neither empty nor made by kv_bench; what it holds would be "
                   "lost: --destroy-data replaces it"));
}

absl::StatusOr<std::string> FormatAshlar(const Config& config) {
  if (absl::Status usable = CheckUsable(config); !usable.ok()) return usable;
  auto options = Replacing(config);
  if (!options.ok()) return options.status();
  auto id = FormatStore(config.device, *options);
  if (!id.ok() || !config.touch || !IsLoopDevice(config.device)) return id;
  // It was free to be formatted; nothing of what it held is left to be kept.
  if (absl::Status touched = WriteZeros(config.device); !touched.ok()) return touched;
  FormatOptions empty;
  empty.serial = config.serial;
  return FormatStore(config.device, empty);
}

}  // namespace ashlar::bench
