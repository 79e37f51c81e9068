// Whole stores with their background threads and several callers, on a simulated drive, each run
// from a seed: see simulation.h. Runs happen in a child process, so that one that crashes or hangs
// is found as one that is wrong; a seed that fails is made small, and printed as the line that
// repeats it:
//
//   ASHLAR_SIM_KEEP=0-12,40 ashlar_sim_test --seed=N --gtest_filter=Simulation.Replay
//
// ASHLAR_SIM_TRIALS is how often it is run again for that, 150 without it.
//
// With ASHLAR_SIM_LOG=FILE a replay writes every command of the drive, with ASHLAR_SIM_IMAGE=FILE
// what the drive held in the end, for ashlarctl.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "io/check.h"
#include "tests/sim/simulation.h"
#include "tests/support/content.h"
#include "tests/support/crash_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

constexpr int kShards = 8;
constexpr uint64_t kSeeds = 2'160;      // at full scale, over all shards
constexpr unsigned kHangSeconds = 120;  // a run takes well under one
constexpr unsigned kTrialSeconds = 10;
constexpr int kSmallSeconds = 300;  // that are spent on making a seed small

// What a child tells: in memory that both see.
struct Told {
  uint64_t seed = 0;  // that runs
  bool done = false;
  SimulationCounts counts;
  char wrong[2000] = {};
};

Told* NewTold() {
  void* const map =
      mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(map != MAP_FAILED);
  return new (map) Told;
}

// Runs `body` in a child. Empty, or how it ended.
std::string InChild(Told* told, bool quiet, const std::function<void()>& body) {
  *told = Told();
  std::fflush(nullptr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(quiet ? kTrialSeconds : kHangSeconds);
    if (quiet) CHECK(std::freopen("/dev/null", "w", stderr) != nullptr);
    body();
    told->done = true;
    std::fflush(nullptr);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (told->wrong[0] != '\0') return told->wrong;
  if (told->done) return "";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "it hangs";
  return WIFSIGNALED(status) ? absl::StrCat("it crashes: ", strsignal(WTERMSIG(status)))
                             : absl::StrCat("it exits with ", WEXITSTATUS(status));
}

void Tell(Told* told, const std::string& wrong) {
  std::strncpy(told->wrong, wrong.c_str(), sizeof told->wrong - 1);
}

// The items of a failing seed without which it does not fail: halves, quarters and so on of them
// are left out as long as it still fails.
std::vector<size_t> MakeSmall(uint64_t seed) {
  const Simulation simulation(seed);
  std::vector<size_t> items;
  for (size_t i = 0; i < simulation.items(); ++i) items.push_back(i);
  Told* const told = NewTold();
  const auto fails = [&](const std::vector<size_t>& some) {
    std::vector<bool> kept(simulation.items());
    for (const size_t i : some) kept[i] = true;
    return !InChild(told, true, [&] {
              Simulation again(seed);
              Tell(told, again.Run([&](size_t i) { return kept[i]; }, &told->counts));
            }).empty();
  };
  const uint64_t most = NumberFrom("ASHLAR_SIM_TRIALS").value_or(150);
  uint64_t trials = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(kSmallSeconds);
  const auto may_try = [&] { return trials < most && std::chrono::steady_clock::now() < until; };
  for (size_t parts = 2; parts <= items.size() && may_try();) {
    const size_t part = (items.size() + parts - 1) / parts;
    bool smaller = false;
    for (size_t from = 0; from < items.size() && may_try();) {
      std::vector<size_t> rest(items.begin(), items.begin() + static_cast<ptrdiff_t>(from));
      const size_t to = std::min(items.size(), from + part);
      rest.insert(rest.end(), items.begin() + static_cast<ptrdiff_t>(to), items.end());
      ++trials;
      if (fails(rest)) {
        items = std::move(rest);
        smaller = true;
      } else {
        from = to;
      }
    }
    if (!smaller || parts > items.size() / 2) parts *= 2;
  }
  munmap(told, sizeof(Told));
  return items;
}

Ranges RangesOf(const std::vector<size_t>& ascending) {
  Ranges ranges;
  for (const size_t i : ascending) {
    if (ranges.empty() || ranges.back().second != i) ranges.emplace_back(i, i);
    ++ranges.back().second;
  }
  return ranges;
}

void ReportFailure(uint64_t seed, const std::string& wrong) {
  // First what is known: making it small takes a while.
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), wrong.c_str());
  const std::vector<size_t> items = MakeSmall(seed);
  ADD_FAILURE() << "seed " << seed << " (" << Simulation(seed).Text() << "): " << wrong
                << "\nreproduce: ASHLAR_SIM_KEEP=" << RangesText(RangesOf(items))
                << " ashlar_sim_test --seed=" << seed << " --gtest_filter=Simulation.Replay";
}

class SimulationSeeds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shard, SimulationSeeds, testing::Range(0, kShards));

TEST_P(SimulationSeeds, CallersFaultsAndPowerCuts) {
  const std::optional<uint64_t> asked = NumberFrom("ASHLAR_SIM_SEEDS");
  const uint64_t all = asked ? *asked : Scaled(kSeeds);
  ASSERT_GT(all, 0u) << "ASHLAR_SIM_SEEDS: how many seeds, from 1";
  KeepFreedMemory();
  Told* const told = NewTold();
  uint64_t seeds = 0;
  SimulationCounts sum;
  std::string wrong = InChild(told, false, [&] {
    for (uint64_t i = static_cast<uint64_t>(GetParam()); i < all; i += kShards) {
      alarm(kHangSeconds);
      told->seed = g_seed + i;
      Simulation simulation(g_seed + i);
      const std::string w = simulation.Run([](size_t) { return true; }, &told->counts);
      if (!w.empty()) return Tell(told, w);
    }
  });
  sum = told->counts;
  for (uint64_t i = static_cast<uint64_t>(GetParam()); i < all && g_seed + i <= told->seed;
       i += kShards) {
    ++seeds;
  }
  if (!wrong.empty()) ReportFailure(told->seed, wrong);
  munmap(told, sizeof(Told));
  Count("simulated_seeds", seeds);
  Count("simulated_operations", sum.operations);
  Count("simulated_commands", sum.commands);
  Count("simulated_gets_beside_writers", sum.seen_of_others);
  Count("simulated_scans_beside_writers", sum.scans_of_all);
  Count("simulated_power_cuts", sum.cuts);
  Count("simulated_deaths", sum.deaths);
  Count("simulated_faults", sum.faults);
  Count("simulated_errors", sum.reported);
  Count("simulated_looks_while_landing", sum.looked_on);
  Count("watched_edits", sum.edits);
  Count("watched_acknowledgements", sum.acknowledged);
  if (g_scale >= 1 && !asked) {
    for (const uint64_t n : {sum.seen_of_others, sum.scans_of_all, sum.cuts, sum.deaths, sum.faults,
                             sum.reported, sum.looked_on, sum.edits, sum.acknowledged}) {
      EXPECT_GT(n, 0u);
    }
  }
}

// The run that --seed and ASHLAR_SIM_KEEP name, all of it without that, in this process.
TEST(Simulation, Replay) {
  const char* const text = std::getenv("ASHLAR_SIM_KEEP");
  const char* const keep = text != nullptr ? text : "all";
  Simulation simulation(g_seed);
  Ranges ranges = {{0, simulation.items()}};
  ASSERT_TRUE((std::strcmp(keep, "all") == 0 || ParseRanges(keep, &ranges)) && !ranges.empty() &&
              std::all_of(ranges.begin(), ranges.end(),
                          [&](const auto& r) { return r.second <= simulation.items(); }))
      << "ASHLAR_SIM_KEEP: all, or ranges below " << simulation.items();
  if (text != nullptr) Repeated();
  std::vector<bool> kept(simulation.items());
  for (const auto& [begin, end] : ranges)
    std::fill_n(kept.begin() + static_cast<ptrdiff_t>(begin), end - begin, true);
  SimulationCounts counts;
  std::printf("%s", simulation.Text([&](size_t i) { return kept[i]; }).c_str());
  EXPECT_EQ(simulation.Run([&](size_t i) { return kept[i]; }, &counts), "");
}

TEST(Simulation, TheSameSeedRunsTheSameWay) {
  for (uint64_t seed = g_seed; seed < g_seed + 3; ++seed) {
    SimulationCounts first, second;
    ASSERT_EQ(Simulation(seed).Run([](size_t) { return true; }, &first), "");
    ASSERT_EQ(Simulation(seed).Run([](size_t) { return true; }, &second), "");
    EXPECT_EQ(first.trace, second.trace);
    EXPECT_EQ(first.commands, second.commands);
  }
}

}  // namespace
}  // namespace ashlar
