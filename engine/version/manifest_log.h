// Writes the manifest: a snapshot in new extents, then edits behind it, both copies durable before
// an edit counts. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/format/log_format.h"
#include "engine/format/superblock.h"
#include "engine/space/extent_io.h"
#include "engine/version/version.h"

namespace ashlar {

class ManifestLog {
 public:
  ManifestLog(ExtentIo* io, const StoreId& store) : io_(io), store_(store) {}

  // Bytes a copy should have to hold a snapshot of `version` and a good many edits.
  static uint64_t WantedBytes(const Version& version, uint32_t lba_bytes);

  // Starts a new manifest in `copies` (equal in number) with a snapshot of `version`, made durable.
  // The superblock has to be pointed to it next. ResourceExhausted when the snapshot does not fit.
  absl::Status Start(WriteId id, std::array<std::vector<ExtentId>, 2> copies,
                     const Version& version);

  // Appends one edit and makes it durable in both copies. OutOfRange, with nothing written, when
  // there is no room: start a new manifest. After any other error nothing may be appended: start a
  // new one.
  absl::Status Append(const VersionEdit& edit);

  WriteId id() const { return id_; }
  uint64_t first_checksum() const { return first_checksum_; }
  const std::array<std::vector<ExtentId>, 2>& copies() const { return copies_; }

 private:
  absl::Status Write(std::string_view payload);

  ExtentIo* const io_;
  const StoreId store_;
  WriteId id_;
  std::array<std::vector<ExtentId>, 2> copies_;
  uint64_t offset_ = 0;
  uint64_t previous_checksum_ = 0;
  uint64_t first_checksum_ = 0;
};

struct ManifestState {
  std::shared_ptr<const Version> version;
  uint64_t end = 0;  // offset in each copy behind the last record
  // Not OK: the edit with which the store was closed is in neither copy, and `version` is the one
  // before it. Only a rescue goes on with that.
  absl::Status last_edit;
  // Copies in which a record does not verify, for check: "manifest copy 1", place.
  std::vector<std::pair<std::string, std::string>> damaged;
};

// Replays the manifest that `sb` names. DataLoss naming the place.
absl::StatusOr<ManifestState> ReadManifest(ExtentIo* io, const Superblock& sb);

}  // namespace ashlar
