// Ashlar behind the interface of kv_bench: the public headers alone.
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ashlar/admin.h"
#include "ashlar/db.h"
#include "kv/device_prep.h"
#include "kv/store.h"

namespace ashlar::bench {
namespace {

class AshlarCursor final : public Cursor {
 public:
  explicit AshlarCursor(std::unique_ptr<Iterator> it) : it_(std::move(it)) {}
  void SeekToFirst() override { it_->SeekToFirst(); }
  void SeekToLast() override {
    it_->SeekToLast();
    if (it_->Valid() && it_->key() == kMarkKey) it_->Prev();
  }
  void Seek(std::string_view target) override { it_->Seek(target); }
  void Next() override { it_->Next(); }
  void Prev() override { it_->Prev(); }
  // The mark is the last key, and no record of the run.
  bool Valid() const override { return it_->Valid() && it_->key() != kMarkKey; }
  std::string_view key() const override { return it_->key(); }
  std::string_view value() const override { return it_->value(); }
  absl::Status status() const override { return it_->status(); }

 private:
  std::unique_ptr<Iterator> it_;
};

class AshlarBatch final : public Batch {
 public:
  AshlarBatch(DB* db, WriteOptions options) : db_(db), options_(options) {}
  void Put(std::string_view key, std::string_view value) override { batch_.Put(key, value); }
  void Delete(std::string_view key) override { batch_.Delete(key); }
  absl::Status Commit() override {
    absl::Status status = db_->Write(options_, batch_);
    batch_.Clear();
    return status;
  }

 private:
  DB* const db_;
  const WriteOptions options_;
  WriteBatch batch_;
};

class AshlarReader final : public Reader {
 public:
  explicit AshlarReader(DB* db) : db_(db) {}

  absl::Status Get(std::string_view key, bool* found, std::string_view* value) override {
    absl::Status status = db_->Get({}, key, &value_);
    *found = status.ok();
    *value = status.ok() ? value_.view() : std::string_view();
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  absl::Status MultiGet(const std::vector<std::string>& keys, const Take& take) override {
    for (size_t i = 0; i < keys.size(); ++i) {
      bool found = false;
      std::string_view value;
      if (absl::Status s = Get(keys[i], &found, &value); !s.ok()) return s;
      if (absl::Status s = take(i, found, value); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

 private:
  DB* const db_;
  Value value_;
};

class AshlarStore final : public Store {
 public:
  AshlarStore(std::unique_ptr<DB> db, bool sync) : db_(std::move(db)) {
    options_.durability = sync ? Durability::kDurable : Durability::kBuffered;
  }

  absl::Status Put(std::string_view key, std::string_view value) override {
    return db_->Put(options_, key, value);
  }
  absl::Status Delete(std::string_view key) override { return db_->Delete(options_, key); }
  std::unique_ptr<Batch> NewBatch() override {
    return std::make_unique<AshlarBatch>(db_.get(), options_);
  }
  std::unique_ptr<Reader> NewReader() override { return std::make_unique<AshlarReader>(db_.get()); }
  std::unique_ptr<Cursor> NewCursor(bool) override {
    return std::make_unique<AshlarCursor>(db_->NewIterator({}));
  }
  absl::Status Flush() override { return db_->Flush(); }
  bool Busy() override { return !db_->stats().settled; }
  absl::Status Compact() override { return db_->CompactRange({}, {}); }

  // Owned, assigned and freed extents: all that are not free.
  absl::StatusOr<uint64_t> UsedBytes() override {
    const ashlar::Stats s = db_->stats();
    return (s.extents_total - s.extents_free) * s.extent_bytes;
  }
  std::optional<uint64_t> LogBytes() override { return db_->stats().log_bytes_written; }
  std::optional<uint64_t> StallMicros() override {
    const ashlar::Stats s = db_->stats();
    return (s.memtable_stalls.total_ns + s.merge_stalls.total_ns + s.paced_stalls.total_ns +
            s.space_stalls.total_ns) /
           1000;
  }
  std::string Stats() override { return db_->stats().ToJson() + "\n"; }

  absl::Status Close() override { return db_->Close(); }

 private:
  const std::unique_ptr<DB> db_;
  WriteOptions options_;
};

class AshlarEngine final : public Engine {
 public:
  explicit AshlarEngine(const Config& config) : config_(config) {
    info_.name = "ashlar";
    info_.version = ASHLAR_VERSION;
    info_.durability = config.sync ? "kDurable" : "kBuffered";
    info_.multiget = "a loop of Get";
  }

  absl::Status CheckDevice() override { return CheckUsable(config_); }

  absl::StatusOr<std::unique_ptr<Store>> OpenFresh() override {
    if (auto id = FormatAshlar(config_); !id.ok()) return id.status();
    auto db = OpenDb();
    if (!db.ok()) return db.status();
    if (absl::Status s = (*db)->Put({}, kMarkKey, "made by kv_bench"); !s.ok()) return s;
    return Opened(*std::move(db));
  }

  absl::StatusOr<std::unique_ptr<Store>> OpenExisting() override {
    auto db = OpenDb();
    if (!db.ok()) return db.status();
    Value value;
    const absl::Status mark = (*db)->Get({}, kMarkKey, &value);
    if (absl::IsNotFound(mark)) {
      return absl::FailedPreconditionError(
          absl::StrCat(config_.device, ": holds an Ashlar store that kv_bench did not make"));
    }
    if (!mark.ok()) return mark;
    return Opened(*std::move(db));
  }

  absl::Status Release() override { return absl::OkStatus(); }
  const EngineInfo& info() const override { return info_; }

 private:
  absl::StatusOr<std::unique_ptr<DB>> OpenDb() const {
    Options options;
    options.idle_ms = static_cast<uint32_t>(config_.idle_ms);
    options.memory_bytes = config_.cache_size + 2 * config_.write_buffer_size;
    options.log_sink = [](LogLevel level, std::string_view text) {
      if (level == LogLevel::kInfo) return;
      std::fprintf(stderr, "ashlar: %.*s\n", static_cast<int>(text.size()), text.data());
    };
    return DB::Open(options, config_.device);
  }

  absl::StatusOr<std::unique_ptr<Store>> Opened(std::unique_ptr<DB> db) {
    if (const auto limits = db->limits(); config_.value_size > limits.value_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("--value_size=", config_.value_size,
                                                     ": this store takes values up to ",
                                                     limits.value_bytes, " bytes"));
    }
    // The public API says how the device is driven in words only.
    auto info = InspectStore(config_.device);
    if (!info.ok()) return info.status();
    info_.backend = info->device.substr(0, info->device.find(' '));
    info_.completion = absl::StrContains(info->device, "interrupts") ? "interrupts" : "";
    if (absl::StrContains(info->device, "fixed buffers")) {
      info_.fixed_buffers = true;
    } else if (absl::StrContains(info->device, "plain buffers")) {
      info_.fixed_buffers = false;
    }
    return std::make_unique<AshlarStore>(std::move(db), config_.sync);
  }

  const Config config_;
  EngineInfo info_;
};

}  // namespace

std::unique_ptr<Engine> NewAshlarEngine(const Config& config) {
  return std::make_unique<AshlarEngine>(config);
}

}  // namespace ashlar::bench
