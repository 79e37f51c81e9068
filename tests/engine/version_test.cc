#include "engine/version/version.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/compaction/merge_job.h"
#include "engine/compaction/picker.h"
#include "engine/iter/merging_iterator.h"
#include "engine/space/extent_map.h"
#include "engine/version/manifest_log.h"
#include "engine/version/superblock_store.h"
#include "tests/engine/floor.h"

namespace ashlar {
namespace {

TableMeta Table(uint32_t counter, uint8_t level, std::string smallest, std::string largest,
                uint32_t extents = 3) {
  TableMeta t;
  t.id = {1, counter};
  t.level = level;
  for (uint32_t i = 0; i < extents; ++i) t.extents.push_back(ExtentId{counter * 100 + i});
  t.pages = 16 * extents;
  t.tail_pages = 2;
  t.entries = 10;
  t.min_sequence = counter * 100;
  t.max_sequence = counter * 100 + 9;
  t.smallest = std::move(smallest);
  t.largest = std::move(largest);
  return t;
}

std::shared_ptr<const Version> Apply(const Version& base, const VersionEdit& edit,
                                     size_t released = 0) {
  auto applied = ApplyEdit(base, edit);
  EXPECT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->released.size(), released);
  return applied->version;
}

TEST(VersionEdits, ApplyAndRefuseWhatContradicts) {
  Version empty;
  VersionEdit edit;
  edit.add_tables = {Table(1, 0, "a", "m"), Table(3, 0, "b", "z"), Table(2, 0, "c", "d"),
                     Table(5, 1, "n", "p"), Table(4, 1, "a", "b")};
  const auto v = Apply(empty, edit);
  ASSERT_EQ(v->levels[0].size(), 3u);
  EXPECT_EQ(v->levels[0][0]->id.counter, 3u);
  EXPECT_EQ(v->levels[0][2]->id.counter, 1u);
  EXPECT_EQ(v->levels[1][0]->id.counter, 4u);
  EXPECT_TRUE(CheckVersion(*v).ok());
  ASSERT_NE(TableFor(v->levels[1], "o"), nullptr);
  EXPECT_EQ((*TableFor(v->levels[1], "o"))->id.counter, 5u);
  EXPECT_EQ(TableFor(v->levels[1], "c"), nullptr);
  EXPECT_EQ(TableFor(v->levels[1], "q"), nullptr);

  VersionEdit shorten;
  shorten.shorten_tables.push_back({{1, 3}, 2, "k"});
  shorten.remove_tables.push_back({1, 1});
  const auto w = Apply(*v, shorten, 2 + 3);
  EXPECT_EQ(w->levels[0][0]->smallest, "k");
  EXPECT_EQ(w->levels[0][0]->extents.size(), 1u);
  EXPECT_EQ(w->levels[0][0]->dropped_extents, 2u);
  EXPECT_EQ(v->levels[0][0]->extents.size(), 3u);  // the old version is as it was

  const auto refused = [&](const VersionEdit& bad) {
    return absl::IsDataLoss(ApplyEdit(*w, bad).status());
  };
  VersionEdit bad;
  bad.remove_tables.push_back({9, 9});
  EXPECT_TRUE(refused(bad));
  bad = {};
  bad.add_tables.push_back(Table(3, 0, "a", "b"));
  EXPECT_TRUE(refused(bad));
  bad = {};
  bad.shorten_tables.push_back({{1, 3}, 3, "l"});
  EXPECT_TRUE(refused(bad));
  bad = {};
  bad.shorten_tables.push_back({{1, 3}, 2, "zz"});
  EXPECT_TRUE(refused(bad));
  bad = {};
  bad.release_segments.push_back({1, 1});
  EXPECT_TRUE(refused(bad));
  bad = {};
  bad.add_tables.push_back(Table(9, 7, "a", "b"));
  EXPECT_TRUE(refused(bad));
  bad = {};
  bad.add_tables.push_back(Table(9, 1, "o", "zz"));
  EXPECT_TRUE(absl::IsDataLoss(CheckVersion(*Apply(*w, bad))));
}

TEST(ExtentMap, AccountsForEveryExtent) {
  ExtentMap map(64u << 20, 64u << 10);
  EXPECT_EQ(map.total(), 1024u);
  EXPECT_EQ(map.superblock(), 4u);
  EXPECT_EQ(map.free(), 1020u);
  auto some = map.Allocate(Purpose::kLog, 1020);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(map.free(), 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(map.Allocate(Purpose::kLog, 1).status()));
  map.Free(*some);
  EXPECT_EQ(map.free(), 1020u);
  EXPECT_TRUE(map.Claim({ExtentId{7}}).ok());
  EXPECT_TRUE(absl::IsDataLoss(map.Claim({ExtentId{7}})));
  EXPECT_TRUE(absl::IsDataLoss(map.Claim({ExtentId{1024}})));
  EXPECT_TRUE(absl::IsDataLoss(map.Claim({ExtentId{0}})));  // a superblock's
  auto one = map.Allocate(Purpose::kManifest, 4), two = map.Allocate(Purpose::kManifest, 4);
  EXPECT_GT(std::abs(static_cast<int>(Raw(one->front())) - static_cast<int>(Raw(two->front()))),
            200);
}

// ---- manifest ----

class ManifestTest : public testing::Test {
 protected:
  ManifestTest() {
    copies_ = {floor_.Extents(4), floor_.Extents(4)};
    EXPECT_TRUE(log_.Start(id_, copies_, Version()).ok());
    for (uint32_t i = 1; i <= 10; ++i) {
      VersionEdit edit;
      edit.add_tables.push_back(Table(i, 0, "a", "b"));
      offsets_.push_back(i);
      EXPECT_TRUE(log_.Append(edit).ok());
    }
  }
  // `open`: by a process, so that the last edit may have met a crash between the copies.
  absl::StatusOr<ManifestState> Read(bool open = true) {
    Superblock sb;
    sb.store = floor_.store;
    sb.manifest = id_;
    sb.manifest_first_checksum = log_.first_checksum();
    sb.manifest_extents = copies_;
    sb.epoch = 1;
    sb.extent_bytes = 64u << 10;
    sb.store_bytes = 64u << 20;
    sb.owner.pid = open ? 1 : 0;
    return ReadManifest(floor_.io.get(), sb);
  }
  std::byte* Page(size_t copy, uint32_t page) {
    return floor_.Bytes(copies_[copy][page / 16], uint64_t{page % 16} * kPageBytes);
  }
  Floor floor_;
  WriteId id_{1, 77};
  std::array<std::vector<ExtentId>, 2> copies_;
  ManifestLog log_{floor_.io.get(), floor_.store};
  std::vector<uint32_t> offsets_;
};

TEST_F(ManifestTest, EitherCopyOfEachRecordIsEnough) {
  ASSERT_TRUE(Read().ok());
  EXPECT_EQ((*Read()).version->levels[0].size(), 10u);
  for (uint32_t page = 0; page < 11; ++page) {
    // Alternately in one and in the other copy: each alone would be lost.
    std::memset(Page(page % 2, page), 0, kPageBytes);
  }
  auto state = Read();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->version->levels[0].size(), 10u);
  EXPECT_EQ(state->damaged.size(), 10u);  // the last one apart
}

TEST_F(ManifestTest, LostInBothCopiesIsDamageButForTheLast) {
  for (uint32_t page = 0; page < 11; ++page) {
    std::vector<std::byte> kept[2];
    for (size_t c : {0u, 1u}) {
      kept[c].assign(Page(c, page), Page(c, page) + kPageBytes);
      std::memset(Page(c, page), 0xff, kPageBytes);
    }
    auto state = Read();
    if (page < 10) {
      EXPECT_TRUE(absl::IsDataLoss(state.status())) << page;
    } else {
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_EQ(state->version->levels[0].size(), 9u);
    }
    for (size_t c : {0u, 1u}) std::memcpy(Page(c, page), kept[c].data(), kPageBytes);
  }
  ASSERT_TRUE(Read().ok());
}

// A superblock without owner was written after Close's edit: then the last one too is vouched for.
TEST_F(ManifestTest, LostInBothCopiesIsDamageForTheLastOfAClosedStore) {
  VersionEdit clean;
  clean.clean = true;
  ASSERT_TRUE(log_.Append(clean).ok());
  ASSERT_TRUE(Read(false).ok());
  for (size_t c : {0u, 1u}) Page(c, 11)[20] ^= std::byte{1};
  EXPECT_TRUE(Read(true).ok());
  const auto state = Read(false);
  ASSERT_TRUE(state.ok()) << state.status();
  const absl::Status closed = state->last_edit;
  EXPECT_TRUE(absl::IsDataLoss(closed)) << closed;
  for (size_t c : {0u, 1u}) {
    const std::string place =
        absl::StrCat("byte ", Page(c, 11) - floor_.device->contents().data(), ")");
    EXPECT_NE(closed.message().find(place), std::string::npos) << closed;
  }
}

TEST_F(ManifestTest, OneUnreadableCopyIsNoObstacle) {
  const uint64_t bad = static_cast<uint64_t>(Page(0, 0) - floor_.device->contents().data());
  floor_.device->set_hook([&](const io::Request& r, const std::byte*) {
    io::IoStatus s;
    const uint64_t at = io::Raw(r.lba) * 4096;
    // The whole first extent of the first copy, and what lies behind the last record of the other.
    if (r.op == io::Op::kRead && at >= bad && at < bad + (64u << 10)) s.cls = io::IoClass::kFatal;
    return s;
  });
  auto state = Read();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->version->levels[0].size(), 10u);
  floor_.device->set_hook(nullptr);
}

// A snapshot of many tables is written in several edits, and is none before the last.
TEST(Manifest, ALargeSnapshotIsWholeOrNothing) {
  Floor floor(4096, 1u << 20);
  Version large;
  for (uint32_t i = 0; i < 5000; ++i) {
    auto t =
        std::make_shared<TableMeta>(Table(1, 1, NumberedKey(2 * i), NumberedKey(2 * i + 1), 1));
    t->id = {1, 10 + i};
    large.levels[1].push_back(t);
  }
  const std::array<std::vector<ExtentId>, 2> copies = {floor.Extents(3), floor.Extents(3)};
  ManifestLog log(floor.io.get(), floor.store);
  ASSERT_TRUE(log.Start({1, 1}, copies, large).ok());
  Superblock sb;
  sb.store = floor.store;
  sb.epoch = 1;
  sb.extent_bytes = 1u << 20;
  sb.store_bytes = 64ull << 30;
  sb.manifest = {1, 1};
  sb.manifest_first_checksum = log.first_checksum();
  sb.manifest_extents = copies;
  sb.owner.pid = 1;
  auto state = ReadManifest(floor.io.get(), sb);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->version->levels[1].size(), 5000u);
  // Ids of a later epoch than the store's can't be, nor more extents than it has.
  sb.epoch = 0;
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(floor.io.get(), sb).status()));
  sb.epoch = 1;
  sb.store_bytes = 1000ull << 20;
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(floor.io.get(), sb).status()));
}

// The second record of an edit must not be there without the first.
TEST(Manifest, EachRecordOfAnEditIsDurableBeforeTheNext) {
  Floor floor;
  const std::array<std::vector<ExtentId>, 2> copies = {floor.Extents(8), floor.Extents(8)};
  ManifestLog log(floor.io.get(), floor.store);
  ASSERT_TRUE(log.Start({1, 1}, copies, Version()).ok());
  VersionEdit edit;
  for (uint32_t i = 0; i < 30; ++i) {
    edit.add_tables.push_back(Table(i + 10, 0, std::string(4000, 'a'), std::string(4000, 'b')));
  }
  int writes = 0, flushes = 0, most = 0;
  floor.device->set_hook([&](const io::Request& r, const std::byte*) {
    if (r.op == io::Op::kFlush) writes = 0, ++flushes;
    if (r.op == io::Op::kWrite) most = std::max(most, ++writes);
    return io::IoStatus{};
  });
  ASSERT_TRUE(log.Append(edit).ok());
  floor.device->set_hook(nullptr);
  EXPECT_GE(flushes, 7);
  // A record may cross from one run of extents to the next in each copy.
  EXPECT_LE(most, 4);
}

TEST_F(ManifestTest, SaysWhenItIsFull) {
  VersionEdit edit;
  edit.last_sequence = 1;
  absl::Status s;
  int appended = 0;
  while ((s = log_.Append(edit)).ok() && appended < 1000) ++appended;
  EXPECT_TRUE(absl::IsOutOfRange(s)) << s;
  EXPECT_GT(appended, 40);
  EXPECT_TRUE(Read().ok());
}

// ---- superblocks ----

class SuperblockTest : public testing::Test {
 protected:
  SuperblockTest() {
    sb_.store = floor_.store;
    sb_.generation = 1;
    sb_.epoch = 1;
    sb_.lba_bytes = 4096;
    sb_.extent_bytes = 64u << 10;
    sb_.store_bytes = 64u << 20;
    sb_.manifest = {1, 1};
    sb_.manifest_extents = {{{ExtentId{1}}, {ExtentId{500}}}};
    EXPECT_TRUE(WriteSuperblocks(floor_.io.get(), sb_).ok());
  }
  Superblock Next() {
    Superblock next = sb_;
    next.predecessor = ContentChecksum(sb_);
    ++next.generation;
    return next;
  }
  std::byte* Copy(int copy) {
    return floor_.device->contents().data() + SuperblockPlace(copy, sb_.store_bytes);
  }
  Floor floor_;
  Superblock sb_;
};

TEST_F(SuperblockTest, AnyThreeCopiesMayBeLostButNotTheirWitness) {
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      std::vector<std::byte> kept[2];
      kept[0].assign(Copy(a), Copy(a) + 512);
      kept[1].assign(Copy(b), Copy(b) + 512);
      Copy(a)[100] ^= std::byte{1};
      if (b != a) Copy(b)[200] ^= std::byte{1};
      auto scan = ReadSuperblocks(floor_.io.get());
      ASSERT_TRUE(scan.ok()) << scan.status();
      EXPECT_EQ(scan->damaged.size(), a == b ? 1u : 2u);
      std::memcpy(Copy(b), kept[1].data(), 512);
      std::memcpy(Copy(a), kept[0].data(), 512);
    }
  }
  for (int c = 0; c < 3; ++c) Copy(c)[100] ^= std::byte{1};
  EXPECT_TRUE(absl::IsDataLoss(ReadSuperblocks(floor_.io.get()).status()));
}

TEST_F(SuperblockTest, SwappedCopiesAreNotTaken) {
  std::byte block[512];
  std::memcpy(block, Copy(0), 512);
  std::memcpy(Copy(0), Copy(2), 512);
  std::memcpy(Copy(2), block, 512);
  auto scan = ReadSuperblocks(floor_.io.get());
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->damaged.size(), 2u);
}

// Every state that a crash may leave of an update gives the old generation or the new one.
TEST_F(SuperblockTest, AnUpdateMayStopAnywhere) {
  const Superblock next = Next();
  std::byte fresh[4][512];
  for (int c = 0; c < 4; ++c) EncodeSuperblock(next, c, fresh[c]);
  for (int stage = 0; stage < 2; ++stage) {
    // Stage 0: copies 0, 1 in flight. Stage 1: those are new, 2 and 3 in flight. Each old, new or
    // torn.
    for (int state = 0; state < 9; ++state) {
      const int base = stage * 2;
      std::vector<std::byte> kept[4];
      for (int c = 0; c < 4; ++c) kept[c].assign(Copy(c), Copy(c) + 512);
      for (int c = 0; c < base; ++c) std::memcpy(Copy(c), fresh[c], 512);
      const int what[2] = {state % 3, state / 3};
      for (int i = 0; i < 2; ++i) {
        if (what[i] > 0) std::memcpy(Copy(base + i), fresh[base + i], what[i] == 1 ? 512 : 52);
      }
      auto scan = ReadSuperblocks(floor_.io.get());
      ASSERT_TRUE(scan.ok()) << stage << state << scan.status();
      // A whole new copy is taken, also alone: it names those that are there as the ones before it.
      const bool any_new = stage == 1 || what[0] == 1 || what[1] == 1;
      EXPECT_EQ(scan->current.generation, any_new ? 2u : 1u) << stage << state;
      for (int c = 0; c < 4; ++c) std::memcpy(Copy(c), kept[c].data(), 512);
    }
  }
}

// What stood at the places before a format, and comes to light again.
TEST_F(SuperblockTest, CopiesOfAnotherStoreAreDamage) {
  Superblock other = sb_;
  other.store.bytes[3] ^= 1;
  other.generation = 40;
  for (int c = 0; c < 4; ++c) {
    std::vector<std::byte> kept(Copy(c), Copy(c) + 512);
    EncodeSuperblock(other, c, Copy(c));
    auto scan = ReadSuperblocks(floor_.io.get());
    ASSERT_TRUE(scan.ok()) << scan.status();
    EXPECT_EQ(scan->current.generation, 1u);
    EXPECT_EQ(scan->damaged.size(), 1u) << c;
    std::memcpy(Copy(c), kept.data(), 512);
  }
  // Two of each: no copy says which store this is.
  for (int c : {0, 1}) EncodeSuperblock(other, c, Copy(c));
  EXPECT_TRUE(absl::IsDataLoss(ReadSuperblocks(floor_.io.get()).status()));
}

TEST_F(SuperblockTest, ForeignDevicesAreNamedAsSuch) {
  std::memset(floor_.device->contents().data(), 0, floor_.device->contents().size());
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSuperblocks(floor_.io.get()).status()));
}

// ---- merge ----

TEST(Visibility, KeepsWhatSomeoneCanSee) {
  VisibilityFilter none({});
  EXPECT_TRUE(none.Keep("a", 9));
  EXPECT_FALSE(none.Keep("a", 5));
  EXPECT_TRUE(none.Keep("b", 3));
  EXPECT_TRUE(none.Bottom(9));
  VisibilityFilter some({4, 7});
  EXPECT_TRUE(some.Keep("a", 9));
  EXPECT_TRUE(some.Keep("a", 7));   // seen at 7
  EXPECT_FALSE(some.Keep("a", 6));  // hidden by 7 from all
  EXPECT_FALSE(some.Keep("a", 5));
  EXPECT_TRUE(some.Keep("a", 4));  // seen at 4
  EXPECT_FALSE(some.Keep("a", 2));
  EXPECT_TRUE(some.Bottom(4));
  EXPECT_FALSE(some.Bottom(5));
}

// Steps through a merge and compares, after each edit, what the version holds with the model.
TEST(Merge, EveryStepLeavesTheSameContents) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    Floor floor;
    std::mt19937 random(seed);
    Version empty;
    auto version = std::make_shared<const Version>(empty);
    std::map<std::string, std::string> model;
    SequenceNumber sequence = 0;
    uint32_t counter = 0;
    const MergePolicy policy{100u << 10, 200u << 10};
    MergeDemand everything;
    everything.all = true;
    for (int round = 0; round < 3; ++round) {
      for (int t = 0; t < 3; ++t) {
        std::map<std::string, TestRecord> sorted;
        for (int i = 0; i < 1500; ++i) {
          TestRecord r{random() % 5 == 0 ? EntryKind::kDelete : EntryKind::kValue, 0,
                       NumberedKey(random() % 4000), ""};
          if (r.kind == EntryKind::kValue) {
            r.value = std::string(random() % (i % 50 == 0 ? 30000 : 100), 'v') + std::to_string(i);
          }
          sorted[r.key] = r;
        }
        std::vector<TestRecord> records;
        for (auto& [k, r] : sorted) {
          r.sequence = ++sequence;
          records.push_back(r);
          if (r.kind == EntryKind::kDelete) {
            model.erase(k);
          } else {
            model[k] = r.value;
          }
        }
        VersionEdit edit;
        edit.add_tables.push_back(*Build(&floor, {1, ++counter}, records));
        version = ApplyEdit(*version, edit)->version;
      }
      int steps = 0;
      MergeCursor cursor;
      while (auto plan = PickMerge(version, policy, everything, cursor)) {
        cursor = CursorBehind(*plan, cursor);
        MergeInput input;
        input.io = floor.io.get();
        input.tables = floor.tables.get();
        input.store = floor.store;
        input.id = {1, ++counter};
        input.output_bytes = policy.step_bytes;
        input.input_bytes = 4 * policy.step_bytes;
        input.extents = floor.Source();
        std::vector<ExtentId> taken;
        auto edit = RunMergeStep(*plan, input, &taken);
        ASSERT_TRUE(edit.ok()) << edit.status();
        auto applied = ApplyEdit(*version, *edit);
        ASSERT_TRUE(applied.ok()) << applied.status();
        version = applied->version;
        ASSERT_TRUE(CheckVersion(*version).ok());
        ASSERT_LT(++steps, 100);
        // Newest first: level 0, then the runs.
        for (int probe = 0; probe < 60; ++probe) {
          const std::string key = NumberedKey(random() % 4000);
          std::string value;
          TableReader::Found found = TableReader::Found::kNo;
          for (const TablePtr& t : version->levels[0]) {
            found = *floor.tables->Get(*t, key, UINT64_MAX, &value);
            if (found != TableReader::Found::kNo) break;
          }
          for (int level = 1; level <= kLastLevel && found == TableReader::Found::kNo; ++level) {
            const TablePtr* const in_run = TableFor(version->levels[level], key);
            if (in_run == nullptr) continue;
            found = *floor.tables->Get(**in_run, key, UINT64_MAX, &value);
          }
          const auto expected = model.find(key);
          ASSERT_EQ(found == TableReader::Found::kValue, expected != model.end()) << key;
          if (expected != model.end()) ASSERT_EQ(value, expected->second);
        }
      }
      EXPECT_GT(steps, 1);
      uint64_t live = 0;
      for (int level = 0; level < kLastLevel; ++level) EXPECT_TRUE(version->levels[level].empty());
      for (const TablePtr& t : version->levels[kLastLevel]) {
        uint64_t pages = 0;
        floor.tables->Verify(
            *t, [](const std::string&, const absl::Status& s) { ADD_FAILURE() << s; }, &pages,
            &live);
      }
      EXPECT_EQ(live, model.size());  // deletes and old versions are gone at the bottom
    }
  }
}

// Of many streams with large values one holds such a value at a time.
TEST(Merge, LargeValuesAreReadOneAtATime) {
  Floor floor;
  std::vector<std::unique_ptr<InternalIterator>> children;
  std::vector<std::shared_ptr<const TableMeta>> tables;
  for (uint32_t t = 0; t < 4; ++t) {
    std::vector<TestRecord> records;
    for (uint32_t i = 0; i < 3; ++i) {
      records.push_back({EntryKind::kValue, 1, NumberedKey(i * 4 + t), std::string(1u << 20, 'v')});
    }
    tables.push_back(std::make_shared<TableMeta>(*Build(&floor, {1, t + 1}, records)));
    children.push_back(floor.tables->NewIterator(tables.back()));
  }
  uint64_t read = 0;
  floor.device->set_hook([&](const io::Request& r, const std::byte*) {
    if (r.op == io::Op::kRead) read += r.data[0].bytes;
    return io::IoStatus{};
  });
  auto it = NewMergingIterator(std::move(children));
  it->SeekToFirst();
  // The keys of four streams are known, and no value was read for it.
  EXPECT_LT(read, 200u << 10);
  uint32_t i = 0;
  for (; it->Valid(); it->Next(), ++i) {
    ASSERT_EQ(it->key(), NumberedKey(i));
    ASSERT_TRUE(it->LoadValue());
    ASSERT_EQ(it->value().size(), 1u << 20);
  }
  EXPECT_EQ(i, 12u);
  floor.device->set_hook(nullptr);
}

// An input that can't be read ends the step with its error: nothing is decided, nothing dropped.
TEST(Merge, DamagedInputStopsTheStep) {
  Floor floor;
  std::vector<TestRecord> records;
  for (int i = 0; i < 3000; ++i) records.push_back({EntryKind::kValue, 1, NumberedKey(i), "value"});
  VersionEdit edit;
  edit.add_tables.push_back(*Build(&floor, {1, 1}, records));
  auto version = ApplyEdit(Version(), edit)->version;
  *floor.Bytes(edit.add_tables[0].extents[0], 5 * kPageBytes + 99) ^= std::byte{1};
  MergeInput input;
  input.io = floor.io.get();
  input.tables = floor.tables.get();
  input.store = floor.store;
  input.id = {1, 2};
  input.output_bytes = input.input_bytes = 1u << 20;
  input.extents = floor.Source();
  std::vector<ExtentId> taken;
  MergeDemand everything;
  everything.all = true;
  auto result =
      RunMergeStep(*PickMerge(version, {64u << 20, 64u << 20}, everything, {}), input, &taken);
  EXPECT_TRUE(absl::IsDataLoss(result.status())) << result.status();
  EXPECT_FALSE(taken.empty());
}

}  // namespace
}  // namespace ashlar
