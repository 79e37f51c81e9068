// A device that one open descriptor reaches through io_uring: what file and block backends share.
// Immutable but for the notes of what its queues got; any thread. Private to io/.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "io/device.h"
#include "io/fd.h"
#include "io/uring_queue.h"

namespace ashlar::io {

class UringDevice : public Device {
 public:
  // `what` opens the line of Describe. `fd` holds the claim, where there is one.
  UringDevice(std::string what, Fd fd, const Geometry& geometry, DiscardBy discard_by)
      : what_(std::move(what)), fd_(std::move(fd)), geometry_(geometry), discard_by_(discard_by) {}

  const Geometry& geometry() const override { return geometry_; }
  std::string Describe() const override;
  absl::StatusOr<std::unique_ptr<Queue>> OpenQueue(std::span<Device* const> devices,
                                                   const QueueOptions& options,
                                                   const Arena& arena) override;

 private:
  std::shared_ptr<UringBuffers> Buffers(const Arena& arena, int* err);

  const std::string what_;
  const Fd fd_;
  const Geometry geometry_;
  const DiscardBy discard_by_;

  mutable std::mutex mu_;
  std::weak_ptr<UringBuffers> buffers_;  // of the arena last used; alive while a queue uses it
  bool polled_asked_ = false;
  int fixed_error_ = 0;  // errno of the last buffer registration that failed
};

}  // namespace ashlar::io
