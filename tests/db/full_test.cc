// A full store, a full device below it, and a device that fails: nothing acknowledged is lost, and
// the store goes on as soon as it can.
#include <algorithm>
#include <atomic>
#include <set>

#include "absl/strings/match.h"
#include "engine/base/limits.h"
#include "tests/db/rig.h"
#include "tests/io/scratch.h"
#include "tests/support/manual_clock.h"

namespace ashlar {
namespace {

using absl::StatusCode;
using Model = std::map<std::string, std::string>;

constexpr io::IoStatus kNoRoom = {io::IoClass::kFull, 0, 0, ENOSPC};

// A hook: what the background writes, the pages of tables, finds no room.
io::IoStatus NoRoomForTables(const io::Request& r, const std::byte*) {
  const bool table = r.op == io::Op::kWrite && (r.flags & io::kBackground) != 0;
  return table ? kNoRoom : io::IoStatus{};
}

std::string KeyOf(int i) { return absl::StrCat("key", 1000000 + i); }

// Puts records of about `bytes` until the store says that it is full; each goes into `model`.
// Returns how many.
int Fill(DB* db, Model* model, int first, size_t bytes, absl::Status* status) {
  for (int i = first;; ++i) {
    const std::string value = Bytes(i, bytes / 2 + (i * 7919 % bytes));
    *status = db->Put(kBufferedWrite, KeyOf(i), value);
    if (!status->ok()) return i - first;
    (*model)[KeyOf(i)] = value;
  }
}

class FullTest : public testing::TestWithParam<bool> {
 protected:
  FullTest()
      : rig_([] {
          RigOptions o;
          o.threads = GetParam();
          return o;
        }()) {}
  void SetUp() override { ASHLAR_OK(rig_.Open()); }
  void FillUp(size_t bytes = 3000) {
    absl::Status s;
    next_ += Fill(rig_.db(), &model_, next_, bytes, &s);
    ASSERT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
  }
  // Deletes every n-th of what is there, from a random one on.
  void DeleteOneIn(int n, int from = 0) {
    int i = from;
    for (auto it = model_.begin(); it != model_.end();) {
      if (i++ % n != 0) {
        ++it;
        continue;
      }
      ASHLAR_OK(rig_->Delete(kBufferedWrite, it->first));
      it = model_.erase(it);
    }
  }
  Rig rig_;
  Model model_;
  int next_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Work, FullTest, testing::Bool());

TEST_P(FullTest, FullStoreReadsDeletesAndSaysSo) {
  FillUp();
  EXPECT_GT(model_.size() * 3000, rig_.options().bytes / 2);  // it was worth its space
  const Health h = rig_->health();
  EXPECT_EQ(h.state, Health::State::kFull);
  EXPECT_EQ(h.cause.code(), StatusCode::kResourceExhausted);
  EXPECT_GT(h.since_unix_ms, 1'500'000'000'000);
  ExpectSame(Contents(rig_.db()), model_, "full");
  EXPECT_EQ(rig_.Get(KeyOf(next_)), "<none>");
  // Overwrites are writes; deletes are taken; again and again.
  const absl::Status s = rig_.Put(KeyOf(0), "short");
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
  EXPECT_EQ(rig_.Get(KeyOf(0)), model_[KeyOf(0)]);
  for (int i = 0; i < 10; ++i) {
    ASHLAR_OK(rig_.Delete(KeyOf(i)));
    model_.erase(KeyOf(i));
    EXPECT_EQ(rig_.Get(KeyOf(i)), "<none>");
  }
  WriteBatch mixed;
  mixed.Delete(KeyOf(20));
  mixed.Put(KeyOf(21), "x");
  EXPECT_EQ(rig_->Write({}, mixed).code(), StatusCode::kResourceExhausted);
  ASHLAR_OK(rig_->Sync());
  ExpectSame(Contents(rig_.db()), model_, "after deletes");
  ASHLAR_OK(rig_.Close());
  rig_.Check("full and closed");
  ASHLAR_OK(rig_.Open());
  ExpectSame(Contents(rig_.db()), model_, "reopened");
}

TEST_P(FullTest, OpeningAFullStoreDoesNotEatIt) {
  FillUp();
  const auto free = [&] { return InspectDevice(rig_.device())->extents_free; };
  ASHLAR_OK(rig_.Close());
  const uint64_t before = free();
  for (int cycle = 0; cycle < 50; ++cycle) {
    ASHLAR_OK(rig_.Open());
    // A little in the log each time, where the store takes it.
    const std::string& victim = model_.begin()->first;
    ASHLAR_OK(rig_.Delete(victim));
    model_.erase(victim);
    if (cycle % 2 == 0) {
      ASHLAR_OK(rig_.Close());
    } else {
      rig_.Crash([&](size_t i) { return i % 3 == 0; });
    }
  }
  for (int cycle = 0; cycle < 50; ++cycle) {
    ASHLAR_OK(rig_.Open());
    rig_.Crash();
  }
  ASHLAR_OK(rig_.Open());
  ExpectSame(Contents(rig_.db()), model_, "after 100 cycles");
  ASHLAR_OK(rig_->MergeAll());
  ASHLAR_OK(rig_.Close());
  EXPECT_GE(free() + 8, before);
  rig_.Check("after 100 cycles");
}

TEST_P(FullTest, WritesWorkAgainAfterDeletes) {
  for (const int one_in : {10, 3}) {
    FillUp();
    DeleteOneIn(one_in);
    // By themselves: the first write that finds no room merges.
    const size_t before = model_.size();
    FillUp();
    EXPECT_GT(model_.size() - before, before / one_in / 4) << "hardly any of the space came back";
    ExpectSame(Contents(rig_.db()), model_, "filled again");
  }
  EXPECT_EQ(rig_->health().state, Health::State::kFull);
  DeleteOneIn(2);
  ASHLAR_OK(rig_.Put("again", "1"));
  model_["again"] = "1";
  EXPECT_EQ(rig_->health().state, Health::State::kWritable);
  ASHLAR_OK(rig_.Close());
  ASHLAR_OK(rig_.Open());
  ExpectSame(Contents(rig_.db()), model_, "reopened");
}

TEST_P(FullTest, TwentyCyclesOfFillAndDelete) {
  std::mt19937_64 random(g_seed);
  for (int cycle = 0; cycle < 20; ++cycle) {
    const size_t bytes = 1500 + random() % (cycle % 3 == 0 ? 60000 : 3000);
    absl::Status s;
    next_ += Fill(rig_.db(), &model_, next_, bytes, &s);
    ASSERT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
    DeleteOneIn(1 + random() % 4, random() % 4);
    if (cycle % 4 == 1) {
      ASHLAR_OK(rig_.Close());
      ASHLAR_OK(rig_.Open());
    } else if (cycle % 4 == 3) {
      ASHLAR_OK(rig_->Sync());
      rig_.Crash([&](size_t) { return random() % 2 == 0; });
      ASHLAR_OK(rig_.Open());
    }
    ExpectSame(Contents(rig_.db()), model_, absl::StrCat("cycle ", cycle, ", seed ", g_seed));
    if (HasFailure()) return;
  }
  ASHLAR_OK(rig_.Close());
  rig_.Check("at the end");
}

// Everything can go, and then everything fits again.
TEST_P(FullTest, DeletingAllMakesTheStoreEmpty) {
  FillUp();
  const size_t first = model_.size();
  DeleteOneIn(1);
  EXPECT_TRUE(Contents(rig_.db()).empty());
  FillUp();
  EXPECT_GT(model_.size(), first * 9 / 10);
}

TEST_P(FullTest, AnIteratorThatHoldsSpaceIsNamed) {
  FillUp();
  auto it = rig_->NewIterator({});
  const Model moment = model_;
  it->SeekToFirst();
  DeleteOneIn(1);
  // What was deleted is still seen by the iterator: no room.
  absl::Status s;
  const int more = Fill(rig_.db(), &model_, next_, 3000, &s);
  next_ += more;
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(s.message(), "iterator")) << s;
  EXPECT_LT(more, 1000);
  ExpectSame(Contents(it.get()), moment, "the iterator");
  ExpectSame(Contents(rig_.db()), model_, "now");
  it.reset();
  FillUp();
  EXPECT_GT(model_.size() + 100, moment.size() * 9 / 10);
}

TEST_P(FullTest, DeletesEndWithAnErrorAndNeverStickForGood) {
  FillUp();
  auto it = rig_->NewIterator({});
  // Deletes that give nothing back, as the iterator sees all: at last they are refused too.
  absl::Status s;
  int deletes = 0;
  for (; s.ok() && deletes < 3'000'000; ++deletes) {
    s = rig_->Delete(kBufferedWrite, absl::StrCat("nothing", deletes, std::string(2000, 'x')));
  }
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted) << deletes;
  EXPECT_TRUE(absl::StrContains(s.message(), "iterator")) << s;
  ExpectSame(Contents(rig_.db()), model_, "now");
  it.reset();
  ASHLAR_OK(rig_.Delete(KeyOf(0)));
  model_.erase(KeyOf(0));
  ASHLAR_OK(rig_.Close());
  ASHLAR_OK(rig_.Open());
  ExpectSame(Contents(rig_.db()), model_, "reopened");
}

// Filled with little memory, and so with little in reserve.
TEST(FullMemory, AFullStoreOpensWithMoreMemory) {
  RigOptions o;
  o.bytes = 512 * kMiB;
  o.extent_bytes = 1 << 20;
  o.memory_bytes = 2 * kMiB;
  Rig rig(o);
  ASHLAR_OK(rig.Open());
  const std::string value = Bytes(1, 200000);
  std::set<std::string> keys;
  absl::Status s;
  for (int i = 0; s.ok(); ++i) {
    s = rig->Put(kBufferedWrite, KeyOf(i), value);
    if (s.ok()) keys.insert(KeyOf(i));
  }
  ASSERT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
  ASHLAR_OK(rig->Sync());
  rig.Crash();
  for (const uint64_t memory : {256 * kMiB, 2 * kMiB, 1024 * kMiB}) {
    Options options;
    options.memory_bytes = memory;
    auto db = rig.OpenAnother(options);
    ASSERT_TRUE(db.ok()) << memory / kMiB << " MiB: " << db.status();
    ASHLAR_OK((*db)->Delete({}, *keys.begin()));
    keys.erase(keys.begin());
    EXPECT_TRUE(Rig::Get(db->get(), *keys.begin()) == value);
  }
}

TEST(FullFile, SparseFileFillsAndOpensAgain) {
  const io::ScratchFile file("full");
  Options options;
  options.create_if_missing = true;
  options.create_bytes = 64 * kMiB;
  options.memory_bytes = 4 * kMiB;
  Model model;
  int next = 0;
  for (int round = 0; round < 3; ++round) {
    auto db = DB::Open(options, file.path());
    ASHLAR_OK(db.status());
    ExpectSame(Contents(db->get()), model, absl::StrCat("round ", round));
    absl::Status s;
    next += Fill(db->get(), &model, next, 5000, &s);
    ASSERT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
    EXPECT_EQ((*db)->health().state, Health::State::kFull);
    ExpectSame(Contents(db->get()), model, absl::StrCat("full, round ", round));
    for (int i = 0; i < 1000; ++i) {
      const std::string key = model.begin()->first;
      ASHLAR_OK((*db)->Delete(kBufferedWrite, key));
      model.erase(key);
    }
    ASHLAR_OK((*db)->Close());
    EXPECT_TRUE(CheckStore(file.path())->damage.empty());
  }
}

// ---- the device below has no room ----

class DeviceFull : public testing::TestWithParam<std::tuple<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, DeviceFull, testing::Combine(testing::Bool(), testing::Bool()));

// What may lie under each key when some writes to it were refused, or acknowledged without being
// durable.
class InDoubt {
 public:
  void Acked(const std::string& key, const std::string& value, bool durable = true) {
    Values& v = Of(key);
    v.all.push_back(value);
    v.shown = v.all.size() - 1;
    if (durable) DurableNow();
  }
  void Refused(const std::string& key, const std::string& value) { Of(key).all.push_back(value); }
  // Every write that was acknowledged is durable.
  void DurableNow() {
    for (auto& [key, v] : keys_) {
      v.all.erase(v.all.begin(), v.all.begin() + static_cast<ptrdiff_t>(v.shown));
      v.shown = 0;
    }
  }
  // Until it is reopened the store shows what it acknowledged.
  void ExpectNow(const Rig& rig, const std::string& when) const {
    for (const auto& [key, v] : keys_) {
      const std::string got = rig.Get(key);
      ASSERT_TRUE(got == v.all[v.shown]) << when << ": " << key << ": " << got.substr(0, 200);
    }
  }
  // Then what was durable, or something later. That holds from then on.
  void ExpectReopened(const Rig& rig, const std::string& when) {
    for (auto& [key, v] : keys_) {
      const std::string got = rig.Get(key);
      ASSERT_TRUE(std::find(v.all.begin(), v.all.end(), got) != v.all.end())
          << when << ": " << key << ": " << got.size() << " bytes: " << got.substr(0, 200);
      v = {{got}, 0};
    }
  }

 private:
  struct Values {
    std::vector<std::string> all = {"<none>"};  // in the order written, from the durable one on
    size_t shown = 0;
  };
  Values& Of(const std::string& key) { return keys_[key]; }
  std::map<std::string, Values> keys_;
};

// Writes fail for lack of space, at random: now and then a while of all, now and then single ones.
TEST_P(DeviceFull, AtRandomLosesNothingAndGoesOn) {
  const auto [fua, flushes] = GetParam();
  for (int round = 0; round < 16; ++round) {
    const uint64_t seed = g_seed + round;
    const std::string when = absl::StrCat("seed ", seed);
    RigOptions o;
    o.native_fua = fua;
    o.memory_bytes = 2 * kMiB;
    Rig rig(o);
    ASHLAR_OK(rig.Open());
    auto random = std::make_shared<std::mt19937_64>(seed);
    auto one_in = std::make_shared<std::atomic<int>>(0);
    std::mt19937_64 dice(seed + 1);
    rig.SetHook([=](const io::Request& r, const std::byte*) {
      const int n = *one_in;
      const bool full = r.op == io::Op::kWrite && n > 0 && (*random)() % n == 0;
      return full ? kNoRoom : io::IoStatus{};
    });
    InDoubt state;
    int refused = 0;
    const int steps = round < 4 ? 3000 : 400 + static_cast<int>(dice() % 2600);
    for (int i = 0; i < steps; ++i) {
      if (i % 300 == 0) *one_in = i / 300 % 3 == 0 ? 0 : i / 300 % 3 == 1 ? 4 : 1;
      const std::string key = absl::StrCat("key", dice() % 200);
      const std::string value = Bytes(i, dice() % 3000);
      const bool durable = dice() % 3 == 0;
      const absl::Status s =
          rig->Put({durable ? Durability::kDurable : Durability::kBuffered}, key, value);
      if (s.ok()) {
        state.Acked(key, value, durable);
      } else {
        ASSERT_EQ(s.code(), StatusCode::kResourceExhausted) << when << ": " << s;
        state.Refused(key, value);
        ++refused;
      }
      if (flushes && dice() % 100 == 0) {
        const absl::Status f = rig->Flush();
        ASSERT_TRUE(f.ok() || absl::IsResourceExhausted(f)) << when << ": " << f;
      }
      ASSERT_NE(rig->health().state, Health::State::kFailed) << when << ": " << rig->health().cause;
    }
    EXPECT_GT(refused, 0);
    state.ExpectNow(rig, when);
    *one_in = 0;
    if (round >= 4) {
      // The end comes in the middle of it.
      rig.Crash([&](size_t) { return dice() % 2 == 0; });
      ASSERT_EQ(rig.Open(), absl::OkStatus()) << when;
      state.ExpectReopened(rig, when + ", cut short");
      ASSERT_EQ(rig.Close(), absl::OkStatus()) << when;
      rig.Check(when);
      if (HasFailure()) return;
      continue;
    }
    // There is room again: it goes on by itself.
    ASSERT_EQ(rig.Put("room", "again"), absl::OkStatus()) << when;
    ASSERT_EQ(rig->MergeAll(), absl::OkStatus()) << when;
    EXPECT_EQ(rig->health().state, Health::State::kWritable) << when;
    state.ExpectNow(rig, when + ", merged");
    ASSERT_EQ(rig->Sync(), absl::OkStatus()) << when;
    state.DurableNow();
    if (round % 2 == 0) {
      rig.Crash([&](size_t) { return dice() % 2 == 0; });
    } else {
      ASSERT_EQ(rig.Close(), absl::OkStatus()) << when;
      rig.Check(when);
    }
    ASSERT_EQ(rig.Open(), absl::OkStatus()) << when;
    state.ExpectReopened(rig, when + ", reopened");
    ASSERT_EQ(rig->MergeAll(), absl::OkStatus()) << when;
    ASSERT_EQ(rig.Close(), absl::OkStatus()) << when;
    rig.Check(when);
    if (HasFailure()) return;
  }
}

// A place of the device, by what the store writes there.
enum class Place { kLog, kTable, kManifest };

TEST(DeviceFullPlace, EachAloneForAWhile) {
  for (const Place place : {Place::kLog, Place::kTable, Place::kManifest}) {
    const std::string when = absl::StrCat("place ", static_cast<int>(place));
    Rig rig;
    ASHLAR_OK(rig.Open());
    InDoubt state;
    const auto put = [&](int i) {
      const std::string key = KeyOf(i % 300), value = Bytes(i, 2000);
      const absl::Status s = rig.Put(key, value);
      s.ok() ? state.Acked(key, value) : state.Refused(key, value);
      return s;
    };
    for (int i = 0; i < 100; ++i) ASHLAR_OK(put(i));
    const StoreInfo info = InspectDevice(rig.device()).value();
    std::set<uint64_t> log;
    for (const auto& segment : info.log_segments) log.insert(segment.begin(), segment.end());
    rig.SetHook([=](const io::Request& r, const std::byte*) -> io::IoStatus {
      if (r.op != io::Op::kWrite) return {};
      const uint64_t extent = Raw(r.lba) * 4096 / info.extent_bytes;
      Place at = log.count(extent) != 0 ? Place::kLog : Place::kTable;
      // Pages of tables are written in the background, manifest and superblocks are waited for.
      if (at == Place::kTable && (r.flags & io::kBackground) == 0) at = Place::kManifest;
      return at == place ? kNoRoom : io::IoStatus{};
    });
    absl::Status first;
    for (int i = 100; i < 3000; ++i) {
      const absl::Status s = put(i);
      ASSERT_TRUE(s.ok() || absl::IsResourceExhausted(s)) << when << ": " << s;
      if (first.ok()) first = s;
    }
    const absl::Status f = rig->Flush();
    EXPECT_EQ(f.code(), StatusCode::kResourceExhausted) << when << ": " << f;
    EXPECT_EQ(first.code(), StatusCode::kResourceExhausted) << when;
    EXPECT_EQ(rig->health().state, Health::State::kFull) << when << rig->health().cause;
    state.ExpectNow(rig, when);
    rig.SetHook(nullptr);
    ASSERT_EQ(rig.Put("room", "again"), absl::OkStatus()) << when;
    ASSERT_EQ(rig->Flush(), absl::OkStatus()) << when;
    EXPECT_EQ(rig->health().state, Health::State::kWritable) << when;
    state.ExpectNow(rig, when + ", with room");
    ASSERT_EQ(rig.Close(), absl::OkStatus()) << when;
    rig.Check(when);
    ASHLAR_OK(rig.Open());
    state.ExpectReopened(rig, when);
  }
}

// A write to the log that found no room is repeated before its segment ends, never after: the
// segment's extents may hold something else by then.
TEST(DeviceFullLog, IsNotWrittenBehindTheEndOfItsSegment) {
  Rig rig;
  ASHLAR_OK(rig.Open());
  ASHLAR_OK(rig.Put("a", "1"));
  const StoreInfo info = InspectDevice(rig.device()).value();
  const uint32_t per_extent = info.extent_bytes / rig.options().lba_bytes;
  std::set<uint64_t> log;
  for (const auto& segment : info.log_segments) log.insert(segment.begin(), segment.end());
  ASHLAR_OK(rig->Put(kBufferedWrite, "b", Bytes(1, 2000)));
  rig.SetHook([=](const io::Request& r, const std::byte*) -> io::IoStatus {
    const bool full = r.op == io::Op::kWrite && log.count(Raw(r.lba) / per_extent) != 0;
    return full ? kNoRoom : io::IoStatus{};
  });
  const absl::Status s = rig->Flush();
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted) << s;
  rig.SetHook(nullptr);
  ASHLAR_OK(rig->Flush());
  std::set<uint64_t> now;
  const StoreInfo after = InspectDevice(rig.device()).value();
  for (const auto& segment : after.log_segments) {
    now.insert(segment.begin(), segment.end());
  }
  auto stray = std::make_shared<std::atomic<int>>(0);
  rig.SetHook([=](const io::Request& r, const std::byte*) -> io::IoStatus {
    const uint64_t extent = Raw(r.lba) / per_extent;
    if (r.op == io::Op::kWrite && log.count(extent) != 0 && now.count(extent) == 0) ++*stray;
    return {};
  });
  ASHLAR_OK(rig.Put("c", "3"));
  EXPECT_EQ(*stray, 0);
  EXPECT_EQ(rig.Get("b"), Bytes(1, 2000));
}

// Closing while the device is full keeps what is durable.
TEST(DeviceFullClose, KeepsTheLog) {
  for (const bool log_too : {false, true}) {
    Rig rig;
    ASHLAR_OK(rig.Open());
    for (int i = 0; i < 100; ++i) ASHLAR_OK(rig.Put(KeyOf(i), Bytes(i, 500)));
    rig.SetHook([=](const io::Request& r, const std::byte*) -> io::IoStatus {
      const bool full = r.op == io::Op::kWrite && (log_too || (r.flags & io::kBackground) != 0);
      return full ? kNoRoom : io::IoStatus{};
    });
    const absl::Status s = rig->Close();
    EXPECT_TRUE(s.ok() || absl::IsResourceExhausted(s)) << s;
    rig.holder().reset();
    rig.SetHook(nullptr);
    rig.Check("closed while full");
    ASHLAR_OK(rig.Open());
    for (int i = 0; i < 100; ++i) EXPECT_EQ(rig.Get(KeyOf(i)), Bytes(i, 500));
  }
}

// What the log's timers found no room for they try again a second later, without being asked.
TEST(DeviceFullTimers, BufferedWritesBecomeDurableOnceThereIsRoom) {
  ManualClock clock;
  Rig rig;
  rig.holder() =
      *DBImpl::Open(rig.StoreOptions(), rig.device(), nullptr, {&clock, InlineExecutor()});
  rig.SetHook([](const io::Request& r, const std::byte*) -> io::IoStatus {
    return r.op == io::Op::kWrite ? kNoRoom : io::IoStatus{};
  });
  ASHLAR_OK(rig->Put(kBufferedWrite, "a", "1"));
  clock.SleepNs(kBufferedFlushNs);
  rig->RunLogTimers();
  EXPECT_EQ(rig->health().state, Health::State::kFull);
  rig.SetHook(nullptr);
  clock.SleepNs(kBufferedFlushNs);
  rig->RunLogTimers();
  EXPECT_EQ(rig->health().state, Health::State::kWritable);
  rig.Crash([](size_t) { return false; });
  ASHLAR_OK(rig.Open());
  EXPECT_EQ(rig.Get("a"), "1");
}

// The log's timers go on when the memtable that is idle can't become a table.
TEST(DeviceFullIdle, ASealWithoutRoomDelaysNothingElse) {
  ManualClock clock;
  Rig rig;
  rig.holder() =
      *DBImpl::Open(rig.StoreOptions(), rig.device(), nullptr, {&clock, InlineExecutor()});
  rig.SetHook(NoRoomForTables);
  // Sealed, and it finds no room; the next one then can't be sealed.
  ASHLAR_OK(rig->Put(kBufferedWrite, "a", "1"));
  clock.SleepNs(Options().idle_ms * 1'000'000ull);
  rig->RunLogTimers();
  ASHLAR_OK(rig->Put(kBufferedWrite, "b", "2"));
  clock.SleepNs(Options().idle_ms * 1'000'000ull);
  rig->RunLogTimers();
  rig.Crash([](size_t) { return false; });
  rig.SetHook(nullptr);
  ASHLAR_OK(rig.Open());
  EXPECT_EQ(rig.Get("a"), "1");
  EXPECT_EQ(rig.Get("b"), "2");
}

// A merge that found no room and that nobody asks for any more is no reason to be full.
TEST(DeviceFullMerge, IsForgottenWhenNothingWaitsForIt) {
  Rig rig;
  ASHLAR_OK(rig.Open());
  for (int i = 0; i < 100; ++i) ASHLAR_OK(rig->Put(kBufferedWrite, KeyOf(i), Bytes(i, 2000)));
  ASHLAR_OK(rig->Flush());
  rig.SetHook(NoRoomForTables);
  EXPECT_TRUE(absl::IsResourceExhausted(rig->MergeAll()));
  EXPECT_EQ(rig->health().state, Health::State::kFull);
  rig.SetHook(nullptr);
  ASHLAR_OK(rig.Put("a", "1"));
  EXPECT_EQ(rig->health().state, Health::State::kWritable) << rig->health().cause;
}

// The mark of Close vouches for the last record, as an edit does where there is room.
TEST(DeviceFullClose, DamageOfTheLastRecordIsSeen) {
  Rig rig;
  ASHLAR_OK(rig.Open());
  uint64_t last = 0;  // byte of the last write to the log
  rig.SetHook([&](const io::Request& r, const std::byte*) -> io::IoStatus {
    if (r.op == io::Op::kWrite) last = io::Raw(r.lba) * 4096;
    return {};
  });
  for (int i = 0; i < 10; ++i) ASHLAR_OK(rig.Put(KeyOf(i), Bytes(i, 500)));
  rig.SetHook(NoRoomForTables);
  ASHLAR_OK(rig.Close());
  rig.SetHook(nullptr);
  rig.device()->LoseUnflushed([](size_t) { return false; });
  rig.device()->contents()[last + 80] ^= std::byte{1};
  EXPECT_TRUE(absl::IsDataLoss(rig.Open()));
}

// A table of which one write found no room, and of another nobody knows whether it will land: its
// extents must not be given out again.
TEST(DeviceFullWorse, AnUnknownOutcomeBesideItFailsTheStore) {
  for (const bool merge : {false, true}) {
    Rig rig;
    ASHLAR_OK(rig.Open());
    const auto fill = [&] {
      for (int i = 0; i < 400; ++i) {
        ASHLAR_OK(rig->Put(kBufferedWrite, KeyOf(i), Bytes(i, 2000)));
      }
    };
    fill();
    if (merge) {
      ASHLAR_OK(rig->Flush());
      fill();
      ASHLAR_OK(rig->Flush());
    }
    int writes = 0;
    rig.SetHook([&](const io::Request& r, const std::byte*) -> io::IoStatus {
      if (r.op != io::Op::kWrite || (r.flags & io::kBackground) == 0) return {};
      ++writes;
      return writes == 1   ? kNoRoom
             : writes == 2 ? io::IoStatus{io::IoClass::kUnknown, 0, 0, EINTR}
                           : io::IoStatus{};
    });
    const absl::Status s = merge ? rig->MergeAll() : rig->Flush();
    EXPECT_TRUE(absl::IsUnknown(s)) << s;
    EXPECT_GE(writes, 2);
    EXPECT_EQ(rig->health().state, Health::State::kFailed);
    rig.SetHook(nullptr);
    rig.Crash();
    ASHLAR_OK(rig.Open());
  }
}

// A flush that fails is no lack of space, whatever the device calls it: what it should have made
// durable may be gone.
TEST(DeviceFullFlush, IsAFailure) {
  RigOptions o;
  o.native_fua = false;
  Rig rig(o);
  ASHLAR_OK(rig.Open());
  ASHLAR_OK(rig.Put("a", "1"));
  rig.SetHook([](const io::Request& r, const std::byte*) -> io::IoStatus {
    return r.op == io::Op::kFlush ? kNoRoom : io::IoStatus{};
  });
  EXPECT_FALSE(rig.Put("b", "2").ok());
  rig.SetHook(nullptr);
  EXPECT_FALSE(rig.Put("c", "3").ok());
  EXPECT_EQ(rig->health().state, Health::State::kFailed);
  rig.Crash();
  ASHLAR_OK(rig.Open());
  EXPECT_EQ(rig.Get("a"), "1");
}

// ---- the device fails ----

struct Trial {
  InDoubt state;
  int ran = 0;          // steps
  absl::Status failed;  // the first error of a step
};

// A little of everything. Stops at the first error.
void SmallWork(Rig* rig, Trial* trial) {
  const auto note = [&](const std::string& key, const std::string& value, const absl::Status& s) {
    s.ok() ? trial->state.Acked(key, value) : trial->state.Refused(key, value);
    if (!s.ok()) trial->failed = s;
    ++trial->ran;
    return s.ok();
  };
  for (int i = 0; i < 6; ++i) {
    const std::string key = KeyOf(i), value = Bytes(i, 3000);
    if (!note(key, value, rig->Put(key, value))) return;
  }
  if (trial->failed = (*rig)->Flush(); !trial->failed.ok()) return;
  for (int i = 0; i < 6; ++i) {
    const std::string key = KeyOf(i * 2), value = Bytes(i + 100, 3000);
    if (!note(key, value, rig->Put(key, value))) return;
  }
  if (!note(KeyOf(3), "<none>", rig->Delete(KeyOf(3)))) return;
  if (trial->failed = (*rig)->MergeAll(); !trial->failed.ok()) return;
  for (int i = 0; i < 3; ++i) {
    const std::string key = KeyOf(i), value = Bytes(i + 200, 3000);
    if (!note(key, value, rig->Put(key, value))) return;
  }
}

class DeviceFails : public testing::TestWithParam<std::tuple<io::Op, bool, io::IoClass>> {};
INSTANTIATE_TEST_SUITE_P(
    Ops, DeviceFails,
    testing::Combine(testing::Values(io::Op::kWrite, io::Op::kFlush), testing::Bool(),
                     testing::Values(io::IoClass::kFatal, io::IoClass::kUnknown)));

// The n-th write or flush fails, for every n.
TEST_P(DeviceFails, EveryWriteAndFlushOnce) {
  const auto [op, fua, cls] = GetParam();
  bool reached_end = false;
  for (int n = 1; !reached_end && n < 300; ++n) {
    const std::string when = absl::StrCat("request ", n);
    RigOptions o;
    o.native_fua = fua;
    Rig rig(o);
    ASHLAR_OK(rig.Open());
    auto count = std::make_shared<std::atomic<int>>(0);
    rig.SetHook([=, op = op, cls = cls](const io::Request& r, const std::byte*) -> io::IoStatus {
      if (r.op == op && ++*count == n) return {cls, 0, 0, EIO};
      return {};
    });
    Trial trial;
    SmallWork(&rig, &trial);
    if (trial.failed.ok()) {
      // The failure would come in Close, if at all.
      EXPECT_EQ(rig->health().state, Health::State::kWritable) << when;
      trial.failed = rig->Close();
      if (trial.failed.ok()) reached_end = true;
      rig.holder().reset();
    } else {
      EXPECT_FALSE(absl::IsResourceExhausted(trial.failed)) << when << ": " << trial.failed;
      // The device works again, and still nothing is written: what is on it is not known.
      EXPECT_EQ(rig->health().state, Health::State::kFailed) << when;
      EXPECT_FALSE(rig->health().cause.ok());
      const absl::Status again = rig.Put("later", "1");
      EXPECT_FALSE(again.ok()) << when;
      EXPECT_TRUE(absl::StrContains(again.message(), rig->health().cause.message()))
          << when << again;
      EXPECT_FALSE(rig.Delete(KeyOf(0)).ok()) << when;
      EXPECT_FALSE(rig->Sync().ok()) << when;
      EXPECT_FALSE(rig->Flush().ok()) << when;
      trial.state.ExpectNow(rig, when + ", after the failure");
      const auto it = rig->NewIterator({});
      size_t records = 0;
      for (it->SeekToFirst(); it->Valid(); it->Next()) ++records;
      EXPECT_EQ(it->status(), absl::OkStatus()) << when;
    }
    std::mt19937_64 random(g_seed + n);
    rig.Crash([&](size_t) { return random() % 2 == 0; });
    rig.SetHook(nullptr);
    ASSERT_EQ(rig.Open(), absl::OkStatus()) << when << ", reopened";
    trial.state.ExpectReopened(rig, when + ", reopened");
    EXPECT_EQ(rig.Get("later"), "<none>") << when;
    ASSERT_EQ(rig.Put("later", "2"), absl::OkStatus()) << when;
    ASSERT_EQ(rig.Close(), absl::OkStatus()) << when;
    rig.Check(when);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(reached_end);
}

// The n-th read fails during the work: the call says so, or the store goes on; nothing is lost.
TEST(DeviceFailsReads, InTheMiddleOfTheWork) {
  for (const io::IoClass cls : {io::IoClass::kFatal, io::IoClass::kRetry}) {
    for (int n = 1; n < 40; ++n) {
      const std::string when = absl::StrCat("read ", n);
      Rig rig;
      ASHLAR_OK(rig.Open());
      auto count = std::make_shared<std::atomic<int>>(0);
      rig.SetHook([=](const io::Request& r, const std::byte*) -> io::IoStatus {
        if (r.op == io::Op::kRead && ++*count == n) return {cls, 0, 0, EIO};
        return {};
      });
      Trial trial;
      SmallWork(&rig, &trial);
      if (cls == io::IoClass::kRetry) {
        EXPECT_EQ(trial.failed, absl::OkStatus()) << when;
      }
      rig.SetHook(nullptr);
      trial.state.ExpectNow(rig, when);
      rig.Crash([](size_t) { return false; });
      ASSERT_EQ(rig.Open(), absl::OkStatus()) << when;
      trial.state.ExpectReopened(rig, when);
      ASSERT_EQ(rig.Close(), absl::OkStatus()) << when;
      rig.Check(when);
      if (HasFailure()) return;
    }
  }
}

// Reads, writes and flushes that fail while the store is opened, each once or from then on: open
// fails or is right, and the next open without failures finds everything.
TEST(DeviceFailsOpen, NeverLosesAnything) {
  for (const io::Op op : {io::Op::kRead, io::Op::kWrite, io::Op::kFlush}) {
    for (const io::IoClass cls : {io::IoClass::kFatal, io::IoClass::kRetry, io::IoClass::kFull}) {
      if (op == io::Op::kRead && cls == io::IoClass::kFull) continue;
      for (const bool from_then_on : {false, true}) {
        Rig rig;
        ASHLAR_OK(rig.Open());
        Trial trial;
        SmallWork(&rig, &trial);
        ASHLAR_OK(trial.failed);
        rig.Crash([](size_t) { return false; });
        bool reached_end = false;
        for (int n = 1; !reached_end && n < 200; ++n) {
          const std::string when =
              absl::StrCat("op ", static_cast<int>(op), " class ", static_cast<int>(cls),
                           from_then_on ? " from " : " once at ", n);
          auto count = std::make_shared<std::atomic<int>>(0);
          rig.SetHook([=](const io::Request& r, const std::byte*) -> io::IoStatus {
            if (r.op != op) return {};
            const int i = ++*count;
            return i == n || (from_then_on && i > n) ? io::IoStatus{cls, 0, 0, EIO}
                                                     : io::IoStatus{};
          });
          const absl::Status s = rig.Open();
          reached_end = s.ok() && *count < n;
          if (s.ok()) {
            rig.SetHook(nullptr);
            trial.state.ExpectNow(rig, when);
          } else {
            EXPECT_FALSE(absl::IsFailedPrecondition(s)) << when << ": " << s;
            EXPECT_FALSE(absl::IsNotFound(s)) << when << ": " << s;
          }
          std::mt19937_64 random(g_seed + n);
          rig.Crash([&](size_t) { return random() % 2 == 0; });
          rig.SetHook(nullptr);
          ASSERT_EQ(rig.Open(), absl::OkStatus()) << when;
          trial.state.ExpectNow(rig, when + ", opened again");
          ASHLAR_OK(rig.Put("x", absl::StrCat(n)));  // so that there is a log to replay
          rig.Crash([](size_t) { return true; });
          if (HasFailure()) return;
        }
        EXPECT_TRUE(reached_end);
      }
    }
  }
}

}  // namespace
}  // namespace ashlar
