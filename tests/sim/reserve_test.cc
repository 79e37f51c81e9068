// A full store with several callers: puts that are refused never ride along with deletes into the
// reserve that those need.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

const WriteOptions kBufferedWrite{Durability::kBuffered};

// Empty, or what was wrong.
std::string DeletesBesidePuts(uint64_t seed) {
  SimRig rig(seed);
  SimExecutor& sim = rig.sim;
  return rig.Run([&](DBImpl* db) -> std::string {
    // Full: no put of any size.
    for (int i = 0;; ++i) {
      const absl::Status s =
          db->Put(kBufferedWrite, absl::StrCat("key", i), std::string(30'000, 'v'));
      if (absl::IsResourceExhausted(s)) break;
      if (!s.ok()) return s.ToString();
    }
    std::string wrong;
    bool done = false;
    uint64_t refused = 0;
    std::vector<std::unique_ptr<Thread>> threads;
    for (int t = 0; t < 3; ++t) {
      threads.push_back(sim.Start("puts", [&, t] {
        for (int i = 0; !done; ++i) {
          const absl::Status s = db->Put(kBufferedWrite, absl::StrCat("more", t, "/", i % 50),
                                         std::string(30'000, 'w'));
          refused += absl::IsResourceExhausted(s);
        }
      }));
    }
    // Of what is not there: they give nothing back, so that puts find no room later either.
    threads.push_back(sim.Start("deletes", [&] {
      for (int i = 0; i < 200 && wrong.empty(); ++i) {
        const absl::Status s = db->Delete(WriteOptions{}, absl::StrCat("none", i % 5));
        if (!s.ok()) wrong = absl::StrCat("delete ", i, ": ", s.ToString());
      }
      done = true;
    }));
    threads.clear();
    if (refused == 0) wrong = "no put was refused";
    if (absl::Status s = db->Close(); !s.ok() && wrong.empty()) wrong = s.ToString();
    return wrong;
  });
}

TEST(Reserve, IsNotEatenByPutsBesideDeletes) {
  KeepFreedMemory();
  for (uint64_t i = 0; i < std::max<uint64_t>(2, Scaled(40)); ++i) {
    ASSERT_EQ(DeletesBesidePuts(g_seed + i), "") << "--seed=" << g_seed + i;
  }
}

}  // namespace
}  // namespace ashlar
