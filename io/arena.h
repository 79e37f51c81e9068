// The registered memory: one reservation, made at open, from which every buffer that meets a device
// is cut. Rings register it once, in pieces of kPieceBytes. Immutable after Create; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "io/check.h"
#include "io/types.h"

namespace ashlar::io {

class Arena {
 public:
  static constexpr uint64_t kPieceBytes = 1ull << 30;
  static constexpr size_t kAlign = 4096;

  // Reserves and touches `bytes` (rounded up to kAlign), in huge pages where the kernel has them.
  // ResourceExhausted when the memory is not there.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(size_t bytes);
  ~Arena();

  // From now on up to eight arenas that end are kept, and given out again, with what is in them,
  // by a Create of the same size: for a process that opens thousands of stores, in which the kernel
  // would otherwise do most of the work.
  static void KeepFreed();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::byte* At(const Piece& piece) const {
    return data_ + piece.buffer * kPieceBytes + piece.offset;
  }
  // The piece for [p, p + bytes), which must lie in the arena and in one registered piece.
  Piece PieceOf(const std::byte* p, uint32_t bytes) const {
    const uint64_t at = static_cast<uint64_t>(p - data_);
    CHECK(p >= data_ && at + bytes <= size_ && at / kPieceBytes == (at + bytes - 1) / kPieceBytes);
    return Piece{static_cast<uint32_t>(at / kPieceBytes), static_cast<uint32_t>(at % kPieceBytes),
                 bytes};
  }

 private:
  Arena(std::byte* data, size_t size);
  std::byte* const data_;
  const size_t size_;
  const int process_;  // that has it: a child does not inherit the memory
};

}  // namespace ashlar::io
