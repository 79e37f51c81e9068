// Queues over io_uring for files and block devices; uring_queue.cc is the only source that names
// liburing. A queue is externally synchronised (see io/device.h); a ring registers every descriptor
// it uses, the claim among them, so that a claim outlives the last command even of a killed
// process. Private to io/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "io/arena.h"
#include "io/device.h"

namespace ashlar::io {

// The arena registered with a ring of its own, from which the queues clone it (kernel 6.12), so
// that memlock is charged once. Shared by the queues over one arena; any thread.
class UringBuffers {
 public:
  virtual ~UringBuffers() = default;
  virtual bool IsOf(const Arena& arena) const = 0;
  virtual int ring_fd() const = 0;
};

// Null when the arena can't be registered (memlock: ENOMEM or EPERM); errno says why.
std::shared_ptr<UringBuffers> RegisterBuffers(const Arena& arena);

enum class DiscardBy : uint8_t {
  kPunchHole,  // regular file
  kRing,       // block device, BLOCK_URING_CMD_DISCARD (6.12)
  kIoctl,      // block device, BLKDISCARD: runs inside Submit
};

// What a ring needs to know of one device. The descriptors stay their owner's; the ring keeps its
// own references to the open files.
struct UringTarget {
  int fd = -1;
  int claim_fd = -1;  // when another descriptor than `fd` holds the claim
  DiscardBy discard_by = DiscardBy::kPunchHole;
  Geometry geometry;
};

// What the ring got of what it wanted.
struct UringOutcome {
  int fixed_error = 0;  // errno of buffer registration; 0: buffers are fixed
  bool cloned = false;
};

absl::StatusOr<std::unique_ptr<Queue>> OpenUringQueue(std::span<const UringTarget> targets,
                                                      const QueueOptions& options,
                                                      const Arena& arena,
                                                      std::shared_ptr<UringBuffers> buffers,
                                                      UringOutcome* outcome);

}  // namespace ashlar::io
