// The framing that log segments and manifests share: records that chain. FORMAT.md, "Record".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/base/types.h"

namespace ashlar {

enum class RecordKind : uint8_t {
  kData = 1,  // a fragment of a payload
  kMark = 2,  // no payload: says only how far the log is durable
};

constexpr uint32_t kRecordHeaderBytes = 72;
constexpr uint32_t kRecordAlign = 8;

// A place in a chain of streams: streams are ordered by their id, offsets count bytes within one.
struct LogPosition {
  uint64_t stream = 0;
  uint64_t offset = 0;
  auto operator<=>(const LogPosition&) const = default;
};

struct RecordHeader {
  uint64_t checksum = 0;
  RecordKind kind = RecordKind::kData;
  bool first = true, last = true;  // fragment of a payload
  uint32_t payload_bytes = 0;
  LogPosition position;  // of this record
  SequenceNumber first_sequence = 0;
  uint64_t previous_checksum =
      0;                // of the record before, also across streams; 0 for the very first
  LogPosition durable;  // everything before it was durable when this record was made
};

// Writes the header of a record whose payload already lies at `at` + kRecordHeaderBytes, fills in
// header->checksum.
void SealRecord(std::byte* at, RecordHeader* header, uint64_t stream_seed);

// How many bytes, header included, a record of this stream and position has by what its header
// says; 0 when `header`, which nothing has verified yet, is not the header of such a record.
uint64_t ClaimedBytes(std::span<const std::byte> header, LogPosition position);

enum class RecordParse { kOk, kInvalid };
// Whether a record of this stream and position starts at the front of `bytes`, whole. The chain is
// for the caller to compare. Never reads past `bytes`.
RecordParse ParseRecord(std::span<const std::byte> bytes, LogPosition position,
                        uint64_t stream_seed, RecordHeader* header, std::string_view* payload);

// What a record of `payload_bytes` takes in its stream.
constexpr uint64_t RecordBytes(uint64_t payload_bytes) {
  return (kRecordHeaderBytes + payload_bytes + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

}  // namespace ashlar
