// A memory device with an ExtentIo on it, for the tests of the floors between format and db.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/limits.h"
#include "engine/space/extent_io.h"
#include "engine/table/index_cache.h"
#include "engine/table/table_builder.h"
#include "engine/table/table_reader.h"
#include "io/memory_device.h"

namespace ashlar {

class Floor {
 public:
  explicit Floor(uint32_t lba_bytes = 4096, uint32_t extent_bytes = 64u << 10,
                 uint32_t buffer_bytes = 32u << 10, uint64_t extra_bytes = 0) {
    io::MemoryDeviceOptions options;
    options.bytes = 64u << 20;
    options.lba_bytes = lba_bytes;
    device = *io::MemoryDevice::Create(options);
    io = *ExtentIo::Create(device.get(), extent_bytes, 4, buffer_bytes, extra_bytes);
    cache = std::make_unique<IndexCache>(4u << 20);
    for (size_t i = 0; i < store.bytes.size(); ++i) store.bytes[i] = static_cast<uint8_t>(i + 1);
    tables = std::make_unique<TableReader>(io.get(), cache.get(), store);
  }

  // Extents one after the other, with gaps so that a table has more than one run.
  ExtentSource Source() {
    return [this]() -> absl::StatusOr<ExtentId> {
      next += next % 5 == 0 ? 3 : 1;
      return ExtentId{next};
    };
  }
  std::vector<ExtentId> Extents(uint32_t n) {
    std::vector<ExtentId> extents;
    const ExtentSource source = Source();
    for (uint32_t i = 0; i < n; ++i) extents.push_back(*source());
    return extents;
  }
  std::byte* Bytes(ExtentId extent, uint64_t offset = 0) {
    return device->contents().data() + uint64_t{Raw(extent)} * io->extent_bytes() + offset;
  }

  std::unique_ptr<io::MemoryDevice> device;
  std::unique_ptr<ExtentIo> io;
  std::unique_ptr<IndexCache> cache;
  StoreId store;
  std::unique_ptr<TableReader> tables;
  uint32_t next = 10;
};

struct TestRecord {
  EntryKind kind = EntryKind::kValue;
  SequenceNumber sequence = 0;
  std::string key, value;
};

inline std::string NumberedKey(uint64_t i) {
  std::string s = std::to_string(i);
  return "key" + std::string(8 - std::min<size_t>(8, s.size()), '0') + s;
}

inline absl::StatusOr<TableMeta> Build(Floor* floor, WriteId id,
                                       const std::vector<TestRecord>& records) {
  TableBuilder builder(floor->io.get(), floor->store, id, floor->Source());
  for (const TestRecord& r : records) {
    if (absl::Status s = builder.Add(r.kind, r.sequence, r.key, r.value); !s.ok()) return s;
  }
  return builder.Finish();
}

}  // namespace ashlar
