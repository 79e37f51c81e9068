#include "kv/file_system.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kv/device_prep.h"

extern char** environ;

namespace ashlar::bench {
namespace {

absl::Status Errno(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status RunCommand(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (const int error = posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
      error != 0) {
    return absl::InternalError(absl::StrCat(words[0], ": ", std::strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) return absl::InternalError(absl::StrCat(words[0], " failed"));
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchFileSystem::Make(const std::string& device, const std::string& store_id) {
  std::string uuid = store_id;
  for (const size_t at : {8, 13, 18, 23}) uuid.insert(std::min(at, uuid.size()), "-");
  // No discard, which would give the memory behind a loop device back; no tables left for the
  // kernel to write while something is measured.
  return RunCommand({"mkfs.ext4", "-q", "-F", "-L", kFileSystemLabel, "-U", uuid, "-E",
                     "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device});
}

absl::Status BenchFileSystem::Mount(const std::string& device) {
  if (BenchFileSystemId(device).empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(device, ": holds no file system that kv_bench made"));
  }
  if (unshare(CLONE_NEWNS) != 0) return Errno("a mount namespace (it takes root)");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return Errno("making mounts private (/ must be a mount point: not in a chroot)");
  }
  char path[] = "/tmp/kv_bench.mount.XXXXXX";
  if (mkdtemp(path) == nullptr) return Errno(path);
  if (mount(device.c_str(), path, "ext4", MS_NOATIME, nullptr) != 0) {
    absl::Status status = Errno(absl::StrCat("mounting ", device));
    rmdir(path);
    return status;
  }
  directory_ = path;
  return absl::OkStatus();
}

absl::Status BenchFileSystem::Unmount() {
  if (directory_.empty()) return absl::OkStatus();
  if (umount2(directory_.c_str(), 0) != 0) return Errno(absl::StrCat("unmounting ", directory_));
  rmdir(directory_.c_str());
  directory_.clear();
  return absl::OkStatus();
}

BenchFileSystem::~BenchFileSystem() {
  if (!Unmount().ok() && umount2(directory_.c_str(), MNT_DETACH) == 0) rmdir(directory_.c_str());
}

}  // namespace ashlar::bench
