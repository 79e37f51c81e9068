#include "engine/wal/record_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/base/plant.h"
#include "engine/base/rounding.h"
#include "engine/base/status.h"
#include "engine/format/checksum.h"
#include "io/check.h"

namespace ashlar {
namespace {

// One copy of one stream, read through a window that moves along it.
class Window {
 public:
  Window(ExtentIo* io, WriteId stream, const std::vector<ExtentId>* extents)
      : io_(io),
        stream_(stream),
        extents_(extents),
        size_(extents->size() * uint64_t{io->extent_bytes()}) {}

  uint64_t size() const { return size_; }

  // Why a record at `offset` can't be told: some of the bytes that it may have were not readable
  // when they were looked at.
  absl::Status Unreadable(uint64_t offset) const {
    const auto it = unreadable_.lower_bound(offset / kPageBytes * kPageBytes);
    return it == unreadable_.end() || it->first >= offset + kRecordBytesMax ? absl::OkStatus()
                                                                            : it->second;
  }

  // `bytes` bytes from `offset`, or up to the end of the stream. Valid until the next call.
  std::span<const std::byte> At(uint64_t offset, uint64_t bytes) {
    bytes = std::min(bytes, size_ - offset);
    if (!Holds(offset, bytes)) Move(offset, bytes);
    return {window_.get() + (offset - begin_), bytes};
  }

  // The bytes that a record at `offset` has by its own header, or 0 when none begins there.
  uint64_t Claimed(uint64_t offset) {
    return ClaimedBytes(At(offset, kRecordHeaderBytes), {stream_.raw(), offset});
  }

  // The first block at or behind `at`, which is the start of one, that begins with a record's
  // header; size() when none does. Most of a log that was not closed is behind its end: it is
  // looked at where it was read, not moved into the window.
  uint64_t NextClaimed(uint64_t at, uint64_t block_bytes) {
    for (; at < size_ && Holds(at, kRecordHeaderBytes); at += block_bytes) {
      if (Claimed(at) != 0) return at;
    }
    if (at >= size_) return size_;
    ExtentIo::Lease lease = io_->Acquire();
    for (uint64_t begin = at / kPageBytes * kPageBytes; begin < size_;) {
      const uint64_t n = std::min<uint64_t>(lease.buffer_bytes(), size_ - begin);
      Read(lease, begin, n);
      for (; at < begin + n; at += block_bytes) {
        const std::span<const std::byte> header(lease.buffer() + (at - begin), kRecordHeaderBytes);
        if (ClaimedBytes(header, {stream_.raw(), at}) != 0) return at;
      }
      begin += n;
    }
    return size_;
  }

 private:
  bool Holds(uint64_t offset, uint64_t bytes) const {
    return offset >= begin_ && offset + bytes <= begin_ + bytes_;
  }

  // Moves the window to the page that `offset` lies in. What it has of that it keeps.
  void Move(uint64_t offset, uint64_t bytes) {
    const uint64_t begin = offset / kPageBytes * kPageBytes;
    const uint64_t end =
        std::min(std::max(RoundUp(offset + bytes, kPageBytes), begin + io_->buffer_bytes()), size_);
    const uint64_t kept = begin >= begin_ && begin < begin_ + bytes_ ? begin_ + bytes_ - begin : 0;
    if (end - begin > capacity_) {
      capacity_ = end - begin;
      std::unique_ptr<std::byte[]> larger(new std::byte[capacity_]);
      if (kept > 0) std::memcpy(larger.get(), window_.get() + (begin - begin_), kept);
      window_ = std::move(larger);
    } else if (kept > 0) {
      std::memmove(window_.get(), window_.get() + (begin - begin_), kept);
    }
    begin_ = begin;
    bytes_ = end - begin;
    ExtentIo::Lease lease = io_->Acquire();
    for (uint64_t at = kept; at < bytes_;) {
      const uint64_t n = std::min<uint64_t>(lease.buffer_bytes(), bytes_ - at);
      Read(lease, begin + at, n);
      std::memcpy(window_.get() + at, lease.buffer(), n);
      at += n;
    }
  }

  // Whole pages into the lease's buffer. One bad block must not take its neighbours along: page by
  // page then, and zeros for what can't be read.
  void Read(ExtentIo::Lease& lease, uint64_t begin, uint64_t bytes) {
    if (io_->Read(lease.queue(), *extents_, begin, {lease.buffer(), bytes}).ok()) return;
    for (uint64_t page = 0; page < bytes; page += kPageBytes) {
      const std::span<std::byte> to(lease.buffer() + page, kPageBytes);
      const absl::Status s = io_->Read(lease.queue(), *extents_, begin + page, to);
      if (s.ok()) continue;
      std::memset(to.data(), 0, to.size());
      unreadable_[begin + page] = s;
    }
  }

  ExtentIo* const io_;
  const WriteId stream_;
  const std::vector<ExtentId>* const extents_;
  const uint64_t size_;
  uint64_t begin_ = 0, bytes_ = 0;  // of the stream, in the window
  uint64_t capacity_ = 0;
  std::unique_ptr<std::byte[]> window_;
  std::map<uint64_t, absl::Status> unreadable_;  // pages seen so far, by offset
};

struct Parsed {
  RecordHeader header;
  std::string_view payload;
  bool elsewhere_missing = false;  // another copy does not have it
};

class Replay {
 public:
  Replay(ExtentIo* io, const StoreId& store, const std::vector<RecordStream>& streams,
         const PayloadSink& sink, const ReplayDamage& damage, ReplayReport* report)
      : io_(io), streams_(streams), sink_(sink), damage_(damage), report_(report) {
    for (const RecordStream& s : streams) {
      CHECK(!s.copies.empty());
      seeds_.push_back(StreamSeed(store, s.id));
      auto& windows = windows_.emplace_back();
      for (const auto& copy : s.copies) windows.emplace_back(io, s.id, &copy);
    }
  }

  absl::Status Run() {
    size_t s = 0;
    uint64_t offset = 0;
    while (s < streams_.size()) {
      report_->end = {streams_[s].id.raw(), offset};
      Parsed record;
      bool found = Next(s, offset, &record);
      if (found) {
        RETURN_IF_ERROR(Accept(s, record));
        offset = record.header.position.offset + RecordBytes(record.header.payload_bytes);
        continue;
      }
      // The stream ends here, or the chain does: it goes on if the next stream's first record says
      // so. With nothing read yet there is no chain: what a later stream holds lies behind a hole.
      if ((chain_ || PLANT("recovery.begin_behind_a_hole")) && s + 1 < streams_.size()) {
        found = Next(s + 1, 0, &record);
        if (found) {
          ++s;
          offset = 0;
          continue;
        }
      }
      ASSIGN_OR_RETURN(const bool goes_on, FindProof(&s, &offset));
      if (goes_on) continue;
      // Is it the end, or only where reading ends? What can't be read may be the next record.
      absl::Status why = Unreadable(s, offset);
      if (why.ok() && s + 1 < streams_.size()) why = Unreadable(s + 1, 0);
      if (why.ok()) break;
      if (damage_ == nullptr) return why;
      damage_(streams_[s].name, why);
      break;
    }
    return absl::OkStatus();
  }

 private:
  // Not OK when no copy of the stream could be read where a record at `offset` would lie.
  absl::Status Unreadable(size_t s, uint64_t offset) const {
    absl::Status why;
    for (const Window& window : windows_[s]) {
      why = window.Unreadable(offset);
      if (why.ok()) return why;
    }
    // What can't be read for good is damage; what may pass keeps its kind.
    return absl::Status(
        absl::IsInternal(why) ? absl::StatusCode::kDataLoss : why.code(),
        absl::StrCat(streams_[s].name, ": ", WhereIs(s, 0, offset), ": ", why.message()));
  }

  // The chain's next record in stream s: at `offset`, or at the next LBA when what is in between is
  // padding.
  bool Next(size_t s, uint64_t offset, Parsed* record) {
    bool found = ParseAt(s, offset, record);
    const uint64_t lba = io_->block_bytes();
    if (!found && offset % lba != 0) {
      found = ParseAt(s, (offset + lba - 1) / lba * lba, record);
    }
    return found && (!chain_ || record->header.previous_checksum == *chain_ ||
                     PLANT("recovery.ignore_chain"));
  }

  bool ParseAt(size_t s, uint64_t offset, Parsed* record) {
    bool found = false, missing = false;
    for (size_t c = 0; c < windows_[s].size(); ++c) {
      Window& window = windows_[s][c];
      if (offset + kRecordHeaderBytes > window.size()) return false;
      const uint64_t claimed = window.Claimed(offset);
      const std::span<const std::byte> bytes = window.At(offset, claimed);
      Parsed here;
      if (ParseRecord(bytes, {streams_[s].id.raw(), offset}, seeds_[s], &here.header,
                      &here.payload) == RecordParse::kOk) {
        if (!found) *record = here;
        found = true;
      } else {
        missing_copy_ = c;
        missing = true;
      }
    }
    record->elsewhere_missing = found && missing;
    return found;
  }

  absl::Status Accept(size_t s, const Parsed& record) {
    const RecordHeader& h = record.header;
    for (auto& d : report_->copy_damage) d.last_record = false;
    if (record.elsewhere_missing) {
      report_->copy_damage.push_back(
          {missing_copy_, WhereIs(s, missing_copy_, h.position.offset), true});
    }
    if (report_->records++ == 0) report_->first_checksum = h.checksum;
    chain_ = h.checksum;
    if (h.kind == RecordKind::kMark) return absl::OkStatus();
    if (h.first) {
      payload_.clear();
      in_group_ = true;
    } else if (!in_group_) {
      return absl::OkStatus();  // its beginning was damaged, and passed over
    }
    if (h.first && h.last) {
      in_group_ = false;
      return sink_(h.first_sequence, record.payload);
    }
    payload_.append(record.payload);
    if (payload_.size() > 2 * kMaxBatchBytes) {
      return absl::DataLossError(absl::StrCat(streams_[s].name, ": a group over the limit"));
    }
    if (!h.last) return absl::OkStatus();
    in_group_ = false;
    return sink_(h.first_sequence, payload_);
  }

  // Nothing chains at (*s, *offset). Looks for a record behind it that was made when it was durable
  // already: then this is damage. With a sink for damage the replay goes on there.
  absl::StatusOr<bool> FindProof(size_t* s, uint64_t* offset) {
    const LogPosition end = {streams_[*s].id.raw(), *offset};
    const uint64_t lba = io_->block_bytes();
    for (size_t t = *s; t < streams_.size(); ++t) {
      const uint64_t size = windows_[t].front().size();
      uint64_t at = t == *s ? *offset / lba * lba : 0;
      // Where each copy has its next header: looked for again only behind it.
      std::vector<std::optional<uint64_t>> claimed(windows_[t].size());
      while (at < size) {
        uint64_t next = size;
        for (size_t c = 0; c < claimed.size(); ++c) {
          if (!claimed[c] || *claimed[c] < at) claimed[c] = windows_[t][c].NextClaimed(at, lba);
          next = std::min(next, *claimed[c]);
        }
        // Records of one write lie back to back: follow them, so that the last of a write is seen
        // too.
        Parsed record;
        for (at = next; ParseAt(t, at, &record); at += RecordBytes(record.header.payload_bytes)) {
          if (PLANT("recovery.truncate_at_damage") || (t == *s && at < *offset) ||
              record.header.durable <= end) {
            continue;
          }
          const absl::Status why = absl::DataLossError(
              absl::StrCat(streams_[*s].name, ": ", WhereIs(*s, 0, BehindPadding(*s, *offset)),
                           ": a record that had been made durable does not verify"));
          if (damage_ == nullptr) return why;
          damage_(streams_[*s].name, why);
          *s = t;
          *offset = at;
          chain_.reset();
          in_group_ = false;
          return true;
        }
        at = at / lba * lba + lba;
      }
    }
    return false;
  }

  // Where the record that is missing at `offset` lies: there, or behind zeros in the next LBA.
  uint64_t BehindPadding(size_t s, uint64_t offset) {
    const uint64_t lba = io_->block_bytes();
    const uint64_t padding = (lba - offset % lba) % lba;
    const auto bytes = windows_[s].front().At(offset, padding);
    if (bytes.size() < padding) return offset;
    const bool zero = std::all_of(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(padding),
                                  [](std::byte b) { return b == std::byte{0}; });
    return zero ? offset + padding : offset;
  }

  std::string WhereIs(size_t s, size_t copy, uint64_t offset) const {
    const auto& extents = streams_[s].copies[copy];
    const uint64_t index = std::min<uint64_t>(offset / io_->extent_bytes(), extents.size() - 1);
    return io_->Where(extents[index],
                      static_cast<uint32_t>(offset % io_->extent_bytes() / kPageBytes));
  }

  ExtentIo* const io_;
  const std::vector<RecordStream>& streams_;
  const PayloadSink& sink_;
  const ReplayDamage& damage_;
  ReplayReport* const report_;
  std::vector<uint64_t> seeds_;
  std::vector<std::vector<Window>> windows_;
  std::optional<uint64_t> chain_;  // checksum of the last record accepted
  bool in_group_ = false;
  std::string payload_;
  size_t missing_copy_ = 0;
};

}  // namespace

absl::Status ReplayRecords(ExtentIo* io, const StoreId& store,
                           const std::vector<RecordStream>& streams, const PayloadSink& sink,
                           const ReplayDamage& damage, ReplayReport* report) {
  return Replay(io, store, streams, sink, damage, report).Run();
}

}  // namespace ashlar
