// Which keys a run uses, what their values are, and which of them are live.
//
// A key is a number, big-endian in its first 8 bytes, filled up with '0' as db_bench does. Record r
// of the load is key r << 8; what YCSB inserts later lies between the loaded keys, spread over all
// of them: the low byte counts the rounds. An id is the number of the bit that says whether the key
// is live: round * num + place.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ashlar::bench {

// A bijective scramble of 64 bits (the finaliser of SplitMix64).
inline uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// SplitMix64. One thread at a time.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15ull); }
  // In [0, n), n > 0.
  uint64_t Uniform(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// A random order of [0, n) that is computed, not stored: four rounds of a Feistel network over the
// next even power of two, walked until the result is below n.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_;
  uint64_t seed_;
  int half_bits_ = 1;
};

// Ranks in [0, n), rank 0 the most frequent, P(rank) ~ 1 / (rank + 1)^0.99: the algorithm of Gray
// et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994), as YCSB uses it
// (Cooper et al., SoCC 2010). The constructor takes O(n) time. Immutable.
class Zipfian {
 public:
  explicit Zipfian(uint64_t n);
  uint64_t Draw(Rng* rng) const;

 private:
  uint64_t n_;
  double zeta_n_, alpha_, eta_;
};

class KeySpace {
 public:
  KeySpace(uint64_t num, uint64_t inserts_max, uint64_t key_size, uint64_t value_size,
           uint64_t seed);

  uint64_t num() const { return num_; }
  uint64_t value_size() const { return value_size_; }
  uint64_t pair_bytes() const { return key_size_ + value_size_; }
  // The id of record r: below num the r-th key in order, from there on the (r - num)-th insert.
  uint64_t IdOfRecord(uint64_t r) const;
  // A new record's number, or UINT64_MAX when all inserts that were planned for are used up.
  uint64_t NextInsert();
  // Records so far, those being inserted included.
  uint64_t records() const { return records_.load(std::memory_order_relaxed); }
  uint64_t InLoadOrder(uint64_t i) const { return order_(i); }
  uint64_t Scrambled(uint64_t rank) const { return scramble_(rank); }

  void MakeKey(uint64_t id, std::string* key) const;
  // False: no key of this run.
  bool ParseKey(std::string_view key, uint64_t* id) const;

  // Incompressible bytes that begin with a stamp of the id; valid while the KeySpace lives and
  // until the next call with this buffer.
  std::string_view MakeValue(uint64_t id, Rng* rng, std::string* buffer) const;
  bool ValueBelongs(uint64_t id, std::string_view value) const;

  bool live(uint64_t id) const {
    return (bits_[id / 64].load(std::memory_order_acquire) >> (id % 64)) & 1;
  }
  void SetLive(uint64_t id);
  void SetDead(uint64_t id);
  void Forget();  // nothing is live
  uint64_t live_keys() const { return live_.load(std::memory_order_relaxed); }
  uint64_t live_bytes() const { return live_keys() * pair_bytes(); }

 private:
  uint64_t Stamp(uint64_t id) const { return Mix64(id ^ stamp_seed_); }

  const uint64_t num_, key_size_, value_size_;
  const uint64_t stamp_seed_;
  const Permutation order_, scramble_, insert_order_;
  const uint64_t ids_;
  std::unique_ptr<std::atomic<uint64_t>[]> bits_;
  std::atomic<uint64_t> live_{0};
  std::atomic<uint64_t> records_;
  std::string pool_;  // random bytes that values are cut from
};

}  // namespace ashlar::bench
