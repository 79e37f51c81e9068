// Merges by level: what they leave where, what a read costs then, what is given back, and when.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tests/db/rig.h"
#include "tests/support/manual_clock.h"

namespace ashlar {
namespace {

std::string KeyOf(uint64_t n) { return absl::StrCat("key", absl::Dec(n, absl::kZeroPad6)); }

RigOptions SmallLevels() {
  RigOptions o;
  o.memory_bytes = 2 * kMiB;
  o.extent_bytes = 64u << 10;
  o.level_base_bytes = 64u << 10;
  return o;
}

uint64_t TombstonesIn(const Stats& s) {
  uint64_t n = 0;
  for (const Stats::Level& l : s.levels) n += l.tombstones;
  return n;
}

uint64_t UsedBytes(const Stats& s) { return (s.extents_total - s.extents_free) * s.extent_bytes; }

TEST(Levels, SeveralOfThemAnswerAsOneStore) {
  RigOptions options = SmallLevels();
  options.memory_bytes = 16 * kMiB;  // room for all indexes
  Rig rig(options);
  ASHLAR_OK(rig.Open());
  constexpr uint64_t kKeys = 12'000;
  std::map<std::string, std::string> model, moment;
  std::unique_ptr<const Snapshot> snapshot;
  std::mt19937_64 random(g_seed);
  size_t most_levels = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    for (int i = 0; i < 300; ++i) {
      const std::string key = KeyOf(random() % kKeys);
      if (random() % 5 == 0) {
        ASHLAR_OK(rig->Delete(kBufferedWrite, key));
        model.erase(key);
      } else {
        const std::string value =
            Bytes(round * 1000 + static_cast<uint64_t>(i), 200 + random() % 1'500);
        ASHLAR_OK(rig->Put(kBufferedWrite, key, value));
        model[key] = value;
      }
    }
    ASHLAR_OK(rig->Flush());
    rig->RunBackground();
    if (round == 30) {
      snapshot = rig->GetSnapshot();
      moment = model;
    }
    size_t levels = 0;
    for (const Stats::Level& l : rig->stats().levels) levels += l.tables > 0;
    most_levels = std::max(most_levels, levels);
    if (round % 10 == 9) ExpectSame(Contents(rig.db()), model, absl::StrCat("round ", round));
  }
  EXPECT_GE(most_levels, 4u) << "or the test tests less than it says";
  ReadOptions then;
  then.snapshot = snapshot.get();
  ExpectSame(Contents(rig->NewIterator(then).get()), moment, "the snapshot");
  for (uint64_t n = 0; n < kKeys; n += 7) {
    Value value;
    const absl::Status s = rig->Get(then, KeyOf(n), &value);
    const auto want = moment.find(KeyOf(n));
    ASSERT_EQ(s.ok() ? std::string(value.view()) : s.ToString(),
              want == moment.end() ? absl::NotFoundError("").ToString() : want->second);
  }

  // However many levels: a command for a key that is there or whose delete is, none for others,
  // once the indexes were read.
  for (uint64_t n = 0; n < kKeys; n += 10) rig.Get(KeyOf(n));
  const Stats before = rig->stats();
  uint64_t found = 0;
  for (uint64_t n = 0; n < kKeys; ++n) {
    const auto want = model.find(KeyOf(n));
    found += want != model.end();
    ASSERT_EQ(rig.Get(KeyOf(n)), want == model.end() ? "<none>" : want->second);
  }
  const Stats after = rig->stats();
  const uint64_t needed = found + std::min(TombstonesIn(after), kKeys - found);
  EXPECT_LE(after.device_reads - before.device_reads, needed + needed / 50) << "of " << found;

  snapshot.reset();
  rig.Check("at the end");
  ASHLAR_OK(rig.Close());
  ASHLAR_OK(rig.Open());
  ExpectSame(Contents(rig.db()), model, "opened again");
  ASHLAR_OK(rig->CompactRange("", ""));
  ExpectSame(Contents(rig.db()), model, "compacted");
  const Stats s = rig->stats();
  for (size_t l = 0; l + 1 < s.levels.size(); ++l) EXPECT_EQ(s.levels[l].tables, 0u) << l;
  EXPECT_LE(s.levels.back().entries, model.size() * 11 / 10) << "as written, before they were cut";
  EXPECT_TRUE(s.settled);
  EXPECT_EQ(rig->CheckSpace(), absl::OkStatus());
}

TEST(Levels, ALoadInKeyOrderIsMovedNotMerged) {
  Rig rig(SmallLevels());
  ASHLAR_OK(rig.Open());
  for (uint64_t n = 0; n < 6'000; ++n) {
    ASHLAR_OK(rig->Put(kBufferedWrite, KeyOf(n), Bytes(n, 1'000)));
    if (n % 100 == 0) rig->RunBackground();
  }
  ASHLAR_OK(rig->Flush());
  rig->RunBackground();
  const Stats s = rig->stats();
  EXPECT_EQ(s.merge_bytes_written, 0u);
  EXPECT_GE(s.merge_moves, 10u);
  EXPECT_GE(s.levels.back().entries, 5'000u);
  for (uint64_t n = 0; n < 6'000; n += 13) ASSERT_EQ(rig.Get(KeyOf(n)), Bytes(n, 1'000));
  rig.Check("loaded");
}

// Small tables are gathered within level 0; a delete in them still hides what an older table there
// holds.
TEST(Levels, AGatheredDeleteHidesWhatIsOlder) {
  RigOptions options = SmallLevels();
  options.level_base_bytes = 1 * kMiB;
  Rig rig(options);
  ASHLAR_OK(rig.Open());
  // Its delete keeps it in level 0: it may not move to the last level.
  for (uint64_t n = 0; n < 200; ++n) ASHLAR_OK(rig->Put(kBufferedWrite, KeyOf(n), Bytes(n, 1'000)));
  ASHLAR_OK(rig->Delete(kBufferedWrite, KeyOf(200)));
  ASHLAR_OK(rig->Flush());
  for (uint64_t n = 0; n < 4; ++n) {
    ASHLAR_OK(rig->Delete(kBufferedWrite, KeyOf(n)));
    ASHLAR_OK(rig->Put(kBufferedWrite, KeyOf(100 + n), "new"));
    ASHLAR_OK(rig->Flush());
  }
  rig->RunBackground();
  const Stats s = rig->stats();
  EXPECT_EQ(s.levels[0].tables, 2u);
  EXPECT_EQ(s.levels[0].tombstones, 5u);
  EXPECT_EQ(s.merge_steps, 1u);
  for (uint64_t n = 0; n < 200; ++n) {
    const bool is_new = n >= 100 && n < 104;
    ASSERT_EQ(rig.Get(KeyOf(n)), n < 4 ? "<none>" : is_new ? "new" : Bytes(n, 1'000)) << n;
  }
  rig.Check("gathered");
}

TEST(Levels, CompactRangeTakesItsRangeDownAndNoMore) {
  Rig rig(SmallLevels());
  ASHLAR_OK(rig.Open());
  const auto flush = [&](uint64_t from, uint64_t to, bool deletes) {
    for (uint64_t n = from; n < to; ++n) {
      ASHLAR_OK(deletes && n % 2 == 0 ? rig->Delete(kBufferedWrite, KeyOf(n))
                                      : rig->Put(kBufferedWrite, KeyOf(n), Bytes(n, 100)));
    }
    ASHLAR_OK(rig->Flush());
  };
  flush(0, 1'000, false);
  flush(1'000, 2'000, false);
  ASHLAR_OK(rig->CompactRange("", ""));
  flush(1'000, 1'100, true);
  ASSERT_EQ(TombstonesIn(rig->stats()), 50u);
  // A range in which nothing lies above the last level; then one that the deletes reach into.
  ASHLAR_OK(rig->CompactRange(KeyOf(0), KeyOf(1'000)));
  EXPECT_EQ(TombstonesIn(rig->stats()), 50u);
  ASHLAR_OK(rig->CompactRange(KeyOf(1'099), ""));
  EXPECT_EQ(TombstonesIn(rig->stats()), 0u);
  for (uint64_t n = 0; n < 2'000; ++n) {
    const bool deleted = n >= 1'000 && n < 1'100 && n % 2 == 0;
    ASSERT_EQ(rig.Get(KeyOf(n)), deleted ? "<none>" : Bytes(n, 100));
  }
  // What a snapshot held is rewritten once it is gone, when it is asked for.
  auto snapshot = rig->GetSnapshot();
  flush(0, 500, true);
  ASHLAR_OK(rig->CompactRange("", ""));
  const uint64_t kept = rig->stats().levels.back().entries;
  ReadOptions then;
  then.snapshot = snapshot.get();
  EXPECT_EQ(Contents(rig->NewIterator(then).get()).size(), 1'950u);
  snapshot.reset();
  ASHLAR_OK(rig->CompactRange("", ""));
  EXPECT_EQ(rig->stats().levels.back().entries, kept - 250 - 500) << "deletes and what they hid";
  EXPECT_EQ(Contents(rig.db()).size(), 1'950u - 250);
  EXPECT_EQ(TombstonesIn(rig->stats()), 0u);
}

TEST(Levels, CompactRangeIsRefusedWhereNothingMayBeWritten) {
  Rig rig(SmallLevels());
  ASHLAR_OK(rig.Open());
  ASHLAR_OK(rig.Put("a", "1"));
  ASHLAR_OK(rig->Close());
  EXPECT_EQ(rig->CompactRange("", "").code(), absl::StatusCode::kFailedPrecondition);
  rig.holder().reset();
  Options read_only = rig.StoreOptions();
  read_only.read_only = true;
  auto db = rig.OpenAnother(read_only);
  ASHLAR_OK(db.status());
  EXPECT_EQ((*db)->CompactRange("", "").code(), absl::StatusCode::kFailedPrecondition);
}

// A store that is left alone gives back what was deleted, without being asked.
TEST(Levels, AnIdleStoreTidiesUp) {
  ManualClock clock;
  Rig rig(SmallLevels());
  Options options = rig.StoreOptions();
  options.idle_ms = 7'000;
  const auto pass = [&](uint64_t ms) {
    clock.SleepNs(ms * 1'000'000);
    rig->RunLogTimers();
    rig->RunBackground();
  };
  rig.holder() = *DBImpl::Open(options, rig.device(), nullptr, {&clock, InlineExecutor()});
  const uint64_t empty = UsedBytes(rig->stats());
  for (uint64_t n = 0; n < 8'000; ++n) {
    ASHLAR_OK(rig->Put(kBufferedWrite, KeyOf(n), Bytes(n, 1'000)));
  }
  ASHLAR_OK(rig->Flush());
  rig->RunBackground();
  const uint64_t full = UsedBytes(rig->stats());
  for (uint64_t n = 0; n < 8'000; ++n) {
    if (n % 10 != 0) ASHLAR_OK(rig->Delete(kBufferedWrite, KeyOf(n)));
  }
  pass(6'900);
  EXPECT_FALSE(rig->stats().settled);
  EXPECT_GT(UsedBytes(rig->stats()), full / 2);
  pass(100);
  Stats s = rig->stats();
  EXPECT_TRUE(s.settled);
  EXPECT_LT(s.memtable_bytes, 1'000u);
  EXPECT_EQ(s.levels.back().entries, 800u);
  EXPECT_EQ(TombstonesIn(s), 0u);
  EXPECT_LE((UsedBytes(s) - empty) * 10, 800 * 1'009u * 13);

  // What is kept for a snapshot stays while it is there.
  const auto all = Contents(rig.db());
  auto snapshot = rig->GetSnapshot();
  for (uint64_t n = 0; n < 8'000; n += 10) ASHLAR_OK(rig->Delete(kBufferedWrite, KeyOf(n)));
  pass(7'000);
  ReadOptions then;
  then.snapshot = snapshot.get();
  ExpectSame(Contents(rig->NewIterator(then).get()), all, "the snapshot");
  snapshot.reset();
  rig->RunBackground();
  s = rig->stats();
  uint64_t entries = 0;
  for (const Stats::Level& l : s.levels) entries += l.entries;
  EXPECT_EQ(entries, 0u);
  EXPECT_TRUE(s.settled);
  EXPECT_EQ(rig->CheckSpace(), absl::OkStatus());
}

TEST(Levels, IdleTimeOfZeroIsRefused) {
  Rig rig(SmallLevels());
  Options options = rig.StoreOptions();
  options.idle_ms = 0;
  const absl::Status s = rig.OpenAnother(options).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
}

}  // namespace
}  // namespace ashlar
