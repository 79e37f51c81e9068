// One random run of a whole store, from a seed: several lives of a process on one simulated drive,
// several callers in each, faults of the drive, power cuts and deaths; compared with a model at
// every read and after every reopening.
//
// A run is a list of items, each following from the seed and its place alone: the operations of
// the callers, the faults, the ends of the lives. Leaving items out leaves the others as they are,
// which is how a failing run is made small.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/life_run.h"
#include "tests/sim/plan.h"

namespace ashlar {

class Simulation {
 public:
  explicit Simulation(uint64_t seed);

  // Empty: all was right. Else what was not.
  std::string Run(const Keep& keep, SimulationCounts* counts);
  size_t items() const { return items_; }
  // What the run is over: the drive and the options.
  std::string Text() const;
  // And a line for each life: its operations, faults and end.
  std::string Text(const Keep& keep) const;

 private:
  const uint64_t seed_;
  size_t items_ = 0;
  std::vector<LifePlan> lives_;
};

}  // namespace ashlar
