#include "engine/space/extent_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/format/superblock.h"
#include "io/check.h"

namespace ashlar {

ExtentMap::ExtentMap(uint64_t store_bytes, uint32_t extent_bytes)
    : used_(store_bytes / extent_bytes), free_(used_.size()) {
  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    const uint64_t e = SuperblockPlace(copy, store_bytes) / extent_bytes;
    if (e >= used_.size() || used_[e]) continue;  // in the rest behind the last extent
    used_[e] = true;
    --free_;
    ++superblock_;
  }
}

absl::Status ExtentMap::Claim(const std::vector<ExtentId>& extents) {
  for (const ExtentId e : extents) {
    if (Raw(e) >= used_.size()) {
      return absl::DataLossError(
          absl::StrCat("extent ", Raw(e), " lies outside the store of ", used_.size(), " extents"));
    }
    if (used_[Raw(e)]) {
      return absl::DataLossError(absl::StrCat("extent ", Raw(e), " has two owners"));
    }
    used_[Raw(e)] = true;
    --free_;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ExtentId>> ExtentMap::Allocate(Purpose purpose, uint32_t n) {
  if (free_ < n) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device full: ", n, " extents wanted, ", free_, " free"));
  }
  std::vector<ExtentId> taken;
  taken.reserve(n);
  // The manifest's two copies are wanted far apart: the caller asks twice, and the second search
  // starts half the device further on.
  uint64_t at =
      purpose == Purpose::kManifest ? (cursor_ + used_.size() / 2) % used_.size() : cursor_;
  for (uint64_t seen = 0; taken.size() < n; ++seen) {
    CHECK(seen < used_.size());
    if (!used_[at]) {
      used_[at] = true;
      taken.push_back(ExtentId{static_cast<uint32_t>(at)});
    }
    at = at + 1 == used_.size() ? 0 : at + 1;
  }
  free_ -= n;
  cursor_ = at;
  return taken;
}

void ExtentMap::Free(const std::vector<ExtentId>& extents) {
  for (const ExtentId e : extents) {
    CHECK(Raw(e) < used_.size() && used_[Raw(e)]);
    used_[Raw(e)] = false;
    ++free_;
  }
}

}  // namespace ashlar
