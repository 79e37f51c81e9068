#include "engine/db/sizing.h"

#include "engine/base/limits.h"
#include "gtest/gtest.h"

namespace ashlar {
namespace {

// A store that was filled to its reserve with little memory must open with much, and the other way
// round.
TEST(Sizing, TheReserveIsTheSameWhateverTheMemory) {
  for (const uint64_t store : {64ull << 20, 1ull << 30, 20ull << 30, 2ull << 40}) {
    for (const uint32_t extent : {64u << 10, 1u << 20, 4u << 20}) {
      const auto least = ComputeSizing(store, extent, 4096, kMinMemoryBytes);
      const auto most = ComputeSizing(store, extent, 512, 1ull << 40);
      ASSERT_TRUE(least.ok() && most.ok());
      EXPECT_EQ(least->reserve_deletes, most->reserve_deletes);
      EXPECT_EQ(least->reserve_writes, most->reserve_writes);
      // What opening takes at once: two segments, the old ones still there.
      EXPECT_GT(most->reserve_deletes, 2 * most->segment_extents);
      EXPECT_LE(least->memtable_bytes, most->memtable_bytes);
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(
      ComputeSizing(64ull << 20, 64u << 10, 4096, kMinMemoryBytes - 1).status()));
}

TEST(Sizing, PoolsStayWithinTheMemory) {
  for (uint64_t memory = kMinMemoryBytes; memory <= 1ull << 32; memory *= 2) {
    const auto s = ComputeSizing(1ull << 40, 1u << 20, 4096, memory);
    ASSERT_TRUE(s.ok());
    EXPECT_LE(2 * s->memtable_bytes + s->index_cache_bytes + 5ull * s->log_buffer_bytes +
                  8ull * s->lease_buffer_bytes,
              memory);
    EXPECT_LT(s->value_bytes_max, s->batch_bytes_max);
    EXPECT_LE(s->batch_bytes_max, s->memtable_bytes / 2);
  }
}

}  // namespace
}  // namespace ashlar
