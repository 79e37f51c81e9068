// One life of a simulated process: open, callers at work, and Close unless it dies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/caller.h"
#include "tests/sim/plan.h"

namespace ashlar {

// Of all items that a run has, whether item i is part of it.
using Keep = std::function<bool(size_t)>;

struct SimulationCounts {
  uint64_t operations = 0;                        // calls of the store by callers
  uint64_t writes = 0;                            // of them, that were acknowledged
  uint64_t seen_of_others = 0, scans_of_all = 0;  // reads beside the writers of what they read
  uint64_t commands = 0;
  uint64_t cuts = 0, deaths = 0, faults = 0;
  uint64_t reported = 0;                 // calls that ended with an error, which a fault explains
  uint64_t looked_on = 0;                // read-only opens while a dead process's commands landed
  uint64_t edits = 0, acknowledged = 0;  // whose order was watched
  uint64_t trace = 0;                    // a hash over who ran when: equal for equal runs
};

struct LifeEnd {
  std::string wrong;  // empty: all was right
  bool died = false;
  bool silent_damage = false;  // the drive lost a write or put it elsewhere
};

// The items of this life are those from `items_before` on. `callers` know what they wrote in
// earlier lives; `acknowledgements` counts the writes of all.
LifeEnd RunLife(const Setup& setup, const LifePlan& life, const Keep& keep, size_t items_before,
                SimDevice* device, std::vector<Caller>* callers, uint64_t* acknowledgements,
                SimulationCounts* counts);

}  // namespace ashlar
