// Latencies in nanoseconds: each power of two is cut into 64 buckets, so what is read back is
// within 1 % of what was added. One thread at a time; threads fill their own and are merged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::bench {

class Histogram {
 public:
  Histogram() : counts_(kBuckets, 0) {}
  void Add(uint64_t ns);
  void Merge(const Histogram& other);

  uint64_t count() const { return count_; }
  double mean_ns() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }
  uint64_t max_ns() const { return max_; }
  // The middle of the bucket that holds the given share of all entries, in (0, 1].
  double AtShare(double share) const;
  // As db_bench prints it with --histogram, a line for each power of two.
  std::string ToString() const;

 private:
  static constexpr int kSubBits = 6;
  static constexpr int kBuckets = (64 - kSubBits + 1) << kSubBits;
  static int BucketOf(uint64_t ns);
  static uint64_t LowerBound(int bucket);

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0, sum_ = 0, min_ = UINT64_MAX, max_ = 0;
};

}  // namespace ashlar::bench
