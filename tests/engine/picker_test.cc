// What the picker picks, as transcripts: a store drawn as text, and the merges that follow one
// another until there is nothing to do. The merges are modelled: a step's output is as large as
// what it takes.
#include "engine/compaction/picker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "io/check.h"

namespace ashlar {
namespace {

constexpr uint64_t kUnit = 64u << 10;  // sizes are counted in these: an extent of sixteen pages
constexpr MergePolicy kPolicy = {
    .base_bytes = 32 * kUnit, .step_bytes = 8 * kUnit, .level0_stop = 12};

TableMeta Table(uint32_t counter, int level, std::string smallest, std::string largest,
                uint64_t units) {
  TableMeta t;
  t.id = {1, counter};
  t.level = static_cast<uint8_t>(level);
  t.extents.resize(units);
  t.pages = static_cast<uint32_t>(16 * units);
  t.entries = 1000 * units;
  t.min_sequence = counter * 100;
  t.max_sequence = counter * 100 + 99;
  t.smallest = std::move(smallest);
  t.largest = std::move(largest);
  return t;
}

// "9:a-m*4 8:c-z*2d": tables by number, bounds, units; `d`: a tenth of the entries are deletes;
// `k`: it keeps something for a reader at sequence number 50.
void Fill(Version* version, int level, const std::string& text) {
  for (const auto& word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::string w(word);
    const size_t colon = w.find(':'), dash = w.find('-'), star = w.find('*');
    uint32_t counter = 0, units = 0;
    CHECK(absl::SimpleAtoi(w.substr(0, colon), &counter));
    size_t end = star + 1;
    while (end < w.size() && w[end] >= '0' && w[end] <= '9') ++end;
    CHECK(absl::SimpleAtoi(w.substr(star + 1, end - star - 1), &units));
    TableMeta t = Table(counter, level, w.substr(colon + 1, dash - colon - 1),
                        w.substr(dash + 1, star - dash - 1), units);
    for (const char c : w.substr(end)) {
      if (c == 'd') t.tombstones = t.entries / 10;
      if (c == 'k') t.kept = true, t.kept_from = t.kept_to = 50;
    }
    version->levels[static_cast<size_t>(level)].push_back(
        std::make_shared<const TableMeta>(std::move(t)));
  }
}

using Levels = std::map<int, std::string>;

std::shared_ptr<const Version> Store(const Levels& levels) {
  auto version = std::make_shared<Version>();
  for (const auto& [level, text] : levels) Fill(version.get(), level, text);
  const absl::Status right = CheckVersion(*version);
  EXPECT_TRUE(right.ok()) << right;
  return version;
}

std::string Text(const MergePlan& plan) {
  const auto names = [](const std::vector<TablePtr>& tables) {
    std::vector<uint32_t> ids;
    for (const TablePtr& t : tables) ids.push_back(t->id.counter);
    return absl::StrJoin(ids, " ");
  };
  return absl::StrCat(plan.move ? "move " : "", plan.level, ":", names(plan.upper), " -> ",
                      plan.output_level,
                      plan.lower.empty() ? "" : absl::StrCat(":", names(plan.lower)));
}

// Merges the whole plan into one table, which is named by the next number; then the next one.
std::vector<std::string> Transcript(const Levels& levels, const MergeDemand& demand = {},
                                    MergeCursor cursor = {}) {
  auto version = Store(levels);
  std::vector<std::string> steps;
  uint32_t next = 100;
  while (const auto plan = PickMerge(version, kPolicy, demand, cursor)) {
    steps.push_back(Text(*plan));
    if (steps.size() > 20) {
      ADD_FAILURE() << "no end";
      break;
    }
    VersionEdit edit;
    if (plan->move) {
      edit.move_tables.push_back(
          {plan->upper.front()->id, static_cast<uint8_t>(plan->output_level)});
    } else {
      TableMeta out = Table(next++, plan->output_level, plan->upper.front()->smallest,
                            plan->upper.front()->largest, 0);
      out.min_sequence = out.max_sequence = 0;
      for (const auto* tables : {&plan->upper, &plan->lower}) {
        for (const TablePtr& t : *tables) {
          out.smallest = std::min(out.smallest, t->smallest);
          out.largest = std::max(out.largest, t->largest);
          out.max_sequence = std::max(out.max_sequence, t->max_sequence);
          out.extents.resize(out.extents.size() + t->extents.size());
          out.pages += t->pages;
          out.entries += t->entries;
          if (plan->output_level < kLastLevel) out.tombstones += t->tombstones;
          edit.remove_tables.push_back(t->id);
        }
      }
      edit.add_tables.push_back(out);
    }
    cursor = CursorBehind(*plan, cursor);
    auto applied = ApplyEdit(*version, edit);
    EXPECT_TRUE(applied.ok()) << applied.status() << " after " << steps.back();
    if (!applied.ok()) break;
    version = applied->version;
    const absl::Status right = CheckVersion(*version);
    EXPECT_TRUE(right.ok()) << right << " after " << steps.back();
  }
  return steps;
}

using Steps = std::vector<std::string>;

constexpr char kLast[] = "1:a-c*40 2:d-f*40 3:g-i*40 4:j-m*40 5:n-p*40 6:q-z*40";

TEST(Picker, LeavesAloneWhatIsInItsPlace) {
  EXPECT_EQ(Transcript({}), Steps());
  EXPECT_EQ(Transcript({{6, kLast}}), Steps());
  // Three tables, or four that are small and of which no four fit into one, do not start a merge.
  EXPECT_EQ(Transcript({{0, "9:a-z*8 8:b-y*8 7:a-z*8d"}, {6, kLast}}), Steps());
  EXPECT_EQ(Transcript({{0, "10:a-z*3 9:a-z*3 8:b-y*3 7:a-z*3"}, {6, kLast}}), Steps());
}

TEST(Picker, Level0GoesDownWholeOnceItHoldsHalfTheBase) {
  EXPECT_EQ(Transcript({{0, "10:a-z*4 9:b-y*4 8:a-z*4 7:c-x*4"}, {6, "1:a-c*4"}}),
            Steps({"0:10 9 8 7 -> 6:1"}));
  EXPECT_EQ(Transcript({{0, "10:a-e*4 9:b-g*4 8:a-b*4 7:b-c*4"}, {6, kLast}}),
            Steps({"0:10 9 8 7 -> 6:1 2 3"}));
  // Or half the number of tables at which writes would wait, however small: six of twelve.
  EXPECT_EQ(Transcript({{0, "12:a-z*3 11:a-z*3 10:a-z*3 9:a-z*3 8:b-y*2 7:a-z*1"}}),
            Steps({"0:12 11 10 9 8 7 -> 6"}));
}

TEST(Picker, APassOverLevel0KeepsItsTables) {
  // What has come since the pass began waits, or the keys that were passed would be merged again.
  MergeCursor under_way;
  under_way.level0 = {{1, 8}, {1, 7}};
  EXPECT_EQ(Transcript({{0, "10:a-z*4 9:a-z*4 8:m-z*4 7:n-x*4"}, {6, kLast}}, {}, under_way),
            Steps({"0:8 7 -> 6:4 5 6"}));
}

TEST(Picker, SmallTablesOfLevel0AreGatheredThere) {
  EXPECT_EQ(Transcript({{0, "12:a-z*2 11:a-z*2 10:b-y*2 9:a-z*1 8:c-d*1"}, {6, kLast}}),
            Steps({"0:12 11 10 9 8 -> 0"}));
  // The new table stays behind those that are newer.
  EXPECT_EQ(Transcript({{0, "12:a-z*9 11:a-z*2 10:b-y*2 9:a-z*1 8:c-d*1"}, {6, kLast}}),
            Steps({"0:11 10 9 8 -> 0"}));
  // Not over a large one between them: what is older may not come to lie above.
  EXPECT_EQ(Transcript({{0, "11:a-z*1 10:a-z*1 9:b-y*9 8:a-z*1 7:c-d*1"}}), Steps());
}

TEST(Picker, TheOldestTableOfLevel0MovesWhereNothingLies) {
  // A load in key order: nothing is written twice.
  EXPECT_EQ(Transcript({{0, "9:v-z*8 8:s-u*8 7:q-r*8"}, {6, "1:a-c*40 2:d-f*40"}}),
            Steps({"move 0:7 -> 6", "move 0:8 -> 6", "move 0:9 -> 6"}));
  // What meets something stays, and what is newer with it.
  EXPECT_EQ(Transcript({{0, "9:v-z*8 8:b-u*8"}, {6, "1:a-c*40 2:d-f*40"}}), Steps());
  // Deletes are not carried to the last level, nor is what is kept for a reader.
  EXPECT_EQ(Transcript({{0, "9:v-z*8d"}, {6, "1:a-c*40 2:d-f*40"}}), Steps());
  EXPECT_EQ(Transcript({{0, "9:v-z*8k"}, {6, "1:a-c*40 2:d-f*40"}}), Steps());
}

TEST(Picker, LevelsHaveTheSizesOfTheirShape) {
  const auto shape = [](uint64_t last_units) {
    auto version = std::make_shared<Version>();
    Fill(version.get(), 6, absl::StrCat("1:a-b*", last_units));
    return ShapeOf(*version, kPolicy);
  };
  // One run while it is at most ten times the base, then two, then three.
  EXPECT_EQ(shape(1).base, 6);
  EXPECT_EQ(shape(320).base, 6);
  EXPECT_EQ(shape(330).base, 5);
  EXPECT_EQ(shape(3200).base, 5);
  EXPECT_EQ(shape(3300).base, 4);
  // The fanouts are equal: 3300 / 32 is 4.69 to the third.
  EXPECT_NEAR(static_cast<double>(shape(3300).target[5]) / kUnit, 3300 / 4.69, 2);
  EXPECT_NEAR(static_cast<double>(shape(3300).target[4]) / kUnit, 3300 / 4.69 / 4.69, 2);
  EXPECT_NEAR(static_cast<double>(shape(3300).target[3]) / kUnit, 3300 / 4.69 / 4.69 / 10, 2);
  EXPECT_EQ(shape(3300).target[6], UINT64_MAX);
}

TEST(Picker, ALevelOverItsSizeGivesTheCheapestTableDown) {
  // 400 units in all, so that level 5 may hold 113: 14 meets one table of 40 for its 60, 13 two.
  EXPECT_EQ(Transcript({{5, "13:b-e*60 14:g-h*60 15:l-q*40"},
                        {6, "1:a-c*40 2:d-f*40 3:g-i*40 4:j-m*40 5:n-p*40 6:q-z*40"}}),
            Steps({"5:14 -> 6:3"}));
  // Deletes make a table more worth it: they bring more down than their bytes.
  EXPECT_EQ(Transcript({{5, "13:b-e*60d 14:g-i*40 15:l-q*60"}, {6, kLast}}),
            Steps({"5:13 -> 6:1 2"}));
  // The one that was begun is gone on with.
  MergeCursor begun;
  begun.table = {1, 15};
  EXPECT_EQ(Transcript({{5, "13:b-e*60 14:g-h*60 15:l-q*40"}, {6, kLast}}, {}, begun),
            Steps({"5:15 -> 6:4 5 6", "5:14 -> 6:3"}));
}

TEST(Picker, ATableThatMeetsNothingBelowMoves) {
  EXPECT_EQ(Transcript({{5, "13:b-e*60 14:m1-m2*60"}, {6, "1:a-c*99 2:d-f*99 3:n-p*99"}}),
            Steps({"move 5:14 -> 6"}));
  // With deletes it is rewritten without them instead.
  EXPECT_EQ(Transcript({{5, "13:b-e*60 14:m1-m2*60d"}, {6, "1:a-c*99 2:d-f*99 3:n-p*99"}}),
            Steps({"5:14 -> 6"}));
}

TEST(Picker, TheWorstComesFirst) {
  // Level 5 is at 1.1 of its size, level 0 has two and a half times the tables that start a merge.
  const Levels levels = {
      {0,
       "29:a-z*4 28:a-z*4 27:a-z*4 26:a-z*4 25:a-z*4 24:a-z*4 23:a-z*4 22:a-z*4 21:a-z*4 20:a-z*4"},
      {5, "13:b-e*60 14:g-h*60"},
      {6, kLast}};
  EXPECT_EQ(Transcript(levels).front(), "0:29 28 27 26 25 24 23 22 21 20 -> 5:13 14");
  // Level 5 at three times its size comes before four tables in level 0.
  EXPECT_EQ(Transcript({{0, "23:a-z*4 22:a-z*4 21:a-z*4 20:a-z*4"},
                        {5, "13:b-e*200 14:g-h*200"},
                        {6, "1:a-c*40"}})
                .front(),
            "move 5:14 -> 6");
}

TEST(Picker, LeftoverLevelsAboveTheBaseGoDown) {
  // The store was larger: level 4 is not needed any more, and holds more than such a level may.
  EXPECT_EQ(Transcript({{4, "21:a-c*10 22:x-z*10"}, {6, kLast}}).size(), 2u);
}

TEST(Picker, IdleMergesWhatTakesATenthOfTheStore) {
  MergeDemand idle;
  idle.idle = true;
  EXPECT_EQ(Transcript({{0, "9:a-z*8"}, {6, kLast}}, idle), Steps());
  EXPECT_EQ(Transcript({{0, "9:a-c*8 8:b-d*8 7:c-e*8d"}, {6, kLast}}, idle),
            Steps({"0:9 8 7 -> 6:1 2"}));
  const Levels two = {{5, "9:a-c*25 10:d-e*25"}, {6, "1:a-c*100 2:d-f*100 3:g-i*100 4:j-m*100"}};
  EXPECT_EQ(Transcript(two), Steps());
  EXPECT_EQ(Transcript(two, idle), Steps({"5:9 10 -> 6:1 2"}));
  // Few bytes that delete much: 3,000 deletes over entries of 240,000 are no tenth; 30,000 are.
  EXPECT_EQ(Transcript({{0, "9:a-z*3d"}, {6, kLast}}, idle), Steps());
  auto version = std::make_shared<Version>();
  Fill(version.get(), 6, kLast);
  TableMeta deletes = Table(9, 0, "a", "z", 3);
  deletes.entries = deletes.tombstones = 30'000;
  version->levels[0].push_back(std::make_shared<const TableMeta>(deletes));
  const auto plan = PickMerge(version, kPolicy, idle, {});
  ASSERT_TRUE(plan);
  EXPECT_EQ(Text(*plan), "0:9 -> 6:1 2 3 4 5 6");
}

TEST(Picker, IdleRewritesWhatWasKeptForReadersWhoAreGone) {
  MergeDemand idle;
  idle.idle = true;
  EXPECT_EQ(Transcript({{6, "1:a-c*40k 2:d-f*40d"}}, idle), Steps({"6:1 -> 6", "6:2 -> 6"}));
  idle.readers = {50};
  EXPECT_EQ(Transcript({{6, "1:a-c*40k 2:d-f*40"}}, idle), Steps());
  idle.readers = {49, 51};
  EXPECT_EQ(Transcript({{6, "1:a-c*40k 2:d-f*40"}}, idle), Steps({"6:1 -> 6"}));
  EXPECT_EQ(Transcript({{6, "1:a-c*40k"}}), Steps()) << "not while there are writes";
}

TEST(Picker, AllOfARangeGoesToTheLastLevel) {
  MergeDemand all;
  all.all = true;
  EXPECT_EQ(Transcript({{0, "9:a-c*1 8:b-d*1"}, {5, "13:b-e*6 14:g-h*6"}, {6, kLast}}, all),
            Steps({"0:9 8 -> 5:13", "5:100 14 -> 6:1 2 3"}));
  all.begin = "g";
  all.end = "h";
  EXPECT_EQ(Transcript({{0, "9:a-c*1 8:b-d*1"}, {5, "13:b-e*6 14:g-h*6"}, {6, kLast}}, all),
            Steps({"5:14 -> 6:3"}));
  all.rewrite = true;
  EXPECT_EQ(Transcript({{6, "1:a-c*40k 2:d-f*40 3:g-i*40k"}}, all), Steps({"6:3 -> 6"}));
}

// A load of uniform keys, merges at a fixed share of the work: each step written is a unit of time.
// What level 0 holds, what is written per byte that comes, and how the store is shaped at the end.
class Load {
 public:
  explicit Load(uint64_t flush_units) : flush_units_(flush_units) {}

  void Flush(uint32_t from, uint32_t to) {
    VersionEdit edit;
    edit.add_tables.push_back(Table(next_++, 0, Key(from), Key(to), flush_units_));
    Apply(edit);
    brought_ += flush_units_;
  }
  bool Step() {
    const auto plan = PickMerge(version_, policy_, {}, cursor_);
    if (!plan) return false;
    cursor_ = CursorBehind(*plan, cursor_);
    VersionEdit edit;
    if (plan->move) {
      edit.move_tables.push_back(
          {plan->upper.front()->id, static_cast<uint8_t>(plan->output_level)});
      Apply(edit);
      return true;
    }
    std::vector<TablePtr> inputs = plan->upper;
    inputs.insert(inputs.end(), plan->lower.begin(), plan->lower.end());
    uint64_t low = UINT32_MAX, high = 0, end = 0;
    for (const TablePtr& t : inputs) {
      low = std::min(low, Number(t->smallest));
      end = std::max(end, Number(t->largest));
    }
    for (const TablePtr& t : plan->upper) high = std::max(high, Number(t->largest));
    for (const TablePtr& t : plan->lower) {
      if (Number(t->smallest) <= high) high = std::max(high, Number(t->largest));
    }
    // The key below which one step's output lies.
    const double step = plan->output_level == 0 ? 1e18 : policy_.step_bytes / kUnit;
    uint64_t begin = low;
    end = high;
    while (begin < end) {
      const uint64_t middle = (begin + end) / 2;
      if (UnitsBelow(inputs, middle) < step) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    const uint64_t units =
        std::max<uint64_t>(static_cast<uint64_t>(UnitsBelow(inputs, end) + 0.5), 1);
    TableMeta out = Table(next_++, plan->output_level, Key(low), Key(end), units);
    out.min_sequence = out.max_sequence = 0;
    for (const TablePtr& t : inputs) out.max_sequence = std::max(out.max_sequence, t->max_sequence);
    edit.add_tables.push_back(out);
    for (const TablePtr& t : inputs) {
      if (Number(t->largest) <= end) {
        edit.remove_tables.push_back(t->id);
      } else if (Number(t->smallest) <= end) {
        const double share = Share(*t, end);
        const uint32_t dropped =
            t->dropped_extents +
            static_cast<uint32_t>(share * static_cast<double>(t->extents.size()));
        edit.shorten_tables.push_back({t->id, dropped, Key(end + 1)});
      }
    }
    written_ += units;
    Apply(edit);
    return true;
  }
  size_t level0() const { return version_->levels[0].size(); }
  double WriteAmp() const {
    return 1 + static_cast<double>(written_) / static_cast<double>(brought_);
  }
  const Version& version() const { return *version_; }
  uint64_t Units(int level) const {
    uint64_t bytes = 0;
    for (const TablePtr& t : version_->levels[static_cast<size_t>(level)]) bytes += LiveBytes(*t);
    return bytes / kUnit;
  }

 private:
  static std::string Key(uint64_t n) { return absl::StrCat(absl::Hex(n, absl::kZeroPad8)); }
  static uint64_t Number(const std::string& key) { return std::stoull(key, nullptr, 16); }
  static double Share(const TableMeta& t, uint64_t below) {
    const double low = static_cast<double>(Number(t.smallest));
    const double high = static_cast<double>(Number(t.largest)) + 1;
    return std::clamp((static_cast<double>(below) + 1 - low) / (high - low), 0.0, 1.0);
  }
  static double UnitsBelow(const std::vector<TablePtr>& tables, uint64_t key) {
    double units = 0;
    for (const TablePtr& t : tables)
      units += Share(*t, key) * static_cast<double>(t->extents.size());
    return units;
  }
  void Apply(const VersionEdit& edit) {
    auto applied = ApplyEdit(*version_, edit);
    ASSERT_TRUE(applied.ok()) << applied.status();
    version_ = applied->version;
    const absl::Status right = CheckVersion(*version_);
    ASSERT_TRUE(right.ok()) << right;
  }

  const uint64_t flush_units_;
  const MergePolicy policy_ = {.base_bytes = 4 * flush_units_ * kUnit,
                               .step_bytes = flush_units_ / 4 * kUnit,
                               .level0_stop = kLevel0StopMax};
  std::shared_ptr<const Version> version_ = std::make_shared<Version>();
  MergeCursor cursor_;
  uint32_t next_ = 1;
  uint64_t brought_ = 0, written_ = 0;
};

TEST(Picker, AUniformLoadIsWrittenFewTimesAndEndsInShape) {
  // 64 memtables: what 4 GiB of values are to a store with memtables of 64 MiB.
  Load load(64);
  size_t most = 0;
  for (int i = 0; i < 64; ++i) {
    load.Flush(0, UINT32_MAX - 1);
    // Merges write eight times of what comes, at most.
    for (int s = 0; s < 32 && load.Step(); ++s) {
    }
    most = std::max(most, load.level0());
  }
  int left = 0;
  while (load.Step()) ASSERT_LT(++left, 10'000);
  EXPECT_LE(load.WriteAmp(), 9.0) << most;
  EXPECT_LE(most, size_t{kLevel0StopMax / 2});
  EXPECT_LT(load.level0(), size_t{kLevel0Merge});
  const LevelShape shape =
      ShapeOf(load.version(), {.base_bytes = 256 * kUnit, .step_bytes = 16 * kUnit});
  EXPECT_EQ(shape.base, 5);
  for (int level = 1; level < kLastLevel; ++level) {
    EXPECT_LE(load.Units(level) * kUnit, shape.target[static_cast<size_t>(level)] + kUnit) << level;
  }
}

TEST(Picker, ALoadInKeyOrderIsWrittenOnce) {
  Load load(64);
  for (uint32_t i = 0; i < 200; ++i) {
    load.Flush(i * 1'000'000, i * 1'000'000 + 999'999);
    while (load.Step()) {
    }
    EXPECT_LE(load.level0(), 1u);
  }
  EXPECT_EQ(load.WriteAmp(), 1.0);
}

}  // namespace
}  // namespace ashlar
