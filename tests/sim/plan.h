// What a random run of a whole store is over, from a seed: the drive, the options, and of each life
// of a process how much its callers do, what the drive does to it and how it ends.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "io/types.h"
#include "tests/support/sim_device.h"

namespace ashlar {

constexpr int kCallers = 3;

// A random number for a place: the same whatever else a run has.
uint64_t Mix(std::initializer_list<uint64_t> place);

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t n) { return random_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

// What the drive does in one life.
struct DriveFault {
  enum class What : uint8_t {
    kStatus,      // a command ends with an error, once or from then on
    kFlippedBit,  // a read returns a wrong bit, once
    kWrongPlace,  // a read returns what lies elsewhere, once
    kSlow,        // a command takes seconds
    kLostWrite,   // reported as done, and nothing was
    kStrayWrite,  // lands elsewhere
  } what = What::kStatus;
  io::Op op = io::Op::kWrite;
  uint64_t at = 0;  // of all commands of this op the one with this number
  bool persistent = false;
  io::IoStatus status;
  SimFault::Effect effect = SimFault::Effect::kNone;
  uint64_t elsewhere = 0;
};

struct LifePlan {
  uint64_t seed = 0;
  uint32_t operations[kCallers] = {};
  std::vector<DriveFault> faults;
  uint64_t dies_at = 0;  // 0: it closes
  bool power_cut = false;
  SimDevice::Luck luck = SimDevice::Luck::kEach;
  // Parts of it that can be left out: each operation, each fault, its death.
  size_t items() const;
};

struct Setup {
  SimDeviceOptions device;
  uint32_t extent_bytes = 64u << 10;
  uint64_t memory_bytes = 2u << 20;
  uint64_t level_base_bytes = 0;  // Env's
  uint32_t keys = 40;             // of each caller
  uint32_t large = 12;            // one value in so many is large
};

Setup SetupOf(uint64_t seed);
std::vector<LifePlan> LivesOf(uint64_t seed);
std::string FaultText(const DriveFault& fault);

}  // namespace ashlar
