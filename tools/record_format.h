// The formats that `load` reads and `dump` writes. Pure: bytes in, records out, and back; no store,
// no files. One thread at a time. Memory is bounded by one record, whatever the input claims.
//
//   tsv     key TAB value NEWLINE. \t \n \\ stand for these bytes, \xHH for any; every byte but
//   printable
//           ASCII is written so, and read as it is too.
//   jsonl   one object a line: {"k":"...","v":"..."}; k64, v64 (base64) in place of k, v when not
//   UTF-8. binary  u32le key length, u32le value length, key, value. stanza  paragraphs divided by
//   empty lines. The value is the paragraph's lines, each with its newline,
//           without the empty line; the key is the text of the field `key_field`. Written: the
//           value and one empty line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ashlar::tools {

enum class RecordFormat { kTsv, kJsonl, kBinary, kStanza };

std::optional<RecordFormat> RecordFormatFromName(std::string_view name);

// `bytes` as a field of a tsv line.
void AppendTsvField(std::string_view bytes, std::string* out);

class RecordWriter {
 public:
  RecordWriter(RecordFormat format, std::string key_field)
      : format_(format), key_field_(std::move(key_field)) {}

  // Appends the record. InvalidArgument, nothing appended, when a stanza of it would not be read
  // back as it is: the value is no paragraph, or its key field is not the key.
  absl::Status Append(std::string_view key, std::string_view value, std::string* out) const;

 private:
  RecordFormat format_;
  std::string key_field_;
};

// Puts up to `bytes` bytes at `to` and says how many; 0 is the end of the input.
using ByteSource = std::function<absl::StatusOr<size_t>(char* to, size_t bytes)>;

class RecordReader {
 public:
  RecordReader(RecordFormat format, std::string key_field, ByteSource source)
      : format_(format), key_field_(std::move(key_field)), source_(std::move(source)) {}

  // False at the end of the input. InvalidArgument names line or record, byte offset, and what was
  // found; no call may follow an error.
  absl::StatusOr<bool> Next();

  // Of the record that Next found; the views hold until the next call.
  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }
  // Where it starts: "line 12 (byte 345)".
  std::string Place() const;

  uint64_t bytes_read() const { return offset_; }

 private:
  absl::StatusOr<bool> NextTsv();
  absl::StatusOr<bool> NextJsonl();
  absl::StatusOr<bool> NextBinary();
  absl::StatusOr<bool> NextStanza();

  // The next line without its newline, valid until the next call; false at the end.
  absl::StatusOr<bool> ReadLine(std::string_view* line);
  // Makes `bytes` bytes available at start_, fewer at the end of the input; says how many there
  // are.
  absl::StatusOr<size_t> Require(size_t bytes);
  absl::Status Fill();
  void Consume(size_t bytes);
  absl::Status Bad(const std::string& what) const;

  const RecordFormat format_;
  const std::string key_field_;
  const ByteSource source_;
  std::string buffer_;  // bytes from start_ on are not consumed yet
  size_t start_ = 0;
  bool at_end_ = false;
  uint64_t offset_ = 0;       // in the input, of start_
  uint64_t lines_ = 0;        // consumed
  uint64_t records_ = 0;      // begun
  uint64_t record_line_ = 0;  // where the record began, lines from 1
  uint64_t record_offset_ = 0;
  std::string key_, value_;
};

}  // namespace ashlar::tools
