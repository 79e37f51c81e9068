// One change as the log and a WriteBatch carry it: kind, flags, keyspace, key, value. FORMAT.md,
// "Log entry".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/types.h"
#include "engine/format/coding.h"

namespace ashlar {

struct Entry {
  EntryKind kind = EntryKind::kValue;
  std::string_view key, value;
};

void AppendEntry(std::string* out, EntryKind kind, std::string_view key, std::string_view value);

// Takes one entry from the cursor. DataLoss for a kind, flag, keyspace or size that this version
// does not know.
absl::Status DecodeEntry(Cursor* in, Entry* entry);

}  // namespace ashlar
