// What opening, formatting and inspecting a store have in common: reaching its device, names, and
// the space that superblock and manifest speak of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ashlar/options.h"
#include "engine/format/superblock.h"
#include "engine/space/extent_map.h"
#include "engine/version/version.h"
#include "engine/wal/record_reader.h"
#include "io/device.h"

namespace ashlar {

// Opens the device at `path` as the options say: read-only, or claimed (waiting for a dead owner's
// commands, refusing at once when the owner lives), made first when it is missing and that is asked
// for.
absl::StatusOr<std::unique_ptr<io::Device>> OpenStoreDevice(const Options& options,
                                                            const std::string& path);

// 0 for an empty serial, never 0 for another.
uint64_t SerialHash(std::string_view serial);

// The log's segments, oldest first, as ReplayRecords takes them.
std::vector<RecordStream> LogStreams(const Version& version);

// Every extent that is in use. DataLoss when two owners name one.
absl::StatusOr<ExtentMap> DeriveSpace(const Superblock& sb, const Version& version);

}  // namespace ashlar
