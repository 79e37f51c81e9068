// Writes one table: records in order, then index partitions, top index, footer. Holds one lease,
// fills one half of its buffer while the other is being written. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/types.h"
#include "engine/format/manifest_format.h"
#include "engine/format/table_format.h"
#include "engine/space/extent_io.h"

namespace ashlar {

// Called for each further extent the table needs; an error ends the table.
using ExtentSource = std::function<absl::StatusOr<ExtentId>()>;

class TableBuilder {
 public:
  TableBuilder(ExtentIo* io, const StoreId& store, WriteId id, ExtentSource extents);
  ~TableBuilder();  // waits for what is in flight

  // Strictly ascending by key, for equal keys by falling sequence number; DataLoss otherwise, since
  // the order comes from media. After an error only Abandon, the destructor and extents() may be
  // used.
  absl::Status Add(EntryKind kind, SequenceNumber sequence, std::string_view key,
                   std::string_view value);

  // Writes the rest and waits for every write to complete: not yet durable, that takes a device
  // flush. Requires at least one record. The caller sets meta.level.
  absl::StatusOr<TableMeta> Finish();

  // After an error `why`: waits for what is in flight and returns what the caller has to take for
  // the cause: a write that failed otherwise than for lack of space, which may still land, else
  // `why`.
  absl::Status Abandon(const absl::Status& why);

  uint64_t entries() const { return footer_.entries; }
  // What the table would take on the device if it ended with one more record like those before.
  uint64_t bytes_if_finished() const;
  // Every extent taken, also after an error.
  const std::vector<ExtentId>& extents() const { return extents_; }

 private:
  struct Half {
    std::byte* base = nullptr;
    uint32_t pages = 0;  // sealed in it
    uint32_t first_page = 0;
    std::vector<ExtentIo::Command> commands;
    size_t pending = 0;
  };

  absl::Status OpenPage();                  // the next page, zeroed, becomes page_
  absl::Status SealCurrent(PageKind kind);  // ends page_
  absl::Status WriteHalf();                 // submits the current half and turns to the other
  absl::Status Await(Half* half);
  absl::Status Append(std::string_view bytes);  // into the payload, over as many pages as it takes
  absl::Status AppendStream(PageKind kind, std::string_view bytes);  // whole pages of index
  void StartFence(std::string_view key, bool continues);
  void ClosePartition();
  uint64_t PagesPerExtent() const { return io_->extent_bytes() / kPageBytes; }

  ExtentIo* const io_;
  const StoreId store_;
  const WriteId id_;
  const ExtentSource source_;
  ExtentIo::Lease lease_;
  std::vector<ExtentId> extents_;
  Half halves_[2];
  int half_ = 0;
  uint32_t half_pages_ = 0;  // capacity of a half

  std::byte* page_ = nullptr;  // open page, null between pages
  uint32_t next_page_ = 0;     // number of the page after the open one
  uint32_t used_ = 0;
  uint16_t first_record_ = kNoRecordStarts;

  std::string last_key_;
  SequenceNumber last_sequence_ = 0;
  std::string scratch_;
  // Of the partition being made: fences whose keys lie in fence_keys_ at key.data() as offset.
  std::vector<Fence> fences_;
  std::vector<std::pair<size_t, size_t>> fence_keys_at_;
  std::string fence_keys_;
  FilterBuilder filter_;
  // Of the table: encoded partitions, and where each starts and ends in index_.
  std::string index_;
  std::vector<TopEntry> top_;
  std::vector<size_t> partition_ends_;
  Footer footer_;
  std::string smallest_;
};

}  // namespace ashlar
