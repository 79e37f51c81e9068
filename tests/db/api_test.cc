// What the public headers promise, call by call.
#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "ashlar/admin.h"
#include "engine/base/limits.h"
#include "engine/db/store_iterator.h"
#include "engine/version/superblock_store.h"
#include "tests/db/rig.h"
#include "tests/io/scratch.h"

namespace ashlar {
namespace {

using absl::StatusCode;
using io::ScratchFile;

std::string Key(size_t bytes) { return std::string(bytes, 'k'); }

class ApiTest : public testing::Test {
 protected:
  void SetUp() override { ASHLAR_OK(rig_.Open()); }
  Rig rig_;
};

TEST_F(ApiTest, EmptyKeyIsRefused) {
  Value value;
  EXPECT_EQ(rig_.Put("", "v").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig_.Delete("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig_->Get({}, "", &value).code(), StatusCode::kInvalidArgument);
  WriteBatch batch;
  batch.Put("good", "v");
  batch.Put("", "v");
  EXPECT_EQ(rig_->Write({}, batch).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig_.Get("good"), "<none>");
}

TEST_F(ApiTest, KeyOfTheLimitIsTakenAndOneMoreIsRefused) {
  ASHLAR_OK(rig_.Put(Key(4096), "v"));
  EXPECT_EQ(rig_.Get(Key(4096)), "v");
  const absl::Status s = rig_.Put(Key(4097), "v");
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(s.message(), "4097")) << s;
  EXPECT_TRUE(absl::StrContains(s.message(), "4096")) << s;
  EXPECT_EQ(rig_.Delete(Key(4097)).code(), StatusCode::kInvalidArgument);
  Value value;
  EXPECT_EQ(rig_->Get({}, Key(4097), &value).code(), StatusCode::kInvalidArgument);
  ASHLAR_OK(rig_->Flush());
  EXPECT_EQ(rig_.Get(Key(4096)), "v");
  EXPECT_EQ(rig_->limits().key_bytes, 4096u);
}

TEST_F(ApiTest, ValueOfTheLimitIsTakenAndOneMoreIsRefused) {
  const size_t limit = rig_->limits().value_bytes;
  EXPECT_LE(limit, rig_.options().bytes / 64);
  // With the longest key it still is a batch of its own.
  ASHLAR_OK(rig_.Put(Key(4096), Bytes(1, limit)));
  EXPECT_EQ(rig_.Get(Key(4096)), Bytes(1, limit));
  const absl::Status s = rig_.Put("k", Bytes(1, limit + 1));
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(s.message(), absl::StrCat(limit))) << s;
  EXPECT_EQ(rig_.Get("k"), "<none>");
  ASHLAR_OK(rig_.Close());
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get(Key(4096)), Bytes(1, limit));
}

TEST_F(ApiTest, BatchOfTheLimitIsTakenAndOneMoreIsRefused) {
  const size_t limit = rig_->limits().batch_bytes;
  WriteBatch batch;
  int i = 0;
  for (; batch.bytes() + 1200 < limit; ++i) batch.Put(absl::StrCat("key", i), Bytes(i, 1000));
  std::string rest;
  for (size_t n = limit - batch.bytes();; --n) {
    WriteBatch last = batch;
    rest = Bytes(9, n);
    last.Put("rest", rest);
    if (last.bytes() > limit) continue;
    ASSERT_EQ(last.bytes(), limit) << "no value makes the batch exactly as large as the limit";
    ASHLAR_OK(rig_->Write({}, last));
    break;
  }
  EXPECT_EQ(rig_.Get("rest"), rest);
  EXPECT_EQ(rig_.Get(absl::StrCat("key", i - 1)), Bytes(i - 1, 1000));

  WriteBatch large = batch;
  large.Put("other", Bytes(9, rest.size()));  // one byte more of key
  ASSERT_EQ(large.bytes(), limit + 1);
  const absl::Status s = rig_->Write({}, large);
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(s.message(), absl::StrCat(limit))) << s;
  EXPECT_EQ(rig_.Get("other"), "<none>");
}

TEST_F(ApiTest, LargestBatchFollowsAnother) {
  const size_t limit = rig_->limits().batch_bytes;
  for (int round = 0; round < 5; ++round) {
    WriteBatch batch;
    for (int i = 0; batch.bytes() + 57 + 40 < limit; ++i) {
      batch.Put(absl::StrCat("r", round, "-", i), "");
    }
    ASHLAR_OK(rig_->Write({}, batch));
  }
  EXPECT_EQ(rig_.Get("r0-0"), "");
  EXPECT_EQ(rig_.Get("r4-100"), "");
}

TEST_F(ApiTest, EmptyBatchIsOk) {
  ASHLAR_OK(rig_->Write({}, WriteBatch()));
  ASHLAR_OK(rig_->Write(kBufferedWrite, WriteBatch()));
  EXPECT_TRUE(Contents(rig_.db()).empty());
}

TEST_F(ApiTest, LaterChangesOfABatchWin) {
  WriteBatch batch;
  batch.Put("a", "1");
  batch.Delete("a");
  batch.Put("b", "1");
  batch.Put("b", "2");
  batch.Delete("c");
  batch.Put("c", "3");
  ASHLAR_OK(rig_->Write({}, batch));
  const std::map<std::string, std::string> want = {{"b", "2"}, {"c", "3"}};
  EXPECT_EQ(Contents(rig_.db()), want);
  ASHLAR_OK(rig_->MergeAll());
  EXPECT_EQ(Contents(rig_.db()), want);
  batch.Clear();
  EXPECT_EQ(batch.count(), 0u);
  batch.Put("d", "4");
  ASHLAR_OK(rig_->Write({}, batch));
  EXPECT_EQ(rig_.Get("d"), "4");
  EXPECT_EQ(rig_.Get("a"), "<none>");
}

TEST_F(ApiTest, DeleteOfAKeyThatIsNotThereIsOk) {
  ASHLAR_OK(rig_.Delete("nothing"));
  ASHLAR_OK(rig_.Delete("nothing"));
  EXPECT_EQ(rig_.Get("nothing"), "<none>");
}

TEST_F(ApiTest, NotFoundLeavesNoText) {
  Value value;
  const absl::Status s = rig_->Get({}, "nothing", &value);
  EXPECT_EQ(s.code(), StatusCode::kNotFound);
  EXPECT_TRUE(s.message().empty());
}

TEST_F(ApiTest, ValueIsReusedAndReleased) {
  ASHLAR_OK(rig_.Put("long", Bytes(1, 1000)));
  ASHLAR_OK(rig_.Put("short", "s"));
  Value value;
  ASHLAR_OK(rig_->Get({}, "long", &value));
  EXPECT_EQ(value.size(), 1000u);
  ASHLAR_OK(rig_->Get({}, "short", &value));
  EXPECT_EQ(value.view(), "s");
  Value moved = std::move(value);
  EXPECT_EQ(std::move(moved).Release(), "s");
}

TEST_F(ApiTest, EveryCallAfterCloseIsFailedPrecondition) {
  ASHLAR_OK(rig_.Put("a", "1"));
  ASHLAR_OK(rig_->Close());
  Value value;
  WriteBatch batch;
  batch.Put("b", "2");
  const StatusCode want = StatusCode::kFailedPrecondition;
  EXPECT_EQ(rig_.Put("b", "2").code(), want);
  EXPECT_EQ(rig_->Put(kBufferedWrite, "b", "2").code(), want);
  EXPECT_EQ(rig_.Delete("a").code(), want);
  EXPECT_EQ(rig_->Write({}, batch).code(), want);
  EXPECT_EQ(rig_->Get({}, "a", &value).code(), want);
  EXPECT_EQ(rig_->Flush().code(), want);
  EXPECT_EQ(rig_->Sync().code(), want);
  const auto it = rig_->NewIterator({});
  EXPECT_FALSE(it->Valid());
  EXPECT_EQ(it->status().code(), want);
  it->SeekToFirst();
  EXPECT_FALSE(it->Valid());
  EXPECT_EQ(it->status().code(), want);
  EXPECT_NE(rig_->health().state, Health::State::kWritable);
  EXPECT_EQ(rig_->health().cause.code(), want);
  EXPECT_EQ(rig_->limits().key_bytes, 4096u);
  ASHLAR_OK(rig_->Close());
  ASHLAR_OK(rig_->Close());
}

TEST_F(ApiTest, CloseCountsLiveIteratorsAndChangesNothing) {
  ASHLAR_OK(rig_.Put("a", "1"));
  auto one = rig_->NewIterator({});
  auto two = rig_->NewIterator({});
  absl::Status s = rig_->Close();
  EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(s.message(), "2 iterators")) << s;
  ASHLAR_OK(rig_.Put("b", "2"));
  EXPECT_EQ(rig_.Get("a"), "1");
  one->SeekToFirst();
  ASSERT_TRUE(one->Valid());
  EXPECT_EQ(one->key(), "a");
  two.reset();
  s = rig_->Close();
  EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(s.message(), "1 iterator")) << s;
  one.reset();
  ASHLAR_OK(rig_->Close());
  rig_.holder().reset();
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("b"), "2");
}

TEST_F(ApiTest, SnapshotShowsItsMoment) {
  ASHLAR_OK(rig_.Put("a", "1"));
  ASHLAR_OK(rig_.Put("b", "1"));
  const auto snapshot = rig_->GetSnapshot();
  EXPECT_EQ(snapshot->sequence_number(), 2u);
  ReadOptions then;
  then.snapshot = snapshot.get();
  const auto expect = [&](const std::string& when) {
    Value value;
    ASSERT_EQ(rig_->Get(then, "a", &value), absl::OkStatus()) << when;
    EXPECT_EQ(value.view(), "1") << when;
    ASSERT_EQ(rig_->Get(then, "b", &value), absl::OkStatus()) << when;
    EXPECT_TRUE(absl::IsNotFound(rig_->Get(then, "c", &value))) << when;
    ExpectSame(Contents(rig_->NewIterator(then).get()), {{"a", "1"}, {"b", "1"}}, when);
    EXPECT_EQ(rig_.Get("a"), "2");
    EXPECT_EQ(rig_.Get("b"), "<none>");
    EXPECT_EQ(rig_.Get("c"), "2");
  };
  ASHLAR_OK(rig_.Put("a", "2"));
  ASHLAR_OK(rig_.Delete("b"));
  ASHLAR_OK(rig_.Put("c", "2"));
  expect("in the memtable");
  ASHLAR_OK(rig_->Flush());
  expect("in a table");
  ASHLAR_OK(rig_->MergeAll());
  expect("merged");
}

TEST_F(ApiTest, SnapshotOfAnotherStoreIsRefused) {
  Rig other;
  ASHLAR_OK(other.Open());
  const auto snapshot = other->GetSnapshot();
  ReadOptions then;
  then.snapshot = snapshot.get();
  Value value;
  EXPECT_TRUE(absl::IsInvalidArgument(rig_->Get(then, "a", &value)));
  const auto it = rig_->NewIterator(then);
  EXPECT_TRUE(absl::IsInvalidArgument(it->status()));
  it->SeekToFirst();
  EXPECT_FALSE(it->Valid());
  EXPECT_TRUE(absl::IsInvalidArgument(it->status()));
  // It does not keep its store from being closed.
  ASHLAR_OK(rig_->Close());
  EXPECT_TRUE(absl::IsFailedPrecondition(rig_->Get(then, "a", &value)));
}

TEST_F(ApiTest, SnapshotKeepsTheStoreFromBeingClosedAndMayOutliveIt) {
  ASHLAR_OK(rig_->Put(kBufferedWrite, "a", "1"));
  auto one = rig_->GetSnapshot(), two = rig_->GetSnapshot();
  ReadOptions then;
  then.snapshot = one.get();
  const auto it = rig_->NewIterator(then);
  absl::Status s = rig_->Close();
  EXPECT_TRUE(absl::IsFailedPrecondition(s));
  EXPECT_TRUE(absl::StrContains(s.message(), "1 iterator and 2 snapshots")) << s;
  one.reset();
  it->SeekToFirst();  // lives on without the snapshot
  EXPECT_TRUE(it->Valid());
  // The end of the DB closes it all the same.
  rig_.holder().reset();
  EXPECT_EQ(two->sequence_number(), 1u);
  it->SeekToFirst();
  EXPECT_TRUE(absl::IsFailedPrecondition(it->status()));
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("a"), "1");
  then.snapshot = two.get();
  Value value;
  EXPECT_TRUE(absl::IsInvalidArgument(rig_->Get(then, "a", &value)));
  two.reset();
  rig_.Check("after the end");
}

TEST_F(ApiTest, StatsCount) {
  const Stats before = rig_->stats();
  EXPECT_EQ(before.changes, 0u);
  EXPECT_TRUE(before.settled);
  WriteBatch batch;
  for (int i = 0; i < 10; ++i) batch.Put(absl::StrCat("key", i), Bytes(1, 5'000));
  batch.Delete("key3");
  ASHLAR_OK(rig_->Write({}, batch));
  ASHLAR_OK(rig_.Put("more", "1"));
  ASHLAR_OK(rig_->Write({}, WriteBatch()));
  Stats s = rig_->stats();
  EXPECT_EQ(s.batches, 2u);
  EXPECT_EQ(s.changes, 12u);
  EXPECT_EQ(s.last_sequence, 12u);
  EXPECT_GT(s.memtable_bytes, 50'000u);
  EXPECT_GE(s.log_bytes_written, 50'000u);
  EXPECT_EQ(s.device_bytes_written - before.device_bytes_written, s.log_bytes_written);
  ASHLAR_OK(rig_->Flush());
  s = rig_->stats();
  EXPECT_EQ(s.flushes, 1u);
  EXPECT_EQ(s.merge_steps, 0u);
  EXPECT_GE(s.flush_bytes_written, 50'000u);
  ASSERT_EQ(s.levels.size(), 7u);
  EXPECT_EQ(s.levels[0].tables, 1u);
  EXPECT_EQ(s.levels[0].entries, 11u);  // key3 was overwritten within the memtable
  EXPECT_EQ(s.levels[0].tombstones, 1u);
  EXPECT_EQ(s.extents_total - s.extents_free,
            before.extents_total - before.extents_free + s.levels[0].bytes / s.extent_bytes);
  ASHLAR_OK(rig_->MergeAll());
  s = rig_->stats();
  EXPECT_EQ(s.levels[0].tables, 0u);
  EXPECT_EQ(s.levels.back().entries, 10u);
  EXPECT_EQ(s.levels.back().tombstones, 0u);
  EXPECT_EQ(s.merge_steps, 1u);
  EXPECT_GE(s.merge_bytes_written, 50'000u);
  EXPECT_TRUE(s.settled);

  // A found key is one command of one page or two; one that is not there is none.
  EXPECT_EQ(rig_.Get("key1").size(), 5'000u);  // the index is read with the first
  const Stats warm = rig_->stats();
  EXPECT_EQ(rig_.Get("key2").size(), 5'000u);
  EXPECT_EQ(rig_.Get("not there"), "<none>");
  s = rig_->stats();
  EXPECT_EQ(s.gets, 3u);
  EXPECT_EQ(s.gets_found, 2u);
  EXPECT_EQ(s.device_reads - warm.device_reads, 1u);
  EXPECT_LE(s.device_bytes_read - warm.device_bytes_read, 12'288u);

  const auto snapshot = rig_->GetSnapshot();
  const auto it = rig_->NewIterator({});
  ASHLAR_OK(rig_.Put("later", "1"));
  s = rig_->stats();
  EXPECT_EQ(s.snapshots, 1u);
  EXPECT_EQ(s.iterators, 1u);
  EXPECT_EQ(s.oldest_sequence, 12u);
  EXPECT_EQ(s.last_sequence, 13u);
}

TEST_F(ApiTest, StatsOfAClosedStoreKeepWhatWasCounted) {
  ASHLAR_OK(rig_.Put("a", "1"));
  ASHLAR_OK(rig_->Close());
  const Stats s = rig_->stats();
  EXPECT_EQ(s.changes, 1u);
  EXPECT_EQ(s.extents_total, 0u);
}

TEST_F(ApiTest, IteratorOutlivesTheStore) {
  for (int i = 0; i < 100; ++i) ASHLAR_OK(rig_.Put(absl::StrCat("k", i), Bytes(i, 500)));
  ASHLAR_OK(rig_->Flush());
  ASHLAR_OK(rig_.Put("k0", "new"));
  const auto fresh = rig_->NewIterator({});
  const auto moved = rig_->NewIterator({});
  const auto ended = rig_->NewIterator({});
  moved->Seek("k5");
  ASSERT_TRUE(moved->Valid());
  for (ended->SeekToFirst(); ended->Valid(); ended->Next()) {
  }
  rig_.holder().reset();
  // What was shown stays until the iterator is moved.
  EXPECT_TRUE(moved->Valid());
  EXPECT_EQ(moved->key(), "k5");
  EXPECT_EQ(moved->value(), Bytes(5, 500));
  moved->Next();
  for (Iterator* it : {fresh.get(), moved.get(), ended.get()}) {
    it->Seek("k5");
    EXPECT_FALSE(it->Valid());
    EXPECT_EQ(it->status().code(), StatusCode::kFailedPrecondition);
    it->SeekToFirst();
    EXPECT_FALSE(it->Valid());
    EXPECT_EQ(it->status().code(), StatusCode::kFailedPrecondition);
  }
  // The device is free: the store opens again while they live.
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("k0"), "new");
}

TEST_F(ApiTest, NextAfterTheStoreIsGoneIsAnError) {
  ASHLAR_OK(rig_.Put("a", "1"));
  ASHLAR_OK(rig_.Put("b", "1"));
  const auto it = rig_->NewIterator({});
  it->SeekToFirst();
  rig_.holder().reset();
  it->Next();
  EXPECT_FALSE(it->Valid());
  EXPECT_EQ(it->status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(ApiTest, SeekFindsTheFirstKeyAtOrAfter) {
  const std::vector<std::string> keys = {"a", "b", std::string("b\0", 2), "ba", "d", "\xff"};
  for (int place = 0; place < 3; ++place) {  // memtable, level 0, run
    for (const std::string& k : keys) ASHLAR_OK(rig_.Put(k, k));
    ASHLAR_OK(rig_.Put("c", "gone"));
    ASHLAR_OK(rig_.Delete("c"));
    if (place == 1) ASHLAR_OK(rig_->Flush());
    if (place == 2) ASHLAR_OK(rig_->MergeAll());
    const auto it = rig_->NewIterator({});
    EXPECT_FALSE(it->Valid());
    EXPECT_EQ(it->status(), absl::OkStatus());
    const auto at = [&](std::string_view target) -> std::string {
      it->Seek(target);
      return it->Valid() ? std::string(it->key()) : "end";
    };
    EXPECT_EQ(at(""), "a");
    EXPECT_EQ(at(std::string_view("\0", 1)), "a");
    EXPECT_EQ(at("a"), "a");
    EXPECT_EQ(at(std::string_view("a\0", 2)), "b");
    EXPECT_EQ(at(std::string_view("b\0", 2)), keys[2]);
    EXPECT_EQ(at(std::string_view("b\0\0", 3)), "ba");
    EXPECT_EQ(at("bb"), "d");
    EXPECT_EQ(at("c"), "d");
    EXPECT_EQ(at("e"), "\xff");
    EXPECT_EQ(at("\xff"), "\xff");
    EXPECT_EQ(at("\xff\xff"), "end");
    EXPECT_EQ(it->status(), absl::OkStatus());
    EXPECT_EQ(at("a"), "a");  // back again
    it->Next();
    EXPECT_EQ(it->key(), "b");
    it->Next();
    EXPECT_EQ(it->key(), keys[2]);
    it->Seek("\xff");
    it->Next();
    EXPECT_FALSE(it->Valid());
    EXPECT_EQ(it->status(), absl::OkStatus());
    it->SeekToFirst();
    EXPECT_EQ(it->key(), "a");
  }
}

TEST_F(ApiTest, BoundsHoldForSeeksAndSteps) {
  for (const char* key : {"a", "b", "c", "d", "e"}) ASHLAR_OK(rig_.Put(key, "1"));
  std::string lower = "b", upper = "d";
  ReadOptions bounded;
  bounded.lower_bound = lower;
  bounded.upper_bound = upper;
  const auto it = rig_->NewIterator(bounded);
  lower = upper = "x";  // it has copies
  const auto shown = [&] {
    std::string keys;
    for (; it->Valid(); it->Next()) keys += std::string(it->key());
    EXPECT_EQ(it->status(), absl::OkStatus());
    return keys;
  };
  it->SeekToFirst();
  EXPECT_EQ(shown(), "bc");
  it->Seek("a");
  EXPECT_EQ(shown(), "bc");
  it->Seek("c");
  EXPECT_EQ(shown(), "c");
  it->Seek("d");
  EXPECT_EQ(shown(), "");
  bounded.lower_bound = "d";
  bounded.upper_bound = "b";
  EXPECT_TRUE(Contents(rig_->NewIterator(bounded).get()).empty());
}

TEST_F(ApiTest, EmptyStoreIteratesToItsEnd) {
  const auto it = rig_->NewIterator({});
  it->SeekToFirst();
  EXPECT_FALSE(it->Valid());
  EXPECT_EQ(it->status(), absl::OkStatus());
  it->Seek("x");
  EXPECT_FALSE(it->Valid());
  EXPECT_EQ(it->status(), absl::OkStatus());
}

TEST_F(ApiTest, KeysMayHoldAnyBytes) {
  std::map<std::string, std::string> want;
  for (int a = 0; a < 256; a += 51) {
    for (int b = 0; b < 256; b += 51) {
      for (const size_t n : {1, 2, 3, 100}) {
        const std::string key =
            std::string(1, static_cast<char>(a)) + std::string(n - 1, static_cast<char>(b));
        want[key] = absl::StrCat(a, ",", b, ",", n);
        ASHLAR_OK(rig_.Put(key, want[key]));
      }
    }
  }
  ExpectSame(Contents(rig_.db()), want, "memtable");
  ASHLAR_OK(rig_->Flush());
  ExpectSame(Contents(rig_.db()), want, "level 0");
  ASHLAR_OK(rig_->MergeAll());
  ExpectSame(Contents(rig_.db()), want, "run");
  for (const auto& [k, v] : want) EXPECT_EQ(rig_.Get(k), v);
  ASHLAR_OK(rig_.Close());
  ASHLAR_OK(rig_.Open());
  ExpectSame(Contents(rig_.db()), want, "reopened");
}

TEST_F(ApiTest, ReadOnlyOpenSeesTheLogOfAStoreThatIsOpen) {
  ASHLAR_OK(rig_.Put("flushed", "1"));
  ASHLAR_OK(rig_->Flush());
  ASHLAR_OK(rig_.Put("logged", "2"));
  ASHLAR_OK(rig_.Delete("flushed"));
  Options options;
  options.read_only = true;
  auto reader = rig_.OpenAnother(options);
  ASHLAR_OK(reader.status());
  DB* db = reader->get();
  EXPECT_EQ(Rig::Get(db, "logged"), "2");
  EXPECT_EQ(Rig::Get(db, "flushed"), "<none>");
  EXPECT_EQ(Contents(db), (std::map<std::string, std::string>{{"logged", "2"}}));

  const StatusCode refused = StatusCode::kFailedPrecondition;
  EXPECT_EQ(db->Put({}, "x", "y").code(), refused);
  EXPECT_EQ(db->Delete({}, "logged").code(), refused);
  EXPECT_EQ(db->Flush().code(), refused);
  EXPECT_EQ(db->Sync().code(), refused);
  EXPECT_EQ(db->health().state, Health::State::kReadOnly);
  EXPECT_FALSE(db->health().cause.ok());
  ASHLAR_OK(db->Close());
  EXPECT_EQ(db->Put({}, "x", "y").code(), refused);
  // The other goes on undisturbed.
  ASHLAR_OK(rig_.Put("more", "3"));
  ASHLAR_OK(rig_.Close());
  rig_.Check("after a reader");
}

// The log of a large memtable, replayed into several small ones: the newest is asked first.
TEST(ReadOnly, OpenWithLessMemorySeesTheNewest) {
  RigOptions o;
  o.bytes = 512 * kMiB;
  o.memory_bytes = 64 * kMiB;
  Rig rig(o);
  ASHLAR_OK(rig.Open());
  for (const char* round : {"first", "second", "third"}) {
    ASHLAR_OK(rig.Put("key", round));
    ASHLAR_OK(rig.Put(absl::StrCat("deleted in ", round), "1"));
    for (int i = 0; i < 40; ++i) {
      ASHLAR_OK(rig->Put(kBufferedWrite, absl::StrCat(round, i), Bytes(1, 32'000)));
    }
    ASHLAR_OK(rig.Delete("deleted in first"));
    ASHLAR_OK(rig.Delete(absl::StrCat("deleted in ", round)));
  }
  ASHLAR_OK(rig->Sync());
  Options less;
  less.read_only = true;
  less.memory_bytes = 2 * kMiB;
  auto reader = *rig.OpenAnother(less);
  EXPECT_GT((*reader->TakeView())->memtables.size(), 2u);
  EXPECT_EQ(Rig::Get(reader.get(), "key"), "third");
  EXPECT_EQ(Rig::Get(reader.get(), "deleted in first"), "<none>");
  ExpectSame(Contents(reader.get()), Contents(rig.db()), "read-only");
}

TEST_F(ApiTest, ReadOnlyOpenWritesNothing) {
  ASHLAR_OK(rig_.Put("a", "1"));
  rig_.Crash();
  const std::string before(reinterpret_cast<const char*>(rig_.device()->contents().data()),
                           rig_.device()->contents().size());
  Options options;
  options.read_only = true;
  {
    auto reader = rig_.OpenAnother(options);
    ASHLAR_OK(reader.status());
    EXPECT_EQ(Rig::Get(reader->get(), "a"), "1");
  }
  EXPECT_EQ(rig_.device()->unflushed(), 0u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(),
                         reinterpret_cast<const char*>(rig_.device()->contents().data())));
}

TEST_F(ApiTest, MemoryBelowTheMinimumIsRefused) {
  ASHLAR_OK(rig_.Close());
  Options options;
  options.memory_bytes = 2 * kMiB - 1;
  auto db = rig_.OpenAnother(options);
  EXPECT_EQ(db.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(db.status().message(), "memory_bytes")) << db.status();
  options.memory_bytes = 0;
  EXPECT_EQ(rig_.OpenAnother(options).status().code(), StatusCode::kResourceExhausted);
  options.memory_bytes = 2 * kMiB;
  ASHLAR_OK(rig_.OpenAnother(options).status());
}

TEST_F(ApiTest, SyncMakesBufferedWritesDurable) {
  for (int i = 0; i < 500; ++i) {
    ASHLAR_OK(rig_->Put(kBufferedWrite, absl::StrCat("k", i), Bytes(i, 300)));
  }
  ASHLAR_OK(rig_->Sync());
  ASHLAR_OK(rig_->Put(kBufferedWrite, "after", "1"));
  rig_.Crash([](size_t) { return false; });
  ASHLAR_OK(rig_.Open());
  for (int i = 0; i < 500; ++i) EXPECT_EQ(rig_.Get(absl::StrCat("k", i)), Bytes(i, 300));
  EXPECT_EQ(rig_.Get("after"), "<none>");  // nobody asked for it
}

TEST_F(ApiTest, ADurableWriteMakesBufferedOnesBeforeItDurable) {
  ASHLAR_OK(rig_->Put(kBufferedWrite, "a", "1"));
  ASHLAR_OK(rig_.Put("b", "2"));
  rig_.Crash([](size_t) { return false; });
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("a"), "1");
  EXPECT_EQ(rig_.Get("b"), "2");
}

TEST_F(ApiTest, CloseAndTheDestructorMakeBufferedWritesDurable) {
  ASHLAR_OK(rig_->Put(kBufferedWrite, "a", "1"));
  ASHLAR_OK(rig_.Close());
  rig_.device()->LoseUnflushed([](size_t) { return false; });
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("a"), "1");
  ASHLAR_OK(rig_->Put(kBufferedWrite, "b", "2"));
  rig_.holder().reset();
  rig_.device()->LoseUnflushed([](size_t) { return false; });
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("b"), "2");
}

TEST_F(ApiTest, HealthNamesTheFailureAndSinceWhen) {
  EXPECT_EQ(rig_->health().state, Health::State::kWritable);
  EXPECT_EQ(rig_->health().cause, absl::OkStatus());
  ASHLAR_OK(rig_.Put("a", "1"));
  rig_.SetHook([](const io::Request& r, const std::byte*) {
    return io::IoStatus{r.op == io::Op::kWrite ? io::IoClass::kFatal : io::IoClass::kOk, 0, 0,
                        r.op == io::Op::kWrite ? EIO : 0};
  });
  const absl::Status s = rig_.Put("b", "2");
  EXPECT_EQ(s.code(), StatusCode::kInternal) << s;
  rig_.SetHook(nullptr);
  const Health h = rig_->health();
  EXPECT_EQ(h.state, Health::State::kFailed);
  EXPECT_EQ(h.cause.code(), StatusCode::kInternal);
  EXPECT_GT(h.since_unix_ms, 1'500'000'000'000);
  const absl::Status again = rig_.Put("c", "3");
  EXPECT_EQ(again.code(), StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(again.message(), h.cause.message())) << again;
  EXPECT_EQ(rig_.Get("a"), "1");
  EXPECT_EQ(rig_.Get("b"), "<none>");
  const auto messages = rig_.messages();
  EXPECT_TRUE(std::any_of(messages.begin(), messages.end(),
                          [](const auto& m) { return m.first == LogLevel::kError; }));
  EXPECT_FALSE(rig_.Close().ok());
  ASHLAR_OK(rig_.Open());
  EXPECT_EQ(rig_.Get("a"), "1");
  ASHLAR_OK(rig_.Put("c", "3"));
}

TEST_F(ApiTest, LogSinkIsToldWhatWasChosen) {
  const auto messages = rig_.messages();
  EXPECT_TRUE(std::any_of(messages.begin(), messages.end(), [&](const auto& m) {
    return m.first == LogLevel::kInfo && m.second == rig_.device()->Describe();
  }));
}

TEST_F(ApiTest, LogSinkIsToldOfDamagedSuperblocks) {
  ASHLAR_OK(rig_.Close());
  const auto media = rig_.device()->contents();
  media[SuperblockPlace(3, media.size()) + 100] ^= std::byte{1};
  ASHLAR_OK(rig_.Open());
  const auto messages = rig_.messages();
  EXPECT_TRUE(std::any_of(messages.begin(), messages.end(), [](const auto& m) {
    return m.first == LogLevel::kWarning && absl::StrContains(m.second, "superblock copy 3");
  }));
}

TEST_F(ApiTest, AReadOfASuperblockThatFailsOnceIsTriedAgain) {
  ASHLAR_OK(rig_.Close());
  std::set<uint64_t> failed;
  rig_.SetHook([&](const io::Request& r, const std::byte*) -> io::IoStatus {
    const bool first = r.op == io::Op::kRead && failed.insert(io::Raw(r.lba)).second;
    return first ? io::IoStatus{io::IoClass::kRetry, 0, 0, EIO} : io::IoStatus{};
  });
  ASHLAR_OK(rig_.Open());
  EXPECT_GE(failed.size(), static_cast<size_t>(kSuperblockCopies));
  for (const auto& [level, text] : rig_.messages()) EXPECT_EQ(level, LogLevel::kInfo) << text;
  rig_.SetHook(nullptr);
}

// So the next open need not ask whether somebody is still there, and an edit that was lost after it
// is missed.
TEST_F(ApiTest, AClosedStoreHasNoOwner) {
  const auto owner = [&] {
    auto io = ExtentIo::Create(rig_.device(), kMinExtentBytes, 1, kPageBytes, 0);
    return ReadSuperblocks(io->get())->current.owner;
  };
  EXPECT_NE(owner(), Owner());
  ASHLAR_OK(rig_.Put("a", "1"));
  ASHLAR_OK(rig_.Close());
  EXPECT_EQ(owner(), Owner());
}

TEST_F(ApiTest, SinkMayCallTheStore) {
  ASHLAR_OK(rig_.Put("a", "1"));
  ASHLAR_OK(rig_.Close());
  DBImpl* db = nullptr;
  int called = 0;
  Options options = rig_.StoreOptions();
  options.log_sink = [&](LogLevel level, std::string_view) {
    if (level != LogLevel::kError || db == nullptr) return;
    ++called;
    EXPECT_EQ(Rig::Get(db, "a"), "1");
    EXPECT_EQ(db->health().state, Health::State::kFailed);
  };
  auto opened = rig_.OpenAnother(options);
  ASHLAR_OK(opened.status());
  db = opened->get();
  rig_.SetHook([](const io::Request& r, const std::byte*) {
    return io::IoStatus{r.op == io::Op::kRead ? io::IoClass::kOk : io::IoClass::kFatal, 0, 0, EIO};
  });
  EXPECT_FALSE(db->Put({}, "b", "2").ok());
  EXPECT_EQ(called, 1);
  opened->reset();
}

// A store moves to a device with smaller blocks, in order or after a crash: its records keep the
// grain they have.
TEST(SmallerBlocks, StoreOfLargeBlocksIsReadAndWritten) {
  for (const bool crash : {false, true}) {
    RigOptions o;
    o.lba_bytes = 4096;
    Rig large(o);
    ASHLAR_OK(large.Open());
    for (int i = 0; i < 50; ++i) ASHLAR_OK(large.Put(absl::StrCat("k", i), Bytes(i, 700)));
    ASHLAR_OK(large->Flush());
    for (int i = 0; i < 50; ++i) ASHLAR_OK(large.Put(absl::StrCat("k", i), Bytes(i, 600)));
    crash ? large.Crash() : large.holder().reset();
    o.lba_bytes = 512;
    Rig small(o);
    const auto media = large.device()->contents();
    std::copy(media.begin(), media.end(), small.device()->contents().begin());
    for (int round = 0; round < 3; ++round) {
      ASHLAR_OK(small.Open());
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(small.Get(absl::StrCat("k", i)) == Bytes(i, 600 + round));
        ASHLAR_OK(small.Put(absl::StrCat("k", i), Bytes(i, 601 + round)));
      }
      if (round == 0) ASHLAR_OK(small->MergeAll());
      small.Crash([](size_t) { return false; });
      small.Check(absl::StrCat("round ", round));
    }
  }
}

// ---- values of all sizes ----

struct Shape {
  uint32_t lba_bytes;
  uint32_t extent_bytes;
  uint64_t memory_bytes;
};
class ValueSizes : public testing::TestWithParam<Shape> {};

TEST_P(ValueSizes, AllAroundPagesAndExtentsComeBack) {
  RigOptions o;
  o.bytes = 256 * kMiB;
  o.lba_bytes = GetParam().lba_bytes;
  o.extent_bytes = GetParam().extent_bytes;
  o.memory_bytes = GetParam().memory_bytes;
  Rig rig(o);
  ASHLAR_OK(rig.Open());
  const size_t limit = rig->limits().value_bytes;
  std::vector<size_t> sizes = {0, 1, 2, limit, limit - 1};
  for (const size_t boundary :
       {512u, 4096u, 2 * 4096u, 32u << 10, 64u << 10, 128u << 10, 1u << 20}) {
    for (const int64_t around :
         {-4200, -4097, -64, -40, -33, -32, -24, -20, -17, -16, -8, -3, -2, -1, 0, 1, 2, 4096}) {
      const int64_t n = static_cast<int64_t>(boundary) + around;
      if (n > 0 && n <= static_cast<int64_t>(limit)) sizes.push_back(n);
    }
  }
  std::map<std::string, std::string> want;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string key = absl::StrCat(i * 7919 % sizes.size(), "-", sizes[i]);
    want[key] = Bytes(i, sizes[i]);
    ASHLAR_OK(rig.Put(key, want[key]));
  }
  const auto all_there = [&](const std::string& when) {
    for (const auto& [k, v] : want) ASSERT_TRUE(rig.Get(k) == v) << when << ": " << k;
    ExpectSame(Contents(rig.db()), want, when);
  };
  all_there("memtable and level 0");
  rig.Crash([](size_t) { return false; });
  ASHLAR_OK(rig.Open());
  all_there("replayed");
  ASHLAR_OK(rig->MergeAll());
  all_there("merged");
  ASHLAR_OK(rig.Close());
  rig.Check("at the end");
}

INSTANTIATE_TEST_SUITE_P(Shapes, ValueSizes,
                         testing::Values(Shape{4096, 64 << 10, 16 * kMiB},
                                         Shape{512, 64 << 10, 2 * kMiB},
                                         Shape{512, 1 << 20, 64 * kMiB},
                                         Shape{4096, 1 << 20, 2 * kMiB}));

// ---- an iterator sees exactly its moment ----

class IteratorMoment : public testing::TestWithParam<bool> {};

TEST_P(IteratorMoment, StaysWhileTheStoreGoesOnBelowIt) {
  RigOptions o;
  o.threads = GetParam();
  o.memory_bytes = 2 * kMiB;
  Rig rig(o);
  ASHLAR_OK(rig.Open());
  std::map<std::string, std::string> now;
  const auto key = [](int i) { return absl::StrCat("key", 1000 + i); };
  const auto write_all = [&](int round) {
    for (int i = 0; i < 400; ++i) {
      if ((i + round) % 5 == 0) {
        ASHLAR_OK(rig.Delete(key(i)));
        now.erase(key(i));
      } else {
        now[key(i)] = Bytes(round * 1000 + i, 100 + i);
        ASHLAR_OK(rig->Put(kBufferedWrite, key(i), now[key(i)]));
      }
    }
  };
  struct Held {
    std::unique_ptr<Iterator> it;
    std::map<std::string, std::string> moment;
    std::map<std::string, std::string>::iterator at;
  };
  std::vector<std::unique_ptr<Held>> held;
  for (int round = 0; round < 12; ++round) {
    write_all(round);
    auto h = std::make_unique<Held>();
    h->it = rig->NewIterator({});
    h->moment = now;
    h->at = h->moment.begin();
    if (round % 2 == 0) h->it->SeekToFirst();
    held.push_back(std::move(h));
    write_all(round + 100);
    if (round % 3 == 0) ASHLAR_OK(rig->Flush());
    if (round % 3 == 1) ASHLAR_OK(rig->MergeAll());
    // Each moves on a little, from where it was.
    for (auto& each : held) {
      if (!each->it->Valid()) each->it->SeekToFirst(), each->at = each->moment.begin();
      for (int step = 0; step < 30 && each->it->Valid(); ++step) {
        ASSERT_NE(each->at, each->moment.end());
        ASSERT_EQ(each->it->key(), each->at->first);
        ASSERT_TRUE(each->it->value() == each->at->second);
        each->it->Next();
        ++each->at;
      }
      ASHLAR_OK(each->it->status());
    }
  }
  ASHLAR_OK(rig->MergeAll());
  for (auto& each : held) ExpectSame(Contents(each->it.get()), each->moment, "an old iterator");
  ExpectSame(Contents(rig.db()), now, "now");
  held.clear();
  ASHLAR_OK(rig->MergeAll());
  ExpectSame(Contents(rig.db()), now, "without iterators");
  ASHLAR_OK(rig.Close());
  rig.Check("at the end");
}
INSTANTIATE_TEST_SUITE_P(Threads, IteratorMoment, testing::Bool());

TEST(IteratorSpace, MergesFreeWhatAnIteratorLetGoOf) {
  Rig rig;
  ASHLAR_OK(rig.Open());
  for (int i = 0; i < 4000; ++i)
    ASHLAR_OK(rig->Put(kBufferedWrite, absl::StrCat("k", i), Bytes(i, 2000)));
  ASHLAR_OK(rig->MergeAll());
  const uint64_t before = InspectDevice(rig.device())->extents_table;
  const auto it = rig->NewIterator({});
  it->SeekToFirst();
  for (int i = 0; i < 4000; ++i) ASHLAR_OK(rig->Delete(kBufferedWrite, absl::StrCat("k", i)));
  ASHLAR_OK(rig->MergeAll());
  // All of it is still seen by the iterator, and is kept once, not twice.
  int seen = 0;
  for (; it->Valid(); it->Next()) ++seen;
  EXPECT_EQ(seen, 4000);
  EXPECT_LE(InspectDevice(rig.device())->extents_table, before + before / 4);
  EXPECT_EQ(Contents(rig.db()).size(), 0u);
}

// ---- paths ----

TEST(OpenPath, MissingPathIsNotFound) {
  const ScratchFile file("missing");
  EXPECT_EQ(DB::Open(Options{}, file.path()).status().code(), StatusCode::kNotFound);
}

TEST(OpenPath, CreateIfMissingMakesAStoreOnce) {
  const ScratchFile file("create");
  Options options;
  options.create_if_missing = true;
  options.create_bytes = 64 * kMiB;
  {
    auto db = DB::Open(options, file.path());
    ASHLAR_OK(db.status());
    ASHLAR_OK((*db)->Put({}, "a", "1"));
    EXPECT_EQ((*db)->limits().value_bytes > 0, true);
  }
  auto info = InspectStore(file.path());
  ASHLAR_OK(info.status());
  EXPECT_EQ(info->store_bytes, 64 * kMiB);
  EXPECT_TRUE(info->clean);
  options.create_bytes = 128 * kMiB;
  auto db = DB::Open(options, file.path());
  ASHLAR_OK(db.status());
  EXPECT_EQ(Rig::Get(db->get(), "a"), "1");
  EXPECT_EQ(InspectStore(file.path())->store_bytes, 64 * kMiB);
}

TEST(OpenPath, CreateBelowTheMinimumIsRefusedAndLeavesNothing) {
  const ScratchFile file("small");
  Options options;
  options.create_if_missing = true;
  options.create_bytes = 64 * kMiB - 1;
  EXPECT_EQ(DB::Open(options, file.path()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(access(file.path().c_str(), F_OK), 0);
}

TEST(OpenPath, SecondOpenIsRefusedNamingThisProcess) {
  const ScratchFile file("twice");
  Options options;
  options.create_if_missing = true;
  options.create_bytes = 64 * kMiB;
  auto db = DB::Open(options, file.path());
  ASHLAR_OK(db.status());
  auto second = DB::Open(options, file.path());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(second.status().message(), absl::StrCat("process ", getpid())))
      << second.status();
  ASHLAR_OK((*db)->Close());
  ASHLAR_OK(DB::Open(options, file.path()).status());  // Close gave it back, the object lives
}

TEST(OpenPath, ReadOnlyOpenNeedsNoClaim) {
  const ScratchFile file("shared");
  Options options;
  options.create_if_missing = true;
  options.create_bytes = 64 * kMiB;
  auto db = DB::Open(options, file.path());
  ASHLAR_OK(db.status());
  ASHLAR_OK((*db)->Put({}, "a", "1"));
  Options read;
  read.read_only = true;
  auto reader = DB::Open(read, file.path());
  ASHLAR_OK(reader.status());
  EXPECT_EQ(Rig::Get(reader->get(), "a"), "1");
  // With nothing to create: read_only never makes a store.
  read.create_if_missing = true;
  const ScratchFile other("absent");
  EXPECT_EQ(DB::Open(read, other.path()).status().code(), StatusCode::kNotFound);
  EXPECT_NE(access(other.path().c_str(), F_OK), 0);
}

}  // namespace
}  // namespace ashlar
