// What the kernel counts: commands and bytes of a block device, CPU time and memory of the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ashlar::bench {

// Of /sys/dev/block/MAJOR:MINOR/stat (Documentation/block/stat.rst); sectors are 512 bytes.
struct DeviceCounters {
  uint64_t reads = 0, writes = 0, discards = 0, flushes = 0;
  uint64_t bytes_read = 0, bytes_written = 0, bytes_discarded = 0;

  DeviceCounters operator-(const DeviceCounters& earlier) const;
  bool operator==(const DeviceCounters&) const = default;
};

// Nothing for a path that is not a block device.
std::optional<DeviceCounters> ReadDeviceCounters(const std::string& path);

struct CpuTime {
  uint64_t user_us = 0, system_us = 0;
  uint64_t total_us() const { return user_us + system_us; }
};
CpuTime ProcessCpu();
CpuTime ThreadCpu();

// The peak of resident memory of the process.
uint64_t MaxRssBytes();

int64_t NowNs();

}  // namespace ashlar::bench
