#include "tests/support/sim_device.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/format/checksum.h"
#include "io/check.h"

namespace ashlar {
namespace {

constexpr uint64_t kDelayMinNs = 5'000, kDelayMaxNs = 200'000, kFlushFactor = 8;

}  // namespace

class SimDevice::SimQueue : public io::Queue {
 public:
  SimQueue(SimDevice* device, std::unique_ptr<io::Queue> below, const io::Arena& arena)
      : device_(device), below_(std::move(below)), arena_(arena) {}
  ~SimQueue() override { Drain(); }

  void Submit(std::span<io::Request* const> requests) override {
    CHECK(requests.size() <= depth() - in_flight());
    for (io::Request* r : requests) {
      uint64_t delay = kDelayMinNs + device_->sim_->Random() % (kDelayMaxNs - kDelayMinNs);
      if (r->op == io::Op::kFlush) delay *= kFlushFactor;
      pending_.push_back({r, device_->sim_->NowNs() + delay, Sum(*r)});
    }
    device_->sim_->Yield();
  }

  size_t Poll(std::span<io::Request*> done, bool wait) override {
    size_t n = 0;
    for (;;) {
      const uint64_t now = device_->sim_->NowNs();
      for (size_t i = 0; i < pending_.size() && n < done.size();) {
        if (pending_[i].due_ns > now) {
          ++i;
          continue;
        }
        const Pending p = pending_[i];
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
        CHECK(p.sum == Sum(*p.request));  // the buffer of a command in flight was changed
        CarryOut(p.request);
        done[n++] = p.request;
      }
      if (n > 0 || !wait || pending_.empty()) return n;
      uint64_t next = UINT64_MAX;
      for (const Pending& p : pending_) next = std::min(next, p.due_ns);
      device_->sim_->Block(this, next - now);
    }
  }

  size_t in_flight() const override { return pending_.size(); }
  size_t depth() const override { return below_->depth(); }

 private:
  struct Pending {
    io::Request* request;
    uint64_t due_ns;
    uint64_t sum;
  };

  uint64_t Sum(const io::Request& r) const {
    if (r.op != io::Op::kWrite) return 0;
    return Checksum(arena_.At(r.data[0]), r.data[0].bytes, 1);
  }

  void CarryOut(io::Request* request) {
    if (device_->dead() || ++device_->commands_ >= device_->dies_at_) {
      request->status = {.cls = io::IoClass::kUnknown, .err = ENODEV};
      return;
    }
    io::Request* const one[] = {request};
    below_->Submit(one);
    std::array<io::Request*, 1> back;
    CHECK(below_->Poll(back, true) == 1);
  }

  SimDevice* const device_;
  const std::unique_ptr<io::Queue> below_;
  const io::Arena& arena_;
  std::vector<Pending> pending_;
};

absl::StatusOr<std::unique_ptr<io::Queue>> SimDevice::OpenQueue(
    std::span<io::Device* const> devices, const io::QueueOptions& options, const io::Arena& arena) {
  CHECK(devices.size() == 1);
  io::Device* const below[] = {below_};
  auto queue = below_->OpenQueue(below, options, arena);
  if (!queue.ok()) return queue.status();
  return std::make_unique<SimQueue>(this, *std::move(queue), arena);
}

}  // namespace ashlar
