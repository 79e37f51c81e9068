// What the admin CLI is made of: make a store, describe it, verify it, rescue what is left of it.
// These work on a path, not on an open DB. Errors are those of db.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ashlar/options.h"

namespace ashlar {

struct FormatOptions {
  // For a path that names nothing: makes a sparse file of this size. For a device or an existing
  // file it must be 0 (all of it is used).
  uint64_t file_bytes = 0;
  // What a device that reports a serial must report.
  std::string serial;
  // The id of the Ashlar store that is to be replaced.
  std::string wipe_store;
  // Replace content that is not an Ashlar store.
  bool wipe_foreign = false;
  // 0: by the size of the device (64 KiB under 1 GiB, 1 MiB to 1 TiB, 4 MiB to 16 TiB, 16 MiB
  // above).
  uint32_t extent_bytes = 0;
};

// Makes an empty store and returns its id. Refuses, with FailedPrecondition and nothing changed,
// unless the first and last MiB and the superblock places are zero or the options name what is to
// be replaced; the text names what was found. A mounted or claimed device is always refused. The
// signature is written last.
absl::StatusOr<std::string> FormatStore(const std::string& path, const FormatOptions& options);

struct TableInfo {
  uint64_t id = 0;
  int level = 0;
  uint64_t entries = 0;           // as written; a table shortened from the front holds fewer
  uint64_t bytes = 0;             // extents it owns, in bytes
  std::string smallest, largest;  // keys; smallest is the first one still served
  std::vector<uint32_t> extents;
};

struct StoreInfo {
  std::string store_id;
  uint32_t format_version = 0;
  uint64_t epoch = 0;       // opens for writing so far
  uint64_t generation = 0;  // of the superblock
  bool clean = false;       // closed with nothing left in the log
  uint64_t device_bytes = 0;
  uint64_t store_bytes = 0;
  uint32_t lba_bytes = 0;
  uint32_t extent_bytes = 0;
  uint64_t extents_total = 0;
  uint64_t extents_superblock = 0, extents_manifest = 0, extents_log = 0, extents_table = 0;
  uint64_t extents_free = 0;
  uint64_t reserve_bytes = 0;  // kept back from writes, for deletes and merges
  uint64_t last_sequence = 0;  // as of the manifest
  std::string device;          // Device::Describe
  std::vector<TableInfo> tables;
  std::vector<std::vector<uint32_t>> log_segments;
};

// Reads superblock and manifest; writes nothing, takes no claim.
absl::StatusOr<StoreInfo> InspectStore(const std::string& path);

struct Damage {
  std::string what;  // "table 12", "manifest copy 1", "superblock copy 2", "log segment 7", "space"
  std::string where;  // "extent 5 page 3 (byte 20484096)"
  std::string detail;
};

struct CheckReport {
  uint64_t pages_verified = 0;
  uint64_t entries = 0;  // in tables
  uint64_t log_records = 0;
  std::vector<Damage> damage;  // empty: everything that is live verifies
  uint64_t damage_total = 0;   // damage is cut at 1,000 entries
};

using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Reads every live byte and checks the space accounting; writes nothing. A damaged store is an
// answer, not an error: look at report.damage.
absl::StatusOr<CheckReport> CheckStore(const std::string& path, const Progress& progress = nullptr);

// Calls `emit` with every record that verifies, in key order, and returns what did not. A key whose
// newest version is damaged can appear with an older value, or though it was deleted: the report
// names each place. Stops with emit's error.
absl::StatusOr<std::vector<Damage>> SalvageStore(
    const std::string& path,
    const std::function<absl::Status(std::string_view key, std::string_view value)>& emit);

}  // namespace ashlar
