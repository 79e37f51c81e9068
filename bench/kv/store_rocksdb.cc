// RocksDB behind the interface of kv_bench: the only source that includes its headers. How it is
// configured, and why that is fair, stands in bench/README.md.
#include <dirent.h>
#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kv/device_prep.h"
#include "kv/file_system.h"
#include "kv/store.h"

namespace ashlar::bench {
namespace {

rocksdb::Slice ToSlice(std::string_view s) { return {s.data(), s.size()}; }
std::string_view ToView(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

absl::Status ToStatus(const rocksdb::Status& s) {
  if (s.ok()) return absl::OkStatus();
  if (s.IsNotFound()) return absl::NotFoundError("");
  if (s.IsCorruption()) return absl::DataLossError(s.ToString());
  if (s.IsNoSpace()) return absl::ResourceExhaustedError(s.ToString());
  return absl::InternalError(s.ToString());
}

class RocksCursor final : public Cursor {
 public:
  explicit RocksCursor(rocksdb::Iterator* it) : it_(it) {}
  void SeekToFirst() override { it_->SeekToFirst(); }
  void SeekToLast() override { it_->SeekToLast(); }
  void Seek(std::string_view target) override { it_->Seek(ToSlice(target)); }
  void Next() override { it_->Next(); }
  void Prev() override { it_->Prev(); }
  bool Valid() const override { return it_->Valid(); }
  std::string_view key() const override { return ToView(it_->key()); }
  std::string_view value() const override { return ToView(it_->value()); }
  absl::Status status() const override { return ToStatus(it_->status()); }

 private:
  const std::unique_ptr<rocksdb::Iterator> it_;
};

class RocksBatch final : public Batch {
 public:
  RocksBatch(rocksdb::DB* db, const rocksdb::WriteOptions& options) : db_(db), options_(options) {}
  void Put(std::string_view key, std::string_view value) override {
    batch_.Put(ToSlice(key), ToSlice(value));
  }
  void Delete(std::string_view key) override { batch_.Delete(ToSlice(key)); }
  absl::Status Commit() override {
    absl::Status status = ToStatus(db_->Write(options_, &batch_));
    batch_.Clear();
    return status;
  }

 private:
  rocksdb::DB* const db_;
  const rocksdb::WriteOptions options_;
  rocksdb::WriteBatch batch_;
};

class RocksReader final : public Reader {
 public:
  explicit RocksReader(rocksdb::DB* db) : db_(db) {}

  absl::Status Get(std::string_view key, bool* found, std::string_view* value) override {
    value_.Reset();
    const rocksdb::Status s = db_->Get({}, db_->DefaultColumnFamily(), ToSlice(key), &value_);
    *found = s.ok();
    *value = s.ok() ? ToView(value_) : std::string_view();
    return s.IsNotFound() ? absl::OkStatus() : ToStatus(s);
  }

  absl::Status MultiGet(const std::vector<std::string>& keys, const Take& take) override {
    const size_t n = keys.size();
    slices_.assign(keys.begin(), keys.end());
    values_.clear();
    values_.resize(n);
    statuses_.assign(n, rocksdb::Status());
    db_->MultiGet({}, db_->DefaultColumnFamily(), n, slices_.data(), values_.data(),
                  statuses_.data());
    for (size_t i = 0; i < n; ++i) {
      const rocksdb::Status& s = statuses_[i];
      if (!s.ok() && !s.IsNotFound()) return ToStatus(s);
      if (absl::Status t = take(i, s.ok(), ToView(values_[i])); !t.ok()) return t;
    }
    return absl::OkStatus();
  }

 private:
  rocksdb::DB* const db_;
  rocksdb::PinnableSlice value_;
  std::vector<rocksdb::Slice> slices_;
  std::vector<rocksdb::PinnableSlice> values_;
  std::vector<rocksdb::Status> statuses_;
};

// Blocks of the files in a directory.
uint64_t BytesOfFiles(const std::string& directory) {
  uint64_t bytes = 0;
  DIR* d = opendir(directory.c_str());
  if (d == nullptr) return 0;
  while (const dirent* entry = readdir(d)) {
    struct stat st;
    if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
      bytes += static_cast<uint64_t>(st.st_blocks) * 512;
    }
  }
  closedir(d);
  return bytes;
}

class RocksStore final : public Store {
 public:
  // `mount`: the file system that is all its own, or empty.
  RocksStore(rocksdb::DB* db, std::string directory, std::string mount, bool sync)
      : db_(db), directory_(std::move(directory)), mount_(std::move(mount)) {
    options_.sync = sync;
  }

  absl::Status Put(std::string_view key, std::string_view value) override {
    return ToStatus(db_->Put(options_, ToSlice(key), ToSlice(value)));
  }
  absl::Status Delete(std::string_view key) override {
    return ToStatus(db_->Delete(options_, ToSlice(key)));
  }
  std::unique_ptr<Batch> NewBatch() override {
    return std::make_unique<RocksBatch>(db_.get(), options_);
  }
  std::unique_ptr<Reader> NewReader() override { return std::make_unique<RocksReader>(db_.get()); }
  std::unique_ptr<Cursor> NewCursor(bool cache) override {
    rocksdb::ReadOptions options;
    options.fill_cache = cache;
    return std::make_unique<RocksCursor>(db_->NewIterator(options));
  }
  absl::Status Flush() override { return ToStatus(db_->Flush(rocksdb::FlushOptions())); }

  bool Busy() override {
    for (const std::string* name : {&rocksdb::DB::Properties::kMemTableFlushPending,
                                    &rocksdb::DB::Properties::kNumRunningFlushes,
                                    &rocksdb::DB::Properties::kCompactionPending,
                                    &rocksdb::DB::Properties::kNumRunningCompactions}) {
      uint64_t n = 0;
      if (db_->GetIntProperty(*name, &n) && n > 0) return true;
    }
    return false;
  }

  absl::Status Compact() override {
    return ToStatus(db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  }

  absl::StatusOr<uint64_t> UsedBytes() override {
    if (mount_.empty()) return BytesOfFiles(directory_);
    struct statvfs st;
    if (statvfs(mount_.c_str(), &st) != 0) {
      return absl::InternalError(absl::StrCat(mount_, ": ", std::strerror(errno)));
    }
    return static_cast<uint64_t>(st.f_blocks - st.f_bfree) * st.f_frsize;
  }

  std::optional<uint64_t> LogBytes() override { return Counter("db.wal_bytes_written"); }
  std::optional<uint64_t> StallMicros() override { return Counter("db.user_write_stall_micros"); }

  std::string Stats() override {
    std::string text;
    db_->GetProperty(rocksdb::DB::Properties::kStats, &text);
    return text;
  }

  absl::Status Close() override { return ToStatus(db_->Close()); }

 private:
  // Kept by RocksDB whether or not its Statistics are on; here they are off, as they cost time.
  std::optional<uint64_t> Counter(const char* name) {
    std::map<std::string, std::string> map;
    if (!db_->GetMapProperty(rocksdb::DB::Properties::kDBStats, &map)) return std::nullopt;
    const auto it = map.find(name);
    if (it == map.end()) return std::nullopt;
    return std::strtoull(it->second.c_str(), nullptr, 10);
  }

  const std::unique_ptr<rocksdb::DB> db_;
  const std::string directory_, mount_;
  rocksdb::WriteOptions options_;
};

rocksdb::Options MakeOptions(const Config& config) {
  rocksdb::Options o;
  o.create_if_missing = true;
  o.use_direct_reads = true;
  o.use_direct_io_for_flush_and_compaction = true;
  o.write_buffer_size = config.write_buffer_size;
  o.max_write_buffer_number = 3;
  o.max_background_jobs = 2;
  o.target_file_size_base = 64 << 20;
  o.max_bytes_for_level_base = 256 << 20;
  o.level_compaction_dynamic_level_bytes = true;
  o.compaction_readahead_size = 2 << 20;
  o.max_open_files = -1;
  o.manual_wal_flush = !config.sync;
  o.compression = config.compression_type == "lz4"      ? rocksdb::kLZ4Compression
                  : config.compression_type == "zstd"   ? rocksdb::kZSTD
                  : config.compression_type == "snappy" ? rocksdb::kSnappyCompression
                                                        : rocksdb::kNoCompression;
  rocksdb::BlockBasedTableOptions table;
  table.block_size = 4096;
  table.block_cache = rocksdb::NewLRUCache(config.cache_size);
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  if (config.bloom_bits > 0) {
    table.filter_policy.reset(
        rocksdb::NewBloomFilterPolicy(static_cast<double>(config.bloom_bits)));
  }
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return o;
}

class RocksEngine final : public Engine {
 public:
  explicit RocksEngine(const Config& config) : config_(config) {
    info_.name = "rocksdb";
    info_.version = rocksdb::GetRocksVersionAsString();
    info_.durability = config.sync ? "sync=1" : "sync=0 manual_wal_flush=1";
    info_.assertions = ROCKSDB_ASSERTIONS;
    info_.multiget = "MultiGet";
  }

  absl::Status CheckDevice() override {
    switch (KindOf(config_.device)) {
      case PathKind::kBlockDevice:
        return CheckUsable(config_);
      case PathKind::kDirectory:
        return CheckDirectory();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat(config_.device,
                         ": rocksdb takes a block device (a loop device makes one of "
                         "a file: losetup --direct-io=on) or a directory"));
    }
  }

  absl::StatusOr<std::unique_ptr<Store>> OpenFresh() override {
    if (KindOf(config_.device) == PathKind::kBlockDevice) {
      if (absl::Status s = files_.Unmount(); !s.ok()) return s;
      // Every refusal that formatting has, and the first touch, as Ashlar meets them.
      auto id = FormatAshlar(config_);
      if (!id.ok()) return id.status();
      if (absl::Status s = files_.Make(config_.device, *id); !s.ok()) return s;
      if (absl::Status s = files_.Mount(config_.device); !s.ok()) return s;
    } else {
      rocksdb::Options options;
      if (absl::Status s = ToStatus(rocksdb::DestroyDB(Directory(), options)); !s.ok()) return s;
      mkdir(Directory().c_str(), 0700);
    }
    return Open();
  }

  absl::StatusOr<std::unique_ptr<Store>> OpenExisting() override {
    if (KindOf(config_.device) == PathKind::kBlockDevice) {
      if (absl::Status s = files_.Mount(config_.device); !s.ok()) return s;
    } else if (KindOf(Directory()) != PathKind::kDirectory) {
      return absl::FailedPreconditionError(
          absl::StrCat(config_.device, ": holds no store that kv_bench made"));
    }
    return Open();
  }

  absl::Status Release() override { return files_.Unmount(); }
  const EngineInfo& info() const override { return info_; }

 private:
  // Of a directory only one of a name of ours is used.
  std::string Directory() const {
    return absl::StrCat(files_.directory().empty() ? config_.device : files_.directory(),
                        "/ashlar-bench.rocksdb");
  }

  absl::Status CheckDirectory() const {
    if (config_.destroy_data || KindOf(Directory()) == PathKind::kDirectory) {
      return absl::OkStatus();
    }
    DIR* d = opendir(config_.device.c_str());
    if (d == nullptr) {
      return absl::InternalError(absl::StrCat(config_.device, ": ", std::strerror(errno)));
    }
    std::string found;
    while (const dirent* entry = readdir(d)) {
      const std::string name = entry->d_name;
      if (name != "." && name != ".." && name != "lost+found") found = name;
    }
    closedir(d);
    if (found.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        config_.device, ": is neither empty nor used by kv_bench before (it holds ", found, ")"));
  }

  absl::StatusOr<std::unique_ptr<Store>> Open() {
    rocksdb::DB* db = nullptr;
    const rocksdb::Status s = rocksdb::DB::Open(MakeOptions(config_), Directory(), &db);
    if (!s.ok()) return ToStatus(s);
    info_.backend = files_.directory().empty() ? "directory" : "ext4";
    info_.completion = "synchronous calls, O_DIRECT";
    return std::make_unique<RocksStore>(db, Directory(), files_.directory(), config_.sync);
  }

  const Config config_;
  BenchFileSystem files_;
  EngineInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> NewRocksdbEngine(const Config& config) {
  return std::make_unique<RocksEngine>(config);
}

}  // namespace ashlar::bench
