// Every bit of what a store is found by: superblocks, manifest, log. Each case is a store opened
// with one bit (or the same one in several copies) wrong.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/format/log_format.h"
#include "engine/format/superblock.h"
#include "gtest/gtest.h"
#include "tests/damage/cases.h"
#include "tests/damage/lives.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

std::pair<uint64_t, std::vector<std::byte>> Flipped(const Subject& subject, uint64_t at, int bit) {
  return {at, {subject.device->contents()[at] ^ std::byte{static_cast<uint8_t>(1u << bit)}}};
}

class DamagedBits : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Lba, DamagedBits, testing::Values(512u, 4096u));

TEST_P(DamagedBits, OfEachSuperblock) {
  Subject subject(ClosedLife(GetParam()));
  Checker checker(&subject);
  Cases cases("damage_whole_store_superblock_bits", 4 * kSuperblockBytes * 8);
  for (int copy = 0; copy < kSuperblockCopies; ++copy) {
    const uint64_t at = SuperblockPlace(copy, kStoreBytes);
    for (uint64_t bit = 0; bit < kSuperblockBytes * 8; ++bit) {
      if (!cases.Next()) continue;
      cases.Run(&checker,
                {absl::StrCat("superblock copy ", copy, " byte ", bit / 8, " bit ", bit % 8),
                 {Flipped(subject, at + bit / 8, static_cast<int>(bit % 8))}});
    }
  }
}

TEST_P(DamagedBits, OfSeveralSuperblocks) {
  Subject closed(ClosedLife(GetParam())), unclosed(UnclosedLife(GetParam()));
  Checker checkers[] = {Checker(&closed), Checker(&unclosed)};
  Cases cases("damage_whole_store_superblocks_at_once", 6600);
  for (int copies = 1; copies < 16; ++copies) {
    if (__builtin_popcount(static_cast<unsigned>(copies)) < 2) continue;
    for (int i = 0; i < 600; ++i) {
      if (!cases.Next()) continue;
      const Subject& subject = i % 2 == 0 ? closed : unclosed;
      Case c{absl::StrCat("superblock copies ", copies), {}};
      for (int copy = 0; copy < kSuperblockCopies; ++copy) {
        if ((copies >> copy & 1) == 0) continue;
        const uint64_t salt = cases.Salt(10 + static_cast<uint64_t>(copy));
        c.writes.push_back(Flipped(subject,
                                   SuperblockPlace(copy, kStoreBytes) + salt % kSuperblockBytes,
                                   static_cast<int>(salt >> 32 & 7)));
      }
      cases.Run(&checkers[i % 2], c);
    }
  }
}

// Every bit of every manifest record: in one copy, in the other, in both.
void ManifestBits(Subject* subject, const std::vector<int>& which, const char* count) {
  Checker checker(subject);
  Cases cases(count, 600 * 8 * which.size());
  // The pieces of both copies: (copy 0, copy 1).
  std::vector<std::pair<Live, Live>> pairs;
  for (const Live& a : subject->live) {
    if (a.part != Part::kManifest || a.copy != 0) continue;
    for (const Live& b : subject->live) {
      if (b.part == Part::kManifest && b.copy == 1 && b.item == a.item &&
          b.begin % kExtentBytes == a.begin % kExtentBytes) {
        pairs.emplace_back(a, b);
      }
    }
  }
  ASSERT_GE(pairs.size(), 3u);
  for (const auto& [a, b] : pairs) {
    for (uint64_t bit = 0; bit < (a.end - a.begin) * 8; ++bit) {
      for (const int copies : which) {
        if (!cases.Next()) continue;
        Case c{absl::StrCat("manifest record ", a.item, " byte ", bit / 8, " bit ", bit % 8,
                            " of copies ", copies),
               {}};
        if (copies & 1)
          c.writes.push_back(Flipped(*subject, a.begin + bit / 8, static_cast<int>(bit % 8)));
        if (copies & 2)
          c.writes.push_back(Flipped(*subject, b.begin + bit / 8, static_cast<int>(bit % 8)));
        cases.Run(&checker, c);
      }
    }
  }
}

TEST_P(DamagedBits, OfEachManifestRecord) {
  Subject closed(ClosedLife(GetParam()));
  ManifestBits(&closed, {1, 2}, "damage_whole_store_manifest_bits");
}

TEST_P(DamagedBits, OfARecordInBothManifests) {
  Subject closed(ClosedLife(GetParam()));
  ManifestBits(&closed, {3}, "damage_whole_store_manifest_bits_in_both");
}

TEST_P(DamagedBits, OfManifestsThatWereNotClosed) {
  Subject unclosed(UnclosedLife(GetParam()));
  ManifestBits(&unclosed, {1, 2, 3}, "damage_whole_store_manifest_bits");
}

TEST_P(DamagedBits, OfTheLog) {
  Subject subject(UnclosedLife(GetParam()));
  Checker checker(&subject);
  Cases cases("damage_whole_store_log_bits", GetParam() == 512 ? 40000 : 30000);
  ASSERT_GE(subject.log.size(), 30u);
  for (const Live& l : subject.live) {
    if (l.part != Part::kLog) continue;
    // All bits of the header, and of the payload behind it some of each byte.
    for (uint64_t byte = 0; byte < l.end - l.begin; ++byte) {
      const int bits = l.within + byte < kRecordHeaderBytes ? 8 : GetParam() == 512 ? 2 : 1;
      for (int n = 0; n < bits; ++n) {
        if (!cases.Next()) continue;
        const int bit =
            bits == 8 ? n : static_cast<int>((cases.Salt(3) + static_cast<uint64_t>(n)) % 8);
        cases.Run(&checker, {absl::StrCat("log record ", l.item, " at ", l.begin, " byte ", byte,
                                          " bit ", bit),
                             {Flipped(subject, l.begin + byte, bit)}});
      }
    }
  }
}

}  // namespace
}  // namespace ashlar
