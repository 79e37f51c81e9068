// A store on a memory device, and what the tests of engine/db do to it: open, close, crash, check.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "gtest/gtest.h"
#include "io/memory_device.h"
#include "tests/support/seed.h"

namespace ashlar {

constexpr uint64_t kMiB = 1ull << 20;
inline const WriteOptions kBufferedWrite{Durability::kBuffered};

#define ASHLAR_OK(expr)                                    \
  do {                                                     \
    const absl::Status ashlar_ok_ = (expr);                \
    ASSERT_TRUE(ashlar_ok_.ok()) << ashlar_ok_.ToString(); \
  } while (0)

struct RigOptions {
  uint64_t bytes = 64 * kMiB;
  uint32_t lba_bytes = 4096;
  bool volatile_cache = true;
  bool native_fua = true;
  uint32_t extent_bytes = 0;
  uint64_t memory_bytes = 16 * kMiB;
  uint64_t level_base_bytes = 0;  // Env's
  bool threads = false;  // the store's own; without, its background work happens inside the calls

  std::string Name() const {
    return absl::StrCat(bytes / kMiB, " MiB, LBA ", lba_bytes, volatile_cache ? ", cache" : "",
                        native_fua ? ", FUA" : "", ", extents of ", extent_bytes, ", memory ",
                        memory_bytes / kMiB, " MiB",
                        level_base_bytes == 0 ? "" : absl::StrCat(", base ", level_base_bytes),
                        threads ? ", threads" : "");
  }
};

// `length` bytes that follow from `seed`: cheap to make again and to compare.
inline std::string Bytes(uint64_t seed, size_t length) {
  std::string bytes(length, '\0');
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + 0x1234567;
  for (size_t i = 0; i < length; ++i) {
    if (i % 8 == 0) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
    }
    bytes[i] = static_cast<char>(x >> (i % 8 * 8));
  }
  return bytes;
}

class Rig {
 public:
  using Hook = io::MemoryDevice::Hook;

  explicit Rig(const RigOptions& options = {}) : options_(options) {
    io::MemoryDeviceOptions d;
    d.bytes = options.bytes;
    d.lba_bytes = options.lba_bytes;
    d.volatile_cache = options.volatile_cache;
    d.native_fua = options.native_fua;
    device_ = io::MemoryDevice::Create(d).value();
    StoreId id;
    id.bytes.fill(7);
    EXPECT_EQ(FormatDevice(device_.get(), options.extent_bytes, id), absl::OkStatus());
    SetHook(nullptr);
  }
  ~Rig() { db_.reset(); }

  Options StoreOptions() const {
    Options o;
    o.memory_bytes = options_.memory_bytes;
    o.log_sink = [this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(level, text);
    };
    return o;
  }
  Env StoreEnv() const {
    Env env;
    env.level_base_bytes = options_.level_base_bytes;
    if (!options_.threads) env.executor = InlineExecutor();
    return env;
  }
  absl::StatusOr<std::unique_ptr<DBImpl>> OpenAnother(const Options& o) {
    return DBImpl::Open(o, device_.get(), nullptr, StoreEnv());
  }
  absl::Status Open() {
    auto db = OpenAnother(StoreOptions());
    if (db.ok()) db_ = *std::move(db);
    return db.status();
  }
  absl::Status Close() {
    const absl::Status s = db_->Close();
    db_.reset();
    return s;
  }
  // The process dies: nothing that it does from here on reaches the device. Then the power goes
  // too, and of the unflushed writes those stay for which `keep` says so.
  void Crash(const std::function<bool(size_t)>& keep = [](size_t) { return true; }) {
    frozen_ = true;
    db_.reset();
    frozen_ = false;
    device_->LoseUnflushed(keep);
  }
  // Whatever the device holds is intact.
  void Check(const std::string& when) {
    auto report = CheckDevice(device_.get(), nullptr);
    ASSERT_TRUE(report.ok()) << when << ": " << report.status();
    for (const Damage& d : report->damage) {
      ADD_FAILURE() << when << ": " << d.what << " " << d.where << ": " << d.detail;
    }
  }

  void SetHook(Hook hook) {
    auto next = std::make_shared<Hook>(std::move(hook));
    device_->set_hook([this, next](const io::Request& request, const std::byte* data) {
      if (frozen_ && request.op != io::Op::kRead) return io::IoStatus{io::IoClass::kFatal, 0, 0, 5};
      return *next ? (*next)(request, data) : io::IoStatus{};
    });
  }

  DBImpl* operator->() const { return db_.get(); }
  DBImpl* db() const { return db_.get(); }
  std::unique_ptr<DBImpl>& holder() { return db_; }
  io::MemoryDevice* device() const { return device_.get(); }
  const RigOptions& options() const { return options_; }
  std::vector<std::pair<LogLevel, std::string>> messages() const {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

  absl::Status Put(std::string_view key, std::string_view value) {
    return db_->Put(WriteOptions{}, key, value);
  }
  absl::Status Delete(std::string_view key) { return db_->Delete(WriteOptions{}, key); }
  // The value, or the status as text in angle brackets.
  std::string Get(std::string_view key) const { return Get(db_.get(), key); }
  static std::string Get(DB* db, std::string_view key) {
    Value value;
    const absl::Status s = db->Get(ReadOptions{}, key, &value);
    if (absl::IsNotFound(s)) return s.message().empty() ? "<none>" : "<NotFound with a text>";
    return s.ok() ? std::string(value.view()) : absl::StrCat("<", s.ToString(), ">");
  }

 private:
  const RigOptions options_;
  std::unique_ptr<io::MemoryDevice> device_;
  std::unique_ptr<DBImpl> db_;
  std::atomic<bool> frozen_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<LogLevel, std::string>> messages_;
};

// Everything an iterator shows from its start.
inline std::map<std::string, std::string> Contents(Iterator* it) {
  std::map<std::string, std::string> all;
  std::string last;
  bool first = true;
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    EXPECT_TRUE(first || std::string(it->key()) > last) << "keys out of order";
    first = false;
    last = it->key();
    all.emplace(it->key(), it->value());
  }
  EXPECT_EQ(it->status(), absl::OkStatus());
  return all;
}
inline std::map<std::string, std::string> Contents(DB* db) {
  return Contents(db->NewIterator(ReadOptions{}).get());
}

// EXPECT_EQ of two such maps, without printing megabytes.
inline void ExpectSame(const std::map<std::string, std::string>& got,
                       const std::map<std::string, std::string>& want, const std::string& when) {
  auto g = got.begin();
  auto w = want.begin();
  while (g != got.end() && w != want.end() && *g == *w) ++g, ++w;
  if (g == got.end() && w == want.end()) return;
  const auto show = [](const std::pair<const std::string, std::string>& e) {
    return absl::StrCat("\"", e.first.substr(0, 60), "\" (", e.first.size(),
                        ") = ", e.second.size(), " bytes \"", e.second.substr(0, 40), "\"");
  };
  ADD_FAILURE() << when << ": " << got.size() << " records instead of " << want.size()
                << "; first difference: got " << (g == got.end() ? "the end" : show(*g))
                << ", want " << (w == want.end() ? "the end" : show(*w));
}

}  // namespace ashlar
