#include "tests/support/crash_images.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/format/checksum.h"
#include "io/check.h"

namespace ashlar {
namespace {

constexpr std::string_view kDeallocatedNames[] = {"zeros", "ones", "random"};
constexpr uint64_t kEachTear = 4;
constexpr int kBackgrounds = 3;  // of a torn command the others are: none, all, all before it

uint64_t Mix(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t parts[] = {a, b, c};
  return Checksum(parts, sizeof parts, 7);
}

uint64_t BlockDigest(uint64_t block, const std::byte* bytes, uint64_t lba_bytes) {
  return Checksum(bytes, lba_bytes, block * 0x9e3779b97f4a7c15 + 1);
}

// What lies in a block whose write was torn, or that was deallocated: the same in each run.
void Noise(uint64_t a, uint64_t b, std::span<std::byte> to) {
  uint64_t x = Mix(a, b, 3) | 1;
  for (size_t i = 0; i < to.size(); i += sizeof x) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(to.data() + i, &x, sizeof x);
  }
}

bool Overlap(const Recording::Command& a, const Recording::Command& b) {
  for (const auto& x : a.stretches) {
    for (const auto& y : b.stretches) {
      if (x.at < y.at + y.bytes.size() && y.at < x.at + x.bytes.size()) return true;
    }
  }
  return false;
}

// put(index in the command, byte on the device, bytes) for each block.
template <typename Put>
void EachBlock(const Recording::Command& command, uint64_t lba_bytes, const Put& put) {
  uint64_t index = 0;
  for (const auto& s : command.stretches) {
    for (uint64_t b = 0; b < s.bytes.size(); b += lba_bytes, ++index) {
      put(index, s.at + b, std::span(s.bytes).subspan(b, lba_bytes));
    }
  }
}

bool In(const BlockRanges& ranges, uint64_t block) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const auto& r) { return r.first <= block && block < r.second; });
}

uint64_t SumOver(const std::vector<uint64_t>& sums, const BlockRanges& ranges) {
  uint64_t sum = 0;
  for (const auto& [begin, end] : ranges) sum += sums[end] - sums[begin];
  return sum;
}

}  // namespace

std::vector<Tear> TearsOf(uint64_t blocks) {
  if (blocks <= kEachTear) {
    uint64_t states = 1;
    for (uint64_t b = 0; b < blocks; ++b) states *= 3;
    std::vector<Tear> tears;
    for (uint64_t state = 1; state < states; ++state) {
      Tear tear;
      uint64_t rest = state;
      for (uint64_t b = 0; b < blocks; ++b, rest /= 3) {
        if (rest % 3 == 1) tear.kept.emplace_back(b, b + 1);
        if (rest % 3 == 2) tear.garbage.emplace_back(b, b + 1);
      }
      if (tear.kept.size() < blocks) tears.push_back(std::move(tear));
    }
    return tears;
  }
  std::set<uint64_t> lengths, places;
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t from_end = blocks - i;
    const bool power = (i & (i - 1)) == 0;
    if (i > 0 && (blocks <= 9 || i <= 4 || from_end <= 2 || power || i == blocks / 2)) {
      lengths.insert(i);
    }
    if (blocks <= 16 || i <= 1 || from_end <= 2 || i == blocks / 2 || i == blocks / 4) {
      places.insert(i);
    }
  }
  std::vector<Tear> tears;
  for (const uint64_t n : lengths) {
    tears.push_back({{{0, n}}, {}});
    tears.push_back({{{blocks - n, blocks}}, {}});
    tears.push_back({{{0, n}}, {{n, blocks}}});
  }
  tears.push_back({{}, {{0, blocks}}});
  for (const uint64_t p : places) {
    BlockRanges rest;
    if (p > 0) rest.emplace_back(0, p);
    if (p + 1 < blocks) rest.emplace_back(p + 1, blocks);
    tears.push_back({{{p, p + 1}}, {}});
    tears.push_back({rest, {}});
    tears.push_back({rest, {{p, p + 1}}});
    tears.push_back({{}, {{p, p + 1}}});
  }
  for (const uint64_t first : {0, 1}) {
    Tear tear;
    for (uint64_t b = first; b < blocks; b += 2) tear.kept.emplace_back(b, b + 1);
    tears.push_back(std::move(tear));
  }
  return tears;
}

// ---- image ----

std::string CrashImage::Text() const {
  BlockRanges ranges;
  for (const uint32_t k : kept) {
    if (!ranges.empty() && ranges.back().second == k) {
      ++ranges.back().second;
    } else {
      ranges.emplace_back(k, k + 1);
    }
  }
  return absl::StrCat(
      events, "/", RangesText(ranges), "/",
      torn ? absl::StrCat(*torn, ":", RangesText(tear.kept), ":", RangesText(tear.garbage)) : "",
      "/", std::string(kDeallocatedNames[static_cast<int>(deallocated)]));
}

absl::StatusOr<CrashImage> ParseCrashImage(std::string_view text) {
  const auto wrong =
      absl::InvalidArgumentError(absl::StrCat("not a crash image: ", std::string(text)));
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), '/');
  CrashImage image;
  BlockRanges kept;
  uint64_t events;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &events) || !ParseRanges(parts[1], &kept)) {
    return wrong;
  }
  image.events = events;
  for (const auto& [begin, end] : kept) {
    for (uint64_t k = begin; k < end; ++k) image.kept.push_back(static_cast<uint32_t>(k));
  }
  if (!parts[2].empty()) {
    const std::vector<std::string> torn = absl::StrSplit(parts[2], ':');
    uint32_t command;
    if (torn.size() != 3 || !absl::SimpleAtoi(torn[0], &command) ||
        !ParseRanges(torn[1], &image.tear.kept) || !ParseRanges(torn[2], &image.tear.garbage)) {
      return wrong;
    }
    image.torn = command;
  }
  for (int i = 0; i < 3; ++i) {
    if (parts[3] != kDeallocatedNames[i]) continue;
    image.deallocated = static_cast<Deallocated>(i);
    return image;
  }
  return wrong;
}

CrashCounts& CrashCounts::operator+=(const CrashCounts& o) {
  cuts += o.cuts;
  images += o.images;
  subsets += o.subsets;
  tears += o.tears;
  sampled += o.sampled;
  distinct += o.distinct;
  return *this;
}

std::string CrashCounts::Text() const {
  return absl::StrCat(cuts, " cuts, ", images, " images, ", subsets + tears + sampled,
                      " different (", subsets, " subsets, ", tears, " tears, ", sampled,
                      " sampled)");
}

// ---- what is durable ----

uint64_t CrashRig::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_ * 0x2545f4914f6cdd1d;
}
double CrashRig::Fraction() { return static_cast<double>(Random() >> 11) * 0x1p-53; }

void CrashRig::MakeDurable(uint32_t command) {
  const auto it = std::find_if(unflushed_.begin(), unflushed_.end(),
                               [&](const Unflushed& u) { return u.command == command; });
  if (it == unflushed_.end()) return;
  // Of deallocated blocks the digest speaks as if they were zeros.
  if (it->changes.size() == 1) Digest(&*it, Deallocated::kZeros);
  digest_ += it->change();
  unflushed_.erase(it);
  changed_ = true;
  const Recording::Command& c = recording_.commands[command];
  const uint64_t lba_bytes = recording_.lba_bytes;
  for (const auto& s : c.stretches) {
    device_->Write(s.at, s.bytes);
    for (uint64_t b = s.at / lba_bytes; b < (s.at + s.bytes.size()) / lba_bytes; ++b) {
      if (c.op == io::Op::kDeallocate) {
        deallocated_.insert(b);
      } else if (!deallocated_.empty()) {
        deallocated_.erase(b);
      }
    }
  }
}

absl::Status CrashRig::Happen(const Recording::Event& event) {
  const Recording::Command& c = recording_.commands[event.command];
  const bool submitted = event.kind == Recording::Event::Kind::kSubmitted;
  if (c.op == io::Op::kFlush) {
    if (submitted) {
      for (const Unflushed& u : unflushed_) {
        if (u.given_back) flushing_[event.command].push_back(u.command);
      }
      return absl::OkStatus();
    }
    for (const uint32_t covered : flushing_[event.command]) MakeDurable(covered);
    flushing_.erase(event.command);
    return absl::OkStatus();
  }
  if (submitted) {
    // The store never writes a block twice before the first write is durable: of two such writes
    // the older can come out over the newer.
    for (const Unflushed& u : unflushed_) {
      if (!Overlap(recording_.commands[u.command], c)) continue;
      return absl::InternalError(absl::StrCat(
          "command ", event.command, " writes at byte ", c.stretches[0].at, ", where command ",
          u.command, u.given_back ? ", not durable yet," : ", still in flight,", " wrote"));
    }
    unflushed_.emplace_back().command = event.command;
    changed_ = true;
    return absl::OkStatus();
  }
  for (Unflushed& u : unflushed_) {
    if (u.command == event.command) u.given_back = true;
  }
  if (c.fua || !recording_.volatile_cache) MakeDurable(event.command);
  return absl::OkStatus();
}

void CrashRig::FillDeallocated(Deallocated with) {
  const uint64_t lba_bytes = recording_.lba_bytes;
  for (const uint64_t b : deallocated_) {
    std::byte* const at = device_->Edit(b * lba_bytes, lba_bytes);
    if (with == Deallocated::kRandom) {
      Noise(b, 1, {at, lba_bytes});
    } else {
      std::memset(at, with == Deallocated::kOnes ? 0xff : 0, lba_bytes);
    }
  }
}

// Fills in what `u` changes. Blocks durably deallocated hold what `with` says.
void CrashRig::Digest(Unflushed* u, Deallocated with) {
  const Recording::Command& c = recording_.commands[u->command];
  const uint64_t lba_bytes = recording_.lba_bytes;
  u->changes.assign(1, 0);
  u->garbage.clear();
  std::vector<std::byte> read(lba_bytes);
  EachBlock(c, lba_bytes, [&](uint64_t, uint64_t at, std::span<const std::byte> bytes) {
    const uint64_t block = at / lba_bytes;
    const std::byte* to = bytes.data();
    if (c.op == io::Op::kDeallocate && with != Deallocated::kZeros) {
      std::memset(read.data(), 0xff, lba_bytes);
      if (with == Deallocated::kRandom) Noise(block, 1, read);
      to = read.data();
    }
    const std::byte* const from = device_->Read(at, lba_bytes);
    const uint64_t change =
        std::memcmp(from, to, lba_bytes) == 0
            ? 0
            : BlockDigest(block, to, lba_bytes) - BlockDigest(block, from, lba_bytes);
    u->changes.push_back(u->changes.back() + change);
  });
}

uint64_t CrashRig::Garbage(Unflushed* u, const BlockRanges& ranges) {
  if (ranges.empty()) return 0;
  if (u->garbage.empty()) {
    const uint64_t lba_bytes = recording_.lba_bytes;
    std::vector<std::byte> noise(lba_bytes);
    u->garbage.assign(1, 0);
    EachBlock(recording_.commands[u->command], lba_bytes,
              [&](uint64_t index, uint64_t at, std::span<const std::byte>) {
                Noise(u->command, index, noise);
                u->garbage.push_back(
                    u->garbage.back() + BlockDigest(at / lba_bytes, noise.data(), lba_bytes) -
                    BlockDigest(at / lba_bytes, device_->Read(at, lba_bytes), lba_bytes));
              });
  }
  return SumOver(u->garbage, ranges);
}

void CrashRig::Place(const CrashImage& image) {
  const uint64_t lba_bytes = recording_.lba_bytes;
  const auto put = [&](uint32_t command, const Tear* tear) {
    const Recording::Command& c = recording_.commands[command];
    if (tear == nullptr && (c.op == io::Op::kWrite || image.deallocated == Deallocated::kZeros)) {
      for (const auto& s : c.stretches) device_->Write(s.at, s.bytes);
      return;
    }
    std::vector<std::byte> noise(lba_bytes);
    EachBlock(c, lba_bytes, [&](uint64_t index, uint64_t at, std::span<const std::byte> bytes) {
      if (tear != nullptr && In(tear->garbage, index)) {
        Noise(command, index, noise);
        device_->Write(at, noise);
      } else if (tear == nullptr || In(tear->kept, index)) {
        if (c.op == io::Op::kDeallocate && image.deallocated != Deallocated::kZeros) {
          std::memset(noise.data(), 0xff, lba_bytes);
          if (image.deallocated == Deallocated::kRandom) Noise(at / lba_bytes, 1, noise);
          bytes = noise;
        }
        device_->Write(at, bytes);
      }
    });
  };
  for (const uint32_t k : image.kept) put(k, nullptr);
  if (image.torn) put(*image.torn, &image.tear);
}

// ---- the images of a cut ----

void CrashRig::Demand(CrashImage* image) {
  while (marker_ < recording_.markers.size() &&
         recording_.markers[marker_].events <= image->events) {
    ++marker_;
  }
  if (marker_ == 0) return;
  image->least = recording_.markers[marker_ - 1].durable;
  image->most = recording_.markers[marker_ - 1].started;
}

absl::Status CrashRig::Consider(uint64_t id, Kind kind, const std::function<CrashImage()>& make) {
  const uint32_t least = last_.least;
  const auto [it, first] = seen_.try_emplace(id, Seen{false, least});
  Seen& seen = it->second;
  // The same bytes at a later cut: more may have been acknowledged by then.
  if (!first && seen.commits >= least) return absl::OkStatus();
  if (first) {
    ++(kind == Kind::kSubset ? counts_->subsets
       : kind == Kind::kTear ? counts_->tears
                             : counts_->sampled);
  }
  if (!*visit_) {
    seen.commits = least;
    return absl::OkStatus();
  }
  if (!seen.visited) {
    seen.commits = least;
    const double share = kind == Kind::kSubset ? shares_.subsets
                         : kind == Kind::kTear ? shares_.tears
                                               : 1;  // chosen already
    if (share < 1 && Fraction() >= share) return absl::OkStatus();
    seen.visited = true;
    ++counts_->distinct;
  }
  CrashImage image = make();
  image.digest = id;
  image.salt = Mix(seed_, counts_->images, image.events);
  device_->Push();
  Place(image);
  const absl::StatusOr<uint32_t> found = (*visit_)(image);
  device_->Pop();
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat(image.Text(), ": ", found.status().message()));
  }
  seen.commits = *found;
  return absl::OkStatus();
}

absl::Status CrashRig::VisitTear(const CrashImage& cut, const std::vector<Unflushed*>& lost,
                                 size_t index, const Tear& tear, int background, Kind kind) {
  ++counts_->images;
  const size_t others = background == 0 ? 0 : background == 1 ? lost.size() : index;
  uint64_t id =
      digest_ + SumOver(lost[index]->changes, tear.kept) + Garbage(lost[index], tear.garbage);
  for (size_t i = 0; i < others; ++i) id += i == index ? 0 : lost[i]->change();
  return Consider(id, kind, [&] {
    CrashImage image = cut;
    for (size_t i = 0; i < others; ++i) {
      if (i != index) image.kept.push_back(lost[i]->command);
    }
    image.torn = lost[index]->command;
    image.tear = tear;
    return image;
  });
}

absl::Status CrashRig::VisitSubsets(const CrashImage& cut, const std::vector<Unflushed*>& lost) {
  std::vector<uint64_t> ids(size_t{1} << lost.size(), digest_);
  for (size_t mask = 0; mask < ids.size(); ++mask) {
    ++counts_->images;
    if (mask != 0) {
      const int low = __builtin_ctzll(mask);
      ids[mask] = ids[mask & (mask - 1)] + lost[static_cast<size_t>(low)]->change();
    }
    RETURN_IF_ERROR(Consider(ids[mask], Kind::kSubset, [&] {
      CrashImage image = cut;
      for (size_t i = 0; i < lost.size(); ++i) {
        if ((mask >> i & 1) != 0) image.kept.push_back(lost[i]->command);
      }
      return image;
    }));
  }
  for (size_t i = 0; i < lost.size(); ++i) {
    const uint64_t blocks = lost[i]->changes.size() - 1;
    if (blocks < 2) continue;
    auto& tears = tears_[blocks];
    if (tears.empty()) tears = TearsOf(blocks);
    for (const Tear& tear : tears) {
      for (int b = 0; b < (lost.size() == 1 ? 1 : kBackgrounds); ++b) {
        RETURN_IF_ERROR(VisitTear(cut, lost, i, tear, b, Kind::kTear));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CrashRig::VisitSamples(const CrashImage& cut, const std::vector<Unflushed*>& lost) {
  const size_t n = lost.size();
  if (!*visit_) {
    counts_->images += 2 * kSampled;
    counts_->sampled += 2 * kSampled;
    return absl::OkStatus();
  }
  const double share = shares_.sampled;
  if (share <= 0) return absl::OkStatus();
  // One of each stretch of them, so that the telling ones in front are met as often as any.
  const double step = 1 / share;
  for (double at = Fraction() * step; at < static_cast<double>(kSampled); at += step) {
    ++counts_->images;
    const uint64_t pick = static_cast<uint64_t>(at);
    std::vector<bool> in(n);
    if (pick < 2) {
      in.assign(n, pick == 1);
    } else if (pick < 2 + 3 * n) {
      const size_t i = (pick - 2) / 3, way = (pick - 2) % 3;
      for (size_t k = 0; k < n; ++k) in[k] = way == 0 ? k == i : way == 1 ? k != i : k < i;
    } else {
      for (size_t k = 0; k < n; ++k) in[k] = Random() >> 63 != 0;
    }
    uint64_t id = digest_;
    for (size_t k = 0; k < n; ++k) id += in[k] ? lost[k]->change() : 0;
    RETURN_IF_ERROR(Consider(id, Kind::kSampled, [&] {
      CrashImage image = cut;
      for (size_t k = 0; k < n; ++k) {
        if (in[k]) image.kept.push_back(lost[k]->command);
      }
      return image;
    }));
  }
  for (double at = Fraction() * step; at < static_cast<double>(kSampled); at += step) {
    const size_t i = Random() % n;
    const uint64_t blocks = lost[i]->changes.size() - 1;
    if (blocks < 2) continue;
    auto& tears = tears_[blocks];
    if (tears.empty()) tears = TearsOf(blocks);
    RETURN_IF_ERROR(VisitTear(cut, lost, i, tears[Random() % tears.size()],
                              static_cast<int>(Random() % kBackgrounds), Kind::kSampled));
  }
  return absl::OkStatus();
}

absl::Status CrashRig::VisitCut(size_t events) {
  ++counts_->cuts;
  CrashImage cut;
  cut.events = events;
  Demand(&cut);
  // Nothing has happened to what is lost or demanded: the same images as at the last cut.
  if (!changed_ && cut.least == last_.least && cut.most == last_.most) return absl::OkStatus();
  changed_ = false;
  last_ = cut;
  const bool deallocates =
      !deallocated_.empty() ||
      std::any_of(unflushed_.begin(), unflushed_.end(), [&](const Unflushed& u) {
        return recording_.commands[u.command].op == io::Op::kDeallocate;
      });
  const uint64_t digest = digest_;
  for (const Deallocated with : {Deallocated::kZeros, Deallocated::kOnes, Deallocated::kRandom}) {
    if (with != Deallocated::kZeros && !deallocates) break;
    cut.deallocated = with;
    device_->Push();
    if (with != Deallocated::kZeros) {
      const uint64_t lba_bytes = recording_.lba_bytes;
      const auto all = [&] {
        uint64_t sum = 0;
        for (const uint64_t b : deallocated_) {
          sum += BlockDigest(b, device_->Read(b * lba_bytes, lba_bytes), lba_bytes);
        }
        return sum;
      };
      const uint64_t before = all();
      FillDeallocated(with);
      digest_ += all() - before;
    }
    std::vector<Unflushed*> lost;
    for (Unflushed& u : unflushed_) {
      if (u.changes.size() == 1 || deallocates) Digest(&u, with);
      // What would change nothing can't be told from what did not happen.
      bool changes = false;
      for (const uint64_t c : u.changes) changes |= c != 0;
      if (changes) lost.push_back(&u);
    }
    const absl::Status status =
        lost.size() <= kAllSubsets ? VisitSubsets(cut, lost) : VisitSamples(cut, lost);
    device_->Pop();
    if (deallocates) {
      for (Unflushed& u : unflushed_) u.changes.assign(1, 0);
    }
    digest_ = digest;
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status CrashRig::Run(const Visit& visit, const CrashShares& shares, CrashCounts* counts) {
  visit_ = &visit;
  shares_ = shares;
  counts_ = counts;
  RETURN_IF_ERROR(VisitCut(0));
  for (size_t e = 0; e < recording_.events.size(); ++e) {
    RETURN_IF_ERROR(Happen(recording_.events[e]));
    RETURN_IF_ERROR(VisitCut(e + 1));
  }
  return absl::OkStatus();
}

absl::Status CrashRig::Build(CrashImage* image) {
  if (image->events > recording_.events.size()) {
    return absl::InvalidArgumentError("a crash image of another recording");
  }
  for (size_t e = 0; e < image->events; ++e) RETURN_IF_ERROR(Happen(recording_.events[e]));
  const auto known = [&](uint32_t command) {
    return std::any_of(unflushed_.begin(), unflushed_.end(),
                       [&](const Unflushed& u) { return u.command == command; });
  };
  if (!std::all_of(image->kept.begin(), image->kept.end(), known) ||
      (image->torn && !known(*image->torn))) {
    return absl::InvalidArgumentError("a crash image of another recording");
  }
  Demand(image);
  if (image->deallocated != Deallocated::kZeros) FillDeallocated(image->deallocated);
  Place(*image);
  return absl::OkStatus();
}

}  // namespace ashlar
