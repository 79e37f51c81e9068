// Every place at which the power can go, in workloads and in the recovery from them. A failure
// prints the line that repeats it alone:
//
//   ASHLAR_CRASH_IMAGE='1234/17,19/20:0-3:/zeros' ashlar_crash_test --seed=1 --gtest_filter=NAME
//
// names the cut and what came out there; a '+' leads to an image of a crash in the recovery from
// the one before. ASHLAR_CRASH_EXPORT=FILE beside it writes the image to a file, for `ashlarctl
// check`.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/admin/store_admin.h"
#include "engine/base/status.h"
#include "gtest/gtest.h"
#include "io/memory_device.h"
#include "tests/crash/workloads.h"
#include "tests/support/content.h"
#include "tests/support/crash_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

constexpr int kDepths = 3;  // the crash, one in its recovery, and one in the recovery from that
// Of a workload's images, the recoveries from so many are crashed at full scale; of each of these
// about so many images are visited, and from each so manieth of them the recovery again.
constexpr uint64_t kRecoveries = 14;
constexpr double kNested[] = {220, 60};
constexpr uint64_t kTwiceOf = 100;

std::unique_ptr<ImageDevice> CopyOf(const io::Geometry& geometry,
                                    std::span<const std::byte> contents) {
  auto image = std::make_unique<ImageDevice>(geometry);
  for (uint64_t at = 0; at < contents.size(); at += 4096) {
    const auto page = contents.subspan(at, 4096);
    if (std::any_of(page.begin(), page.end(), [](std::byte b) { return b != std::byte{0}; })) {
      image->WriteBase(at, page);
    }
  }
  return image;
}

// A recording, and a device that holds what was there before it.
struct Scenario {
  std::unique_ptr<io::MemoryDevice> device;
  std::unique_ptr<ImageDevice> image;
  Recording recording;
  StoreModel model;

  void Begin() {
    device->LoseUnflushed([](size_t) { return true; });
    image = CopyOf(device->geometry(), device->contents());
    recording.markers.push_back({0, model.commits(), model.commits()});
  }
};

// Shares by which about `wanted` images are visited: first all subsets, then tears, then what is
// sampled anyway.
CrashShares SharesFor(const CrashCounts& all, double wanted) {
  const auto part = [](double of, uint64_t n) {
    return n == 0 ? 1 : std::clamp(of / static_cast<double>(n), 0.0, 1.0);
  };
  const auto count = [](uint64_t n) { return static_cast<double>(n); };
  CrashShares shares;
  // Where not even all subsets can be visited, some of each kind are.
  const bool few = wanted < count(all.subsets);
  shares.subsets = part(few ? wanted * 0.6 : wanted, all.subsets);
  double left = wanted - shares.subsets * count(all.subsets);
  shares.tears = part(std::max(left / 2, left - count(all.sampled)), all.tears);
  left -= shares.tears * count(all.tears);
  shares.sampled = part(left, all.sampled);
  return shares;
}

// Checks images, and those of crashes in the recovery from some of them.
class Checker {
 public:
  using Check = std::function<absl::StatusOr<uint32_t>(ImageDevice*, const CrashImage&)>;

  // The recovery from each `every`th image is crashed; 0: from none.
  Checker(ImageDevice* device, Check check, uint64_t every)
      : device_(device), check_(std::move(check)), every_{every, every == 0 ? 0 : kTwiceOf, 0} {}

  absl::StatusOr<uint32_t> Visit(const CrashImage& image, int depth) {
    device_->Push();
    const absl::StatusOr<uint32_t> found = check_(device_, image);
    device_->Pop();
    path_.resize(static_cast<size_t>(depth));
    path_.push_back(image.Text());
    if (!found.ok()) {
      failed_ = absl::StrJoin(path_, "+");
      return found;
    }
    if (!seen_.insert(image.digest).second) return found;
    ++distinct_[depth];
    if (every_[depth] == 0 || (distinct_[depth] + g_seed) % every_[depth] != 0) return found;
    ++recoveries_[depth];
    const Recording recovery = Recover(device_, *found);
    device_->Push();
    CrashCounts all, counts;
    device_->Push();
    absl::Status s = CrashRig(recovery, device_, image.salt, image.digest).Run(nullptr, {}, &all);
    device_->Pop();
    if (s.ok()) {
      s = CrashRig(recovery, device_, image.salt, image.digest)
              .Run([&](const CrashImage& i) { return Visit(i, depth + 1); },
                   SharesFor(all, kNested[depth] * std::max(g_scale, 0.25)), &counts);
    }
    device_->Pop();
    if (!s.ok()) return s;
    return found;
  }

  // What an open and a close of the store on `device` write, which is undone.
  static Recording Recover(ImageDevice* device, uint32_t commits) {
    Recording recovery;
    device->Push();
    {
      RecordingDevice recorder(device, &recovery);
      recovery.markers.push_back({0, commits, commits});
      auto db = DBImpl::Open(SmallOptions(), &recorder, nullptr, FixedEnv());
      CHECK(db.ok());  // as when the image was checked
      CHECK((*db)->Close().ok());
    }
    device->Pop();
    return recovery;
  }

  uint64_t distinct(int depth) const { return distinct_[depth]; }
  uint64_t recoveries(int depth) const { return recoveries_[depth]; }
  const std::string& failed() const { return failed_; }

 private:
  ImageDevice* const device_;
  const Check check_;
  const uint64_t every_[kDepths];
  std::vector<std::string> path_;
  std::string failed_;
  std::unordered_set<uint64_t> seen_;  // over all depths
  uint64_t distinct_[kDepths] = {};
  uint64_t recoveries_[kDepths] = {};
};

std::string ThisCase() {
  const testing::TestInfo* const info = testing::UnitTest::GetInstance()->current_test_info();
  return absl::StrCat(info->test_suite_name(), ".", info->name());
}

// Rebuilds the one image that `text` names, and checks it.
void CheckOne(Scenario& run, const Checker::Check& check, const std::string& text) {
  ImageDevice* const device = run.image.get();
  Recording recording = run.recording;
  const std::vector<std::string> path = absl::StrSplit(text, '+');
  for (size_t i = 0;; ++i) {
    auto image = ParseCrashImage(path[i]);
    ASSERT_TRUE(image.ok()) << image.status();
    CrashRig rig(recording, device, g_seed);
    const absl::Status s = rig.Build(&*image);
    ASSERT_TRUE(s.ok()) << s;
    const bool last = i + 1 == path.size();
    if (const char* const file = std::getenv("ASHLAR_CRASH_EXPORT"); last && file != nullptr) {
      const absl::Status exported = ExportImage(device->contents(), file);
      ASSERT_TRUE(exported.ok()) << exported;
      std::printf("exported to %s\n", file);
    }
    device->Push();
    const auto found = check(device, *image);
    device->Pop();
    ASSERT_TRUE(found.ok()) << found.status();
    if (last) {
      std::printf("image %s: holds %u commits, of %u to %u\n", text.c_str(), *found, image->least,
                  image->most);
      return;
    }
    recording = Checker::Recover(device, *found);
  }
}

// Enumerates the images of a scenario and checks at most about `most` of them, at full scale, which
// must be at least `images`; and `in_recovery` of the recovery from some.
void CheckAll(const char* name, Scenario& run, const Checker::Check& check, uint64_t images,
              uint64_t most, uint64_t in_recovery, const std::string& summary) {
  if (const char* const text = std::getenv("ASHLAR_CRASH_IMAGE"); text != nullptr) {
    Repeated();
    CheckOne(run, check, text);
    return;
  }
  ImageDevice* const device = run.image.get();
  CrashCounts all;
  {
    CrashRig rig(run.recording, device, g_seed);
    const absl::Status s = rig.Run(nullptr, {}, &all);
    ASSERT_TRUE(s.ok()) << s;
    device->Undo();
  }
  const uint64_t wanted = Scaled(std::min(most, all.subsets + all.tears + all.sampled));
  // Chance decides over each: with some more, there are enough of them.
  const double about = static_cast<double>(wanted) + 4 * std::sqrt(static_cast<double>(wanted));
  const CrashShares shares = SharesFor(all, about);
  const uint64_t every =
      in_recovery == 0 ? 0 : std::max<uint64_t>(1, wanted / (Scaled(kRecoveries) + 1));
  Checker checker(device, check, every);
  CrashRig rig(run.recording, device, g_seed);
  CrashCounts counts;
  const absl::Status s =
      rig.Run([&](const CrashImage& i) { return checker.Visit(i, 0); }, shares, &counts);
  std::printf(
      "crash in %s: %s; looked at %.3g of the subsets, %.3g of the tears, %.3g of the samples: "
      "%llu distinct; %llu recoveries: %llu distinct; %llu in these: %llu distinct; %s\n",
      name, all.Text().c_str(), shares.subsets, shares.tears, shares.sampled,
      static_cast<unsigned long long>(checker.distinct(0)),
      static_cast<unsigned long long>(checker.recoveries(0)),
      static_cast<unsigned long long>(checker.distinct(1)),
      static_cast<unsigned long long>(checker.recoveries(1)),
      static_cast<unsigned long long>(checker.distinct(2)), summary.c_str());
  Count("crash_images", checker.distinct(0));
  Count("crash_images_in_recovery", checker.distinct(1) + checker.distinct(2));
  Count("crash_images_twice_in_recovery", checker.distinct(2));
  ASSERT_TRUE(s.ok()) << s << "\nrepeat: ASHLAR_CRASH_IMAGE='" << checker.failed()
                      << "' build/release/bin/ashlar_crash_test --seed=" << g_seed
                      << " --gtest_filter=" << ThisCase();
  // The rig's idea of what is durable is the device's.
  run.device->LoseUnflushed([](size_t) { return false; });
  EXPECT_TRUE(std::equal(run.device->contents().begin(), run.device->contents().end(),
                         device->contents().begin()));
  const uint64_t nested = checker.distinct(1) + checker.distinct(2);
  if (g_scale < 1) {
    EXPECT_GE(checker.distinct(0), wanted / 2);
    EXPECT_GE(nested, in_recovery == 0 ? 0u : 1u);
  } else {
    EXPECT_GE(checker.distinct(0), images);
    EXPECT_GE(nested, in_recovery);
  }
}

std::unique_ptr<io::MemoryDevice> Formatted(const io::MemoryDeviceOptions& options,
                                            uint32_t extent_bytes) {
  auto device = *io::MemoryDevice::Create(options);
  CHECK(FormatDevice(device.get(), extent_bytes, FixedStoreId()).ok());
  return device;
}

class Crash : public testing::TestWithParam<Workload> {};

TEST_P(Crash, Images) {
  KeepFreedMemory();
  const Workload& w = GetParam();
  Scenario run;
  run.device = Formatted(w.device, w.extent_bytes);
  if (w.before != nullptr) {
    Recording unused;
    RecordingDevice recorder(run.device.get(), &unused);
    RecordedStore store(&recorder, &unused, &run.model, run.device->contents());
    w.before(store);
  }
  run.Begin();
  {
    RecordingDevice recorder(run.device.get(), &run.recording);
    RecordedStore store(&recorder, &run.recording, &run.model, run.device->contents());
    w.run(store);
  }
  const RecordingSummary summary =
      Summarise(run.recording, FixedStoreId(), run.device->geometry().capacity_bytes());
  EXPECT_TRUE(w.reached(summary)) << summary.Text();
  EXPECT_EQ(summary.released_in_flight, 0u);
  CheckAll(
      w.name, run,
      [&](ImageDevice* device, const CrashImage& i) {
        return CheckCrashImage(device, run.model, i.least, i.most, i.salt, w.may_be_full);
      },
      w.images, w.images_most, w.in_recovery,
      absl::StrCat(run.model.commits(), " commits; ", summary.Text()));
}

INSTANTIATE_TEST_SUITE_P(Workloads, Crash, testing::ValuesIn(Workloads()),
                         [](const auto& info) { return std::string(info.param.name); });

// What the cases above must reach, each for itself, is what is asked for in all.
TEST(CrashTotals, AreWhatIsAskedFor) {
  uint64_t images = 0, in_recovery = 0, largest = 0;
  for (const Workload& w : Workloads()) {
    images += w.images;
    in_recovery += w.in_recovery;
    largest = std::max(largest, w.images);
  }
  EXPECT_GE(Workloads().size(), 12u);
  EXPECT_GE(images, 200'000u);
  EXPECT_GE(in_recovery, 20'000u);
  EXPECT_LE(largest, images / 2);
}

// ---- format ----

struct Formatting {
  const char* name;
  uint32_t lba_bytes;
  enum { kEmpty, kClosed, kKilled } before;  // what is there
  uint64_t images;
};

void PrintTo(const Formatting& f, std::ostream* out) { *out << f.name; }

class CrashInFormat : public testing::TestWithParam<Formatting> {};

// An id that no store has had; one is never given twice.
StoreId OtherStoreId(uint8_t n) {
  StoreId id = FixedStoreId();
  for (uint8_t& b : id.bytes) b ^= n;
  return id;
}

// What a crash inside format leaves: the older store whole (but for copies of its superblock), no
// store, and said so by open and check alike, or the new empty store. Returns 1 for the last. And
// whatever it is, another format makes an empty store of it.
absl::StatusOr<uint32_t> CheckFormatImage(ImageDevice* device, const StoreModel& old,
                                          const CrashImage& image) {
  const auto spare = [](const Damage& d) { return absl::StartsWith(d.what, "superblock copy"); };
  const StoreModel empty;
  uint32_t found = 0;
  const auto info = InspectDevice(device);
  if (info.ok()) {
    const bool is_new = info->store_id == FormatStoreId(OtherStoreId(1));
    if (!is_new && info->store_id != FormatStoreId(FixedStoreId())) {
      return absl::DataLossError(absl::StrCat("a store ", info->store_id));
    }
    found = is_new ? 1 : 0;
    const StoreModel& model = is_new ? empty : old;
    RETURN_IF_ERROR(CheckClean(device, "of the image", spare));
    device->Push();
    const auto shown = CheckOpens(device, model, model.commits(), model.commits(), image.salt);
    device->Pop();
    RETURN_IF_ERROR(shown.status());
  } else {
    const auto none = [](const absl::Status& s) {
      return (absl::IsFailedPrecondition(s) &&
              absl::StrContains(s.message(), "not an Ashlar store")) ||
             (absl::IsDataLoss(s) && absl::StrContains(s.message(), "no two copies agree"));
    };
    if (!none(info.status())) return info.status();
    const auto db = DBImpl::Open(SmallOptions(), device, nullptr, FixedEnv());
    if (db.ok() || !none(db.status())) {
      return absl::DataLossError(absl::StrCat("open says ", db.status().ToString()));
    }
    const auto report = CheckDevice(device, nullptr);
    if (report.ok() ? report->damage_total != 1 || report->damage[0].what != "superblock"
                    : !none(report.status())) {
      return absl::DataLossError(absl::StrCat("check says ", report.status().ToString()));
    }
  }
  if (found < image.least || found > image.most) {
    return absl::DataLossError(found == 1 ? "the new store already" : "not the new store");
  }
  RETURN_IF_ERROR(FormatDevice(device, 0, OtherStoreId(2)));
  RETURN_IF_ERROR(CheckCrashImage(device, empty, 0, 0, image.salt).status());
  return found;
}

TEST_P(CrashInFormat, Images) {
  KeepFreedMemory();
  const Formatting& f = GetParam();
  io::MemoryDeviceOptions options;
  options.lba_bytes = f.lba_bytes;
  Scenario run;
  StoreModel old;
  if (f.before == Formatting::kEmpty) {
    run.device = *io::MemoryDevice::Create(options);
  } else {
    run.device = Formatted(options, 64u << 10);
    Recording unused;
    RecordingDevice recorder(run.device.get(), &unused);
    RecordedStore store(&recorder, &unused, &old, run.device->contents());
    // Over the first MiB and the last: its extents come round the device.
    for (int open = 0; open < 3; ++open) {
      store.Open();
      for (uint64_t n = 0; n < 60; ++n) {
        store.Put(Key(n * 3 % 41), Bytes(500 + n * 37, n + 100 * static_cast<uint64_t>(open)));
      }
      store.Flush();
      store.Put(Key(7), Bytes(3000, static_cast<uint64_t>(open)));
      if (open < 2 || f.before == Formatting::kClosed) {
        store.Close();
      } else {
        store.Die();
      }
    }
  }
  run.Begin();
  run.recording.markers.assign(1, {0, 1, 0});  // the one commit is the new store
  {
    RecordingDevice recorder(run.device.get(), &run.recording);
    ASSERT_TRUE(FormatDevice(&recorder, 0, OtherStoreId(1)).ok());
    run.recording.markers.push_back({run.recording.events.size(), 1, 1});
  }
  CheckAll(
      f.name, run,
      [&](ImageDevice* device, const CrashImage& i) { return CheckFormatImage(device, old, i); },
      f.images, 30000, 0, "");
}

INSTANTIATE_TEST_SUITE_P(
    Over, CrashInFormat,
    testing::Values(Formatting{"nothing", 4096, Formatting::kEmpty, 8},
                    Formatting{"nothing_small_blocks", 512, Formatting::kEmpty, 8},
                    Formatting{"a_closed_store", 4096, Formatting::kClosed, 2300},
                    Formatting{"a_killed_store", 512, Formatting::kKilled, 1000}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ashlar
