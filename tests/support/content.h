// What tests fill stores with, and read and write beside them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ashlar {

// `size` bytes that follow from `n`: not compressible, and values of one size told apart.
std::string Bytes(size_t size, uint64_t n);
std::string Key(uint64_t n);  // "key0042"

// Writes the bytes of a device to a sparse file, for ashlarctl.
absl::Status ExportImage(std::span<const std::byte> contents, const std::string& path);

// Numbers as [first, second) of each stretch, and as text: "1,4-7" of [1, 2) and [4, 8).
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
std::string RangesText(const Ranges& ranges);
bool ParseRanges(std::string_view text, Ranges* ranges);

}  // namespace ashlar
