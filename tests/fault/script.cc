#include "tests/fault/script.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "io/check.h"
#include "tests/support/crash_rig.h"

namespace ashlar {
namespace {

constexpr uint32_t kExtentBytes = 64u << 10;
// A store that is full for a moment takes the write when it is made again.
constexpr int kTries = 4;

}  // namespace

std::unique_ptr<SimDevice> FormattedDrive(const SimDeviceOptions& options, uint64_t seed) {
  using Pages = std::vector<std::pair<uint64_t, std::vector<std::byte>>>;
  static std::map<std::string, Pages>* const known = new std::map<std::string, Pages>;
  Pages& pages = (*known)[options.Text()];
  if (pages.empty()) {
    SimDevice device(options, 1);
    CHECK(FormatDevice(&device, kExtentBytes, FixedStoreId()).ok());
    device.PowerCut(SimDevice::Luck::kLoseAll);
    const auto all = device.contents();
    for (uint64_t at = 0; at < all.size(); at += 4096) {
      const auto page = all.subspan(at, 4096);
      if (std::any_of(page.begin(), page.end(), [](std::byte b) { return b != std::byte{0}; })) {
        pages.emplace_back(at, std::vector<std::byte>(page.begin(), page.end()));
      }
    }
  }
  auto device = std::make_unique<SimDevice>(options, seed);
  for (const auto& [at, bytes] : pages) device->Overwrite(at, bytes);
  return device;
}

ScriptStore::~ScriptStore() {
  db_.reset();
  device_->set_observer(nullptr);
}

void ScriptStore::Watch() {
  if (monitor_ != nullptr && !monitor_->violation().empty() && wrong_.empty()) {
    wrong_ = "order: " + monitor_->violation();
  }
}

bool ScriptStore::Ended(const absl::Status& s) {
  Watch();
  if (s.ok()) return false;
  stopped_ = true;
  failed_ = s;
  return true;
}

void ScriptStore::Open() {
  if (stopped_) return;
  monitor_ = std::make_unique<OrderingMonitor>(device_->geometry(), device_->contents());
  device_->set_observer(monitor_.get());
  if (!monitor_->watching() && wrong_.empty()) wrong_ = "the order of commands can't be watched";
  auto db = DBImpl::Open(SmallOptions(), device_, nullptr, FixedEnv());
  if (Ended(db.status())) return;
  db_ = *std::move(db);
  durable_ = acknowledged_;
}

void ScriptStore::Write(const std::vector<StoreModel::Change>& changes, Durability durability) {
  if (stopped_) return;
  const WriteBatch batch = StoreModel::BatchOf(changes);
  model_.Commit(changes);
  commits_.push_back(changes);
  WriteOptions options;
  options.durability = durability;
  absl::Status s;
  for (int i = 0; i < kTries; ++i) {
    s = db_->Write(options, batch);
    if (!absl::IsResourceExhausted(s)) break;
  }
  if (Ended(s)) return;
  acknowledged_ = model_.commits();
  if (durability == Durability::kDurable) {
    durable_ = acknowledged_;
    for (const auto& [key, value] : changes) monitor_->Acknowledged(key, value);
    Watch();
  }
}

void ScriptStore::Sync() {
  if (stopped_ || Ended(db_->Sync())) return;
  for (uint32_t i = durable_; i < acknowledged_; ++i) {
    for (const auto& [key, value] : commits_[i]) monitor_->Acknowledged(key, value);
  }
  durable_ = acknowledged_;
  Watch();
}

void ScriptStore::Flush() {
  if (stopped_ || Ended(db_->Flush())) return;
  durable_ = acknowledged_;
}

void ScriptStore::MergeAll() {
  if (stopped_ || Ended(db_->MergeAll())) return;
  durable_ = acknowledged_;
}

void ScriptStore::Scan() {
  if (stopped_) return;
  const auto state = model_.State(acknowledged_);
  auto want = state.begin();
  const auto it = db_->NewIterator({});
  for (it->SeekToFirst(); it->Valid(); it->Next(), ++want) {
    const std::string_view value = it->value();
    if (!it->status().ok()) break;
    if (want == state.end() || it->key() != want->first || value != *want->second) {
      wrong_ = absl::StrCat("a scan shows ", std::string(it->key()), " instead of ",
                            want == state.end() ? "its end" : want->first);
      stopped_ = true;
      return;
    }
  }
  if (Ended(it->status())) return;
  if (want != state.end()) wrong_ = "a scan ends before " + want->first;
}

void ScriptStore::Close() {
  if (stopped_) return;
  if (before_close_) before_close_();
  if (db_->health().state != Health::State::kFailed) {
    const absl::Status s = db_->CheckSpace();
    if (!s.ok() && wrong_.empty()) wrong_ = s.ToString();
  }
  // Whatever it says, the store is closed then.
  if (!Ended(db_->Close())) durable_ = acknowledged_;
  db_.reset();
}

void ScriptStore::Die() {
  if (stopped_) return;
  device_->Die();
  db_.reset();
  Watch();
  const SimDevice::FaultPlan faults = device_->faults();
  device_->Revive();
  device_->set_faults(faults);
  device_->LandLeftovers();
}

const std::vector<Script>& Scripts() {
  static const auto* const scripts = new std::vector<Script>{
      {"puts",
       {},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 30; ++n) s.Put(n * 7 % 11, 20 + n * 37 % 900, n);
         s.Close();
       }},
      {"buffered puts",
       {.lba_bytes = 512},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 60; ++n) {
           s.Put(n * 7 % 23, n % 9 == 4 ? 12'000 : 400, n, Durability::kBuffered);
           if (n % 20 == 13) s.Sync();
         }
         s.Close();
       }},
      {"batches",
       {.lba_bytes = 512, .native_fua = false},
       [](ScriptStore& s) {
         s.Open();
         uint64_t n = 0;
         for (int i = 0; i < 20; ++i) {
           std::vector<StoreModel::Change> changes;
           for (int k = 0; k < 1 + i % 5; ++k, ++n) {
             std::optional<std::string> value;
             if (n % 3 != 1) value = Bytes(i == 7 ? 20'000 : 90, n);
             changes.emplace_back(Key(n * 5 % 13), value);
           }
           s.Write(changes, i % 2 == 0 ? Durability::kDurable : Durability::kBuffered);
         }
         s.Close();
       }},
      {"flushes",
       {.native_fua = false},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 18; ++n) {
           s.Put(n % 7, 3'000, n, Durability::kBuffered);
           if (n % 6 == 5) s.Flush();
         }
         s.Scan();
         s.Close();
       }},
      {"merges",
       {},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 24; ++n) {
           s.Put(n * 5 % 17, 9'000, n, Durability::kBuffered);
           if (n % 6 == 5) s.Flush();
         }
         s.MergeAll();
         s.Scan();
         s.Put(1, 500, 99);
         s.Close();
       }},
      {"deletes until empty",
       {.lba_bytes = 512},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 8; ++n) s.Put(n, 5'000, n, Durability::kBuffered);
         s.Flush();
         for (uint64_t n = 0; n < 8; ++n) s.Delete(n);
         s.MergeAll();
         s.Scan();
         s.Close();
       }},
      {"large values",
       {.max_transfer_bytes = 32u << 10},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 7; ++n) s.Put(n % 3, 60'000 + n * 9'000, n);
         s.Flush();
         s.Scan();
         s.Close();
       }},
      {"log segments",
       {},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 40; ++n) s.Put(n % 19, 40'000, n, Durability::kBuffered);
         s.Sync();
         s.Close();
       }},
      {"manifests",
       {},
       [](ScriptStore& s) {
         s.Open();
         // Tables with long bounds: each flush is an edit of three blocks, twice, and the manifest
         // is full before the end.
         for (uint64_t n = 0; n < 26; ++n) {
           s.Write({{std::string(4'000, static_cast<char>('a' + n % 3)), Bytes(30, n)}},
                   Durability::kBuffered);
           s.Flush();
         }
         s.Close();
       }},
      {"opens and closes",
       {.volatile_cache = false},
       [](ScriptStore& s) {
         for (uint64_t n = 0; n < 3; ++n) {
           s.Open();
           s.Put(n, 700, n);
           s.Close();
         }
       }},
      {"deaths",
       {.lba_bytes = 512, .native_fua = false},
       [](ScriptStore& s) {
         for (uint64_t n = 0; n < 9; ++n) {
           if (n % 3 == 0) s.Open();
           s.Put(n % 4, 1'500, n, n % 3 == 2 ? Durability::kDurable : Durability::kBuffered);
           if (n % 3 == 2) s.Die();
         }
         s.Open();
         s.Scan();
         s.Close();
       }},
      {"an iterator over merges",
       {.max_transfer_bytes = 4u << 10},
       [](ScriptStore& s) {
         s.Open();
         for (uint64_t n = 0; n < 6; ++n) s.Put(n, 4'000, n, Durability::kBuffered);
         s.Flush();
         {
           std::unique_ptr<Iterator> held;
           if (!s.stopped()) {
             held = s.db()->NewIterator({});
             held->SeekToFirst();
           }
           for (uint64_t n = 0; n < 6; ++n) s.Put(n, 4'000, 50 + n, Durability::kBuffered);
           s.Flush();
           s.MergeAll();
           for (int i = 0; held != nullptr && held->Valid() && i < 6; ++i) held->Next();
         }
         s.Scan();
         s.Close();
       }},
  };
  return *scripts;
}

}  // namespace ashlar
