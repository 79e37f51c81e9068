// What Get fills: a move-only owner of the bytes of one value. Reuse one Value for many Gets; its
// buffer is kept. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace ashlar {

class Value {
 public:
  Value() = default;
  Value(Value&&) = default;
  Value& operator=(Value&&) = default;
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  // Valid until the next Get into this Value, or its end.
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  std::string Release() && { return std::move(bytes_); }

  // For the engine.
  std::string* buffer() { return &bytes_; }

 private:
  std::string bytes_;
};

}  // namespace ashlar
