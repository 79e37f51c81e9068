#include "engine/format/checksum.h"

#include <xxhash.h>

#include <cstring>

#include "engine/base/plant.h"

namespace ashlar {
namespace {

struct Place {
  uint8_t store[16];
  uint64_t write_id;
  uint32_t extent;
  uint32_t page;
};
static_assert(sizeof(Place) == 32);  // no padding: hashed as bytes

uint64_t Seed(const StoreId& store, WriteId write_id, uint32_t extent, uint32_t page) {
  Place place;
  std::memcpy(place.store, store.bytes.data(), sizeof place.store);
  place.write_id = write_id.raw();
  place.extent = extent;
  place.page = page;
  return XXH3_64bits(&place, sizeof place);
}

}  // namespace

uint64_t Checksum(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

uint64_t PageSeed(const StoreId& store, WriteId write_id, ExtentId extent, uint32_t page) {
  if (PLANT("page.ignore_place")) return Seed(store, write_id, 0, 0);
  return Seed(store, write_id, Raw(extent), page);
}

uint64_t StreamSeed(const StoreId& store, WriteId stream) {
  return Seed(store, stream, UINT32_MAX, UINT32_MAX);
}

}  // namespace ashlar
