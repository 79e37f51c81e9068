#include "tests/damage/subject.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/admin/store_admin.h"
#include "engine/base/limits.h"
#include "engine/format/checksum.h"
#include "engine/format/log_format.h"
#include "engine/format/page.h"
#include "engine/space/extent_io.h"
#include "engine/version/manifest_log.h"
#include "engine/version/superblock_store.h"
#include "io/check.h"
#include "io/memory_device.h"

namespace ashlar {
namespace {

const std::byte kZeros[kPageBytes] = {};

void Replay(const Life& life, size_t commands, ImageDevice* device) {
  if (life.before != nullptr) {
    Replay(*life.before, life.before->recording.commands.size(), device);
  }
  for (size_t c = 0; c < commands; ++c) {
    for (const auto& s : life.recording.commands[c].stretches) device->WriteBase(s.at, s.bytes);
  }
}

}  // namespace

Life::Life(uint32_t lba, const StoreId& store, const std::function<void(RecordedStore&)>& workload,
           const Life* first)
    : lba_bytes(lba), id(store), before(first) {
  KeepFreedMemory();
  const auto memory = *io::MemoryDevice::Create({.bytes = kStoreBytes, .lba_bytes = lba_bytes});
  if (before != nullptr) {
    const auto image = before->At(before->recording.commands.size());
    std::memcpy(memory->contents().data(), image->contents().data(), kStoreBytes);
  }
  {
    RecordingDevice recorder(memory.get(), &recording);
    CHECK(FormatDevice(&recorder, kExtentBytes, id).ok());
    RecordedStore store_of_it(&recorder, &recording, &model, memory->contents());
    workload(store_of_it);
  }
  size_t events = 0, commands = 0;
  for (const Recording::Marker& m : recording.markers) {
    for (; events < m.events; ++events) {
      commands += recording.events[events].kind == Recording::Event::Kind::kSubmitted;
    }
    if (moments_.empty() || moments_.back().commands != commands) moments_.push_back({});
    moments_.back() = {commands, m.started, m.durable};
  }
  if (moments_.back().commands != recording.commands.size()) {
    moments_.push_back(
        {recording.commands.size(), moments_.back().started, moments_.back().durable});
  }
  for (size_t c = 0; c < recording.commands.size(); ++c) {
    for (const auto& s : recording.commands[c].stretches) {
      for (uint64_t at = 0; at < s.bytes.size(); at += lba_bytes) {
        lbas_[s.at + at].emplace_back(c, s.bytes.data() + at);
      }
    }
  }
}

std::unique_ptr<ImageDevice> Life::At(size_t commands) const {
  io::Geometry geometry;
  geometry.lba_bytes = lba_bytes;
  geometry.capacity_blocks = kStoreBytes / lba_bytes;
  geometry.max_transfer_bytes = 1u << 20;
  geometry.volatile_cache = true;
  geometry.native_fua = true;
  auto device = std::make_unique<ImageDevice>(geometry);
  Replay(*this, commands, device.get());
  return device;
}

std::span<const std::byte> Life::LbaAt(uint64_t at, size_t commands) const {
  const auto it = lbas_.find(at);
  const std::byte* bytes = nullptr;
  if (it != lbas_.end()) {
    for (const auto& [command, written] : it->second) {
      if (command < commands) bytes = written;
    }
  }
  if (bytes == nullptr && before != nullptr) return before->LbaAt(at, SIZE_MAX);
  return {bytes == nullptr ? kZeros : bytes, lba_bytes};
}

Subject::Subject(const Life& of, const Life::Moment& when)
    : life(of), moment(when), device(of.At(when.commands)), model(of.model), keys(model.Keys()) {
  FindLive();
  std::sort(live.begin(), live.end(),
            [](const Live& a, const Live& b) { return a.begin < b.begin; });
  std::set<uint64_t> all;
  for (const Live& l : live) {
    for (uint64_t at = l.begin / life.lba_bytes * life.lba_bytes; at < l.end;
         at += life.lba_bytes) {
      all.insert(at);
    }
  }
  lbas.assign(all.begin(), all.end());
  for (const auto& [at, writes] : life.lbas()) {
    if (all.count(at) == 0 && writes.front().first < moment.commands) hot.push_back(at);
  }
  // What it shows undamaged is where a damaged one is measured from.
  Options options = SmallOptions();
  options.read_only = true;
  const auto db = DBImpl::Open(options, device.get(), nullptr, FixedEnv());
  CHECK(db.ok());
  const auto shown = model.Match(db->get(), moment.durable, moment.started, 1, {});
  CHECK(shown.ok());
  commits = *shown;
}

std::pair<size_t, size_t> Subject::Touched(uint64_t begin, uint64_t end) const {
  const auto first =
      std::partition_point(live.begin(), live.end(), [&](const Live& l) { return l.end <= begin; });
  const auto last =
      std::partition_point(first, live.end(), [&](const Live& l) { return l.begin < end; });
  return {first - live.begin(), last - live.begin()};
}

const std::vector<std::pair<std::string, std::string>>& Subject::State(uint32_t prefix) {
  const auto [it, is_new] = states_.try_emplace(prefix);
  if (is_new) {
    for (const auto& [key, value] : model.State(prefix)) it->second.emplace_back(key, *value);
  }
  return it->second;
}

void Subject::FindLive() {
  auto io = *ExtentIo::Create(device.get(), kExtentBytes, 2, 128u << 10, 0);
  const SuperblockScan scan = *ReadSuperblocks(io.get());
  CHECK(scan.damaged.empty() && scan.outdated.empty());
  const Superblock& sb = scan.current;
  CHECK(sb.store == life.id);
  closed = sb.owner == Owner();
  const Version version = *ReadManifest(io.get(), sb)->version;

  const auto place = [](const std::vector<ExtentId>& extents, uint64_t offset) {
    return uint64_t{Raw(extents[offset / kExtentBytes])} * kExtentBytes + offset % kExtentBytes;
  };
  const auto walk = [&](WriteId id, const std::vector<ExtentId>& extents,
                        const std::function<void(const RecordHeader&)>& record) {
    std::vector<std::byte> bytes;
    for (const ExtentId e : extents) {
      const auto extent = device->contents().subspan(uint64_t{Raw(e)} * kExtentBytes, kExtentBytes);
      bytes.insert(bytes.end(), extent.begin(), extent.end());
    }
    for (uint64_t at = 0; at < bytes.size();) {
      RecordHeader header;
      std::string_view payload;
      if (ParseRecord(std::span(bytes).subspan(at), {id.raw(), at}, StreamSeed(life.id, id),
                      &header, &payload) != RecordParse::kOk) {
        at = at / life.lba_bytes * life.lba_bytes + life.lba_bytes;
        continue;
      }
      record(header);
      at += RecordBytes(header.payload_bytes);
    }
  };
  const auto add = [&](const std::vector<ExtentId>& extents, const RecordHeader& h, Part part,
                       uint32_t item, uint32_t copy) {
    const uint64_t end = h.position.offset + kRecordHeaderBytes + h.payload_bytes;
    for (uint64_t at = h.position.offset; at < end;) {
      const uint64_t stop = std::min(end, at / kPageBytes * kPageBytes + kPageBytes);
      const uint64_t begin = place(extents, at);
      live.push_back({begin, begin + (stop - at),
                      place(extents, h.position.offset / kPageBytes * kPageBytes), part, item, copy,
                      at - h.position.offset});
      at = stop;
    }
  };

  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    const uint64_t at = SuperblockPlace(copy, kStoreBytes);
    live.push_back(
        {at, at + kSuperblockBytes, at, Part::kSuperblock, static_cast<uint32_t>(copy), 0});
  }
  for (uint32_t copy = 0; copy < 2; ++copy) {
    manifest_records = 0;
    walk(sb.manifest, sb.manifest_extents[copy], [&](const RecordHeader& h) {
      add(sb.manifest_extents[copy], h, Part::kManifest, manifest_records++, copy);
    });
  }
  uint32_t table = 0;
  for (const auto& list : version.levels) {
    for (const TablePtr& t : list) {
      const uint32_t dropped = t->dropped_extents * (kExtentBytes / kPageBytes);
      for (uint32_t p = dropped; p < t->pages; ++p) {
        const uint64_t at = place(t->extents, uint64_t{p - dropped} * kPageBytes);
        // The kind stands in the page's header; the pages are whole here.
        const PageHeader header = ReadPageHeader(device->contents().data() + at);
        live.push_back({at, at + kPageBytes, at,
                        header.kind == PageKind::kData ? Part::kData : Part::kIndex, table, 0, 0});
      }
      ++table;
    }
  }
  for (const auto& [id, segment] : version.segments) {
    const auto& extents = segment.extents;
    walk(id, extents, [&](const RecordHeader& h) {
      add(extents, h, Part::kLog, static_cast<uint32_t>(log.size()), 0);
      log.push_back({h.position,
                     {h.position.stream, h.position.offset + RecordBytes(h.payload_bytes)},
                     h.durable,
                     h.first_sequence});
    });
  }
  in_tables = model.CommitsBefore(version.last_sequence + 1);
}

}  // namespace ashlar
