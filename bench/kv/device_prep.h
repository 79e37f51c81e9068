// Before anything is written: is this a device that kv_bench may use, and if so, make it empty.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/config.h"

namespace ashlar::bench {

enum class PathKind { kMissing, kFile, kBlockDevice, kDirectory, kOther };
PathKind KindOf(const std::string& path);

// The label of the file systems that kv_bench makes for rivals.
inline constexpr char kFileSystemLabel[] = "ashlar-bench";
// A record that marks an Ashlar store as made by kv_bench: behind every key of a run.
inline constexpr char kMarkKey[] = "\xffkv_bench";

// OK when the device or file is empty, or holds what kv_bench made (an Ashlar store with its mark
// or without any record, an ext4 file system with its label), or --destroy-data is given.
// FailedPrecondition, naming what it found, otherwise. Changes nothing.
absl::Status CheckUsable(const Config& config);

// Makes an empty Ashlar store of it, with every refusal of `ashlarctl format` (mounted, claimed, a
// serial that is not named) beside those of CheckUsable. A loop device is written over with zeros
// first, so that the first touch of the memory or the file behind it is not part of what is
// measured. Returns the store's id.
absl::StatusOr<std::string> FormatAshlar(const Config& config);

// The UUID, in hexadecimal, of the ext4 file system with the label of kv_bench that is on it. It is
// the id of the Ashlar store that was there before: superblocks of that store still stand where the
// file system has not written, and format wants them named. Empty when there is none.
std::string BenchFileSystemId(const std::string& path);

}  // namespace ashlar::bench
