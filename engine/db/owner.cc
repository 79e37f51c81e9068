#include "engine/db/owner.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ashlar {
namespace {

std::array<uint8_t, 16> BootId() {
  std::array<uint8_t, 16> id{};
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(in, text);
  const std::string raw = absl::HexStringToBytes(absl::StrReplaceAll(text, {{"-", ""}}));
  if (raw.size() == id.size()) std::copy(raw.begin(), raw.end(), id.begin());
  return id;
}

// Start time of a process in clock ticks since boot and its name; 0 when there is none.
uint64_t StartTime(uint32_t pid, std::string* name) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(in, text);
  // The name stands in parentheses and may hold anything; the fields behind the last one are plain.
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return 0;
  *name = absl::CHexEscape(text.substr(open + 1, close - open - 1));
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  return field.empty() ? 0 : std::strtoull(field.c_str(), nullptr, 10);
}

}  // namespace

Owner CurrentProcess() {
  const auto look = [] {
    Owner owner;
    std::string name;
    owner.boot_id = BootId();
    owner.pid = static_cast<uint32_t>(getpid());
    owner.start_time = StartTime(owner.pid, &name);
    return owner;
  };
  // It does not change, but that a child is another process.
  static const Owner first = look();
  return first.pid == static_cast<uint32_t>(getpid()) ? first : look();
}

std::string LiveOwner(const Owner& owner) {
  if (owner.pid == 0 || owner.boot_id != BootId()) return {};
  std::string name;
  const uint64_t start = StartTime(owner.pid, &name);
  if (start == 0 || start != owner.start_time) return {};
  return absl::StrCat("process ", owner.pid, " (", name, ")");
}

}  // namespace ashlar
