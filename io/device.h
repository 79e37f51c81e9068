// Device and Queue: what every backend gives. A Device is opened once and says what it is; I/O goes
// through Queues opened over it. See io/README.md for ordering, durability and errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/arena.h"
#include "io/types.h"

namespace ashlar::io {

struct QueueOptions {
  uint32_t depth = 32;  // most requests in flight
  bool polled = false;  // poll for completions where the device has poll queues, else interrupts
  bool single_owner = false;  // one thread submits and polls for the queue's whole life
};

// A submission queue and its completions. Externally synchronised: one user at a time, any thread
// (with single_owner always the same one). Commands in flight together are unordered, a flush among
// them included: a flush covers just the writes given back by Poll or Drain before it was
// submitted.
class Queue {
 public:
  virtual ~Queue() = default;  // drains first

  // Hands all requests over; at most depth - in_flight() of them (CHECK). What can't be submitted
  // comes back from Poll with its error: there is one place to look for results.
  virtual void Submit(std::span<Request* const> requests) = 0;

  // Gives back up to done.size() finished requests, their `status` set; returns how many. With
  // `wait`, waits for at least one while any is in flight.
  virtual size_t Poll(std::span<Request*> done, bool wait) = 0;

  virtual size_t in_flight() const = 0;
  virtual size_t depth() const = 0;

  // Waits for and forgets everything in flight; each request has its status.
  void Drain();
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const Geometry& geometry() const = 0;

  // One line for logs and stats: the backend, how it completes, what was asked for and not given.
  virtual std::string Describe() const = 0;

  // A queue over `devices` (devices[0] is this one; Request::device indexes the span), its buffers
  // in `arena`. Device and arena outlive the queue.
  virtual absl::StatusOr<std::unique_ptr<Queue>> OpenQueue(std::span<Device* const> devices,
                                                           const QueueOptions& options,
                                                           const Arena& arena) = 0;
};

enum class OpenMode {
  kReadOnly,  // reads only, the kernel refuses writes; no claim
  kClaim,     // read and write, exclusively: see OpenDevice
};

// Opens what `path` is: a block device (any), or a regular file (it must exist). Does not wait.
// kClaim: O_EXCL on a block device, flock on a file, held by every queue's ring too, so that the
// claim outlives each command, also after the process was killed. NotFound; PermissionDenied naming
// the right that is missing; Unavailable when another holder has the claim (a killed process's
// commands hold it for some 50 ms: try again); FailedPrecondition when it is mounted or otherwise
// in use, an NVMe character node, a directory, too small for one superblock, or anything else that
// is not supported, naming what it is.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& path, OpenMode mode);

// A non-OK status as words: operation, place, class, errno or NVMe status. OK for kOk. kFull is
// ResourceExhausted, kUnknown is Unknown, kRetry and kPath are Unavailable, kFatal is Internal.
absl::Status ToStatus(const Request& request, const Device& device);

// What lies on the device at `path`, as libblkid names it ("ext4 file system", "gpt partition
// table"), empty when nothing is recognised. Reads only.
absl::StatusOr<std::string> RecognisedContent(const std::string& path);

// Makes a sparse regular file of `bytes`, readable by its owner alone. AlreadyExists if there is
// one.
absl::Status CreateSparseFile(const std::string& path, uint64_t bytes);

}  // namespace ashlar::io
