#include "engine/wal/log_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/plant.h"
#include "engine/base/rounding.h"
#include "engine/base/status.h"
#include "engine/format/checksum.h"

namespace ashlar {
namespace {

// A fragment is not begun with less room than this: headers would outweigh it.
constexpr uint32_t kMinFragment = 256;
constexpr uint32_t kMarkBytes = kRecordHeaderBytes;

// What a group can take in a segment, at most: each fragment fills a buffer but for kMinFragment, a
// header and alignment, and each buffer is padded to an LBA. Twice an LBA and a mark behind it.
uint64_t GroupBytes(uint64_t payload, uint32_t buffer_bytes, uint32_t lba_bytes) {
  const uint64_t per_buffer = buffer_bytes - kMinFragment - kRecordHeaderBytes - kRecordAlign;
  const uint64_t buffers = payload / per_buffer + 2;
  return payload + buffers * (kRecordHeaderBytes + kRecordAlign + lba_bytes) + 4 * lba_bytes;
}

}  // namespace

LogWriter::LogWriter(ExtentIo* io, std::unique_ptr<io::Queue> queue, const StoreId& store,
                     std::span<std::byte> memory)
    : io_(io),
      queue_(std::move(queue)),
      store_(store),
      buffer_bytes_(static_cast<uint32_t>(memory.size() / kBuffers)),
      lba_bytes_(io->block_bytes()) {
  CHECK(buffer_bytes_ % lba_bytes_ == 0 && buffer_bytes_ <= kRecordBytesMax);
  for (int i = 0; i < kBuffers; ++i) buffers_[i].base = memory.data() + size_t{buffer_bytes_} * i;
}

LogWriter::~LogWriter() { queue_->Drain(); }

bool LogWriter::Fits(uint64_t payload_bytes) const {
  const uint64_t size = segment_.extents.size() * uint64_t{io_->extent_bytes()};
  return start_ + used_ + GroupBytes(payload_bytes, buffer_bytes_, lba_bytes_) <= size;
}

uint64_t LogWriter::MaxPayload(uint64_t segment_bytes, uint32_t buffer_bytes, uint32_t lba_bytes) {
  uint64_t payload = segment_bytes;
  while (payload > 0 && GroupBytes(payload, buffer_bytes, lba_bytes) > segment_bytes) {
    payload -= std::min<uint64_t>(payload, 4096);
  }
  return payload;
}

absl::Status LogWriter::StartSegment(const SegmentMeta& segment) {
  RETURN_IF_ERROR(SubmitBuffer(false));
  // The old segment's extents are freed once its memtable is a table: nothing may still be on its
  // way there, and nothing may have to be repeated.
  RETURN_IF_ERROR(Collect(Wait::kAll));
  segment_ = segment;
  seed_ = StreamSeed(store_, segment.id);
  start_ = 0;
  return absl::OkStatus();
}

void LogWriter::SubmitCommand(io::Request* request) {
  std::array<io::Request*, 8> finished;
  while (queue_->in_flight() == queue_->depth()) {
    const size_t n = queue_->Poll(finished, true);
    for (size_t i = 0; i < n; ++i) --buffers_[finished[i]->cookie].pending;
  }
  io::Request* const one[] = {request};
  queue_->Submit(one);
}

absl::Status LogWriter::Collect(Wait wait) {
  std::array<io::Request*, 8> finished;
  do {
    const size_t n = queue_->Poll(finished, wait != Wait::kNo && queue_->in_flight() > 0);
    for (size_t i = 0; i < n; ++i) --buffers_[finished[i]->cookie].pending;
  } while (wait == Wait::kAll && queue_->in_flight() > 0);
  absl::Status full;
  for (Buffer& b : buffers_) {
    if (b.pending > 0) continue;
    b.full = false;
    for (const ExtentIo::Command& c : b.commands) {
      if (c.request.status.ok()) continue;
      const absl::Status s = io::ToStatus(c.request, io_->device());
      if (c.request.status.cls != io::IoClass::kFull) {
        if (broken_.ok()) broken_ = s;
        continue;
      }
      b.full = true;
      full = s;
    }
    if (!b.full) b.commands.clear();
  }
  return broken_.ok() ? full : broken_;
}

absl::Status LogWriter::RepeatFull() {
  RETURN_IF_ERROR(broken_);
  bool any = false;
  for (size_t i = 0; i < kBuffers; ++i) {
    Buffer& b = buffers_[i];
    if (!b.full) continue;
    any = true;
    b.full = false;
    for (ExtentIo::Command& c : b.commands) {
      if (c.request.status.ok()) continue;
      c.request.status = {};
      c.request.flags = 0;  // a flush follows
      ++b.pending;
      SubmitCommand(&c.request);
    }
    dirty_ = true;
  }
  return any ? Collect(Wait::kAll) : absl::OkStatus();
}

absl::Status LogWriter::TakeBuffer() {
  if (current_taken_) return absl::OkStatus();
  if (PLANT("log.reuse_buffer_in_flight")) buffers_[current_].commands.clear();
  while ((buffers_[current_].pending > 0 && !PLANT("log.reuse_buffer_in_flight")) ||
         !buffers_[current_].commands.empty()) {
    RETURN_IF_ERROR(Collect(Wait::kOne));
  }
  current_taken_ = true;
  return absl::OkStatus();
}

absl::Status LogWriter::SubmitBuffer(bool fua) {
  RETURN_IF_ERROR(RepeatFull());
  if (used_ == 0) return absl::OkStatus();
  Buffer& b = buffers_[current_];
  const uint32_t bytes = static_cast<uint32_t>(RoundUp(used_, lba_bytes_));
  std::memset(b.base + used_, 0, bytes - used_);
  io_->Prepare(io::Op::kWrite, segment_.extents, start_, {b.base, bytes}, fua ? io::kFua : 0,
               &b.commands);
  for (ExtentIo::Command& c : b.commands) {
    c.request.cookie = static_cast<uint64_t>(current_);
    ++b.pending;
    SubmitCommand(&c.request);
  }
  if (!fua) dirty_ = true;
  bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
  start_ += bytes;
  used_ = 0;
  current_ = (current_ + 1) % kBuffers;
  current_taken_ = false;
  return absl::OkStatus();
}

absl::Status LogWriter::AppendRecord(RecordHeader* header, std::span<const std::string_view>* parts,
                                     size_t* part_offset) {
  // Room for this record: in the current buffer, or in the next.
  if (current_taken_ && buffer_bytes_ - used_ < kRecordHeaderBytes + kMinFragment) {
    RETURN_IF_ERROR(SubmitBuffer(false));
  }
  RETURN_IF_ERROR(TakeBuffer());
  std::byte* const at = buffers_[current_].base + used_;
  uint32_t room = buffer_bytes_ - used_ - kRecordHeaderBytes;
  std::byte* to = at + kRecordHeaderBytes;
  while (!parts->empty() && room > 0) {
    const std::string_view part = parts->front().substr(*part_offset);
    const uint32_t n = static_cast<uint32_t>(std::min<size_t>(part.size(), room));
    std::memcpy(to, part.data(), n);
    to += n;
    room -= n;
    *part_offset += n;
    if (*part_offset == parts->front().size()) {
      *parts = parts->subspan(1);
      *part_offset = 0;
    }
  }
  header->payload_bytes = static_cast<uint32_t>(to - at) - kRecordHeaderBytes;
  header->last = parts->empty() || PLANT("log.every_fragment_is_last");
  header->position = end();
  header->previous_checksum = previous_checksum_;
  header->durable = durable_;
  SealRecord(at, header, seed_);
  const uint32_t bytes = static_cast<uint32_t>(
      std::min<uint64_t>(RecordBytes(header->payload_bytes), buffer_bytes_ - used_));
  std::memset(to, 0, bytes - static_cast<size_t>(to - at));
  previous_checksum_ = header->checksum;
  unvouched_ = header->kind == RecordKind::kData;
  used_ += bytes;
  tail_ = end();
  return absl::OkStatus();
}

absl::Status LogWriter::Append(SequenceNumber first_sequence,
                               std::span<const std::string_view> parts) {
  RETURN_IF_ERROR(RepeatFull());
  RecordHeader header;
  header.first_sequence = first_sequence;
  size_t part_offset = 0;
  do {
    RETURN_IF_ERROR(AppendRecord(&header, &parts, &part_offset));
    header.first = false;
  } while (!parts.empty());
  return absl::OkStatus();
}

absl::Status LogWriter::AppendMark(SequenceNumber next_sequence) {
  RETURN_IF_ERROR(RepeatFull());
  const uint64_t size = segment_.extents.size() * uint64_t{io_->extent_bytes()};
  if (start_ + used_ + kMarkBytes + 2 * lba_bytes_ > size) return absl::OkStatus();
  RecordHeader header;
  header.kind = RecordKind::kMark;
  header.first_sequence = next_sequence;
  std::span<const std::string_view> none;
  size_t part_offset = 0;
  return AppendRecord(&header, &none, &part_offset);
}

absl::Status LogWriter::MakeDurable() {
  RETURN_IF_ERROR(broken_);
  if (all_durable()) return absl::OkStatus();
  const io::Geometry& geometry = io_->geometry();
  const LogPosition target = tail_;
  RETURN_IF_ERROR(RepeatFull());
  const bool fua =
      geometry.volatile_cache && geometry.native_fua && (!dirty_ || PLANT("log.fua_covers_all"));
  const uint64_t ticket = fua ? io_->BeginFua() : 0;
  absl::Status written = SubmitBuffer(fua);
  if (written.ok()) written = Collect(Wait::kAll);
  if (fua) {
    const absl::Status durable = io_->EndFua(ticket, written);
    if (written.ok() && !durable.ok()) broken_ = durable;
    written = durable;
  }
  RETURN_IF_ERROR(written);
  if (geometry.volatile_cache && !fua && !PLANT("log.skip_flush")) {
    if (absl::Status s = io_->Flush(*queue_); !s.ok()) return broken_ = s;
  }
  dirty_ = false;
  durable_ = target;
  return absl::OkStatus();
}

}  // namespace ashlar
