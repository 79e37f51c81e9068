#include "engine/format/log_format.h"

#include "engine/base/limits.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"

namespace ashlar {
namespace {

constexpr uint32_t kMagic = 0x474c5341;  // "ASLG"
constexpr size_t kChecksumAt = 0, kMagicAt = 8, kKindAt = 12, kFlagsAt = 13, kReserved16At = 14,
                 kLengthAt = 16, kReserved32At = 20, kStreamAt = 24, kOffsetAt = 32,
                 kSequenceAt = 40, kPreviousAt = 48, kDurableStreamAt = 56, kDurableOffsetAt = 64;
static_assert(kDurableOffsetAt + 8 == kRecordHeaderBytes);
constexpr uint8_t kFirst = 1, kLast = 2;

}  // namespace

void SealRecord(std::byte* at, RecordHeader* header, uint64_t stream_seed) {
  StoreLe<uint32_t>(at + kMagicAt, kMagic);
  StoreLe<uint8_t>(at + kKindAt, static_cast<uint8_t>(header->kind));
  StoreLe<uint8_t>(at + kFlagsAt,
                   static_cast<uint8_t>((header->first ? kFirst : 0) | (header->last ? kLast : 0)));
  StoreLe<uint16_t>(at + kReserved16At, 0);
  StoreLe<uint32_t>(at + kLengthAt, header->payload_bytes);
  StoreLe<uint32_t>(at + kReserved32At, 0);
  StoreLe<uint64_t>(at + kStreamAt, header->position.stream);
  StoreLe<uint64_t>(at + kOffsetAt, header->position.offset);
  StoreLe<uint64_t>(at + kSequenceAt, header->first_sequence);
  StoreLe<uint64_t>(at + kPreviousAt, header->previous_checksum);
  StoreLe<uint64_t>(at + kDurableStreamAt, header->durable.stream);
  StoreLe<uint64_t>(at + kDurableOffsetAt, header->durable.offset);
  header->checksum =
      Checksum(at + kMagicAt, kRecordHeaderBytes - kMagicAt + header->payload_bytes, stream_seed);
  StoreLe<uint64_t>(at + kChecksumAt, header->checksum);
}

uint64_t ClaimedBytes(std::span<const std::byte> header, LogPosition position) {
  if (header.size() < kRecordHeaderBytes) return 0;
  const std::byte* at = header.data();
  if (LoadLe<uint32_t>(at + kMagicAt) != kMagic ||
      LoadLe<uint64_t>(at + kStreamAt) != position.stream ||
      LoadLe<uint64_t>(at + kOffsetAt) != position.offset) {
    return 0;
  }
  const uint64_t bytes = uint64_t{kRecordHeaderBytes} + LoadLe<uint32_t>(at + kLengthAt);
  return bytes <= kRecordBytesMax ? bytes : 0;
}

RecordParse ParseRecord(std::span<const std::byte> bytes, LogPosition position,
                        uint64_t stream_seed, RecordHeader* header, std::string_view* payload) {
  if (bytes.size() < kRecordHeaderBytes) return RecordParse::kInvalid;
  const std::byte* at = bytes.data();
  if (LoadLe<uint32_t>(at + kMagicAt) != kMagic) return RecordParse::kInvalid;
  header->position = {LoadLe<uint64_t>(at + kStreamAt), LoadLe<uint64_t>(at + kOffsetAt)};
  if (header->position != position) return RecordParse::kInvalid;
  header->payload_bytes = LoadLe<uint32_t>(at + kLengthAt);
  if (header->payload_bytes > bytes.size() - kRecordHeaderBytes) return RecordParse::kInvalid;
  header->checksum = LoadLe<uint64_t>(at + kChecksumAt);
  if (header->checksum !=
      Checksum(at + kMagicAt, kRecordHeaderBytes - kMagicAt + header->payload_bytes, stream_seed)) {
    return RecordParse::kInvalid;
  }
  const uint8_t kind = LoadLe<uint8_t>(at + kKindAt), flags = LoadLe<uint8_t>(at + kFlagsAt);
  if ((kind != static_cast<uint8_t>(RecordKind::kData) &&
       kind != static_cast<uint8_t>(RecordKind::kMark)) ||
      (flags & ~(kFirst | kLast)) != 0 || LoadLe<uint16_t>(at + kReserved16At) != 0 ||
      LoadLe<uint32_t>(at + kReserved32At) != 0) {
    return RecordParse::kInvalid;
  }
  header->kind = static_cast<RecordKind>(kind);
  header->first = (flags & kFirst) != 0;
  header->last = (flags & kLast) != 0;
  header->first_sequence = LoadLe<uint64_t>(at + kSequenceAt);
  header->previous_checksum = LoadLe<uint64_t>(at + kPreviousAt);
  header->durable = {LoadLe<uint64_t>(at + kDurableStreamAt),
                     LoadLe<uint64_t>(at + kDurableOffsetAt)};
  *payload = {reinterpret_cast<const char*>(at) + kRecordHeaderBytes, header->payload_bytes};
  return RecordParse::kOk;
}

}  // namespace ashlar
