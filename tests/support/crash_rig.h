// Crash enumeration: one recorded run of a workload, cut after every event, with every way that the
// writes which were not yet durable there can come out. A write is durable once it was given back
// with FUA, or a flush that was submitted after it was given back was itself given back; until then
// it may be kept, lost or torn between LBAs. One thread; deterministic for a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/sync.h"
#include "engine/db/db_impl.h"
#include "io/memory_device.h"
#include "tests/support/image_device.h"
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
  // Everything passed in outlives it. The device has been formatted.
  RecordedStore(RecordingDevice* device, Recording* recording, StoreModel* model)
      : device_(device), recording_(recording), model_(model) {}

  void Open();
  void Write(const std::vector<StoreModel::Change>& changes, Durability durability);
  void Put(const std::string& key, const std::string& value,
           Durability durability = Durability::kDurable) {
    Write({{key, value}}, durability);
  }
  void Sync();
  void Flush();
  void MergeAll();
  void Close();
  void Die();  // the process is killed: what was in flight completes, and nothing follows
  DBImpl* db() { return db_.get(); }

 private:
  void Mark(bool durable);

  RecordingDevice* const device_;
  Recording* const recording_;
  StoreModel* const model_;
  std::unique_ptr<DBImpl> db_;
  uint32_t durable_ = 0;
};

// What a recording holds, read from the bytes that were written.
struct RecordingSummary {
  uint64_t superblock_updates = 0;  // writes of copy 0
  uint64_t manifests = 0;           // started
  uint64_t edits = 0;
  uint64_t flushes = 0;           // edits that add a level 0 table
  uint64_t merge_steps = 0;       // edits that add a level 1 table or remove one
  uint64_t shortening_steps = 0;  // of these, those that shorten a table
  uint64_t log_writes = 0;
  // Edits that give up a log segment while a write to it is in flight, which may land on what comes
  // there next.
  uint64_t released_in_flight = 0;
  std::string Text() const;
};
RecordingSummary Summarise(const Recording& recording, const StoreId& store, uint64_t store_bytes);

struct CrashImage {
  size_t events = 0;             // the cut lies behind this many
  uint32_t least = 0, most = 0;  // commits that it must and may hold
  std::vector<uint32_t> kept;    // of the writes not durable there: those that came out whole
  std::optional<uint32_t> torn;  // this one came out in part: LBAs [torn_begin, torn_end) of it
  uint64_t torn_begin = 0, torn_end = 0;
  uint64_t id = 0;  // digest of which writes survive in it: equal images have equal ids
  std::string Text() const;
};

struct CrashCounts {
  uint64_t cuts = 0;      // boundaries at which something could be lost or come out
  uint64_t images = 0;    // ways to come out, over all cuts
  uint64_t distinct = 0;  // of those, different ones: what was checked
  CrashCounts& operator+=(const CrashCounts& o);
  std::string Text() const;
};

class CrashRig {
 public:
  // `device` holds what was there before the recording began, and nothing to undo; it ends up
  // holding everything that the recording made durable.
  CrashRig(const Recording& recording, ImageDevice* device, uint64_t seed)
      : recording_(recording), device_(device), random_(seed | 1) {}

  // Called with each image in place, once; returns how many commits it found there, or why it is
  // wrong. What it writes is undone.
  using Visit = std::function<absl::StatusOr<uint32_t>(const CrashImage&)>;
  // The first error, with the image that shows it. `share` of the images are visited, 1 = all.
  absl::Status Run(const Visit& visit, double share, CrashCounts* counts);

  // Makes `device` hold the image (from the same start as the constructor's device).
  void Build(const CrashImage& image, ImageDevice* device) const;

 private:
  struct Unflushed {
    uint32_t command;
    bool given_back;
  };

  absl::Status Happen(const Recording::Event& event);
  absl::Status MakeDurable(uint32_t command);
  absl::Status VisitCut(size_t events, const Visit& visit, double share, CrashCounts* counts);
  absl::Status VisitImage(CrashImage image, const Visit& visit, double share, CrashCounts* counts);
  void Place(const CrashImage& image);
  uint64_t Random();

  const Recording& recording_;
  ImageDevice* const device_;
  uint64_t random_;
  size_t marker_ = 0;
  std::vector<Unflushed> unflushed_;  // in the order submitted
  std::unordered_map<uint32_t, std::vector<uint32_t>>
      flushing_;  // flush in flight -> what it covers
  uint64_t durable_id_ = 0;
  std::unordered_map<uint64_t, uint32_t> seen_;  // image id -> commits found
};

// What must hold of every image: it checks clean; it opens; it shows a prefix of the commits in
// [least, most]; it takes one more durable write and closes; it checks clean; it shows the same
// again. Returns that prefix.
absl::StatusOr<uint32_t> CheckCrashImage(io::Device* device, const StoreModel& model,
                                         uint32_t least, uint32_t most, uint64_t salt);

}  // namespace ashlar
