// The plain data of the ground floor: addresses, requests, results, geometry. No behaviour beyond
// small helpers; no header of another floor is included here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ashlar::io {

// A logical block address of one device, counted in that device's blocks (Geometry::lba_bytes).
enum class Lba : uint64_t {};
constexpr uint64_t Raw(Lba lba) { return static_cast<uint64_t>(lba); }

enum class Op : uint8_t { kRead, kWrite, kFlush, kDeallocate };

// How a request ended; of several commands that belong together the last in this order counts.
// `kUnknown`: the command may or may not have been carried out.
enum class IoClass : uint8_t {
  kOk,
  kFull,     // the device or what lies under it has no room (ENOSPC, Capacity Exceeded)
  kRetry,    // not carried out; the same command may work later
  kPath,     // this path to the device failed; another may work
  kFatal,    // the command failed and will fail again
  kUnknown,  // reset, removal, cancelled, deadline passed: outcome not known
};

// Eight bytes, so that a hot path carries it by value. An absl::Status is made above it, by
// ToStatus.
struct IoStatus {
  IoClass cls = IoClass::kOk;
  uint8_t reserved = 0;
  uint16_t nvme = 0;  // NVMe status field (SC, SCT, CRD, More, DNR), 0 when there is none
  int32_t err = 0;    // errno, positive, 0 when there is none

  bool ok() const { return cls == IoClass::kOk; }
};
static_assert(sizeof(IoStatus) == 8);

// A stretch of the registered arena. `buffer` is the arena's piece (Arena::kPieceBytes each).
struct Piece {
  uint32_t buffer = 0;
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct LbaRange {
  Lba lba{};
  uint64_t blocks = 0;
};

enum RequestFlags : uint8_t {
  kFua = 1,         // write: durable when it completes
  kBackground = 2,  // may be held back in favour of others
};

// One operation. Its owner keeps it, its buffer and its ranges unchanged and in place from Submit
// until Poll or Drain gives it back; also after an error, also after a deadline.
struct Request {
  Op op = Op::kRead;
  uint8_t flags = 0;
  uint8_t device = 0;      // index into the devices the queue was opened over
  uint16_t placement = 0;  // FDP handle or write-life hint, 0 = none; ignored where there is none
  Lba lba{};
  uint32_t blocks = 0;
  std::span<const Piece>
      data;  // read, write: one piece of blocks * lba_bytes, aligned to lba_bytes
  std::span<const Piece> metadata;   // empty: no protection information yet
  std::span<const LbaRange> ranges;  // deallocate: what to give back
  uint64_t cookie = 0;               // the owner's
  uint64_t deadline_ns = 0;          // 0 = none

  IoStatus status;  // valid once the queue has given the request back
};

// What a device is, as read from it. Compared at every open with what the superblock remembers.
struct Identity {
  std::string model;
  std::string serial;  // empty: the device reports none
  uint32_t nsid = 0;
  std::array<uint8_t, 16> nguid{};
  std::array<uint8_t, 8> eui64{};
};

// Fixed for the life of an open device.
struct Geometry {
  uint32_t lba_bytes = 512;         // 512 or 4096
  uint32_t metadata_bytes = 0;      // 0 on everything supported today
  uint64_t capacity_blocks = 0;     // in lba_bytes
  uint32_t max_transfer_bytes = 0;  // one command; larger requests are split by the queue
  uint32_t max_segments = 0;
  bool volatile_cache = true;  // a completed write needs a flush or FUA to be durable
  bool native_fua = false;     // a kFua write is one trip; otherwise it is a write and a flush
  // A kFua write is one trip for the caller, and a write and a flush below: as of a file. It is
  // then lost like any other write when somebody else's flush fails in between.
  bool fua_flushes = false;
  uint32_t atomic_bytes = 0;  // power-fail atomic write, 0 = one LBA
  uint32_t atomic_boundary_bytes = 0;
  uint32_t preferred_write_bytes = 4096;
  uint32_t discard_grain_bytes = 0;  // 0 = no deallocate
  uint32_t discard_max_ranges = 1;
  uint64_t discard_max_bytes = 0;
  uint8_t dlfeat = 0;  // read-back after deallocate: 0 unknown, 1 zeros, 2 ones
  uint16_t poll_queues = 0;
  uint16_t placement_handles = 0;
  int32_t numa_node = -1;
  bool direct = true;  // false: the page cache is in between (a file without O_DIRECT)
  Identity identity;

  uint64_t capacity_bytes() const { return capacity_blocks * lba_bytes; }
};

}  // namespace ashlar::io
