// Appends groups of changes to the open log segment. Externally synchronised: whoever leads the
// writers.
//
// Bytes go append -> buffer -> device; at most kLogWritesInFlight buffers are in flight, and no LBA
// is written twice but to repeat a write that failed for lack of space. After any other failed
// write or flush the writer is broken: every later call returns that error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/limits.h"
#include "engine/base/types.h"
#include "engine/format/log_format.h"
#include "engine/format/manifest_format.h"
#include "engine/space/extent_io.h"

namespace ashlar {

class LogWriter {
 public:
  static constexpr int kBuffers = kLogWritesInFlight + 1;

  // `memory` is kBuffers equal buffers in io->extra(), each a multiple of the LBA and of at most
  // kRecordBytesMax.
  LogWriter(ExtentIo* io, std::unique_ptr<io::Queue> queue, const StoreId& store,
            std::span<std::byte> memory);
  ~LogWriter();

  // Waits until the device has all that was appended, and goes on in `segment`, whose extents a
  // durable edit has assigned.
  absl::Status StartSegment(const SegmentMeta& segment);
  WriteId segment() const { return segment_.id; }

  // Whether a group of `payload_bytes` and a few marks fit into the rest of the segment.
  bool Fits(uint64_t payload_bytes) const;
  // The largest payload for which Fits is true in an empty segment of `segment_bytes`.
  static uint64_t MaxPayload(uint64_t segment_bytes, uint32_t buffer_bytes, uint32_t lba_bytes);

  // One group, whole or not at all after a crash: the parts one after the other are its payload.
  // Requires Fits. It lies in the buffer when this returns, unless that was full.
  absl::Status Append(SequenceNumber first_sequence, std::span<const std::string_view> parts);
  // A record that says how far the log is durable.
  absl::Status AppendMark(SequenceNumber next_sequence);

  // Hands what is buffered to the device, without waiting for it.
  absl::Status Submit() { return SubmitBuffer(false); }
  // Waits until all that was appended is durable.
  absl::Status MakeDurable();

  uint64_t unsubmitted_bytes() const { return used_; }
  // Handed to the device so far. Any thread.
  uint64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }
  bool all_durable() const { return durable_ == tail_; }
  // Whether a mark would vouch for a group that nothing vouches for yet.
  bool mark_is_due() const { return unvouched_ && all_durable(); }

 private:
  struct Buffer {
    std::byte* base = nullptr;
    std::vector<ExtentIo::Command> commands;
    size_t pending = 0;
    bool full = false;  // a write failed for lack of space: it is repeated before anything else
  };

  LogPosition end() const { return {segment_.id.raw(), start_ + used_}; }
  absl::Status AppendRecord(RecordHeader* header, std::span<const std::string_view>* parts,
                            size_t* part_offset);
  absl::Status SubmitBuffer(bool fua);
  void SubmitCommand(io::Request* request);
  enum class Wait { kNo, kOne, kAll };
  absl::Status Collect(Wait wait);  // takes in completions; the first error
  absl::Status TakeBuffer();        // makes buffers_[current_] free to fill
  absl::Status RepeatFull();

  ExtentIo* const io_;
  const std::unique_ptr<io::Queue> queue_;
  const StoreId store_;
  const uint32_t buffer_bytes_;
  const uint32_t lba_bytes_;
  Buffer buffers_[kBuffers];
  int current_ = 0;
  bool current_taken_ = true;

  SegmentMeta segment_;
  uint64_t seed_ = 0;
  uint64_t start_ = 0;  // offset in the segment of the current buffer's first byte
  uint32_t used_ = 0;   // bytes in the current buffer
  uint64_t previous_checksum_ = 0;
  LogPosition tail_;        // behind the last record appended
  LogPosition durable_;     // the tail as of the last time everything was durable
  bool unvouched_ = false;  // a group was appended since the last mark
  std::atomic<uint64_t> bytes_written_ = 0;
  bool dirty_ = false;  // writes without FUA since the last flush
  absl::Status broken_;
};

}  // namespace ashlar
