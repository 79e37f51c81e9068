// Readers beside a writer that flushes and merges at every turn: each sees one moment.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

constexpr uint64_t kKeys = 4, kRounds = 60;

// All keys hold the number of the batch that wrote them. Empty, or what a reader saw that it must
// not; `reads` counts.
std::string RunBeside(uint64_t seed, uint64_t* reads) {
  SimRig rig(seed);
  SimExecutor& sim = rig.sim;
  std::string wrong;
  uint64_t begun = 0, acknowledged = 0;
  const auto judge = [&](const std::string& what, std::string_view value, uint64_t least,
                         uint64_t most) {
    ++*reads;
    uint64_t n = 0;
    if (absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &n) && n >= least &&
        n <= most) {
      return;
    }
    if (wrong.empty()) {
      wrong = absl::StrCat(what, " shows \"", std::string(value), "\", of ", least, " to ", most);
    }
  };
  const auto write = [&](DBImpl* db) {
    while (acknowledged < kRounds && wrong.empty()) {
      WriteBatch batch;
      ++begun;
      for (uint64_t k = 0; k < kKeys; ++k) {
        batch.Put(absl::StrCat("key", k), absl::StrCat(begun));
      }
      WriteOptions options;
      if (sim.Random() % 2 == 0) options.durability = Durability::kBuffered;
      absl::Status s = db->Write(options, batch);
      acknowledged = begun;
      if (s.ok() && sim.Random() % 3 == 0) s = sim.Random() % 2 == 0 ? db->Flush() : db->MergeAll();
      if (!s.ok()) wrong = s.ToString();
    }
  };
  const auto read = [&](DBImpl* db) {
    while (acknowledged < kRounds && wrong.empty()) {
      const uint64_t least = acknowledged;
      if (sim.Random() % 4 != 0) {
        Value value;
        const absl::Status s = db->Get({}, absl::StrCat("key", sim.Random() % kKeys), &value);
        if (least > 0 || s.ok()) judge("Get", s.ok() ? value.view() : s.ToString(), least, begun);
      } else {
        const auto it = db->NewIterator({});
        uint64_t most = begun, seen = 0, first = 0;
        const bool backward = sim.Random() % 2 == 0;
        backward ? it->SeekToLast() : it->SeekToFirst();
        for (; it->Valid(); backward ? it->Prev() : it->Next(), ++seen) {
          if (seen == 0) {
            judge("an iterator", it->value(), least, most);
            if (!wrong.empty()) return;
            first = std::stoull(std::string(it->value()));
          }
          judge("an iterator further on", it->value(), first, first);
          sim.SleepNs(sim.Random() % 1'000'000);
        }
        if (!it->status().ok()) wrong = it->status().ToString();
        if (least > 0 && seen != kKeys) wrong = absl::StrCat("an iterator shows ", seen, " keys");
      }
      sim.SleepNs(sim.Random() % 1'000'000);
    }
  };
  return rig.Run([&](DBImpl* db) {
    std::vector<std::unique_ptr<Thread>> threads;
    threads.push_back(sim.Start("writer", [&] { write(db); }));
    for (int i = 0; i < 2; ++i) threads.push_back(sim.Start("reader", [&] { read(db); }));
    threads.clear();
    if (absl::Status s = db->Close(); !s.ok() && wrong.empty()) wrong = s.ToString();
    return wrong;
  });
}

TEST(Readers, SeeOneMomentBesideFlushesAndMerges) {
  KeepFreedMemory();
  uint64_t reads = 0;
  for (uint64_t i = 0; i < std::max<uint64_t>(60, Scaled(1'500)); ++i) {
    ASSERT_EQ(RunBeside(g_seed + i, &reads), "") << "--seed=" << g_seed + i;
  }
  Count("reads_beside_flushes", reads);
}

}  // namespace
}  // namespace ashlar
