// Test images and the loop devices over them. Everything is named ashlar-test.PID.* in the
// temporary directory and goes away with its object; a loop device detaches by itself when the
// process dies.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace ashlar::io {

inline std::string ScratchPath(const std::string& name) {
  static int count = 0;
  const char* dir = std::getenv("TMPDIR");
  return std::string(dir != nullptr ? dir : "/tmp") + "/ashlar-test." + std::to_string(getpid()) +
         "." + std::to_string(++count) + "." + name;
}

// A path that is removed at the end; `bytes` > 0 makes a sparse file there.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name, uint64_t bytes = 0) : path_(ScratchPath(name)) {
    if (bytes == 0) return;
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ok_ = fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0;
    if (fd >= 0) close(fd);
  }
  ~ScratchFile() {
    if (rmdir(path_.c_str()) != 0) unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  bool ok() const { return ok_; }

 private:
  const std::string path_;
  bool ok_ = false;
};

// A loop device over a file of ours. `path()` is empty where loop devices can't be had, `why()`
// says it.
class LoopDevice {
 public:
  LoopDevice(const std::string& image, uint32_t lba_bytes, bool read_only = false) {
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) {
      why_ = std::string("/dev/loop-control: ") + strerror(errno);
      return;
    }
    const int backing = open(image.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    // Another process may take the free one first; LOOP_CONFIGURE then says EBUSY.
    for (int attempt = 0; attempt < 16 && fd_ < 0; ++attempt) {
      const int number = ioctl(control, LOOP_CTL_GET_FREE);
      if (number < 0) {
        why_ = std::string("LOOP_CTL_GET_FREE: ") + strerror(errno);
        break;
      }
      const std::string path = "/dev/loop" + std::to_string(number);
      const int fd = open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
      loop_config config{};
      config.fd = static_cast<uint32_t>(backing);
      config.block_size = lba_bytes;
      config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
      if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
        fd_ = fd;
        path_ = path;
      } else {
        why_ = path + ": " + strerror(errno);
        if (fd >= 0) close(fd);
      }
    }
    if (backing >= 0) close(backing);
    close(control);
  }
  ~LoopDevice() {
    if (fd_ >= 0) close(fd_);
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;

  const std::string& path() const { return path_; }
  const std::string& why() const { return why_; }

 private:
  int fd_ = -1;
  std::string path_;
  std::string why_;
};

}  // namespace ashlar::io
