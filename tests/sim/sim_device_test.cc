// The simulated drive and the monitor of its commands, which the other tests stand on: that each
// fault is one, and each broken order is seen.
#include "tests/support/sim_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "gtest/gtest.h"
#include "tests/io/scratch.h"
#include "tests/support/content.h"
#include "tests/support/crash_rig.h"
#include "tests/support/ordering_monitor.h"

namespace ashlar {
namespace {

constexpr uint32_t kLba = 4096;
constexpr uint64_t kBytes = 64u << 20;

// One queue and a buffer, and the requests that a test makes by hand.
class Drive {
 public:
  explicit Drive(SimDeviceOptions options = {}, uint64_t seed = 1)
      : device(options, seed), arena(io::Arena::Create(4u << 20).value()) {
    Connect();
  }
  void Connect() {
    io::Device* const devices[] = {&device};
    queue = device.OpenQueue(devices, {.depth = 64}, *arena).value();
  }
  void Disconnect() { queue.reset(); }

  io::Request* Make(io::Op op, uint64_t block, uint32_t blocks, char fill, uint8_t flags = 0) {
    slots.push_back(std::make_unique<Slot>());
    Slot& s = *slots.back();
    s.request.op = op;
    s.request.flags = flags;
    const uint32_t lba = device.options().lba_bytes;
    if (op == io::Op::kRead || op == io::Op::kWrite) {
      std::byte* const at = arena->data() + next_;
      next_ += blocks * lba;
      std::memset(at, fill, blocks * lba);
      s.piece = arena->PieceOf(at, blocks * lba);
      s.request.lba = io::Lba{block};
      s.request.blocks = blocks;
      s.request.data = {&s.piece, 1};
    } else if (op == io::Op::kDeallocate) {
      s.range = {io::Lba{block}, blocks};
      s.request.ranges = {&s.range, 1};
    }
    return &s.request;
  }
  void Submit(io::Request* r) {
    io::Request* const one[] = {r};
    queue->Submit(one);
  }
  void Wait() {
    std::array<io::Request*, 8> done;
    while (queue->in_flight() > 0) queue->Poll(done, true);
  }
  io::IoStatus Do(io::Op op, uint64_t block, uint32_t blocks, char fill, uint8_t flags = 0) {
    io::Request* const r = Make(op, block, blocks, fill, flags);
    Submit(r);
    Wait();
    return r->status;
  }
  void Write(uint64_t block, uint32_t blocks, char fill, uint8_t flags = 0) {
    ASSERT_TRUE(Do(io::Op::kWrite, block, blocks, fill, flags).ok());
  }
  // The first byte of each block, as a read returns it; "!" for a failed read.
  std::string Read(uint64_t block, uint32_t blocks) {
    io::Request* const r = Make(io::Op::kRead, block, blocks, 'x');
    Submit(r);
    Wait();
    if (!r->status.ok()) return "!";
    std::string text;
    for (uint32_t i = 0; i < blocks; ++i) {
      const char c = static_cast<char>(arena->At(r->data[0])[i * device.options().lba_bytes]);
      text.push_back(c == 0 ? '.' : c);
    }
    return text;
  }
  void PowerCut(SimDevice::Luck luck) {
    Disconnect();
    device.PowerCut(luck);
    device.Revive();
    Connect();
  }

  struct Slot {
    io::Request request;
    io::Piece piece;
    io::LbaRange range;
  };
  SimDevice device;
  std::unique_ptr<io::Arena> arena;
  std::unique_ptr<io::Queue> queue;
  std::vector<std::unique_ptr<Slot>> slots;
  size_t next_ = 0;
};

TEST(SimDevice, WritesAreSeenAtOnceAndDurableLater) {
  Drive d;
  d.Write(10, 1, 'a');
  d.Write(11, 1, 'b', io::kFua);
  EXPECT_EQ(d.Read(10, 2), "ab");
  d.PowerCut(SimDevice::Luck::kLoseAll);
  EXPECT_EQ(d.Read(10, 2), ".b");
  d.Write(10, 1, 'c');
  ASSERT_TRUE(d.Do(io::Op::kFlush, 0, 0, 0).ok());
  d.Write(11, 1, 'd');
  d.PowerCut(SimDevice::Luck::kLoseAll);
  EXPECT_EQ(d.Read(10, 2), "cb");
  d.Write(11, 1, 'e');
  d.PowerCut(SimDevice::Luck::kKeepAll);
  EXPECT_EQ(d.Read(10, 2), "ce");
}

TEST(SimDevice, AFlushCoversWhatWasGivenBackBeforeIt) {
  bool once = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Drive d({}, seed);
    d.Submit(d.Make(io::Op::kWrite, 1, 1, 'a'));
    d.Submit(d.Make(io::Op::kFlush, 0, 0, 0));
    d.Wait();
    once |= d.Read(1, 1) == "a";
    d.PowerCut(SimDevice::Luck::kLoseAll);
    EXPECT_EQ(d.Read(1, 1), ".");
  }
  EXPECT_TRUE(once);
}

TEST(SimDevice, FuaOnADriveWithoutItIsAFlush) {
  Drive d({.native_fua = false});
  d.Write(1, 1, 'a');
  const uint64_t before = d.device.commands();
  d.Write(2, 1, 'b', io::kFua);
  EXPECT_EQ(d.device.commands() - before, 2u);
  d.PowerCut(SimDevice::Luck::kLoseAll);
  EXPECT_EQ(d.Read(1, 2), "ab");
}

TEST(SimDevice, WithoutACacheAWriteIsDurable) {
  Drive d({.volatile_cache = false});
  d.Write(1, 1, 'a');
  d.PowerCut(SimDevice::Luck::kLoseAll);
  EXPECT_EQ(d.Read(1, 1), "a");
}

TEST(SimDevice, CommandsInFlightOvertakeEachOther) {
  bool overtaken = false;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Drive d({}, seed);
    io::Request* const first = d.Make(io::Op::kWrite, 1, 1, 'a');
    io::Request* const second = d.Make(io::Op::kWrite, 2, 1, 'b');
    d.Submit(first);
    d.Submit(second);
    std::array<io::Request*, 1> done;
    ASSERT_EQ(d.queue->Poll(done, true), 1u);
    overtaken |= done[0] == second;
    d.Wait();
  }
  EXPECT_TRUE(overtaken);
}

TEST(SimDevice, ReadsShowNothingBeforeTheyComplete) {
  Drive d;
  d.Write(1, 1, 'a');
  io::Request* const r = d.Make(io::Op::kRead, 1, 1, 'a');
  d.Submit(r);
  EXPECT_NE(static_cast<char>(*d.arena->At(r->data[0])), 'a');
  d.Wait();
  EXPECT_EQ(static_cast<char>(*d.arena->At(r->data[0])), 'a');
}

TEST(SimDevice, LargeRequestsAreSplit) {
  Drive d({.lba_bytes = 512, .max_transfer_bytes = 4096});
  const uint64_t before = d.device.commands();
  d.Write(3, 20, 'a');
  EXPECT_EQ(d.device.commands() - before, 3u);
  EXPECT_EQ(d.Read(2, 22), "." + std::string(20, 'a') + ".");
}

TEST(SimDevice, PowerCutsTearAboveTheAtomicSize) {
  size_t torn = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Drive d({.lba_bytes = 512, .atomic_blocks = 4}, seed);
    d.Write(0, 4, 'a');
    d.Write(8, 8, 'b');
    d.PowerCut(SimDevice::Luck::kTear);
    const std::string whole = d.Read(0, 4), part = d.Read(8, 8);
    EXPECT_TRUE(whole == "aaaa" || whole == "....") << whole;
    torn += part != "bbbbbbbb" && part != "........";
    for (const char c : part) EXPECT_TRUE(c == 'b' || c == '.') << part;  // it had completed
  }
  EXPECT_GT(torn, 30u);
}

TEST(SimDevice, WhatADeadProcessLeftLandsLater) {
  Drive d;
  d.Submit(d.Make(io::Op::kWrite, 1, 1, 'a'));
  d.Submit(d.Make(io::Op::kDeallocate, 5, 1, 0));
  io::Request* const late = d.Make(io::Op::kWrite, 2, 1, 'b');
  d.device.DieAt(1);
  d.Submit(late);
  d.Wait();
  EXPECT_EQ(late->status.cls, io::IoClass::kUnknown);
  d.Disconnect();
  EXPECT_EQ(d.device.leftovers(), 2u);
  EXPECT_EQ(static_cast<char>(d.device.contents()[kLba]), 0);
  d.device.Revive();
  d.device.LandLeftovers();
  d.Connect();
  EXPECT_EQ(d.Read(1, 2), "a.");
  d.PowerCut(SimDevice::Luck::kLoseAll);
  EXPECT_EQ(d.Read(1, 2), "..");
}

TEST(SimDevice, DeallocatedBlocksReadAsTheDriveSays) {
  using ReadBack = SimDeviceOptions::ReadBack;
  for (const ReadBack read_back :
       {ReadBack::kOld, ReadBack::kZeros, ReadBack::kOnes, ReadBack::kRandom, ReadBack::kError}) {
    Drive d({.read_back = read_back});
    d.Write(1, 3, 'a', io::kFua);
    ASSERT_TRUE(d.Do(io::Op::kDeallocate, 2, 1, 0).ok());
    const std::string want[] = {"aaa", "a.a",
                                "a\xff"
                                "a",
                                "", "!"};
    if (read_back != ReadBack::kRandom) {
      EXPECT_EQ(d.Read(1, 3), want[static_cast<int>(read_back)]);
    }
    // Not persisted yet; and what is written again can be read.
    d.PowerCut(SimDevice::Luck::kLoseAll);
    EXPECT_EQ(d.Read(1, 3), "aaa");
    ASSERT_TRUE(d.Do(io::Op::kDeallocate, 2, 1, 0).ok());
    ASSERT_TRUE(d.Do(io::Op::kFlush, 0, 0, 0).ok());
    d.PowerCut(SimDevice::Luck::kLoseAll);
    if (read_back != ReadBack::kRandom) {
      EXPECT_EQ(d.Read(1, 3), want[static_cast<int>(read_back)]);
    }
    d.Write(2, 1, 'b');
    EXPECT_EQ(d.Read(1, 3), "aba");
  }
}

TEST(SimDevice, EachFaultIsOne) {
  Drive d;
  SimFault fault;
  d.device.set_faults([&](const SimCommand&) { return fault; });
  d.Write(1, 1, 'a');
  fault = {.status = {.cls = io::IoClass::kFatal, .err = EIO}, .effect = SimFault::Effect::kNone};
  EXPECT_EQ(d.Do(io::Op::kWrite, 1, 1, 'b').cls, io::IoClass::kFatal);
  EXPECT_EQ(d.Read(1, 1), "!");
  fault = {.status = {.cls = io::IoClass::kUnknown, .err = EINTR}};
  EXPECT_EQ(d.Do(io::Op::kWrite, 2, 1, 'c').cls, io::IoClass::kUnknown);
  fault = {};
  EXPECT_EQ(d.Read(1, 2), "ac");
  fault = {.effect = SimFault::Effect::kNone};  // lost, and nobody is told
  d.Write(1, 1, 'd');
  fault = {.elsewhere = 7 * kLba};
  d.Write(2, 1, 'e');
  fault = {};
  EXPECT_EQ(d.Read(1, 7), "ac....e");
  fault = {.elsewhere = 7 * kLba};
  EXPECT_EQ(d.Read(1, 1), "e");
  fault = {.flip_a_bit = true};
  io::Request* const r = d.Make(io::Op::kRead, 1, 1, 0);
  d.Submit(r);
  d.Wait();
  int wrong = 0;
  for (uint32_t i = 0; i < kLba; ++i) {
    wrong += __builtin_popcount(static_cast<unsigned>(d.arena->At(r->data[0])[i] ^ std::byte{'a'}));
  }
  EXPECT_EQ(wrong, 1);
}

TEST(SimDevice, AFlushThatFailsCoversNothing) {
  Drive d;
  d.Write(1, 1, 'a');
  d.device.set_faults([](const SimCommand& c) -> SimFault {
    if (c.op != io::Op::kFlush) return {};
    return {.status = {.cls = io::IoClass::kFatal, .err = EIO}, .effect = SimFault::Effect::kNone};
  });
  EXPECT_FALSE(d.Do(io::Op::kFlush, 0, 0, 0).ok());
  d.PowerCut(SimDevice::Luck::kLoseAll);
  EXPECT_EQ(d.Read(1, 1), ".");
}

TEST(SimDeviceDeathTest, ABufferThatChangesInFlightIsFound) {
  EXPECT_DEATH(
      {
        Drive d;
        io::Request* const r = d.Make(io::Op::kWrite, 1, 1, 'a');
        d.Submit(r);
        *d.arena->At(r->data[0]) = std::byte{'b'};
        d.Wait();
      },
      "");
}

// ---- the monitor ----

// A store with a table and something in its log, watched; then commands are shown to the monitor
// that no store would send.
class Monitor : public testing::Test {
 protected:
  Monitor() : device_({}, 1) {
    EXPECT_TRUE(FormatDevice(&device_, 64u << 10, FixedStoreId()).ok());
    monitor_ = std::make_unique<OrderingMonitor>(device_.geometry(), device_.contents());
    device_.set_observer(monitor_.get());
    db_ = DBImpl::Open(SmallOptions(), &device_, nullptr, FixedEnv()).value();
    EXPECT_TRUE(db_->Put({}, "a", std::string(100'000, 'a')).ok());
    EXPECT_TRUE(db_->Flush().ok());
    EXPECT_TRUE(db_->Put({}, "b", "1").ok());
    monitor_->Acknowledged("b", "1");
    EXPECT_EQ(monitor_->violation(), "");
    EXPECT_GT(monitor_->edits(), 0u);
    const auto info = InspectDevice(&device_);
    EXPECT_TRUE(info.ok());
    table_ = info->tables.at(0).extents.at(0) * (64ull << 10);
  }
  ~Monitor() override {
    device_.set_observer(nullptr);
    db_.reset();
  }

  void Show(io::Op op, uint64_t at, uint64_t bytes, bool complete = true) {
    if (op == io::Op::kWrite) {
      return ShowWrite(at, std::vector<std::byte>(bytes, std::byte{'?'}), complete);
    }
    ShowCommand(op, {at, bytes}, {}, complete);
  }
  void ShowWrite(uint64_t at, const std::vector<std::byte>& data, bool complete) {
    ShowCommand(io::Op::kWrite, {at, data.size()}, data, complete);
  }
  void ShowCommand(io::Op op, const ByteRange& range, std::span<const std::byte> data,
                   bool complete) {
    const uint64_t id = 1'000'000 + shown_++;
    monitor_->Submitted({.id = id, .op = op, .ranges = {&range, 1}, .data = data});
    if (complete) monitor_->Completed(id, true);
  }
  // Where the segment that is being written begins, and the manifest.
  uint64_t Log() {
    const StoreInfo info = InspectDevice(&device_).value();
    for (const auto& segment : info.log_segments) {
      const uint64_t at = segment.at(0) * (64ull << 10);
      if (device_.contents()[at] != std::byte{0}) return at;
    }
    return 0;
  }
  uint64_t Manifest() {
    Superblock sb;
    std::string detail;
    EXPECT_EQ(
        ParseSuperblock(device_.contents().data() + SuperblockPlace(0, kBytes), 0, &sb, &detail),
        SuperblockParse::kOk);
    return Raw(sb.manifest_extents[0].at(0)) * (64ull << 10);
  }
  void ExpectBroken(const std::string& what) {
    EXPECT_TRUE(absl::StrContains(monitor_->violation(), what)) << monitor_->violation();
  }
  // An extent that nothing has used.
  static constexpr uint64_t kFree = kBytes / 2 + (3u << 20);

  SimDevice device_;
  std::unique_ptr<OrderingMonitor> monitor_;
  std::unique_ptr<DBImpl> db_;
  uint64_t table_ = 0;
  uint64_t shown_ = 0;
};

TEST_F(Monitor, SeesWritesIntoTables) {
  Show(io::Op::kWrite, table_, kLba);
  ExpectBroken("which a table holds");
}
TEST_F(Monitor, SeesDiscardsOfTables) {
  Show(io::Op::kDeallocate, table_, 64u << 10);
  ExpectBroken("which is in use");
}
TEST_F(Monitor, AllowsWhatIsFree) {
  Show(io::Op::kDeallocate, kFree, 64u << 10);
  Show(io::Op::kWrite, kFree + (64u << 10), kLba);
  EXPECT_EQ(monitor_->violation(), "");
}
TEST_F(Monitor, SeesWritesUnderWritesInFlight) {
  Show(io::Op::kWrite, kFree, 4 * kLba, false);
  Show(io::Op::kWrite, kFree + kLba, kLba);
  ExpectBroken("is in flight there");
}
TEST_F(Monitor, SeesWritesUnderDiscardsInFlight) {
  Show(io::Op::kDeallocate, kFree, 64u << 10, false);
  Show(io::Op::kWrite, kFree, kLba);
  ExpectBroken("is in flight there");
}
TEST_F(Monitor, SeesWritesBesideASuperblock) {
  Show(io::Op::kWrite, SuperblockPlace(0, kBytes), kLba);
  ExpectBroken("not a superblock");
}
TEST_F(Monitor, SeesTheSecondHalfOfASuperblockBeforeTheFirst) {
  const std::byte* const copy0 = device_.contents().data() + SuperblockPlace(0, kBytes);
  Superblock sb;
  std::string detail;
  ASSERT_EQ(ParseSuperblock(copy0, 0, &sb, &detail), SuperblockParse::kOk) << detail;
  const Superblock next = SuccessorOf(sb, sb.generation + 1);
  std::vector<std::byte> block(kLba);
  for (const int copy : {0, 1, 2}) {
    EncodeSuperblock(next, copy, block.data());
    ShowWrite(SuperblockPlace(copy, kBytes), block, copy != 1);
    // Copy 0 has completed and no flush has covered it; copy 1 is in flight.
    if (copy < 2) EXPECT_EQ(monitor_->violation(), "");
  }
  ExpectBroken("is written before copy 0 is durable");
}
TEST_F(Monitor, SeesALogWrittenAgain) {
  Show(io::Op::kWrite, Log(), kLba);
  ExpectBroken("log segment again");
}
TEST_F(Monitor, SeesAHoleInALog) {
  Show(io::Op::kWrite, Log() + (60u << 10), kLba);
  ExpectBroken("leaves a hole");
}
TEST_F(Monitor, SeesAManifestWrittenAgain) {
  Show(io::Op::kWrite, Manifest(), kLba);
  ExpectBroken("of the manifest at byte 0");
}
TEST_F(Monitor, SeesAcknowledgementsOfNothing) {
  monitor_->Acknowledged("b", "2");
  ExpectBroken("is in no log");
}
TEST_F(Monitor, SeesAcknowledgementsTooEarly) {
  WriteOptions buffered;
  buffered.durability = Durability::kBuffered;
  // More than the log keeps back: it is on its way to the drive, without a flush.
  const std::string value(60'000, 'c');
  ASSERT_TRUE(db_->Put(buffered, "c", value).ok());
  ASSERT_TRUE(db_->Put(buffered, "d", value).ok());
  monitor_->Acknowledged("c", value);
  ExpectBroken("acknowledged as durable");
}

// The tool that people have reads the same bytes.
TEST(SimDevice, AnExportedImageIsAStore) {
  SimDevice device({}, 1);
  ASSERT_TRUE(FormatDevice(&device, 64u << 10, FixedStoreId()).ok());
  {
    auto db = DBImpl::Open(SmallOptions(), &device, nullptr, FixedEnv());
    ASSERT_TRUE(db.ok());
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE((*db)->Put({}, absl::StrCat("key", i), std::string(2'000, 'v')).ok());
    }
    ASSERT_TRUE((*db)->Close().ok());
  }
  const io::ScratchFile file("sim");
  const std::string& path = file.path();
  ASSERT_TRUE(ExportImage(device.contents(), path).ok());
  const auto report = CheckStore(path, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->damage_total, 0u);
  auto db = DB::Open(SmallOptions(), path);
  ASSERT_TRUE(db.ok()) << db.status();
  Value value;
  EXPECT_TRUE((*db)->Get({}, "key42", &value).ok());
  EXPECT_TRUE((*db)->Close().ok());
}

}  // namespace
}  // namespace ashlar
