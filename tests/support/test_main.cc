// main of the gtest binaries: --seed=N (or ASHLAR_TEST_SEED=N) for the randomized tests, printed
// always; ASHLAR_TEST_SCALE=PERCENT is the part of what can be enumerated that is run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace ashlar {

uint64_t g_seed = 0;
double g_scale = 0.04;

void Count(std::string_view name, uint64_t n) {
  std::printf("count: %.*s %llu\n", static_cast<int>(name.size()), name.data(),
              static_cast<unsigned long long>(n));
}

}  // namespace ashlar

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* const seed = std::getenv("ASHLAR_TEST_SEED");
  ashlar::g_seed = seed != nullptr ? std::strtoull(seed, nullptr, 0) : std::random_device{}();
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--seed=", 0) == 0) {
      ashlar::g_seed = std::strtoull(arg.c_str() + 7, nullptr, 0);
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  std::printf("seed: %llu\n", static_cast<unsigned long long>(ashlar::g_seed));
  if (const char* const scale = std::getenv("ASHLAR_TEST_SCALE"); scale != nullptr) {
    ashlar::g_scale = std::strtod(scale, nullptr) / 100;
    if (!(ashlar::g_scale > 0 && ashlar::g_scale <= 1)) {
      std::fprintf(stderr, "ASHLAR_TEST_SCALE=%s: percent, above 0, at most 100\n", scale);
      return 2;
    }
    std::printf("scale: %g %%\n", ashlar::g_scale * 100);
  }
  return RUN_ALL_TESTS();
}
