#include "tests/support/crash_rig.h"

#include <malloc.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

constexpr int kRandomSubsets = 4;
constexpr char kExtraKey[] = "~ written after the crash";
constexpr char kExtraValue[] = "and durable";

uint64_t Mix(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t parts[] = {a, b, c};
  return Checksum(parts, sizeof parts, 7);
}
uint64_t WholeId(uint32_t command) { return Mix(command, 0, UINT64_MAX); }

uint64_t Blocks(const Recording::Command& command, uint64_t lba_bytes) {
  uint64_t bytes = 0;
  for (const auto& s : command.stretches) bytes += s.bytes.size();
  return bytes / lba_bytes;
}

bool Overlap(const Recording::Command& a, const Recording::Command& b) {
  for (const auto& x : a.stretches) {
    for (const auto& y : b.stretches) {
      if (x.at < y.at + y.bytes.size() && y.at < x.at + x.bytes.size()) return true;
    }
  }
  return false;
}

// LBAs [begin, end) of a command, counted over its stretches.
template <typename Put>
void PutBlocks(const Recording::Command& command, uint64_t lba_bytes, uint64_t begin, uint64_t end,
               const Put& put) {
  uint64_t first = 0;
  for (const auto& s : command.stretches) {
    const uint64_t blocks = s.bytes.size() / lba_bytes;
    const uint64_t from = std::clamp(begin, first, first + blocks) - first;
    const uint64_t to = std::clamp(end, first, first + blocks) - first;
    if (from < to) {
      put(s.at + from * lba_bytes,
          std::span(s.bytes).subspan(from * lba_bytes, (to - from) * lba_bytes));
    }
    first += blocks;
  }
}

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

void RecordedStore::Open() {
  auto db = DBImpl::Open(SmallOptions(), device_, nullptr, FixedEnv());
  if (!db.ok()) fprintf(stderr, "%s\n", db.status().ToString().c_str());
  CHECK(db.ok());
  db_ = *std::move(db);
  Mark(false);
}

void RecordedStore::Write(const std::vector<StoreModel::Change>& changes, Durability durability) {
  WriteBatch batch;
  for (const auto& [key, value] : changes) {
    if (value) {
      batch.Put(key, *value);
    } else {
      batch.Delete(key);
    }
  }
  model_->Commit(changes);
  Mark(false);
  WriteOptions options;
  options.durability = durability;
  const absl::Status s = db_->Write(options, batch);
  if (!s.ok()) fprintf(stderr, "%s\n", s.ToString().c_str());
  CHECK(s.ok());
  Mark(durability == Durability::kDurable);
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
void RecordedStore::Close() {
  CHECK(db_->Close().ok());
  db_.reset();
  Mark(true);
}
void RecordedStore::Die() {
  device_->set_dead(true);
  db_.reset();
  device_->set_dead(false);
}

// ---- summary ----

std::string RecordingSummary::Text() const {
  return absl::StrCat(superblock_updates, " superblock updates, ", manifests, " manifests, ", edits,
                      " edits, ", flushes, " flushes, ", merge_steps, " merge steps (",
                      shortening_steps, " shorten), ", log_writes, " log writes");
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
    bool level0 = false, level1 = !edit.remove_tables.empty() || !edit.shorten_tables.empty();
    for (const TableMeta& t : edit.add_tables) (t.level == 0 ? level0 : level1) = true;
    summary.flushes += level0;
    summary.merge_steps += level1;
    summary.shortening_steps += !edit.shorten_tables.empty();
  }
  return summary;
}

// ---- images ----

std::string CrashImage::Text() const {
  return absl::StrCat(
      "cut after ", events, " events (", least, " to ", most, " commits), kept [",
      absl::StrJoin(kept, " "), "]",
      torn ? absl::StrCat(", command ", *torn, " torn to LBAs ", torn_begin, " to ", torn_end)
           : "");
}

CrashCounts& CrashCounts::operator+=(const CrashCounts& o) {
  cuts += o.cuts;
  images += o.images;
  distinct += o.distinct;
  return *this;
}

std::string CrashCounts::Text() const {
  return absl::StrCat(cuts, " cuts, ", images, " images, ", distinct, " distinct");
}

uint64_t CrashRig::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

absl::Status CrashRig::MakeDurable(uint32_t command) {
  const auto it = std::find_if(unflushed_.begin(), unflushed_.end(),
                               [&](const Unflushed& u) { return u.command == command; });
  if (it == unflushed_.end()) return absl::OkStatus();
  unflushed_.erase(it);
  const Recording::Command& c = recording_.commands[command];
  for (const auto& s : c.stretches) device_->WriteBase(s.at, s.bytes);
  durable_id_ += WholeId(command);
  return absl::OkStatus();
}

absl::Status CrashRig::Happen(const Recording::Event& event) {
  const Recording::Command& c = recording_.commands[event.command];
  const bool submitted = event.kind == Recording::Event::Kind::kSubmitted;
  if (c.op == io::Op::kFlush) {
    if (submitted) {
      for (const Unflushed& u : unflushed_) {
        if (u.given_back) flushing_[event.command].push_back(u.command);
      }
      return absl::OkStatus();
    }
    for (const uint32_t covered : flushing_[event.command]) RETURN_IF_ERROR(MakeDurable(covered));
    flushing_.erase(event.command);
    return absl::OkStatus();
  }
  if (submitted) {
    // The store never writes a block twice before the first write is durable: of two such writes
    // the older can come out over the newer.
    for (const Unflushed& u : unflushed_) {
      if (!Overlap(recording_.commands[u.command], c)) continue;
      return absl::InternalError(absl::StrCat(
          "command ", event.command, " writes at byte ", c.stretches[0].at, ", where command ",
          u.command, u.given_back ? ", not durable yet," : ", still in flight,", " wrote"));
    }
    unflushed_.push_back({event.command, false});
    return absl::OkStatus();
  }
  for (Unflushed& u : unflushed_) {
    if (u.command == event.command) u.given_back = true;
  }
  return c.fua ? MakeDurable(event.command) : absl::OkStatus();
}

void CrashRig::Place(const CrashImage& image) {
  const uint64_t lba_bytes = recording_.lba_bytes;
  const auto put = [&](uint64_t at, std::span<const std::byte> bytes) {
    device_->Write(at, bytes);
  };
  for (const uint32_t k : image.kept) {
    PutBlocks(recording_.commands[k], lba_bytes, 0, UINT64_MAX, put);
  }
  if (image.torn) {
    PutBlocks(recording_.commands[*image.torn], lba_bytes, image.torn_begin, image.torn_end, put);
  }
}

absl::Status CrashRig::VisitImage(CrashImage image, const Visit& visit, double share,
                                  CrashCounts* counts) {
  ++counts->images;
  image.id = durable_id_;
  for (const uint32_t k : image.kept) image.id += WholeId(k);
  if (image.torn) image.id += Mix(*image.torn, image.torn_begin, image.torn_end);
  const auto it = seen_.find(image.id);
  // The same bytes at a later cut: more may have been acknowledged by then.
  if (it != seen_.end() && it->second >= image.least) return absl::OkStatus();
  if (it == seen_.end()) {
    const double place = static_cast<double>(Mix(image.id, 1, 1) % 1'000'000) / 1'000'000;
    if (place >= share) return absl::OkStatus();
    ++counts->distinct;
  }
  Place(image);
  const absl::StatusOr<uint32_t> found = visit(image);
  device_->Undo();
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat(image.Text(), ": ", found.status().message()));
  }
  seen_[image.id] = *found;
  return absl::OkStatus();
}

absl::Status CrashRig::VisitCut(size_t events, const Visit& visit, double share,
                                CrashCounts* counts) {
  ++counts->cuts;
  CrashImage image;
  image.events = events;
  while (marker_ < recording_.markers.size() && recording_.markers[marker_].events <= events) {
    ++marker_;
  }
  if (marker_ > 0) {
    image.least = recording_.markers[marker_ - 1].durable;
    image.most = recording_.markers[marker_ - 1].started;
  }
  std::vector<uint32_t> all;
  for (const Unflushed& u : unflushed_) all.push_back(u.command);
  const auto with = [&](std::vector<uint32_t> kept) {
    CrashImage i = image;
    i.kept = std::move(kept);
    return VisitImage(std::move(i), visit, share, counts);
  };
  RETURN_IF_ERROR(with({}));
  if (all.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(with(all));
  for (size_t i = 0; all.size() > 1 && i < all.size(); ++i) {
    RETURN_IF_ERROR(with({all[i]}));
    std::vector<uint32_t> rest = all;
    rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
    RETURN_IF_ERROR(with(std::move(rest)));
  }
  for (int r = 0; all.size() > 3 && r < kRandomSubsets; ++r) {
    std::vector<uint32_t> some;
    for (const uint32_t c : all) {
      if (Random() % 2 == 0) some.push_back(c);
    }
    RETURN_IF_ERROR(with(std::move(some)));
  }
  const uint64_t blocks = Blocks(recording_.commands[all.back()], recording_.lba_bytes);
  if (blocks > 1) {
    image.torn = all.back();
    image.kept.assign(all.begin(), all.end() - 1);
    image.torn_begin = 0;
    image.torn_end = blocks / 2;
    RETURN_IF_ERROR(VisitImage(image, visit, share, counts));
    image.torn_begin = blocks / 2;
    image.torn_end = blocks;
    RETURN_IF_ERROR(VisitImage(image, visit, share, counts));
  }
  return absl::OkStatus();
}

absl::Status CrashRig::Run(const Visit& visit, double share, CrashCounts* counts) {
  RETURN_IF_ERROR(VisitCut(0, visit, share, counts));
  for (size_t e = 0; e < recording_.events.size(); ++e) {
    RETURN_IF_ERROR(Happen(recording_.events[e]));
    RETURN_IF_ERROR(VisitCut(e + 1, visit, share, counts));
  }
  return absl::OkStatus();
}

void CrashRig::Build(const CrashImage& image, ImageDevice* device) const {
  CrashRig replay(recording_, device, 1);
  for (size_t e = 0; e < image.events; ++e) CHECK(replay.Happen(recording_.events[e]).ok());
  replay.Place(image);
  device->Keep();
}

// ---- what must hold of an image ----

namespace {

absl::Status Clean(io::Device* device, absl::string_view when) {
  ASSIGN_OR_RETURN(const CheckReport report, CheckDevice(device, nullptr));
  if (report.damage_total == 0) return absl::OkStatus();
  const Damage& d = report.damage.front();
  return absl::DataLossError(absl::StrCat("check ", when, " reports ", report.damage_total,
                                          " damages, the first: ", d.what, ": ", d.where, ": ",
                                          d.detail));
}

}  // namespace

absl::StatusOr<uint32_t> CheckCrashImage(io::Device* device, const StoreModel& model,
                                         uint32_t least, uint32_t most, uint64_t salt) {
  RETURN_IF_ERROR(Clean(device, "of the image"));
  uint32_t prefix;
  {
    ASSIGN_OR_RETURN(auto db, DBImpl::Open(SmallOptions(), device, nullptr, FixedEnv()));
    ASSIGN_OR_RETURN(prefix, model.Match(db.get(), least, most, salt, {}));
    RETURN_IF_ERROR(db->Put(WriteOptions(), kExtraKey, kExtraValue));
    RETURN_IF_ERROR(db->Close());
  }
  RETURN_IF_ERROR(Clean(device, "after reopening"));
  Options options = SmallOptions();
  options.read_only = true;
  ASSIGN_OR_RETURN(auto db, DBImpl::Open(options, device, nullptr, FixedEnv()));
  RETURN_IF_ERROR(
      model.Match(db.get(), prefix, prefix, salt + 1, {{kExtraKey, kExtraValue}}).status());
  return prefix;
}

}  // namespace ashlar
