// A writer that brings more than merges take away: it is slowed down, by a little each time, and
// not stopped. In virtual time, where a command costs what the drive takes and computing nothing.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_rig.h"
#include "tests/support/content.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

// Writes that bring more than merges take away are slowed down, by a little each time, and not
// stopped.
TEST(Background, AWriterIsSlowedDownNotStopped) {
  KeepFreedMemory();
  for (uint64_t i = 0; i < 4; ++i) {
    SimRig rig(g_seed + i);
    Stats stats;
    ASSERT_EQ(rig.Run([&](DBImpl* db) -> std::string {
      WriteOptions buffered;
      buffered.durability = Durability::kBuffered;
      for (uint64_t n = 0; n < 40'000; ++n) {
        const std::string key = absl::StrCat("key", rig.sim.Random() % 3'000);
        if (absl::Status s = db->Put(buffered, key, Bytes(4'000, n)); !s.ok()) return s.ToString();
      }
      stats = db->stats();
      return db->Close().ToString() == "OK" ? "" : "Close";
    }),
              "");
    EXPECT_GT(stats.paced_stalls.count, 1'000u) << "--seed=" << g_seed + i;
    EXPECT_EQ(stats.merge_stalls.count, 0u) << "--seed=" << g_seed + i;
  }
}

// What was kept for a reader goes when the reader is gone, though nobody writes any more.
TEST(Background, AnIdleStoreGivesBackWhatAReaderHeld) {
  KeepFreedMemory();
  for (uint64_t i = 0; i < 20; ++i) {
    SimRig rig(g_seed + i);
    ASSERT_EQ(rig.Run([&](DBImpl* db) -> std::string {
      WriteOptions buffered;
      buffered.durability = Durability::kBuffered;
      for (uint64_t n = 0; n < 200; ++n) {
        if (absl::Status s = db->Put(buffered, absl::StrCat("key", n), Bytes(4'000, n)); !s.ok()) {
          return s.ToString();
        }
      }
      auto snapshot = db->GetSnapshot();
      for (uint64_t n = 0; n < 200; ++n) {
        if (absl::Status s = db->Delete(buffered, absl::StrCat("key", n)); !s.ok()) {
          return s.ToString();
        }
      }
      // Threads are stalled for seconds now and then.
      for (int t = 0; t < 1'000 && !db->stats().settled; ++t) rig.sim.SleepNs(1'000'000'000);
      const auto entries = [&] {
        uint64_t all = 0;
        for (const Stats::Level& l : db->stats().levels) all += l.entries;
        return all;
      };
      if (!db->stats().settled) return "not settled beside a snapshot: " + db->stats().ToJson();
      if (entries() < 200) return absl::StrCat(entries(), " entries beside a snapshot");
      snapshot.reset();
      for (int t = 0; t < 1'000 && entries() > 0; ++t) rig.sim.SleepNs(1'000'000'000);
      if (entries() > 0) return absl::StrCat(entries(), " entries that nobody can see");
      return db->stats().settled ? "" : "not settled at the end";
    }),
              "")
        << "--seed=" << g_seed + i;
  }
}

}  // namespace
}  // namespace ashlar
