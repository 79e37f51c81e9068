// Little-endian integers and varints, and the one cursor over bytes that may be hostile.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace ashlar {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

template <typename T>
T LoadLe(const void* p) {
  static_assert(std::is_integral_v<T>);
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
void StoreLe(void* p, T v) {
  static_assert(std::is_integral_v<T>);
  std::memcpy(p, &v, sizeof v);
}
template <typename T>
void AppendLe(std::string* out, T v) {
  char raw[sizeof v];
  StoreLe(raw, v);
  out->append(raw, sizeof raw);
}

constexpr size_t kMaxVarint = 10;
inline size_t VarintSize(uint64_t v) {
  size_t n = 1;
  for (; v >= 0x80; v >>= 7) ++n;
  return n;
}
// Writes at p, returns the end.
inline char* StoreVarint(char* p, uint64_t v) {
  for (; v >= 0x80; v >>= 7) *p++ = static_cast<char>(v | 0x80);
  *p++ = static_cast<char>(v);
  return p;
}
inline void AppendVarint(std::string* out, uint64_t v) {
  char raw[kMaxVarint];
  out->append(raw, static_cast<size_t>(StoreVarint(raw, v) - raw));
}
inline void AppendBytes(std::string* out, std::string_view bytes) {
  AppendVarint(out, bytes.size());
  out->append(bytes);
}

// Reads from the front of a span; every read says whether it fitted, and after one that did not,
// none does.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : p_(bytes.data()), end_(p_ + bytes.size()) {}

  bool ok() const { return ok_; }
  bool done() const { return p_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - p_); }

  template <typename T>
  bool Fixed(T* v) {
    if (left() < sizeof(T)) return Fail();
    *v = LoadLe<T>(p_);
    p_ += sizeof(T);
    return true;
  }
  // The shortest form only: one value has one encoding.
  bool Varint(uint64_t* v) {
    uint64_t r = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (p_ == end_) return Fail();
      const uint8_t b = static_cast<uint8_t>(*p_++);
      if (shift == 63 && b > 1) return Fail();
      r |= uint64_t{b & 0x7fu} << shift;
      if (b < 0x80) {
        if (b == 0 && shift > 0) return Fail();
        *v = r;
        return true;
      }
    }
    return Fail();
  }
  bool VarintAtMost(uint64_t max, uint64_t* v) { return Varint(v) && (*v <= max || Fail()); }
  bool Raw(size_t n, std::string_view* out) {
    if (left() < n) return Fail();
    *out = std::string_view(p_, n);
    p_ += n;
    return true;
  }
  bool Bytes(uint64_t max, std::string_view* out) {
    uint64_t n;
    return VarintAtMost(max, &n) && Raw(n, out);
  }

 private:
  bool Fail() {
    ok_ = false;
    p_ = end_;
    return false;
  }
  const char* p_;
  const char* end_;
  bool ok_ = true;
};

}  // namespace ashlar
