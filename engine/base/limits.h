// Every bound of the engine, with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ashlar {

constexpr uint32_t kPageBytes = 4096;  // unit of checksums; every supported LBA size divides it

constexpr size_t kMaxKeyBytes = 4096;         // a fence or manifest bound stays small
constexpr size_t kMaxValueBytes = 16u << 20;  // and at most store / 64
constexpr size_t kMaxBatchBytes = 64u << 20;  // and at most half a memtable
constexpr uint64_t kMinStoreBytes = 64ull
                                    << 20;  // below it the reserves would be most of the store
constexpr uint64_t kMinMemoryBytes = 2ull << 20;

constexpr uint32_t kMinExtentBytes = 64u << 10;
constexpr uint32_t kMaxExtentBytes = 16u << 20;
constexpr uint64_t kMaxExtents = 1ull << 31;  // ExtentId is 32 bits; room for sentinels

constexpr int kSuperblockCopies = 4;
constexpr uint32_t kSuperblockBytes =
    512;  // at most one LBA of any device: written whole or not at all
constexpr uint32_t kManifestExtentsMax = 16;  // a copy; bounded by what fits into the superblock

// Level 0 is where flushed tables arrive; below it lie sorted runs, of which the last holds most.
// Six of them with a fanout of ten are enough for a million times what level 0 holds.
constexpr int kLastLevel = 6;
constexpr int kFanoutMax = 10;

// Level 0 tables that start a merge. Writes are held back more and more from a few above it on, and
// wait at the stop (Sizing::level0_stop, at most this). Readers look at every level 0 table, so the
// stop bounds what a Get costs.
constexpr int kLevel0Merge = 4;
constexpr int kLevel0StopMax = 24;
constexpr int kLevel0StopMin = 12;

constexpr uint64_t kMaxMemtableBytes = 64ull << 20;
constexpr uint64_t kMaxStepBytes = 16ull << 20;  // one merge step's output, and the size of a table
constexpr uint32_t kReadQueues = 8;              // calls that do I/O at once; more wait for one

constexpr uint64_t kBufferedMaxBytes = 256u << 10;  // kBuffered: bytes not yet handed to the device
constexpr uint64_t kBufferedMaxAgeNs = 1'000'000;
constexpr uint64_t kBufferedFlushNs = 1'000'000'000;
constexpr uint64_t kDurableMarkNs = 100'000'000;
constexpr int kLogWritesInFlight = 4;
// A record and its header, at most: what a reader must be able to hold.
constexpr uint32_t kRecordBytesMax = 256u << 10;

static_assert(kMaxKeyBytes <= kPageBytes);
static_assert(kMaxValueBytes + kMaxKeyBytes < kMaxBatchBytes);
static_assert(kMinExtentBytes % kPageBytes == 0);

}  // namespace ashlar
