// The rig itself, on recordings made by hand: which images there are, how many, and what is in
// them.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/crash_images.h"

namespace ashlar {
namespace {

constexpr uint32_t kLba = 512;
constexpr uint64_t kBlocks = 64;

io::Geometry SmallGeometry() {
  io::Geometry g;
  g.lba_bytes = kLba;
  g.capacity_blocks = kBlocks;
  return g;
}

// A recording, block by block: a letter is the byte that fills a block.
struct Made {
  Made() { recording.lba_bytes = kLba; }

  uint32_t Submit(io::Op op, uint64_t block, const std::string& letters, bool fua = false) {
    Recording::Command c;
    c.op = op;
    c.fua = fua;
    if (op != io::Op::kFlush) {
      Recording::Stretch s;
      s.at = block * kLba;
      for (const char letter : letters) s.bytes.insert(s.bytes.end(), kLba, std::byte(letter));
      c.stretches.push_back(std::move(s));
    }
    recording.commands.push_back(std::move(c));
    const uint32_t command = static_cast<uint32_t>(recording.commands.size() - 1);
    recording.events.push_back({Recording::Event::Kind::kSubmitted, command});
    return command;
  }
  void GiveBack(uint32_t command) {
    recording.events.push_back({Recording::Event::Kind::kGivenBack, command});
  }
  uint32_t Write(uint64_t block, const std::string& letters, bool fua = false) {
    const uint32_t c = Submit(io::Op::kWrite, block, letters, fua);
    GiveBack(c);
    return c;
  }
  void Flush() { GiveBack(Submit(io::Op::kFlush, 0, "")); }
  void Deallocate(uint64_t block, uint64_t blocks) {
    GiveBack(Submit(io::Op::kDeallocate, block, std::string(blocks, '\0')));
  }

  // The first `blocks` blocks of each image visited: '.' for zeros, '?' for anything that is not
  // one byte throughout. Each is rebuilt from its text and compared.
  std::multiset<std::string> Images(uint64_t blocks, CrashCounts* counts = nullptr) {
    CrashCounts unused;
    if (counts == nullptr) counts = &unused;
    std::multiset<std::string> images;
    ImageDevice device(SmallGeometry());
    CrashRig rig(recording, &device, 1);
    const absl::Status s = rig.Run(
        [&](const CrashImage& image) -> absl::StatusOr<uint32_t> {
          images.insert(Letters(&device, blocks));
          auto parsed = ParseCrashImage(image.Text());
          EXPECT_TRUE(parsed.ok()) << image.Text();
          ImageDevice again(SmallGeometry());
          EXPECT_TRUE(CrashRig(recording, &again, 2).Build(&*parsed).ok());
          EXPECT_EQ(parsed->least, image.least);
          EXPECT_EQ(parsed->most, image.most);
          const auto a = device.contents(), b = again.contents();
          EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << image.Text();
          return found(image);
        },
        {}, counts);
    status = s;
    EXPECT_EQ(counts->distinct, counts->subsets + counts->tears + counts->sampled);
    return images;
  }
  static std::string Letters(ImageDevice* device, uint64_t blocks) {
    std::string letters;
    for (uint64_t b = 0; b < blocks; ++b) {
      const std::byte* const at = device->Read(b * kLba, kLba);
      const bool same = std::all_of(at, at + kLba, [&](std::byte x) { return x == *at; });
      letters += !same                    ? '?'
                 : *at == std::byte{0}    ? '.'
                 : *at == std::byte{0xff} ? '1'
                                          : static_cast<char>(*at);
    }
    return letters;
  }

  Recording recording;
  absl::Status status;
  std::function<uint32_t(const CrashImage&)> found = [](const CrashImage& i) { return i.least; };
};

using Set = std::multiset<std::string>;

TEST(CrashRig, EverySubsetOfWhatIsNotDurable) {
  Made made;
  made.Write(0, "a");
  made.Write(1, "b");
  made.Write(2, "c");
  CrashCounts counts;
  EXPECT_EQ(made.Images(3, &counts), (Set{"...", "a..", ".b.", "ab.", "..c", "a.c", ".bc", "abc"}));
  EXPECT_EQ(counts.cuts, 7u);
  EXPECT_EQ(counts.subsets, 8u);
  EXPECT_EQ(counts.tears, 0u);
  // The device ends up with what was durable: nothing.
  ImageDevice device(SmallGeometry());
  CrashRig rig(made.recording, &device, 1);
  ASSERT_TRUE(rig.Run(nullptr, {}, &counts).ok());
  EXPECT_EQ(Made::Letters(&device, 3), "...");
}

TEST(CrashRig, AFlushCoversWhatWasGivenBackBeforeIt) {
  Made made;
  made.Write(0, "a");
  const uint32_t late = made.Submit(io::Op::kWrite, 1, "b");
  const uint32_t flush = made.Submit(io::Op::kFlush, 0, "");
  made.GiveBack(late);
  made.GiveBack(flush);
  made.Write(2, "c");
  // Behind the flush a is there for good, b is not.
  EXPECT_EQ(made.Images(3), (Set{"...", "a..", ".b.", "ab.", "a.c", "abc"}));
}

TEST(CrashRig, FuaAndNoCacheMakeDurable) {
  Made fua;
  fua.Write(0, "a", true);
  fua.Write(1, "b", true);
  EXPECT_EQ(fua.Images(2), (Set{"..", "a.", "ab"}));
  Made no_cache;
  no_cache.recording.volatile_cache = false;
  no_cache.Write(0, "a");
  const uint32_t b = no_cache.Submit(io::Op::kWrite, 1, "b");
  no_cache.Write(2, "c");
  no_cache.GiveBack(b);
  EXPECT_EQ(no_cache.Images(3), (Set{"...", "a..", "ab.", "a.c", "abc"}));
}

TEST(CrashRig, EqualBytesAreOneImage) {
  Made made;
  made.Write(0, "a");
  made.Flush();
  made.Write(0, "a");  // changes nothing
  made.Write(1, std::string(1, '\0'));
  made.Flush();
  made.Write(0, "b");
  made.Flush();
  made.Write(0, "a");  // as it was
  EXPECT_EQ(made.Images(2), (Set{"..", "a.", "b."}));
}

TEST(CrashRig, AnImageIsSeenAgainWhereMoreIsDemanded) {
  Made made;
  made.recording.markers = {{0, 1, 0}, {2, 1, 1}};
  made.Write(0, "a");
  made.found = [](const CrashImage& i) { return i.kept.empty() ? 0u : 1u; };
  CrashCounts counts;
  // At the end it must hold the commit: without the write it is looked at once more.
  EXPECT_EQ(made.Images(1, &counts), (Set{".", ".", "a"}));
  EXPECT_EQ(counts.distinct, 2u);
}

TEST(CrashRig, EveryTearOfAShortWrite) {
  Made made;
  made.Submit(io::Op::kWrite, 0, "ab");
  CrashCounts counts;
  // Each block old, new or garbage.
  EXPECT_EQ(made.Images(2, &counts), (Set{"..", "ab", "a.", ".b", "?.", ".?", "a?", "?b", "??"}));
  EXPECT_EQ(counts.subsets, 2u);
  EXPECT_EQ(counts.tears, 7u);
}

TEST(CrashRig, TearsBesideOtherWrites) {
  Made made;
  made.Submit(io::Op::kWrite, 0, "ab");
  made.Submit(io::Op::kWrite, 2, "c");
  const Set images = made.Images(3);
  EXPECT_EQ(images.size(), 18u);  // nine times with c and without
  EXPECT_EQ(images.count("a.c"), 1u);
  EXPECT_EQ(images.count("?b."), 1u);
}

TEST(CrashRig, TearsOfALongWrite) {
  Made made;
  made.Submit(io::Op::kWrite, 0, "abcdefghij");
  const Set images = made.Images(10);
  for (const char* const want :
       {"..........", "abcdefghij", "a.........", "abcd......", "abcdefghi.", ".........j",
        "..cdefghij", "...d......", "abc.efghij", "a.c.e.g.i.", ".b.d.f.h.j", "abcd??????",
        "??????????", "abc?efghij", "...?......"}) {
    EXPECT_EQ(images.count(want), 1u) << want;
  }
  EXPECT_EQ(std::set<std::string>(images.begin(), images.end()).size(), images.size());
  EXPECT_GE(images.size(), 50u);
}

TEST(CrashRig, ManyWritesAreSampled) {
  Made made;
  for (uint64_t b = 0; b < 20; ++b) made.Submit(io::Op::kWrite, b, "x");
  CrashCounts counts;
  const Set images = made.Images(20, &counts);
  // Every subset of up to twelve, then as many as asked for at each of the eight cuts behind.
  EXPECT_EQ(counts.subsets, 1u << CrashRig::kAllSubsets);
  EXPECT_GE(counts.sampled, 8 * CrashRig::kSampled / 2);
  std::string alone(20, '.'), missing(20, 'x');
  alone[19] = 'x';
  missing[7] = '.';
  EXPECT_EQ(images.count(alone) + images.count(missing), 2u);
  EXPECT_EQ(images.count(std::string(20, 'x')), 1u);
}

TEST(CrashRig, DeallocatedBlocksReadAsAnything) {
  Made made;
  made.Write(0, "ab");
  made.Flush();
  made.Deallocate(0, 1);
  EXPECT_EQ(made.Images(2).count(".b"), 2u - 1);  // the tear of the write is the same image
  const Set images = made.Images(2);
  for (const char* const want : {"ab", ".b", "1b", "?b"}) EXPECT_GE(images.count(want), 1u) << want;

  // Durably, it still does, until it is written again; the write may be lost.
  Made durable;
  durable.Write(0, "a", true);
  durable.Deallocate(0, 1);
  durable.Flush();
  durable.Write(0, "c");
  durable.Flush();
  EXPECT_EQ(durable.Images(1), (Set{".", "a", "1", "?", "c"}));
  // In part: two blocks, of which one is left.
  Made part;
  part.Write(0, "ab", true);
  part.Deallocate(0, 2);
  const Set torn = part.Images(2);
  for (const char* const want : {"..", "11", "??", ".b", "a.", "1b", "a1"}) {
    EXPECT_GE(torn.count(want), 1u) << want;
  }
}

TEST(CrashRig, RefusesToLetTwoWritesRace) {
  Made made;
  made.Write(0, "ab");
  made.Write(1, "c");
  made.Images(2);
  EXPECT_TRUE(absl::IsInternal(made.status)) << made.status;
}

TEST(CrashRig, RefusesTheImageOfAnotherRecording) {
  Made made;
  made.Write(0, "a", true);
  for (const char* const text : {"9///zeros", "2/0//zeros", "0/1//zeros", "2//0:0:/zeros", "1/0/",
                                 "1/0//twos", "x/0//zeros", "1/3-1//zeros"}) {
    auto image = ParseCrashImage(text);
    if (!image.ok()) continue;
    ImageDevice device(SmallGeometry());
    EXPECT_FALSE(CrashRig(made.recording, &device, 1).Build(&*image).ok()) << text;
  }
  auto image = ParseCrashImage("1/0//zeros");
  ASSERT_TRUE(image.ok());
  ImageDevice device(SmallGeometry());
  EXPECT_TRUE(CrashRig(made.recording, &device, 1).Build(&*image).ok());
}

TEST(ImageDevice, UndoGoesBackLevelByLevel) {
  ImageDevice device(SmallGeometry());
  const auto put = [&](uint64_t block, char letter) {
    std::array<std::byte, kLba> bytes;
    bytes.fill(std::byte(letter));
    device.Write(block * kLba, bytes);
  };
  const auto get = [&] { return Made::Letters(&device, 20); };
  put(0, 'a');
  device.Push();
  put(1, 'b');
  device.Push();
  put(0, 'c');
  put(17, 'd');
  EXPECT_EQ(get(), "cb...............d..");
  device.Undo();
  EXPECT_EQ(get(), "ab..................");
  put(1, 'e');
  put(18, 'f');
  device.Pop();
  EXPECT_EQ(get(), "ab..................");
  device.Pop();
  EXPECT_EQ(get(), "a...................");
  put(18, 'g');
  EXPECT_EQ(get(), "a.................g.");
  device.Undo();
  EXPECT_EQ(get(), "....................");
  const auto contents = device.contents();
  EXPECT_TRUE(
      std::all_of(contents.begin(), contents.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(RecordingDevice, TellsItsObserver) {
  ImageDevice below(SmallGeometry());
  Recording recording;
  RecordingDevice device(&below, &recording);
  struct : CommandObserver {
    std::vector<std::string> told;
    void Submitted(const ObservedCommand& c) override {
      told.push_back(absl::StrCat("+", c.id, c.op == io::Op::kFlush ? " flush" : " write"));
      if (c.op != io::Op::kWrite) return;
      EXPECT_EQ(c.ranges[0].at, 3 * kLba);
      EXPECT_EQ(c.data.size(), kLba);
      EXPECT_EQ(c.data[0], std::byte{'w'});
    }
    void Completed(uint64_t id, bool) override { told.push_back(absl::StrCat("-", id)); }
  } observer;
  device.set_observer(&observer);
  auto arena = *io::Arena::Create(4096);
  io::Device* const devices[] = {&device};
  auto queue = *device.OpenQueue(devices, {}, *arena);
  std::memset(arena->data(), 'w', kLba);
  io::Request write, flush;
  const io::Piece piece = arena->PieceOf(arena->data(), kLba);
  write.op = io::Op::kWrite;
  write.lba = io::Lba{3};
  write.blocks = 1;
  write.data = {&piece, 1};
  flush.op = io::Op::kFlush;
  io::Request* const both[] = {&write, &flush};
  queue->Submit(both);
  queue->Drain();
  EXPECT_EQ(observer.told, (std::vector<std::string>{"+1 write", "+2 flush", "-1", "-2"}));
}

}  // namespace
}  // namespace ashlar
