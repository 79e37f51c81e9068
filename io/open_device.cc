// The only place that chooses a backend; and what is done to a path besides I/O.
#include <blkid/blkid.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "io/backend.h"
#include "io/device.h"
#include "io/fd.h"

namespace ashlar::io {
namespace {

// The name of a character device from sysfs, "ng0n1".
std::string CharName(dev_t rdev) {
  const std::string link = absl::StrCat("/sys/dev/char/", major(rdev), ":", minor(rdev));
  char target[PATH_MAX];
  const ssize_t n = readlink(link.c_str(), target, sizeof(target));
  if (n <= 0 || n == static_cast<ssize_t>(sizeof(target))) return "";
  const std::string text(target, static_cast<size_t>(n));
  return text.substr(text.rfind('/') + 1);
}

std::string NotADevice(const std::string& path, const struct stat& st) {
  if (S_ISDIR(st.st_mode)) return absl::StrCat(path, ": is a directory");
  if (S_ISCHR(st.st_mode)) {
    const std::string name = CharName(st.st_rdev);
    if (name.rfind("ng", 0) == 0 && name.size() > 2 && isdigit(name[2])) {
      return absl::StrCat(path, ": an NVMe character node; give its block node, /dev/nvme",
                          name.substr(2));
    }
    return absl::StrCat(path, ": a character device (", name, "); not a disk");
  }
  if (S_ISFIFO(st.st_mode)) return absl::StrCat(path, ": a FIFO");
  if (S_ISSOCK(st.st_mode)) return absl::StrCat(path, ": a socket");
  return absl::StrCat(path, ": neither a block device nor a regular file");
}

absl::Status SyncParent(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const Fd dir = Fd::Open(parent, O_RDONLY | O_DIRECTORY);
  if (dir.get() < 0 || fsync(dir.get()) != 0) {
    return absl::InternalError(absl::StrCat("fsync of ", parent, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status SizeFile(const std::string& path, const Fd& fd, uint64_t bytes) {
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 || fsync(fd.get()) != 0) {
    const std::string text = absl::StrCat(path, ": ", bytes, " bytes: ", strerror(errno));
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
      return absl::ResourceExhaustedError(text);
    }
    return absl::InternalError(text);
  }
  return SyncParent(path);
}

// One finding of libblkid as words.
std::string Finding(blkid_probe probe) {
  const char* value = nullptr;
  if (blkid_probe_lookup_value(probe, "PTTYPE", &value, nullptr) == 0) {
    return absl::StrCat(value, " partition table");
  }
  if (blkid_probe_lookup_value(probe, "TYPE", &value, nullptr) != 0) return "";
  const std::string type = value;
  std::string usage;
  if (blkid_probe_lookup_value(probe, "USAGE", &value, nullptr) == 0) usage = value;
  if (usage == "filesystem") return type + " file system";
  if (usage == "raid") return type + " (RAID or volume manager member)";
  if (usage == "crypto") return type + " (encrypted volume)";
  return type;
}

}  // namespace

absl::Status OpenError(const std::string& path, OpenMode mode, int err) {
  const std::string text = absl::StrCat(path, ": ", strerror(err));
  switch (err) {
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case ENODEV:
    case ENOMEDIUM:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(text, mode == OpenMode::kClaim ? ": needs the right to read and write it"
                                                      : ": needs the right to read it"));
    case EROFS:
      return absl::PermissionDeniedError(absl::StrCat(text, ": it can only be opened read-only"));
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

absl::Status SameThing(const std::string& path, const Fd& fd, const struct stat& st,
                       struct stat* opened) {
  if (fstat(fd.get(), opened) != 0) {
    return absl::InternalError(absl::StrCat(path, ": fstat: ", strerror(errno)));
  }
  if ((opened->st_mode & S_IFMT) != (st.st_mode & S_IFMT) || opened->st_dev != st.st_dev ||
      opened->st_ino != st.st_ino || opened->st_rdev != st.st_rdev) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": was replaced while it was opened"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& path, OpenMode mode) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return OpenError(path, mode, errno);
  if (S_ISREG(st.st_mode)) return OpenFile(path, st, mode);
  if (S_ISBLK(st.st_mode)) return OpenBlock(path, st, mode);
  return absl::FailedPreconditionError(NotADevice(path, st));
}

absl::StatusOr<std::string> RecognisedContent(const std::string& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return OpenError(path, OpenMode::kReadOnly, errno);
  if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
    return absl::FailedPreconditionError(NotADevice(path, st));
  }
  const Fd fd = Fd::Open(path, O_RDONLY | O_NONBLOCK);
  if (fd.get() < 0) return OpenError(path, OpenMode::kReadOnly, errno);

  const std::unique_ptr<struct blkid_struct_probe, void (*)(blkid_probe)> probe(blkid_new_probe(),
                                                                                blkid_free_probe);
  if (probe == nullptr) return absl::ResourceExhaustedError("libblkid: no memory");
  // Damaged file systems count too: what lies there may still be wanted.
  if (blkid_probe_set_device(probe.get(), fd.get(), 0, 0) != 0 ||
      blkid_probe_enable_superblocks(probe.get(), 1) != 0 ||
      blkid_probe_set_superblocks_flags(
          probe.get(), BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_BADCSUM) != 0 ||
      blkid_probe_enable_partitions(probe.get(), 1) != 0 ||
      blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_FORCE_GPT) != 0) {
    return absl::InternalError(absl::StrCat(path, ": libblkid can't be set up: ", strerror(errno)));
  }
  std::string all;
  int result;
  while ((result = blkid_do_probe(probe.get())) == 0) {
    const std::string found = Finding(probe.get());
    if (!found.empty()) absl::StrAppend(&all, all.empty() ? "" : ", ", found);
  }
  if (result < 0) {
    return absl::InternalError(absl::StrCat(path, ": libblkid can't read it: ", strerror(errno)));
  }
  return all;
}

absl::Status CreateSparseFile(const std::string& path, uint64_t bytes) {
  if (bytes > static_cast<uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", bytes, " bytes is too much"));
  }
  const Fd fd = Fd::Open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (fd.get() < 0) {
    if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, ": exists already"));
    if (errno == ENOSPC || errno == EDQUOT) {
      return absl::ResourceExhaustedError(absl::StrCat(path, ": ", strerror(errno)));
    }
    return OpenError(path, OpenMode::kClaim, errno);
  }
  const absl::Status status = SizeFile(path, fd, bytes);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

}  // namespace ashlar::io
