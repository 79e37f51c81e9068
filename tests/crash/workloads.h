// What the crash tests crash in.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "io/memory_device.h"
#include "tests/support/crash_rig.h"

namespace ashlar {

struct Workload {
  const char* name;
  io::MemoryDeviceOptions device;
  void (*run)(RecordedStore&);
  // What it is there for and has reached, so far as its recording shows.
  bool (*reached)(const RecordingSummary&);
  uint64_t images = 0;       // different ones that are visited at full scale, at least ...
  uint64_t images_most = 0;  // ... and about at most
  uint64_t in_recovery = 0;  // different ones of crashes in the recovery from these, at least
  uint32_t extent_bytes = 64u << 10;
  void (*before)(RecordedStore&) = nullptr;  // what happens before the recording begins
  bool may_be_full = false;
};

const std::vector<Workload>& Workloads();
inline void PrintTo(const Workload& w, std::ostream* out) { *out << w.name; }

}  // namespace ashlar
