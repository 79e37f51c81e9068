#include "kv/keyspace.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ashlar::bench {
namespace {

constexpr uint64_t kPoolBytes = 1u << 20;
constexpr double kZipfianTheta = 0.99;  // YCSB's constant

void PutBigEndian(uint64_t x, char* out) {
  for (int i = 7; i >= 0; --i) {
    out[i] = static_cast<char>(x & 0xff);
    x >>= 8;
  }
}

double Zeta(uint64_t n) {
  double sum = 0;
  for (uint64_t i = 1; i <= n; ++i) sum += std::pow(1.0 / static_cast<double>(i), kZipfianTheta);
  return sum;
}

// Rounds of inserts: each gives every loaded key one neighbour.
uint64_t Rounds(uint64_t num, uint64_t inserts) {
  return std::min<uint64_t>(255, (inserts + num - 1) / num);
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed) : n_(n), seed_(seed) {
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

uint64_t Permutation::operator()(uint64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (Mix64(right + (round << 60) + seed_) & mask);
      left = right;
      right = next;
    }
    i = left << half_bits_ | right;
  } while (i >= n_);
  return i;
}

Zipfian::Zipfian(uint64_t n) : n_(n), zeta_n_(Zeta(n)), alpha_(1 / (1 - kZipfianTheta)) {
  const double zeta_2 = Zeta(2);
  eta_ = n < 2 ? 0
               : (1 - std::pow(2.0 / static_cast<double>(n), 1 - kZipfianTheta)) /
                     (1 - zeta_2 / zeta_n_);
}

uint64_t Zipfian::Draw(Rng* rng) const {
  const double u = rng->Unit();
  const double uz = u * zeta_n_;
  if (uz < 1 || n_ < 2) return 0;
  // With two ranks eta is 0 / 0, and this is the only other one.
  if (n_ == 2 || uz < 1 + std::pow(0.5, kZipfianTheta)) return 1;
  const double rank = static_cast<double>(n_) * std::pow(eta_ * u - eta_ + 1, alpha_);
  return std::min(n_ - 1, static_cast<uint64_t>(rank));
}

KeySpace::KeySpace(uint64_t num, uint64_t inserts_max, uint64_t key_size, uint64_t value_size,
                   uint64_t seed)
    : num_(num),
      key_size_(key_size),
      value_size_(value_size),
      // Not of the seed: a later run with another one reads the same store.
      stamp_seed_(0x6173686c61720000ull),
      order_(num, Mix64(seed)),
      scramble_(num, Mix64(seed + 1)),
      insert_order_(num, Mix64(seed + 2)),
      ids_(num * (1 + Rounds(num, inserts_max))),
      bits_(new std::atomic<uint64_t>[ids_ / 64 + 1]),
      records_(num) {
  Forget();
  Rng rng(seed);
  pool_.resize(value_size + kPoolBytes);
  for (size_t i = 0; i + 8 <= pool_.size(); i += 8) {
    const uint64_t x = rng.Next();
    std::memcpy(&pool_[i], &x, 8);
  }
}

uint64_t KeySpace::IdOfRecord(uint64_t r) const {
  if (r < num_) return r;
  return r / num_ * num_ + insert_order_(r % num_);
}

uint64_t KeySpace::NextInsert() {
  const uint64_t r = records_.fetch_add(1, std::memory_order_relaxed);
  if (r < ids_) return r;
  records_.fetch_sub(1, std::memory_order_relaxed);
  return UINT64_MAX;
}

void KeySpace::MakeKey(uint64_t id, std::string* key) const {
  key->assign(key_size_, '0');
  PutBigEndian((id % num_) << 8 | id / num_, key->data());
}

bool KeySpace::ParseKey(std::string_view key, uint64_t* id) const {
  if (key.size() != key_size_) return false;
  uint64_t x = 0;
  for (int i = 0; i < 8; ++i) x = x << 8 | static_cast<uint8_t>(key[i]);
  if (x >> 8 >= num_) return false;
  *id = (x & 0xff) * num_ + (x >> 8);
  return *id < ids_ && key.find_first_not_of('0', 8) == std::string_view::npos;
}

std::string_view KeySpace::MakeValue(uint64_t id, Rng* rng, std::string* buffer) const {
  buffer->assign(pool_, rng->Uniform(kPoolBytes), value_size_);
  const uint64_t stamp = Stamp(id);
  std::memcpy(buffer->data(), &stamp, std::min<size_t>(8, value_size_));
  return *buffer;
}

bool KeySpace::ValueBelongs(uint64_t id, std::string_view value) const {
  const uint64_t stamp = Stamp(id);
  return value.size() == value_size_ &&
         std::memcmp(value.data(), &stamp, std::min<size_t>(8, value_size_)) == 0;
}

void KeySpace::SetLive(uint64_t id) {
  const uint64_t bit = uint64_t{1} << (id % 64);
  if ((bits_[id / 64].fetch_or(bit, std::memory_order_release) & bit) == 0) {
    live_.fetch_add(1, std::memory_order_relaxed);
  }
}

void KeySpace::SetDead(uint64_t id) {
  const uint64_t bit = uint64_t{1} << (id % 64);
  if ((bits_[id / 64].fetch_and(~bit, std::memory_order_release) & bit) != 0) {
    live_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void KeySpace::Forget() {
  for (uint64_t i = 0; i <= ids_ / 64; ++i) bits_[i].store(0, std::memory_order_relaxed);
  live_ = 0;
  records_ = num_;
}

}  // namespace ashlar::bench
