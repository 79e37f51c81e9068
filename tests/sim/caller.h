// What the callers of a simulated store did, each to keys of its own, and what a reader may then be
// shown of it: of each caller the state after one of its writes, and no write of anybody without
// those that were acknowledged before it began.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

using Contents = std::map<std::string, std::string>;

struct Change {
  std::string key;
  std::optional<std::string> value;  // empty: a delete
};
void Apply(const std::vector<Change>& changes, Contents* contents);

// A batch: whole or not at all.
struct BatchWrite {
  std::vector<Change> changes;
  bool durable = false;  // the caller asked for it
  uint64_t began = 0;    // how many writes of all callers had been acknowledged then
  uint64_t ended = 0;    // which of these it was; 0: it was not
};

struct Caller {
  int id = 0;
  std::vector<BatchWrite> writes;
  size_t acknowledged = 0;  // writes that returned OK; one more may be under way or in doubt
  size_t durable = 0;       // of these are durable
  Contents contents;        // after the acknowledged ones

  std::string Prefix() const;
};
// The caller whose key it is; none: nobody's.
std::optional<size_t> OwnerOfKey(std::string_view key);

// Of the numbers of a caller's writes after which it has just what was shown, the first and the
// last.
struct Points {
  size_t first = 0, last = 0;
};
// Looked for from `least` writes, whose contents are `state`, to `most`.
std::optional<Points> PointsOf(const Caller& caller, size_t least, Contents state, size_t most,
                               const Contents& shown);

// Empty, or which write is missing among those that were shown. `most`: of each caller, how many
// writes there were to be shown.
std::string MissingWrite(const std::vector<Caller>& callers, const std::vector<Points>& points,
                         const std::vector<size_t>& most);

}  // namespace ashlar
