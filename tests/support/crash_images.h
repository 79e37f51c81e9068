// Crash enumeration: one recorded run of a workload, cut after every event, with every way that the
// commands which were not yet durable there can come out. A write or deallocate is durable once it
// was given back by a device without a volatile cache, or with FUA, or a flush that was submitted
// after it was given back was itself given back; until then it may be kept, lost, or torn between
// LBAs. What was deallocated may read as zeros, ones or anything. Images are told apart by their
// bytes: whatever would change nothing is not counted. One thread; deterministic for a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/support/content.h"
#include "tests/support/image_device.h"
#include "tests/support/recording_device.h"

namespace ashlar {

// Blocks [first, second), counted over a command's stretches.
using BlockRanges = Ranges;

// A write of several blocks that came out in part: those of `kept` are the new ones, those of
// `garbage` neither old nor new, all others old.
struct Tear {
  BlockRanges kept, garbage;
};
// The ways that a write of `blocks` is torn. Up to four: each of them old, new or garbage. More:
// each prefix and suffix, one block alone, all but one, every other; the same with garbage for the
// rest of a prefix, and for one block among old or new ones; of long writes some lengths and places
// stand for all.
std::vector<Tear> TearsOf(uint64_t blocks);

enum class Deallocated : uint8_t { kZeros, kOnes, kRandom };

struct CrashImage {
  size_t events = 0;             // the cut lies behind this many
  uint32_t least = 0, most = 0;  // commits that it must and may hold
  std::vector<uint32_t> kept;    // of the commands not durable there: those that came out whole
  std::optional<uint32_t> torn;  // this one came out as `tear` says
  Tear tear;
  Deallocated deallocated = Deallocated::kZeros;
  // Digest of the bytes, as difference to that of the start; equal images have equal ones.
  uint64_t digest = 0;
  // What the visitor may choose by: the same for equal seeds, whatever the process wrote of itself.
  uint64_t salt = 0;
  // "EVENTS/KEPT/TORN:BLOCKS:GARBAGE/DEALLOCATED", from which it can be built again.
  std::string Text() const;
};
// Without least and most, which the recording knows: Build fills them in.
absl::StatusOr<CrashImage> ParseCrashImage(std::string_view text);

// Of the images of a kind, the part that is visited: 1 = all.
struct CrashShares {
  double subsets = 1;  // subsets of up to kAllSubsets commands
  double tears = 1;
  double sampled = 1;  // of the kSampled subsets and tears where there are more commands
};

struct CrashCounts {
  uint64_t cuts = 0;    // boundaries
  uint64_t images = 0;  // ways to come out, over all cuts
  // Of those, with bytes that were not seen before; without a visit what is sampled is not
  // compared.
  uint64_t subsets = 0, tears = 0, sampled = 0;
  uint64_t distinct = 0;  // of these, visited
  CrashCounts& operator+=(const CrashCounts& o);
  std::string Text() const;
};

class CrashRig {
 public:
  // With so many commands or fewer each subset of them is an image of its own.
  static constexpr size_t kAllSubsets = 12;
  // With more, so many at each cut, and as many tears: none, all, each alone, all but each, each
  // prefix, and random ones.
  static constexpr uint64_t kSampled = 4096;

  // `device` holds what was there before the recording began; it ends up holding everything that
  // the recording made durable, as a change that Undo takes back.
  // `digest` is that of what the device holds now.
  CrashRig(const Recording& recording, ImageDevice* device, uint64_t seed, uint64_t digest = 0)
      : recording_(recording), device_(device), seed_(seed), random_(seed | 1), digest_(digest) {}

  // Called with each image in place, once, and again where its bytes are found at a later cut that
  // demands more; returns how many commits it found there, or why it is wrong. What it writes is
  // undone. Without a visit the images are only counted.
  using Visit = std::function<absl::StatusOr<uint32_t>(const CrashImage&)>;
  // The first error, with the image that shows it.
  absl::Status Run(const Visit& visit, const CrashShares& shares, CrashCounts* counts);

  // Makes the device hold the image. Nothing else may have been called before.
  absl::Status Build(CrashImage* image);

 private:
  // A command that is not durable.
  struct Unflushed {
    uint32_t command;
    bool given_back = false;
    // What each block of it changes in the sum of all blocks' digests, summed up to each block.
    std::vector<uint64_t> changes = {0};
    std::vector<uint64_t> garbage;  // likewise for garbage; made when it is first asked for
    uint64_t change() const { return changes.back(); }
  };
  struct Seen {
    bool visited;
    uint32_t commits;  // found there; not visited: the least that it was to hold
  };
  enum class Kind { kSubset, kTear, kSampled };

  absl::Status Happen(const Recording::Event& event);
  void MakeDurable(uint32_t command);
  absl::Status VisitCut(size_t events);
  absl::Status VisitSubsets(const CrashImage& cut, const std::vector<Unflushed*>& lost);
  absl::Status VisitSamples(const CrashImage& cut, const std::vector<Unflushed*>& lost);
  absl::Status VisitTear(const CrashImage& cut, const std::vector<Unflushed*>& lost, size_t index,
                         const Tear& tear, int background, Kind kind);
  absl::Status Consider(uint64_t id, Kind kind, const std::function<CrashImage()>& image);
  void Demand(CrashImage* image);
  void Place(const CrashImage& image);
  void FillDeallocated(Deallocated with);
  void Digest(Unflushed* u, Deallocated with);
  uint64_t Garbage(Unflushed* u, const BlockRanges& ranges);
  uint64_t Random();
  double Fraction();

  const Recording& recording_;
  ImageDevice* const device_;
  const uint64_t seed_;
  uint64_t random_;
  size_t marker_ = 0;
  std::vector<Unflushed> unflushed_;                    // in the order submitted
  std::map<uint32_t, std::vector<uint32_t>> flushing_;  // flush in flight -> what it covers
  std::set<uint64_t> deallocated_;                      // blocks, durably
  uint64_t digest_ = 0;                      // of what is durable, as difference to the start
  std::unordered_map<uint64_t, Seen> seen_;  // by digest of the bytes
  std::map<uint64_t, std::vector<Tear>> tears_;

  // Of the run.
  const Visit* visit_ = nullptr;
  CrashShares shares_;
  CrashCounts* counts_ = nullptr;
  CrashImage last_;      // the last cut, with nothing kept
  bool changed_ = true;  // since then, what is not durable
};

}  // namespace ashlar
