// The store behind DB: owns the parts, opens and closes them in order. Each path is one file beside
// this one: open_path, write_path, read_path, flush_path, compaction_path, background; install.cc
// makes edits count.
//
// Threads: any number of callers; one background thread (flush and merge); one log thread (timers
// of the log). Locks, in this order: an iterator's mutex, then mutex_. mutex_ is never held across
// I/O, but at the end of Close, when no other call is left. Who stands in front of writers_ leads:
// it alone uses log_ and inserts into the memtable, with mutex_ released. The background thread
// alone changes version_ and uses manifest_, once the store is open.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ashlar/db.h"
#include "engine/base/counter.h"
#include "engine/base/sync.h"
#include "engine/base/types.h"
#include "engine/compaction/picker.h"
#include "engine/db/sizing.h"
#include "engine/db/snapshot_list.h"
#include "engine/format/superblock.h"
#include "engine/memtable/memtable.h"
#include "engine/space/extent_io.h"
#include "engine/space/extent_map.h"
#include "engine/table/index_cache.h"
#include "engine/table/table_reader.h"
#include "engine/version/manifest_log.h"
#include "engine/version/version.h"
#include "engine/wal/log_writer.h"
#include "engine/wal/record_reader.h"
#include "io/device.h"

namespace ashlar {

// A memtable and the log segment that holds the same changes.
struct LoggedMemtable {
  LoggedMemtable(size_t bytes, WriteId segment_id) : table(bytes), segment(segment_id) {}
  Memtable table;
  const WriteId segment;
};
using MemtablePtr = std::shared_ptr<LoggedMemtable>;

// The device and what reads it. Whoever holds a view holds it: Close gives the device back when the
// last call that was under way has ended.
struct StoreFiles {
  std::unique_ptr<io::Device> owned;  // null when the caller keeps the device
  std::unique_ptr<ExtentIo> io;
  std::unique_ptr<IndexCache> cache;
  std::unique_ptr<TableReader> tables;
};

// What a reader looks at: immutable but for what the front memtable gains behind its sequence
// number.
struct ReadView {
  std::shared_ptr<const StoreFiles> files;
  std::vector<MemtablePtr> memtables;  // newest first
  std::shared_ptr<const Version> version;
};
using ViewPtr = std::shared_ptr<const ReadView>;

class StoreIterator;

class DBImpl : public DB {
 public:
  // Opens the store on `device`, which the caller keeps or hands over in `owned`. For tests and
  // tools; DB::Open does it for a path.
  static absl::StatusOr<std::unique_ptr<DBImpl>> Open(const Options& options, io::Device* device,
                                                      std::unique_ptr<io::Device> owned,
                                                      const Env& env);
  // Read-only, passing over what is damaged in the log, which `damage` is told.
  static absl::StatusOr<std::unique_ptr<DBImpl>> OpenForRescue(io::Device* device,
                                                               const ReplayDamage& damage);
  ~DBImpl() override;

  absl::Status Write(const WriteOptions& options, const WriteBatch& batch) override;
  absl::Status Get(const ReadOptions& options, std::string_view key, Value* value) override;
  std::unique_ptr<Iterator> NewIterator(const ReadOptions& options) override;
  std::unique_ptr<const Snapshot> GetSnapshot() override;
  absl::Status Flush() override;
  absl::Status CompactRange(std::string_view begin, std::string_view end) override;
  absl::Status Sync() override;
  Health health() const override;
  Limits limits() const override;
  Stats stats() const override;
  absl::Status Close() override;

  // Flushes, and merges until all is in the last level. For tests.
  absl::Status MergeAll();
  // That each extent in use is somebody's: none has leaked. For tests, with nothing under way and
  // the store not failed.
  absl::Status CheckSpace();
  // Does what the log's thread would have done by now. For tests, where there is none.
  void RunLogTimers();
  // And what the background's would have done. Returns when there is nothing left to do, or no
  // room.
  void RunBackground();

  // ---- for the iterator ----
  struct IteratorState;
  absl::StatusOr<ViewPtr> TakeView();
  void Forget(const std::shared_ptr<IteratorState>& state);

 private:
  struct Writer;

  DBImpl(const Options& options, io::Device* device, std::unique_ptr<io::Device> owned,
         const Env& env);

  // open_path.cc
  absl::Status OpenStore();
  absl::Status CheckDevice(const Superblock& sb) const;
  absl::Status ReplayLog();
  absl::Status TakeOver(const Superblock& found, uint64_t generation, uint32_t epoch);
  absl::Status StartFresh();
  void StartThreads();
  void StopThreads();
  // Close, once no call begins any more.
  absl::Status FinishClose();

  // write_path.cc
  absl::Status Enqueue(Writer* writer);
  // The front writer's work: for itself and for those behind it that can go along.
  void Lead(Writer* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LeadGroup(Writer* self, std::vector<Writer*>* group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LeadTimers(uint64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoom(const WriteBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeSpace(bool only_deletes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // AwaitBackground, the time counted as such a stall.
  absl::Status Stall(Stats::Stall* stall) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void CountStall(Stats::Stall* stall, uint64_t ns);
  bool RoomFor(uint64_t payload_bytes, uint64_t memtable_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Seal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool LowOnSpace(bool only_deletes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WorthReclaiming() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FullError() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckWritable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t idle_ns() const { return uint64_t{options_.idle_ms} * 1'000'000; }
  uint64_t LogDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNotFailed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteLogState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is due of that, if anything: true when something was. Releases mutex_ while it works.
  bool LogStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogThread();

  // background.cc
  void BackgroundThread();
  absl::Status FlushMemtable(bool own);
  // One unit of work, if there is any: true when something was done. Releases mutex_ while it
  // works.
  bool BackgroundStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until the background has got further; without threads does a step of its work. An error
  // when it can't get further.
  absl::Status AwaitBackground() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeBackground() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { work_.SignalAll(); }
  void Fail(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the log sink what was noted for it under mutex_, which is released meanwhile.
  void SayErrors() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Everything with keys in [begin, end) down to the last level; empty: no such bound.
  struct Compaction {
    std::string begin, end;
    bool rewrite;  // MergeDemand::rewrite
  };
  absl::Status Compact(const Compaction& what);

  // flush_path.cc, compaction_path.cc: mutex_ is held on entry and exit, released in between.
  absl::Status FlushSealed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MergeStep(const MergePlan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the background would merge next, if it had nothing better to do.
  std::optional<MergePlan> NextMerge(bool idle) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<MergePlan> NextMerge(const MergeDemand& demand) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double Level0Load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t Level0Bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteLevel0Step(uint64_t began_ns, uint64_t bytes_before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // That a group was written: when the next one may be. And waits until then.
  void NotePace(uint64_t written_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the memtable's entries to one level 0 table, durable when it returns; without a value
  // there was nothing to write. No lock held. Used by recovery too.
  absl::StatusOr<std::optional<TableMeta>> WriteTable(const Memtable& memtable,
                                                      const std::vector<SequenceNumber>& snapshots)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // read_path.cc
  // Up to which change a read with these options sees.
  absl::StatusOr<SequenceNumber> SequenceFor(const ReadOptions& options) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // install.cc
  // Makes `edit` durable and current. Kept for another try when it returns ResourceExhausted.
  absl::Status Install(VersionEdit edit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new manifest that begins with `version`, and a superblock that names it. After
  // ResourceExhausted to be called again with the same version before anything else changes it.
  absl::Status RollManifest(const Version& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartManifest(const Version& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetVersion(std::shared_ptr<const Version> version, std::vector<ExtentId> released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeUnreferenced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RebuildView() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WriteId NextWriteId() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<SegmentMeta> NewSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ExtentId> TakeExtent(Purpose purpose) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReturnExtents(const std::vector<ExtentId>& extents) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of iterators and snapshots, ascending.
  std::vector<SequenceNumber> LiveSequences() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks iterators to let go of views that are not the current one. mutex_ is released meanwhile.
  void ReleaseViews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Log(LogLevel level, std::string_view text) const {
    if (options_.log_sink) options_.log_sink(level, text);
  }

  // ---- constant once the store is open ----
  const Options options_;
  const Env env_;
  io::Device* const device_;
  Sizing sizing_;
  std::shared_ptr<StoreFiles> files_;  // until Close
  ExtentIo* io_ = nullptr;             // its parts
  TableReader* tables_ = nullptr;

  // Rescue only (read-only): called with damage of the log, or of the last edit of the manifest,
  // which is then passed over.
  ReplayDamage log_damage_;

  // ---- the leader's ----
  std::unique_ptr<LogWriter> log_;

  // ---- the background's ----
  std::unique_ptr<ManifestLog> manifest_;
  struct Roll {
    Superblock superblock;
    uint64_t version = 0;  // number of the one that the manifest begins with
    std::unique_ptr<ManifestLog> manifest;
  };
  std::optional<Roll> roll_;         // a manifest whose superblock is not written yet
  bool manifest_must_roll_ = false;  // a write to it failed: nothing may be appended
  Superblock superblock_;

  mutable Mutex mutex_;
  CondVar work_;      // for the background: there may be something to do
  CondVar progress_;  // from the background: something was done
  CondVar log_wake_;  // for the log thread
  CondVar pace_;      // for the leader that is held back: the store ends

  // kClosing: no call begins any more; those that had begun, and the background, go on until
  // stopping_.
  enum class State { kOpening, kOpen, kClosing, kClosed };
  State state_ ABSL_GUARDED_BY(mutex_) = State::kOpening;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);    // writes are refused for good
  absl::Status full_ ABSL_GUARDED_BY(mutex_);      // the device had no room for background work
  absl::Status log_full_ ABSL_GUARDED_BY(mutex_);  // nor for the last group
  absl::Status merge_blocked_ ABSL_GUARDED_BY(mutex_);  // damage keeps merges from going on
  int64_t since_unix_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  bool was_full_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> unsaid_
      ABSL_GUARDED_BY(mutex_);  // errors the log sink is yet to be told

  std::optional<ExtentMap> space_ ABSL_GUARDED_BY(mutex_);
  uint32_t write_counter_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const Version> version_ ABSL_GUARDED_BY(mutex_);
  MemtablePtr memtable_ ABSL_GUARDED_BY(mutex_);
  MemtablePtr sealed_ ABSL_GUARDED_BY(mutex_);
  std::vector<MemtablePtr> replayed_ ABSL_GUARDED_BY(mutex_);  // read-only: newest first
  std::optional<SegmentMeta> spare_ ABSL_GUARDED_BY(mutex_);
  ViewPtr view_ ABSL_GUARDED_BY(mutex_);
  SequenceNumber last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // visible
  SequenceNumber next_sequence_ = 1;                          // the leader's: taken, perhaps failed

  // Extents that versions up to a number still refer to, and those versions.
  struct Pending {
    uint64_t version;
    std::vector<ExtentId> extents;
  };
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, std::weak_ptr<const Version>>> versions_ ABSL_GUARDED_BY(mutex_);
  std::optional<VersionEdit> unfinished_ ABSL_GUARDED_BY(mutex_);  // an edit that found no room

  std::deque<Writer*> writers_ ABSL_GUARDED_BY(mutex_);
  // By number: in the order in which they were made.
  std::map<uint64_t, std::shared_ptr<IteratorState>> iterators_ ABSL_GUARDED_BY(mutex_);
  uint64_t iterators_made_ ABSL_GUARDED_BY(mutex_) = 0;
  const std::shared_ptr<SnapshotList> snapshots_ = std::make_shared<SnapshotList>();
  bool reclaiming_ ABSL_GUARDED_BY(mutex_) = false;  // merge whatever is in level 0
  std::optional<Compaction> compacting_ ABSL_GUARDED_BY(mutex_);
  MergeCursor merge_cursor_ ABSL_GUARDED_BY(mutex_);
  // Nobody has written for idle_ns(): the background may tidy up.
  bool idle_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the merges of level 0: bytes a second, and when the last step ended; until when the next
  // group is held back.
  double level0_rate_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t level0_step_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t paced_until_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool background_busy_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t background_turns_ ABSL_GUARDED_BY(mutex_) = 0;

  // The log's timers: since when something is as it should not stay, 0 = it is not.
  uint64_t last_write_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t unsubmitted_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t undurable_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool mark_due_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t log_sleeps_until_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: the log thread is awake

  // What is counted under mutex_; the rest of it stays zero.
  Stats counted_ ABSL_GUARDED_BY(mutex_);
  Counter gets_, gets_found_;

  bool has_threads_ = false;  // constant once the store is open
  std::unique_ptr<Thread> background_;
  std::unique_ptr<Thread> log_thread_;
};

}  // namespace ashlar
