// Every command of twelve workloads fails once, or from then on, in each of the ways that a drive
// has: nothing acknowledged is lost, nothing is answered wrongly, and the next open without faults
// finds everything.
//
//   ASHLAR_FAULT=WORKLOAD:COMMAND:WAY:persistent|once ashlar_fault_test --gtest_filter='*Command*'
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/admin/store_admin.h"
#include "engine/format/checksum.h"
#include "gtest/gtest.h"
#include "tests/fault/script.h"
#include "tests/support/crash_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

struct Way {
  const char* name;
  io::IoStatus status;
  SimFault::Effect effect;
};
using Effect = SimFault::Effect;
// What comes back, and what the media saw of it all the same.
const Way kWays[] = {
    {"eio", {.cls = io::IoClass::kFatal, .err = EIO}, Effect::kNone},
    {"eio-part", {.cls = io::IoClass::kFatal, .err = EIO}, Effect::kPart},
    {"write-fault-dnr", {.cls = io::IoClass::kFatal, .nvme = 0x4280}, Effect::kWhole},
    {"unrecovered-read", {.cls = io::IoClass::kFatal, .nvme = 0x0281}, Effect::kNone},
    {"eagain", {.cls = io::IoClass::kRetry, .err = EAGAIN}, Effect::kNone},
    {"not-ready", {.cls = io::IoClass::kRetry, .nvme = 0x0082}, Effect::kNone},
    {"path", {.cls = io::IoClass::kPath, .nvme = 0x0370}, Effect::kNone},
    {"path-done", {.cls = io::IoClass::kPath, .nvme = 0x0370}, Effect::kWhole},
    {"eintr", {.cls = io::IoClass::kUnknown, .err = EINTR}, Effect::kNone},
    {"eintr-done", {.cls = io::IoClass::kUnknown, .err = EINTR}, Effect::kWhole},
    {"timeout-part", {.cls = io::IoClass::kUnknown, .err = ETIMEDOUT}, Effect::kPart},
    {"timeout-later", {.cls = io::IoClass::kUnknown, .err = ETIMEDOUT}, Effect::kLater},
    {"enodev", {.cls = io::IoClass::kUnknown, .err = ENODEV}, Effect::kNone},
    {"enospc", {.cls = io::IoClass::kFull, .err = ENOSPC}, Effect::kNone},
    {"capacity-part", {.cls = io::IoClass::kFull, .nvme = 0x0081}, Effect::kPart},
};
constexpr size_t kWayCount = std::size(kWays);

struct Outcome {
  std::string wrong;
  bool fired = false, fired_on_write = false, fired_on_flush = false;
  bool reported = false;  // some call said so
};

// One run in which the command with this number fails.
Outcome RunOnce(const Script& script, uint64_t command, const Way& way, bool persistent,
                uint64_t salt) {
  Outcome outcome;
  const auto device = FormattedDrive(script.drive, salt);
  const uint64_t before = device->commands();
  device->set_faults([&](const SimCommand& c) -> SimFault {
    const uint64_t n = c.number - before;
    if (persistent ? n < command : n != command) return {};
    outcome.fired = true;
    outcome.fired_on_write |= c.op == io::Op::kWrite;
    outcome.fired_on_flush |= c.op == io::Op::kFlush;
    return {.status = way.status, .effect = way.effect};
  });
  uint32_t durable, attempted;
  StoreModel model;
  {
    ScriptStore store(device.get());
    // What a flush that failed has lost, or a write of unknown outcome has done, may show later:
    // nothing is built on it. Only a write that found no room is made again.
    const auto look = [&] {
      const bool grave = outcome.fired_on_flush ||
                         (outcome.fired_on_write && way.status.cls != io::IoClass::kFull);
      if (grave && store.db()->health().state != Health::State::kFailed && outcome.wrong.empty()) {
        outcome.wrong = "a write or flush that failed did not fail the store";
      }
    };
    store.set_before_close(look);
    script.run(store);
    durable = store.durable();
    attempted = store.model().commits();
    outcome.reported = store.stopped();
    if (outcome.wrong.empty()) outcome.wrong = store.wrong();
    device->set_faults(nullptr);
    if (store.db() != nullptr && outcome.wrong.empty()) {
      // Reads go on and show what was acknowledged, not what was not.
      const auto found =
          store.model().Match(store.db(), store.acknowledged(), store.acknowledged(), salt, {});
      if (!found.ok()) outcome.wrong = "after the failure: " + found.status().ToString();
      look();
      // Errors are final: the drive works again, and nothing is written.
      if (store.db()->health().state == Health::State::kFailed) {
        const absl::Status s = store.db()->Put({}, "later", "1");
        if (s.ok()) outcome.wrong = "a failed store takes a write";
        if (!absl::StrContains(s.message(), store.db()->health().cause.message())) {
          outcome.wrong = "a failed store does not say why: " + s.ToString();
        }
      } else if (way.status.cls == io::IoClass::kFull) {
        // There is room again: it goes on, without being opened anew.
        const absl::Status s = store.db()->Flush();
        if (!s.ok()) outcome.wrong = "a store that was full can't be flushed: " + s.ToString();
      } else if (store.stopped()) {
        // A read that failed fails one call; what may have been written wrongly fails the store.
        const absl::Status s = store.db()->Flush();
        if (!s.ok())
          outcome.wrong = "a store that has not failed can't be flushed: " + s.ToString();
      }
    }
    if (store.db() != nullptr && outcome.wrong.empty() &&
        store.db()->health().state != Health::State::kFailed) {
      const absl::Status s = store.db()->CheckSpace();
      if (!s.ok()) outcome.wrong = "space: " + s.ToString();
    }
    device->Die();
    model = store.model();
  }
  if (!outcome.wrong.empty()) return outcome;
  device->Revive();
  if (salt % 5 == 0) {
    device->LandLeftovers();
  } else {
    device->PowerCut(static_cast<SimDevice::Luck>(salt % 4));
  }
  const auto found = CheckCrashImage(device.get(), model, durable, attempted, salt);
  if (!found.ok()) outcome.wrong = "reopened: " + found.status().ToString();
  return outcome;
}

// Which cases are run follows from the seed.
bool IsChosen(uint64_t salt) {
  const uint64_t parts[] = {g_seed, salt};
  return static_cast<double>(Checksum(parts, sizeof parts, 3) >> 40) < g_scale * (1 << 24);
}

// How many commands a workload has when nothing fails.
uint64_t Commands(const Script& script) {
  const auto device = FormattedDrive(script.drive, 1);
  const uint64_t before = device->commands();
  ScriptStore store(device.get());
  script.run(store);
  EXPECT_FALSE(store.stopped()) << script.name << ": " << store.failed();
  EXPECT_EQ(store.wrong(), "") << script.name;
  return device->commands() - before;
}

class EveryCommand : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Workload, EveryCommand, testing::Range<size_t>(0, 12),
                         [](const auto& info) {
                           std::string name = Scripts()[info.param].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST_P(EveryCommand, FailsInEachWay) {
  KeepFreedMemory();
  const Script& script = Scripts()[GetParam()];
  std::vector<std::string> only;
  if (const char* const text = std::getenv("ASHLAR_FAULT"); text != nullptr) {
    only = absl::StrSplit(text, ':');
    ASSERT_EQ(only.size(), 4u) << "ASHLAR_FAULT=WORKLOAD:COMMAND:WAY:once|persistent";
    if (only[0] != std::to_string(GetParam())) return;
  }
  const uint64_t commands = Commands(script);
  uint64_t runs = 0, fired = 0, reported = 0;
  for (uint64_t n = 1; n <= commands; ++n) {
    for (size_t w = 0; w < kWayCount; ++w) {
      for (const bool persistent : {false, true}) {
        const uint64_t salt = (n * kWayCount + w) * 2 + persistent;
        if (!only.empty()) {
          if (only[1] != std::to_string(n) || only[2] != kWays[w].name ||
              only[3] != (persistent ? "persistent" : "once")) {
            continue;
          }
        } else if (!IsChosen(salt)) {
          continue;
        }
        const Outcome o = RunOnce(script, n, kWays[w], persistent, g_seed + salt);
        if (!only.empty()) Repeated();
        ++runs;
        fired += o.fired;
        reported += o.reported;
        ASSERT_EQ(o.wrong, "") << script.name << ", command " << n << " of " << commands << ", "
                               << kWays[w].name << "\nreproduce: ASHLAR_FAULT=" << GetParam() << ":"
                               << n << ":" << kWays[w].name << ":"
                               << (persistent ? "persistent" : "once")
                               << " ashlar_fault_test --seed=" << g_seed
                               << " --gtest_filter=*FailsInEachWay*";
      }
    }
  }
  std::printf("%s: %llu commands, %llu runs\n", script.name,
              static_cast<unsigned long long>(commands), static_cast<unsigned long long>(runs));
  Count("failed_commands", fired);
  Count("failed_commands_reported", reported);
  EXPECT_EQ(fired, runs);
  if (!only.empty()) {
    EXPECT_EQ(runs, 1u) << "ASHLAR_FAULT names no case of this workload";
  } else if (g_scale >= 1) {
    EXPECT_EQ(runs, commands * kWayCount * 2);
  }
}

}  // namespace
}  // namespace ashlar
