#include "print.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

namespace ashlar::tools {
namespace {

constexpr size_t kOutputBuffer = 256 << 10;
constexpr int64_t kProgressEveryMs = 200;

// One character of UTF-8 at the start of `bytes`. size 0: not well-formed.
struct Character {
  uint32_t code = 0;
  size_t size = 0;
};

Character DecodeUtf8(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes.size() < size) return {};
  uint32_t code = lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    const auto next = static_cast<uint8_t>(bytes[i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3f);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, size};
}

// Characters that act on a terminal or on the order of the text instead of standing in it.
bool IsVisible(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;  // C0, DEL, C1
  if (code == 0xad || code == 0x61c || code == 0xfeff) return false;
  if (code >= 0x200b && code <= 0x200f) return false;  // zero width, direction marks
  if (code >= 0x2028 && code <= 0x202e) return false;  // separators, embeddings
  if (code >= 0x2060 && code <= 0x206f) return false;  // isolates, invisible operators
  return code < 0xe0000;                               // tags, private planes
}

void AppendHexEscape(uint8_t byte, std::string* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out->append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int64_t NowMs() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Character c = DecodeUtf8(bytes);
    if (c.size == 0) return false;
    bytes.remove_prefix(c.size);
  }
  return true;
}

std::string EscapeForTerminal(std::string_view bytes, Lines lines) {
  const bool keep = lines == Lines::kKeep;
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Character c = DecodeUtf8(bytes);
    const size_t size = std::max<size_t>(c.size, 1);
    const bool line_byte = c.size == 1 && (c.code == '\n' || c.code == '\t' || c.code == '\\');
    if (line_byte && !keep) {
      out.append({'\\', c.code == '\n' ? 'n' : c.code == '\t' ? 't' : '\\'});
    } else if (line_byte || (c.size > 0 && IsVisible(c.code))) {
      out.append(bytes.substr(0, size));
    } else {
      for (size_t i = 0; i < size; ++i) AppendHexEscape(static_cast<uint8_t>(bytes[i]), &out);
    }
    bytes.remove_prefix(size);
  }
  return out;
}

std::string Quoted(std::string_view bytes, size_t most) {
  const bool cut = bytes.size() > most;
  return "\"" + EscapeForTerminal(bytes.substr(0, most), Lines::kEscape) + (cut ? "\"..." : "\"");
}

std::string ToHex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    out.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return out;
}

absl::StatusOr<std::string> FromHex(std::string_view hex) {
  std::string out;
  out.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]);
    const int low = i + 1 < hex.size() ? HexDigit(hex[i + 1]) : -1;
    if (high < 0 || low < 0) {
      return absl::InvalidArgumentError("not hexadecimal at character " + std::to_string(i + 1) +
                                        ": expected two digits, found " + Quoted(hex.substr(i, 2)));
    }
    out.push_back(static_cast<char>(high << 4 | low));
  }
  return out;
}

std::string HumanBytes(uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double scaled = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.95 would print as 1024.0.
  while (scaled >= 1023.95 && unit + 1 < kUnits.size()) {
    scaled /= 1024;
    ++unit;
  }
  char text[32];
  snprintf(text, sizeof(text), "%.1f %s", scaled, kUnits[unit]);
  return text;
}

std::string Grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const auto bad = [text] {
    return absl::InvalidArgumentError(
        "not a size: " + Quoted(text) +
        "; a size is a number and at most one of K, M, G, T, such as 8G, below 16 EiB");
  };
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const size_t unit = std::string_view("KMGT").find(digits.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  if (digits.empty()) return bad();
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  uint64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9' || number > (kMax - 9) / 10) return bad();
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  if (number > kMax >> shift) return bad();
  return number << shift;
}

std::string Columns::Text() const {
  std::vector<size_t> widths(sides_.size(), 0);
  // Columns are counted in characters, not bytes: cells may hold UTF-8.
  const auto width = [](const std::string& cell) {
    return static_cast<size_t>(std::count_if(
        cell.begin(), cell.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
  };
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width(row[i]), ' ');
      line += i == 0 ? "" : "  ";
      line += sides_[i] == 'r' ? pad + row[i] : row[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

bool Output::IsTerminal() const { return isatty(fd_) == 1; }

void Output::Write(std::string_view bytes) {
  if (!open()) return;
  buffer_.append(bytes);
  if (buffer_.size() >= kOutputBuffer) (void)Flush();
}

absl::Status Output::Flush() {
  std::string_view left = buffer_;
  while (!left.empty() && open()) {
    const ssize_t n = write(fd_, left.data(), left.size());
    if (n >= 0) {
      left.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EPIPE) {
      reader_gone_ = true;
    } else if (errno != EINTR) {
      status_ =
          absl::InternalError(std::string("cannot write standard output: ") + strerror(errno));
    }
  }
  buffer_.clear();
  return status_;
}

ProgressLine::ProgressLine(std::string what) : what_(std::move(what)), on_(isatty(2) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) fputs("\r\x1b[K", stderr);
}

void ProgressLine::Show(uint64_t done_bytes, uint64_t total_bytes) {
  if (!on_) return;
  const int64_t now = NowMs();
  if (now < next_ms_) return;
  next_ms_ = now + kProgressEveryMs;
  shown_ = true;
  std::string text = what_ + " " + HumanBytes(done_bytes);
  if (total_bytes > 0) {
    const double part = 100.0 * static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
    text += " of " + HumanBytes(total_bytes) + ", " + std::to_string(static_cast<int>(part)) + " %";
  }
  fprintf(stderr, "\r\x1b[K%s", text.c_str());
}

}  // namespace ashlar::tools
