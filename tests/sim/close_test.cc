// Close while callers write and the drive may fail: everybody comes back, and what was acknowledged
// as durable is there.
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

// Empty, or what was wrong. A thread that waits for ever ends the process with their names.
std::string CloseBesideWriters(uint64_t seed) {
  SimRig rig(seed);
  SimDevice& device = rig.device;
  SimExecutor& sim = rig.sim;
  std::vector<std::string> durable;
  uint64_t commands = 0;  // of the kind that fails
  const std::string wrong = rig.Run([&](DBImpl* db) -> std::string {
    const bool fails = seed % 2 == 0;
    const uint64_t fails_at = sim.Random() % 60, op = sim.Random() % 2;
    device.set_faults([&, fails, fails_at, op](const SimCommand& c) {
      SimFault fault;
      if (fails && c.op == (op == 0 ? io::Op::kWrite : io::Op::kFlush) && ++commands > fails_at) {
        fault.status = {.cls = io::IoClass::kFatal, .err = EIO};
        fault.effect = SimFault::Effect::kNone;
      }
      return fault;
    });
    std::vector<std::unique_ptr<Thread>> threads;
    for (int t = 0; t < 3; ++t) {
      threads.push_back(sim.Start("writer", [&, t] {
        for (int i = 0;; ++i) {
          const std::string key = absl::StrCat(t, "/", i);
          const absl::Status s =
              i % 9 == 8 ? db->Flush() : db->Put({}, key, std::string(2'000, 'v'));
          if (!s.ok()) return;
          if (i % 9 != 8) durable.push_back(key);
        }
      }));
    }
    // Often just after the failure, when one caller knows of it and another is still under way.
    const uint64_t until = sim.NowNs() + sim.Random() % 50'000'000;
    while (sim.NowNs() < until && db->health().state != Health::State::kFailed) {
      sim.SleepNs(20'000);
    }
    const absl::Status closed = db->Close();
    threads.clear();
    return closed.ok() || fails ? "" : closed.ToString();
  });
  if (!wrong.empty()) return wrong;
  device.set_faults(nullptr);
  device.set_sim(nullptr);
  device.PowerCut(SimDevice::Luck::kLoseAll);
  auto db = DBImpl::Open(SmallOptions(), &device, nullptr, Env{SystemClock(), InlineExecutor()});
  if (!db.ok()) return db.status().ToString();
  for (const std::string& key : durable) {
    Value value;
    if (absl::Status s = (*db)->Get({}, key, &value); !s.ok()) return key + ": " + s.ToString();
  }
  return (*db)->Close().ToString() == "OK" ? "" : "it can't be closed";
}

TEST(Close, ComesBackBesideWritersAndFailures) {
  KeepFreedMemory();
  for (uint64_t i = 0; i < std::max<uint64_t>(200, Scaled(2'000)); ++i) {
    ASSERT_EQ(CloseBesideWriters(g_seed + i), "") << "--seed=" << g_seed + i;
  }
}

}  // namespace
}  // namespace ashlar
