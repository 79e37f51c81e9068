// The admin calls on a device that is open already: what admin.h does for a path, and what tests do
// on devices of their own.
#pragma once

#include "ashlar/admin.h"
#include "engine/base/types.h"
#include "io/device.h"

namespace ashlar {

// Writes an empty store over whatever is there: old superblocks gone first, then the manifest, then
// the new superblocks. No questions: FormatStore asks them. `extent_bytes` 0: by size.
absl::Status FormatDevice(io::Device* device, uint32_t extent_bytes, const StoreId& id);

absl::StatusOr<StoreInfo> InspectDevice(io::Device* device);
absl::StatusOr<CheckReport> CheckDevice(io::Device* device, const Progress& progress);
absl::StatusOr<std::vector<Damage>> SalvageDevice(
    io::Device* device,
    const std::function<absl::Status(std::string_view key, std::string_view value)>& emit);

}  // namespace ashlar
