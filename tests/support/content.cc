#include "tests/support/content.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ashlar {

std::string Bytes(size_t size, uint64_t n) {
  std::string out(size, '\0');
  uint64_t x = n * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
    }
    out[i] = static_cast<char>(x >> (i % 8 * 8));
  }
  return out;
}

std::string Key(uint64_t n) { return absl::StrCat("key", absl::Dec(n, absl::kZeroPad4)); }

absl::Status ExportImage(std::span<const std::byte> contents, const std::string& path) {
  constexpr uint64_t kGrain = 4096;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && ftruncate(fd, static_cast<off_t>(contents.size())) == 0;
  for (uint64_t at = 0; ok && at < contents.size(); at += kGrain) {
    const auto page = contents.subspan(at, std::min<uint64_t>(kGrain, contents.size() - at));
    if (std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; })) {
      continue;
    }
    ok = pwrite(fd, page.data(), page.size(), static_cast<off_t>(at)) ==
         static_cast<ssize_t>(page.size());
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok) return absl::InternalError(absl::StrCat(path, ": ", strerror(error)));
  return absl::OkStatus();
}

std::string RangesText(const Ranges& ranges) {
  std::string text;
  for (const auto& [begin, end] : ranges) {
    absl::StrAppend(&text, text.empty() ? "" : ",", begin);
    if (end > begin + 1) absl::StrAppend(&text, "-", end - 1);
  }
  return text;
}

bool ParseRanges(std::string_view text, Ranges* ranges) {
  ranges->clear();
  const absl::string_view whole(text.data(), text.size());
  for (const absl::string_view part : absl::StrSplit(whole, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    uint64_t first, last;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || last < first || last == UINT64_MAX) {
      return false;
    }
    ranges->emplace_back(first, last + 1);
  }
  return true;
}

}  // namespace ashlar
