#include "tests/sim/caller.h"

#include "absl/strings/str_cat.h"
#include "tests/sim/plan.h"

namespace ashlar {
namespace {

constexpr std::string_view kPrefix = "caller";

}  // namespace

void Apply(const std::vector<Change>& changes, Contents* contents) {
  for (const Change& c : changes) {
    if (c.value) {
      (*contents)[c.key] = *c.value;
    } else {
      contents->erase(c.key);
    }
  }
}

std::string Caller::Prefix() const { return absl::StrCat("caller", id, "/"); }

std::optional<size_t> OwnerOfKey(std::string_view key) {
  if (key.size() < 8 || key.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const int id = key[kPrefix.size()] - '0';
  if (id < 0 || id >= kCallers) return std::nullopt;
  return static_cast<size_t>(id);
}

std::optional<Points> PointsOf(const Caller& caller, size_t least, Contents state, size_t most,
                               const Contents& shown) {
  size_t at = least;
  while (state != shown && at < most) Apply(caller.writes[at++].changes, &state);
  if (state != shown) return std::nullopt;
  Points points{at, at};
  for (; at < most; ++at) {
    Apply(caller.writes[at].changes, &state);
    if (state == shown) points.last = at + 1;
  }
  return points;
}

std::string MissingWrite(const std::vector<Caller>& callers, const std::vector<Points>& points,
                         const std::vector<size_t>& most) {
  for (size_t a = 0; a < callers.size(); ++a) {
    if (points[a].first == 0) continue;
    // The last one that must have been shown began last.
    const size_t shown = points[a].first - 1;
    const uint64_t began = callers[a].writes[shown].began;
    for (size_t b = 0; b < callers.size(); ++b) {
      for (size_t i = points[b].last; i < most[b]; ++i) {
        const uint64_t ended = callers[b].writes[i].ended;
        if (ended == 0 || began < ended) continue;
        return absl::StrCat("write ", shown, " of ", callers[a].Prefix(), " is there and write ", i,
                            " of ", callers[b].Prefix(), ", acknowledged before it began, is not");
      }
    }
  }
  return "";
}

}  // namespace ashlar
