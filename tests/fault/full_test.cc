// A store that is full at each of its last extents: it says so, takes deletes, gives back what they
// free, takes writes again, and no extent is lost on the way.
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "gtest/gtest.h"
#include "tests/fault/script.h"
#include "tests/support/crash_rig.h"
#include "tests/support/image_device.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

constexpr uint64_t kLastExtents = 64;
using Model = std::map<std::string, std::string>;

std::string Key(uint64_t n) { return absl::StrCat("key", absl::Dec(n, absl::kZeroPad6)); }
// About two thirds of an extent.
std::string Value(uint64_t n) { return Bytes(40'000 + n * 97 % 4'000, n); }

absl::StatusOr<std::unique_ptr<DBImpl>> OpenOn(io::Device* device) {
  return DBImpl::Open(SmallOptions(), device, nullptr, FixedEnv());
}

std::string Difference(DB* db, const Model& model) {
  auto want = model.begin();
  const auto it = db->NewIterator({});
  for (it->SeekToFirst(); it->Valid(); it->Next(), ++want) {
    if (want == model.end() || it->key() != want->first || it->value() != want->second) {
      return absl::StrCat("shows ", std::string(it->key()), " instead of ",
                          want == model.end() ? "the end" : want->first);
    }
  }
  if (!it->status().ok()) return it->status().ToString();
  return want == model.end() ? "" : "ends before " + want->first;
}

// Nothing leaks: each extent is free, or somebody's.
void ExpectAccounted(io::Device* device, const std::string& when) {
  const auto info = InspectDevice(device);
  ASSERT_TRUE(info.ok()) << when << ": " << info.status();
  const auto report = CheckDevice(device, nullptr);
  ASSERT_TRUE(report.ok()) << when << ": " << report.status();
  EXPECT_EQ(info->extents_superblock + info->extents_manifest + info->extents_log +
                info->extents_table + info->extents_free,
            info->extents_total)
      << when;
  EXPECT_EQ(report->damage_total, 0u) << when;
}

class FullAtTheEnd : public testing::Test {
 protected:
  // A store with kLastExtents left before it refuses, closed.
  void SetUp() override {
    KeepFreedMemory();
    const auto drive = FormattedDrive({}, 1);
    device_ = std::make_unique<ImageDevice>(drive->geometry());
    const auto contents = drive->contents();
    for (uint64_t at = 0; at < contents.size(); at += 4096) {
      device_->WriteBase(at, contents.subspan(at, 4096));
    }
    // How many records it takes until it is full, merged as far as it goes.
    uint64_t most = 0;
    for (const bool count : {true, false}) {
      auto db = OpenOn(device_.get());
      ASSERT_TRUE(db.ok()) << db.status();
      const uint64_t stop = count ? UINT64_MAX : most - kLastExtents * 3 / 2;
      for (next_ = 0; next_ < stop; ++next_) {
        const absl::Status s = (*db)->Put({Durability::kBuffered}, Key(next_), Value(next_));
        if (absl::IsResourceExhausted(s)) break;
        ASSERT_TRUE(s.ok()) << s;
        if (!count) model_[Key(next_)] = Value(next_);
      }
      most = next_;
      ASSERT_TRUE((*db)->Close().ok());
      db->reset();
      count ? device_->Undo() : device_->Keep();
    }
  }

  std::unique_ptr<ImageDevice> device_;
  Model model_;
  uint64_t next_ = 0;
};

TEST_F(FullAtTheEnd, EachOfTheLastExtents) {
  uint64_t levels = 0, refused_at_once = 0;
  for (uint64_t level = 0; level < kLastExtents; ++level) {
    if (level % std::max<uint64_t>(1, static_cast<uint64_t>(1 / g_scale)) != 0) continue;
    ++levels;
    const std::string when = absl::StrCat("level ", level);
    Model model = model_;
    uint64_t next = next_;
    {
      auto opened = OpenOn(device_.get());
      ASSERT_TRUE(opened.ok()) << when << ": " << opened.status();
      const std::unique_ptr<DBImpl> db = *std::move(opened);
      const auto put = [&](Durability durability) {
        const absl::Status s = db->Put({durability}, Key(next), Value(next));
        if (s.ok()) {
          model[Key(next)] = Value(next);
          ++next;
        }
        return s;
      };
      for (uint64_t i = 0; i < level; ++i) {
        ASSERT_EQ(put(Durability::kBuffered), absl::OkStatus()) << when;
        if (i % 8 == 7) ASSERT_EQ(db->Flush(), absl::OkStatus()) << when;
      }
      // Sometimes what is there is in tables, sometimes in the log.
      if (level % 2 == 0) ASSERT_EQ(db->Flush(), absl::OkStatus()) << when;
      absl::Status s;
      uint64_t more = 0;
      while ((s = put(level % 3 == 0 ? Durability::kDurable : Durability::kBuffered)).ok()) {
        ASSERT_LT(++more, 2000u) << when;
      }
      refused_at_once += more == 0;
      ASSERT_TRUE(absl::IsResourceExhausted(s)) << when << ": " << s;
      ASSERT_EQ(db->health().state, Health::State::kFull) << when;
      ASSERT_EQ(Difference(db.get(), model), "") << when << ", full";
      // A tenth goes, and about as much comes in again.
      uint64_t deleted = 0;
      for (auto it = model.begin(); it != model.end();) {
        if (deleted * 10 > model_.size()) break;
        ASSERT_EQ(db->Delete({}, it->first), absl::OkStatus()) << when;
        it = model.erase(it);
        ++deleted;
        if (it != model.end() && level % 2 == 1) ++it;
      }
      uint64_t again = 0;
      while (put(Durability::kBuffered).ok()) ASSERT_LT(++again, 2000u) << when;
      EXPECT_GE(again, deleted / 2) << when << ": " << deleted << " records were deleted";
      ASSERT_EQ(Difference(db.get(), model), "") << when << ", full again";
      ASSERT_EQ(db->CheckSpace(), absl::OkStatus()) << when;
      if (level % 4 == 1) {
        ASSERT_EQ(db->Sync(), absl::OkStatus());
      } else {
        ASSERT_EQ(db->Close(), absl::OkStatus()) << when;
      }
    }
    ExpectAccounted(device_.get(), when);
    {
      auto db = OpenOn(device_.get());
      ASSERT_TRUE(db.ok()) << when << ": " << db.status();
      ASSERT_EQ(Difference(db->get(), model), "") << when << ", reopened";
      // All of it can go, and it is empty then.
      if (level % 8 == 0) {
        for (const auto& [key, value] : model) {
          ASSERT_EQ((*db)->Delete({Durability::kBuffered}, key), absl::OkStatus()) << when;
        }
        ASSERT_EQ((*db)->MergeAll(), absl::OkStatus()) << when;
        ASSERT_EQ(Difference(db->get(), {}), "") << when;
        ASSERT_EQ((*db)->Close(), absl::OkStatus());
        const auto info = InspectDevice(device_.get());
        ASSERT_TRUE(info.ok());
        EXPECT_LT(info->extents_table, 8u) << when;
      }
    }
    ExpectAccounted(device_.get(), when + ", reopened");
    device_->Undo();
  }
  Count("fill_levels", levels);
  if (g_scale >= 1) EXPECT_EQ(levels, kLastExtents);
  EXPECT_LT(refused_at_once, levels);
}

}  // namespace
}  // namespace ashlar
