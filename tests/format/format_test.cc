// Encoders and decoders: what goes in comes out, what is not ours is refused, and the offsets are
// those that FORMAT.md gives.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/limits.h"
#include "engine/format/checksum.h"
#include "engine/format/coding.h"
#include "engine/format/entry.h"
#include "engine/format/log_format.h"
#include "engine/format/manifest_format.h"
#include "engine/format/page.h"
#include "engine/format/superblock.h"
#include "engine/format/table_format.h"

namespace ashlar {
namespace {

StoreId Id(uint8_t seed) {
  StoreId id;
  for (size_t i = 0; i < 16; ++i) id.bytes[i] = static_cast<uint8_t>(seed + i);
  return id;
}

TEST(Varint, TakesOnlyTheShortestForm) {
  for (const uint64_t v :
       {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 35, UINT64_MAX}) {
    std::string out;
    AppendVarint(&out, v);
    EXPECT_EQ(out.size(), VarintSize(v));
    Cursor in(out);
    uint64_t got = 1;
    ASSERT_TRUE(in.Varint(&got));
    EXPECT_EQ(got, v);
    EXPECT_TRUE(in.done());
  }
  for (const std::string& bad :
       {std::string("\x80\x00", 2), std::string("\x80", 1), std::string(),
        std::string(10, '\xff') + '\x01', std::string(9, '\xff') + '\x02'}) {
    Cursor in(bad);
    uint64_t got;
    EXPECT_FALSE(in.Varint(&got));
    EXPECT_FALSE(in.ok());
  }
}

TEST(Cursor, StaysFailedAfterAFailedRead) {
  Cursor in("abc");
  uint64_t v;
  EXPECT_FALSE(in.Fixed(&v));
  uint8_t b;
  EXPECT_FALSE(in.Fixed(&b));
}

TEST(Entry, RefusesWhatIsReserved) {
  std::string good;
  AppendEntry(&good, EntryKind::kValue, "key", "value");
  const auto status = [](const std::string& bytes) {
    Cursor in(bytes);
    Entry entry;
    return DecodeEntry(&in, &entry);
  };
  EXPECT_TRUE(status(good).ok());
  for (int kind : {0, 3, 4, 5, 6, 7, 255}) {
    std::string bad = good;
    bad[0] = static_cast<char>(kind);
    EXPECT_TRUE(absl::IsDataLoss(status(bad))) << kind;
  }
  for (size_t at : {1u, 2u}) {
    std::string bad = good;
    bad[at] = 1;
    EXPECT_TRUE(absl::IsDataLoss(status(bad)));
  }
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_TRUE(absl::IsDataLoss(status(good.substr(0, n)))) << n;
  }
  std::string empty_key;
  AppendEntry(&empty_key, EntryKind::kDelete, "", "");
  EXPECT_TRUE(absl::IsDataLoss(status(empty_key)));
}

class PageTest : public testing::Test {
 protected:
  PageTest() : page_(kPageBytes) {
    for (size_t i = kPageHeaderBytes; i < 1000; ++i) page_[i] = std::byte(i);
    PageHeader header;
    header.write_id = {3, 4};
    header.first_record = 24;
    header.used = 1000;
    SealPage(page_.data(), header, Id(1), ExtentId{5}, 6);
  }
  absl::Status Verify(StoreId id = Id(1), WriteId write_id = {3, 4}, uint32_t extent = 5,
                      uint32_t page = 6, PageKind kind = PageKind::kData) {
    PageHeader header;
    return VerifyPage(page_.data(), kind, write_id, id, ExtentId{extent}, page, &header);
  }
  std::vector<std::byte> page_;
};

TEST_F(PageTest, VerifiesOnlyInItsPlaceAndWriting) {
  EXPECT_TRUE(Verify().ok());
  EXPECT_TRUE(absl::IsDataLoss(Verify(Id(2))));
  EXPECT_TRUE(absl::IsDataLoss(Verify(Id(1), {3, 5})));
  EXPECT_TRUE(absl::IsDataLoss(Verify(Id(1), {4, 4})));
  EXPECT_TRUE(absl::IsDataLoss(Verify(Id(1), {3, 4}, 6)));
  EXPECT_TRUE(absl::IsDataLoss(Verify(Id(1), {3, 4}, 5, 7)));
  EXPECT_TRUE(absl::IsDataLoss(Verify(Id(1), {3, 4}, 5, 6, PageKind::kIndex)));
}

TEST_F(PageTest, EveryFlippedBitIsSeen) {
  for (size_t bit = 0; bit < kPageBytes * 8; ++bit) {
    page_[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_TRUE(absl::IsDataLoss(Verify())) << bit;
    page_[bit / 8] ^= std::byte(1 << bit % 8);
  }
  for (const int fill : {0, 0xff}) {
    std::memset(page_.data(), fill, kPageBytes);
    EXPECT_TRUE(absl::IsDataLoss(Verify()));
  }
}

Superblock Sample() {
  Superblock sb;
  sb.store = Id(9);
  sb.generation = 7;
  sb.predecessor = 0x1122334455667788;
  sb.epoch = 3;
  sb.lba_bytes = 4096;
  sb.extent_bytes = 64u << 10;
  sb.store_bytes = 64ull << 20;
  sb.owner.pid = 42;
  sb.manifest = {3, 1};
  sb.manifest_first_checksum = 99;
  sb.manifest_extents = {{{ExtentId{1}, ExtentId{2}}, {ExtentId{500}, ExtentId{501}}}};
  return sb;
}

TEST(SuperblockFormat, RoundTripsAndKnowsItsPlace) {
  std::byte block[kSuperblockBytes];
  EncodeSuperblock(Sample(), 2, block);
  Superblock got;
  std::string detail;
  ASSERT_EQ(ParseSuperblock(block, 2, &got, &detail), SuperblockParse::kOk) << detail;
  EXPECT_EQ(ContentChecksum(got), ContentChecksum(Sample()));
  EXPECT_EQ(ParseSuperblock(block, 1, &got, &detail), SuperblockParse::kDamaged);
}

TEST(SuperblockFormat, EveryFlippedBitIsSeen) {
  std::byte block[kSuperblockBytes];
  EncodeSuperblock(Sample(), 0, block);
  for (size_t bit = 0; bit < kSuperblockBytes * 8; ++bit) {
    block[bit / 8] ^= std::byte(1 << bit % 8);
    Superblock got;
    std::string detail;
    ASSERT_NE(ParseSuperblock(block, 0, &got, &detail), SuperblockParse::kOk) << bit;
    block[bit / 8] ^= std::byte(1 << bit % 8);
  }
}

TEST(SuperblockFormat, NewerVersionsAndFeaturesAreToldFromDamage) {
  std::byte block[kSuperblockBytes];
  Superblock got;
  std::string detail;
  Superblock sb = Sample();
  sb.format_version = kFormatVersion + 1;
  EncodeSuperblock(sb, 0, block);
  EXPECT_EQ(ParseSuperblock(block, 0, &got, &detail), SuperblockParse::kNewer);
  sb = Sample();
  sb.features_incompatible = 4;
  EncodeSuperblock(sb, 0, block);
  EXPECT_EQ(ParseSuperblock(block, 0, &got, &detail), SuperblockParse::kNewer);
  sb = Sample();
  sb.features_compatible = 4;
  EncodeSuperblock(sb, 0, block);
  EXPECT_EQ(ParseSuperblock(block, 0, &got, &detail), SuperblockParse::kOk);
}

TEST(SuperblockFormat, PlacesAreApartOnTheSmallestStore) {
  uint64_t last = 0;
  for (int copy = 1; copy < kSuperblockCopies; ++copy) {
    const uint64_t at = SuperblockPlace(copy, kMinStoreBytes);
    EXPECT_GT(at, last);
    EXPECT_EQ(at % (1 << 20), 0u);
    last = at;
  }
  EXPECT_LE(last + kSuperblockBytes, kMinStoreBytes);
}

TEST(Record, IsBoundToStreamPositionAndStore) {
  std::vector<std::byte> bytes(4096);
  std::memcpy(bytes.data() + kRecordHeaderBytes, "payload", 7);
  RecordHeader header;
  header.payload_bytes = 7;
  header.position = {10, 512};
  header.first_sequence = 5;
  header.durable = {10, 100};
  SealRecord(bytes.data(), &header, StreamSeed(Id(1), WriteId::FromRaw(10)));
  RecordHeader got;
  std::string_view payload;
  const auto parse = [&](LogPosition at, uint64_t seed, size_t size) {
    return ParseRecord(std::span<const std::byte>(bytes).first(size), at, seed, &got, &payload);
  };
  const uint64_t seed = StreamSeed(Id(1), WriteId::FromRaw(10));
  ASSERT_EQ(parse({10, 512}, seed, 4096), RecordParse::kOk);
  EXPECT_EQ(payload, "payload");
  EXPECT_EQ(got.durable, (LogPosition{10, 100}));
  EXPECT_EQ(parse({10, 1024}, seed, 4096), RecordParse::kInvalid);
  EXPECT_EQ(parse({11, 512}, seed, 4096), RecordParse::kInvalid);
  EXPECT_EQ(parse({10, 512}, StreamSeed(Id(2), WriteId::FromRaw(10)), 4096), RecordParse::kInvalid);
  for (size_t n = 0; n < kRecordHeaderBytes + 7; ++n) {
    ASSERT_EQ(parse({10, 512}, seed, n), RecordParse::kInvalid) << n;
  }
  for (size_t bit = 0; bit < (kRecordHeaderBytes + 7) * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_EQ(parse({10, 512}, seed, 4096), RecordParse::kInvalid) << bit;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
}

TEST(Edit, RoundTripsAndRefusesEveryPrefix) {
  VersionEdit edit;
  TableMeta t;
  t.id = {2, 3};
  t.level = 1;
  t.extents = {ExtentId{4}, ExtentId{5}, ExtentId{9}};
  t.dropped_extents = 2;
  t.pages = 70;
  t.tail_pages = 2;
  t.footer_checksum = 12345;
  t.entries = 10;
  t.smallest = "a";
  t.largest = std::string(4096, 'z');
  edit.add_tables.push_back(t);
  edit.remove_tables.push_back({1, 1});
  edit.shorten_tables.push_back({{1, 2}, 3, std::string("k\0", 2)});
  // Behind the longest key: a step that ends there leaves this.
  edit.shorten_tables.push_back({{1, 3}, 3, std::string(4096, 'k') + '\0'});
  edit.assign_segments.push_back({{2, 4}, {ExtentId{20}}});
  edit.release_segments.push_back({1, 9});
  edit.last_sequence = 77;
  edit.clean = true;
  edit.snapshot_end = true;
  std::string bytes;
  EncodeEdit(edit, &bytes);
  VersionEdit got;
  ASSERT_TRUE(DecodeEdit(bytes, &got).ok());
  std::string again;
  EncodeEdit(got, &again);
  EXPECT_EQ(again, bytes);
  int whole = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    VersionEdit part;
    whole += DecodeEdit(bytes.substr(0, n), &part).ok();
  }
  EXPECT_LE(whole, 9);  // only where a field ends
}

TEST(Edit, UnknownFieldsAreSkippedOrRefusedAsTheirTagSays) {
  std::string odd, even;
  AppendVarint(&odd, 101);
  AppendBytes(&odd, "future");
  AppendVarint(&even, 100);
  AppendBytes(&even, "future");
  VersionEdit edit;
  EXPECT_TRUE(DecodeEdit(odd, &edit).ok());
  EXPECT_TRUE(absl::IsDataLoss(DecodeEdit(even, &edit)));
}

TEST(Edit, AHugeExtentCountDoesNotAllocate) {
  std::string field, bytes;
  AppendVarint(&field, 7);
  AppendVarint(&field, 1);           // one run
  AppendVarint(&field, 0);           // from extent 0
  AppendVarint(&field, 1ull << 40);  // of this many
  AppendVarint(&bytes, 8);
  AppendBytes(&bytes, field);
  VersionEdit edit;
  EXPECT_TRUE(absl::IsDataLoss(DecodeEdit(bytes, &edit)));
}

TEST(Separator, LiesBetweenItsKeysAndIsShort) {
  const auto s = [](std::string_view a, std::string_view b) {
    return std::string(ShortestSeparator(a, b));
  };
  EXPECT_EQ(s("apple", "banana"), "b");
  EXPECT_EQ(s("app", "apple"), "appl");
  EXPECT_EQ(s("key0001", "key0002"), "key0002");
  EXPECT_EQ(s("a", std::string("a\0", 2)), std::string("a\0", 2));
}

TEST(Filter, NeverDeniesAndRarelyAffirmsWrongly) {
  FilterBuilder builder;
  for (int i = 0; i < 3000; ++i) builder.Add("key" + std::to_string(i));
  const std::string filter = builder.Finish();
  EXPECT_EQ(builder.keys(), 0u);
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(FilterMayContain(filter, "key" + std::to_string(i)));
  int wrong = 0;
  for (int i = 0; i < 100000; ++i) wrong += FilterMayContain(filter, "other" + std::to_string(i));
  EXPECT_LT(wrong, 600);
}

TEST(PartitionFormat, RefusesHostileFences) {
  std::vector<Fence> fences = {{"a", 0, 0, false}, {"b", 3, 2, false}, {"b", 6, 0, true}};
  std::string bytes;
  EncodePartition(fences, "filter", &bytes);
  Partition p;
  ASSERT_TRUE(DecodePartition(bytes, 10, &p).ok());
  ASSERT_EQ(p.fences.size(), 3u);
  EXPECT_EQ(p.fences[2].page, 6u);
  EXPECT_TRUE(p.fences[2].continues);
  EXPECT_EQ(p.fences[1].run_on, 2u);
  Partition past;
  EXPECT_TRUE(absl::IsDataLoss(DecodePartition(bytes, 6, &past)));
  for (size_t n = 0; n < bytes.size(); ++n) {
    Partition part;
    EXPECT_TRUE(absl::IsDataLoss(DecodePartition(bytes.substr(0, n), 10, &part)));
  }
  std::string unsorted;
  EncodePartition({{"b", 0, 0, false}, {"a", 1, 0, false}}, "", &unsorted);
  Partition q;
  EXPECT_TRUE(absl::IsDataLoss(DecodePartition(unsorted, 10, &q)));
}

// A fence with a tail: its key, a byte, the tail.
TEST(PartitionFormat, KeepsTailsAndRefusesHostileOnes) {
  const auto encoded = [](std::string_view key_and_tail, size_t key_bytes, uint32_t run_on) {
    Fence fence = {key_and_tail.substr(0, key_bytes), 0, run_on, false};
    fence.tail_bytes = static_cast<uint8_t>(key_and_tail.size() - key_bytes - 1);
    std::string bytes;
    EncodePartition({fence, {"z", 5, 0, false}}, "filter", &bytes);
    return bytes;
  };
  const std::string bytes = encoded("b_bdx", 1, 2);
  Partition p;
  ASSERT_TRUE(DecodePartition(bytes, 10, &p).ok());
  EXPECT_EQ(p.fences[0].tail(), "bdx");
  EXPECT_EQ(p.fences[0].RunOn("bd"), 0u);
  EXPECT_EQ(p.fences[0].RunOn("bdx"), 2u);
  EXPECT_EQ(p.fences[1].RunOn("a"), 0u);
  for (size_t n = 0; n < bytes.size(); ++n) {
    Partition part;
    EXPECT_TRUE(absl::IsDataLoss(DecodePartition(bytes.substr(0, n), 10, &part)));
  }
  const auto refused = [](const std::string& hostile) {
    Partition part;
    return absl::IsDataLoss(DecodePartition(hostile, 10, &part));
  };
  EXPECT_TRUE(refused(encoded("b_a", 1, 2))) << "below its fence";
  EXPECT_TRUE(refused(encoded("b_bx", 1, 0))) << "of a record that does not run on";
  EXPECT_TRUE(refused(encoded("b_b" + std::string(kTailBytesMax, 'x'), 1, 2))) << "too long";
}

// FORMAT.md is read beside the code: the sizes and numbers it names are searched for in its text.
TEST(FormatDocument, NamesTheNumbersOfTheCode) {
  std::ifstream in(ASHLAR_SOURCE_DIR "/engine/FORMAT.md");
  std::stringstream text;
  text << in.rdbuf();
  const std::string doc = text.str();
  ASSERT_FALSE(doc.empty());
  EXPECT_EQ(kFormatVersion, 1u);
  EXPECT_EQ(kSuperblockBytes, 512u);
  EXPECT_EQ(kRecordHeaderBytes, 72u);
  EXPECT_EQ(kPageHeaderBytes, 24u);
  EXPECT_EQ(kRecordBytesMax, 256u << 10);
  EXPECT_EQ(kRecordHeadMax, 32u);
  for (const char* must : {"version 1", "| 72 | | payload |", "| 24 | 4,072 | payload |",
                           "| 336 | 176 | zero |", "at most 256 KiB", "first 32 bytes"}) {
    EXPECT_NE(doc.find(must), std::string::npos) << must;
  }
  // Each field of the superblock at its place: a value written by the encoder is found where the
  // table says.
  std::byte block[kSuperblockBytes];
  Superblock sb = Sample();
  sb.nsid = 0x01020304;
  EncodeSuperblock(sb, 3, block);
  EXPECT_EQ(LoadLe<uint32_t>(block + 16), 3u);
  EXPECT_EQ(LoadLe<uint32_t>(block + 20), 1u);
  EXPECT_EQ(LoadLe<uint64_t>(block + 48), sb.generation);
  EXPECT_EQ(LoadLe<uint32_t>(block + 64), sb.epoch);
  EXPECT_EQ(LoadLe<uint32_t>(block + 68), sb.extent_bytes);
  EXPECT_EQ(LoadLe<uint64_t>(block + 72), sb.store_bytes);
  EXPECT_EQ(LoadLe<uint32_t>(block + 124), sb.nsid);
  EXPECT_EQ(LoadLe<uint32_t>(block + 176), sb.owner.pid);
  EXPECT_EQ(LoadLe<uint32_t>(block + 180), 2u);
  EXPECT_EQ(LoadLe<uint64_t>(block + 192), sb.manifest.raw());
  EXPECT_EQ(LoadLe<uint64_t>(block + 200), 99u);
  EXPECT_EQ(LoadLe<uint32_t>(block + 208), 1u);
  EXPECT_EQ(LoadLe<uint32_t>(block + 272), 500u);
}

}  // namespace
}  // namespace ashlar
