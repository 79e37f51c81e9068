// What watches the commands of a device in a test: told of each one when it is submitted and when
// it has completed, in the order in which that happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/types.h"

namespace ashlar {

struct ByteRange {
  uint64_t at = 0;
  uint64_t bytes = 0;
  uint64_t end() const { return at + bytes; }
  bool Overlaps(const ByteRange& o) const { return at < o.end() && o.at < end(); }
};

// One command that changes something: a write, a flush or a deallocate.
struct ObservedCommand {
  uint64_t id = 0;
  io::Op op = io::Op::kWrite;
  bool fua = false;
  std::span<const ByteRange> ranges;     // none of a flush, one of a write
  std::span<const std::byte> data = {};  // of a write, valid during the call
};

class CommandObserver {
 public:
  virtual ~CommandObserver() = default;
  virtual void Submitted(const ObservedCommand& command) = 0;
  // `ok`: the device said so; else it is not known whether the command was carried out.
  virtual void Completed(uint64_t id, bool ok) = 0;
};

}  // namespace ashlar
