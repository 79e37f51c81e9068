// XXH3, 64 bits (libxxhash): what every structure on the device is verified with. The seed binds
// bytes to the place and the writing they belong to, so that a stale, lost, misdirected or foreign
// block fails.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/types.h"

namespace ashlar {

uint64_t Checksum(const void* data, size_t bytes, uint64_t seed);

// Seed for page `page` of `extent`, written under `write_id` in the store.
uint64_t PageSeed(const StoreId& store, WriteId write_id, ExtentId extent, uint32_t page);
// Seed for the records of a log or manifest stream of the store.
uint64_t StreamSeed(const StoreId& store, WriteId stream);

}  // namespace ashlar
