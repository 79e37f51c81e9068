// info, check and dump --skip-damaged: the store as it lies on its device, read-only.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/base/limits.h"
#include "engine/base/status.h"
#include "engine/db/db_impl.h"
#include "engine/db/sizing.h"
#include "engine/db/store_file.h"
#include "engine/db/store_iterator.h"
#include "engine/format/entry.h"
#include "engine/version/manifest_log.h"
#include "engine/version/superblock_store.h"
#include "engine/wal/record_reader.h"

namespace ashlar {
namespace {

constexpr uint32_t kBufferBytes = 128u << 10;
constexpr uint64_t kCheckCacheBytes = 16u << 20;
constexpr size_t kDamageMax = 1000;

// "NAME: PLACE: REASON", as the floors below write it.
Damage Split(absl::string_view message) {
  const std::string text(message);
  Damage d;
  const size_t first = text.find(": ");
  const size_t second = first == std::string::npos ? first : text.find(": ", first + 2);
  if (second == std::string::npos) {
    d.detail = text;
    return d;
  }
  d.what = text.substr(0, first);
  d.where = text.substr(first + 2, second - first - 2);
  d.detail = text.substr(second + 2);
  return d;
}

struct Loaded {
  std::unique_ptr<ExtentIo> io;
  SuperblockScan scan;
  ManifestState manifest;
};

absl::StatusOr<SuperblockScan> Scan(io::Device* device) {
  ASSIGN_OR_RETURN(auto probe, ExtentIo::Create(device, kMinExtentBytes, 1, kPageBytes, 0));
  return ReadSuperblocks(probe.get());
}

absl::Status LoadManifest(io::Device* device, Loaded* loaded) {
  const Superblock& sb = loaded->scan.current;
  ASSIGN_OR_RETURN(loaded->io,
                   ExtentIo::Create(device, sb.extent_bytes, 2, kBufferBytes, 0, sb.lba_bytes));
  ASSIGN_OR_RETURN(loaded->manifest, ReadManifest(loaded->io.get(), sb));
  return loaded->manifest.last_edit;
}

}  // namespace

absl::StatusOr<StoreInfo> InspectDevice(io::Device* device) {
  Loaded loaded;
  ASSIGN_OR_RETURN(loaded.scan, Scan(device));
  RETURN_IF_ERROR(LoadManifest(device, &loaded));
  const Superblock& sb = loaded.scan.current;
  const Version& version = *loaded.manifest.version;
  ASSIGN_OR_RETURN(const ExtentMap space, DeriveSpace(sb, version));
  StoreInfo info;
  info.store_id = FormatStoreId(sb.store);
  info.format_version = sb.format_version;
  info.epoch = sb.epoch;
  info.generation = sb.generation;
  info.clean = version.clean;
  info.device_bytes = device->geometry().capacity_bytes();
  info.store_bytes = sb.store_bytes;
  info.lba_bytes = sb.lba_bytes;
  info.extent_bytes = sb.extent_bytes;
  info.extents_total = space.total();
  info.extents_superblock = space.superblock();
  info.extents_free = space.free();
  info.extents_manifest = 2 * sb.manifest_extents[0].size();
  info.last_sequence = version.last_sequence;
  info.device = device->Describe();
  ASSIGN_OR_RETURN(const Sizing sizing, ComputeSizing(sb.store_bytes, sb.extent_bytes, sb.lba_bytes,
                                                      Options().memory_bytes));
  info.reserve_bytes = sizing.reserve_writes * sb.extent_bytes;
  for (const TablePtr& t : version.AllTables()) {
    TableInfo table;
    table.id = t->id.raw();
    table.level = t->level;
    table.entries = t->entries;
    table.bytes = t->extents.size() * uint64_t{sb.extent_bytes};
    table.smallest = t->smallest;
    table.largest = t->largest;
    for (const ExtentId e : t->extents) table.extents.push_back(Raw(e));
    info.extents_table += t->extents.size();
    info.tables.push_back(std::move(table));
  }
  for (const auto& [id, segment] : version.segments) {
    auto& extents = info.log_segments.emplace_back();
    for (const ExtentId e : segment.extents) extents.push_back(Raw(e));
    info.extents_log += segment.extents.size();
  }
  return info;
}

absl::StatusOr<CheckReport> CheckDevice(io::Device* device, const Progress& progress) {
  CheckReport report;
  const auto add = [&](Damage damage) {
    if (report.damage_total++ < kDamageMax) report.damage.push_back(std::move(damage));
  };
  Loaded loaded;
  auto scan = Scan(device);
  if (absl::IsDataLoss(scan.status())) {
    add(Split(scan.status().message()));
    return report;
  }
  RETURN_IF_ERROR(scan.status());
  loaded.scan = *std::move(scan);
  const Superblock& sb = loaded.scan.current;
  for (const auto& [copy, why] : loaded.scan.damaged) {
    add({absl::StrCat("superblock copy ", copy),
         absl::StrCat("byte ", SuperblockPlace(copy, sb.store_bytes)), why});
  }
  if (absl::Status s = LoadManifest(device, &loaded); !s.ok()) {
    if (!absl::IsDataLoss(s)) return s;
    add(Split(s.message()));
    return report;
  }
  const Version& version = *loaded.manifest.version;
  for (const auto& [what, where] : loaded.manifest.damaged) {
    add({what, where, "a record does not verify; the other copy's does"});
  }
  if (auto space = DeriveSpace(sb, version); !space.ok()) {
    add({"space", "", std::string(space.status().message())});
  }

  IndexCache cache(kCheckCacheBytes);
  const TableReader tables(loaded.io.get(), &cache, sb.store);
  const DamageSink sink = [&](const std::string& name, const absl::Status& why) {
    Damage d = Split(why.message());
    if (d.what.empty()) d.what = name;
    add(std::move(d));
  };
  uint64_t done = 0, total = 0;
  const std::vector<TablePtr> all = version.AllTables();
  for (const TablePtr& t : all) total += t->extents.size() * uint64_t{sb.extent_bytes};
  for (const TablePtr& t : all) {
    tables.Verify(*t, sink, &report.pages_verified, &report.entries);
    done += t->extents.size() * uint64_t{sb.extent_bytes};
    if (progress) progress(done, total);
  }

  ReplayReport replay;
  const absl::Status log = ReplayRecords(
      loaded.io.get(), sb.store, LogStreams(version),
      [](SequenceNumber, std::string_view payload) -> absl::Status {
        Cursor in(payload);
        for (Entry entry; !in.done();) RETURN_IF_ERROR(DecodeEntry(&in, &entry));
        return absl::OkStatus();
      },
      [&](const std::string& name, const absl::Status& why) { sink(name, why); }, &replay);
  report.log_records = replay.records;
  if (!log.ok()) sink("log", log);
  return report;
}

absl::StatusOr<std::vector<Damage>> SalvageDevice(
    io::Device* device,
    const std::function<absl::Status(std::string_view key, std::string_view value)>& emit) {
  std::vector<Damage> damage;
  const DamageSink sink = [&](const std::string& name, const absl::Status& why) {
    if (damage.size() >= kDamageMax) return;
    Damage d = Split(why.message());
    if (d.what.empty()) d.what = name;
    damage.push_back(std::move(d));
  };
  ASSIGN_OR_RETURN(auto db, DBImpl::OpenForRescue(device, sink));
  ASSIGN_OR_RETURN(const ViewPtr view, db->TakeView());
  const auto it = NewViewIterator(*view, sink);
  std::string last;
  bool any = false;
  for (it->SeekToFirst(); it->Valid();) {
    const bool older = any && it->key() == last;
    const bool shown = !older && it->kind() == EntryKind::kValue;
    // A value that is damaged has been reported, and the stream has moved on; an older one may
    // follow.
    if (shown && !it->LoadValue()) continue;
    any = true;
    last.assign(it->key());
    if (shown) RETURN_IF_ERROR(emit(it->key(), it->value()));
    it->Next();
  }
  RETURN_IF_ERROR(it->status());
  return damage;
}

// ---- by path ----

namespace {

absl::Status At(const std::string& path, const absl::Status& s) {
  return s.ok() ? s : absl::Status(s.code(), absl::StrCat(path, ": ", s.message()));
}

// What `call` says of the device at `path`, its errors naming the path.
template <typename T>
absl::StatusOr<T> OnDevice(const std::string& path,
                           const std::function<absl::StatusOr<T>(io::Device*)>& call) {
  ASSIGN_OR_RETURN(const auto device, io::OpenDevice(path, io::OpenMode::kReadOnly));
  absl::StatusOr<T> result = call(device.get());
  if (!result.ok()) return At(path, result.status());
  return result;
}

}  // namespace

absl::StatusOr<StoreInfo> InspectStore(const std::string& path) {
  return OnDevice<StoreInfo>(path, InspectDevice);
}

absl::StatusOr<CheckReport> CheckStore(const std::string& path, const Progress& progress) {
  return OnDevice<CheckReport>(path,
                               [&](io::Device* device) { return CheckDevice(device, progress); });
}

absl::StatusOr<std::vector<Damage>> SalvageStore(
    const std::string& path,
    const std::function<absl::Status(std::string_view key, std::string_view value)>& emit) {
  return OnDevice<std::vector<Damage>>(
      path, [&](io::Device* device) { return SalvageDevice(device, emit); });
}

}  // namespace ashlar
