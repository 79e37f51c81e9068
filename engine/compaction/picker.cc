#include "engine/compaction/picker.h"

#include <algorithm>
#include <cmath>

#include "engine/base/plant.h"

namespace ashlar {
namespace {

using Tables = std::vector<TablePtr>;

uint64_t BytesOf(const Tables& tables) {
  uint64_t bytes = 0;
  for (const TablePtr& t : tables) bytes += LiveBytes(*t);
  return bytes;
}

// Those of a sorted run whose bounds meet [smallest, largest].
Tables Meeting(const Tables& run, const std::string& smallest, const std::string& largest) {
  const auto first = FirstEndingAt(run, smallest);
  const auto last = std::partition_point(first, run.end(),
                                         [&](const TablePtr& t) { return t->smallest <= largest; });
  return Tables(first, last);
}

class Picker {
 public:
  Picker(const std::shared_ptr<const Version>& version, const MergePolicy& policy,
         const MergeDemand& demand, const MergeCursor& cursor)
      : version_(version),
        levels_(version->levels),
        policy_(policy),
        demand_(demand),
        cursor_(cursor),
        shape_(ShapeOf(*version, policy)) {}

  std::optional<MergePlan> Pick() const {
    if (auto plan = Fitting()) return plan;
    if (demand_.all || (demand_.idle && WorthTidying())) {
      for (int level = 0; level < kLastLevel; ++level) {
        const Tables wanted = Wanted(levels_[level]);
        if (wanted.empty()) continue;
        return level == 0 ? Level0(levels_[0]) : Deeper(level, wanted);
      }
    }
    return demand_.rewrite || demand_.idle ? Rewrite() : std::nullopt;
  }

 private:
  bool Wanted(const TableMeta& t) const {
    return (demand_.begin.empty() || t.largest >= demand_.begin) &&
           (demand_.end.empty() || t.smallest < demand_.end);
  }
  Tables Wanted(const Tables& tables) const {
    Tables wanted;
    for (const TablePtr& t : tables) {
      if (Wanted(*t)) wanted.push_back(t);
    }
    return wanted;
  }

  // What is over its size, the most so first.
  std::optional<MergePlan> Fitting() const {
    const Tables pass = PassUnderWay();
    const size_t count = levels_[0].size();
    const bool full =
        count >= kLevel0Merge && (BytesOf(levels_[0]) >= policy_.base_bytes / 2 ||
                                  count * 2 >= static_cast<size_t>(policy_.level0_stop));
    double most = full ? static_cast<double>(count) / kLevel0Merge : 0;
    if (!pass.empty()) most = std::max(most, 1.0);
    int level = most > 0 ? 0 : kLastLevel;
    for (int i = 1; i < kLastLevel; ++i) {
      if (levels_[i].empty()) continue;
      const double over = static_cast<double>(BytesOf(levels_[i])) /
                          static_cast<double>(std::max<uint64_t>(shape_.target[i], 1));
      if (over <= 1 || over <= most) continue;
      most = over;
      level = i;
    }
    if (level > 0 && level < kLastLevel) return Deeper(level, {BestOf(level)});
    if (!pass.empty()) return Level0(pass);
    if (auto plan = MoveOldest()) return plan;
    if (full) return Level0(levels_[0]);
    return Tier();
  }

  Tables PassUnderWay() const {
    Tables pass;
    for (const TablePtr& t : levels_[0]) {
      if (std::find(cursor_.level0.begin(), cursor_.level0.end(), t->id) != cursor_.level0.end()) {
        pass.push_back(t);
      }
    }
    return pass;
  }

  // The deepest level to which level 0 can go past empty ones.
  int BelowLevel0() const {
    int level = 1;
    while (level < shape_.base && levels_[level].empty()) ++level;
    return level;
  }

  MergePlan Plan(int level, Tables upper, int output_level) const {
    MergePlan plan{version_, level, std::move(upper), output_level, {}, false};
    const std::string* smallest = &plan.upper.front()->smallest;
    const std::string* largest = &plan.upper.front()->largest;
    for (const TablePtr& t : plan.upper) {
      if (PLANT("pick.bounds_of_the_newest")) break;
      if (t->smallest < *smallest) smallest = &t->smallest;
      if (t->largest > *largest) largest = &t->largest;
    }
    plan.lower = Meeting(levels_[output_level], *smallest, *largest);
    return plan;
  }

  MergePlan Level0(const Tables& tables) const { return Plan(0, tables, BelowLevel0()); }

  // The oldest table of level 0, whole, to where nothing has keys between its bounds. A small one
  // is left to be merged with others, and what can be dropped is not carried to the end.
  std::optional<MergePlan> MoveOldest() const {
    if (levels_[0].empty()) return std::nullopt;
    const TablePtr& oldest = PLANT("pick.move_the_newest") ? levels_[0].front() : levels_[0].back();
    if (LiveBytes(*oldest) < policy_.step_bytes / 2) return std::nullopt;
    MergePlan plan = Level0({oldest});
    if (!plan.lower.empty() || !MayMove(*oldest, plan.output_level)) return std::nullopt;
    plan.move = true;
    return plan;
  }

  static bool MayMove(const TableMeta& table, int to) {
    return to < kLastLevel || (table.tombstones == 0 && !table.kept) || PLANT("pick.move_deletes");
  }

  std::optional<MergePlan> Deeper(int level, const Tables& upper) const {
    MergePlan plan = Plan(level, upper, level + 1);
    const TableMeta& first = *plan.upper.front();
    if (MayMove(first, level + 1) &&
        (plan.lower.empty() || plan.lower.front()->smallest > first.largest)) {
      plan.upper.resize(1);
      plan.lower.clear();
      plan.move = true;
    }
    return plan;
  }

  // The table whose move down rewrites least for what it brings, deletes counted as bringing more;
  // one that was begun first.
  TablePtr BestOf(int level) const {
    const TablePtr* best = nullptr;
    double least = 0;
    for (const TablePtr& t : levels_[level]) {
      if (t->id == cursor_.table) return t;
      const double rewritten =
          static_cast<double>(BytesOf(Meeting(levels_[level + 1], t->smallest, t->largest)));
      const double brings =
          static_cast<double>(LiveBytes(*t)) *
          (1 + 4 * static_cast<double>(t->tombstones) / static_cast<double>(t->entries));
      const double cost = rewritten / std::max(brings, 1.0);
      if (best == nullptr || cost < least) {
        best = &t;
        least = cost;
      }
    }
    return *best;
  }

  // Small tables of level 0 that follow one another, as one table there: those that a slow writer
  // leaves, one for each idle moment.
  std::optional<MergePlan> Tier() const {
    const Tables& tables = levels_[0];
    for (size_t first = 0; first + kLevel0Merge <= tables.size(); ++first) {
      uint64_t bytes = 0;
      size_t end = first;
      while (end < tables.size() && bytes + LiveBytes(*tables[end]) <= policy_.step_bytes) {
        bytes += LiveBytes(*tables[end++]);
      }
      if (end - first < kLevel0Merge) continue;
      return MergePlan{version_,
                       0,
                       Tables(tables.begin() + static_cast<ptrdiff_t>(first),
                              tables.begin() + static_cast<ptrdiff_t>(end)),
                       0,
                       {},
                       false};
    }
    return std::nullopt;
  }

  // Whether what lies above the last level, and what its deletes hide in it, is a tenth of that.
  bool WorthTidying() const {
    uint64_t above = 0, tombstones = 0, entries = 0, last = BytesOf(levels_[kLastLevel]);
    for (int i = 0; i < kLastLevel; ++i) {
      above += BytesOf(levels_[i]);
      for (const TablePtr& t : levels_[i]) tombstones += t->tombstones;
    }
    for (const TablePtr& t : levels_[kLastLevel]) entries += t->entries;
    if (entries > 0) {
      above += static_cast<uint64_t>(static_cast<double>(tombstones) * static_cast<double>(last) /
                                     static_cast<double>(entries));
    }
    return above > last / 10;
  }

  std::optional<MergePlan> Rewrite() const {
    const std::vector<SequenceNumber>& readers = demand_.readers;
    for (const TablePtr& t : levels_[kLastLevel]) {
      if ((!t->kept && t->tombstones == 0) || !Wanted(*t)) continue;
      // Without `kept` they were there before the store was opened.
      const auto reader = std::lower_bound(readers.begin(), readers.end(), t->kept_from);
      if (t->kept && reader != readers.end() && *reader <= t->kept_to) continue;
      return MergePlan{version_, kLastLevel, {t}, kLastLevel, {}, false};
    }
    return std::nullopt;
  }

  const std::shared_ptr<const Version>& version_;
  const decltype(Version::levels)& levels_;
  const MergePolicy& policy_;
  const MergeDemand& demand_;
  const MergeCursor& cursor_;
  const LevelShape shape_;
};

}  // namespace

uint64_t LiveBytes(const TableMeta& table) {
  return uint64_t{table.pages} * kPageBytes * table.extents.size() /
         (table.extents.size() + table.dropped_extents);
}

LevelShape ShapeOf(const Version& version, const MergePolicy& policy) {
  LevelShape shape;
  double total = 0;
  for (int i = 1; i <= kLastLevel; ++i) total += static_cast<double>(BytesOf(version.levels[i]));
  const double ratio = total / static_cast<double>(std::max<uint64_t>(policy.base_bytes, 1));
  int runs = 1;
  while (runs < kLastLevel && std::pow(ratio, 1.0 / runs) > kFanoutMax) ++runs;
  const double fanout = std::max(std::pow(ratio, 1.0 / runs), 2.0);
  shape.base = kLastLevel - runs + 1;
  shape.target[kLastLevel] = UINT64_MAX;
  // A level above the base is left over from when the store was larger: it keeps the size that it
  // would be given if it were one, so that growing and shrinking at the border cost nothing.
  double bytes = total;
  for (int i = kLastLevel - 1; i >= 1; --i) {
    bytes /= i >= shape.base ? fanout : kFanoutMax;
    shape.target[i] = static_cast<uint64_t>(bytes);
  }
  return shape;
}

std::optional<MergePlan> PickMerge(const std::shared_ptr<const Version>& version,
                                   const MergePolicy& policy, const MergeDemand& demand,
                                   const MergeCursor& cursor) {
  return Picker(version, policy, demand, cursor).Pick();
}

MergeCursor CursorBehind(const MergePlan& plan, const MergeCursor& before) {
  MergeCursor cursor = before;
  if (plan.move || plan.output_level == plan.level) return cursor;
  if (plan.level == 0) {
    cursor.level0.clear();
    for (const TablePtr& t : plan.upper) cursor.level0.push_back(t->id);
  } else {
    cursor.table = plan.upper.front()->id;
  }
  return cursor;
}

}  // namespace ashlar
