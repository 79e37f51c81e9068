// A clock that its owner moves.
#pragma once

#include <cstdint>

#include "engine/base/sync.h"

namespace ashlar {

class ManualClock : public Clock {
 public:
  uint64_t NowNs() override { return now_ns_; }
  int64_t UnixMs() override { return 1'700'000'000'000; }
  void SleepNs(uint64_t ns) override { now_ns_ += ns; }

 private:
  uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace ashlar
