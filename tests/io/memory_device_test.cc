// MemoryDevice's power cut against a simple model, and the arena.
#include "io/memory_device.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/io/test_util.h"

namespace ashlar::io {
namespace {

// The model: the media after a power cut is what it was before, and over it, in the order they were
// carried out, the changes that are durable or kept.
struct Change {
  uint64_t lba = 0;
  uint64_t blocks = 0;
  uint64_t value = 0;  // 0 = deallocated
  bool given_back = false;
  bool durable = false;
};

class PowerCut : public testing::TestWithParam<std::tuple<uint32_t, bool, bool>> {};

TEST_P(PowerCut, KeepsJustDurableAndKeptWrites) {
  const uint32_t lba_bytes = std::get<0>(GetParam());
  const bool cache = std::get<1>(GetParam());
  const bool fua = std::get<2>(GetParam());
  constexpr uint64_t kBlocks = 24;
  std::mt19937_64 random(g_seed);
  auto arena = Arena::Create(16 * 4096);
  ASSERT_TRUE(arena.ok());
  for (int round = 0; round < 60; ++round) {
    auto device = MemoryDevice::Create({.bytes = kBlocks * lba_bytes,
                                        .lba_bytes = lba_bytes,
                                        .volatile_cache = cache,
                                        .native_fua = fua});
    ASSERT_TRUE(device.ok());
    std::vector<uint64_t> base(kBlocks, 0);  // what the media held after the last cut
    for (int cut = 0; cut < 4; ++cut) {
      Device* const devices[] = {device->get()};
      auto queue = (*device)->OpenQueue(devices, {.depth = 8}, **arena);
      ASSERT_TRUE(queue.ok());
      std::vector<Change> changes;
      std::vector<size_t> pending;  // submitted, not given back
      Call calls[8];
      size_t used = 0;
      const auto give_back = [&] {
        (*queue)->Drain();
        for (const size_t i : pending) changes[i].given_back = true;
        pending.clear();
        used = 0;
      };
      const auto flush = [&] {
        for (Change& c : changes) c.durable |= c.given_back;
      };
      const int ops = static_cast<int>(random() % 40);
      for (int op = 0; op < ops; ++op) {
        if (used == 8 || random() % 3 == 0) give_back();
        Call& call = calls[used++];
        Request* one = &call.request;
        const uint64_t lba = random() % kBlocks;
        const uint64_t blocks = 1 + random() % std::min<uint64_t>(4, kBlocks - lba);
        const uint64_t kind = random() % 10;
        if (kind == 0) {
          call.SetFlush();
          (*queue)->Submit(std::span(&one, 1));
          flush();
          continue;
        }
        Change change{.lba = lba, .blocks = blocks, .durable = !cache};
        if (kind == 1) {
          call.SetDeallocate(lba, blocks);
        } else {
          change.value = random() | 1;
          const bool with_fua = kind < 4;
          call.Set(Op::kWrite, (*device)->geometry(), lba, 0,
                   static_cast<uint32_t>(blocks * lba_bytes), with_fua ? kFua : 0);
          for (uint64_t b = 0; b < blocks; ++b) {
            Fill((*arena)->data() + b * lba_bytes, lba_bytes, change.value + b);
          }
          change.durable |= with_fua;
        }
        (*queue)->Submit(std::span(&one, 1));
        const bool flushes = (kind == 2 || kind == 3) && !fua;
        changes.push_back(change);
        if (flushes) flush();
        pending.push_back(changes.size() - 1);
      }
      if (random() % 2 == 0) give_back();
      queue->reset();

      // What each block holds seen, and after the cut.
      std::vector<uint64_t> seen = base;
      for (const Change& c : changes) {
        for (uint64_t b = 0; b < c.blocks; ++b) seen[c.lba + b] = c.value == 0 ? 0 : c.value + b;
      }
      const auto holds = [&](const std::vector<uint64_t>& want) {
        const std::span<std::byte> contents = (*device)->contents();
        const std::vector<std::byte> zeros(lba_bytes);
        for (uint64_t b = 0; b < kBlocks; ++b) {
          const std::byte* at = contents.data() + b * lba_bytes;
          const bool equal = want[b] == 0 ? std::memcmp(at, zeros.data(), lba_bytes) == 0
                                          : IsFilled(at, lba_bytes, want[b]);
          if (!equal) return testing::AssertionFailure() << "block " << b << ", round " << round;
        }
        return testing::AssertionSuccess();
      };
      ASSERT_TRUE(holds(seen));

      std::vector<size_t> volatile_ones;
      for (size_t i = 0; i < changes.size(); ++i) {
        if (!changes[i].durable) volatile_ones.push_back(i);
      }
      ASSERT_EQ((*device)->unflushed(), volatile_ones.size());
      std::vector<bool> keep(changes.size(), true);
      for (const size_t i : volatile_ones) keep[i] = random() % 2 == 0;
      (*device)->LoseUnflushed([&](size_t i) { return bool{keep[volatile_ones[i]]}; });

      std::vector<uint64_t> after = base;
      for (size_t i = 0; i < changes.size(); ++i) {
        if (!keep[i]) continue;
        const Change& c = changes[i];
        for (uint64_t b = 0; b < c.blocks; ++b) after[c.lba + b] = c.value == 0 ? 0 : c.value + b;
      }
      ASSERT_TRUE(holds(after));
      ASSERT_EQ((*device)->unflushed(), 0u);
      base = after;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, PowerCut,
                         testing::Combine(testing::Values(512u, 4096u), testing::Bool(),
                                          testing::Bool()));

TEST(MemoryDevice, FlushDoesNotCoverAWriteNotGivenBack) {
  auto device = MemoryDevice::Create({.bytes = 1 << 20});
  auto arena = Arena::Create(4096);
  ASSERT_TRUE(device.ok() && arena.ok());
  Device* const devices[] = {device->get()};
  auto queue = (*device)->OpenQueue(devices, {}, **arena);
  ASSERT_TRUE(queue.ok());
  Fill((*arena)->data(), 4096, 1);
  Call write, flush;
  write.Set(Op::kWrite, (*device)->geometry(), 0, 0, 4096);
  flush.SetFlush();
  Request* both[] = {&write.request, &flush.request};
  (*queue)->Submit(both);
  (*queue)->Drain();
  queue->reset();
  EXPECT_EQ((*device)->unflushed(), 1u);
}

TEST(MemoryDevice, HookRefusesAndSeesTheBytes) {
  auto device = MemoryDevice::Create({.bytes = 1 << 20});
  auto arena = Arena::Create(4096);
  ASSERT_TRUE(device.ok() && arena.ok());
  Device* const devices[] = {device->get()};
  auto queue = (*device)->OpenQueue(devices, {}, **arena);
  ASSERT_TRUE(queue.ok());
  Fill((*arena)->data(), 4096, 7);
  int calls = 0;
  (*device)->set_hook([&](const Request& request, const std::byte* data) {
    ++calls;
    EXPECT_EQ(data != nullptr, request.op == Op::kWrite);
    EXPECT_TRUE(data == nullptr || IsFilled(data, 4096, 7));
    return request.op == Op::kWrite ? IoStatus{.cls = IoClass::kUnknown, .err = ENODEV}
                                    : IoStatus{};
  });
  Call write;
  write.Set(Op::kWrite, (*device)->geometry(), 3, 0, 4096);
  EXPECT_EQ(write.Run(**queue).cls, IoClass::kUnknown);
  EXPECT_TRUE(absl::IsUnknown(ToStatus(write.request, **device)));
  Call read;
  read.Set(Op::kRead, (*device)->geometry(), 3, 0, 4096);
  EXPECT_TRUE(read.Run(**queue).ok());
  EXPECT_EQ((*arena)->data()[5], std::byte{0});
  EXPECT_EQ(calls, 2);
}

TEST(Arena, RoundsUpStartsAlignedAndNamesPieces) {
  auto arena = Arena::Create(5000);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ((*arena)->size(), 8192u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*arena)->data()) % (2 << 20), 0u);
  const Piece piece = (*arena)->PieceOf((*arena)->data() + 4096, 4096);
  EXPECT_EQ((*arena)->At(piece), (*arena)->data() + 4096);
}

TEST(Arena, TooMuchIsAStatus) {
  EXPECT_TRUE(absl::IsResourceExhausted(Arena::Create(size_t{1} << 62).status()));
}

}  // namespace
}  // namespace ashlar::io
