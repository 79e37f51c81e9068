// Iterators both ways: ends, bounds, turns, versions, and streams that are built anew under them.
#include <memory>
#include <string>
#include <vector>

#include "tests/db/rig.h"

namespace ashlar {
namespace {

// The keys from where the iterator stands, going one way.
std::string Keys(Iterator* it, bool backward) {
  std::string keys;
  for (; it->Valid(); backward ? it->Prev() : it->Next()) {
    EXPECT_EQ(it->value(), absl::StrCat("v", std::string(it->key())));
    keys += it->key();
  }
  EXPECT_EQ(it->status(), absl::OkStatus());
  return keys;
}

class BothWays : public testing::TestWithParam<bool> {
 protected:
  // b d f h j, with versions and deletes of others between them; in the memtable, or spread over
  // tables.
  void SetUp() override {
    ASHLAR_OK(rig_.Open());
    const bool tables = GetParam();
    for (const char* key : {"a", "b", "c", "d", "e"}) ASHLAR_OK(rig_.Put(key, "old"));
    if (tables) ASHLAR_OK(rig_->MergeAll());
    for (const char* key : {"b", "f", "h"}) ASHLAR_OK(rig_.Put(key, absl::StrCat("v", key)));
    if (tables) ASHLAR_OK(rig_->Flush());
    for (const char* key : {"a", "c", "e", "g", "k"}) ASHLAR_OK(rig_.Delete(key));
    for (const char* key : {"d", "j"}) ASHLAR_OK(rig_.Put(key, absl::StrCat("v", key)));
  }
  std::unique_ptr<Iterator> Within(std::string_view lower, std::string_view upper) {
    ReadOptions options;
    options.lower_bound = lower;
    options.upper_bound = upper;
    return rig_->NewIterator(options);
  }
  Rig rig_;
};

TEST_P(BothWays, EndsAndSeeks) {
  const auto it = rig_->NewIterator({});
  it->SeekToLast();
  EXPECT_EQ(Keys(it.get(), true), "jhfdb");
  EXPECT_FALSE(it->Valid());
  it->SeekToFirst();
  EXPECT_EQ(Keys(it.get(), false), "bdfhj");
  const std::vector<std::pair<std::string, std::string>> before = {
      {"", ""}, {"a", ""}, {"b", "b"}, {"c", "b"}, {"d", "d"}, {"e", "d"}, {"j", "j"}, {"zz", "j"}};
  for (const auto& [target, want] : before) {
    it->SeekForPrev(target);
    EXPECT_EQ(it->Valid() ? std::string(it->key()) : "", want) << target;
  }
}

TEST_P(BothWays, BoundsHoldBothWays) {
  EXPECT_EQ(([&] {
              const auto it = Within("d", "h");
              it->SeekToLast();
              return Keys(it.get(), true);
            })(),
            "fd");
  const auto it = Within("c", "i");
  it->SeekForPrev("z");
  EXPECT_EQ(Keys(it.get(), true), "hfd");
  it->SeekForPrev("h");
  EXPECT_EQ(Keys(it.get(), true), "hfd");
  it->SeekForPrev("g");
  EXPECT_EQ(Keys(it.get(), true), "fd");
  it->SeekForPrev("c");
  EXPECT_FALSE(it->Valid());
  it->SeekToFirst();
  ASSERT_TRUE(it->Valid());
  it->Prev();
  EXPECT_FALSE(it->Valid());
  EXPECT_EQ(it->status(), absl::OkStatus());
  const auto exact = Within("d", "h");  // the upper bound is not shown
  exact->SeekForPrev("h");
  EXPECT_EQ(exact->key(), "f");
  const auto none = Within("h", "d");
  none->SeekToLast();
  EXPECT_FALSE(none->Valid());
  none->SeekToFirst();
  EXPECT_FALSE(none->Valid());
}

TEST_P(BothWays, TurnsAnywhere) {
  const std::string keys = "bdfhj";
  std::mt19937_64 random(g_seed);
  const auto it = rig_->NewIterator({});
  it->Seek("f");
  size_t at = 2;
  for (int i = 0; i < 2'000; ++i) {
    ASSERT_TRUE(it->Valid());
    ASSERT_EQ(it->key(), keys.substr(at, 1));
    ASSERT_EQ(it->value(), "v" + keys.substr(at, 1));
    const bool forward = at == 0 || (at + 1 < keys.size() && random() % 2 == 0);
    forward ? it->Next() : it->Prev();
    at = forward ? at + 1 : at - 1;
    // What it stands on is flushed and merged away under it.
    if (i % 100 == 50) ASHLAR_OK(rig_.Put("x" + std::to_string(i), "new"));
    if (i % 200 == 60) ASHLAR_OK(rig_->Flush());
    if (i % 400 == 170) ASHLAR_OK(rig_->MergeAll());
  }
}

TEST_P(BothWays, ASnapshotShowsItsVersions) {
  const auto snapshot = rig_->GetSnapshot();
  for (const char* key : {"a", "b", "d", "k"}) ASHLAR_OK(rig_.Put(key, "later"));
  ASHLAR_OK(rig_.Delete("f"));
  ReadOptions then;
  then.snapshot = snapshot.get();
  const auto it = rig_->NewIterator(then);
  it->SeekToLast();
  EXPECT_EQ(Keys(it.get(), true), "jhfdb");
  it->SeekForPrev("e");
  EXPECT_EQ(Keys(it.get(), true), "db");
}

TEST_P(BothWays, DamageEndsItWithItsPlace) {
  ASHLAR_OK(rig_->MergeAll());
  rig_.SetHook([](const io::Request& r, const std::byte*) {
    return r.op == io::Op::kRead ? io::IoStatus{io::IoClass::kFatal, 0, 0, EIO} : io::IoStatus{};
  });
  const auto it = rig_->NewIterator({});
  it->SeekToLast();
  EXPECT_FALSE(it->Valid());
  EXPECT_TRUE(absl::IsDataLoss(it->status())) << it->status();
  rig_.SetHook(nullptr);
  it->SeekToLast();
  EXPECT_EQ(Keys(it.get(), true), "jhfdb");
}

INSTANTIATE_TEST_SUITE_P(Tables, BothWays, testing::Bool());

TEST(IteratorDeathTest, PrevNeedsAPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rig rig;
  ASHLAR_OK(rig.Open());
  const auto it = rig->NewIterator({});
  it->SeekToLast();
  EXPECT_DEATH(it->Prev(), "");
}

}  // namespace
}  // namespace ashlar
