// Whole LBAs that hold what does not belong there: another live one, what stood there earlier, what
// another store has there, what stood there before the device was formatted, and garbage.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/format/superblock.h"
#include "gtest/gtest.h"
#include "tests/damage/cases.h"
#include "tests/damage/lives.h"

namespace ashlar {
namespace {

using Block = std::vector<std::byte>;

Block BlockAt(const Subject& s, uint64_t at) {
  const auto bytes = s.device->contents().subspan(at, s.life.lba_bytes);
  return {bytes.begin(), bytes.end()};
}
Block CopyOf(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

class DamagedBlocks : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Lba, DamagedBlocks, testing::Values(512u, 4096u));

// All pairs of live LBAs, or that many of them: swapped, and one copied over the other.
void SwapPairs(Subject* subject, uint64_t pairs_max) {
  Checker checker(subject);
  Cases cases("damage_whole_store_swapped_blocks", subject->life.lba_bytes == 512 ? 24000 : 1500);
  const auto& lbas = subject->lbas;
  const uint64_t pairs = lbas.size() * (lbas.size() - 1) / 2;
  const uint64_t every = std::max<uint64_t>(1, pairs / pairs_max);
  uint64_t pair = 0;
  for (size_t a = 0; a < lbas.size(); ++a) {
    for (size_t b = a + 1; b < lbas.size(); ++b) {
      if (pair++ % every != 0) continue;
      for (int how = 0; how < 3; ++how) {
        if (!cases.Next()) continue;
        Case c{absl::StrCat(how == 0   ? "swapped"
                            : how == 1 ? "first over second"
                                       : "second over first",
                            " LBAs at ", lbas[a], " and ", lbas[b]),
               {}};
        if (how != 1) c.writes.emplace_back(lbas[a], BlockAt(*subject, lbas[b]));
        if (how != 2) c.writes.emplace_back(lbas[b], BlockAt(*subject, lbas[a]));
        cases.Run(&checker, c);
      }
    }
  }
}

TEST_P(DamagedBlocks, SwappedOfAClosedStore) {
  Subject subject(ClosedLife(GetParam()));
  SwapPairs(&subject, 9000);
}

TEST_P(DamagedBlocks, SwappedOfAnUnclosedStore) {
  Subject subject(UnclosedLife(GetParam()));
  SwapPairs(&subject, 9000);
}

TEST_P(DamagedBlocks, OfZerosOnesAndGarbage) {
  Subject closed(ClosedLife(GetParam())), unclosed(LongLife(GetParam()));
  Cases cases("damage_whole_store_overwritten_blocks", GetParam() == 512 ? 7400 : 1100);
  for (Subject* const subject : {&closed, &unclosed}) {
    Checker checker(subject);
    std::vector<uint64_t> lbas = subject->lbas;
    // And some that nothing refers to.
    for (size_t i = 0; i < subject->hot.size(); i += 16) lbas.push_back(subject->hot[i]);
    for (const uint64_t at : lbas) {
      for (int how = 0; how < 8; ++how) {
        if (!cases.Next()) continue;
        Block block(subject->life.lba_bytes, std::byte{static_cast<uint8_t>(how == 1 ? 0xff : 0)});
        if (how >= 2) {
          std::mt19937_64 random(cases.Salt(3));
          // All of it, or as of a torn write its first or second half.
          const bool half = how >= 6;
          if (half) block = BlockAt(*subject, at);
          const size_t begin = how == 6 ? block.size() / 2 : 0,
                       end = how == 7 ? block.size() / 2 : block.size();
          for (size_t i = begin; i < end; ++i) block[i] = static_cast<std::byte>(random());
        }
        cases.Run(&checker,
                  {absl::StrCat("LBA at ", at, " overwritten, way ", how), {{at, block}}});
      }
    }
  }
}

// Several LBAs in a row, as of an erased stretch of the medium.
TEST_P(DamagedBlocks, OfStretches) {
  Subject closed(ClosedLife(GetParam())), unclosed(LongLife(GetParam()));
  Cases cases("damage_whole_store_overwritten_stretches", 3000);
  for (Subject* const subject : {&closed, &unclosed}) {
    Checker checker(subject);
    for (int i = 0; i < 1500; ++i) {
      if (!cases.Next()) continue;
      const uint64_t lba = subject->life.lba_bytes;
      const uint64_t at = subject->lbas[cases.Salt(3) % subject->lbas.size()];
      const uint64_t blocks = std::min(2 + cases.Salt(4) % 40, (kStoreBytes - at) / lba);
      Block bytes(blocks * lba, std::byte{static_cast<uint8_t>(i % 3 == 1 ? 0xff : 0)});
      std::mt19937_64 random(cases.Salt(5));
      if (i % 3 == 2) {
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      }
      cases.Run(&checker, {absl::StrCat(blocks, " LBAs from ", at), {{at, bytes}}});
    }
  }
}

// A log in two segments, of which the second begins behind what is lost of the first.
TEST_P(DamagedBlocks, OfALogInTwoSegments) {
  const Life& life = TwoSegmentLife(GetParam());
  Subject subject(life, InTwoSegments(life));
  ASSERT_GE(subject.log.size(), 12u);
  ASSERT_LT(subject.log.front().position.stream, subject.log.back().position.stream);
  Checker checker(&subject);
  Cases cases("damage_whole_store_log_segments", 2000);
  std::vector<const Live*> pieces;  // of the log
  for (const Live& l : subject.live) {
    if (l.part == Part::kLog) pieces.push_back(&l);
  }
  const auto zeroed = [](const Live& l) { return std::pair(l.begin, Block(l.end - l.begin)); };
  // All of the first records, up to some; all from some on; all of one segment or both.
  for (uint32_t record = 0; record <= subject.log.size(); ++record) {
    for (const bool before : {true, false}) {
      if (!cases.Next()) continue;
      Case c{absl::StrCat("log records ", before ? "before " : "from ", record, " zeroed"), {}};
      for (const Live* l : pieces) {
        if ((l->item < record) == before) c.writes.push_back(zeroed(*l));
      }
      cases.Run(&checker, c);
    }
  }
  for (const Live* l : pieces) {
    for (int i = 0; i < 16; ++i) {
      if (!cases.Next()) continue;
      const uint64_t at = l->begin + cases.Salt(3) % (l->end - l->begin);
      cases.Run(
          &checker,
          {absl::StrCat("log record ", l->item, ", byte ", at),
           {{at,
             {subject.device->contents()[at] ^ std::byte{static_cast<uint8_t>(1u << i % 8)}}}}});
    }
  }
  // Two of them.
  for (int i = 0; i < 600; ++i) {
    if (!cases.Next()) continue;
    const Live& a = *pieces[cases.Salt(3) % pieces.size()];
    const Live& b = *pieces[cases.Salt(4) % pieces.size()];
    Case c{absl::StrCat("log records ", a.item, " and ", b.item, " zeroed"), {zeroed(a)}};
    if (&a != &b) c.writes.push_back(zeroed(b));
    cases.Run(&checker, c);
  }
}

// Each LBA as it was at each earlier time; and stretches and pairs of them.
TEST_P(DamagedBlocks, AsTheyWereEarlier) {
  Subject subject(LongLife(GetParam()));
  Checker checker(&subject);
  Cases cases("damage_whole_store_stale_blocks", 3400);
  const Life& life = subject.life;
  for (const uint64_t at : subject.lbas) {
    const auto it = life.lbas().find(at);
    ASSERT_NE(it, life.lbas().end());
    // Of one that was written often a part of its states.
    const size_t every = 1 + it->second.size() / 40;
    for (size_t i = 0; i < it->second.size(); i += every) {
      if (!cases.Next()) continue;
      // What it held before that write.
      cases.Run(&checker, {absl::StrCat("LBA at ", at, " as before command ", it->second[i].first),
                           {{at, CopyOf(life.LbaAt(at, it->second[i].first))}}});
    }
  }
  // Everything that was written since some command within a stretch around an LBA is undone, and in
  // a pair of LBAs.
  for (int i = 0; i < 3000; ++i) {
    if (!cases.Next()) continue;
    const size_t command = cases.Salt(3) % life.recording.commands.size();
    const uint64_t at = subject.lbas[cases.Salt(4) % subject.lbas.size()];
    Case c{absl::StrCat("stale since command ", command, " around ", at), {}};
    if (i % 2 == 0) {
      const uint64_t other = subject.lbas[cases.Salt(5) % subject.lbas.size()];
      for (const uint64_t lba : {at, other})
        c.writes.emplace_back(lba, CopyOf(life.LbaAt(lba, command)));
      absl::StrAppend(&c.what, " and ", other);
      if (at == other) c.writes.pop_back();
    } else {
      const uint64_t bytes = 4096 << cases.Salt(5) % 5;
      for (auto it = life.lbas().lower_bound(at); it != life.lbas().end() && it->first < at + bytes;
           ++it) {
        c.writes.emplace_back(it->first, CopyOf(life.LbaAt(it->first, command)));
      }
    }
    cases.Run(&checker, c);
  }
  // Half of the superblocks of an earlier generation.
  for (size_t command = 0; command < life.recording.commands.size(); command += 3) {
    for (const int first : {0, 1, 2}) {
      if (!cases.Next()) continue;
      Case c{absl::StrCat("superblock copies ", first, " and ", first == 1 ? 3 : first + 1,
                          " as before command ", command),
             {}};
      for (const int copy : {first, first == 1 ? 3 : first + 1}) {
        const uint64_t at = SuperblockPlace(copy, kStoreBytes);
        c.writes.emplace_back(at, CopyOf(life.LbaAt(at, command)));
      }
      cases.Run(&checker, c);
    }
  }
}

// What another store has at the same place, at another one, and in a stretch.
TEST_P(DamagedBlocks, OfAnotherStore) {
  Subject subject(LongLife(GetParam())), other(OtherLife(GetParam()));
  Checker checker(&subject);
  Cases cases("damage_whole_store_blocks_of_another_store", 1600);
  for (const uint64_t at : subject.lbas) {
    for (int how = 0; how < 3; ++how) {
      if (!cases.Next()) continue;
      const uint64_t from = how == 0 ? at : other.lbas[cases.Salt(3) % other.lbas.size()];
      cases.Run(&checker,
                {absl::StrCat("LBA at ", at, " is the one at ", from, " of another store"),
                 {{at, BlockAt(other, from)}}});
    }
  }
  for (int i = 0; i < 1500; ++i) {
    if (!cases.Next()) continue;
    const uint64_t at = subject.lbas[cases.Salt(3) % subject.lbas.size()];
    const uint64_t bytes = std::min<uint64_t>(4096 << cases.Salt(5) % 8, kStoreBytes - at);
    const auto content = other.device->contents().subspan(at, bytes);
    cases.Run(&checker, {absl::StrCat(bytes, " bytes at ", at, " are those of another store"),
                         {{at, CopyOf(content)}}});
  }
}

// A device that was formatted over a store: what is left of that is never taken for this one's.
void BeforeFormat(const Life& life) {
  Subject subject(life);
  Checker checker(&subject);
  Cases cases("damage_whole_store_blocks_of_before_the_format", 3000);
  const Life& before = *life.before;
  std::vector<uint64_t> overwritten;
  for (const auto& [at, writes] : before.lbas()) {
    if (life.lbas().count(at) != 0) overwritten.push_back(at);
  }
  ASSERT_GE(overwritten.size(), 40u);
  // Each LBA that the format or the new store has written, as it was at the end of the old one.
  for (const uint64_t at : overwritten) {
    if (!cases.Next()) continue;
    cases.Run(&checker, {absl::StrCat("LBA at ", at, " as before the format"),
                         {{at, CopyOf(before.LbaAt(at, SIZE_MAX))}}});
  }
  // As it was at any time.
  for (int i = 0; i < 2500; ++i) {
    if (!cases.Next()) continue;
    const uint64_t at = overwritten[cases.Salt(3) % overwritten.size()];
    const size_t command = cases.Salt(4) % before.recording.commands.size();
    cases.Run(&checker,
              {absl::StrCat("LBA at ", at, " as before command ", command, " of the old store"),
               {{at, CopyOf(before.LbaAt(at, command))}}});
  }
  // All but the superblocks at once: whatever of the old store can be had, with one or two of its
  // superblocks, and with none.
  for (int i = 0; i < 400; ++i) {
    if (!cases.Next()) continue;
    Case c{absl::StrCat("everything as before the format with superblocks ", i % 16), {}};
    const unsigned copies = static_cast<unsigned>(i) % 16;
    if (__builtin_popcount(copies) > 2) continue;
    const uint64_t share = 1 + cases.Salt(5) % 4;
    for (const uint64_t at : overwritten) {
      bool superblock = false, wanted = false;
      for (int copy = 0; copy < kSuperblockCopies; ++copy) {
        const uint64_t place = SuperblockPlace(copy, kStoreBytes);
        superblock |= place == at;
        wanted |= place == at && (copies >> copy & 1) != 0;
      }
      if (superblock ? !wanted : cases.Salt(at) % share != 0) continue;
      c.writes.emplace_back(at, CopyOf(before.LbaAt(at, SIZE_MAX)));
    }
    cases.Run(&checker, c);
  }
}

TEST_P(DamagedBlocks, OfBeforeTheFormatOfAClosedStore) {
  BeforeFormat(LaterLife(GetParam(), true));
}
TEST_P(DamagedBlocks, OfBeforeTheFormatOfAnUnclosedStore) {
  BeforeFormat(LaterLife(GetParam(), false));
}

}  // namespace
}  // namespace ashlar
