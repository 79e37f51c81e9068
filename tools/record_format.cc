#include "record_format.h"

#include <string.h>

#include <algorithm>

#include "ashlar/db.h"
#include "json_text.h"
#include "print.h"

namespace ashlar::tools {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// The longest line a legal record needs: JSON writes a control character in 6 bytes, tsv any byte
// in 4.
constexpr size_t kMaxLineBytes = 6 * (DB::kMaxKeyBytes + DB::kMaxValueBytes) + 64;
constexpr size_t kBinaryHeader = 8;

uint32_t DecodeU32(const char* from) {
  const auto* b = reinterpret_cast<const uint8_t*>(from);
  return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24;
}

void AppendU32(uint32_t number, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(number >> shift));
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The text of the field on this line, without the blanks around it; nothing when it is another
// line.
std::optional<std::string_view> FieldText(std::string_view line, std::string_view field) {
  if (line.size() <= field.size() || line[field.size()] != ':') return std::nullopt;
  for (size_t i = 0; i < field.size(); ++i) {
    if (Lower(line[i]) != Lower(field[i])) return std::nullopt;
  }
  std::string_view text = line.substr(field.size() + 1);
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return std::string_view();
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The first such field of a paragraph.
std::optional<std::string_view> FindField(std::string_view paragraph, std::string_view field) {
  while (!paragraph.empty()) {
    const size_t end = std::min(paragraph.find('\n'), paragraph.size() - 1);
    const std::string_view line = paragraph.substr(0, paragraph[end] == '\n' ? end : end + 1);
    if (const auto text = FieldText(line, field)) return text;
    paragraph.remove_prefix(end + 1);
  }
  return std::nullopt;
}

absl::Status CheckStanza(std::string_view key, std::string_view value, std::string_view field) {
  const std::string record = "the record of key " + Quoted(key) + " is no stanza: ";
  if (value.empty() || value.back() != '\n') {
    return absl::InvalidArgumentError(record + "its value does not end with a newline");
  }
  if (value.front() == '\n' || value.find("\n\n") != std::string_view::npos) {
    return absl::InvalidArgumentError(record + "its value holds an empty line");
  }
  const auto text = FindField(value, field);
  if (text == key) return absl::OkStatus();
  return absl::InvalidArgumentError(record + "its field " + std::string(field) + " is " +
                                    (text ? Quoted(*text) : std::string("missing")));
}

// Decodes a tsv field. False: *bad is the place of an escape that is none.
bool DecodeTsvField(std::string_view field, std::string* out, size_t* bad) {
  out->clear();
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\') {
      const size_t plain = std::min(field.find('\\', i), field.size());
      out->append(field.substr(i, plain - i));
      i = plain - 1;
      continue;
    }
    *bad = i;
    const char kind = ++i < field.size() ? field[i] : '\0';
    if (kind == 't' || kind == 'n' || kind == '\\') {
      out->push_back(kind == 't' ? '\t' : kind == 'n' ? '\n' : '\\');
    } else if (kind == 'x') {
      const auto byte = FromHex(field.substr(i + 1, 2));
      if (!byte.ok() || byte->size() != 1) return false;
      out->append(*byte);
      i += 2;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<RecordFormat> RecordFormatFromName(std::string_view name) {
  if (name == "tsv") return RecordFormat::kTsv;
  if (name == "jsonl") return RecordFormat::kJsonl;
  if (name == "binary") return RecordFormat::kBinary;
  if (name == "stanza") return RecordFormat::kStanza;
  return std::nullopt;
}

void AppendTsvField(std::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    if (c == '\t') {
      out->append("\\t");
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\\') {
      out->append("\\\\");
    } else if (c >= 0x20 && c < 0x7f) {
      out->push_back(c);
    } else {
      out->append("\\x" + ToHex({&c, 1}));
    }
  }
}

absl::Status RecordWriter::Append(std::string_view key, std::string_view value,
                                  std::string* out) const {
  switch (format_) {
    case RecordFormat::kTsv:
      AppendTsvField(key, out);
      out->push_back('\t');
      AppendTsvField(value, out);
      out->push_back('\n');
      break;
    case RecordFormat::kJsonl:
      out->append(JsonRecord(key, value));
      break;
    case RecordFormat::kBinary:
      AppendU32(static_cast<uint32_t>(key.size()), out);
      AppendU32(static_cast<uint32_t>(value.size()), out);
      out->append(key).append(value);
      break;
    case RecordFormat::kStanza:
      if (absl::Status s = CheckStanza(key, value, key_field_); !s.ok()) return s;
      out->append(value).push_back('\n');
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RecordReader::Next() {
  absl::StatusOr<bool> found = false;
  switch (format_) {
    case RecordFormat::kTsv:
      found = NextTsv();
      break;
    case RecordFormat::kJsonl:
      found = NextJsonl();
      break;
    case RecordFormat::kBinary:
      found = NextBinary();
      break;
    case RecordFormat::kStanza:
      found = NextStanza();
      break;
  }
  if (!found.ok() || !*found) return found;
  if (key_.empty()) return Bad("the key is empty");
  if (key_.size() > DB::kMaxKeyBytes) {
    return Bad("a key of " + Grouped(key_.size()) + " bytes, the limit is " +
               Grouped(DB::kMaxKeyBytes));
  }
  if (value_.size() > DB::kMaxValueBytes) {
    return Bad("a value of " + Grouped(value_.size()) + " bytes, the limit is " +
               Grouped(DB::kMaxValueBytes));
  }
  return true;
}

std::string RecordReader::Place() const {
  const std::string byte = " (byte " + std::to_string(record_offset_) + ")";
  if (format_ == RecordFormat::kBinary) return "record " + std::to_string(records_) + byte;
  return "line " + std::to_string(record_line_) + byte;
}

absl::Status RecordReader::Bad(const std::string& what) const {
  return absl::InvalidArgumentError(Place() + ": " + what);
}

absl::StatusOr<bool> RecordReader::NextTsv() {
  std::string_view line;
  record_line_ = lines_ + 1;
  record_offset_ = offset_;
  absl::StatusOr<bool> more = ReadLine(&line);
  if (!more.ok() || !*more) return more;
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos) {
    return Bad("no tab between key and value, found " + Quoted(line));
  }
  const size_t second = line.find('\t', tab + 1);
  if (second != std::string_view::npos) {
    return Bad("a second tab at byte " + std::to_string(record_offset_ + second) + ", found " +
               Quoted(line.substr(second)) + "; inside a value it is written \\t");
  }
  const std::string_view fields[] = {line.substr(0, tab), line.substr(tab + 1)};
  std::string* const targets[] = {&key_, &value_};
  for (const size_t i : {0, 1}) {
    size_t bad = 0;
    if (DecodeTsvField(fields[i], targets[i], &bad)) continue;
    const size_t at = record_offset_ + bad + (i == 0 ? 0 : tab + 1);
    return Bad("no escape at byte " + std::to_string(at) +
               ", expected \\t, \\n, \\\\ or \\xHH, found " +
               std::string(fields[i].substr(bad, 4)));
  }
  return true;
}

absl::StatusOr<bool> RecordReader::NextJsonl() {
  std::string_view line;
  record_line_ = lines_ + 1;
  record_offset_ = offset_;
  absl::StatusOr<bool> more = ReadLine(&line);
  if (!more.ok() || !*more) return more;
  const absl::Status parsed = ParseJsonRecord(line, &key_, &value_);
  if (!parsed.ok()) {
    return Bad(std::string(Std(parsed.message())) + ", found " + Quoted(line));
  }
  return true;
}

absl::StatusOr<bool> RecordReader::NextBinary() {
  record_offset_ = offset_;
  absl::StatusOr<size_t> got = Require(kBinaryHeader);
  if (!got.ok()) return got.status();
  if (*got == 0) return false;
  ++records_;
  if (*got < kBinaryHeader) {
    return Bad("the input ends inside the record: expected 8 bytes of lengths, found " +
               std::to_string(*got));
  }
  const uint32_t key_bytes = DecodeU32(buffer_.data() + start_);
  const uint32_t value_bytes = DecodeU32(buffer_.data() + start_ + 4);
  if (key_bytes > DB::kMaxKeyBytes || value_bytes > DB::kMaxValueBytes) {
    return Bad("lengths of " + Grouped(key_bytes) + " and " + Grouped(value_bytes) +
               " bytes, the limits are " + Grouped(DB::kMaxKeyBytes) + " and " +
               Grouped(DB::kMaxValueBytes));
  }
  Consume(kBinaryHeader);
  const size_t want = size_t{key_bytes} + value_bytes;
  got = Require(want);
  if (!got.ok()) return got.status();
  if (*got < want) {
    return Bad("the input ends inside the record: expected " + Grouped(want) +
               " bytes of key and value, found " + Grouped(*got));
  }
  key_.assign(buffer_, start_, key_bytes);
  value_.assign(buffer_, start_ + key_bytes, value_bytes);
  Consume(want);
  return true;
}

absl::StatusOr<bool> RecordReader::NextStanza() {
  key_.clear();
  value_.clear();
  bool has_key = false;
  while (true) {
    const uint64_t line_offset = offset_;
    std::string_view line;
    absl::StatusOr<bool> more = ReadLine(&line);
    if (!more.ok()) return more;
    if (*more && line.empty() && value_.empty()) continue;  // before the first line of a stanza
    if (!*more || line.empty()) break;
    if (line == "\r") {
      record_line_ = lines_;
      record_offset_ = line_offset;
      return Bad(
          "a line that holds only a carriage return; stanzas end with an empty line: convert "
          "the line ends to \\n first");
    }
    if (value_.empty()) {
      record_line_ = lines_;
      record_offset_ = line_offset;
    }
    if (!has_key) {
      if (const auto text = FieldText(line, key_field_)) {
        key_ = *text;
        has_key = true;
      }
    }
    value_.append(line).push_back('\n');
    if (value_.size() > DB::kMaxValueBytes) {
      return Bad("a stanza of more than " + Grouped(DB::kMaxValueBytes) + " bytes");
    }
  }
  if (value_.empty()) return false;
  if (!has_key) {
    return Bad("a stanza without the field " + key_field_ + ", found " +
               Quoted(std::string_view(value_).substr(0, value_.find('\n'))));
  }
  return true;
}

absl::StatusOr<bool> RecordReader::ReadLine(std::string_view* line) {
  size_t searched = 0;
  while (true) {
    const size_t end = buffer_.find('\n', start_ + searched);
    const size_t bytes = std::min(end, buffer_.size()) - start_;
    if (bytes > kMaxLineBytes) {
      return absl::InvalidArgumentError(
          "line " + std::to_string(lines_ + 1) + " (byte " + std::to_string(offset_) +
          "): longer than any record, more than " + Grouped(kMaxLineBytes) + " bytes");
    }
    if (end == std::string::npos && !at_end_) {
      searched = bytes;
      if (absl::Status s = Fill(); !s.ok()) return s;
      continue;
    }
    if (end == std::string::npos && bytes == 0) return false;
    *line = std::string_view(buffer_).substr(start_, bytes);
    Consume(bytes + (end == std::string::npos ? 0 : 1));
    ++lines_;
    return true;
  }
}

absl::StatusOr<size_t> RecordReader::Require(size_t bytes) {
  while (buffer_.size() - start_ < bytes && !at_end_) {
    if (absl::Status s = Fill(); !s.ok()) return s;
  }
  return std::min(bytes, buffer_.size() - start_);
}

// Drops what was consumed, then reads once: views into the buffer end here.
absl::Status RecordReader::Fill() {
  buffer_.erase(0, start_);
  start_ = 0;
  const size_t had = buffer_.size();
  buffer_.resize(had + kReadBytes);
  const absl::StatusOr<size_t> got = source_(buffer_.data() + had, kReadBytes);
  buffer_.resize(had + (got.ok() ? *got : 0));
  if (!got.ok()) return got.status();
  at_end_ = *got == 0;
  return absl::OkStatus();
}

void RecordReader::Consume(size_t bytes) {
  start_ += bytes;
  offset_ += bytes;
}

}  // namespace ashlar::tools
