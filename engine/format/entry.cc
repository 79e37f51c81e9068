#include "engine/format/entry.h"

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"

namespace ashlar {

void AppendEntry(std::string* out, EntryKind kind, std::string_view key, std::string_view value) {
  out->push_back(static_cast<char>(kind));
  out->push_back(0);  // flags
  out->push_back(0);  // keyspace
  AppendBytes(out, key);
  if (kind == EntryKind::kValue) AppendBytes(out, value);
}

absl::Status DecodeEntry(Cursor* in, Entry* entry) {
  uint8_t kind = 0, flags = 0;
  uint64_t keyspace = 0;
  if (!in->Fixed(&kind) || !in->Fixed(&flags) || !in->Varint(&keyspace)) {
    return absl::DataLossError("entry cut short");
  }
  if (kind != static_cast<uint8_t>(EntryKind::kValue) &&
      kind != static_cast<uint8_t>(EntryKind::kDelete)) {
    return absl::DataLossError(absl::StrCat("entry of unknown kind ", kind));
  }
  if (flags != 0 || keyspace != 0) {
    return absl::DataLossError(
        absl::StrCat("entry with unknown flags ", flags, " or keyspace ", keyspace));
  }
  entry->kind = static_cast<EntryKind>(kind);
  entry->value = {};
  if (!in->Bytes(kMaxKeyBytes, &entry->key) || entry->key.empty() ||
      (entry->kind == EntryKind::kValue && !in->Bytes(kMaxValueBytes, &entry->value))) {
    return absl::DataLossError("entry with an impossible key or value size");
  }
  return absl::OkStatus();
}

}  // namespace ashlar
