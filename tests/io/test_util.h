// Small helpers of the io tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "io/arena.h"
#include "io/device.h"
#include "tests/support/seed.h"

namespace ashlar::io {

// A request that owns its piece or range, and the calls around it for one at a time.
struct Call {
  Request request;
  Piece piece;
  LbaRange range;

  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // A read or write of `bytes` at `at` in the arena.
  void Set(Op op, const Geometry& geometry, uint64_t lba, uint64_t at, uint32_t bytes,
           uint8_t flags = 0) {
    request = Request{};
    request.op = op;
    request.flags = flags;
    request.lba = Lba{lba};
    request.blocks = bytes / geometry.lba_bytes;
    piece = Piece{static_cast<uint32_t>(at / Arena::kPieceBytes),
                  static_cast<uint32_t>(at % Arena::kPieceBytes), bytes};
    request.data = std::span(&piece, 1);
  }
  void SetFlush() {
    request = Request{};
    request.op = Op::kFlush;
  }
  void SetDeallocate(uint64_t lba, uint64_t blocks) {
    request = Request{};
    request.op = Op::kDeallocate;
    range = LbaRange{Lba{lba}, blocks};
    request.ranges = std::span(&range, 1);
  }
  // Submits and waits for it alone.
  IoStatus Run(Queue& queue) {
    Request* one = &request;
    queue.Submit(std::span(&one, 1));
    queue.Drain();
    return request.status;
  }
};

inline void Fill(std::byte* to, uint64_t bytes, uint64_t key) {
  uint64_t x = key * 0x9e3779b97f4a7c15ull + 1;
  for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(to + i, &x, 8);
  }
}

inline bool IsFilled(const std::byte* from, uint64_t bytes, uint64_t key) {
  std::vector<std::byte> want(bytes);
  Fill(want.data(), bytes, key);
  return std::memcmp(from, want.data(), bytes) == 0;
}

}  // namespace ashlar::io
