#include "engine/format/manifest_format.h"

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/format/coding.h"

namespace ashlar {
namespace {

// A field is: tag, length, bytes. Even tags must be understood, odd ones may be skipped.
enum Tag : uint64_t {
  kAddTable = 2,
  kRemoveTable = 4,
  kShortenTable = 6,
  kAssignSegment = 8,
  kReleaseSegment = 10,
  kLastSequence = 12,
  kClean = 14,
  kSnapshotEnd = 16,
  kMoveTable = 28,
};

void AppendExtents(std::string* out, const std::vector<ExtentId>& extents) {
  std::string runs;
  uint64_t count = 0;
  for (size_t i = 0; i < extents.size();) {
    size_t n = 1;
    while (i + n < extents.size() && Raw(extents[i + n]) == Raw(extents[i]) + n) ++n;
    AppendVarint(&runs, Raw(extents[i]));
    AppendVarint(&runs, n);
    ++count;
    i += n;
  }
  AppendVarint(out, count);
  out->append(runs);
}

// Takes at most *budget extents, and that many off it.
bool TakeExtents(Cursor* in, std::vector<ExtentId>* extents, uint64_t* budget) {
  uint64_t count;
  if (!in->VarintAtMost(*budget, &count)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t first, n;
    if (!in->VarintAtMost(kMaxExtents, &first) || !in->VarintAtMost(*budget, &n) || n == 0 ||
        first + n > kMaxExtents) {
      return false;
    }
    *budget -= n;
    for (uint64_t k = 0; k < n; ++k) extents->push_back(ExtentId{static_cast<uint32_t>(first + k)});
  }
  return true;
}

bool TakeId(Cursor* in, WriteId* id) {
  uint64_t raw;
  if (!in->Varint(&raw)) return false;
  *id = WriteId::FromRaw(raw);
  return true;
}

bool TakeU32(Cursor* in, uint32_t* v) {
  uint64_t raw;
  if (!in->VarintAtMost(UINT32_MAX, &raw)) return false;
  *v = static_cast<uint32_t>(raw);
  return true;
}

bool TakeKey(Cursor* in, std::string* key) {
  std::string_view bytes;
  if (!in->Bytes(kMaxKeyBytes + 1, &bytes)) return false;
  *key = std::string(bytes);
  return true;
}

void AppendTable(std::string* out, const TableMeta& t) {
  AppendVarint(out, t.id.raw());
  out->push_back(static_cast<char>(t.level));
  AppendExtents(out, t.extents);
  AppendVarint(out, t.dropped_extents);
  AppendVarint(out, t.pages);
  AppendVarint(out, t.tail_pages);
  AppendLe<uint64_t>(out, t.footer_checksum);
  AppendVarint(out, t.entries);
  AppendVarint(out, t.tombstones);
  AppendVarint(out, t.record_bytes);
  AppendVarint(out, t.min_sequence);
  AppendVarint(out, t.max_sequence);
  AppendBytes(out, t.smallest);
  AppendBytes(out, t.largest);
}

bool TakeTable(Cursor* in, TableMeta* t, uint64_t* budget) {
  return TakeId(in, &t->id) && in->Fixed(&t->level) && TakeExtents(in, &t->extents, budget) &&
         TakeU32(in, &t->dropped_extents) && TakeU32(in, &t->pages) &&
         TakeU32(in, &t->tail_pages) && in->Fixed(&t->footer_checksum) && in->Varint(&t->entries) &&
         in->Varint(&t->tombstones) && in->Varint(&t->record_bytes) &&
         in->Varint(&t->min_sequence) && in->Varint(&t->max_sequence) &&
         TakeKey(in, &t->smallest) && TakeKey(in, &t->largest) && t->tail_pages >= 2 &&
         t->tail_pages < t->pages && !t->extents.empty() && t->smallest <= t->largest;
}

void AppendField(std::string* out, Tag tag, std::string_view bytes) {
  AppendVarint(out, tag);
  AppendBytes(out, bytes);
}

}  // namespace

void EncodeEdit(const VersionEdit& edit, std::string* out) {
  std::string field;
  for (const TableMeta& t : edit.add_tables) {
    field.clear();
    AppendTable(&field, t);
    AppendField(out, kAddTable, field);
  }
  for (const WriteId id : edit.remove_tables) {
    field.clear();
    AppendVarint(&field, id.raw());
    AppendField(out, kRemoveTable, field);
  }
  for (const VersionEdit::Shorten& s : edit.shorten_tables) {
    field.clear();
    AppendVarint(&field, s.table.raw());
    AppendVarint(&field, s.dropped_extents);
    AppendBytes(&field, s.smallest);
    AppendField(out, kShortenTable, field);
  }
  for (const VersionEdit::Move& m : edit.move_tables) {
    field.clear();
    AppendVarint(&field, m.table.raw());
    field.push_back(static_cast<char>(m.level));
    AppendField(out, kMoveTable, field);
  }
  for (const SegmentMeta& s : edit.assign_segments) {
    field.clear();
    AppendVarint(&field, s.id.raw());
    AppendExtents(&field, s.extents);
    AppendField(out, kAssignSegment, field);
  }
  for (const WriteId id : edit.release_segments) {
    field.clear();
    AppendVarint(&field, id.raw());
    AppendField(out, kReleaseSegment, field);
  }
  if (edit.last_sequence) {
    field.clear();
    AppendVarint(&field, *edit.last_sequence);
    AppendField(out, kLastSequence, field);
  }
  if (edit.clean) AppendField(out, kClean, {});
  if (edit.snapshot_end) AppendField(out, kSnapshotEnd, {});
}

absl::Status DecodeEdit(std::string_view bytes, VersionEdit* edit, uint64_t extents_max) {
  Cursor in(bytes);
  while (!in.done()) {
    uint64_t tag;
    std::string_view field;
    if (!in.Varint(&tag) || !in.Bytes(bytes.size(), &field)) {
      return absl::DataLossError("manifest edit cut short");
    }
    Cursor f(field);
    bool ok = true;
    switch (tag) {
      case kAddTable:
        ok = TakeTable(&f, &edit->add_tables.emplace_back(), &extents_max);
        break;
      case kRemoveTable:
        ok = TakeId(&f, &edit->remove_tables.emplace_back());
        break;
      case kShortenTable: {
        auto& s = edit->shorten_tables.emplace_back();
        ok = TakeId(&f, &s.table) && TakeU32(&f, &s.dropped_extents) && TakeKey(&f, &s.smallest);
        break;
      }
      case kMoveTable: {
        auto& m = edit->move_tables.emplace_back();
        ok = TakeId(&f, &m.table) && f.Fixed(&m.level);
        break;
      }
      case kAssignSegment: {
        auto& s = edit->assign_segments.emplace_back();
        ok = TakeId(&f, &s.id) && TakeExtents(&f, &s.extents, &extents_max) && !s.extents.empty();
        break;
      }
      case kReleaseSegment:
        ok = TakeId(&f, &edit->release_segments.emplace_back());
        break;
      case kLastSequence: {
        uint64_t sequence = 0;
        ok = f.Varint(&sequence);
        edit->last_sequence = sequence;
        break;
      }
      case kClean:
        edit->clean = true;
        break;
      case kSnapshotEnd:
        edit->snapshot_end = true;
        break;
      default:
        if (tag % 2 == 0) {
          return absl::DataLossError(
              absl::StrCat("manifest edit with field ", tag, ", which this program does not know"));
        }
        continue;
    }
    if (!ok || !f.done()) {
      return absl::DataLossError(absl::StrCat("manifest field ", tag, " with impossible contents"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ashlar
