// One list of operations, many drives and options: the answers are the same.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "engine/format/checksum.h"
#include "gtest/gtest.h"
#include "tests/support/crash_rig.h"
#include "tests/support/ordering_monitor.h"
#include "tests/support/seed.h"
#include "tests/support/sim_device.h"

namespace ashlar {
namespace {

constexpr uint64_t kLists = 60;  // at full scale
constexpr uint32_t kOperations = 2'500;
constexpr int kShards = 4;

struct Config {
  SimDeviceOptions drive;
  uint32_t extent_bytes = 64u << 10;
  uint64_t memory_bytes = 2u << 20;
  uint64_t level_base_bytes = 0;
  bool threads = false;  // the store's own, simulated
  // Every so many operations the store is closed and opened, or its process dies after a Sync. They
  // are no part of the answers.
  uint32_t reopen_every = 0;
  bool dies = false;
};

std::vector<Config> Configs() {
  using ReadBack = SimDeviceOptions::ReadBack;
  std::vector<Config> all;
  const auto add = [&](SimDeviceOptions drive, uint32_t extent_bytes, uint64_t memory_bytes,
                       bool threads = false, uint32_t reopen_every = 0, bool dies = false) {
    // Every other one keeps many small levels.
    const uint64_t level_base_bytes = all.size() % 2 * (64u << 10);
    all.push_back(
        {drive, extent_bytes, memory_bytes, level_base_bytes, threads, reopen_every, dies});
  };
  constexpr uint32_t kKiB = 1u << 10;
  constexpr uint64_t kMiB = 1u << 20;
  add({}, 64 * kKiB, 2 * kMiB);
  add({.lba_bytes = 512}, 64 * kKiB, 2 * kMiB);
  add({.native_fua = false}, 64 * kKiB, 2 * kMiB);
  add({.volatile_cache = false}, 64 * kKiB, 2 * kMiB);
  add({.lba_bytes = 512, .native_fua = false}, 64 * kKiB, 8 * kMiB);
  add({.atomic_blocks = 8}, 256 * kKiB, 2 * kMiB);
  add({.max_transfer_bytes = 4 * kKiB}, 64 * kKiB, 2 * kMiB);
  add({.max_transfer_bytes = 32 * kKiB}, 128 * kKiB, 4 * kMiB);
  add({.read_back = ReadBack::kOnes}, 64 * kKiB, 2 * kMiB, false, 400);
  add({.read_back = ReadBack::kError}, 64 * kKiB, 2 * kMiB, false, 300, true);
  add({.read_back = ReadBack::kRandom}, 64 * kKiB, 16 * kMiB, false, 700, true);
  add({.lba_bytes = 512, .read_back = ReadBack::kOld}, 64 * kKiB, 2 * kMiB, false, 90);
  add({}, 1024 * kKiB, 32 * kMiB);
  add({}, 64 * kKiB, 2 * kMiB, true);
  add({.lba_bytes = 512, .native_fua = false}, 64 * kKiB, 2 * kMiB, true, 500);
  add({.max_transfer_bytes = 4 * kKiB}, 256 * kKiB, 8 * kMiB, true, 350, true);
  return all;
}

// The answers of one list, one number for each operation.
std::vector<uint64_t> Answers(uint64_t list, const Config& config, std::string* wrong) {
  SimDevice device(config.drive, list);
  EXPECT_TRUE(FormatDevice(&device, config.extent_bytes, FixedStoreId()).ok());
  std::vector<uint64_t> answers;
  SimExecutor sim(list);
  const auto body = [&] {
    Options options;
    options.memory_bytes = config.memory_bytes;
    Env env = config.threads ? Env{&sim, &sim} : FixedEnv();
    env.level_base_bytes = config.level_base_bytes;
    std::unique_ptr<OrderingMonitor> monitor;
    std::unique_ptr<DBImpl> db;
    const auto open = [&] {
      monitor = std::make_unique<OrderingMonitor>(device.geometry(), device.contents());
      device.set_observer(monitor.get());
      ASSERT_TRUE(monitor->watching());
      if (config.threads) device.set_sim(&sim);
      auto opened = DBImpl::Open(options, &device, nullptr, env);
      ASSERT_TRUE(opened.ok()) << opened.status();
      db = *std::move(opened);
    };
    open();
    std::mt19937_64 random(list);
    const auto key = [&] { return absl::StrCat("k", random() % (list % 3 == 0 ? 50 : 1000)); };
    const auto answer = [&](std::string_view text) {
      answers.push_back(Checksum(text.data(), text.size(), answers.size()));
    };
    for (uint32_t i = 0; i < kOperations && !testing::Test::HasFatalFailure(); ++i) {
      const uint64_t kind = random() % 100;
      if (kind < 50) {
        WriteBatch batch;
        const uint64_t n = random() % 5 == 0 ? 1 + random() % 10 : 1;
        for (uint64_t k = 0; k < n; ++k) {
          const std::string name = key();
          const uint64_t size = random() % 40 == 0 ? random() % 60'000 : random() % 400;
          if (random() % 4 == 0) {
            batch.Delete(name);
          } else {
            batch.Put(name, std::string(size, static_cast<char>('a' + i % 26)) + name);
          }
        }
        WriteOptions write;
        write.durability = random() % 3 == 0 ? Durability::kDurable : Durability::kBuffered;
        answer(db->Write(write, batch).ToString());
      } else if (kind < 80) {
        Value value;
        const absl::Status s = db->Get({}, key(), &value);
        answer(s.ok() ? value.view() : s.ToString());
      } else if (kind < 95) {
        const auto it = db->NewIterator({});
        const std::string from = key();
        uint64_t left = 1 + random() % 20;
        std::string all;
        const bool backward = random() % 3 == 0;
        backward ? it->SeekForPrev(from) : it->Seek(from);
        for (; it->Valid() && left > 0; backward ? it->Prev() : it->Next(), --left) {
          absl::StrAppend(&all, std::string(it->key()), "=", std::string(it->value()), ";");
        }
        answer(all + it->status().ToString());
      } else {
        answer((kind == 95 ? db->Flush() : kind == 96 ? db->MergeAll() : db->Sync()).ToString());
      }
      if (config.reopen_every > 0 && i % config.reopen_every == config.reopen_every - 1) {
        if (config.dies) {
          ASSERT_TRUE(db->Sync().ok());
          device.Die();
          db.reset();
          device.Revive();
          device.PowerCut(SimDevice::Luck::kEach);
        } else {
          ASSERT_TRUE(db->Close().ok());
          db.reset();
        }
        if (!monitor->violation().empty()) *wrong = monitor->violation();
        open();
      }
    }
    std::string all;
    auto it = db->NewIterator({});
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      absl::StrAppend(&all, std::string(it->key()), "=", std::string(it->value()), ";");
    }
    answer(all + it->status().ToString());
    it.reset();
    EXPECT_TRUE(db->Close().ok());
    if (!monitor->violation().empty()) *wrong = monitor->violation();
    db.reset();
    device.Revive();
  };
  if (config.threads) {
    sim.Run(body);
  } else {
    body();
  }
  return answers;
}

class Metamorphic : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shard, Metamorphic, testing::Range(0, kShards));

TEST_P(Metamorphic, EachConfigurationAnswersTheSame) {
  KeepFreedMemory();
  const std::vector<Config> configs = Configs();
  const uint64_t lists = Scaled(kLists);
  uint64_t operations = 0;
  for (uint64_t l = static_cast<uint64_t>(GetParam()); l < lists; l += kShards) {
    const uint64_t list = g_seed + l;
    std::vector<uint64_t> first;
    for (size_t c = 0; c < configs.size(); ++c) {
      std::string wrong;
      const std::vector<uint64_t> answers = Answers(list, configs[c], &wrong);
      ASSERT_EQ(wrong, "") << "list " << list << ", configuration " << c;
      operations += answers.size();
      if (c == 0) first = answers;
      const auto differ = std::mismatch(first.begin(), first.end(), answers.begin(), answers.end());
      ASSERT_TRUE(differ.first == first.end() && differ.second == answers.end())
          << "list " << list << ", configuration " << c << " (" << configs[c].drive.Text()
          << "): the answer to operation " << differ.first - first.begin()
          << "\nreproduce: ashlar_sim_test --seed=" << list << " --gtest_filter=*Metamorphic*/0";
    }
  }
  Count("metamorphic_operations", operations);
}

}  // namespace
}  // namespace ashlar
