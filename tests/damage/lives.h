// The stores that are damaged: a few tens of KiB in both levels, with values of a few bytes and of
// several pages, deletes, and the log of the last writes.
#pragma once

#include "tests/damage/subject.h"

namespace ashlar {

StoreId OtherStoreId();

// Written, merged, flushed, closed.
const Life& ClosedLife(uint32_t lba_bytes);
// The same, and written to until the process was killed.
const Life& UnclosedLife(uint32_t lba_bytes);
// Opened, killed and closed several times: what stands on its device is of many generations.
const Life& LongLife(uint32_t lba_bytes);
// Merges of everything again and again, with keys that are deleted and come back.
const Life& MergingLife(uint32_t lba_bytes);
// Batches of many changes, larger than several LBAs, most of them buffered.
const Life& BatchLife(uint32_t lba_bytes);
// Killed when a memtable had just been sealed: its log stands in one segment, the next one's first
// group in another. The moment is inside the call that sealed it.
const Life& TwoSegmentLife(uint32_t lba_bytes);
Life::Moment InTwoSegments(const Life& life);
// Another store that went through the same, byte for byte in the same places but for its id.
const Life& OtherLife(uint32_t lba_bytes);
// Formatted anew over the long life, and written to a little.
const Life& LaterLife(uint32_t lba_bytes, bool close);

}  // namespace ashlar
