// Threads that share a drive, each with a queue of its own: a flush that fails may have lost what
// any of them wrote, so none may take a later one for an answer.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/space/extent_io.h"
#include "engine/wal/log_writer.h"
#include "gtest/gtest.h"
#include "tests/support/seed.h"
#include "tests/support/sim_device.h"
#include "tests/support/sim_executor.h"

namespace ashlar {
namespace {

constexpr uint32_t kExtentBytes = 64u << 10, kBlock = 4096, kBuffer = 32u << 10;
constexpr int kThreads = 4, kRounds = 4;
constexpr uint32_t kLogExtent = 100;

struct Written {
  uint64_t at;
  char fill;
};

// One run; how many writes were answered as durable, and of them lost.
struct Outcome {
  uint64_t durable = 0, lost = 0;
  bool failed = false;  // the flush that was to fail was reached
};

Outcome Run(uint64_t seed, bool with_log) {
  SimDeviceOptions options;
  options.bytes = 16u << 20;
  options.fua_is_flush = with_log;
  SimDevice device(options, seed);
  SimExecutor sim(seed);
  device.set_sim(&sim);
  Outcome outcome;
  std::vector<Written> durable;
  uint64_t flushes = 0;
  const uint64_t fails_at = 1 + seed % (kThreads * kRounds);
  device.set_faults([&](const SimCommand& c) {
    SimFault fault;
    if (c.op == io::Op::kFlush && ++flushes == fails_at) {
      const io::IoClass classes[] = {io::IoClass::kPath, io::IoClass::kFatal,
                                     io::IoClass::kUnknown};
      outcome.failed = true;
      fault.status = {.cls = classes[seed % 3], .err = EIO};
      fault.effect = sim.Random() % 2 == 0 ? SimFault::Effect::kNone : SimFault::Effect::kPart;
    } else if (c.op == io::Op::kFlush) {
      fault.delay_ns = sim.Random() % 2'000'000;  // so that later ones overtake it
    }
    return fault;
  });
  sim.Run([&] {
    constexpr uint64_t kLogMemory = uint64_t{LogWriter::kBuffers} * kBuffer;
    auto io = *ExtentIo::Create(&device, kExtentBytes, kThreads, kBuffer, kLogMemory);
    const auto write_blocks = [&](uint64_t thread) {
      for (uint64_t round = 0; round < kRounds; ++round) {
        ExtentIo::Lease lease = io->Acquire();
        const ExtentId extent[] = {ExtentId{static_cast<uint32_t>(1 + thread)}};
        const char fill = static_cast<char>('a' + round);
        std::memset(lease.buffer(), fill, kBlock);
        const uint64_t offset = round * kBlock;
        if (!io->Write(lease.queue(), extent, offset, {lease.buffer(), kBlock}).ok()) return;
        if (!io->Flush(lease.queue()).ok()) return;
        durable.push_back({Raw(extent[0]) * uint64_t{kExtentBytes} + offset, fill});
      }
    };
    const auto write_log = [&] {
      LogWriter log(io.get(), *io->OpenQueue(8), StoreId(), {io->extra(), kLogMemory});
      SegmentMeta segment;
      segment.id = {1, 1};
      for (uint32_t i = 0; i < 4; ++i) segment.extents.push_back(ExtentId{kLogExtent + i});
      if (!log.StartSegment(segment).ok()) return;
      for (uint64_t round = 0; round < kRounds; ++round) {
        const std::string_view parts[] = {"change"};
        if (!log.Append(1 + round, parts).ok() || !log.MakeDurable().ok()) return;
        // Each record begins a block; its magic stands at byte 8.
        durable.push_back({kLogExtent * uint64_t{kExtentBytes} + round * kBlock + 8, 'A'});
      }
    };
    std::vector<std::unique_ptr<Thread>> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.push_back(sim.Start("writer", [&, t] {
        if (with_log && t == 0) return write_log();
        write_blocks(t);
      }));
    }
    threads.clear();
  });
  device.PowerCut(SimDevice::Luck::kLoseAll);
  for (const Written& w : durable) {
    outcome.lost += device.contents()[w.at] != static_cast<std::byte>(w.fill);
  }
  outcome.durable = durable.size();
  return outcome;
}

void RunSeeds(bool with_log) {
  uint64_t failed = 0, durable = 0;
  for (uint64_t i = 0; i < std::max<uint64_t>(600, Scaled(5'000)); ++i) {
    const Outcome o = Run(g_seed + i, with_log);
    ASSERT_EQ(o.lost, 0u) << "of " << o.durable << "; --seed=" << g_seed + i;
    failed += o.failed;
    durable += o.durable;
  }
  EXPECT_GT(failed, 0u);
  EXPECT_GT(durable, 0u);
}

TEST(SharedDrive, AFlushThatFailsIsEverybodysFailure) { RunSeeds(false); }

// A write with FUA to a file, and to many drives, is a write and a flush.
TEST(SharedDrive, SoIsAWriteWithFuaThatFails) { RunSeeds(true); }

}  // namespace
}  // namespace ashlar
