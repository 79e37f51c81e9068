#include "engine/version/version.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"

namespace ashlar {
namespace {

std::string Name(WriteId id) { return absl::StrCat("table ", id.epoch, ".", id.counter); }

absl::Status Contradiction(absl::string_view what, WriteId id) {
  return absl::DataLossError(absl::StrCat("manifest: ", what, " ", id.epoch, ".", id.counter));
}

}  // namespace

std::vector<TablePtr> Version::AllTables() const {
  std::vector<TablePtr> tables;
  for (const auto& level : levels) tables.insert(tables.end(), level.begin(), level.end());
  return tables;
}

std::vector<TablePtr>::const_iterator FirstEndingAt(const std::vector<TablePtr>& run,
                                                    std::string_view key) {
  return std::lower_bound(run.begin(), run.end(), key,
                          [](const TablePtr& t, std::string_view k) { return t->largest < k; });
}

const TablePtr* TableFor(const std::vector<TablePtr>& run, std::string_view key) {
  const auto it = FirstEndingAt(run, key);
  return it == run.end() || key < (*it)->smallest ? nullptr : &*it;
}

absl::StatusOr<AppliedEdit> ApplyEdit(const Version& base, const VersionEdit& edit) {
  auto next = std::make_shared<Version>(base);
  std::vector<ExtentId> released;
  ++next->number;
  next->clean = edit.clean;

  const auto find = [&](WriteId id, std::vector<TablePtr>** list) {
    for (std::vector<TablePtr>& l : next->levels) {
      const auto it =
          std::find_if(l.begin(), l.end(), [&](const TablePtr& t) { return t->id == id; });
      if (it != l.end()) {
        *list = &l;
        return it;
      }
    }
    *list = nullptr;
    return next->levels[0].end();
  };
  const auto insert = [&](TablePtr t) {
    std::vector<TablePtr>& level = next->levels[t->level];
    const auto after = [&](const TablePtr& o) {
      if (t->level == 0 && PLANT("version.newest_is_last_made")) return o->id < t->id;
      return t->level > 0 ? o->smallest >= t->smallest
                          : std::pair(o->max_sequence, o->id) < std::pair(t->max_sequence, t->id);
    };
    const auto at = std::partition_point(level.begin(), level.end(),
                                         [&](const TablePtr& o) { return !after(o); });
    level.insert(at, std::move(t));
  };
  std::vector<TablePtr>* list;
  for (const WriteId id : edit.remove_tables) {
    const auto it = find(id, &list);
    if (list == nullptr) return Contradiction("removes an unknown table", id);
    released.insert(released.end(), (*it)->extents.begin(), (*it)->extents.end());
    list->erase(it);
  }
  for (const VersionEdit::Shorten& s : edit.shorten_tables) {
    const auto it = find(s.table, &list);
    if (list == nullptr) return Contradiction("shortens an unknown table", s.table);
    const TableMeta& old = **it;
    if (s.dropped_extents < old.dropped_extents ||
        s.dropped_extents - old.dropped_extents >= old.extents.size() ||
        s.smallest < old.smallest || s.smallest > old.largest) {
      return Contradiction("shortens past its end table", s.table);
    }
    auto shorter = std::make_shared<TableMeta>(old);
    const auto cut = shorter->extents.begin() + (s.dropped_extents - old.dropped_extents);
    released.insert(released.end(), shorter->extents.begin(), cut);
    shorter->extents.erase(shorter->extents.begin(), cut);
    shorter->dropped_extents = s.dropped_extents;
    shorter->smallest = s.smallest;
    *it = std::move(shorter);
  }
  const auto unknown_level = [](int level, WriteId id) {
    return Contradiction(absl::StrCat("names level ", level, ", which is not known, for table"),
                         id);
  };
  for (const VersionEdit::Move& m : edit.move_tables) {
    const auto it = find(m.table, &list);
    if (list == nullptr) return Contradiction("moves an unknown table", m.table);
    if (m.level > kLastLevel) return unknown_level(m.level, m.table);
    auto moved = std::make_shared<TableMeta>(**it);
    moved->level = m.level;
    list->erase(it);
    insert(std::move(moved));
  }
  for (const TableMeta& t : edit.add_tables) {
    find(t.id, &list);
    if (list != nullptr) return Contradiction("adds twice table", t.id);
    if (t.level > kLastLevel) return unknown_level(t.level, t.id);
    insert(std::make_shared<const TableMeta>(t));
  }
  for (const WriteId id : edit.release_segments) {
    const auto it = next->segments.find(id);
    if (it == next->segments.end()) return Contradiction("releases an unknown segment", id);
    released.insert(released.end(), it->second.extents.begin(), it->second.extents.end());
    next->segments.erase(it);
  }
  for (const SegmentMeta& s : edit.assign_segments) {
    if (!next->segments.emplace(s.id, s).second)
      return Contradiction("assigns twice segment", s.id);
  }
  if (edit.last_sequence) next->last_sequence = *edit.last_sequence;
  return AppliedEdit{std::move(next), std::move(released)};
}

VersionEdit SnapshotOf(const Version& version) {
  VersionEdit edit;
  for (const TablePtr& t : version.AllTables()) edit.add_tables.push_back(*t);
  for (const auto& [id, segment] : version.segments) edit.assign_segments.push_back(segment);
  edit.last_sequence = version.last_sequence;
  edit.clean = version.clean;
  return edit;
}

absl::Status CheckVersion(const Version& version) {
  for (int level = 0; level <= kLastLevel; ++level) {
    const std::vector<TablePtr>& tables = version.levels[level];
    for (size_t i = 1; i < tables.size(); ++i) {
      const TableMeta &a = *tables[i - 1], &b = *tables[i];
      if (level == 0 ? a.min_sequence > b.max_sequence : a.largest < b.smallest) continue;
      return absl::DataLossError(absl::StrCat("manifest: ", Name(a.id), " and ", Name(b.id),
                                              " of level ", level,
                                              level == 0 ? " share sequence numbers" : " overlap"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ashlar
