#include "engine/db/sizing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/base/rounding.h"
#include "engine/wal/log_writer.h"

namespace ashlar {
namespace {

// Extents that a table of `bytes` of records takes at most: records kept whole leave up to a
// sixteenth of each extent, index and filter take less than what the records' overhead in a
// memtable took.
uint64_t TableExtents(uint64_t bytes, uint32_t extent_bytes) {
  return CeilDiv(bytes + bytes / 8, extent_bytes) + 2;
}

uint32_t SegmentExtents(uint64_t memtable_bytes, uint32_t extent_bytes) {
  return static_cast<uint32_t>(CeilDiv(memtable_bytes + memtable_bytes / 4, extent_bytes));
}

}  // namespace

absl::StatusOr<Sizing> ComputeSizing(uint64_t store_bytes, uint32_t extent_bytes,
                                     uint32_t lba_bytes, uint64_t memory_bytes) {
  if (memory_bytes < kMinMemoryBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("memory_bytes is ", memory_bytes,
                                                     "; a store needs at least ", kMinMemoryBytes));
  }
  Sizing s;
  s.memtable_bytes = std::min({kMaxMemtableBytes, memory_bytes / 4, store_bytes / 64});
  s.lease_buffer_bytes = memory_bytes >= (16u << 20) ? 128u << 10 : 32u << 10;
  s.log_buffer_bytes = memory_bytes >= (32u << 20)  ? 256u << 10
                       : memory_bytes >= (8u << 20) ? 64u << 10
                                                    : 32u << 10;
  s.level0_stop = memory_bytes >= (16u << 20) ? kLevel0StopMax : kLevel0StopMin;
  // Beside memtables and the registered buffers: what a merge reads its inputs through.
  const uint64_t fixed = 2 * s.memtable_bytes +
                         (kReadQueues + uint64_t(s.level0_stop) + 2) * s.lease_buffer_bytes +
                         LogWriter::kBuffers * s.log_buffer_bytes;
  s.index_cache_bytes = std::min(memory_bytes / 3, memory_bytes - fixed);

  s.segment_extents = SegmentExtents(s.memtable_bytes, extent_bytes);
  s.step_bytes = std::max<uint64_t>(std::min(store_bytes / 32, kMaxStepBytes) / extent_bytes, 2) *
                 extent_bytes;
  s.level_base_bytes = kLevel0Merge * s.memtable_bytes;
  const uint64_t log_payload = LogWriter::MaxPayload(s.segment_extents * uint64_t{extent_bytes},
                                                     s.log_buffer_bytes, lba_bytes);
  s.batch_bytes_max = std::min({uint64_t{kMaxBatchBytes}, s.memtable_bytes / 2, log_payload / 2});
  s.value_bytes_max =
      std::min({uint64_t{kMaxValueBytes}, store_bytes / 64, s.batch_bytes_max - kMaxKeyBytes - 64});

  // The reserve does not depend on memory_bytes: a store that was filled with little memory must
  // open with more.
  const uint64_t largest_memtable = std::min(kMaxMemtableBytes, store_bytes / 64);
  const uint64_t flush = TableExtents(largest_memtable, extent_bytes);
  const uint64_t step = TableExtents(
      s.step_bytes + std::min<uint64_t>(kMaxValueBytes, largest_memtable / 2), extent_bytes);
  // Two manifests of about the largest size that a store this big has.
  const uint64_t manifest =
      2 * std::clamp<uint64_t>(CeilDiv(512u << 10, extent_bytes), 2, kManifestExtentsMax);
  s.reserve_deletes =
      2 * flush + step + 2 * SegmentExtents(largest_memtable, extent_bytes) + manifest;
  s.reserve_writes = s.reserve_deletes + flush + step;
  return s;
}

}  // namespace ashlar
