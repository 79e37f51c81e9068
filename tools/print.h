// What reaches a person, and how: escaping, units, columns, progress, and the writer of standard
// output. No state but that of the objects; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ashlar::tools {

// Debian's absl::string_view is not std's and neither converts.
inline std::string_view Std(absl::string_view text) { return {text.data(), text.size()}; }
inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

// True when the bytes are well-formed UTF-8 (shortest forms, no surrogates).
bool IsUtf8(std::string_view bytes);

// `bytes` as a terminal may see them: printable ASCII and UTF-8 stay; control characters,
// characters that reorder or hide text, broken UTF-8 and the backslash become \t \n \\ or \xHH.
// With keep_lines tabs, newlines and backslashes stay too.
enum class Lines { kEscape, kKeep };
std::string EscapeForTerminal(std::string_view bytes, Lines lines);

// At most `most` bytes of it, escaped and in double quotes, with "..." after them when it was
// longer.
std::string Quoted(std::string_view bytes, size_t most = 40);

// Lower-case hexadecimal. Parsing takes both cases; InvalidArgument names the first bad place.
std::string ToHex(std::string_view bytes);
absl::StatusOr<std::string> FromHex(std::string_view hex);

std::string HumanBytes(uint64_t bytes);  // "1.5 GiB"
std::string Grouped(uint64_t number);    // "1,234,567"
// "8G": decimal digits and at most one of K, M, G, T, which are powers of 1,024.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// Rows of cells, printed in aligned columns two spaces apart. Cells are escaped by whoever adds
// them.
class Columns {
 public:
  // One letter a column: 'l' or 'r', the side it is aligned to.
  explicit Columns(std::string sides) : sides_(std::move(sides)) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::string sides_;
  std::vector<std::vector<std::string>> rows_;
};

// Standard output, buffered. A reader that went away (EPIPE) is no error: what follows is dropped.
class Output {
 public:
  explicit Output(int fd = 1) : fd_(fd) {}
  ~Output() { (void)Flush(); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool IsTerminal() const;
  void Write(std::string_view bytes);
  // False once nothing more can be written: the caller stops producing.
  bool open() const { return status_.ok() && !reader_gone_; }
  // Writes what is buffered. Internal, naming the cause, when any write so far failed.
  absl::Status Flush();

 private:
  int fd_;
  bool reader_gone_ = false;
  std::string buffer_;
  absl::Status status_;
};

// One line on standard error that is rewritten a few times a second; nothing when that is no
// terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  // total 0: unknown.
  void Show(uint64_t done_bytes, uint64_t total_bytes);

 private:
  std::string what_;
  bool on_;
  bool shown_ = false;
  int64_t next_ms_ = 0;
};

}  // namespace ashlar::tools
