// Reads and writes of extents: the one place, with extent_map, that knows where an extent lies.
// Everything above names (list of extents, byte offset into it).
//
// A Lease is one queue and one buffer for the length of a call. Any thread; a call waits for a
// lease at most as long as another call holds one.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/counter.h"
#include "engine/base/sync.h"
#include "engine/base/types.h"
#include "io/device.h"

namespace ashlar {

class ExtentIo {
 public:
  // `block_bytes` is the LBA of the device the store was made on, which its writes are padded to;
  // 0: this one's. `leases` queues, each with a buffer of `buffer_bytes`, and `extra_bytes` more
  // registered memory for extra(). The device outlives the ExtentIo.
  static absl::StatusOr<std::unique_ptr<ExtentIo>> Create(io::Device* device, uint32_t extent_bytes,
                                                          uint32_t leases, uint32_t buffer_bytes,
                                                          uint64_t extra_bytes,
                                                          uint32_t block_bytes = 0);

  class Lease {
   public:
    Lease(Lease&& other) noexcept : io_(other.io_), slot_(other.slot_) { other.io_ = nullptr; }
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    io::Queue& queue() const;
    std::byte* buffer() const;
    uint32_t buffer_bytes() const;

   private:
    friend class ExtentIo;
    Lease(ExtentIo* io, size_t slot) : io_(io), slot_(slot) {}
    ExtentIo* io_;
    size_t slot_;
  };
  Lease Acquire();

  // All wait for completion. Offsets and sizes are multiples of the LBA; `data` lies in a lease's
  // buffer or in extra(). Reads that fail in a way that may pass are tried again, three times in
  // all.
  absl::Status Read(io::Queue& queue, std::span<const ExtentId> extents, uint64_t offset,
                    std::span<std::byte> data);
  absl::Status Write(io::Queue& queue, std::span<const ExtentId> extents, uint64_t offset,
                     std::span<const std::byte> data);
  // What any thread was told is written before this call is durable when it returns OK. A flush
  // that fails may have lost what others wrote, and the device will not say so again: so from the
  // first failure on all fail, and none is OK while one that was under way beside it has not been
  // heard of. Never ResourceExhausted: for lack of space it may have lost as much.
  absl::Status Flush(io::Queue& queue);
  // A write with FUA that its caller submits and awaits, from before until after, counts as a
  // flush: below files and many a drive it is a write and a flush. `status`: its end; lack of space
  // is no failure of the flush. What was written is durable when EndFua returns OK.
  uint64_t BeginFua() { return BeginFlush(); }
  absl::Status EndFua(uint64_t ticket, const absl::Status& status);
  // The same at a byte offset of the device, for superblocks.
  absl::Status ReadRaw(io::Queue& queue, uint64_t at, std::span<std::byte> data);
  absl::Status WriteRaw(io::Queue& queue, uint64_t at, std::span<const std::byte> data);

  // The requests for one stretch of `extents`, one for each run of neighbours; the caller submits
  // them. They point into `pieces`, which must stay in place as long.
  struct Command {
    io::Request request;
    io::Piece piece;
  };
  void Prepare(io::Op op, std::span<const ExtentId> extents, uint64_t offset,
               std::span<const std::byte> data, uint8_t flags, std::vector<Command>* commands);

  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(uint32_t depth);

  io::Device& device() const { return *device_; }
  const io::Geometry& geometry() const { return device_->geometry(); }
  uint32_t extent_bytes() const { return extent_bytes_; }
  // What the store's log and manifest writes are padded to: at least the device's LBA.
  uint32_t block_bytes() const { return block_bytes_; }
  uint32_t buffer_bytes() const { return buffer_bytes_; }
  std::byte* extra() const { return extra_; }

  // Commands that were prepared or sent, and their bytes. Any thread.
  struct Counts {
    uint64_t reads = 0, bytes_read = 0, writes = 0, bytes_written = 0, flushes = 0;
  };
  Counts counts() const;

  // "extent 5 page 3 (byte 20484096)".
  std::string Where(ExtentId extent, uint32_t page_in_extent) const;

 private:
  struct Slot {
    std::unique_ptr<io::Queue> queue;
    std::byte* buffer = nullptr;
  };
  ExtentIo(io::Device* device, uint32_t extent_bytes, uint32_t block_bytes, uint32_t buffer_bytes)
      : device_(device),
        extent_bytes_(extent_bytes),
        block_bytes_(block_bytes),
        buffer_bytes_(buffer_bytes) {}
  void CountCommands(io::Op op, uint64_t commands, uint64_t bytes);
  absl::Status At(io::Op op, io::Queue& queue, uint64_t at, std::span<const std::byte> data);
  absl::Status Run(io::Queue& queue, std::vector<Command>& commands);
  uint64_t BeginFlush();
  void EndFlush(uint64_t ticket, const absl::Status& status);
  // Waits for those that have begun by now; the first failure of any.
  absl::Status OthersEnded();

  io::Device* const device_;
  const uint32_t extent_bytes_;
  const uint32_t block_bytes_;
  const uint32_t buffer_bytes_;
  std::unique_ptr<io::Arena> arena_;
  std::byte* extra_ = nullptr;
  std::vector<Slot> slots_;
  Mutex mutex_;
  CondVar released_;
  std::vector<size_t> idle_ ABSL_GUARDED_BY(mutex_);

  Counter reads_, bytes_read_, writes_, bytes_written_, flushes_;

  Mutex flush_mutex_;
  CondVar flush_ended_;
  uint64_t flushes_begun_ ABSL_GUARDED_BY(flush_mutex_) = 0;
  std::set<uint64_t> flushing_ ABSL_GUARDED_BY(flush_mutex_);  // tickets of those under way
  absl::Status flush_failed_ ABSL_GUARDED_BY(flush_mutex_);    // the first that failed
};

}  // namespace ashlar
