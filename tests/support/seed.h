// What main of every gtest binary takes from its surroundings. Set before the first test runs, then
// constant. And how a test says how much it did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace ashlar {

extern uint64_t g_seed;  // --seed=N or ASHLAR_TEST_SEED: of the randomized tests, printed always
// ASHLAR_TEST_SCALE=PERCENT: the part of what can be enumerated that is run, 1 = all of it. Without
// it 0.04, so that a run of all binaries takes under a minute; `tests/run.sh sim` sets 100.
extern double g_scale;

// `n` cases at full scale, at least one.
inline uint64_t Scaled(uint64_t n) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(n) * g_scale));
}

// Prints "count: NAME N": tests/run.sh adds them up over all cases and binaries.
void Count(std::string_view name, uint64_t n);

}  // namespace ashlar
