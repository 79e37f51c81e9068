// The set of tables and segments at one moment, immutable, and how an edit leads from one to the
// next.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/limits.h"
#include "engine/base/types.h"
#include "engine/format/manifest_format.h"

namespace ashlar {

using TablePtr = std::shared_ptr<const TableMeta>;

struct Version {
  uint64_t number = 0;  // grows by one with each edit
  // Level 0: newest first, they overlap. The others are sorted runs: ascending, disjoint; what is
  // in a deeper one is older.
  std::array<std::vector<TablePtr>, kLastLevel + 1> levels;
  std::map<WriteId, SegmentMeta> segments;
  SequenceNumber last_sequence = 0;  // as of the last edit that said so
  bool clean = false;

  std::vector<TablePtr> AllTables() const;
};

// The first table of a sorted run that ends at or behind `key`.
std::vector<TablePtr>::const_iterator FirstEndingAt(const std::vector<TablePtr>& run,
                                                    std::string_view key);
// The table of a sorted run whose bounds hold `key`, or null.
const TablePtr* TableFor(const std::vector<TablePtr>& run, std::string_view key);

// The version that `edit` makes of `base`, and the extents it no longer owns. DataLoss, naming what
// does not fit, when the edit contradicts the base: the bytes come from media.
struct AppliedEdit {
  std::shared_ptr<const Version> version;
  std::vector<ExtentId> released;
};
absl::StatusOr<AppliedEdit> ApplyEdit(const Version& base, const VersionEdit& edit);

// An edit that makes `version` out of nothing.
VersionEdit SnapshotOf(const Version& version);

// What the invariants of FORMAT.md say of a version; the first one that does not hold.
absl::Status CheckVersion(const Version& version);

}  // namespace ashlar
