// Every place at which the power can go, in three workloads and in the recovery from them.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
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

uint64_t g_distinct = 0;

// Checks all images of a run; keeps some of them for the crash in their recovery.
void CheckImages(const char* name, Scenario& run, std::vector<CrashImage>* some) {
  const auto image = run.Start();
  CrashRig rig(run.recording, image.get(), g_seed);
  CrashCounts counts;
  const absl::Status s = rig.Run(
      [&](const CrashImage& i) -> absl::StatusOr<uint32_t> {
        auto prefix = CheckCrashImage(image.get(), run.model, i.least, i.most, i.id);
        if (prefix.ok() && some != nullptr && counts.distinct % 97 == 0) some->push_back(i);
        return prefix;
      },
      g_scale, &counts);
  std::printf("crash %s: %s; %u commits; %s\n", name, counts.Text().c_str(), run.model.commits(),
              Summarise(run.recording, FixedStoreId(), kStoreBytes).Text().c_str());
  EXPECT_TRUE(s.ok()) << s;
  g_distinct += counts.distinct;
}

void SmallPuts(RecordedStore& store) {
  store.Open();
  for (int round = 0; round < 6; ++round) {
    for (uint64_t i = 0; i < 60; ++i) {
      const uint64_t n = round * 60 + i;
      const bool buffered = n % 5 == 3;
      store.Put(Key(n * 7 % 97), Bytes(20 + n % 90, n),
                buffered ? Durability::kBuffered : Durability::kDurable);
    }
    if (round == 2) store.Sync();
    store.Flush();
    if (round == 3) {
      store.Close();
      store.Open();
    }
  }
  store.Close();
}

TEST(Crash, SmallPutsAndFlushes) {
  Scenario run({.bytes = kStoreBytes, .lba_bytes = 4096});
  run.Do(SmallPuts);
  CheckImages("small", run, nullptr);
}

}  // namespace
}  // namespace ashlar
