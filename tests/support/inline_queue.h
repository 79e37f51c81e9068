// A queue whose requests are carried out by Submit and given back by Poll, in order: what the
// devices of tests that keep no time have in common. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>

#include "io/check.h"
#include "io/device.h"
#include "io/request.h"

namespace ashlar {

class InlineQueue : public io::Queue {
 public:
  // Carries out a request that the device can have, its place as a byte of the device, its buffer
  // null where it has none.
  using CarryOut = std::function<void(const io::Request&, uint64_t at, std::byte* buffer)>;

  // `device` and `arena` outlive it.
  InlineQueue(const io::Device* device, uint32_t depth, const io::Arena& arena, CarryOut carry_out)
      : geometry_(device->geometry()),
        depth_(depth),
        arena_(arena),
        carry_out_(std::move(carry_out)) {}

  void Submit(std::span<io::Request* const> requests) override {
    CHECK(requests.size() <= depth_ - done_.size());
    for (io::Request* r : requests) {
      done_.push_back(r);
      r->status = io::CheckRequest(*r, geometry_, arena_);
      if (!r->status.ok()) continue;
      carry_out_(*r, io::Raw(r->lba) * geometry_.lba_bytes,
                 r->data.empty() ? nullptr : arena_.At(r->data[0]));
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
  const io::Geometry& geometry_;
  const uint32_t depth_;
  const io::Arena& arena_;
  const CarryOut carry_out_;
  std::deque<io::Request*> done_;
};

}  // namespace ashlar
