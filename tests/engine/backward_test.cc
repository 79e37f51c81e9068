// Every stream of entries backwards: the same entries as forward, the other way round.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/iter/merging_iterator.h"
#include "engine/memtable/memtable.h"
#include "engine/table/run_iterator.h"
#include "tests/engine/floor.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

using Records = std::vector<TestRecord>;

// In a stream's order: ascending keys with gaps, some with many versions, some of several pages.
Records Some(uint64_t seed, uint64_t n, size_t value_max) {
  std::mt19937_64 random(seed);
  Records records;
  SequenceNumber sequence = 1'000'000;
  for (uint64_t i = 0; i < n; ++i) {
    const std::string key = NumberedKey(i * 3) + std::string(random() % 40, 'x');
    const uint64_t versions = random() % 10 == 0 ? 1 + random() % 30 : 1;
    for (uint64_t v = 0; v < versions; ++v) {
      TestRecord r{random() % 8 == 0 ? EntryKind::kDelete : EntryKind::kValue, --sequence, key, ""};
      const size_t size = random() % 20 == 0 ? random() % value_max : random() % 200;
      if (r.kind == EntryKind::kValue) r.value = std::string(size, static_cast<char>('a' + v % 26));
      records.push_back(std::move(r));
    }
  }
  return records;
}

void ExpectAt(InternalIterator* it, const TestRecord& r) {
  ASSERT_TRUE(it->Valid()) << it->status() << " instead of " << r.key;
  ASSERT_EQ(it->key(), r.key);
  ASSERT_EQ(it->sequence(), r.sequence);
  ASSERT_EQ(it->kind(), r.kind);
  ASSERT_TRUE(it->LoadValue()) << it->status();
  ASSERT_TRUE(it->value() == r.value) << r.key;
}

// All of it from the end; then from places in the middle, with turns.
void ExpectBackward(InternalIterator* it, const Records& records) {
  size_t left = records.size();
  for (it->SeekToLast(); it->Valid(); it->Prev()) {
    ASSERT_GT(left, 0u);
    ASSERT_NO_FATAL_FAILURE(ExpectAt(it, records[--left]));
  }
  ASSERT_TRUE(it->status().ok()) << it->status();
  ASSERT_EQ(left, 0u);

  const auto first_of = [&](const std::string& key) {
    return static_cast<size_t>(
        std::lower_bound(records.begin(), records.end(), key,
                         [](const TestRecord& r, const std::string& k) { return r.key < k; }) -
        records.begin());
  };
  std::mt19937_64 random(g_seed);
  for (int i = 0; i < 400; ++i) {
    const TestRecord& r = records[random() % records.size()];
    const std::string target = random() % 3 == 0   ? r.key
                               : random() % 2 == 0 ? r.key + '\0'
                                                   : NumberedKey(random() % 4'000);
    it->SeekBefore(target);
    size_t at = first_of(target);  // the records in front of it
    for (uint64_t n = random() % 60; n > 0 && at > 0; --n) {
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, records[--at])) << target;
      it->Prev();
    }
    ASSERT_EQ(it->Valid(), at > 0) << target;
    ASSERT_TRUE(it->status().ok()) << it->status();
    it->Seek(target);
    at = first_of(target);
    for (uint64_t n = random() % 10; n > 0 && at < records.size(); --n, ++at, it->Next()) {
      ASSERT_NO_FATAL_FAILURE(ExpectAt(it, records[at])) << target;
    }
  }
}

TEST(Backward, Memtable) {
  Memtable empty(1u << 20);
  const auto none = empty.NewIterator();
  none->SeekToLast();
  EXPECT_FALSE(none->Valid());
  none->SeekBefore("x");
  EXPECT_FALSE(none->Valid());

  Memtable m(16u << 20);
  Records records = Some(g_seed, 1'000, 3'000);
  Records shuffled = records;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(g_seed));
  for (const TestRecord& r : shuffled) m.Add(r.sequence, r.kind, r.key, r.value);
  ExpectBackward(m.NewIterator().get(), records);
}

TEST(Backward, Table) {
  for (const uint32_t extent : {64u << 10, 1u << 20}) {
    for (const size_t value_max : {size_t{300}, size_t{9'000}, size_t{200'000}}) {
      Floor floor(4096, extent);
      const Records records = Some(g_seed + value_max, 800, value_max);
      const auto meta = Build(&floor, {1, 1}, records);
      ASSERT_TRUE(meta.ok()) << meta.status();
      ASSERT_NO_FATAL_FAILURE(ExpectBackward(
          floor.tables->NewIterator(std::make_shared<TableMeta>(*meta)).get(), records))
          << "values up to " << value_max;
    }
  }
}

TEST(Backward, AShortenedTableEndsAtItsBound) {
  Floor floor;
  const Records records = Some(g_seed, 3'000, 300);
  const auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok()) << meta.status();
  ASSERT_GT(meta->extents.size(), 3u);
  for (size_t cut = 100; cut + 100 < records.size(); cut += 371) {
    const std::string bound = records[cut].key + '\0';
    const auto dropped = floor.tables->ExtentsBefore(*meta, bound);
    ASSERT_TRUE(dropped.ok());
    auto shorter = std::make_shared<TableMeta>(*meta);
    shorter->extents.erase(shorter->extents.begin(), shorter->extents.begin() + *dropped);
    shorter->dropped_extents = *dropped;
    shorter->smallest = bound;
    Records rest;
    for (const TestRecord& r : records) {
      if (r.key >= bound) rest.push_back(r);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectBackward(floor.tables->NewIterator(shorter).get(), rest)) << cut;
  }
}

TEST(Backward, RunAndMerge) {
  Floor floor(4096, 64u << 10, 32u << 10);
  const Records records = Some(g_seed, 1'500, 3'000);
  // Every third key's versions to a memtable, the others to a table of their own and to a run.
  Memtable memtable(16u << 20);
  Records alone;
  std::vector<Records> run(5);
  for (const TestRecord& r : records) {
    const uint64_t n = std::stoull(r.key.substr(3, 8)) / 3;
    if (n % 3 == 0) memtable.Add(r.sequence, r.kind, r.key, r.value);
    if (n % 3 == 1) alone.push_back(r);
    if (n % 3 == 2) run[n / 300].push_back(r);
  }
  std::vector<std::shared_ptr<const TableMeta>> tables;
  Records of_run;
  for (const Records& part : run) {
    const auto meta = Build(&floor, {1, static_cast<uint32_t>(tables.size() + 1)}, part);
    ASSERT_TRUE(meta.ok()) << meta.status();
    tables.push_back(std::make_shared<TableMeta>(*meta));
    of_run.insert(of_run.end(), part.begin(), part.end());
  }
  ASSERT_NO_FATAL_FAILURE(ExpectBackward(NewRunIterator(floor.tables.get(), tables).get(), of_run));
  const auto none = NewRunIterator(floor.tables.get(), {});
  none->SeekToLast();
  EXPECT_FALSE(none->Valid());

  const auto meta = Build(&floor, {1, 9}, alone);
  ASSERT_TRUE(meta.ok()) << meta.status();
  std::vector<std::unique_ptr<InternalIterator>> children;
  children.push_back(memtable.NewIterator());
  children.push_back(floor.tables->NewIterator(std::make_shared<TableMeta>(*meta)));
  children.push_back(NewRunIterator(floor.tables.get(), tables));
  ASSERT_NO_FATAL_FAILURE(ExpectBackward(NewMergingIterator(std::move(children)).get(), records));
}

// A walk backwards reads ahead as one forward does: about as many commands, no page much more
// often.
TEST(Backward, CostsWhatForwardCosts) {
  Floor floor(4096, 1u << 20, 128u << 10);
  Records records;
  for (uint64_t i = 0; i < 20'000; ++i) {
    records.push_back({EntryKind::kValue, 1, NumberedKey(i), std::string(300, 'v')});
  }
  const auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok()) << meta.status();
  uint64_t reads = 0, pages = 0;
  floor.device->set_hook([&](const io::Request& r, const std::byte*) {
    reads += r.op == io::Op::kRead;
    pages += r.blocks;
    return io::IoStatus{};
  });
  const auto it = floor.tables->NewIterator(std::make_shared<TableMeta>(*meta));
  uint64_t seen = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next()) seen += it->LoadValue();
  const uint64_t forward_reads = reads, forward_pages = pages;
  reads = pages = 0;
  for (it->SeekToLast(); it->Valid(); it->Prev()) seen += it->LoadValue();
  floor.device->set_hook(nullptr);
  EXPECT_EQ(seen, 2 * records.size());
  EXPECT_LE(reads, forward_reads + forward_reads / 4);
  EXPECT_LE(pages, forward_pages + forward_pages / 10);
}

TEST(Backward, ABadPageEndsTheWalkAndIsNamed) {
  Floor floor;
  const Records records = Some(g_seed, 2'000, 300);
  const auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok()) << meta.status();
  floor.Bytes(meta->extents[1], 3 * kPageBytes + 100)[0] ^= std::byte{1};
  const auto it = floor.tables->NewIterator(std::make_shared<TableMeta>(*meta));
  size_t left = records.size();
  for (it->SeekToLast(); it->Valid() && it->LoadValue(); it->Prev()) {
    ASSERT_NO_FATAL_FAILURE(ExpectAt(it.get(), records[--left]));
  }
  EXPECT_TRUE(absl::IsDataLoss(it->status())) << it->status();
  EXPECT_FALSE(it->Valid());
  EXPECT_GT(left, 0u);
  EXPECT_LT(left, records.size());
  // It can be sought again, in front of the damage.
  it->SeekBefore(records[20].key);
  ASSERT_TRUE(it->Valid()) << it->status();
  EXPECT_LT(it->key(), records[20].key);
}

}  // namespace
}  // namespace ashlar
