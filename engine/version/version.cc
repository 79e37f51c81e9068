#include "engine/version/version.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace ashlar {
namespace {

std::string Name(WriteId id) { return absl::StrCat("table ", id.epoch, ".", id.counter); }

absl::Status Contradiction(absl::string_view what, WriteId id) {
  return absl::DataLossError(absl::StrCat("manifest: ", what, " ", id.epoch, ".", id.counter));
}

}  // namespace

std::vector<TablePtr> Version::AllTables() const {
  std::vector<TablePtr> tables = level0;
  tables.insert(tables.end(), run.begin(), run.end());
  return tables;
}

const TablePtr* Version::InRun(std::string_view key) const {
  const auto it =
      std::lower_bound(run.begin(), run.end(), key,
                       [](const TablePtr& t, std::string_view k) { return t->largest < k; });
  return it == run.end() || key < (*it)->smallest ? nullptr : &*it;
}

absl::StatusOr<AppliedEdit> ApplyEdit(const Version& base, const VersionEdit& edit) {
  auto next = std::make_shared<Version>(base);
  std::vector<ExtentId> released;
  ++next->number;
  next->clean = edit.clean;

  const auto find = [&](WriteId id, std::vector<TablePtr>** list) {
    for (std::vector<TablePtr>* l : {&next->level0, &next->run}) {
      const auto it =
          std::find_if(l->begin(), l->end(), [&](const TablePtr& t) { return t->id == id; });
      if (it != l->end()) {
        *list = l;
        return it;
      }
    }
    *list = nullptr;
    return next->run.end();
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
  for (const TableMeta& t : edit.add_tables) {
    find(t.id, &list);
    if (list != nullptr) return Contradiction("adds twice table", t.id);
    auto added = std::make_shared<const TableMeta>(t);
    if (t.level == 0) {
      const auto at = std::find_if(next->level0.begin(), next->level0.end(),
                                   [&](const TablePtr& o) { return o->id < t.id; });
      next->level0.insert(at, std::move(added));
    } else if (t.level == 1) {
      const auto at =
          std::lower_bound(next->run.begin(), next->run.end(), t.smallest,
                           [](const TablePtr& o, const std::string& k) { return o->smallest < k; });
      next->run.insert(at, std::move(added));
    } else {
      return Contradiction(absl::StrCat("names level ", t.level, ", which is not known, for table"),
                           t.id);
    }
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
  for (size_t i = 1; i < version.run.size(); ++i) {
    if (version.run[i - 1]->largest >= version.run[i]->smallest) {
      return absl::DataLossError(absl::StrCat("manifest: ", Name(version.run[i - 1]->id), " and ",
                                              Name(version.run[i]->id), " of level 1 overlap"));
    }
  }
  for (size_t i = 1; i < version.level0.size(); ++i) {
    if (version.level0[i - 1]->min_sequence <= version.level0[i]->max_sequence) {
      return absl::DataLossError(absl::StrCat("manifest: ", Name(version.level0[i - 1]->id),
                                              " and ", Name(version.level0[i]->id),
                                              " of level 0 share sequence numbers"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ashlar
