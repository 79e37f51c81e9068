// Reads tables: one key, a stream, or every byte. Holds no state of a table; decoded indexes live
// in the IndexCache. Any thread. Damage is DataLoss naming table, extent, page and byte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/internal_iterator.h"
#include "engine/format/manifest_format.h"
#include "engine/space/extent_io.h"
#include "engine/table/index_cache.h"

namespace ashlar {

// Called with the place and the reason of each damaged stretch.
using DamageSink = std::function<void(const std::string& where, const absl::Status& why)>;

class TableReader {
 public:
  // All outlive the reader.
  TableReader(ExtentIo* io, IndexCache* cache, const StoreId& store)
      : io_(io), cache_(cache), store_(store) {}

  enum class Found { kNo, kValue, kDeleted };
  // The newest record for `key` at or before `sequence`. One device command when the index is
  // cached and the record is at most a lease's buffer.
  absl::StatusOr<Found> Get(const TableMeta& meta, std::string_view key, SequenceNumber sequence,
                            std::string* value) const;

  // The records within the table's bounds. With `damage` a damaged page is reported and passed
  // over, and the stream goes on behind it; without, it ends there with the error.
  std::unique_ptr<InternalIterator> NewIterator(std::shared_ptr<const TableMeta> meta,
                                                DamageSink damage = nullptr) const;

  // How many of the table's first extents hold nothing that a key >= smallest needs.
  absl::StatusOr<uint32_t> ExtentsBefore(const TableMeta& meta, std::string_view smallest) const;

  // Reads and verifies every page still owned, the order and count of the records, and that fences
  // and filters answer for each.
  void Verify(const TableMeta& meta, const DamageSink& damage, uint64_t* pages,
              uint64_t* entries) const;

 private:
  friend class PageStream;
  friend class TableIterator;

  absl::StatusOr<std::shared_ptr<const TopIndex>> Top(const TableMeta& meta) const;
  absl::StatusOr<std::shared_ptr<const Partition>> Part(const TableMeta& meta, const TopIndex& top,
                                                        uint32_t index) const;
  // Reads pages [first, first + count) into `to`, unverified.
  absl::Status ReadPages(io::Queue& queue, const TableMeta& meta, uint32_t first, uint32_t count,
                         std::byte* to) const;
  absl::Status VerifyAt(const TableMeta& meta, uint32_t page, PageKind kind, const std::byte* bytes,
                        PageHeader* header) const;
  // The payload of index pages, put together.
  absl::StatusOr<std::string> ReadStream(const TableMeta& meta, PageKind kind, uint32_t first,
                                         uint32_t count) const;
  std::string Where(const TableMeta& meta, uint32_t page) const;
  absl::Status Damaged(const TableMeta& meta, uint32_t page, absl::string_view why) const;

  ExtentIo* const io_;
  IndexCache* const cache_;
  const StoreId store_;
};

std::string TableName(WriteId id);

}  // namespace ashlar
