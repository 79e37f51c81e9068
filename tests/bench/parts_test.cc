// What kv_bench counts and draws with: histogram, keys, orders, distributions.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kv/histogram.h"
#include "kv/keyspace.h"
#include "tests/support/seed.h"

namespace ashlar::bench {
namespace {

TEST(Histogram, EveryValueIsFoundAgainWithinOnePercent) {
  Rng rng(g_seed);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t ns = rng.Next() >> rng.Uniform(64);
    Histogram h;
    h.Add(ns);
    // Two neighbours far away keep the clamp to min and max from helping.
    h.Add(0);
    h.Add(UINT64_MAX);
    const double got = h.AtShare(0.6);
    ASSERT_LE(std::abs(got - static_cast<double>(ns)), 0.01 * static_cast<double>(ns)) << ns;
  }
}

TEST(Histogram, SharesAreThoseOfTheSortedValues) {
  Histogram whole, half[2];
  for (uint64_t ns = 1; ns <= 100000; ++ns) {
    whole.Add(ns);
    half[ns % 2].Add(ns);
  }
  half[0].Merge(half[1]);
  for (const Histogram* h : {&whole, &half[0]}) {
    EXPECT_EQ(h->count(), 100000u);
    EXPECT_EQ(h->max_ns(), 100000u);
    EXPECT_DOUBLE_EQ(h->mean_ns(), 50000.5);
    for (const double share : {0.0001, 0.25, 0.5, 0.95, 0.999, 1.0}) {
      EXPECT_NEAR(h->AtShare(share), share * 100000, 0.01 * share * 100000) << share;
    }
  }
}

TEST(Permutation, MeetsEachNumberOnceAndInDisorder) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 100, 4095, 4096, 4097, 30000}) {
    const Permutation p(n, g_seed);
    std::vector<bool> met(n, false);
    uint64_t in_place = 0;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t x = p(i);
      ASSERT_LT(x, n);
      ASSERT_FALSE(met[x]) << "twice: " << x << " of " << n;
      met[x] = true;
      in_place += x == i;
    }
    if (n >= 100) EXPECT_LT(in_place, 20u) << n;
  }
}

// Each of the first ranks as often as 1 / rank^0.99 says, within 15 %; the approximation of Gray et
// al. is exact for the first two.
TEST(Zipfian, RanksAreAsFrequentAsTheLawSays) {
  constexpr uint64_t kN = 1000, kDraws = 400000;
  double zeta = 0;
  for (uint64_t i = 1; i <= kN; ++i) zeta += std::pow(1.0 / static_cast<double>(i), 0.99);
  const Zipfian zipfian(kN);
  Rng rng(g_seed);
  std::vector<uint64_t> counts(kN, 0);
  for (uint64_t i = 0; i < kDraws; ++i) ++counts.at(zipfian.Draw(&rng));
  EXPECT_NEAR(static_cast<double>(counts[0]), kDraws / zeta, 0.05 * kDraws / zeta);
  double head = 0, wanted = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    head += static_cast<double>(counts[i]);
    wanted += kDraws / zeta * std::pow(1.0 / static_cast<double>(i + 1), 0.99);
  }
  EXPECT_NEAR(head, wanted, 0.15 * wanted);
}

TEST(Zipfian, SmallNumbersStayInRange) {
  Rng rng(g_seed);
  for (const uint64_t n : {1, 2, 3}) {
    const Zipfian zipfian(n);
    std::set<uint64_t> met;
    for (int i = 0; i < 1000; ++i) met.insert(zipfian.Draw(&rng));
    EXPECT_EQ(met.size(), n);
    EXPECT_LT(*met.rbegin(), n);
  }
}

TEST(KeySpace, KeysAreInTheOrderOfRecordsAndReadBack) {
  const KeySpace keys(1000, 0, 16, 100, g_seed);
  std::string key, last;
  for (uint64_t id = 0; id < 1000; ++id) {
    keys.MakeKey(id, &key);
    EXPECT_EQ(key.size(), 16u);
    EXPECT_GT(key, last);
    uint64_t parsed = UINT64_MAX;
    ASSERT_TRUE(keys.ParseKey(key, &parsed));
    EXPECT_EQ(parsed, id);
    last = key;
  }
  uint64_t id = 0;
  EXPECT_FALSE(keys.ParseKey(key + "0", &id));
  EXPECT_FALSE(keys.ParseKey(key.substr(0, 15), &id));
  EXPECT_FALSE(keys.ParseKey(key.substr(0, 15) + "x", &id));
  EXPECT_FALSE(keys.ParseKey(std::string(16, '\xff'), &id));
}

TEST(KeySpace, InsertsAreNewKeysSpreadBetweenTheOld) {
  KeySpace keys(1000, 2500, 8, 10, g_seed);
  std::set<std::string> met;
  std::string key, low, high;
  for (uint64_t id = 0; id < 1000; ++id) {
    keys.MakeKey(id, &key);
    met.insert(key);
  }
  keys.MakeKey(250, &low);
  keys.MakeKey(750, &high);
  uint64_t made = 0, inside = 0;
  for (;;) {
    const uint64_t record = keys.NextInsert();
    if (record == UINT64_MAX) break;
    keys.MakeKey(keys.IdOfRecord(record), &key);
    ASSERT_TRUE(met.insert(key).second) << "made twice";
    ++made;
    inside += key > low && key < high;
    if (made > 10000) break;
  }
  EXPECT_EQ(made, 3000u);
  EXPECT_NEAR(static_cast<double>(inside), 1500, 10);
}

TEST(KeySpace, AValueBelongsToItsKeyAlone) {
  const KeySpace keys(1000, 0, 16, 100, g_seed);
  Rng rng(g_seed);
  std::string buffer;
  const std::string value(keys.MakeValue(7, &rng, &buffer));
  EXPECT_TRUE(keys.ValueBelongs(7, value));
  EXPECT_FALSE(keys.ValueBelongs(8, value));
  EXPECT_FALSE(keys.ValueBelongs(7, value.substr(1)));
  EXPECT_NE(value, keys.MakeValue(7, &rng, &buffer)) << "an overwrite writes new bytes";
}

TEST(KeySpace, LiveKeysAreCountedOnce) {
  KeySpace keys(100, 0, 16, 100, g_seed);
  keys.SetLive(5);
  keys.SetLive(5);
  keys.SetLive(99);
  keys.SetDead(7);
  EXPECT_EQ(keys.live_keys(), 2u);
  EXPECT_EQ(keys.live_bytes(), 232u);
  keys.SetDead(5);
  EXPECT_FALSE(keys.live(5));
  EXPECT_TRUE(keys.live(99));
  keys.Forget();
  EXPECT_EQ(keys.live_keys(), 0u);
}

}  // namespace
}  // namespace ashlar::bench
