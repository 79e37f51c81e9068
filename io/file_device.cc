// A regular file as a device. Every durable point is fdatasync or RWF_DSYNC: a write into a hole,
// or over an extent the file system has not converted yet, is not durable without its metadata.
#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "io/backend.h"
#include "io/uring_device.h"

namespace ashlar::io {
namespace {

// Direct I/O needs offsets and memory aligned to what statx says (6.1); 0: no direct I/O, or
// unknown.
struct DirectAlign {
  uint32_t memory = 0;
  uint32_t offset = 0;
};

DirectAlign AskDirectAlign(int fd) {
  struct statx stx {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) != 0) return {};
  if ((stx.stx_mask & STATX_DIOALIGN) == 0) return {};
  return {stx.stx_dio_mem_align, stx.stx_dio_offset_align};
}

// The loop device that has this file attached, "/dev/loop0", or empty. What is written through it
// and to the file would not know of each other, and it may be mounted.
std::string LoopOver(const struct stat& st) {
  std::string found;
  const auto close = [](DIR* d) { closedir(d); };
  const std::unique_ptr<DIR, decltype(close)> dir(opendir("/sys/block"), close);
  if (dir == nullptr) return found;
  while (const dirent* entry = readdir(dir.get())) {
    if (strncmp(entry->d_name, "loop", 4) != 0) continue;
    std::ifstream in(absl::StrCat("/sys/block/", entry->d_name, "/loop/backing_file"));
    std::string backing;
    struct stat other {};
    if (std::getline(in, backing) && stat(backing.c_str(), &other) == 0 &&
        other.st_dev == st.st_dev && other.st_ino == st.st_ino) {
      found = absl::StrCat("/dev/", entry->d_name);
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenFile(const std::string& path, const struct stat& st,
                                                 OpenMode mode) {
  const int access = mode == OpenMode::kClaim ? O_RDWR : O_RDONLY;
  Fd fd = Fd::Open(path, access | O_NONBLOCK);
  if (fd.get() < 0) return OpenError(path, mode, errno);
  struct stat now {};
  if (absl::Status status = SameThing(path, fd, st, &now); !status.ok()) return status;

  if (mode == OpenMode::kClaim && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::UnavailableError(absl::StrCat(path, ": another process has it open (flock)"));
    }
    return absl::FailedPreconditionError(absl::StrCat(path, ": flock: ", strerror(errno)));
  }
  if (mode == OpenMode::kClaim) {
    if (const std::string loop = LoopOver(now); !loop.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": is attached to ", loop, ": use that, or detach it first"));
    }
  }

  // LBA 4096; 512 only for a file that is not a whole number of 4096, where direct I/O allows it.
  // What is left at the end beyond the last whole LBA is not used.
  Geometry g;
  const uint64_t bytes = static_cast<uint64_t>(now.st_size);
  const DirectAlign align = AskDirectAlign(fd.get());
  const auto direct_at = [&](uint32_t lba) {
    return align.offset != 0 && lba % align.offset == 0 && align.memory != 0 &&
           lba % align.memory == 0;
  };
  g.lba_bytes = bytes % 4096 != 0 && (direct_at(512) || !direct_at(4096)) ? 512 : 4096;
  g.direct = direct_at(g.lba_bytes);
  if (g.direct) {
    const int flags = fcntl(fd.get(), F_GETFL);
    g.direct = flags >= 0 && fcntl(fd.get(), F_SETFL, (flags & ~O_NONBLOCK) | O_DIRECT) == 0;
  }
  if (!g.direct && fcntl(fd.get(), F_SETFL, 0) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": fcntl: ", strerror(errno)));
  }
  g.capacity_blocks = bytes / g.lba_bytes;
  if (g.capacity_blocks == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": a file of ", bytes, " bytes, too small for a store"));
  }
  const uint32_t block = static_cast<uint32_t>(std::clamp<long>(now.st_blksize, 4096, 1 << 20));
  g.max_transfer_bytes = 1u << 20;
  g.max_segments = 1;
  g.volatile_cache = true;
  g.native_fua = true;
  g.fua_flushes = true;
  g.preferred_write_bytes = block;
  g.discard_grain_bytes = block;
  g.discard_max_bytes = g.capacity_bytes();
  g.dlfeat = 1;
  g.identity.model = "file";
  return std::make_unique<UringDevice>(absl::StrCat("file ", path), std::move(fd), g,
                                       DiscardBy::kPunchHole);
}

}  // namespace ashlar::io
