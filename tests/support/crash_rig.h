// Workloads on a store whose commands are recorded, and what must hold of each image that a crash
// in one of them can leave. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ashlar/admin.h"
#include "engine/base/sync.h"
#include "engine/db/db_impl.h"
#include "io/memory_device.h"
#include "tests/support/crash_images.h"
#include "tests/support/image_device.h"
#include "tests/support/manual_clock.h"
#include "tests/support/ordering_monitor.h"
#include "tests/support/recording_device.h"
#include "tests/support/store_model.h"

namespace ashlar {

// Opening a store takes and frees megabytes: without this most of the time of a test that opens
// thousands goes to the kernel, which gives and takes the pages.
void KeepFreedMemory();

// No threads, and a clock that stands still.
Env FixedEnv();
Options SmallOptions();  // 2 MiB of memory
StoreId FixedStoreId();

// A store on a device whose commands are recorded, together with what it must hold. Calls CHECK
// that they succeed.
class RecordedStore {
 public:
  // Everything passed in outlives it. The device has been formatted. `contents`
  // are what reads of it see: the order of its commands is watched.
  RecordedStore(RecordingDevice* device, Recording* recording, StoreModel* model,
                std::span<const std::byte> contents)
      : device_(device),
        recording_(recording),
        model_(model),
        contents_(contents),
        durable_(model->commits()) {}
  ~RecordedStore();

  // Of the stores opened from now on, as Env's.
  void set_level_base_bytes(uint64_t bytes) { level_base_bytes_ = bytes; }
  void Open();
  void Write(const std::vector<StoreModel::Change>& changes, Durability durability);
  void Put(const std::string& key, const std::string& value,
           Durability durability = Durability::kDurable) {
    Write({{key, value}}, durability);
  }
  // False when the store is full: then nothing was written.
  bool WriteIfRoom(const std::vector<StoreModel::Change>& changes, Durability durability);
  // Time passes, and the log thread does what it would do then.
  void Wait(uint64_t ns);
  void Sync();
  void Flush();
  void MergeAll();
  void Background();  // merges what is not in its place
  void Close();
  void Die();  // the process is killed: what was in flight completes, and nothing follows
  DBImpl* db() { return db_.get(); }

 private:
  void Mark(bool durable);
  void Settle();
  void EndWatch();
  absl::Status Apply(const std::vector<StoreModel::Change>& changes, Durability durability);

  RecordingDevice* const device_;
  Recording* const recording_;
  StoreModel* const model_;
  const std::span<const std::byte> contents_;
  uint32_t durable_;
  std::unique_ptr<OrderingMonitor> monitor_;
  ManualClock clock_;
  uint64_t level_base_bytes_ = 0;
  std::unique_ptr<DBImpl> db_;
};

// What a recording holds, read from the bytes that were written.
struct RecordingSummary {
  uint64_t superblock_updates = 0;  // writes of copy 0
  uint64_t manifests = 0;           // started
  uint64_t edits = 0;
  uint64_t flushes = 0;           // edits that add a table and take nothing away
  uint64_t merge_steps = 0;       // edits that remove tables, shorten them or add deeper ones
  uint64_t moves = 0;             // tables moved to another level
  uint64_t shortening_steps = 0;  // of these, those that shorten a table
  uint64_t log_writes = 0;
  uint64_t segments = 0;  // with a write to them
  uint64_t marks = 0;     // writes that hold nothing but a mark
  // Edits that give up a log segment while a write to it is in flight, which may land on what comes
  // there next.
  uint64_t released_in_flight = 0;
  std::string Text() const;
};
RecordingSummary Summarise(const Recording& recording, const StoreId& store, uint64_t store_bytes);

// Damage that a check of the device reports, as an error; `spare` says of which there may be some.
absl::Status CheckClean(io::Device* device, std::string_view when,
                        const std::function<bool(const Damage&)>& spare = nullptr);

// What must hold of every image: it checks clean; it opens; it shows a prefix of the commits in
// [least, most]; it takes one more durable write and closes; it checks clean; it shows the same
// again. Returns that prefix. `may_be_full`: the write may find no room, and then changes nothing.
absl::StatusOr<uint32_t> CheckCrashImage(io::Device* device, const StoreModel& model,
                                         uint32_t least, uint32_t most, uint64_t salt,
                                         bool may_be_full = false);
// The same behind the first check.
absl::StatusOr<uint32_t> CheckOpens(io::Device* device, const StoreModel& model, uint32_t least,
                                    uint32_t most, uint64_t salt, bool may_be_full = false);

}  // namespace ashlar
