// How the store's bounds follow from its size and its memory: computed once at open, shown in info.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace ashlar {

struct Sizing {
  uint64_t memtable_bytes = 0;  // two of them
  uint32_t segment_extents = 0;
  uint32_t log_buffer_bytes = 0;
  uint32_t lease_buffer_bytes = 0;
  uint64_t index_cache_bytes = 0;
  uint64_t step_bytes = 0;        // output of one merge step
  uint64_t level_base_bytes = 0;  // MergePolicy::base_bytes
  int level0_stop = 0;            // tables in level 0 at which writes wait
  uint64_t value_bytes_max = 0;
  uint64_t batch_bytes_max = 0;

  // Extents that must stay free. Deletes stop below `reserve_deletes`: what recovery, the flush of
  // both memtables and one merge step can take. Other writes stop below `reserve_writes`: room for
  // deletes is left.
  uint64_t reserve_deletes = 0;
  uint64_t reserve_writes = 0;
};

// ResourceExhausted when memory_bytes is under the minimum.
absl::StatusOr<Sizing> ComputeSizing(uint64_t store_bytes, uint32_t extent_bytes,
                                     uint32_t lba_bytes, uint64_t memory_bytes);

}  // namespace ashlar
