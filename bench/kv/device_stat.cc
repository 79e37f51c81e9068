#include "kv/device_stat.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include <fstream>

namespace ashlar::bench {
namespace {

CpuTime Usage(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto us = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * 1000000 + static_cast<uint64_t>(t.tv_usec);
  };
  return {us(usage.ru_utime), us(usage.ru_stime)};
}

}  // namespace

DeviceCounters DeviceCounters::operator-(const DeviceCounters& earlier) const {
  return {reads - earlier.reads,
          writes - earlier.writes,
          discards - earlier.discards,
          flushes - earlier.flushes,
          bytes_read - earlier.bytes_read,
          bytes_written - earlier.bytes_written,
          bytes_discarded - earlier.bytes_discarded};
}

std::optional<DeviceCounters> ReadDeviceCounters(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 || !S_ISBLK(st.st_mode)) return std::nullopt;
  std::ifstream in("/sys/dev/block/" + std::to_string(major(st.st_rdev)) + ":" +
                   std::to_string(minor(st.st_rdev)) + "/stat");
  uint64_t field[17] = {};
  int n = 0;
  while (n < 17 && in >> field[n]) ++n;
  if (n < 11) return std::nullopt;
  DeviceCounters c;
  c.reads = field[0];
  c.bytes_read = field[2] * 512;
  c.writes = field[4];
  c.bytes_written = field[6] * 512;
  c.discards = field[11];  // from Linux 4.18
  c.bytes_discarded = field[13] * 512;
  c.flushes = field[15];  // from Linux 5.5
  return c;
}

CpuTime ProcessCpu() { return Usage(RUSAGE_SELF); }
CpuTime ThreadCpu() { return Usage(RUSAGE_THREAD); }

uint64_t MaxRssBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

}  // namespace ashlar::bench
