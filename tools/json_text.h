// JSON, both ways: the one place of the tools that knows the JSON library. Text is ASCII:
// everything else is escaped, so a terminal may see it. Bytes of the store that are not UTF-8 stand
// in base64 under the field's name with "64" at its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "ashlar/admin.h"

namespace ashlar::tools {

// One line: {"k":...,"v":...}.
std::string JsonRecord(std::string_view key, std::string_view value);

// Reads what JsonRecord writes, with any blanks and order of fields. InvalidArgument says what is
// wrong.
absl::Status ParseJsonRecord(std::string_view line, std::string* key, std::string* value);

// One line of these fields in this order.
using JsonField = std::pair<const char*, std::variant<std::string, uint64_t, double, bool>>;
std::string JsonLine(const std::vector<JsonField>& fields);

// {"error":{"exit":...,"code":...,"message":...}}
std::string JsonError(int exit_code, const absl::Status& error);

struct InfoParts {
  bool tables = false;
  bool extents = false;
  bool log = false;
};
std::string JsonInfo(const StoreInfo& info, InfoParts parts);
std::string JsonCheck(const CheckReport& report);
std::string JsonDamage(const std::vector<Damage>& damage);

}  // namespace ashlar::tools
