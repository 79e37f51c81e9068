// Reads and replaces the four copies of the superblock. One thread.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/format/superblock.h"
#include "engine/space/extent_io.h"

namespace ashlar {

struct SuperblockScan {
  Superblock current;               // the one to use
  uint64_t highest_generation = 0;  // seen in any valid copy
  uint32_t highest_epoch = 0;
  // What is not a valid copy of `current`: copy number and why. A valid copy of another generation
  // is damage only where no update that was cut short can have left it.
  std::vector<std::pair<int, std::string>> damaged;
  std::vector<std::pair<int, std::string>> outdated;
};

// Reads the copies of a store of `store_bytes`, or, with 0, finds the size from the two copies at
// fixed places, else from the device's. FailedPrecondition: not an Ashlar store, or of a newer
// format (naming what was found); DataLoss: copies are there, but none can be trusted. `io` may
// have any extent size.
absl::StatusOr<SuperblockScan> ReadSuperblocks(ExtentIo* io);

// Writes `next` over all copies: first two, flush, the other two, flush, read back. Everything it
// refers to is durable before. After an error the outcome is not known: the store must not write
// until it was opened again, unless the error is ResourceExhausted, after which the same call may
// be repeated.
absl::Status WriteSuperblocks(ExtentIo* io, const Superblock& next);

}  // namespace ashlar
