#include "tests/support/ordering_monitor.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "engine/base/rounding.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"
#include "engine/format/entry.h"
#include "engine/format/log_format.h"
#include "engine/space/extent_io.h"
#include "engine/version/manifest_log.h"
#include "engine/version/superblock_store.h"
#include "io/check.h"
#include "tests/support/inline_queue.h"

namespace ashlar {
namespace {

// Reads from bytes, at once.
class SpanDevice : public io::Device {
 public:
  SpanDevice(const io::Geometry& geometry, std::span<const std::byte> bytes)
      : geometry_(geometry), bytes_(bytes) {}
  const io::Geometry& geometry() const override { return geometry_; }
  std::string Describe() const override { return "bytes"; }
  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(std::span<io::Device* const>,
                                                       const io::QueueOptions& options,
                                                       const io::Arena& arena) override {
    return std::make_unique<InlineQueue>(
        this, options.depth, arena, [this](const io::Request& r, uint64_t at, std::byte* buffer) {
          CHECK(r.op == io::Op::kRead);
          std::memcpy(buffer, bytes_.data() + at, r.data[0].bytes);
        });
  }

 private:
  const io::Geometry geometry_;
  const std::span<const std::byte> bytes_;
};

uint64_t ChangeHash(EntryKind kind, std::string_view key, std::string_view value) {
  return Checksum(value.data(), value.size(),
                  Checksum(key.data(), key.size(), static_cast<uint64_t>(kind)));
}

}  // namespace

OrderingMonitor::OrderingMonitor(const io::Geometry& geometry, std::span<const std::byte> contents)
    : geometry_(geometry), contents_(contents) {
  SpanDevice device(geometry, contents);
  auto probe = ExtentIo::Create(&device, kMinExtentBytes, 1, 64u << 10, 0);
  if (!probe.ok()) return;
  auto scan = ReadSuperblocks(probe->get());
  if (!scan.ok()) return;
  root_.superblock = scan->current;
  if (!ReadManifestNow(root_.superblock, &root_.version, &root_.manifest_end)) return;
  for (Stream& copy : manifest_) copy.end = root_.manifest_end;
  root_content_ = ContentChecksum(root_.superblock);
  root_.superblock.generation = scan->highest_generation;
  highest_epoch_ = scan->highest_epoch;
  tip_ = root_.version;
  watching_ = true;
  Account();
}

bool OrderingMonitor::ReadManifestNow(const Superblock& sb, std::shared_ptr<const Version>* version,
                                      uint64_t* end) {
  SpanDevice device(geometry_, contents_);
  auto io = ExtentIo::Create(&device, sb.extent_bytes, 2, 256u << 10, 0);
  if (!io.ok()) return false;
  auto manifest = ReadManifest(io->get(), sb);
  if (!manifest.ok() || !manifest->last_edit.ok()) return false;
  *version = manifest->version;
  *end = RoundUp(manifest->end, sb.lba_bytes);
  return true;
}

void OrderingMonitor::Broken(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

std::string OrderingMonitor::Where(const ByteRange& range) const {
  return absl::StrCat("bytes ", range.at, " to ", range.end(), " (extent ",
                      range.at / root_.superblock.extent_bytes, ")");
}

void OrderingMonitor::Account() {
  const Superblock& sb = root_.superblock;
  uses_.assign(sb.store_bytes / sb.extent_bytes + 1, Use::kFree);
  const auto mark = [&](const std::vector<ExtentId>& extents, Use use) {
    for (const ExtentId e : extents) {
      if (Raw(e) < uses_.size()) uses_[Raw(e)] = use;
    }
  };
  const auto mark_version = [&](const Version& version) {
    for (const TablePtr& t : version.AllTables()) mark(t->extents, Use::kTable);
    for (const auto& [id, segment] : version.segments) mark(segment.extents, Use::kSegment);
  };
  mark_version(*root_.version);
  mark_version(*tip_);
  if (next_root_) {
    mark_version(*next_root_->version);
    if (next_root_->superblock.manifest != sb.manifest) {
      for (const auto& c : next_root_->superblock.manifest_extents) mark(c, Use::kNextManifest);
    }
  }
  for (const auto& copy : sb.manifest_extents) mark(copy, Use::kManifest);
  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    uses_[SuperblockPlace(copy, sb.store_bytes) / sb.extent_bytes] = Use::kSuperblock;
  }
}

const OrderingMonitor::Command* OrderingMonitor::Undurable(const std::vector<ExtentId>& extents,
                                                           uint64_t bytes) const {
  const uint64_t extent_bytes = root_.superblock.extent_bytes;
  for (const auto& [id, c] : pending_) {
    if (c.op != io::Op::kWrite) continue;
    uint64_t left = bytes;
    for (const ExtentId e : extents) {
      const uint64_t n = std::min(left, extent_bytes);
      if (n > 0 && c.ranges[0].Overlaps({Raw(e) * extent_bytes, n})) return &c;
      left -= n;
    }
  }
  return nullptr;
}

void OrderingMonitor::Submitted(const ObservedCommand& command) {
  if (!watching_) return;
  Command c{.id = command.id, .op = command.op, .fua = command.fua};
  c.ranges.assign(command.ranges.begin(), command.ranges.end());
  if (command.op == io::Op::kFlush) {
    for (const auto& [id, p] : pending_) {
      if (p.state == Command::State::kCompleted) flushing_[command.id].push_back(id);
    }
    return;
  }
  const uint64_t extent_bytes = root_.superblock.extent_bytes;
  // What failed is written again, with what belonged to the same request and had not failed: the
  // same bytes. They count from here on.
  const bool same =
      command.op == io::Op::kWrite &&
      std::memcmp(contents_.data() + c.ranges[0].at, command.data.data(), command.data.size()) == 0;
  repeats_ = same;
  std::vector<uint64_t> again;
  for (const auto& [id, p] : pending_) {
    for (const ByteRange& r : c.ranges) {
      for (const ByteRange& o : p.ranges) {
        if (!r.Overlaps(o)) continue;
        if (p.state == Command::State::kInFlight) {
          Broken(absl::StrCat("command ", c.id, " at ", Where(r), " while command ", id,
                              " is in flight there"));
        } else if (p.state == Command::State::kCompleted && p.op == io::Op::kWrite && !same &&
                   uses_[r.at / extent_bytes] != Use::kFree) {
          Broken(absl::StrCat("command ", c.id, " at ", Where(r), " over command ", id,
                              ", which is not durable"));
        } else {
          repeats_ |= p.state == Command::State::kFailed;
          again.push_back(id);
        }
      }
    }
  }
  for (const uint64_t id : again) {
    pending_.erase(id);
    if (const auto carried = groups_.find(id); carried != groups_.end()) {
      std::vector<Group> groups = std::move(carried->second);
      groups_.erase(carried);
      for (const Group& group : groups) std::replace(group->begin(), group->end(), id, c.id);
      std::vector<Group>& carries = groups_[c.id];
      carries.insert(carries.end(), groups.begin(), groups.end());
    }
    for (auto& [segment, stream] : logs_) {
      for (Part& part : stream.parts) {
        if (part.command == id) part.command = c.id;
      }
    }
  }
  pending_[c.id] = std::move(c);
  if (command.op == io::Op::kWrite) return Written(command);
  for (const ByteRange& r : command.ranges) {
    for (uint64_t e = r.at / extent_bytes; e * extent_bytes < r.end() && e < uses_.size(); ++e) {
      if (uses_[e] != Use::kFree) {
        Broken(absl::StrCat("command ", command.id, " discards ", Where(r),
                            ", which is in use: ", static_cast<int>(uses_[e])));
      }
    }
  }
}

void OrderingMonitor::Written(const ObservedCommand& command) {
  const ByteRange range = command.ranges[0];
  const Superblock& sb = root_.superblock;
  const uint64_t first = range.at / sb.extent_bytes, last = (range.end() - 1) / sb.extent_bytes;
  if (last >= uses_.size() || range.end() > sb.store_bytes) {
    return Broken(absl::StrCat("command ", command.id, " writes behind the store"));
  }
  for (uint64_t e = first; e <= last; ++e) {
    if (uses_[e] != uses_[first]) {
      return Broken(absl::StrCat("command ", command.id, " at ", Where(range),
                                 " runs from one use of the device into another"));
    }
  }
  // The stream offset of the write in one of the lists of extents.
  const auto offset_in = [&](const std::vector<ExtentId>& extents) -> std::optional<uint64_t> {
    for (size_t i = 0; i < extents.size(); ++i) {
      if (Raw(extents[i]) == first) return i * sb.extent_bytes + range.at % sb.extent_bytes;
    }
    return std::nullopt;
  };
  switch (uses_[first]) {
    case Use::kFree:
      return;  // a table or a manifest in the making
    case Use::kSuperblock:
      return SuperblockWritten(command);
    case Use::kTable:
      return Broken(
          absl::StrCat("command ", command.id, " writes ", Where(range), ", which a table holds"));
    case Use::kNextManifest:
      return Broken(absl::StrCat("command ", command.id, " writes ", Where(range),
                                 ", a manifest whose superblock is not durable"));
    case Use::kManifest:
      for (int copy = 0; copy < 2; ++copy) {
        const auto offset = offset_in(sb.manifest_extents[copy]);
        if (offset) return ManifestWritten(command, copy, *offset);
      }
      return;
    case Use::kSegment:
      for (const Version* v : {tip_.get(), root_.version.get()}) {
        for (const auto& [id, segment] : v->segments) {
          if (const auto offset = offset_in(segment.extents)) {
            // Assigned by an edit that is not durable yet?
            if (root_.version->segments.count(id) == 0) {
              Broken(absl::StrCat("command ", command.id, " writes ", Where(range),
                                  ", a segment that no durable edit has assigned"));
            }
            return LogWritten(command, segment, *offset);
          }
        }
      }
      return Broken(absl::StrCat("command ", command.id, " writes ", Where(range),
                                 ", a segment of a state to come"));
  }
}

bool OrderingMonitor::TakeRecords(const ObservedCommand& command, WriteId id, Stream* stream,
                                  const Payload& payload) {
  const uint64_t seed = StreamSeed(root_.superblock.store, id);
  stream->unread.insert(stream->unread.end(), command.data.begin(), command.data.end());
  const uint64_t begin = stream->end + command.data.size() - stream->unread.size();
  stream->parts.push_back({stream->end, stream->end + command.data.size(), command.id});
  stream->end += command.data.size();
  const std::span<const std::byte> bytes = stream->unread;
  uint64_t at = 0;
  while (at < bytes.size()) {
    RecordHeader header;
    std::string_view part;
    if (ParseRecord(bytes.subspan(at), {id.raw(), begin + at}, seed, &header, &part) !=
        RecordParse::kOk) {
      break;
    }
    const uint64_t record_end = std::min(at + RecordBytes(header.payload_bytes), bytes.size());
    if (header.kind == RecordKind::kData) {
      if (header.first) {
        stream->payload.clear();
        stream->payload_commands.clear();
      }
      stream->payload.append(part);
      for (const Part& p : stream->parts) {
        if (p.begin < begin + record_end && p.end > begin + at) {
          stream->payload_commands.push_back(p.command);
        }
      }
      if (header.last) payload(stream->payload, begin + record_end);
    }
    at = record_end;
  }
  std::erase_if(stream->parts,
                [&](const Part& p) { return p.end <= begin + at && Durable(p.command); });
  // What is left is padding, or the begin of a record that goes on in the next write.
  const std::span<const std::byte> rest = bytes.subspan(at);
  const bool padding =
      std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
  if (padding) {
    stream->unread.clear();
    return true;
  }
  stream->unread.erase(stream->unread.begin(), stream->unread.begin() + static_cast<ptrdiff_t>(at));
  return stream->unread.size() < kRecordBytesMax;
}

void OrderingMonitor::CheckTable(const TableMeta& t, const char* who) {
  const uint64_t bytes =
      uint64_t{t.pages} * kPageBytes - uint64_t{t.dropped_extents} * root_.superblock.extent_bytes;
  if (const Command* const c = Undurable(t.extents, bytes); c != nullptr) {
    Broken(absl::StrCat(who, " names table ", t.id.epoch, ".", t.id.counter, ", of which command ",
                        c->id, " at ", Where(c->ranges[0]), " is not durable"));
  }
}

void OrderingMonitor::ManifestWritten(const ObservedCommand& command, int copy, uint64_t offset) {
  if (next_root_ && next_root_->superblock.manifest != root_.superblock.manifest) {
    Broken(absl::StrCat("command ", command.id, " appends to a manifest that is being replaced"));
  }
  if (offset != manifest_[copy].end) {
    return Broken(absl::StrCat("command ", command.id, " writes copy ", copy,
                               " of the manifest at byte ", offset, ", which ends at ",
                               manifest_[copy].end));
  }
  if (copy == 1) {
    manifest_[1].parts.push_back({offset, offset + command.data.size(), command.id});
    manifest_[1].end += command.data.size();
    return;
  }
  const bool records = TakeRecords(
      command, root_.superblock.manifest, &manifest_[0],
      [&](std::string_view payload, uint64_t end) {
        Edit e;
        if (!DecodeEdit(payload, &e.edit).ok()) return Broken("an edit that can't be decoded");
        e.end = end;
        for (const TableMeta& t : e.edit.add_tables) CheckTable(t, "an edit");
        const auto check_free = [&](const std::vector<ExtentId>& extents, const char* what) {
          for (const ExtentId x : extents) {
            if (uses_[Raw(x)] == Use::kFree) continue;
            Broken(absl::StrCat("an edit gives extent ", Raw(x), " to a ", what,
                                ", and it is in use"));
          }
        };
        for (const auto& t : e.edit.add_tables) {
          // A table that moves to another level keeps its extents.
          const auto& removed = e.edit.remove_tables;
          if (std::find(removed.begin(), removed.end(), t.id) == removed.end()) {
            check_free(t.extents, "table");
          }
        }
        for (const auto& s : e.edit.assign_segments) check_free(s.extents, "segment");
        auto applied = ApplyEdit(*tip_, e.edit);
        if (!applied.ok()) return Broken(std::string(applied.status().message()));
        tip_ = applied->version;
        edits_pending_.push_back(std::move(e));
        ++edits_;
      });
  if (!records) {
    Broken(absl::StrCat("command ", command.id, " writes something else into the manifest"));
  }
  Account();
}

void OrderingMonitor::LogWritten(const ObservedCommand& command, const SegmentMeta& segment,
                                 uint64_t offset) {
  Stream& stream = logs_[segment.id];
  if (offset < stream.end) {
    if (repeats_) return;  // its records are known
    return Broken(
        absl::StrCat("command ", command.id, " writes into a log segment again, at byte ", offset));
  }
  if (offset > stream.end) {
    return Broken(
        absl::StrCat("command ", command.id, " leaves a hole in a log segment before ", offset));
  }
  const bool records =
      TakeRecords(command, segment.id, &stream, [&](std::string_view payload, uint64_t) {
        const auto group = std::make_shared<std::vector<uint64_t>>(stream.payload_commands);
        for (const uint64_t id : *group) groups_[id].push_back(group);
        Cursor in(payload);
        for (Entry entry; !in.done();) {
          if (!DecodeEntry(&in, &entry).ok()) return Broken("a log entry that can't be decoded");
          Logged& logged = entries_[ChangeHash(entry.kind, entry.key, entry.value)];
          logged.group = group;
          ++logged.times;
        }
      });
  if (!records) {
    Broken(absl::StrCat("command ", command.id, " writes something else into the log"));
  }
}

void OrderingMonitor::SuperblockWritten(const ObservedCommand& command) {
  const uint64_t at = command.ranges[0].at;
  Superblock sb;
  std::string detail;
  int copy = 0;
  while (copy < kSuperblockCopies && SuperblockPlace(copy, root_.superblock.store_bytes) != at) {
    ++copy;
  }
  if (copy == kSuperblockCopies ||
      ParseSuperblock(command.data.data(), copy, &sb, &detail) != SuperblockParse::kOk) {
    return Broken(absl::StrCat("command ", command.id, " at ", Where(command.ranges[0]),
                               ": not a superblock, or not at its place ", detail));
  }
  if (!next_root_ || next_root_->superblock.generation != sb.generation) {
    // The same once more, when a step behind the last copy failed for lack of space.
    if (sb.generation == root_.superblock.generation &&
        ContentChecksum(sb) == ContentChecksum(root_.superblock)) {
      return;
    }
    if (sb.generation <= root_.superblock.generation) {
      return Broken(absl::StrCat("superblock of generation ", sb.generation, " after ",
                                 root_.superblock.generation));
    }
    if (sb.predecessor != root_content_) {
      Broken(absl::StrCat("superblock of generation ", sb.generation,
                          " does not name the one before it"));
    }
    // The first of an open takes an epoch that none has had; the others keep it.
    if (epoch_ == 0 ? sb.epoch <= highest_epoch_ : sb.epoch != epoch_) {
      Broken(absl::StrCat("superblock of epoch ", sb.epoch, ", where ", highest_epoch_,
                          " was seen before this open"));
    }
    epoch_ = sb.epoch;
    next_root_.emplace();
    next_root_->superblock = sb;
    next_root_->version = tip_;
    next_root_->manifest_end = manifest_[0].end;
    if (sb.manifest != root_.superblock.manifest &&
        !ReadManifestNow(sb, &next_root_->version, &next_root_->manifest_end)) {
      Broken("a superblock names a manifest that can't be read");
    }
  }
  for (const auto& extents : sb.manifest_extents) {
    if (const Command* const c = Undurable(extents, next_root_->manifest_end); c != nullptr) {
      Broken(absl::StrCat("a superblock names a manifest of which command ", c->id, " at ",
                          Where(c->ranges[0]), " is not durable"));
    }
  }
  for (const TablePtr& t : next_root_->version->AllTables()) CheckTable(*t, "a superblock");
  if (copy >= 2) {
    for (int i = 0; i < 2; ++i) {
      if (next_root_->copies[i] == 0 || !Durable(next_root_->copies[i])) {
        Broken(
            absl::StrCat("superblock copy ", copy, " is written before copy ", i, " is durable"));
      }
    }
  }
  next_root_->copies[copy] = command.id;
  Account();
}

void OrderingMonitor::Completed(uint64_t id, bool ok) {
  if (!watching_) return;
  if (const auto flush = flushing_.find(id); flush != flushing_.end()) {
    const std::vector<uint64_t> covered = std::move(flush->second);
    flushing_.erase(flush);
    if (ok) MadeDurable(covered);
    return;
  }
  const auto it = pending_.find(id);
  if (it == pending_.end()) return;
  if (!ok) {
    it->second.state = Command::State::kFailed;
  } else if (it->second.fua || !geometry_.volatile_cache) {
    MadeDurable({id});
  } else {
    it->second.state = Command::State::kCompleted;
  }
}

void OrderingMonitor::MadeDurable(const std::vector<uint64_t>& ids) {
  for (const uint64_t id : ids) {
    pending_.erase(id);
    groups_.erase(id);
  }
  std::erase_if(manifest_[1].parts, [&](const Part& p) { return Durable(p.command); });
  // Edits count in their order, once both copies are durable.
  while (!edits_pending_.empty()) {
    const uint64_t end = edits_pending_.front().end;
    bool durable = true;
    for (const Stream& copy : manifest_) {
      durable &= copy.end >= end;
      for (const Part& p : copy.parts) durable &= p.begin >= end || Durable(p.command);
    }
    if (!durable) break;
    auto applied = ApplyEdit(*root_.version, edits_pending_.front().edit);
    CHECK(applied.ok());
    root_.version = applied->version;
    edits_pending_.erase(edits_pending_.begin());
    Account();
  }
  if (next_root_ && std::all_of(next_root_->copies.begin(), next_root_->copies.end(),
                                [&](uint64_t id) { return id != 0 && Durable(id); })) {
    if (next_root_->superblock.manifest != root_.superblock.manifest) {
      for (Stream& copy : manifest_) copy = {.end = next_root_->manifest_end};
      edits_pending_.clear();
      root_.version = tip_ = next_root_->version;
    }
    root_.superblock = next_root_->superblock;
    root_content_ = ContentChecksum(root_.superblock);
    next_root_.reset();
    Account();
  }
}

void OrderingMonitor::Acknowledged(std::string_view key, const std::optional<std::string>& value) {
  if (!watching_) return;
  ++acknowledged_;
  const auto it = entries_.find(
      ChangeHash(value ? EntryKind::kValue : EntryKind::kDelete, key, value ? *value : ""));
  if (it == entries_.end()) {
    return Broken(absl::StrCat("a change of \"", std::string(key.substr(0, 40)),
                               "\" was acknowledged as durable and is in no log"));
  }
  const Group group = it->second.group;
  if (--it->second.times == 0) entries_.erase(it);
  CheckDurable(group, key, "acknowledged as durable");
}

void OrderingMonitor::Shown(std::string_view key, const std::optional<std::string>& value) {
  const auto it = entries_.find(
      ChangeHash(value ? EntryKind::kValue : EntryKind::kDelete, key, value ? *value : ""));
  if (it != entries_.end()) CheckDurable(it->second.group, key, "shown to a reader");
}

void OrderingMonitor::CheckDurable(const Group& group, std::string_view key, const char* what) {
  for (const uint64_t id : *group) {
    if (Durable(id)) continue;
    Broken(absl::StrCat("a change of \"", std::string(key.substr(0, 40)), "\" was ", what,
                        ", and command ", id, " that carries it is not durable"));
  }
}

}  // namespace ashlar
