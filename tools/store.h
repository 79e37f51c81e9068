// How the commands open and close a store.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ashlar/db.h"

namespace ashlar::tools {

enum class Access { kRead, kWrite };

// Warnings of the engine go to standard error.
absl::StatusOr<std::unique_ptr<DB>> OpenStore(const std::string& path, Access access);

// Closes; the first of the two errors.
absl::Status CloseStore(DB& db, absl::Status so_far);

}  // namespace ashlar::tools
