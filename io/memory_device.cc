#include "io/memory_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/check.h"
#include "io/request.h"

namespace ashlar::io {
namespace {

struct Stretch {
  uint64_t at = 0;
  uint64_t bytes = 0;
};

// A write or deallocate that a power cut may still take back. `held` is what the stretches
// contained before it. Undoing newest first while swapping `held` with the media turns every entry
// around: `held` is then what the request wrote.
struct Unflushed {
  uint64_t id = 0;
  bool given_back = false;  // only then a flush covers it
  std::vector<Stretch> stretches;
  std::vector<std::byte> held;
};

// The ranges of a deallocate, which may overlap, in order and apart.
std::vector<Stretch> Disjoint(std::span<const LbaRange> ranges, uint64_t lba_bytes) {
  std::vector<Stretch> all;
  for (const LbaRange& range : ranges) {
    all.push_back({Raw(range.lba) * lba_bytes, range.blocks * lba_bytes});
  }
  std::sort(all.begin(), all.end(), [](const Stretch& a, const Stretch& b) { return a.at < b.at; });
  std::vector<Stretch> apart;
  for (const Stretch& s : all) {
    if (!apart.empty() && s.at <= apart.back().at + apart.back().bytes) {
      const uint64_t end = std::max(apart.back().at + apart.back().bytes, s.at + s.bytes);
      apart.back().bytes = end - apart.back().at;
    } else {
      apart.push_back(s);
    }
  }
  return apart;
}

}  // namespace

class MemoryDevice::Impl {
 public:
  Impl(std::byte* data, const MemoryDeviceOptions& options) : data_(data), options_(options) {
    geometry_.lba_bytes = options.lba_bytes;
    geometry_.capacity_blocks = options.bytes / options.lba_bytes;
    geometry_.max_transfer_bytes = options.max_transfer_bytes;
    geometry_.max_segments = 1;
    geometry_.volatile_cache = options.volatile_cache;
    geometry_.native_fua = options.native_fua || !options.volatile_cache;
    geometry_.preferred_write_bytes = 4096;
    geometry_.discard_grain_bytes = options.lba_bytes;
    geometry_.discard_max_ranges = 256;
    geometry_.discard_max_bytes = options.bytes;
    geometry_.dlfeat = 1;
    geometry_.identity.model = "memory";
    geometry_.identity.serial = options.serial;
  }
  ~Impl() {
    CHECK(queues_ == 0);
    munmap(data_, options_.bytes);
  }

  const Geometry& geometry() const { return geometry_; }
  const MemoryDeviceOptions& options() const { return options_; }

  void set_hook(Hook hook) {
    auto next = hook ? std::make_shared<const Hook>(std::move(hook)) : nullptr;
    const std::lock_guard lock(hook_mu_);
    hook_ = std::move(next);
  }

  // Carries `request` out. Returns the id of its unflushed entry, 0 when it has none.
  uint64_t CarryOut(Request& request, const Arena& arena);
  void GivenBack(std::span<const uint64_t> ids);

  class MemoryQueue;

  size_t unflushed() {
    const std::shared_lock lock(mu_);
    return unflushed_.size();
  }
  void LoseUnflushed(const std::function<bool(size_t)>& keep);
  std::span<std::byte> contents() { return {data_, options_.bytes}; }

 private:
  uint64_t Change(const Request& request, const std::byte* source);
  void Overwrite(const Stretch& stretch, const std::byte* source);
  void Flush();
  void Swap(Unflushed& entry);

  std::byte* const data_;
  const MemoryDeviceOptions options_;
  Geometry geometry_;
  std::atomic<int> queues_ = 0;

  std::mutex hook_mu_;
  std::shared_ptr<const Hook> hook_;

  // Held over hook and effect of everything but reads, so that hooks run in the order of the
  // effects; taken before mu_.
  std::mutex order_mu_;
  std::shared_mutex mu_;              // data_, unflushed_; shared by reads
  std::vector<Unflushed> unflushed_;  // by id
  uint64_t last_id_ = 0;
};

uint64_t MemoryDevice::Impl::CarryOut(Request& request, const Arena& arena) {
  request.status = CheckRequest(request, geometry_, arena);
  if (!request.status.ok()) return 0;

  const bool reads = request.op == Op::kRead;
  std::unique_lock<std::mutex> order(order_mu_, std::defer_lock);
  if (!reads) order.lock();
  std::byte* const buffer = request.data.empty() ? nullptr : arena.At(request.data[0]);
  std::shared_ptr<const Hook> hook;
  {
    const std::lock_guard lock(hook_mu_);
    hook = hook_;
  }
  if (hook) {
    request.status = (*hook)(request, request.op == Op::kWrite ? buffer : nullptr);
    if (!request.status.ok()) return 0;
  }
  if (reads) {
    const std::shared_lock lock(mu_);
    memcpy(buffer, data_ + Raw(request.lba) * options_.lba_bytes, request.data[0].bytes);
    return 0;
  }
  const std::unique_lock lock(mu_);
  if (request.op != Op::kFlush) return Change(request, buffer);
  Flush();
  return 0;
}

// A write (from `source`) or a deallocate (zeros).
uint64_t MemoryDevice::Impl::Change(const Request& request, const std::byte* source) {
  Unflushed entry;
  if (request.op == Op::kWrite) {
    entry.stretches.push_back({Raw(request.lba) * options_.lba_bytes, request.data[0].bytes});
  } else {
    source = nullptr;
    entry.stretches = Disjoint(request.ranges, options_.lba_bytes);
  }
  const bool fua = request.op == Op::kWrite && (request.flags & kFua) != 0;
  const bool durable = !options_.volatile_cache || fua;
  if (!durable) {
    for (const Stretch& s : entry.stretches) {
      entry.held.insert(entry.held.end(), data_ + s.at, data_ + s.at + s.bytes);
    }
  }
  for (const Stretch& s : entry.stretches) {
    if (durable && !unflushed_.empty()) {
      Overwrite(s, source);
    } else if (source != nullptr) {
      memcpy(data_ + s.at, source, s.bytes);
    } else {
      memset(data_ + s.at, 0, s.bytes);
    }
  }
  if (durable) {
    if (fua && !geometry_.native_fua) Flush();
    return 0;
  }
  entry.id = ++last_id_;
  unflushed_.push_back(std::move(entry));
  return unflushed_.back().id;
}

// A durable change: no earlier write may come out under it or over it after a power cut, so what
// the unflushed ones hold for its place becomes its bytes too.
void MemoryDevice::Impl::Overwrite(const Stretch& stretch, const std::byte* source) {
  const auto put = [&](std::byte* to, uint64_t skip, uint64_t bytes) {
    if (source != nullptr) {
      memcpy(to, source + skip, bytes);
    } else {
      memset(to, 0, bytes);
    }
  };
  put(data_ + stretch.at, 0, stretch.bytes);
  for (Unflushed& entry : unflushed_) {
    uint64_t base = 0;
    for (const Stretch& s : entry.stretches) {
      const uint64_t from = std::max(s.at, stretch.at);
      const uint64_t to = std::min(s.at + s.bytes, stretch.at + stretch.bytes);
      if (from < to) put(entry.held.data() + base + (from - s.at), from - stretch.at, to - from);
      base += s.bytes;
    }
  }
}

// Makes every write that was given back durable; those of them that lie over one that was not given
// back stay over it.
void MemoryDevice::Impl::Flush() {
  const bool all = std::all_of(unflushed_.begin(), unflushed_.end(),
                               [](const Unflushed& entry) { return entry.given_back; });
  if (all) {
    unflushed_.clear();
    return;
  }
  std::vector<Unflushed> entries = std::move(unflushed_);
  unflushed_.clear();
  for (size_t i = entries.size(); i-- > 0;) Swap(entries[i]);
  for (Unflushed& entry : entries) {
    if (entry.given_back) {
      uint64_t base = 0;
      for (const Stretch& s : entry.stretches) {
        Overwrite(s, entry.held.data() + base);
        base += s.bytes;
      }
    } else {
      Swap(entry);
      unflushed_.push_back(std::move(entry));
    }
  }
}

void MemoryDevice::Impl::Swap(Unflushed& entry) {
  uint64_t base = 0;
  for (const Stretch& s : entry.stretches) {
    std::swap_ranges(data_ + s.at, data_ + s.at + s.bytes, entry.held.data() + base);
    base += s.bytes;
  }
}

void MemoryDevice::Impl::GivenBack(std::span<const uint64_t> ids) {
  if (ids.empty()) return;
  const std::unique_lock lock(mu_);
  for (const uint64_t id : ids) {
    const auto it =
        std::lower_bound(unflushed_.begin(), unflushed_.end(), id,
                         [](const Unflushed& entry, uint64_t want) { return entry.id < want; });
    CHECK(it != unflushed_.end() && it->id == id);
    it->given_back = true;
  }
}

void MemoryDevice::Impl::LoseUnflushed(const std::function<bool(size_t)>& keep) {
  CHECK(queues_ == 0);
  const std::unique_lock lock(mu_);
  for (size_t i = unflushed_.size(); i-- > 0;) Swap(unflushed_[i]);
  for (size_t i = 0; i < unflushed_.size(); ++i) {
    if (keep(i)) Swap(unflushed_[i]);
  }
  unflushed_.clear();
}

// Carries requests out at Submit; keeps them, in order, for Poll.
class MemoryDevice::Impl::MemoryQueue : public Queue {
 public:
  MemoryQueue(std::vector<Impl*> devices, uint32_t depth, const Arena& arena)
      : devices_(std::move(devices)), depth_(depth), arena_(arena) {
    ids_.reserve(depth_);
    for (Impl* device : devices_) ++device->queues_;
  }
  ~MemoryQueue() override {
    Drain();
    for (Impl* device : devices_) --device->queues_;
  }

  void Submit(std::span<Request* const> requests) override {
    CHECK(requests.size() <= depth_ - done_.size());
    for (Request* request : requests) {
      CHECK(request->device < devices_.size());
      done_.push_back({request, devices_[request->device]->CarryOut(*request, arena_)});
    }
  }

  size_t Poll(std::span<Request*> done, bool) override {
    const size_t count = std::min(done.size(), done_.size());
    for (size_t d = 0; d < devices_.size(); ++d) {
      ids_.clear();
      for (size_t i = 0; i < count; ++i) {
        if (done_[i].id != 0 && done_[i].request->device == d) ids_.push_back(done_[i].id);
      }
      devices_[d]->GivenBack(ids_);
    }
    for (size_t i = 0; i < count; ++i) done[i] = done_[i].request;
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

  size_t in_flight() const override { return done_.size(); }
  size_t depth() const override { return depth_; }

 private:
  struct Done {
    Request* request = nullptr;
    uint64_t id = 0;  // of its unflushed entry, 0 = none
  };
  const std::vector<Impl*> devices_;
  const uint32_t depth_;
  const Arena& arena_;
  std::deque<Done> done_;
  std::vector<uint64_t> ids_;  // Poll's scratch
};

absl::StatusOr<std::unique_ptr<MemoryDevice>> MemoryDevice::Create(
    const MemoryDeviceOptions& options) {
  const uint32_t lba = options.lba_bytes;
  if ((lba != 512 && lba != 4096) || options.bytes < lba || options.bytes % lba != 0 ||
      options.max_transfer_bytes < lba || options.max_transfer_bytes % lba != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory device of ", options.bytes, " bytes, LBA ", lba, ", transfers of ",
        options.max_transfer_bytes, ": the LBA is 512 or 4096 and divides the other two"));
  }
  void* map = mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory device of ", options.bytes, " bytes: mmap: ", strerror(errno)));
  }
  return std::unique_ptr<MemoryDevice>(
      new MemoryDevice(std::make_unique<Impl>(static_cast<std::byte*>(map), options)));
}

MemoryDevice::MemoryDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MemoryDevice::~MemoryDevice() = default;

const Geometry& MemoryDevice::geometry() const { return impl_->geometry(); }

std::string MemoryDevice::Describe() const {
  const Geometry& g = impl_->geometry();
  return absl::StrCat("memory, ", g.capacity_bytes(), " bytes, LBA ", g.lba_bytes,
                      g.volatile_cache ? ", volatile cache" : ", no volatile cache",
                      g.native_fua ? ", FUA" : ", no FUA", "; completes at submit");
}

absl::StatusOr<std::unique_ptr<Queue>> MemoryDevice::OpenQueue(std::span<Device* const> devices,
                                                               const QueueOptions& options,
                                                               const Arena& arena) {
  CHECK(!devices.empty() && devices[0] == this && options.depth > 0);
  std::vector<Impl*> impls;
  for (Device* device : devices) {
    auto* const memory = dynamic_cast<MemoryDevice*>(device);
    if (memory == nullptr) {
      return absl::InvalidArgumentError(
          "one queue over a memory device and another kind of device");
    }
    impls.push_back(memory->impl_.get());
  }
  return std::unique_ptr<Queue>(new Impl::MemoryQueue(std::move(impls), options.depth, arena));
}

void MemoryDevice::set_hook(Hook hook) { impl_->set_hook(std::move(hook)); }
size_t MemoryDevice::unflushed() const { return impl_->unflushed(); }
void MemoryDevice::LoseUnflushed(const std::function<bool(size_t)>& keep) {
  impl_->LoseUnflushed(keep);
}
std::span<std::byte> MemoryDevice::contents() { return impl_->contents(); }

}  // namespace ashlar::io
