#include "tests/support/crash_rig.h"

#include <malloc.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/base/status.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"
#include "engine/format/log_format.h"
#include "engine/format/manifest_format.h"
#include "io/arena.h"
#include "io/check.h"

namespace ashlar {
namespace {

class StoppedClock : public Clock {
 public:
  uint64_t NowNs() override { return 1'000'000'000; }
  int64_t UnixMs() override { return 1'700'000'000'000; }
  void SleepNs(uint64_t) override {}
};

constexpr char kExtraKey[] = "~ written after the crash";
constexpr char kExtraValue[] = "and durable";

}  // namespace

void KeepFreedMemory() {
  io::Arena::KeepFreed();
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

Env FixedEnv() {
  static StoppedClock* const clock = new StoppedClock;
  return {clock, InlineExecutor()};
}

Options SmallOptions() {
  Options options;
  options.memory_bytes = 2u << 20;
  return options;
}

StoreId FixedStoreId() {
  StoreId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(0x51 + 7 * i);
  return id;
}

// ---- workload ----

void RecordedStore::Mark(bool durable) {
  if (durable) durable_ = model_->commits();
  recording_->markers.push_back({recording_->events.size(), model_->commits(), durable_});
}

RecordedStore::~RecordedStore() {
  db_.reset();
  EndWatch();
}

void RecordedStore::EndWatch() {
  if (monitor_ == nullptr) return;
  if (!monitor_->violation().empty()) fprintf(stderr, "%s\n", monitor_->violation().c_str());
  CHECK(monitor_->violation().empty());
  device_->set_observer(nullptr);
  monitor_.reset();
}

void RecordedStore::Open() {
  EndWatch();
  monitor_ = std::make_unique<OrderingMonitor>(device_->geometry(), contents_);
  CHECK(monitor_->watching());
  device_->set_observer(monitor_.get());
  auto db = DBImpl::Open(SmallOptions(), device_, nullptr,
                         {&clock_, InlineExecutor(), level_base_bytes_});
  if (!db.ok()) fprintf(stderr, "%s\n", db.status().ToString().c_str());
  CHECK(db.ok());
  db_ = *std::move(db);
  Settle();
}

// What the store shows when it was opened is durable. What a process that was killed had not handed
// to the device is gone: that counts as one more commit, which takes it back.
void RecordedStore::Settle() {
  const auto found = model_->Match(db_.get(), durable_, model_->commits(), 0, {});
  if (!found.ok()) fprintf(stderr, "%s\n", found.status().ToString().c_str());
  CHECK(found.ok());
  if (*found < model_->commits()) {
    std::vector<StoreModel::Change> changes;
    for (const std::string& key : model_->Keys()) {
      const std::string* const before = model_->At(model_->commits(), key);
      const std::string* const now = model_->At(*found, key);
      if (before == nullptr && now == nullptr) continue;
      if (before != nullptr && now != nullptr && *before == *now) continue;
      changes.emplace_back(key, now == nullptr ? std::nullopt : std::optional(*now));
    }
    model_->Commit(changes);
  }
  Mark(true);
}

absl::Status RecordedStore::Apply(const std::vector<StoreModel::Change>& changes,
                                  Durability durability) {
  WriteOptions options;
  options.durability = durability;
  return db_->Write(options, StoreModel::BatchOf(changes));
}

void RecordedStore::Write(const std::vector<StoreModel::Change>& changes, Durability durability) {
  model_->Commit(changes);
  Mark(false);
  const absl::Status s = Apply(changes, durability);
  if (!s.ok()) fprintf(stderr, "%s\n", s.ToString().c_str());
  CHECK(s.ok());
  if (durability == Durability::kDurable) {
    for (const auto& [key, value] : changes) monitor_->Acknowledged(key, value);
  }
  Mark(durability == Durability::kDurable);
}

bool RecordedStore::WriteIfRoom(const std::vector<StoreModel::Change>& changes,
                                Durability durability) {
  const size_t before = recording_->events.size();
  const absl::Status s = Apply(changes, durability);
  if (absl::IsResourceExhausted(s)) return false;
  CHECK(s.ok());
  model_->Commit(changes);
  recording_->markers.push_back({before, model_->commits(), durable_});
  Mark(durability == Durability::kDurable);
  return true;
}

void RecordedStore::Wait(uint64_t ns) {
  clock_.SleepNs(ns);
  db_->RunLogTimers();
}

void RecordedStore::Sync() {
  CHECK(db_->Sync().ok());
  Mark(true);
}
void RecordedStore::Flush() {
  CHECK(db_->Flush().ok());
  Mark(true);
}
void RecordedStore::MergeAll() {
  CHECK(db_->MergeAll().ok());
  Mark(true);
}
void RecordedStore::Background() {
  db_->RunBackground();
  CHECK(db_->health().cause.ok());
  Mark(false);
}
void RecordedStore::Close() {
  CHECK(db_->Close().ok());
  db_.reset();
  Mark(true);
  EndWatch();
}
void RecordedStore::Die() {
  device_->set_dead(true);
  db_.reset();
  device_->set_dead(false);
  EndWatch();
}

// ---- summary ----

std::string RecordingSummary::Text() const {
  return absl::StrCat(superblock_updates, " superblock updates, ", manifests, " manifests, ", edits,
                      " edits, ", flushes, " flushes, ", merge_steps, " merge steps (",
                      shortening_steps, " shorten), ", moves, " moves, ", log_writes,
                      " log writes to ", segments, " segments, ", marks, " of them marks");
}

RecordingSummary Summarise(const Recording& recording, const StoreId& store, uint64_t store_bytes) {
  RecordingSummary summary;
  std::set<uint64_t> manifests;
  for (const Recording::Command& c : recording.commands) {
    if (c.op != io::Op::kWrite) continue;
    const auto& [at, bytes] = c.stretches[0];
    Superblock sb;
    std::string detail;
    if (at != SuperblockPlace(0, store_bytes) ||
        ParseSuperblock(bytes.data(), 0, &sb, &detail) != SuperblockParse::kOk) {
      continue;
    }
    ++summary.superblock_updates;
    manifests.insert(sb.manifest.raw());
  }
  std::set<std::pair<uint64_t, uint64_t>> places;  // an edit is written twice
  std::map<uint32_t, WriteId> in_flight;           // log writes
  std::set<uint64_t> segments;
  for (const Recording::Event& event : recording.events) {
    if (event.kind == Recording::Event::Kind::kGivenBack) {
      in_flight.erase(event.command);
      continue;
    }
    const Recording::Command& c = recording.commands[event.command];
    if (c.op != io::Op::kWrite) continue;
    const auto& bytes = c.stretches[0].bytes;
    if (bytes.size() < kRecordHeaderBytes) continue;
    const LogPosition position = {LoadLe<uint64_t>(bytes.data() + 24),
                                  LoadLe<uint64_t>(bytes.data() + 32)};
    RecordHeader header;
    std::string_view payload;
    if (ParseRecord(bytes, position, StreamSeed(store, WriteId::FromRaw(position.stream)), &header,
                    &payload) != RecordParse::kOk) {
      continue;
    }
    if (manifests.count(position.stream) == 0) {
      ++summary.log_writes;
      summary.marks += header.kind == RecordKind::kMark;
      summary.segments += segments.insert(position.stream).second;
      in_flight[event.command] = WriteId::FromRaw(position.stream);
      continue;
    }
    VersionEdit edit;
    if (!header.first || !header.last || !DecodeEdit(payload, &edit).ok() ||
        !places.insert({position.stream, position.offset}).second) {
      continue;
    }
    if (edit.snapshot_end) {
      ++summary.manifests;
      continue;
    }
    ++summary.edits;
    for (const auto& [command, segment] : in_flight) {
      const auto& released = edit.release_segments;
      summary.released_in_flight += std::count(released.begin(), released.end(), segment);
    }
    bool merges = !edit.remove_tables.empty() || !edit.shorten_tables.empty();
    for (const TableMeta& t : edit.add_tables) merges |= t.level > 0;
    summary.flushes += !merges && !edit.add_tables.empty();
    summary.merge_steps += merges;
    summary.moves += edit.move_tables.size();
    summary.shortening_steps += !edit.shorten_tables.empty();
  }
  return summary;
}

// ---- what must hold of an image ----

absl::Status CheckClean(io::Device* device, std::string_view when,
                        const std::function<bool(const Damage&)>& spare) {
  ASSIGN_OR_RETURN(const CheckReport report, CheckDevice(device, nullptr));
  for (const Damage& d : report.damage) {
    if (spare && spare(d)) continue;
    return absl::DataLossError(absl::StrCat("check ", std::string(when), " reports ",
                                            report.damage_total, " damages, one of them: ", d.what,
                                            ": ", d.where, ": ", d.detail));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> CheckCrashImage(io::Device* device, const StoreModel& model,
                                         uint32_t least, uint32_t most, uint64_t salt,
                                         bool may_be_full) {
  RETURN_IF_ERROR(CheckClean(device, "of the image"));
  return CheckOpens(device, model, least, most, salt, may_be_full);
}

absl::StatusOr<uint32_t> CheckOpens(io::Device* device, const StoreModel& model, uint32_t least,
                                    uint32_t most, uint64_t salt, bool may_be_full) {
  std::vector<std::pair<std::string, std::string>> extra = {{kExtraKey, kExtraValue}};
  uint32_t prefix;
  {
    ASSIGN_OR_RETURN(auto db, DBImpl::Open(SmallOptions(), device, nullptr, FixedEnv()));
    ASSIGN_OR_RETURN(prefix, model.Match(db.get(), least, most, salt, {}));
    const absl::Status s = db->Put(WriteOptions(), kExtraKey, kExtraValue);
    if (absl::IsResourceExhausted(s) && may_be_full) {
      extra.clear();
    } else {
      RETURN_IF_ERROR(s);
    }
    RETURN_IF_ERROR(db->Close());
  }
  RETURN_IF_ERROR(CheckClean(device, "after reopening"));
  Options options = SmallOptions();
  options.read_only = true;
  ASSIGN_OR_RETURN(auto db, DBImpl::Open(options, device, nullptr, FixedEnv()));
  RETURN_IF_ERROR(model.Match(db.get(), prefix, prefix, salt + 1, extra).status());
  return prefix;
}

}  // namespace ashlar
