// Random operations against std::map, in every shape of device that changes what the engine does.
#include "tests/db/rig.h"

namespace ashlar {
namespace {

using Model = std::map<std::string, std::string>;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSteps = 800;
#else
constexpr int kSteps = 12000;
#endif

class Walk {
 public:
  Walk(const RigOptions& options, uint64_t seed)
      : rig_(options), random_(seed), when_(absl::StrCat(options.Name(), ", seed ", seed)) {
    for (int i = 0; i < 500; ++i) keys_.push_back(MakeKey());
  }

  void Run(int steps) {
    Open();
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) Step();
    LetGo();
    if (testing::Test::HasFailure()) return;
    CompareAll("at the end");
    ASHLAR_OK(rig_.Close());
    rig_.Check(when_);
    Open();
    CompareAll("at the end, reopened");
  }

 private:
  struct Held {
    std::unique_ptr<Iterator> it;
    Model moment;
    Model::const_iterator at;
    bool placed = false;
  };

  // A snapshot, and what it must show.
  struct Taken {
    std::unique_ptr<const Snapshot> snapshot;
    Model moment;
  };
  void LetGo() {
    held_.clear();
    taken_.clear();
  }

  uint64_t Dice(uint64_t n) { return random_() % n; }

  std::string MakeKey() {
    switch (Dice(8)) {
      case 0:
        return std::string(1 + Dice(3), '\0');
      case 1:
        return std::string(1 + Dice(4), '\xff');
      case 2:
        return Bytes(random_(), 1 + Dice(4096));
      case 3:
        return std::string(200, 'p') + Bytes(random_(), 1 + Dice(8));  // a long common front
      default:
        return absl::StrCat("key", Dice(100000));
    }
  }
  const std::string& SomeKey() { return keys_[Dice(keys_.size())]; }
  std::string SomeValue() {
    const uint64_t limit = rig_->limits().value_bytes;
    const uint64_t dice = Dice(200);
    const size_t n = dice < 120   ? Dice(100)
                     : dice < 180 ? Dice(2000)
                     : dice < 197 ? Dice(20000)
                     : dice < 199 ? Dice(150000)
                                  : Dice(limit + 1);
    return Bytes(random_(), std::min<size_t>(n, limit));
  }
  WriteOptions SomeOptions() {
    return {Dice(3) == 0 ? Durability::kDurable : Durability::kBuffered};
  }

  void Open() { ASSERT_EQ(rig_.Open(), absl::OkStatus()) << when_; }

  void CompareAll(const std::string& what) {
    ExpectSame(Contents(rig_.db()), model_, absl::StrCat(when_, ": ", what));
  }

  void Step() {
    const uint64_t dice = Dice(1000);
    if (dice < 350) {
      const std::string& key = SomeKey();
      const std::string value = SomeValue();
      ASHLAR_OK(rig_->Put(SomeOptions(), key, value));
      model_[key] = value;
    } else if (dice < 450) {
      const std::string& key = SomeKey();
      ASHLAR_OK(rig_->Delete(SomeOptions(), key));
      model_.erase(key);
    } else if (dice < 520) {
      Batch();
    } else if (dice < 800) {
      const std::string& key = SomeKey();
      const auto want = model_.find(key);
      const std::string got = rig_.Get(key);
      ASSERT_TRUE(got == (want == model_.end() ? "<none>" : want->second))
          << when_ << ": " << got.size() << " bytes: " << got.substr(0, 200);
    } else if (dice < 850) {
      Scan();
    } else if (dice < 930) {
      MoveHeld();
    } else if (dice < 960) {
      ReadTaken();
    } else if (dice < 975) {
      ASHLAR_OK(rig_->Flush());
    } else if (dice < 983) {
      ASHLAR_OK(rig_->Sync());
    } else if (dice < 988) {
      const std::string begin = Dice(2) == 0 ? SomeKey() : std::string();
      const std::string end = Dice(2) == 0 ? SomeKey() : std::string();
      ASHLAR_OK(Dice(2) == 0 ? rig_->MergeAll() : rig_->CompactRange(begin, end));
    } else if (dice < 992) {
      CompareAll("in the middle");
    } else {
      Reopen();
    }
  }

  void Batch() {
    WriteBatch batch;
    Model after = model_;
    for (uint64_t n = Dice(20); n > 0; --n) {
      const std::string& key = SomeKey();
      if (batch.bytes() + key.size() + 100 > rig_->limits().batch_bytes) break;
      if (Dice(4) == 0) {
        batch.Delete(key);
        after.erase(key);
      } else {
        const std::string value = SomeValue();
        if (batch.bytes() + key.size() + value.size() + 100 > rig_->limits().batch_bytes) break;
        batch.Put(key, value);
        after[key] = value;
      }
    }
    ASHLAR_OK(rig_->Write(SomeOptions(), batch));
    model_ = std::move(after);
  }

  // A short walk from somewhere, perhaps within bounds.
  void Scan() {
    const std::string target = Dice(3) == 0 ? SomeKey() : Dice(2) == 0 ? MakeKey() : std::string();
    const std::string lower = Dice(4) == 0 ? SomeKey() : std::string();
    const std::string upper = Dice(4) == 0 ? SomeKey() : std::string();
    ReadOptions bounded;
    bounded.lower_bound = lower;
    bounded.upper_bound = upper;
    const auto it = rig_->NewIterator(bounded);
    if (Dice(3) == 0) return ScanBackward(it.get(), target, lower, upper);
    target.empty() ? it->SeekToFirst() : it->Seek(target);
    auto want = model_.lower_bound(std::max(target, lower));
    const auto more = [&] {
      return want != model_.end() && (upper.empty() || want->first < upper);
    };
    for (uint64_t n = Dice(30); n > 0 && more(); --n, ++want, it->Next()) {
      ASSERT_TRUE(it->Valid()) << when_ << ": " << it->status();
      ASSERT_TRUE(it->key() == want->first && it->value() == want->second) << when_;
    }
    ASSERT_EQ(it->Valid(), more()) << when_ << ": " << it->status();
    ASSERT_EQ(it->status(), absl::OkStatus()) << when_;
  }

  void ScanBackward(Iterator* it, const std::string& target, const std::string& lower,
                    const std::string& upper) {
    target.empty() ? it->SeekToLast() : it->SeekForPrev(target);
    // Behind the first one that is shown.
    auto want = target.empty() ? model_.end() : model_.upper_bound(target);
    if (!upper.empty() && (target.empty() || upper <= target)) want = model_.lower_bound(upper);
    const auto more = [&] { return want != model_.begin() && std::prev(want)->first >= lower; };
    for (uint64_t n = Dice(30); n > 0 && more(); --n, it->Prev()) {
      --want;
      ASSERT_TRUE(it->Valid()) << when_ << ": " << it->status();
      ASSERT_TRUE(it->key() == want->first && it->value() == want->second) << when_;
    }
    ASSERT_EQ(it->Valid(), more()) << when_ << ": " << it->status();
    ASSERT_EQ(it->status(), absl::OkStatus()) << when_;
  }

  void MoveHeld() {
    if (held_.size() < 4 && Dice(4) == 0) {
      held_.push_back(std::make_unique<Held>());
      held_.back()->it = rig_->NewIterator({});
      held_.back()->moment = model_;
    }
    if (held_.empty()) return;
    std::unique_ptr<Held>& slot = held_[Dice(held_.size())];
    Held& h = *slot;
    if (!h.placed || Dice(5) == 0) {
      const std::string target = Dice(3) == 0 ? std::string() : SomeKey();
      h.it->Seek(target);
      h.at = std::as_const(h.moment).lower_bound(target);
      h.placed = true;
    }
    for (uint64_t n = Dice(20); n > 0 && h.at != h.moment.end(); --n) {
      ASSERT_TRUE(h.it->Valid()) << when_ << ": " << h.it->status();
      ASSERT_TRUE(h.it->key() == h.at->first && h.it->value() == h.at->second) << when_;
      if (h.at != h.moment.begin() && Dice(4) == 0) {
        h.it->Prev();
        --h.at;
      } else {
        h.it->Next();
        ++h.at;
      }
    }
    ASSERT_EQ(h.it->Valid(), h.at != h.moment.end()) << when_ << ": " << h.it->status();
    if (Dice(10) == 0) {
      std::swap(slot, held_.back());
      held_.pop_back();
    }
  }

  // Some keys at a snapshot, and sometimes all.
  void ReadTaken() {
    if (taken_.size() < 3 && Dice(4) == 0) {
      taken_.push_back(std::make_unique<Taken>());
      taken_.back()->snapshot = rig_->GetSnapshot();
      taken_.back()->moment = model_;
    }
    if (taken_.empty()) return;
    std::unique_ptr<Taken>& slot = taken_[Dice(taken_.size())];
    ReadOptions then;
    then.snapshot = slot->snapshot.get();
    for (int i = 0; i < 5; ++i) {
      const std::string& key = SomeKey();
      const auto want = slot->moment.find(key);
      Value value;
      const absl::Status s = rig_->Get(then, key, &value);
      ASSERT_TRUE(s.ok() || absl::IsNotFound(s)) << when_ << ": " << s;
      ASSERT_EQ(s.ok(), want != slot->moment.end()) << when_;
      if (s.ok()) ASSERT_TRUE(value.view() == want->second) << when_;
    }
    if (Dice(5) == 0) {
      ExpectSame(Contents(rig_->NewIterator(then).get()), slot->moment, when_ + ": a snapshot");
    }
    if (Dice(5) == 0) {
      std::swap(slot, taken_.back());
      taken_.pop_back();
    }
  }

  void Reopen() {
    switch (Dice(4)) {
      case 0:  // without Close, iterators and snapshots alive
        rig_.holder().reset();
        LetGo();
        break;
      case 1:  // a crash behind a Sync: nothing may be lost
        LetGo();
        ASHLAR_OK(rig_->Sync());
        rig_.Crash([&](size_t) { return Dice(2) == 0; });
        break;
      default:
        LetGo();
        ASHLAR_OK(rig_.Close());
    }
    Open();
    if (testing::Test::HasFatalFailure()) return;
    CompareAll("reopened");
  }

  Rig rig_;
  std::mt19937_64 random_;
  const std::string when_;
  std::vector<std::string> keys_;
  Model model_;
  std::vector<std::unique_ptr<Held>> held_;
  std::vector<std::unique_ptr<Taken>> taken_;
};

class ModelTest : public testing::TestWithParam<std::tuple<bool, bool, uint64_t, uint32_t>> {};

TEST_P(ModelTest, InTheCallersThread) {
  const auto [large_lba, cache, memory, extent] = GetParam();
  RigOptions o;
  o.bytes = 128 * kMiB;
  o.lba_bytes = large_lba ? 4096 : 512;
  o.volatile_cache = cache;
  o.native_fua = !large_lba || !cache;
  o.memory_bytes = memory;
  o.extent_bytes = extent;
  o.level_base_bytes = cache ? 256u << 10 : 0;
  Walk(o, g_seed).Run(kSteps / 4);
}
INSTANTIATE_TEST_SUITE_P(Shapes, ModelTest,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values(2 * kMiB, 16 * kMiB),
                                          testing::Values(64u << 10, 1u << 20)));

TEST(ModelThreads, SmallMemory) {
  RigOptions o;
  o.threads = true;
  o.memory_bytes = 2 * kMiB;
  Walk(o, g_seed).Run(kSteps);
}
TEST(ModelThreads, NoFuaSmallBlocks) {
  RigOptions o;
  o.threads = true;
  o.lba_bytes = 512;
  o.native_fua = false;
  o.level_base_bytes = 256u << 10;
  Walk(o, g_seed).Run(kSteps);
}
TEST(ModelThreads, NoCacheLargeExtents) {
  RigOptions o;
  o.threads = true;
  o.bytes = 128 * kMiB;
  o.extent_bytes = 1 << 20;
  o.volatile_cache = false;
  Walk(o, g_seed).Run(kSteps);
}

}  // namespace
}  // namespace ashlar
