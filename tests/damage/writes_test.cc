// Writes that a device acknowledged and did not carry out, or carried out somewhere else. Each
// write of several lives: the life is played back without it, up to some moment, and what then
// stands on the device is opened. And while a store is running: what it notices by itself.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/format/superblock.h"
#include "gtest/gtest.h"
#include "tests/damage/cases.h"
#include "tests/damage/lives.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

// What a life would have left behind had one of its writes gone wrong.
class Replayed {
 public:
  Replayed(const Life& life, const Life::Moment& moment) : life_(life), moment_(moment) {
    for (const auto& [at, writes] : life.lbas()) {
      for (const auto& [command, bytes] : writes) {
        if (command < moment.commands) last_[at] = command;
      }
    }
  }

  using Blocks = std::map<uint64_t, std::vector<std::byte>>;

  // The LBAs [begin, end) of a command, counted over it, were not written.
  Blocks Lost(size_t command, uint64_t begin, uint64_t end) const {
    Blocks blocks;
    ForEach(command, [&](uint64_t i, uint64_t at, const std::byte*) {
      if (i < begin || i >= end || last_.at(at) != command) return;
      const auto before = life_.LbaAt(at, command);
      blocks[at] = {before.begin(), before.end()};
    });
    return blocks;
  }

  // All of the command landed `shift` bytes further.
  Blocks Misdirected(size_t command, int64_t shift) const {
    Blocks blocks = Lost(command, 0, UINT64_MAX);
    ForEach(command, [&](uint64_t, uint64_t at, const std::byte* bytes) {
      const uint64_t to = at + static_cast<uint64_t>(shift);
      if (to >= kStoreBytes) return;
      const auto last = last_.find(to);
      if (last != last_.end() && last->second > command) return;  // written since
      blocks[to] = {bytes, bytes + life_.lba_bytes};
    });
    return blocks;
  }

  uint64_t BlocksOf(size_t command) const {
    uint64_t n = 0;
    ForEach(command, [&](uint64_t, uint64_t, const std::byte*) { ++n; });
    return n;
  }

 private:
  template <typename Do>
  void ForEach(size_t command, const Do& act) const {
    uint64_t i = 0;
    for (const auto& s : life_.recording.commands[command].stretches) {
      for (uint64_t at = 0; at < s.bytes.size(); at += life_.lba_bytes) {
        act(i++, s.at + at, s.bytes.data() + at);
      }
    }
  }

  const Life& life_;
  const Life::Moment moment_;
  std::unordered_map<uint64_t, size_t> last_;  // who wrote an LBA last
};

// Some moments of a life, the last among them.
std::vector<Life::Moment> Some(const Life& life, size_t n) {
  std::vector<Life::Moment> some;
  const auto& all = life.moments();
  n = std::min(n, all.size());
  for (size_t i = 1; i <= n; ++i) some.push_back(all[all.size() * i / n - 1]);
  return some;
}

class Judge {
 public:
  Judge(Cases* cases, Subject* subject) : cases_(*cases), subject_(*subject), checker_(subject) {}

  // Of those that touch nothing live, 1 in 16 are run.
  void Run(const std::string& what, const Replayed::Blocks& blocks) {
    Case c{what, {}};
    bool live = false;
    for (const auto& [at, bytes] : blocks) {
      if (std::memcmp(subject_.device->contents().data() + at, bytes.data(), bytes.size()) == 0) {
        continue;
      }
      const auto [first, last] = subject_.Touched(at, at + bytes.size());
      live |= first != last;
      c.writes.emplace_back(at, bytes);
    }
    if (c.writes.empty()) {
      ++superseded;
      cases_.Skip();
      return;
    }
    if (!live && !cases_.One(16, 4)) {
      ++free;
      cases_.Skip();
      return;
    }
    cases_.Run(&checker_, c);
  }

  uint64_t superseded = 0;  // written again since
  uint64_t free = 0;        // nothing refers to what differs

 private:
  Cases& cases_;
  Subject& subject_;
  Checker checker_;
};

void LoseEachWrite(const Life& life, size_t moments) {
  Cases cases("damage_whole_store_lost_writes", 150);
  uint64_t superseded = 0;
  for (const Life::Moment& moment : Some(life, moments)) {
    Subject subject(life, moment);
    const Replayed replayed(life, moment);
    Judge judge(&cases, &subject);
    for (size_t command = 0; command < moment.commands; ++command) {
      const uint64_t n = replayed.BlocksOf(command);
      if (n == 0) continue;
      // Whole; one half; the other; one LBA.
      for (int how = 0; how < (n == 1 ? 1 : n == 2 ? 3 : 4); ++how) {
        if (!cases.Next()) continue;
        const uint64_t one = cases.Salt(3) % n;
        const uint64_t begin = how == 2 ? n / 2 : how == 3 ? one : 0;
        const uint64_t end = how == 1 ? n / 2 : how == 3 ? one + 1 : n;
        judge.Run(absl::StrCat("at command ", moment.commands, ": LBAs ", begin, " to ", end,
                               " of command ", command, " lost"),
                  replayed.Lost(command, begin, end));
      }
    }
    superseded += judge.superseded + judge.free;
  }
  Count("damage_lost_writes_of_nothing_live", superseded);
}

// Two writes that follow each other: both copies of one edit, a half of the superblocks, a record
// of the log and the one that vouches for it.
void LoseEachPair(const Life& life, size_t moments) {
  Cases cases("damage_whole_store_lost_pairs_of_writes", 400);
  uint64_t superseded = 0;
  for (const Life::Moment& moment : Some(life, moments)) {
    Subject subject(life, moment);
    const Replayed replayed(life, moment);
    Judge judge(&cases, &subject);
    size_t last = SIZE_MAX;
    for (size_t command = 0; command < moment.commands; ++command) {
      if (replayed.BlocksOf(command) == 0) continue;
      const size_t before = std::exchange(last, command);
      if (before == SIZE_MAX || !cases.Next()) continue;
      // Where both wrote, what was there before the first.
      Replayed::Blocks blocks = replayed.Lost(before, 0, UINT64_MAX);
      for (auto& [at, bytes] : replayed.Lost(command, 0, UINT64_MAX)) {
        const auto content = life.LbaAt(at, before);
        blocks[at] = {content.begin(), content.end()};
      }
      judge.Run(absl::StrCat("at command ", moment.commands, ": commands ", before, " and ",
                             command, " lost"),
                blocks);
    }
    superseded += judge.superseded + judge.free;
  }
  Count("damage_lost_pairs_of_writes_of_nothing_live", superseded);
}

void MisdirectEachWrite(const Life& life, size_t moments) {
  Cases cases("damage_whole_store_misdirected_writes", 1400);
  uint64_t superseded = 0;
  const auto lba = static_cast<int64_t>(life.lba_bytes);
  for (const Life::Moment& moment : Some(life, moments)) {
    Subject subject(life, moment);
    const Replayed replayed(life, moment);
    Judge judge(&cases, &subject);
    std::vector<uint64_t> superblocks;
    for (int copy = 0; copy < kSuperblockCopies; ++copy) {
      superblocks.push_back(SuperblockPlace(copy, kStoreBytes));
    }
    for (size_t command = 0; command < moment.commands; ++command) {
      const auto& stretches = life.recording.commands[command].stretches;
      if (stretches.empty()) continue;
      const auto from = static_cast<int64_t>(stretches[0].at);
      const auto bytes = static_cast<int64_t>(stretches[0].bytes.size());
      for (int how = 0; how < 9; ++how) {
        if (!cases.Next()) continue;
        const auto pick = [&](const std::vector<uint64_t>& of) {
          return static_cast<int64_t>(of[cases.Salt(5) % of.size()]);
        };
        int64_t to = 0;
        if (how == 0) to = from + lba;
        if (how == 1) to = from - lba;
        if (how == 2) to = from + bytes;
        if (how == 3) to = from ^ (32 << 20);  // a bit of the address
        if (how == 4) to = pick(superblocks);
        if (how == 5) to = pick(subject.hot);
        if (how >= 6) to = pick(subject.lbas);
        if (to < 0 || to == from) continue;
        judge.Run(absl::StrCat("at command ", moment.commands, ": command ", command, " of byte ",
                               from, " landed at ", to),
                  replayed.Misdirected(command, to - from));
      }
    }
    superseded += judge.superseded + judge.free;
  }
  Count("damage_misdirected_writes_of_nothing_live", superseded);
}

class DamagingWrites : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Lba, DamagingWrites, testing::Values(512u, 4096u));

TEST_P(DamagingWrites, LostInALongLife) { LoseEachWrite(LongLife(GetParam()), 40); }
TEST_P(DamagingWrites, LostAmongMerges) { LoseEachWrite(MergingLife(GetParam()), 40); }
TEST_P(DamagingWrites, LostAmongBatches) { LoseEachWrite(BatchLife(GetParam()), 40); }
TEST_P(DamagingWrites, LostInAFormatAndBehindIt) { LoseEachWrite(LaterLife(GetParam(), true), 16); }
TEST_P(DamagingWrites, LostInAFormatOfAnUnclosedStore) {
  LoseEachWrite(LaterLife(GetParam(), false), 16);
}
TEST_P(DamagingWrites, LostInPairs) { LoseEachPair(LongLife(GetParam()), 40); }
TEST_P(DamagingWrites, LostInPairsAmongMerges) { LoseEachPair(MergingLife(GetParam()), 40); }
TEST_P(DamagingWrites, MisdirectedInALongLife) { MisdirectEachWrite(LongLife(GetParam()), 16); }
TEST_P(DamagingWrites, MisdirectedAmongMerges) { MisdirectEachWrite(MergingLife(GetParam()), 16); }
TEST_P(DamagingWrites, MisdirectedAmongBatches) { MisdirectEachWrite(BatchLife(GetParam()), 16); }
TEST_P(DamagingWrites, MisdirectedInAFormatAndBehindIt) {
  MisdirectEachWrite(LaterLife(GetParam(), true), 16);
}

// ---- while the store is running ----

// Carries out all writes but one, which it acknowledges too.
class LyingDevice : public io::Device {
 public:
  explicit LyingDevice(ImageDevice* below) : below_(below) {}

  void Lie(uint64_t write, int64_t shift) {
    write_ = write;
    shift_ = shift;
  }
  uint64_t writes() const { return writes_; }
  // Where the write that went wrong should have gone.
  uint64_t at() const { return at_; }

  const io::Geometry& geometry() const override { return below_->geometry(); }
  std::string Describe() const override { return "lying"; }
  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(std::span<io::Device* const>,
                                                       const io::QueueOptions& options,
                                                       const io::Arena& arena) override {
    io::Device* const below[] = {below_};
    auto queue = below_->OpenQueue(below, options, arena);
    if (!queue.ok()) return queue.status();
    return std::make_unique<LyingQueue>(*std::move(queue), this);
  }

 private:
  class LyingQueue : public io::Queue {
   public:
    LyingQueue(std::unique_ptr<io::Queue> below, LyingDevice* device)
        : below_(std::move(below)), device_(*device) {}
    void Submit(std::span<io::Request* const> requests) override {
      for (io::Request* request : requests) {
        const bool lies = request->op == io::Op::kWrite && device_.writes_++ == device_.write_;
        if (!lies) {
          below_->Submit(std::span(&request, 1));
          continue;
        }
        // The device below carries a write out when it is submitted.
        const uint64_t lba_bytes = device_.geometry().lba_bytes;
        const uint64_t at = io::Raw(request->lba) * lba_bytes;
        const uint64_t bytes = request->blocks * lba_bytes;
        device_.at_ = at;
        const auto contents = device_.below_->contents();
        const std::vector<std::byte> old(contents.begin() + static_cast<ptrdiff_t>(at),
                                         contents.begin() + static_cast<ptrdiff_t>(at + bytes));
        below_->Submit(std::span(&request, 1));
        const std::vector<std::byte> data(contents.begin() + static_cast<ptrdiff_t>(at),
                                          contents.begin() + static_cast<ptrdiff_t>(at + bytes));
        device_.below_->Write(at, old);
        const uint64_t to = at + static_cast<uint64_t>(device_.shift_);
        if (device_.shift_ != 0 && to < kStoreBytes && to + bytes <= kStoreBytes) {
          device_.below_->Write(to, data);
        }
      }
    }
    size_t Poll(std::span<io::Request*> done, bool wait) override {
      return below_->Poll(done, wait);
    }
    size_t in_flight() const override { return below_->in_flight(); }
    size_t depth() const override { return below_->depth(); }

   private:
    const std::unique_ptr<io::Queue> below_;
    LyingDevice& device_;
  };

  ImageDevice* const below_;
  uint64_t write_ = UINT64_MAX, writes_ = 0, at_ = UINT64_MAX;
  int64_t shift_ = 0;
};

// A session on a store, whose calls may fail: what it holds afterwards.
class Session {
 public:
  Session(io::Device* device, std::map<std::string, std::string> state)
      : device_(device), state_(std::move(state)) {}

  void Run() {
    for (int round = 0; round < 2; ++round) {
      auto db = DBImpl::Open(SmallOptions(), device_, nullptr, FixedEnv());
      if (!Fine(db.status())) continue;
      for (uint64_t i = 0; i < 14; ++i, ++n_) Put(db->get());
      Fine((*db)->Flush());
      for (uint64_t i = 0; i < 8; ++i, ++n_) Put(db->get());
      Fine((*db)->MergeAll());
      for (uint64_t i = 0; i < 5; ++i, ++n_) Put(db->get());
      Fine((*db)->Close());
    }
  }

  // What is wrong with what is left.
  std::string Left(bool* damage) {
    Options options = SmallOptions();
    options.read_only = true;
    auto db = DBImpl::Open(options, device_, nullptr, FixedEnv());
    if (!db.ok()) return absl::StrCat("does not open: ", db.status().ToString());
    Value value;
    for (const auto& [key, right] : state_) {
      const absl::Status s = (*db)->Get(ReadOptions(), key, &value);
      if (absl::IsDataLoss(s)) {
        *damage = true;
      } else if (!s.ok() || !(value.view() == right || MayBe(key, value.view()))) {
        return absl::StrCat(
            "Get of ", key, ": ",
            s.ok() ? absl::StrCat("a value of ", value.size(), " bytes") : s.ToString());
      }
    }
    const auto it = (*db)->NewIterator(ReadOptions());
    auto want = state_.begin();
    for (it->SeekToFirst(); it->Valid(); it->Next(), ++want) {
      if (want == state_.end() || it->key() != want->first ||
          !(it->value() == want->second || MayBe(want->first, it->value()))) {
        return absl::StrCat("an iterator shows ", std::string(it->key()));
      }
    }
    if (absl::IsDataLoss(it->status())) {
      *damage = true;
      return "";
    }
    if (!it->status().ok()) return it->status().ToString();
    return want == state_.end() ? "" : absl::StrCat("an iterator ends before ", want->first);
  }

  const std::vector<absl::Status>& errors() const { return errors_; }

 private:
  bool Fine(const absl::Status& s) {
    if (!s.ok()) errors_.push_back(s);
    return s.ok();
  }
  bool MayBe(const std::string& key, std::string_view value) const {
    const auto it = in_doubt_.find(key);
    return it != in_doubt_.end() && it->second == value;
  }
  // Only keys that are there, so that a state is told by its values.
  void Put(DB* db) {
    auto it = state_.begin();
    std::advance(it, static_cast<ptrdiff_t>(n_ * 7 % state_.size()));
    const std::string value = Bytes(20 + n_ * 11 % 200, 7000 + n_);
    WriteOptions options;
    if (n_ % 3 == 1) options.durability = Durability::kBuffered;
    if (Fine(db->Put(options, it->first, value))) {
      it->second = value;
      in_doubt_.erase(it->first);
    } else {
      in_doubt_[it->first] = value;
    }
  }

  io::Device* const device_;
  std::map<std::string, std::string> state_;
  std::map<std::string, std::string> in_doubt_;
  std::vector<absl::Status> errors_;
  uint64_t n_ = 0;
};

TEST_P(DamagingWrites, WhileTheStoreIsRunning) {
  Subject subject(ClosedLife(GetParam()));
  std::map<std::string, std::string> state;
  for (const auto& [key, value] : subject.State(subject.commits)) state[key] = value;
  uint64_t writes;
  {
    LyingDevice device(subject.device.get());
    Session session(&device, state);
    session.Run();
    ASSERT_TRUE(session.errors().empty()) << session.errors()[0];
    bool damage = false;
    ASSERT_EQ(session.Left(&damage), "");
    writes = device.writes();
    subject.device->Undo();
  }
  ASSERT_GE(writes, 80u);
  Cases cases("damage_whole_store_lies_to_a_running_store", 10 * writes);
  uint64_t noticed = 0, superblocks = 0;
  for (uint64_t write = 0; write < writes; ++write) {
    for (int how = 0; how < 10; ++how) {
      if (!cases.Next()) continue;
      const auto lba = static_cast<int64_t>(GetParam());
      const int64_t shifts[] = {0, lba, -lba, 4096, 64 << 10, 32 << 20, -(32 << 20), 16 << 20};
      const int64_t shift =
          how < 8 ? shifts[how] : static_cast<int64_t>(cases.Salt(3) % (4 << 20)) / lba * lba;
      LyingDevice device(subject.device.get());
      device.Lie(write, shift);
      Session session(&device, state);
      session.Run();
      bool superblock = false;
      for (int copy = 0; copy < kSuperblockCopies; ++copy) {
        superblock |= device.at() == SuperblockPlace(copy, kStoreBytes);
      }
      std::string wrong;
      // A superblock is read back: the call that wrote it knows.
      bool said = false;
      for (const absl::Status& s : session.errors()) {
        said |= absl::IsDataLoss(s) &&
                s.message().find("reads back differently") != std::string_view::npos;
      }
      if (superblock && !said) wrong = "nothing says that a superblock was not written";
      superblocks += superblock;
      noticed += !session.errors().empty();
      bool damage = false;
      if (wrong.empty()) wrong = session.Left(&damage);
      if (wrong.empty() && damage) {
        const auto report = CheckDevice(&device, nullptr);
        if (!report.ok())
          wrong = report.status().ToString();
        else if (report->damage_total == 0)
          wrong = "check does not find what reads have met";
      }
      cases.Done(absl::StrCat("write ", write, " shifted by ", shift), wrong);
      subject.device->Undo();
    }
  }
  std::printf("%llu noticed at once, %llu of superblocks\n",
              static_cast<unsigned long long>(noticed),
              static_cast<unsigned long long>(superblocks));
}

}  // namespace
}  // namespace ashlar
