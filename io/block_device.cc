// A block device (a whole disk, a partition, loop, device mapper, md) as a device: O_DIRECT, and
// O_EXCL on the open file as the claim. What the kernel knows of it is read from sysfs.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "io/backend.h"
#include "io/uring_device.h"

namespace ashlar::io {
namespace {

// A whole small file, trailing white space cut; empty when there is none.
std::string ReadSmall(const std::string& path) {
  const Fd fd = Fd::Open(path, O_RDONLY);
  if (fd.get() < 0) return "";
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > (4u << 20)) break;
  }
  while (!text.empty() && isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

uint64_t ReadNumber(const std::string& path, uint64_t otherwise) {
  uint64_t value = 0;
  return absl::SimpleAtoi(ReadSmall(path), &value) ? value : otherwise;
}

std::string First(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const std::string text = ReadSmall(path);
    const size_t from = text.find_first_not_of(' ');
    if (from != std::string::npos) return text.substr(from);
  }
  return "";
}

std::vector<std::string> List(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const dir = opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::string Numbers(dev_t dev) { return absl::StrCat(major(dev), ":", minor(dev)); }

// Where sysfs describes a device: itself, and the whole disk (the same unless it is a partition).
struct Sysfs {
  std::string self;
  std::string disk;
  bool partition = false;
};

Sysfs FindSysfs(dev_t rdev) {
  Sysfs sysfs;
  char real[PATH_MAX];
  const std::string link = absl::StrCat("/sys/dev/block/", Numbers(rdev));
  sysfs.self = realpath(link.c_str(), real) != nullptr ? real : link;
  sysfs.disk = sysfs.self;
  sysfs.partition = access((sysfs.self + "/partition").c_str(), F_OK) == 0;
  if (sysfs.partition) sysfs.disk = sysfs.self.substr(0, sysfs.self.rfind('/'));
  return sysfs;
}

// The device numbers whose use is use of this one: itself, its partitions, the disk it is part of.
struct Related {
  std::string numbers;
  std::string directory;  // in sysfs
};

std::vector<Related> FindRelated(const Sysfs& sysfs) {
  std::vector<Related> all;
  const auto add = [&](const std::string& directory) {
    const std::string numbers = ReadSmall(directory + "/dev");
    if (!numbers.empty()) all.push_back({numbers, directory});
  };
  add(sysfs.self);
  if (sysfs.partition) {
    add(sysfs.disk);
  } else {
    for (const std::string& name : List(sysfs.self)) {
      const std::string directory = absl::StrCat(sysfs.self, "/", name);
      if (access((directory + "/partition").c_str(), F_OK) == 0) add(directory);
    }
  }
  return all;
}

// The kernel writes blanks in paths as octal escapes.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool IsOneOf(const std::vector<Related>& related, const std::string& numbers) {
  return std::any_of(related.begin(), related.end(),
                     [&](const Related& r) { return r.numbers == numbers; });
}

std::string NumbersOfNode(const std::string& path) {
  struct stat st {};
  if (path.empty() || path[0] != '/' || stat(path.c_str(), &st) != 0) return "";
  return S_ISBLK(st.st_mode) ? Numbers(st.st_rdev) : "";
}

// Who uses the device, as far as can be seen from here; empty when nobody is seen.
std::string Users(const Sysfs& sysfs) {
  const std::vector<Related> related = FindRelated(sysfs);
  const std::string self = related.empty() ? "" : related[0].numbers;
  const auto name = [&](const std::string& numbers) {
    if (numbers == self) return std::string("it");
    for (const Related& r : related) {
      if (r.numbers == numbers) return r.directory.substr(r.directory.rfind('/') + 1);
    }
    return numbers;
  };
  std::vector<std::string> users;

  // ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS [TAGS]... - TYPE SOURCE ...; btrfs and others
  // show a number of their own, so the source counts as well.
  for (const auto line : absl::StrSplit(ReadSmall("/proc/self/mountinfo"), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 3) continue;
    const std::string source = NumbersOfNode(Unescape(*(dash + 2)));
    const std::string& used = IsOneOf(related, fields[2]) ? fields[2] : source;
    if (!IsOneOf(related, used)) continue;
    users.push_back(absl::StrCat(name(used), " is mounted on ", Unescape(fields[4])));
  }
  for (const auto line : absl::StrSplit(ReadSmall("/proc/swaps"), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::ByAnyChar(" \t"));
    const std::string numbers = NumbersOfNode(Unescape(fields[0]));
    if (IsOneOf(related, numbers)) users.push_back(name(numbers) + " is swap space");
  }
  for (const Related& r : related) {
    const std::vector<std::string> holders = List(r.directory + "/holders");
    if (!holders.empty()) {
      users.push_back(absl::StrCat(name(r.numbers), " is held by ", absl::StrJoin(holders, ", ")));
    }
  }
  return absl::StrJoin(users, "; ");
}

// BLOCK_URING_CMD_DISCARD came with 6.12.
bool HasRingDiscard() {
  utsname name{};
  unsigned version = 0;
  unsigned patch = 0;
  if (uname(&name) != 0 || sscanf(name.release, "%u.%u", &version, &patch) != 2) return false;
  return version > 6 || (version == 6 && patch >= 12);
}

// "eui.0025385a71b04c5e", "00112233-4455-...": the hexadecimal digits, when there are enough of
// them.
template <size_t N>
void ParseHex(const std::string& text, std::array<uint8_t, N>* out) {
  std::string digits;
  for (const char c : text) {
    if (isxdigit(static_cast<unsigned char>(c))) digits += c;
  }
  if (digits.size() != 2 * N) return;
  for (size_t i = 0; i < N; ++i) {
    (*out)[i] = static_cast<uint8_t>(strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  }
}

Identity ReadIdentity(const Sysfs& sysfs) {
  const std::string& disk = sysfs.disk;
  Identity identity;
  identity.model = First({disk + "/device/model", disk + "/dm/name"});
  identity.serial = First({disk + "/device/serial", disk + "/serial", disk + "/wwid",
                           disk + "/device/wwid", disk + "/dm/uuid", disk + "/md/uuid"});
  // Two partitions of a disk are two devices.
  if (sysfs.partition && !identity.serial.empty()) {
    absl::StrAppend(&identity.serial, " partition ", ReadSmall(sysfs.self + "/partition"));
  }
  identity.nsid = static_cast<uint32_t>(ReadNumber(disk + "/nsid", 0));
  ParseHex(ReadSmall(disk + "/nguid"), &identity.nguid);
  ParseHex(ReadSmall(disk + "/eui"), &identity.eui64);
  return identity;
}

Geometry ReadGeometry(const Sysfs& sysfs, uint32_t lba_bytes, uint64_t bytes) {
  const std::string queue = sysfs.disk + "/queue/";
  const auto clamp32 = [](uint64_t value) {
    return static_cast<uint32_t>(std::min<uint64_t>(value, 1u << 30));
  };
  Geometry g;
  g.lba_bytes = lba_bytes;
  g.capacity_blocks = bytes / lba_bytes;
  // max_sectors_kb is what the kernel splits at, by default at most the hardware's bound.
  const uint64_t max_kb = std::min(ReadNumber(queue + "max_hw_sectors_kb", 128),
                                   ReadNumber(queue + "max_sectors_kb", 128));
  g.max_transfer_bytes = std::max(clamp32(max_kb * 1024) / 4096 * 4096, 4096u);
  g.max_segments = static_cast<uint32_t>(ReadNumber(queue + "max_segments", 1));
  // Unknown counts as volatile.
  g.volatile_cache = ReadSmall(queue + "write_cache") != "write through";
  g.native_fua = !g.volatile_cache || ReadNumber(queue + "fua", 0) == 1;
  g.preferred_write_bytes = std::max({4096u, clamp32(ReadNumber(queue + "physical_block_size", 0)),
                                      clamp32(ReadNumber(queue + "minimum_io_size", 0))});
  g.discard_max_bytes = ReadNumber(queue + "discard_max_bytes", 0);
  if (g.discard_max_bytes > 0) {
    g.discard_grain_bytes =
        std::max(clamp32(ReadNumber(queue + "discard_granularity", 0)), lba_bytes);
  }
  g.poll_queues = ReadNumber(queue + "io_poll", 0) == 1 ? 1 : 0;
  for (const char* place : {"/device/numa_node", "/device/device/numa_node"}) {
    int node = -1;
    if (absl::SimpleAtoi(ReadSmall(sysfs.disk + place), &node) && node >= 0) g.numa_node = node;
  }
  g.identity = ReadIdentity(sysfs);
  return g;
}

absl::Status Busy(const std::string& path, const Sysfs& sysfs) {
  const std::string users = Users(sysfs);
  if (!users.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": in use: ", users));
  }
  return absl::UnavailableError(
      absl::StrCat(path, ": another process has it open exclusively (O_EXCL)"));
}

// A loop device over a file that a process has claimed as a file: attached behind its back.
bool BackingFileIsClaimed(const Sysfs& sysfs) {
  const std::string backing = ReadSmall(sysfs.disk + "/loop/backing_file");
  if (backing.empty()) return false;
  const Fd fd = Fd::Open(backing, O_RDONLY | O_NONBLOCK);
  return fd.get() >= 0 && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenBlock(const std::string& path, const struct stat& st,
                                                  OpenMode mode) {
  const Sysfs sysfs = FindSysfs(st.st_rdev);
  const bool claims = mode == OpenMode::kClaim;
  // Without O_EXCL a mounted device opens for writing; with it the kernel refuses while anybody has
  // a claim on it, on a partition of it or on the disk it is part of.
  Fd fd = Fd::Open(path, O_DIRECT | (claims ? O_RDWR | O_EXCL : O_RDONLY));
  if (fd.get() < 0) {
    const int err = errno;
    if (err == EBUSY) return Busy(path, sysfs);
    return OpenError(path, mode, err);
  }
  struct stat now {};
  if (absl::Status status = SameThing(path, fd, st, &now); !status.ok()) return status;
  if (claims) {
    // The kernel lets a read-only device be opened for writing, and fails the writes.
    int read_only = 0;
    if (ioctl(fd.get(), BLKROGET, &read_only) == 0 && read_only != 0) {
      return absl::PermissionDeniedError(absl::StrCat(path, ": the device is read-only"));
    }
    // The claim covers all of this already; a user that took none must not be overwritten either.
    if (const std::string users = Users(sysfs); !users.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": in use: ", users));
    }
    if (BackingFileIsClaimed(sysfs)) {
      return absl::UnavailableError(
          absl::StrCat(path, ": another process has its backing file open (flock)"));
    }
  }

  int lba_bytes = 0;
  uint64_t bytes = 0;
  if (ioctl(fd.get(), BLKSSZGET, &lba_bytes) != 0 || ioctl(fd.get(), BLKGETSIZE64, &bytes) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": its size can't be read: ", strerror(errno)));
  }
  if (lba_bytes != 512 && lba_bytes != 4096) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": blocks of ", lba_bytes, " bytes; 512 and 4096 are supported"));
  }
  const Geometry geometry = ReadGeometry(sysfs, static_cast<uint32_t>(lba_bytes), bytes);
  if (geometry.capacity_blocks == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": a device of ", bytes, " bytes, too small for a store"));
  }
  return std::make_unique<UringDevice>(
      absl::StrCat(sysfs.partition ? "partition " : "block device ", path, " (",
                   Numbers(st.st_rdev), ")"),
      std::move(fd), geometry, HasRingDiscard() ? DiscardBy::kRing : DiscardBy::kIoctl);
}

}  // namespace ashlar::io
