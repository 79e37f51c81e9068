// Ashlar: an embedded key-value store that owns a raw block device (or a file in its place).
//
//   auto db = ashlar::DB::Open(ashlar::Options{}, "/dev/nvme0n1");   // formatted before: admin.h
//   absl::Status s = (*db)->Put(ashlar::WriteOptions{}, "key", "value");
//
// Every call may be made from any thread, several at a time. Keys are ordered by their bytes.
//
// Errors, for every call:
//   InvalidArgument     a bad argument: empty key, key, value or batch over its limit
//   FailedPrecondition  the call does not fit the state: closed, read-only, not an Ashlar store
//   ResourceExhausted   no room on the device (see Health), or memory_bytes too small
//   DataLoss            damage, naming the place; never wrong data
//   Unavailable         the device is claimed by another, or refused the command for now
//   Internal, Unknown   the device failed a command, or its outcome is not known
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ashlar/iterator.h"
#include "ashlar/options.h"
#include "ashlar/snapshot.h"
#include "ashlar/stats.h"
#include "ashlar/value.h"
#include "ashlar/write_batch.h"

namespace ashlar {

struct Health {
  enum class State {
    kWritable,
    kFull,      // reads and deletes work; writes work again once there is room
    kReadOnly,  // opened so, or closed
    kFailed,  // a write or flush failed: reads work, writes are refused until the store is reopened
  };
  State state = State::kWritable;
  absl::Status cause;         // why it is not writable
  int64_t since_unix_ms = 0;  // when the state was entered
};

class DB {
 public:
  // Limits. The value and batch limits of a small store are lower: see limits().
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxValueBytes = 16u << 20;
  struct Limits {
    size_t key_bytes;
    size_t value_bytes;  // min(16 MiB, store / 64, what a batch may hold)
    size_t batch_bytes;  // of WriteBatch::bytes(): min(64 MiB, half a memtable)
  };

  // Opens the store at `path` (a block device or a file) and takes the exclusive claim on it,
  // replays what the log holds and is ready to write. NotFound; FailedPrecondition when it is not
  // an Ashlar store, of a newer format, mounted, or on a device that is smaller than the store or
  // not the one it was made on; Unavailable naming the live process that has it open; DataLoss
  // naming the damaged place. After an error nothing on the device has changed that an earlier
  // state of the store needs.
  static absl::StatusOr<std::unique_ptr<DB>> Open(const Options& options, const std::string& path);

  // Closes, as far as Close can; an iterator still alive answers with an error from then on.
  virtual ~DB() = default;
  DB(const DB&) = delete;
  DB& operator=(const DB&) = delete;

  // A batch of one change: see Write.
  absl::Status Put(const WriteOptions& options, std::string_view key, std::string_view value);
  // Deleting a key that is not there is no error.
  absl::Status Delete(const WriteOptions& options, std::string_view key);

  // Applies the batch whole or not at all, after every write that returned before. kDurable: on the
  // media when it returns OK. kBuffered: in the log's buffer; the death of the process may lose
  // what was not yet handed to the device (at most 1 ms or 256 KiB of it) and what is in flight (at
  // most 4 such pieces); loss of power what followed the last device flush, of which there is one a
  // second while such writes exist. What is lost is always the newest. A kDurable write, Sync and
  // Close make every earlier write durable. After an error from the device the write is in doubt:
  // when the store is opened again it is there whole or not at all. ResourceExhausted: no room;
  // batches of deletes alone are taken until the last reserve.
  virtual absl::Status Write(const WriteOptions& options, const WriteBatch& batch) = 0;

  // NotFound (without text) when there is no such key.
  virtual absl::Status Get(const ReadOptions& options, std::string_view key, Value* value) = 0;

  // Not Valid() until the first Seek.
  virtual std::unique_ptr<Iterator> NewIterator(const ReadOptions& options) = 0;

  // The store as it is now; never null. Of a closed store: one with which every read answers as
  // without it.
  virtual std::unique_ptr<const Snapshot> GetSnapshot() = 0;

  // Writes the memtable to a table and waits for it.
  virtual absl::Status Flush() = 0;

  // Flushes, and merges what has keys in [begin, end) down to the last level, where deletes and
  // what they hide are dropped unless a snapshot or iterator sees them; waits for it. Empty: no
  // such bound. The store does by itself what it needs; this is for who wants the space or the read
  // speed now. DataLoss: damage keeps it from merging.
  virtual absl::Status CompactRange(std::string_view begin, std::string_view end) = 0;

  // Makes every write that returned before durable.
  virtual absl::Status Sync() = 0;

  virtual Health health() const = 0;
  virtual Limits limits() const = 0;
  // Never fails and does no I/O; of a closed store what was counted by callers is left.
  virtual Stats stats() const = 0;

  // Makes everything durable, writes the memtable to a table, stops background work and gives the
  // device back. FailedPrecondition, and nothing happens, while iterators or snapshots are alive:
  // it says how many. Every later call answers FailedPrecondition. Closing twice is OK.
  virtual absl::Status Close() = 0;

 protected:
  DB() = default;
};

}  // namespace ashlar
