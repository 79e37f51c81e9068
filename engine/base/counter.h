// A count that many threads raise and few look at.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ashlar {

// Threads share a cache line only when there are more of them than lines.
class Counter {
 public:
  void Add(uint64_t n) { lines_[Line()].value.fetch_add(n, std::memory_order_relaxed); }
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (const auto& line : lines_) sum += line.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr size_t kLines = 8;
  static size_t Line() {
    static constinit std::atomic<size_t> threads{0};
    static thread_local const size_t line =
        threads.fetch_add(1, std::memory_order_relaxed) % kLines;
    return line;
  }
  struct alignas(64) CacheLine {
    std::atomic<uint64_t> value{0};
  };
  std::array<CacheLine, kLines> lines_;
};

}  // namespace ashlar
