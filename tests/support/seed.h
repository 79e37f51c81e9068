// What main of every gtest binary takes from the command line. Set before the first test runs, then
// constant.
#pragma once

#include <cstdint>

namespace ashlar {

extern uint64_t g_seed;  // --seed: of the randomized tests, printed always
// ASHLAR_TEST_SCALE in the environment: percent of the enumerated cases to run.
extern uint32_t g_scale;

}  // namespace ashlar
