#include "tests/support/image_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "io/check.h"
#include "io/request.h"

namespace ashlar {

class ImageDevice::ImageQueue : public io::Queue {
 public:
  ImageQueue(ImageDevice* device, uint32_t depth, const io::Arena& arena)
      : device_(device), depth_(depth), arena_(arena) {}

  void Submit(std::span<io::Request* const> requests) override {
    CHECK(requests.size() <= depth_ - done_.size());
    for (io::Request* request : requests) {
      done_.push_back(request);
      request->status = io::CheckRequest(*request, device_->geometry_, arena_);
      if (!request->status.ok()) continue;
      const uint64_t lba_bytes = device_->geometry_.lba_bytes;
      const uint64_t at = io::Raw(request->lba) * lba_bytes;
      switch (request->op) {
        case io::Op::kRead:
          std::memcpy(arena_.At(request->data[0]), device_->data_ + at, request->data[0].bytes);
          break;
        case io::Op::kWrite:
          device_->Write(at, {arena_.At(request->data[0]), request->data[0].bytes});
          break;
        case io::Op::kDeallocate:
          for (const io::LbaRange& r : request->ranges) {
            std::memset(device_->Edit(io::Raw(r.lba) * lba_bytes, r.blocks * lba_bytes), 0,
                        r.blocks * lba_bytes);
          }
          break;
        case io::Op::kFlush:
          break;
      }
    }
  }

  size_t Poll(std::span<io::Request*> done, bool) override {
    const size_t n = std::min(done.size(), done_.size());
    std::copy_n(done_.begin(), n, done.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }

  size_t in_flight() const override { return done_.size(); }
  size_t depth() const override { return depth_; }

 private:
  ImageDevice* const device_;
  const uint32_t depth_;
  const io::Arena& arena_;
  std::deque<io::Request*> done_;
};

ImageDevice::ImageDevice(const io::Geometry& geometry)
    : geometry_(geometry), bytes_(geometry.capacity_bytes()), saved_(bytes_ / kGrain) {
  void* const map = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(map != MAP_FAILED);
  data_ = static_cast<std::byte*>(map);
}

ImageDevice::~ImageDevice() { munmap(data_, bytes_); }

absl::StatusOr<std::unique_ptr<io::Queue>> ImageDevice::OpenQueue(
    std::span<io::Device* const> devices, const io::QueueOptions& options, const io::Arena& arena) {
  CHECK(devices.size() == 1 && devices[0] == this);
  return std::make_unique<ImageQueue>(this, options.depth, arena);
}

void ImageDevice::Save(uint64_t at, uint64_t bytes) {
  for (uint64_t g = at / kGrain; g <= (at + bytes - 1) / kGrain; ++g) {
    if (saved_[g]) continue;
    saved_[g] = true;
    saved_grains_.push_back(g);
    undo_.insert(undo_.end(), data_ + g * kGrain, data_ + (g + 1) * kGrain);
  }
}

void ImageDevice::WriteBase(uint64_t at, std::span<const std::byte> data) {
  CHECK(saved_grains_.empty());
  std::memcpy(data_ + at, data.data(), data.size());
}

void ImageDevice::Keep() {
  for (const uint64_t g : saved_grains_) saved_[g] = false;
  saved_grains_.clear();
  undo_.clear();
}

void ImageDevice::Write(uint64_t at, std::span<const std::byte> data) {
  std::memcpy(Edit(at, data.size()), data.data(), data.size());
}

std::byte* ImageDevice::Edit(uint64_t at, uint64_t bytes) {
  CHECK(bytes > 0 && at + bytes <= bytes_);
  Save(at, bytes);
  return data_ + at;
}

void ImageDevice::Undo() {
  for (size_t i = 0; i < saved_grains_.size(); ++i) {
    std::memcpy(data_ + saved_grains_[i] * kGrain, undo_.data() + i * kGrain, kGrain);
  }
  Keep();
}

}  // namespace ashlar
