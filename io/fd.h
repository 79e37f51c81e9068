// An owned file descriptor, never 0, 1 or 2: what is printed to a closed standard error must not
// land on a disk. Always close-on-exec. Private to io/.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ashlar::io {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }

  // open(2) with O_CLOEXEC, moved up where it is below 3. get() < 0 on failure, errno set.
  static Fd Open(const std::string& path, int flags, mode_t mode = 0) {
    int fd;
    do {
      fd = open(path.c_str(), flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 || fd > 2) return Fd(fd);
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    const int err = errno;
    close(fd);
    errno = err;
    return Fd(moved);
  }

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace ashlar::io
