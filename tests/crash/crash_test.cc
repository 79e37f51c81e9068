// Every place at which the power can go, in three workloads and in the recovery from them.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "gtest/gtest.h"
#include "io/memory_device.h"
#include "tests/support/crash_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

constexpr uint64_t kStoreBytes = 64u << 20;
constexpr uint32_t kExtentBytes = 64u << 10;

// Deterministic and not compressible; `n` tells values of one size apart.
std::string Bytes(size_t size, uint64_t n) {
  std::string out(size, '\0');
  uint64_t x = n * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < size; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    out[i] = static_cast<char>(x >> 32);
  }
  return out;
}
std::string Key(uint64_t n) { return absl::StrCat("key", absl::Dec(n, absl::kZeroPad4)); }

struct Scenario {
  explicit Scenario(const io::MemoryDeviceOptions& options) {
    device = *io::MemoryDevice::Create(options);
    CHECK(FormatDevice(device.get(), kExtentBytes, FixedStoreId()).ok());
    device->LoseUnflushed([](size_t) { return true; });
    start.assign(device->contents().begin(), device->contents().end());
  }
  void Do(const std::function<void(RecordedStore&)>& workload) {
    RecordingDevice recorder(device.get(), &recording);
    RecordedStore store(&recorder, &recording, &model);
    workload(store);
  }
  // A device that holds what was there before the workload.
  std::unique_ptr<ImageDevice> Start() const {
    auto image = std::make_unique<ImageDevice>(device->geometry());
    for (uint64_t at = 0; at < start.size(); at += 4096) {
      const std::span<const std::byte> page(start.data() + at, 4096);
      if (std::any_of(page.begin(), page.end(), [](std::byte b) { return b != std::byte{0}; })) {
        image->WriteBase(at, page);
      }
    }
    return image;
  }

  std::unique_ptr<io::MemoryDevice> device;
  std::vector<std::byte> start;
  Recording recording;
  StoreModel model;
};

// An image and the commits that were found in it.
using Found = std::pair<CrashImage, uint32_t>;

double Scale() { return std::min(1.0, g_scale / 0.04); }

// Checks a share of the images of a scenario. Each `every`th is kept in *some.
void CheckImages(const char* name, Scenario& run, double share, CrashCounts* total, uint64_t every,
                 std::vector<Found>* some) {
  KeepFreedMemory();
  const auto image = run.Start();
  CrashRig rig(run.recording, image.get(), g_seed);
  CrashCounts counts;
  const absl::Status s = rig.Run(
      [&](const CrashImage& i) -> absl::StatusOr<uint32_t> {
        auto prefix = CheckCrashImage(image.get(), run.model, i.least, i.most, i.id);
        if (prefix.ok() &&
            counts.distinct % std::max<uint64_t>(
                                  1, static_cast<uint64_t>(static_cast<double>(every) * Scale())) ==
                0)
          some->emplace_back(i, *prefix);
        return prefix;
      },
      share* Scale(), &counts);
  const RecordingSummary summary = Summarise(run.recording, FixedStoreId(), kStoreBytes);
  std::printf("crash %s: %s; %u commits; %s\n", name, counts.Text().c_str(), run.model.commits(),
              summary.Text().c_str());
  EXPECT_EQ(summary.released_in_flight, 0u);
  ASSERT_TRUE(s.ok()) << s;
  // The rig's idea of what is durable is the device's.
  run.device->LoseUnflushed([](size_t) { return false; });
  EXPECT_TRUE(std::equal(run.device->contents().begin(), run.device->contents().end(),
                         image->contents().begin()));
  *total += counts;
}

// Cuts the recovery from some images, and the Close behind it, at every boundary.
void CheckRecoveries(const char* name, const Scenario& run, double share,
                     const std::vector<Found>& some, CrashCounts* total) {
  CrashCounts counts;
  const auto unused = run.Start();
  const CrashRig rig(run.recording, unused.get(), g_seed);
  for (const auto& [image, prefix] : some) {
    const auto device = run.Start();
    rig.Build(image, device.get());
    const auto copy = run.Start();
    rig.Build(image, copy.get());
    Recording recovery;
    RecordingDevice recorder(copy.get(), &recovery);
    recovery.markers.push_back({0, prefix, prefix});
    {
      auto db = DBImpl::Open(SmallOptions(), &recorder, nullptr, FixedEnv());
      ASSERT_TRUE(db.ok()) << db.status();
      ASSERT_TRUE((*db)->Close().ok());
    }
    CrashRig nested(recovery, device.get(), g_seed);
    const absl::Status s = nested.Run(
        [&](const CrashImage& i) {
          return CheckCrashImage(device.get(), run.model, i.least, i.most, i.id);
        },
        share * Scale(), &counts);
    ASSERT_TRUE(s.ok()) << "recovery from " << image.Text() << ": " << s;
  }
  std::printf("crash in recovery from %s: %zu recoveries, %s\n", name, some.size(),
              counts.Text().c_str());
  *total += counts;
}

// Single puts, most of them acknowledged as durable, over few keys; flushes, an open and close in
// between.
void SmallPuts(RecordedStore& store) {
  store.Open();
  uint64_t n = 0;
  for (int round = 0; round < 24; ++round) {
    for (int i = 0; i < 90; ++i, ++n) {
      store.Put(Key(n * 7 % 197), Bytes(20 + n % 120, n),
                n % 5 == 3 ? Durability::kBuffered : Durability::kDurable);
    }
    if (round % 4 == 2) store.Sync();
    if (round % 2 == 1) store.Flush();
    if (round == 11) {
      store.Close();
      store.Open();
    }
  }
  store.Close();
}

// Batches of puts and deletes, larger than the log's buffers now and then, most of them buffered,
// without FUA and with small blocks; the process is killed in between.
void Batches(RecordedStore& store) {
  store.Open();
  uint64_t n = 0;
  for (int round = 0; round < 900; ++round) {
    std::vector<StoreModel::Change> changes;
    const int count = 1 + round % 13;
    for (int i = 0; i < count; ++i, ++n) {
      const std::string key = Key(n * 11 % 151);
      if (n % 3 == 1) {
        changes.emplace_back(key, std::nullopt);
      } else {
        changes.emplace_back(key, Bytes(round % 20 == 7 ? 6000 : 10 + n % 200, n));
      }
    }
    store.Write(changes, round % 3 == 2 ? Durability::kDurable : Durability::kBuffered);
    if (round % 25 == 20) store.Flush();
    if (round % 10 == 9) store.Sync();
    if (round % 300 == 170) {
      store.Die();
      store.Open();
    }
    if (round == 620) store.MergeAll();
  }
  store.Close();
}

// Values up to the limit, overwritten until merges go in several steps and the manifest is full.
void LargeValues(RecordedStore& store) {
  store.Open();
  const size_t limit = store.db()->limits().value_bytes;
  uint64_t n = 0;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 3; ++i, ++n) {
      const size_t size = n % 4 == 0   ? limit - n % 64
                          : n % 4 == 1 ? 5000 + 37 * n
                                       : 60000 + n * 331 % 70000;
      store.Put(Key(n * 5 % 23), Bytes(std::min(size, limit), n),
                n % 6 == 4 ? Durability::kBuffered : Durability::kDurable);
    }
    if (round % 9 == 8)
      store.Write({{Key(round % 23), std::nullopt}, {Key(3), "small"}}, Durability::kDurable);
  }
  store.MergeAll();
  store.Close();
}

TEST(Crash, EveryCutOfThreeWorkloads) {
  CrashCounts images, recoveries;
  {
    Scenario run({.bytes = kStoreBytes, .lba_bytes = 4096});
    run.Do(SmallPuts);
    std::vector<Found> some;
    CheckImages("small puts", run, 1, &images, 207, &some);
    CheckRecoveries("small puts", run, 1, some, &recoveries);
  }
  {
    Scenario run({.bytes = kStoreBytes, .lba_bytes = 512, .native_fua = false});
    run.Do(Batches);
    std::vector<Found> some;
    CheckImages("batches", run, 1, &images, 407, &some);
    CheckRecoveries("batches", run, 1, some, &recoveries);
  }
  {
    Scenario run({.bytes = kStoreBytes, .lba_bytes = 4096});
    run.Do(LargeValues);
    const RecordingSummary summary = Summarise(run.recording, FixedStoreId(), kStoreBytes);
    EXPECT_GE(summary.flushes, 8u);
    EXPECT_GE(summary.shortening_steps, 3u);
    EXPECT_GE(summary.manifests, 2u);  // one at open, one because that was full
    EXPECT_GE(summary.superblock_updates, 4u);
    std::vector<Found> some;
    CheckImages("large values", run, 0.006, &images, 307, &some);
    CheckRecoveries("large values", run, 0.003, some, &recoveries);
  }
  std::printf("crash total: %s; in recovery: %s\n", images.Text().c_str(),
              recoveries.Text().c_str());
  EXPECT_GE(images.distinct, 4500 * Scale());
}

}  // namespace
}  // namespace ashlar
