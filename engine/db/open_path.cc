// OPEN: claim -> device flush -> superblocks -> manifest -> (new epoch) -> log, written to tables
// -> a fresh manifest without the old log, with fresh segments -> superblock. Nothing is ever
// appended to an extent of an earlier epoch. Read-only: no claim, no epoch, nothing written; the
// log is replayed into memory. CLOSE: the same in reverse.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/db/db_impl.h"
#include "engine/db/owner.h"
#include "engine/db/store_file.h"
#include "engine/db/store_iterator.h"
#include "engine/db/writer.h"
#include "engine/format/entry.h"
#include "engine/version/superblock_store.h"
#include "engine/wal/record_reader.h"

namespace ashlar {

absl::StatusOr<std::unique_ptr<DB>> DB::Open(const Options& options, const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<io::Device> device, OpenStoreDevice(options, path));
  io::Device* const raw = device.get();
  auto db = DBImpl::Open(options, raw, std::move(device), Env{});
  if (!db.ok()) {
    return absl::Status(db.status().code(), absl::StrCat(path, ": ", db.status().message()));
  }
  return std::unique_ptr<DB>(*std::move(db));
}

absl::StatusOr<std::unique_ptr<DBImpl>> DBImpl::Open(const Options& options, io::Device* device,
                                                     std::unique_ptr<io::Device> owned,
                                                     const Env& env) {
  std::unique_ptr<DBImpl> db(new DBImpl(options, device, std::move(owned), env));
  RETURN_IF_ERROR(db->OpenStore());
  if (!options.read_only) db->StartThreads();
  return db;
}

absl::StatusOr<std::unique_ptr<DBImpl>> DBImpl::OpenForRescue(io::Device* device,
                                                              const ReplayDamage& damage) {
  Options options;
  options.read_only = true;
  std::unique_ptr<DBImpl> db(new DBImpl(options, device, nullptr, Env{}));
  db->log_damage_ = damage;
  RETURN_IF_ERROR(db->OpenStore());
  return db;
}

DBImpl::DBImpl(const Options& options, io::Device* device, std::unique_ptr<io::Device> owned,
               const Env& env)
    : options_(options), env_(env), device_(device), files_(std::make_shared<StoreFiles>()) {
  files_->owned = std::move(owned);
}

absl::Status DBImpl::CheckDevice(const Superblock& sb) const {
  const io::Geometry& g = device_->geometry();
  if (g.capacity_bytes() < sb.store_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the device has ", g.capacity_bytes(), " bytes, its store ", sb.store_bytes,
                     ": it was cut short, or this is a copy onto a smaller device"));
  }
  if (g.lba_bytes > sb.lba_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the device has blocks of ", g.lba_bytes, " bytes, its store was made on ", sb.lba_bytes));
  }
  const uint64_t serial = SerialHash(g.identity.serial);
  if (sb.serial_hash != 0 && serial != 0 && sb.serial_hash != serial) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store was made on another device than this one, whose serial is \"",
                     g.identity.serial, "\": restore it to its own device, or format this one"));
  }
  return absl::OkStatus();
}

absl::Status DBImpl::OpenStore() {
  if (options_.idle_ms == 0) {
    return absl::InvalidArgumentError("idle_ms is 0; it is at least 1");
  }
  Superblock found;
  uint64_t generation;
  uint32_t epoch;
  {
    ASSIGN_OR_RETURN(auto probe, ExtentIo::Create(device_, kMinExtentBytes, 1, kPageBytes, 0));
    if (!options_.read_only) {
      // What a dead process wrote is read below: it must not be lost after something was built on
      // it.
      ExtentIo::Lease lease = probe->Acquire();
      RETURN_IF_ERROR(probe->Flush(lease.queue()));
    }
    ASSIGN_OR_RETURN(SuperblockScan scan, ReadSuperblocks(probe.get()));
    found = scan.current;
    generation = scan.highest_generation;
    epoch = scan.highest_epoch;
    for (const auto& [copy, why] : scan.damaged) {
      Log(LogLevel::kWarning, absl::StrCat("superblock copy ", copy, ": ", why));
    }
    for (const auto& [copy, why] : scan.outdated) {
      Log(LogLevel::kInfo,
          absl::StrCat("superblock copy ", copy, ": ", why, ": an update was cut short"));
    }
  }
  RETURN_IF_ERROR(CheckDevice(found));
  if (!options_.read_only && found.features_read_only_compatible != 0) {
    return absl::FailedPreconditionError(
        "the store has features that this program can read but not write: open it read-only");
  }
  ASSIGN_OR_RETURN(sizing_, ComputeSizing(found.store_bytes, found.extent_bytes, found.lba_bytes,
                                          options_.memory_bytes));
  if (env_.level_base_bytes != 0) {
    sizing_.level_base_bytes = env_.level_base_bytes;
    const uint64_t extents = std::max<uint64_t>(env_.level_base_bytes / 8 / found.extent_bytes, 2);
    sizing_.step_bytes = std::min(sizing_.step_bytes, extents * found.extent_bytes);
  }
  const uint64_t log_memory = uint64_t{LogWriter::kBuffers} * sizing_.log_buffer_bytes;
  ASSIGN_OR_RETURN(files_->io,
                   ExtentIo::Create(device_, found.extent_bytes, kReadQueues,
                                    sizing_.lease_buffer_bytes, log_memory, found.lba_bytes));
  files_->cache = std::make_unique<IndexCache>(sizing_.index_cache_bytes);
  files_->tables =
      std::make_unique<TableReader>(files_->io.get(), files_->cache.get(), found.store);
  io_ = files_->io.get();
  tables_ = files_->tables.get();
  Log(LogLevel::kInfo, device_->Describe());

  ASSIGN_OR_RETURN(ManifestState manifest, ReadManifest(io_, found));
  if (!manifest.last_edit.ok()) {
    if (log_damage_ == nullptr) return manifest.last_edit;
    log_damage_("manifest", manifest.last_edit);
  }
  for (const auto& [what, where] : manifest.damaged) {
    Log(LogLevel::kWarning,
        absl::StrCat(what, ": ", where, ": does not verify; the other copy does"));
  }
  {
    MutexLock lock(&mutex_);
    superblock_ = found;
    ASSIGN_OR_RETURN(space_, DeriveSpace(found, *manifest.version));
    version_ = manifest.version;
    last_sequence_ = version_->last_sequence;
    for (const TablePtr& t : version_->AllTables()) {
      last_sequence_ = std::max(last_sequence_, t->max_sequence);
    }
  }
  if (!options_.read_only) RETURN_IF_ERROR(TakeOver(found, generation + 1, epoch + 1));
  RETURN_IF_ERROR(ReplayLog());
  if (!options_.read_only) RETURN_IF_ERROR(StartFresh());
  MutexLock lock(&mutex_);
  next_sequence_ = last_sequence_ + 1;
  RebuildView();
  state_ = State::kOpen;
  since_unix_ms_ = env_.clock->UnixMs();
  return absl::OkStatus();
}

// The new epoch, durable before anything is written under it: a write id is never used twice.
absl::Status DBImpl::TakeOver(const Superblock& found, uint64_t generation, uint32_t epoch) {
  Superblock next = SuccessorOf(found, generation);
  next.epoch = epoch;
  next.owner = CurrentProcess();
  if (!PLANT("open.epoch_not_durable")) RETURN_IF_ERROR(WriteSuperblocks(io_, next));
  superblock_ = next;
  return absl::OkStatus();
}

// Replays the log's segments into memtables. For writing, each is written to a level 0 table at
// once, known to version_ but to no manifest yet; read-only they are kept.
absl::Status DBImpl::ReplayLog() {
  std::vector<RecordStream> streams;
  SequenceNumber last;
  {
    MutexLock lock(&mutex_);
    last = last_sequence_;
    streams = LogStreams(*version_);
  }
  std::shared_ptr<LoggedMemtable> memtable;
  const auto write_out = [&]() -> absl::Status {
    if (memtable == nullptr) return absl::OkStatus();
    if (options_.read_only) {
      MutexLock lock(&mutex_);
      replayed_.insert(PLANT("open.oldest_first") ? replayed_.end() : replayed_.begin(),
                       std::move(memtable));
    } else {
      ASSIGN_OR_RETURN(std::optional<TableMeta> table, WriteTable(memtable->table, {}));
      MutexLock lock(&mutex_);
      VersionEdit edit;
      if (table) edit.add_tables.push_back(*std::move(table));
      ASSIGN_OR_RETURN(AppliedEdit applied, ApplyEdit(*version_, edit));
      version_ = std::move(applied.version);
    }
    memtable.reset();
    return absl::OkStatus();
  };
  const auto take = [&](SequenceNumber first, std::string_view payload) -> absl::Status {
    if (first <= last) {
      return absl::DataLossError(absl::StrCat("log: sequence number ", first, " after ", last));
    }
    uint64_t entries = 0;
    Cursor count(payload);
    for (Entry entry; !count.done(); ++entries) RETURN_IF_ERROR(DecodeEntry(&count, &entry));
    const uint64_t need =
        payload.size() + entries * Memtable::kEntryOverhead + Memtable::kGroupSlack;
    if (memtable != nullptr && memtable->table.bytes_free() < need) RETURN_IF_ERROR(write_out());
    if (memtable == nullptr) {
      memtable = std::make_shared<LoggedMemtable>(
          std::max({sizing_.memtable_bytes, need + 1024, uint64_t{superblock_.extent_bytes}}),
          WriteId{});
    }
    Cursor in(payload);
    last = first - 1;
    for (Entry entry; !in.done();) {
      RETURN_IF_ERROR(DecodeEntry(&in, &entry));
      memtable->table.Add(++last, entry.kind, entry.key, entry.value);
    }
    return absl::OkStatus();
  };
  ReplayReport report;
  RETURN_IF_ERROR(ReplayRecords(io_, superblock_.store, streams, take, log_damage_, &report));
  RETURN_IF_ERROR(write_out());
  MutexLock lock(&mutex_);
  last_sequence_ = last;
  return absl::OkStatus();
}

// A manifest of this epoch in which the old log is gone, its contents are tables, and two segments
// are ready.
absl::Status DBImpl::StartFresh() {
  MutexLock lock(&mutex_);
  VersionEdit edit;
  for (const auto& [id, segment] : version_->segments) edit.release_segments.push_back(id);
  ASSIGN_OR_RETURN(SegmentMeta open, NewSegment());
  ASSIGN_OR_RETURN(SegmentMeta spare, NewSegment());
  edit.assign_segments = {open, spare};
  edit.last_sequence = last_sequence_;
  ASSIGN_OR_RETURN(AppliedEdit applied, ApplyEdit(*version_, edit));
  RETURN_IF_ERROR(RollManifest(*applied.version));
  versions_.clear();
  SetVersion(std::move(applied.version), std::move(applied.released));
  FreeUnreferenced();

  ASSIGN_OR_RETURN(auto queue, io_->OpenQueue(16));
  const uint64_t log_memory = uint64_t{LogWriter::kBuffers} * sizing_.log_buffer_bytes;
  log_ = std::make_unique<LogWriter>(io_, std::move(queue), superblock_.store,
                                     std::span<std::byte>(io_->extra(), log_memory));
  RETURN_IF_ERROR(log_->StartSegment(open));
  memtable_ = std::make_shared<LoggedMemtable>(sizing_.memtable_bytes, open.id);
  spare_ = std::move(spare);
  last_write_ns_ = env_.clock->NowNs();
  return absl::OkStatus();
}

void DBImpl::StartThreads() {
  MutexLock lock(&mutex_);  // the threads see what is set here
  background_ = env_.executor->Start("ashlar-work", [this] { BackgroundThread(); });
  log_thread_ = env_.executor->Start("ashlar-log", [this] { LogThread(); });
  has_threads_ = background_ != nullptr;
}

void DBImpl::StopThreads() {
  std::unique_ptr<Thread> background, log_thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    background = std::move(background_);
    log_thread = std::move(log_thread_);
    work_.SignalAll();
    log_wake_.SignalAll();
    progress_.SignalAll();
    pace_.SignalAll();
  }
}

absl::Status DBImpl::Close() {
  {
    MutexLock lock(&mutex_);
    while (state_ == State::kClosing) progress_.Wait(&mutex_);
    if (state_ != State::kOpen) return absl::OkStatus();
    const size_t iterators = iterators_.size(), snapshots = snapshots_->size();
    if (iterators + snapshots > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("end all iterators and snapshots before Close: alive are ", iterators,
                       iterators == 1 ? " iterator and " : " iterators and ", snapshots,
                       snapshots == 1 ? " snapshot" : " snapshots"));
    }
    state_ = State::kClosing;
  }
  return FinishClose();
}

absl::Status DBImpl::FinishClose() {
  absl::Status status;
  if (!options_.read_only) {
    // Behind every writer that is there; no other comes.
    Writer sync{Writer::Kind::kSync};
    sync.durable = sync.own = true;
    status = Enqueue(&sync);
    // What does not fit into a table now stays in the log, which the next open replays.
    if (status.ok()) {
      if (absl::Status s = FlushMemtable(true); !s.ok() && !absl::IsResourceExhausted(s))
        status = s;
    }
  }
  StopThreads();
  MutexLock lock(&mutex_);
  // After a failure some may still be on their way out.
  while (!writers_.empty() || background_busy_) progress_.Wait(&mutex_);
  if (!options_.read_only && status.ok() && failed_.ok()) {
    if (memtable_->table.empty() && sealed_ == nullptr && !unfinished_) {
      VersionEdit edit;
      for (const auto& [id, segment] : version_->segments) edit.release_segments.push_back(id);
      edit.last_sequence = last_sequence_;
      edit.clean = true;
      status = Install(std::move(edit));
      if (status.ok()) {
        // Nobody has it open: from here on the last edit is known to be durable in both copies.
        Superblock next = SuccessorOf(superblock_, superblock_.generation + 1);
        if (!PLANT("close.keep_the_owner")) next.owner = Owner();
        if (!PLANT("close.no_superblock")) status = WriteSuperblocks(io_, next);
      }
      if (absl::IsResourceExhausted(status))
        status = absl::OkStatus();  // as after a crash: complete
    } else {
      // Written beside Close, or no room for a table: it stays in the log, vouched for.
      status = log_->MakeDurable();
      if (status.ok() && log_->mark_is_due()) status = log_->AppendMark(next_sequence_);
      if (status.ok()) status = log_->MakeDurable();
    }
  }
  if (status.ok()) status = failed_;
  state_ = State::kClosed;
  since_unix_ms_ = env_.clock->UnixMs();
  progress_.SignalAll();
  log_.reset();
  view_.reset();
  version_.reset();
  files_.reset();
  return status;
}

DBImpl::~DBImpl() {
  std::vector<std::shared_ptr<IteratorState>> left;
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, state] : iterators_) left.push_back(state);
    iterators_.clear();
  }
  for (const auto& state : left) {
    MutexLock lock(&state->mutex);
    state->LetGo();
    state->db = nullptr;
  }
  bool open;
  {
    MutexLock lock(&mutex_);
    open = state_ == State::kOpen;
    if (open) state_ = State::kClosing;  // snapshots may be alive
  }
  if (open) {
    FinishClose().IgnoreError();
  } else {
    StopThreads();
  }
}

}  // namespace ashlar
