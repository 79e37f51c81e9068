// One random run of a whole store, from a seed: several lives of a process on one simulated drive,
// several callers in each, faults of the drive, power cuts and deaths; compared with a model at
// every read and after every reopening.
//
// A run is a list of items, each following from the seed and its place alone: the operations of
// the callers, the faults, the ends of the lives. Leaving items out leaves the others as they are,
// which is how a failing run is made small.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ashlar {

struct SimulationCounts {
  uint64_t operations = 0;  // calls of the store by callers
  uint64_t writes = 0;      // of them, that were acknowledged
  uint64_t commands = 0;
  uint64_t cuts = 0, deaths = 0, faults = 0;
  uint64_t reported = 0;                 // calls that ended with an error, which a fault explains
  uint64_t looked_on = 0;                // read-only opens while a dead process's commands landed
  uint64_t edits = 0, acknowledged = 0;  // whose order was watched
  uint64_t trace = 0;                    // a hash over who ran when: equal for equal runs
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed);
  ~Simulation();

  // Of all items that the run has, whether item i is part of it; all without.
  using Keep = std::function<bool(size_t)>;
  // Empty: all was right. Else what was not.
  std::string Run(const Keep& keep, SimulationCounts* counts);
  size_t items() const { return items_; }
  // What the run is over: the drive and the options.
  std::string Text() const;
  // And a line for each life: its operations, faults and end.
  std::string Text(const Keep& keep) const;

 private:
  struct Life;
  friend class LifeRun;

  const uint64_t seed_;
  size_t items_ = 0;
  std::vector<Life> lives_;
};

}  // namespace ashlar
