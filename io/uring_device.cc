#include "io/uring_device.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "io/check.h"

namespace ashlar::io {

std::string UringDevice::Describe() const {
  std::string text = absl::StrCat(
      what_, ", ", geometry_.capacity_bytes(), " bytes, LBA ", geometry_.lba_bytes,
      geometry_.direct ? ", O_DIRECT"
                       : ", BUFFERED: the page cache is in between, no O_DIRECT here",
      geometry_.volatile_cache ? ", volatile cache" : ", no volatile cache",
      geometry_.native_fua ? ", FUA" : ", no FUA (write and flush)", "; io_uring, interrupts");
  const std::lock_guard lock(mu_);
  if (polled_asked_) absl::StrAppend(&text, " (polling asked for, not available)");
  if (fixed_error_ != 0) {
    absl::StrAppend(&text, "; plain buffers: registering them failed: ", strerror(fixed_error_),
                    " (see ulimit -l)");
  } else {
    absl::StrAppend(&text, "; fixed buffers");
  }
  return text;
}

std::shared_ptr<UringBuffers> UringDevice::Buffers(const Arena& arena, int* err) {
  const std::lock_guard lock(mu_);
  std::shared_ptr<UringBuffers> buffers = buffers_.lock();
  if (buffers != nullptr && buffers->IsOf(arena)) return buffers;
  buffers = RegisterBuffers(arena);
  *err = buffers == nullptr ? errno : 0;
  buffers_ = buffers;
  return buffers;
}

absl::StatusOr<std::unique_ptr<Queue>> UringDevice::OpenQueue(std::span<Device* const> devices,
                                                              const QueueOptions& options,
                                                              const Arena& arena) {
  CHECK(!devices.empty() && devices[0] == this && options.depth > 0);
  std::vector<UringTarget> targets;
  for (Device* device : devices) {
    const auto* const other = dynamic_cast<const UringDevice*>(device);
    if (other == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "one queue over two kinds of devices: ", Describe(), " and ", device->Describe()));
    }
    targets.push_back(
        {.fd = other->fd_.get(), .discard_by = other->discard_by_, .geometry = other->geometry_});
  }
  int err = 0;
  std::shared_ptr<UringBuffers> buffers = Buffers(arena, &err);
  UringOutcome outcome;
  auto queue = OpenUringQueue(targets, options, arena, std::move(buffers), &outcome);
  if (!queue.ok()) return queue.status();
  const std::lock_guard lock(mu_);
  polled_asked_ |= options.polled;
  if (outcome.fixed_error != 0) fixed_error_ = err != 0 ? err : outcome.fixed_error;
  return queue;
}

}  // namespace ashlar::io
