// What the writer that is killed writes, and so what whoever looks after it must find.
//
// Thread t writes batches 1, 2, 3 and so on for ever, over all its lives. Batch i puts i into the
// thread's head and a text that follows from i into kMembers keys of slot i % kSlots. So at any
// moment the thread's keys are exactly those of a prefix: the head names its length, each slot the
// newest batch in it that belongs to it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace kill_workload {

constexpr int kThreads = 4;
constexpr uint64_t kSlots = 300;
constexpr int kMembers = 3;

inline std::string HeadKey(int thread) { return "t" + std::to_string(thread) + "/head"; }
inline std::string SlotKey(int thread, uint64_t slot, int member) {
  char key[64];
  std::snprintf(key, sizeof(key), "t%d/slot%03u/%d", thread, static_cast<unsigned>(slot), member);
  return key;
}

// Mostly short, now and then larger than a page or a log buffer.
inline std::string ValueOf(int thread, uint64_t batch, int member) {
  std::string value = std::to_string(batch) + ":";
  uint64_t x =
      (batch * kThreads + static_cast<uint64_t>(thread)) * kMembers + static_cast<uint64_t>(member);
  x = (x + 1) * 0x9e3779b97f4a7c15ull;
  const uint64_t length = x % 101 == 0 ? 40000 : x % 7 == 0 ? 3000 : x % 200;
  while (value.size() < length) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    value.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }
  return value;
}

inline bool IsDurable(int thread, uint64_t batch) {
  return (batch + static_cast<uint64_t>(thread)) % 4 == 0;
}

}  // namespace kill_workload
