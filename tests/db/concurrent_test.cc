// Many threads on one store, and Close while they are at it. Names hold "Concurrent": they run
// under ThreadSanitizer too.
#include <atomic>
#include <thread>

#include "tests/db/rig.h"

namespace ashlar {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kShare = 5;  // of the work; a sanitizer makes each step that much slower
#else
constexpr int kShare = 1;
#endif

// A value that says whose it is: writer, number, key, and bytes that follow from them.
std::string ValueOf(std::string_view key, uint64_t n) {
  const size_t length = n % 97 == 0 ? 9000 : n % 300;
  return absl::StrCat(std::string(key), "#", n, "#", Bytes(n + key.size(), length));
}
// The number in a value of `key`; an error of the test when the value is not one.
uint64_t NumberIn(std::string_view key, std::string_view value) {
  const std::string text(value);
  if (text.compare(0, key.size(), key) != 0 || text[key.size()] != '#') {
    ADD_FAILURE() << "under " << key << " lies " << text.substr(0, 50);
    return 0;
  }
  const uint64_t n = std::strtoull(text.c_str() + key.size() + 1, nullptr, 10);
  EXPECT_TRUE(text == ValueOf(key, n)) << "the value of " << key << " is mixed up";
  return n;
}

// Group g of three keys is always written whole, with one number.
std::string GroupKey(int group, int member) { return absl::StrCat("group", group, "/", member); }

RigOptions Threaded(bool cache, bool fua) {
  RigOptions o;
  o.threads = true;
  o.memory_bytes = 2 * kMiB;  // small: seals, flushes and merges all the time
  o.volatile_cache = cache;
  o.native_fua = fua;
  return o;
}

class ConcurrentTest : public testing::TestWithParam<bool> {};

TEST_P(ConcurrentTest, WritersReadersAndIterators) {
  Rig rig(Threaded(true, GetParam()));
  ASHLAR_OK(rig.Open());
  constexpr int kWriters = 4, kGroups = 20, kKeys = 300;
  const int kWrites = 3000 / kShare;
  std::atomic<bool> stop = false;
  std::atomic<int> writing = kWriters;
  // What each writer left under its own keys; absent: deleted.
  std::map<std::string, uint64_t> left[kWriters];
  std::atomic<uint64_t> group_number = 0;
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      std::mt19937_64 random(g_seed + w);
      for (int i = 1; i <= kWrites; ++i) {
        const WriteOptions options{random() % 4 == 0 ? Durability::kDurable
                                                     : Durability::kBuffered};
        const std::string key = absl::StrCat("writer", w, "/", random() % kKeys);
        absl::Status s;
        if (const uint64_t dice = random() % 10; dice == 0) {
          s = rig->Delete(options, key);
          left[w].erase(key);
        } else if (dice < 4) {
          WriteBatch batch;
          const int g = random() % kGroups;
          const uint64_t n = ++group_number;
          for (int m = 0; m < 3; ++m) batch.Put(GroupKey(g, m), ValueOf(GroupKey(g, m), n));
          s = rig->Write(options, batch);
        } else {
          s = rig->Put(options, key, ValueOf(key, i));
          left[w][key] = i;
        }
        if (!s.ok()) {
          ADD_FAILURE() << s;
          break;
        }
        // A writer sees its own writes.
        const std::string got = rig.Get(key);
        const auto it = left[w].find(key);
        if (it == left[w].end()) {
          EXPECT_EQ(got, "<none>");
        } else {
          EXPECT_EQ(NumberIn(key, got), it->second);
        }
      }
      if (--writing == 0) stop = true;
    });
  }
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      std::mt19937_64 random(g_seed + 100 + r);
      Value value;
      while (!stop) {
        const int g = random() % kGroups;
        const std::string key = GroupKey(g, random() % 3);
        const absl::Status s = rig->Get({}, key, &value);
        if (absl::IsNotFound(s)) continue;
        ASHLAR_OK(s);
        NumberIn(key, value.view());
      }
    });
  }
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      while (!stop) {
        const auto it = rig->NewIterator({});
        if (r == 0) {
          it->Seek("group");
        } else {
          it->SeekToFirst();
        }
        std::string last;
        int members = 0;
        uint64_t number = 0;
        for (; it->Valid(); it->Next()) {
          const std::string key(it->key());
          EXPECT_LT(last, key);
          last = key;
          const uint64_t n = NumberIn(key, it->value());
          if (key.compare(0, 5, "group") != 0) continue;
          // Whole: all three members, with one number.
          if (members % 3 == 0) {
            number = n;
            EXPECT_EQ(key.back(), '0');
          } else {
            EXPECT_EQ(n, number) << key << ": a batch seen in part";
          }
          ++members;
        }
        ASHLAR_OK(it->status());
        EXPECT_EQ(members % 3, 0);
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      ASHLAR_OK(rig->Flush());
      ASHLAR_OK(rig->Sync());
      EXPECT_EQ(rig->health().state, Health::State::kWritable);
      EXPECT_GT(rig->limits().value_bytes, 0u);
    }
  });
  for (std::thread& t : threads) t.join();

  const auto check = [&](const std::string& when) {
    std::map<std::string, std::string> want;
    for (const auto& mine : left) {
      for (const auto& [key, n] : mine) want[key] = ValueOf(key, n);
    }
    auto got = Contents(rig.db());
    for (auto it = got.begin(); it != got.end();) {
      it = it->first.compare(0, 5, "group") == 0 ? got.erase(it) : std::next(it);
    }
    ExpectSame(got, want, when);
  };
  check("at the end");
  ASHLAR_OK(rig.Close());
  ASHLAR_OK(rig.Open());
  check("reopened");
  ASHLAR_OK(rig->MergeAll());
  check("merged");
  ASHLAR_OK(rig.Close());
  rig.Check("at the end");
}

INSTANTIATE_TEST_SUITE_P(Fua, ConcurrentTest, testing::Bool());

// Close comes while everything is called from everywhere: each call is carried out or refused,
// nothing hangs, and every acknowledged write is there afterwards.
TEST(ConcurrentClose, WhileOthersStillCall) {
  const int rounds = 40 / kShare;
  for (int round = 0; round < rounds; ++round) {
    Rig rig(Threaded(true, round % 2 == 0));
    ASHLAR_OK(rig.Open());
    constexpr int kWriters = 3;
    std::map<std::string, uint64_t> acked[kWriters];
    std::atomic<int> writes = 0;
    std::vector<std::thread> threads;
    const auto refused = [](const absl::Status& s) {
      EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition) << s;
    };
    for (int w = 0; w < kWriters; ++w) {
      threads.emplace_back([&, w] {
        for (int i = 0;; ++i) {
          const std::string key = absl::StrCat("writer", w, "/", i);
          const auto s = rig->Put({i % 3 == 0 ? Durability::kDurable : Durability::kBuffered}, key,
                                  ValueOf(key, i));
          if (!s.ok()) return refused(s);
          acked[w][key] = i;
          ++writes;
        }
      });
    }
    threads.emplace_back([&] {
      for (;;) {
        if (const auto s = rig->Flush(); !s.ok()) return refused(s);
      }
    });
    threads.emplace_back([&] {
      for (;;) {
        if (const auto s = rig->Sync(); !s.ok()) return refused(s);
        rig->health();
      }
    });
    threads.emplace_back([&] {
      Value value;
      for (;;) {
        const auto s = rig->Get({}, "writer0/7", &value);
        if (!s.ok() && !absl::IsNotFound(s)) return refused(s);
      }
    });
    // Makes iterators, so that Close must be tried again.
    threads.emplace_back([&] {
      for (;;) {
        const auto it = rig->NewIterator({});
        int n = 0;
        for (it->SeekToFirst(); it->Valid() && n < 20; it->Next()) ++n;
        if (!it->status().ok()) return refused(it->status());
      }
    });
    const int before = 50 + round * 20;
    while (writes < before) std::this_thread::yield();
    // Two at once.
    std::thread other([&] {
      absl::Status s;
      while (absl::IsFailedPrecondition(s = rig->Close())) {
      }
      EXPECT_EQ(s, absl::OkStatus());
    });
    absl::Status s;
    while (absl::IsFailedPrecondition(s = rig->Close())) {
    }
    EXPECT_EQ(s, absl::OkStatus());
    other.join();
    for (std::thread& t : threads) t.join();
    rig.holder().reset();
    // Closed is durable, also the buffered ones.
    rig.device()->LoseUnflushed([](size_t) { return false; });
    rig.Check("closed");
    ASHLAR_OK(rig.Open());
    std::map<std::string, std::string> want;
    for (const auto& mine : acked) {
      for (const auto& [key, n] : mine) want[key] = ValueOf(key, n);
    }
    ExpectSame(Contents(rig.db()), want, absl::StrCat("round ", round));
  }
}

// The process dies while everything is going on; what was acknowledged as durable is there, and of
// each writer a prefix.
TEST(ConcurrentCrash, LosesNoDurableWriteAndLeavesNoHole) {
  const int rounds = 20 / kShare;
  for (int round = 0; round < rounds; ++round) {
    Rig rig(Threaded(true, round % 2 == 0));
    ASHLAR_OK(rig.Open());
    constexpr int kWriters = 4;
    int durable[kWriters], last[kWriters];
    std::atomic<int> writes = 0;
    std::vector<std::thread> threads;
    for (int w = 0; w < kWriters; ++w) {
      durable[w] = last[w] = -1;
      threads.emplace_back([&, w] {
        for (int i = 0;; ++i) {
          WriteBatch batch;
          for (int m = 0; m < 2; ++m) {
            const std::string key = absl::StrCat("writer", w, "/", i, "/", m);
            batch.Put(key, ValueOf(key, i));
          }
          const bool wants = (i + w) % 5 == 0;
          last[w] = i;
          const auto s = rig->Write({wants ? Durability::kDurable : Durability::kBuffered}, batch);
          if (!s.ok()) return;
          if (wants) durable[w] = i;
          ++writes;
        }
      });
    }
    while (writes < 200 + 150 * round) std::this_thread::yield();
    rig.SetHook([&](const io::Request& r, const std::byte*) {
      return io::IoStatus{r.op == io::Op::kRead ? io::IoClass::kOk : io::IoClass::kUnknown, 0, 0,
                          EIO};
    });
    for (std::thread& t : threads) t.join();
    std::mt19937_64 random(g_seed + round);
    rig.Crash([&](size_t) { return random() % 2 == 0; });
    rig.SetHook(nullptr);
    ASHLAR_OK(rig.Open());
    const auto got = Contents(rig.db());
    size_t count = 0;
    for (int w = 0; w < kWriters; ++w) {
      int i = 0;
      for (;; ++i) {
        const bool a = got.count(absl::StrCat("writer", w, "/", i, "/0")) != 0;
        const bool b = got.count(absl::StrCat("writer", w, "/", i, "/1")) != 0;
        ASSERT_EQ(a, b) << "writer " << w << ", batch " << i << " in part";
        if (!a) break;
      }
      EXPECT_GT(i, durable[w]) << "a durable write of writer " << w << " is lost";
      EXPECT_LE(i, last[w] + 1);
      count += i * 2;
    }
    EXPECT_EQ(count, got.size()) << "something lies behind a hole";
    for (const auto& [key, value] : got) NumberIn(key, value);
    ASHLAR_OK(rig.Close());
    rig.Check("at the end");
  }
}

}  // namespace
}  // namespace ashlar
