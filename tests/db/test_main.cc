// main of the tests of engine/db: --seed=N for the randomized ones, printed always.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace ashlar {

uint64_t g_seed = 0;

}  // namespace ashlar

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ashlar::g_seed = std::random_device{}();
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
  return RUN_ALL_TESTS();
}
