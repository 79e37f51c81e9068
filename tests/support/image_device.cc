#include "tests/support/image_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "io/check.h"
#include "tests/support/inline_queue.h"

namespace ashlar {

ImageDevice::ImageDevice(const io::Geometry& geometry)
    : geometry_(geometry),
      bytes_(geometry.capacity_bytes()),
      state_(bytes_ / kGrain),
      saved_level_(bytes_ / kGrain) {
  void* const map = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(map != MAP_FAILED);
  data_ = static_cast<std::byte*>(map);
}

ImageDevice::~ImageDevice() { munmap(data_, bytes_); }

absl::StatusOr<std::unique_ptr<io::Queue>> ImageDevice::OpenQueue(
    std::span<io::Device* const> devices, const io::QueueOptions& options, const io::Arena& arena) {
  CHECK(devices.size() == 1 && devices[0] == this);
  return std::make_unique<InlineQueue>(
      this, options.depth, arena, [this](const io::Request& r, uint64_t at, std::byte* buffer) {
        const uint64_t lba_bytes = geometry_.lba_bytes;
        switch (r.op) {
          case io::Op::kRead:
            ReadInto(at, buffer, r.data[0].bytes);
            break;
          case io::Op::kWrite:
            Write(at, {buffer, r.data[0].bytes});
            break;
          case io::Op::kDeallocate:
            for (const io::LbaRange& range : r.ranges) {
              const uint64_t bytes = range.blocks * lba_bytes;
              std::memset(Edit(io::Raw(range.lba) * lba_bytes, bytes), 0, bytes);
            }
            break;
          case io::Op::kFlush:
            break;
        }
      });
}

// Before the bytes [at, at + bytes) change.
void ImageDevice::Save(uint64_t at, uint64_t bytes, bool overwrites) {
  for (uint64_t g = at / kGrain; g <= (at + bytes - 1) / kGrain; ++g) {
    const bool written = (state_[g] & kWritten) != 0;
    if (saved_level_[g] < level_) {
      saved_.push_back({g, saved_level_[g], written});
      saved_level_[g] = level_;
      if (written) undo_.insert(undo_.end(), data_ + g * kGrain, data_ + (g + 1) * kGrain);
    }
    if (written) continue;
    const bool whole = overwrites && at <= g * kGrain && (g + 1) * kGrain <= at + bytes;
    if (!whole && (state_[g] & kListed) != 0) std::memset(data_ + g * kGrain, 0, kGrain);
    state_[g] |= kWritten;
  }
}

void ImageDevice::WriteBase(uint64_t at, std::span<const std::byte> data) {
  CHECK(saved_.empty());
  Write(at, data);
  Keep();
}

void ImageDevice::Keep() {
  CHECK(level_ == 1);
  for (const Saved& s : saved_) saved_level_[s.grain] = 0;
  saved_.clear();
  undo_.clear();
}

void ImageDevice::Write(uint64_t at, std::span<const std::byte> data) {
  CHECK(!data.empty() && at + data.size() <= bytes_);
  Save(at, data.size(), true);
  std::memcpy(data_ + at, data.data(), data.size());
}

std::byte* ImageDevice::Edit(uint64_t at, uint64_t bytes) {
  CHECK(bytes > 0 && at + bytes <= bytes_);
  Save(at, bytes, false);
  return data_ + at;
}

void ImageDevice::Undo() {
  while (!saved_.empty() && saved_level_[saved_.back().grain] == level_) {
    const Saved& s = saved_.back();
    saved_level_[s.grain] = s.level;
    if (s.written) {
      std::memcpy(data_ + s.grain * kGrain, undo_.data() + undo_.size() - kGrain, kGrain);
      undo_.erase(undo_.end() - kGrain, undo_.end());
    } else {
      if ((state_[s.grain] & kListed) == 0) stale_.push_back(s.grain);
      state_[s.grain] = kListed;
    }
    saved_.pop_back();
  }
}

void ImageDevice::Pop() {
  CHECK(level_ > 1);
  Undo();
  --level_;
}

void ImageDevice::ReadInto(uint64_t at, std::byte* to, uint64_t bytes) const {
  while (bytes > 0) {
    // As far as grains are alike.
    const bool written = (state_[at / kGrain] & kWritten) != 0;
    uint64_t end = at / kGrain + 1;
    while (end * kGrain < at + bytes && ((state_[end] & kWritten) != 0) == written) ++end;
    const uint64_t n = std::min(bytes, end * kGrain - at);
    if (written) {
      std::memcpy(to, data_ + at, n);
    } else {
      std::memset(to, 0, n);
    }
    at += n;
    to += n;
    bytes -= n;
  }
}

const std::byte* ImageDevice::Read(uint64_t at, uint64_t bytes) {
  CHECK(at + bytes <= bytes_);
  for (uint64_t g = at / kGrain; g * kGrain < at + bytes; ++g) {
    if ((state_[g] & (kWritten | kListed)) == kListed) std::memset(data_ + g * kGrain, 0, kGrain);
  }
  return data_ + at;
}

std::span<const std::byte> ImageDevice::contents() {
  for (const uint64_t g : stale_) {
    if ((state_[g] & kWritten) == 0) std::memset(data_ + g * kGrain, 0, kGrain);
    state_[g] &= static_cast<uint8_t>(~kListed);
  }
  stale_.clear();
  return {data_, bytes_};
}

}  // namespace ashlar
