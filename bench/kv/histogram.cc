#include "kv/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace ashlar::bench {

// Below 2 * 64 a bucket is one nanosecond; above, bucket (s, m) begins at m << s with m in [64,
// 128).
int Histogram::BucketOf(uint64_t ns) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(ns)) - kSubBits - 1);
  return (shift << kSubBits) + static_cast<int>(ns >> shift);
}

uint64_t Histogram::LowerBound(int bucket) {
  const int shift = std::max(0, (bucket >> kSubBits) - 1);
  return static_cast<uint64_t>(bucket - (shift << kSubBits)) << shift;
}

void Histogram::Add(uint64_t ns) {
  ++counts_[BucketOf(ns)];
  ++count_;
  sum_ += ns;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
}

void Histogram::Merge(const Histogram& other) {
  for (int b = 0; b < kBuckets; ++b) counts_[b] += other.counts_[b];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

double Histogram::AtShare(double share) const {
  if (count_ == 0) return 0;
  const auto wanted =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (int b = 0; b < kBuckets; ++b) {
    seen += counts_[b];
    if (seen < wanted) continue;
    const uint64_t low = LowerBound(b);
    const uint64_t width = (b >> kSubBits) < 2 ? 1 : uint64_t{1} << ((b >> kSubBits) - 1);
    const double middle = static_cast<double>(low) + static_cast<double>(width - 1) / 2;
    return std::clamp(middle, static_cast<double>(min_), static_cast<double>(max_));
  }
  return static_cast<double>(max_);
}

std::string Histogram::ToString() const {
  if (count_ == 0) return "Count: 0\n";
  char line[200];
  std::snprintf(line, sizeof line, "Count: %llu Average: %.4f\n",
                static_cast<unsigned long long>(count_), mean_ns() / 1000);
  std::string text = line;
  std::snprintf(line, sizeof line, "Min: %.3f  Median: %.4f  Max: %.3f\n",
                static_cast<double>(min_) / 1000, AtShare(0.5) / 1000,
                static_cast<double>(max_) / 1000);
  text += line;
  std::snprintf(line, sizeof line,
                "Percentiles: P50: %.2f P75: %.2f P99: %.2f P99.9: %.2f P99.99: %.2f\n",
                AtShare(0.5) / 1000, AtShare(0.75) / 1000, AtShare(0.99) / 1000,
                AtShare(0.999) / 1000, AtShare(0.9999) / 1000);
  text += line;
  text += "------------------------------------------------------\n";
  uint64_t seen = 0;
  for (int bits = 0; bits <= 64; ++bits) {
    const uint64_t low = bits == 0 ? 0 : uint64_t{1} << (bits - 1);
    uint64_t n = 0;
    for (int b = 0; b < kBuckets; ++b) {
      if (counts_[b] != 0 && static_cast<int>(std::bit_width(LowerBound(b))) == bits)
        n += counts_[b];
    }
    if (n == 0) continue;
    seen += n;
    const double total = static_cast<double>(count_);
    std::snprintf(line, sizeof line, "[ %12.3f, %12.3f ) %10llu %7.3f%% %7.3f%%\n",
                  static_cast<double>(low) / 1000, std::ldexp(1.0, bits) / 1000,
                  static_cast<unsigned long long>(n), 100 * static_cast<double>(n) / total,
                  100 * static_cast<double>(seen) / total);
    text += line;
  }
  return text;
}

}  // namespace ashlar::bench
