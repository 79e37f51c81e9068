// The engine's vocabulary: one type for each kind of number, so that they can't be mixed up.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>

namespace ashlar {

// Position of a change in the commit order; 0 is before the first.
using SequenceNumber = uint64_t;

// Number of an extent, counted from the start of the device in units of the store's extent size.
enum class ExtentId : uint32_t {};
constexpr uint32_t Raw(ExtentId id) { return static_cast<uint32_t>(id); }

// What one writing of a table, segment or manifest is called: the epoch of the open that wrote it
// and a counter within that epoch. Never used twice in the life of a store; table and segment ids
// are write ids.
struct WriteId {
  uint32_t epoch = 0;
  uint32_t counter = 0;
  constexpr uint64_t raw() const { return uint64_t{epoch} << 32 | counter; }
  static constexpr WriteId FromRaw(uint64_t raw) {
    return {static_cast<uint32_t>(raw >> 32), static_cast<uint32_t>(raw)};
  }
  auto operator<=>(const WriteId&) const = default;
};

struct StoreId {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const StoreId&) const = default;
};

// Closed set; a reader refuses every other number. FORMAT.md reserves 3 to 6.
enum class EntryKind : uint8_t { kValue = 1, kDelete = 2 };

}  // namespace ashlar
