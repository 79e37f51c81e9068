// Who owns each extent. Derived at open from superblock and manifest, never stored. Externally
// synchronised (the store's mutex).
//
// An extent is free, reserved for a superblock, or in use (manifest, segment, table, or allocated
// for one that is being written). free + used + superblock = all.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/types.h"

namespace ashlar {

// What an extent is wanted for. Placement and wear come from it later; today it decides from which
// end of the device the search starts.
enum class Purpose : uint8_t { kManifest, kLog, kLevel0, kLevelN };

class ExtentMap {
 public:
  ExtentMap(uint64_t store_bytes, uint32_t extent_bytes);

  // Marks as in use what the manifest names. DataLoss when one lies outside or is in use already.
  absl::Status Claim(const std::vector<ExtentId>& extents);

  // `n` free extents, neighbours where possible, in ascending order where they are.
  // ResourceExhausted, and nothing taken, when there are fewer.
  absl::StatusOr<std::vector<ExtentId>> Allocate(Purpose purpose, uint32_t n);
  void Free(const std::vector<ExtentId>& extents);

  uint64_t total() const { return used_.size(); }
  uint64_t free() const { return free_; }
  uint64_t superblock() const { return superblock_; }
  bool in_use(ExtentId e) const { return used_[Raw(e)]; }

 private:
  std::vector<bool> used_;
  uint64_t free_ = 0;
  uint64_t superblock_ = 0;
  uint64_t cursor_ = 0;  // where the last search ended: reuse goes round the device
};

}  // namespace ashlar
