// What kv_bench asks of an engine. One implementation for each engine, in a source file of its own:
// store_ashlar.cc, store_rocksdb.cc.
//
// Errors: FailedPrecondition refuses for safety (exit 3), InvalidArgument and Unimplemented speak
// of the command line (exit 2), every other one is the engine's or the device's (exit 4).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/config.h"

namespace ashlar::bench {

// For one thread.
class Cursor {
 public:
  virtual ~Cursor() = default;
  virtual void SeekToFirst() = 0;
  virtual void SeekToLast() = 0;
  virtual void Seek(std::string_view target) = 0;
  virtual void Next() = 0;
  virtual void Prev() = 0;
  virtual bool Valid() const = 0;
  virtual std::string_view key() const = 0;
  virtual std::string_view value() const = 0;
  virtual absl::Status status() const = 0;
};

// For one thread.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual void Put(std::string_view key, std::string_view value) = 0;
  virtual void Delete(std::string_view key) = 0;
  // Writes what was added, whole, and forgets it.
  virtual absl::Status Commit() = 0;
};

// For one thread. What is found is valid until the next call.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual absl::Status Get(std::string_view key, bool* found, std::string_view* value) = 0;
  // Calls `take` with each key's answer, in order, and stops with its error.
  using Take = std::function<absl::Status(size_t i, bool found, std::string_view value)>;
  virtual absl::Status MultiGet(const std::vector<std::string>& keys, const Take& take) = 0;
};

// An open store. Every call from any thread.
class Store {
 public:
  virtual ~Store() = default;
  virtual absl::Status Put(std::string_view key, std::string_view value) = 0;
  virtual absl::Status Delete(std::string_view key) = 0;
  virtual std::unique_ptr<Batch> NewBatch() = 0;
  virtual std::unique_ptr<Reader> NewReader() = 0;
  // `cache`: whether what it reads may enter the engine's cache.
  virtual std::unique_ptr<Cursor> NewCursor(bool cache) = 0;

  // Memtables to tables; returns when they are written.
  virtual absl::Status Flush() = 0;
  // Whether the engine itself says that background work is running or pending; false where it does
  // not say.
  virtual bool Busy() = 0;
  virtual absl::Status Compact() = 0;

  // Bytes in use on the device.
  virtual absl::StatusOr<uint64_t> UsedBytes() = 0;
  // What the engine counts itself since it was opened; unset where it does not say.
  virtual std::optional<uint64_t> LogBytes() = 0;
  virtual std::optional<uint64_t> StallMicros() = 0;
  virtual std::string Stats() = 0;
  virtual absl::Status Close() = 0;
};

struct EngineInfo {
  std::string name;
  std::string version;
  std::string durability;           // of a write as this run makes them
  std::optional<bool> assertions;   // whether its library was built with them
  std::string multiget;             // how multireadrandom reads
  std::string backend, completion;  // how it meets the device
  std::optional<bool> fixed_buffers;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Refuses a device that may not be used, and changes nothing.
  virtual absl::Status CheckDevice() = 0;
  // Formats the device anew, whatever store of this program it holds, and opens it.
  virtual absl::StatusOr<std::unique_ptr<Store>> OpenFresh() = 0;
  // Opens a store that this program has made.
  virtual absl::StatusOr<std::unique_ptr<Store>> OpenExisting() = 0;
  // Gives the device back. No store is open.
  virtual absl::Status Release() = 0;
  // Complete once a store has been opened.
  virtual const EngineInfo& info() const = 0;
};

std::unique_ptr<Engine> NewAshlarEngine(const Config& config);
// InvalidArgument when its package was not found at build time.
absl::StatusOr<std::unique_ptr<Engine>> NewRocksdbEngine(const Config& config);

}  // namespace ashlar::bench
