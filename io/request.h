// What every backend does with a request before a device sees it, and errno in our terms. Pure
// functions; any thread. Private to io/.
#pragma once

#include <cstdint>

#include "io/arena.h"
#include "io/types.h"

namespace ashlar::io {

// CHECKs what only a bug of the caller can cause: exactly one piece of blocks * lba_bytes, aligned
// to the LBA and inside the arena, for a read or a write; ranges for a deallocate; no metadata.
// Returns kFatal with ERANGE for blocks beyond the device's end, which a damaged address can cause;
// else kOk.
IoStatus CheckRequest(const Request& request, const Geometry& geometry, const Arena& arena);

// The class of an errno that `op` ended with, after the kernel had the command.
IoStatus FromErrno(Op op, int err);

}  // namespace ashlar::io
