// What a store is opened, read and written with. Every field has its unit, its range and its
// default.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ashlar {

enum class LogLevel { kInfo, kWarning, kError };

// Called from any thread, never with a lock held that a call of the DB needs; must not block for
// long.
using LogSink = std::function<void(LogLevel, std::string_view text)>;

struct Options {
  // All memory the store takes: memtables, index cache, buffers. Bytes, from 2 MiB. The store's
  // list of tables (about 150 bytes for each table of 16 MiB) and values handed to the caller come
  // on top.
  uint64_t memory_bytes = 256ull << 20;

  // Makes the store when `path` names nothing: a sparse file of `create_bytes`. Devices are never
  // formatted by Open; see admin.h.
  bool create_if_missing = false;
  uint64_t create_bytes = 1ull << 30;

  // Nothing is written, no claim is taken; the log is replayed into memory. Writes are refused.
  bool read_only = false;

  // How long Open waits for a store whose last owner is gone while its commands still run.
  // Milliseconds.
  uint32_t claim_wait_ms = 5000;

  // The store is idle when nobody has written for so long: then the memtable goes to a table, and
  // merges give back what takes needless space. Milliseconds, from 1.
  uint32_t idle_ms = 10'000;

  // Where the engine says what it chose and what went wrong. None: it says nothing.
  LogSink log_sink;
};

class Snapshot;

struct ReadOptions {
  // Reads see the store as it was when this was made; null: as it is. One of another DB is
  // InvalidArgument.
  const Snapshot* snapshot = nullptr;

  // An iterator shows keys >= lower_bound and < upper_bound; empty: no such bound. It keeps copies
  // of them. They mean nothing to Get.
  std::string_view lower_bound, upper_bound;
};

enum class Durability {
  kDurable,   // on the media before the call returns
  kBuffered,  // in the log's buffer; see Write
};

struct WriteOptions {
  Durability durability = Durability::kDurable;
};

}  // namespace ashlar
