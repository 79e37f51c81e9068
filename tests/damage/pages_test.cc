// Every byte of a store's data pages, in several ways, and every bit of its index, top and footer
// pages. The store is opened once; each case changes a page under it, with the decoded indexes
// forgotten, and reads what stands there through Get and iterators.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/table/index_cache.h"
#include "gtest/gtest.h"
#include "tests/damage/cases.h"
#include "tests/damage/lives.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

// A store that is open, read-only, while pages of it change.
class OpenStore {
 public:
  explicit OpenStore(Subject* subject) : s_(*subject) {
    Options options = SmallOptions();
    options.read_only = true;
    db_ = *DBImpl::Open(options, s_.device.get(), nullptr, FixedEnv());
    cache_ = (*db_->TakeView())->files->cache.get();
    for (const std::string& key : s_.keys) right_.push_back(s_.model.At(s_.commits, key));
  }

  std::byte* At(uint64_t at) { return s_.device->Edit(at, 1); }

  // Which keys a Get of which reads the page, by number.
  std::vector<size_t> KeysOf(const Live& page) {
    std::vector<size_t> keys;
    At(page.begin)[100] ^= std::byte{1};
    cache_->Clear();
    for (size_t k = 0; k < s_.keys.size(); ++k) {
      if (absl::IsDataLoss(db_->Get(ReadOptions(), s_.keys[k], &value_))) keys.push_back(k);
    }
    At(page.begin)[100] ^= std::byte{1};
    cache_->Clear();
    return keys;
  }

  // With the page changed: what is wrong with the answers. Nothing of them may come from it, so a
  // Get that reads it is an error that names it, and so is a walk.
  std::string Read(const Live& page, const std::vector<size_t>& keys, uint64_t salt, bool forget) {
    if (forget) cache_->Clear();
    if (!keys.empty()) {
      const size_t k = keys[salt % keys.size()];
      status_ = db_->Get(ReadOptions(), s_.keys[k], &value_);
      if (!Names(status_, page))
        return absl::StrCat("Get of ", s_.keys[k], ": ", status_.ToString());
    }
    if (!keys.empty() && salt / 64 % 32 != 0) return "";
    // Beside it: every other key.
    const size_t other = salt / 4096 % s_.keys.size();
    status_ = db_->Get(ReadOptions(), s_.keys[other], &value_);
    if (!Right(other) && !Names(status_, page)) {
      return absl::StrCat("Get of ", s_.keys[other], ": ", status_.ToString());
    }
    return Walk(page);
  }

  std::string CheckFinds(const Live& page) {
    const auto report = CheckDevice(s_.device.get(), nullptr);
    if (!report.ok()) return report.status().ToString();
    if (report->damage_total != 1) return absl::StrCat("check finds ", report->damage_total);
    if (!Names(absl::DataLossError(report->damage[0].where), page)) return report->damage[0].where;
    return "";
  }

  void Restore() {
    s_.device->Undo();
    cache_->Clear();
  }

 private:
  bool Right(size_t k) const {
    if (status_.ok()) return right_[k] != nullptr && value_.view() == *right_[k];
    return absl::IsNotFound(status_) && right_[k] == nullptr;
  }
  static bool Names(const absl::Status& s, const Live& page) {
    return absl::IsDataLoss(s) &&
           s.message().find(absl::StrCat("(byte ", page.named, ")")) != std::string::npos;
  }
  // Ends at the page with an error that names it; goes on behind it.
  std::string Walk(const Live& page) {
    const auto& state = s_.State(s_.commits);
    const auto it = db_->NewIterator(ReadOptions());
    bool met = false;
    it->SeekToFirst();
    for (size_t i = 0;;) {
      if (it->Valid()) {
        if (i == state.size() || it->key() != state[i].first || it->value() != state[i].second) {
          return absl::StrCat("an iterator shows ", std::string(it->key()));
        }
        ++i;
        it->Next();
        continue;
      }
      if (it->status().ok()) {
        if (i != state.size()) return absl::StrCat("an iterator ends before ", state[i].first);
        break;
      }
      if (!Names(it->status(), page)) return it->status().ToString();
      met = true;
      if (i == state.size() || ++i == state.size()) break;
      it->Seek(state[i].first);
    }
    return met ? "" : "a walk over everything does not meet it";
  }

  Subject& s_;
  std::unique_ptr<DBImpl> db_;
  IndexCache* cache_;
  std::vector<const std::string*> right_;
  Value value_;
  absl::Status status_;
};

constexpr int kPatterns = 12;

// The byte as pattern `p` leaves it.
std::byte Changed(const std::byte* at, int p) {
  switch (p) {
    case 8:
      return std::byte{0};
    case 9:
      return std::byte{0xff};
    case 10:
      return std::byte{static_cast<uint8_t>(static_cast<uint8_t>(*at) + 1)};
    case 11:
      return at[-1];
    default:
      return *at ^ std::byte{static_cast<uint8_t>(1u << p)};
  }
}

void EveryByte(Subject* subject, Part part, int patterns, const char* count) {
  OpenStore store(subject);
  Cases cases(count, part == Part::kData ? 400000 : 290000);
  uint64_t pages = 0, checked = 0;
  for (const Live& page : subject->live) {
    if (page.part != part) continue;
    ++pages;
    const std::vector<size_t> keys = store.KeysOf(page);
    std::byte* const bytes = store.At(page.begin);
    for (uint64_t at = 0; at < kPageBytes && !cases.stopped(); ++at) {
      for (int p = 0; p < patterns; ++p) {
        const std::byte old = bytes[at];
        const std::byte changed = at == 0 && p == 11 ? ~old : Changed(bytes + at, p);
        if (changed == old || !cases.Next()) continue;
        bytes[at] = changed;
        const uint64_t salt = cases.Salt(1);
        std::string wrong = store.Read(page, keys, salt, part == Part::kIndex);
        if (wrong.empty() && salt % 50 == 0) {
          ++checked;
          wrong = store.CheckFinds(page);
        }
        bytes[at] = old;
        cases.Done(absl::StrCat("page at ", page.begin, " byte ", at, " pattern ", p), wrong);
      }
    }
    store.Restore();
  }
  EXPECT_GE(pages, 9u);
  Count("damage_whole_store_checks_of_changed_pages", checked);
}

TEST(DamagedPages, EveryByteOfTheDataPages) {
  Subject subject(ClosedLife(4096));
  EveryByte(&subject, Part::kData, kPatterns, "damage_read_data_bytes");
}

TEST(DamagedPages, EveryBitOfTheIndexPages) {
  Subject subject(ClosedLife(4096));
  EveryByte(&subject, Part::kIndex, 8, "damage_read_index_bits");
}

}  // namespace
}  // namespace ashlar
