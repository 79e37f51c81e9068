// What main of every gtest binary takes from its surroundings. Set before the first test runs, then
// constant. And how a test says how much it did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
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

// The number that an environment variable holds. What is no number ends the process: a run that was
// meant to repeat something must not pass by doing something else.
std::optional<uint64_t> NumberFrom(const char* variable);

// The one case that ASHLAR_CRASH_IMAGE, _DAMAGE_CASE, _FAULT or _SIM_KEEP asks for was run: a
// binary that was asked fails unless one of its tests has said so.
void Repeated();

// Prints "count: NAME N": tests/run.sh adds them up over all cases and binaries.
void Count(std::string_view name, uint64_t n);

}  // namespace ashlar
