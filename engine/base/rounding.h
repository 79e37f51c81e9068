// Division and rounding upwards, for sizes.
#pragma once

#include <cstdint>

namespace ashlar {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr uint64_t RoundUp(uint64_t v, uint64_t grain) { return CeilDiv(v, grain) * grain; }

}  // namespace ashlar
