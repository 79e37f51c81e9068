// main of the gtest binaries: --seed=N (or ASHLAR_TEST_SEED=N) for the randomized tests, printed
// always; ASHLAR_TEST_SCALE=PERCENT is the part of what can be enumerated that is run. A filter, or
// a case to repeat, that names nothing is a failure.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace ashlar {

uint64_t g_seed = 0;
double g_scale = 0.04;

namespace {

// The variables that ask for one case to be repeated.
constexpr const char* kAsking[] = {"ASHLAR_CRASH_IMAGE", "ASHLAR_DAMAGE_CASE", "ASHLAR_FAULT",
                                   "ASHLAR_SIM_KEEP"};
bool g_repeated = false;

uint64_t NumberOrExit(const char* name, const char* text) {
  uint64_t number;
  if (!absl::SimpleAtoi(text, &number)) {
    std::fprintf(stderr, "%s=%s: not a number\n", name, text);
    std::exit(2);
  }
  return number;
}

}  // namespace

std::optional<uint64_t> NumberFrom(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return NumberOrExit(variable, text);
}

void Repeated() { g_repeated = true; }

void Count(std::string_view name, uint64_t n) {
  std::printf("count: %.*s %llu\n", static_cast<int>(name.size()), name.data(),
              static_cast<unsigned long long>(n));
}

}  // namespace ashlar

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ashlar::g_seed = ashlar::NumberFrom("ASHLAR_TEST_SEED").value_or(std::random_device{}());
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--seed=", 0) == 0) {
      ashlar::g_seed = ashlar::NumberOrExit("--seed", arg.c_str() + 7);
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  std::printf("seed: %llu\n", static_cast<unsigned long long>(ashlar::g_seed));
  if (const char* const scale = std::getenv("ASHLAR_TEST_SCALE"); scale != nullptr) {
    const bool number = absl::SimpleAtod(scale, &ashlar::g_scale);
    ashlar::g_scale /= 100;
    if (!number || !(ashlar::g_scale > 0 && ashlar::g_scale <= 1)) {
      std::fprintf(stderr, "ASHLAR_TEST_SCALE=%s: percent, above 0, at most 100\n", scale);
      return 2;
    }
    std::printf("scale: %g %%\n", ashlar::g_scale * 100);
  }
  const int failed = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return failed;
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "--gtest_filter=%s: no such test\n", testing::GTEST_FLAG(filter).c_str());
    return 2;
  }
  for (const char* const variable : ashlar::kAsking) {
    const char* const asked = std::getenv(variable);
    if (asked == nullptr || ashlar::g_repeated) continue;
    std::fprintf(stderr, "%s=%s: no such case in what the filter takes\n", variable, asked);
    return 2;
  }
  return failed;
}
