#include "engine/memtable/memtable.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ashlar {
namespace {

TEST(Memtable, GivesTheNewestVersionAtOrBeforeASequenceNumber) {
  Memtable m(1u << 20);
  m.Add(1, EntryKind::kValue, "k", "one");
  m.Add(5, EntryKind::kDelete, "k", "");
  m.Add(9, EntryKind::kValue, "k", "nine");
  std::string_view value;
  EXPECT_EQ(m.Get("k", 0, &value), Memtable::Found::kNo);
  EXPECT_EQ(m.Get("k", 4, &value), Memtable::Found::kValue);
  EXPECT_EQ(value, "one");
  EXPECT_EQ(m.Get("k", 5, &value), Memtable::Found::kDeleted);
  EXPECT_EQ(m.Get("k", 100, &value), Memtable::Found::kValue);
  EXPECT_EQ(value, "nine");
  EXPECT_EQ(m.Get("kk", 100, &value), Memtable::Found::kNo);
  EXPECT_EQ(m.tombstones(), 1u);
  EXPECT_EQ(m.max_sequence(), 9u);
}

TEST(Memtable, IteratesInOrder) {
  Memtable m(4u << 20);
  std::map<std::pair<std::string, uint64_t>, std::string> model;
  std::mt19937 random(3);
  for (uint64_t s = 1; s <= 5000; ++s) {
    const std::string key = "k" + std::to_string(random() % 1000), value = std::to_string(s);
    m.Add(s, EntryKind::kValue, key, value);
    model[{key, UINT64_MAX - s}] = value;
  }
  auto it = m.NewIterator();
  it->SeekToFirst();
  for (const auto& [k, v] : model) {
    ASSERT_TRUE(it->Valid());
    ASSERT_EQ(it->key(), k.first);
    ASSERT_EQ(it->sequence(), UINT64_MAX - k.second);
    ASSERT_EQ(it->value(), v);
    it->Next();
  }
  EXPECT_FALSE(it->Valid());
  it->Seek("k5");
  ASSERT_TRUE(it->Valid());
  EXPECT_GE(it->key(), "k5");
}

// The room that the writer reserves for a group is enough for it, whatever heights the towers get.
TEST(Memtable, ReservedRoomIsEnough) {
  for (size_t value_bytes : {size_t{0}, size_t{1}, size_t{13}, size_t{1000}}) {
    Memtable m(256u << 10);
    uint64_t sequence = 0;
    for (;;) {
      size_t need = Memtable::kGroupSlack;
      const int n = 1 + static_cast<int>(sequence % 7);
      need += static_cast<size_t>(n) * (Memtable::kEntryOverhead + 4 + value_bytes);
      if (need > m.bytes_free()) break;
      for (int i = 0; i < n; ++i) {
        ++sequence;
        const uint32_t key = static_cast<uint32_t>(sequence * 2654435761u);
        m.Add(sequence, EntryKind::kValue, {reinterpret_cast<const char*>(&key), 4},
              std::string(value_bytes, 'v'));
      }
    }
    EXPECT_GT(sequence, 100u);
  }
}

TEST(Memtable, ConcurrentReadersSeeWholeEntries) {
  Memtable m(8u << 20);
  std::atomic<uint64_t> published{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937 random(r);
      while (published.load(std::memory_order_acquire) < 20000) {
        const uint64_t upto = published.load(std::memory_order_acquire);
        if (upto == 0) continue;
        const uint64_t i = 1 + random() % upto;
        std::string_view value;
        ASSERT_EQ(m.Get("k" + std::to_string(i), upto, &value), Memtable::Found::kValue);
        ASSERT_EQ(value, std::to_string(i));
      }
    });
  }
  for (uint64_t i = 1; i <= 20000; ++i) {
    m.Add(i, EntryKind::kValue, "k" + std::to_string(i), std::to_string(i));
    published.store(i, std::memory_order_release);
  }
  for (auto& t : readers) t.join();
}

}  // namespace
}  // namespace ashlar
