#include <gtest/gtest.h>

#include "engine/table/run_iterator.h"
#include "tests/engine/floor.h"

namespace ashlar {
namespace {

std::vector<TestRecord> Mixed(uint32_t seed, int n, size_t value_max) {
  std::mt19937 random(seed);
  std::vector<TestRecord> records;
  SequenceNumber sequence = 100000;
  for (int i = 0; i < n; ++i) {
    const std::string key = NumberedKey(i * 3) + std::string(random() % 40, 'x');
    const int versions = random() % 10 == 0 ? 1 + random() % 30 : 1;
    for (int v = 0; v < versions; ++v) {
      TestRecord r{random() % 8 == 0 ? EntryKind::kDelete : EntryKind::kValue, --sequence, key, ""};
      size_t size = random() % 20 == 0 ? random() % value_max : random() % 200;
      if (r.kind == EntryKind::kValue) r.value = std::string(size, static_cast<char>('a' + v % 26));
      records.push_back(std::move(r));
    }
  }
  return records;
}

class TableShapes : public testing::TestWithParam<std::tuple<uint32_t, uint32_t, size_t>> {};

TEST_P(TableShapes, GivesBackEveryRecordByStreamAndByKey) {
  const auto [seed, extent_bytes, value_max] = GetParam();
  Floor floor(seed % 2 ? 512 : 4096, extent_bytes);
  const auto records = Mixed(seed, 600, value_max);
  auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok()) << meta.status();
  EXPECT_EQ(meta->entries, records.size());
  EXPECT_EQ(meta->smallest, records.front().key);
  EXPECT_EQ(meta->largest, records.back().key);

  auto it = floor.tables->NewIterator(std::make_shared<TableMeta>(*meta));
  size_t i = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next(), ++i) {
    ASSERT_LT(i, records.size());
    ASSERT_EQ(it->key(), records[i].key) << i;
    ASSERT_EQ(it->sequence(), records[i].sequence);
    ASSERT_EQ(it->kind(), records[i].kind);
    ASSERT_TRUE(it->LoadValue());
    ASSERT_EQ(it->value(), records[i].value);
  }
  ASSERT_TRUE(it->status().ok()) << it->status();
  ASSERT_EQ(i, records.size());

  for (i = 0; i < records.size(); ++i) {
    const TestRecord& r = records[i];
    std::string value;
    auto found = floor.tables->Get(*meta, r.key, r.sequence, &value);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(*found, r.kind == EntryKind::kValue ? TableReader::Found::kValue
                                                  : TableReader::Found::kDeleted)
        << i;
    if (r.kind == EntryKind::kValue) ASSERT_EQ(value, r.value);
    it->Seek(r.key);
    ASSERT_TRUE(it->Valid());
    ASSERT_EQ(it->key(), r.key);
    // Before its oldest version a key is not there.
    if (i + 1 == records.size() || records[i + 1].key != r.key) {
      found = floor.tables->Get(*meta, r.key, r.sequence - 1, &value);
      ASSERT_TRUE(found.ok());
      ASSERT_EQ(*found, TableReader::Found::kNo);
    }
    found = floor.tables->Get(*meta, r.key + "!", UINT64_MAX, &value);
    ASSERT_TRUE(found.ok());
    ASSERT_EQ(*found, TableReader::Found::kNo);
  }
  uint64_t pages = 0, entries = 0;
  int damages = 0;
  floor.tables->Verify(
      *meta,
      [&](const std::string&, const absl::Status& why) {
        ++damages;
        ADD_FAILURE() << why;
      },
      &pages, &entries);
  EXPECT_EQ(pages, meta->pages);
  EXPECT_EQ(entries, records.size());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TableShapes,
    testing::Combine(testing::Values(1u, 2u, 3u), testing::Values(64u << 10, 1u << 20),
                     testing::Values(size_t{300}, size_t{5000}, size_t{200000})));

// A lookup whose index is cached costs one device command, also when the record runs on into
// further pages.
TEST(Table, OneCommandForAGet) {
  Floor floor;
  std::vector<TestRecord> records;
  for (int i = 0; i < 2000; ++i) {
    records.push_back({EntryKind::kValue, 1, NumberedKey(i), std::string(1000 + i % 3000, 'v')});
  }
  auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok());
  std::string value;
  for (const auto& r : records) ASSERT_TRUE(floor.tables->Get(*meta, r.key, 9, &value).ok());
  int reads = 0;
  floor.device->set_hook([&](const io::Request& r, const std::byte*) {
    reads += r.op == io::Op::kRead;
    return io::IoStatus{};
  });
  for (const auto& r : records) {
    reads = 0;
    auto found = floor.tables->Get(*meta, r.key, 9, &value);
    ASSERT_TRUE(found.ok());
    ASSERT_EQ(value, r.value);
    ASSERT_EQ(reads, 1) << r.key;
  }
  reads = 0;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(floor.tables->Get(*meta, NumberedKey(i % 2000) + "x", 9, &value).ok());
  }
  EXPECT_LT(reads, 100);  // filters answer for what is not there
  floor.device->set_hook(nullptr);
}

// And reads the pages that its record lies in, no others: the fence says from which key on the page
// is not enough.
TEST(Table, AGetReadsThePagesOfItsRecord) {
  for (const size_t bytes : {size_t{100}, size_t{1'000}, size_t{2'500}}) {
    Floor floor;
    std::vector<TestRecord> records;
    for (uint64_t i = 0; i < 3'000; ++i) {
      // Keys of which nothing short tells the neighbours apart, and some that are there twice.
      records.push_back({EntryKind::kValue, 7, NumberedKey(i / 2 * 2), std::string(bytes, 'v')});
      if (i % 50 == 0) records.push_back({EntryKind::kValue, 6, records.back().key, "old"});
      if (i % 2 == 1) records.back().key.append("x");
    }
    auto meta = Build(&floor, {1, 1}, records);
    ASSERT_TRUE(meta.ok()) << meta.status();
    std::string value;
    for (const auto& r : records) ASSERT_TRUE(floor.tables->Get(*meta, r.key, 9, &value).ok());
    uint64_t reads = 0, pages = 0;
    floor.device->set_hook([&](const io::Request& r, const std::byte*) {
      reads += r.op == io::Op::kRead;
      pages += r.blocks;
      return io::IoStatus{};
    });
    for (const auto& r : records) {
      ASSERT_EQ(*floor.tables->Get(*meta, r.key, 9, &value), TableReader::Found::kValue);
      ASSERT_EQ(value.size(), bytes);
    }
    floor.device->set_hook(nullptr);
    EXPECT_EQ(reads, records.size()) << bytes;
    const double each = static_cast<double>(pages) / static_cast<double>(records.size());
    EXPECT_LE(each, (1 + static_cast<double>(bytes + 24) / kPagePayloadBytes) * 1.01) << bytes;
  }
}

TEST(Table, RefusesRecordsOutOfOrder) {
  Floor floor;
  TableBuilder builder(floor.io.get(), floor.store, {1, 1}, floor.Source());
  ASSERT_TRUE(builder.Add(EntryKind::kValue, 5, "b", "").ok());
  EXPECT_TRUE(absl::IsDataLoss(builder.Add(EntryKind::kValue, 4, "a", "")));
  EXPECT_TRUE(absl::IsDataLoss(builder.Add(EntryKind::kValue, 5, "b", "")));
}

TEST(Table, ShortenedFromTheFrontServesTheRest) {
  Floor floor;
  const auto records = Mixed(7, 3000, 300);
  auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok());
  ASSERT_GT(meta->extents.size(), 3u);
  for (size_t cut = 100; cut + 100 < records.size(); cut += 371) {
    const std::string bound = records[cut].key + '\0';
    auto dropped = floor.tables->ExtentsBefore(*meta, bound);
    ASSERT_TRUE(dropped.ok());
    TableMeta shorter = *meta;
    shorter.smallest = bound;
    shorter.dropped_extents = *dropped;
    shorter.extents.erase(shorter.extents.begin(), shorter.extents.begin() + *dropped);
    auto it = floor.tables->NewIterator(std::make_shared<TableMeta>(shorter));
    it->SeekToFirst();
    for (const auto& r : records) {
      std::string value;
      auto found = floor.tables->Get(shorter, r.key, r.sequence, &value);
      ASSERT_TRUE(found.ok()) << found.status();
      if (r.key <= records[cut].key) {
        ASSERT_EQ(*found, TableReader::Found::kNo);
        continue;
      }
      ASSERT_NE(*found, TableReader::Found::kNo);
      ASSERT_TRUE(it->Valid()) << it->status();
      ASSERT_EQ(it->key(), r.key);
      it->Next();
    }
    ASSERT_FALSE(it->Valid());
    uint64_t pages = 0, entries = 0;
    floor.tables->Verify(
        shorter, [&](const std::string&, const absl::Status& why) { ADD_FAILURE() << why; }, &pages,
        &entries);
  }
}

// Every page that is damaged, or can't be read, gives an error naming it, or was not needed; with a
// sink everything else comes out.
TEST(Table, ABadPageIsNamedAndPassedOver) {
  Floor floor;
  const auto records = Mixed(11, 800, 9000);
  auto meta = Build(&floor, {1, 1}, records);
  ASSERT_TRUE(meta.ok());
  const uint32_t per_extent = floor.io->extent_bytes() / kPageBytes;
  size_t lost_damaged = 0;
  for (uint32_t n = 0; n < 2 * meta->pages; ++n) {
    const uint32_t page = n / 2;
    const bool unreadable = n % 2 == 1;
    std::byte* const bytes =
        floor.Bytes(meta->extents[page / per_extent], uint64_t{page % per_extent} * kPageBytes);
    const uint64_t bad = static_cast<uint64_t>(bytes - floor.device->contents().data());
    floor.device->set_hook(nullptr);
    if (unreadable) {
      floor.device->set_hook([bad](const io::Request& r, const std::byte*) {
        const uint64_t at = io::Raw(r.lba) * kPageBytes;
        const bool hit = r.op == io::Op::kRead && at <= bad && bad < at + r.data[0].bytes;
        return hit ? io::IoStatus{io::IoClass::kFatal, 0, 0, EIO} : io::IoStatus{};
      });
    } else {
      bytes[1234] ^= std::byte{4};
    }
    const std::string place = floor.io->Where(meta->extents[page / per_extent], page % per_extent);
    IndexCache cold(0);
    TableReader reader(floor.io.get(), &cold, floor.store);
    bool named = false;
    uint64_t pages = 0, entries = 0;
    reader.Verify(
        *meta,
        [&](const std::string&, const absl::Status& why) {
          named |=
              absl::IsDataLoss(why) && std::string(why.message()).find(place) != std::string::npos;
        },
        &pages, &entries);
    EXPECT_TRUE(named) << page;

    size_t lost = 0, i = 0;
    int reports = 0;
    auto it = reader.NewIterator(std::make_shared<TableMeta>(*meta),
                                 [&](const std::string&, const absl::Status&) { ++reports; });
    for (it->SeekToFirst(); it->Valid();) {
      if (!it->LoadValue()) continue;  // reported, and passed over
      while (i < records.size() &&
             (records[i].key != it->key() || records[i].sequence != it->sequence())) {
        ++i;
        ++lost;
      }
      ASSERT_LT(i, records.size()) << page;
      ASSERT_EQ(it->value(), records[i].value);
      ++i;
      it->Next();
    }
    lost += records.size() - i;
    EXPECT_TRUE(it->status().ok()) << it->status();
    EXPECT_TRUE(reports > 0 || lost == 0) << page;  // an index page may not have been needed
    EXPECT_LT(lost, 150u) << page;                  // what lies in or runs through one page
    if (unreadable) EXPECT_EQ(lost, lost_damaged) << page;
    lost_damaged = lost;
    if (!unreadable) bytes[1234] ^= std::byte{4};
  }
}

TEST(Table, RunIteratorGoesThroughItsTables) {
  Floor floor;
  std::vector<std::shared_ptr<const TableMeta>> tables;
  std::vector<std::string> keys;
  for (uint32_t t = 0; t < 4; ++t) {
    std::vector<TestRecord> records;
    for (int i = 0; i < 300; ++i) {
      records.push_back({EntryKind::kValue, 1, NumberedKey(t * 1000 + i), "v"});
      keys.push_back(records.back().key);
    }
    tables.push_back(std::make_shared<TableMeta>(*Build(&floor, {1, t + 1}, records)));
  }
  auto it = NewRunIterator(floor.tables.get(), tables);
  size_t i = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next()) ASSERT_EQ(it->key(), keys[i++]);
  EXPECT_EQ(i, keys.size());
  it->Seek(NumberedKey(1500));
  ASSERT_TRUE(it->Valid());
  EXPECT_EQ(it->key(), NumberedKey(2000));
  it->Seek(NumberedKey(5000));
  EXPECT_FALSE(it->Valid());
  EXPECT_TRUE(it->status().ok());
}

TEST(IndexCache, StaysWithinItsCharge) {
  IndexCache cache(64u << 10);
  for (uint32_t i = 0; i < 1000; ++i) {
    auto p = std::make_shared<Partition>();
    p->bytes = std::string(1000, 'x');
    cache.Insert({1, i}, 0, p);
  }
  int kept = 0;
  for (uint32_t i = 0; i < 1000; ++i) kept += cache.FindPartition({1, i}, 0) != nullptr;
  EXPECT_GT(kept, 20);
  EXPECT_LE(kept, 56);
  EXPECT_NE(cache.FindPartition({1, 999}, 0), nullptr);
  EXPECT_EQ(cache.FindTop({1, 999}), nullptr);
}

}  // namespace
}  // namespace ashlar
