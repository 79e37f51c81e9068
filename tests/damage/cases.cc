#include "tests/damage/cases.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/format/checksum.h"
#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

// A guard against hanging, not a limit on speed.
constexpr unsigned kHangSeconds = 300;

const char* g_test = "*";
volatile uint64_t g_case = 0;

std::string Repeat(const std::string& test, uint64_t number) {
  return absl::StrCat("ASHLAR_DAMAGE_CASE=", number, " ashlar_damage_test --seed=", g_seed,
                      " --gtest_filter='", test, "'");
}

// What dies or hangs inside a case says which one.
void Dies(int signal_number) {
  char line[256];
  const int n = std::snprintf(line, sizeof line,
                              "signal %d; repeat: ASHLAR_DAMAGE_CASE=%llu ashlar_damage_test "
                              "--seed=%llu --gtest_filter='%s'\n",
                              signal_number, static_cast<unsigned long long>(g_case),
                              static_cast<unsigned long long>(g_seed), g_test);
  if (write(2, line, static_cast<size_t>(n)) < 0) _exit(3);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

std::string ThisTest() {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  return absl::StrCat(info->test_suite_name(), ".", info->name());
}

}  // namespace

Cases::Cases(std::string kind, uint64_t least)
    : kind_(std::move(kind)), test_(ThisTest()), least_(least) {
  only_ = NumberFrom("ASHLAR_DAMAGE_CASE").value_or(UINT64_MAX);
  g_test = test_.c_str();
  for (const int s : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGALRM}) {
#ifdef __SANITIZE_ADDRESS__
    if (s != SIGALRM) continue;  // the sanitizer says more
#endif
    signal(s, Dies);
  }
}

Cases::~Cases() {
  alarm(0);
  g_test = "*";
  std::printf("%s: %llu of %llu cases\n", test_.c_str(), static_cast<unsigned long long>(run_),
              static_cast<unsigned long long>(index_));
  Count(kind_, run_);
  if (live_ > 0) Count("damage_whole_store_cases_of_live_bytes", live_);
  if (g_scale >= 1 && only_ == UINT64_MAX) EXPECT_GE(run_, least_);
}

uint64_t Cases::Salt(uint64_t n) const {
  const uint64_t parts[] = {g_seed, index_, n};
  return Checksum(parts, sizeof parts, 11);
}

bool Cases::Next() {
  ++index_;
  if (stopped()) return false;
  g_case = index_;
  if (only_ != UINT64_MAX) {
    if (index_ != only_) return false;
    Repeated();
  } else if (g_scale < 1 && static_cast<double>(Salt() % 1'000'000) >= g_scale * 1'000'000) {
    return false;
  }
  if (run_++ % 256 == 0) alarm(kHangSeconds);
  return true;
}

void Cases::Done(std::string_view what, const std::string& wrong) {
  if (wrong.empty()) return;
  ++failed_;
  ADD_FAILURE() << "case " << index_ << ", " << what << ": " << wrong
                << "; repeat: " << Repeat(test_, index_);
}

void Cases::Run(Checker* checker, const Case& c, uint64_t write, uint64_t salvage) {
  const Depth depth = {true, One(write, 1), One(salvage, 2), Salt(3) >> 8};
  Done(c.what, checker->Run(c, depth));
  live_ += checker->touched();
}

}  // namespace ashlar
