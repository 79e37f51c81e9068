#include <gtest/gtest.h>

#include "engine/format/checksum.h"
#include "engine/wal/log_writer.h"
#include "engine/wal/record_reader.h"
#include "tests/engine/floor.h"

namespace ashlar {
namespace {

constexpr uint32_t kBuffer = 32u << 10;

class LogTest : public testing::TestWithParam<uint32_t> {
 protected:
  LogTest() : floor_(GetParam(), 64u << 10, kBuffer, LogWriter::kBuffers * kBuffer) {
    for (uint32_t i = 0; i < 3; ++i) segments_.push_back({{1, i + 1}, floor_.Extents(12)});
    Restart();
    EXPECT_TRUE(log_->StartSegment(segments_[0]).ok());
  }
  void Restart() {
    log_ = std::make_unique<LogWriter>(
        floor_.io.get(), *floor_.io->OpenQueue(16), floor_.store,
        std::span<std::byte>(floor_.io->extra(), LogWriter::kBuffers * kBuffer));
  }
  absl::Status Add(const std::string& payload) {
    const std::string_view half = std::string_view(payload).substr(0, payload.size() / 2);
    const std::string_view rest = std::string_view(payload).substr(payload.size() / 2);
    const std::string_view parts[] = {half, rest};
    absl::Status s = log_->Append(sequence_, parts);
    if (s.ok()) written_.emplace_back(sequence_++, payload);
    return s;
  }
  struct Outcome {
    absl::Status status;
    std::vector<std::pair<SequenceNumber, std::string>> payloads;
    ReplayReport report;
    std::vector<std::string> damage;
  };
  Outcome Replay(bool pass_over = false) {
    Outcome o;
    std::vector<RecordStream> streams;
    for (const auto& s : segments_) streams.push_back({"log segment", s.id, {s.extents}});
    ReplayDamage sink;
    if (pass_over) {
      sink = [&](const std::string&, const absl::Status& s) {
        o.damage.push_back(std::string(s.message()));
      };
    }
    o.status = ReplayRecords(
        floor_.io.get(), floor_.store, streams,
        [&](SequenceNumber first, std::string_view payload) {
          o.payloads.emplace_back(first, std::string(payload));
          return absl::OkStatus();
        },
        sink, &o.report);
    return o;
  }
  std::byte* At(size_t segment, uint64_t offset) {
    const uint32_t e = floor_.io->extent_bytes();
    return floor_.Bytes(segments_[segment].extents[offset / e], offset % e);
  }

  Floor floor_;
  std::vector<SegmentMeta> segments_;
  std::unique_ptr<LogWriter> log_;
  SequenceNumber sequence_ = 1;
  std::vector<std::pair<SequenceNumber, std::string>> written_;
};

TEST_P(LogTest, ReplaysWhatWasAppended) {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const size_t size = i % 10 == 0 ? 20000 + random() % 60000 : random() % 3000;
    if (!log_->Fits(size)) break;
    ASSERT_TRUE(Add(std::string(size, static_cast<char>('a' + i % 26))).ok());
    if (i % 3 == 0) ASSERT_TRUE(log_->MakeDurable().ok());
    if (i % 7 == 0) ASSERT_TRUE(log_->Submit().ok());
  }
  ASSERT_TRUE(log_->StartSegment(segments_[1]).ok());
  ASSERT_TRUE(Add("in the second segment").ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  ASSERT_TRUE(log_->mark_is_due());
  ASSERT_TRUE(log_->AppendMark(sequence_).ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  EXPECT_FALSE(log_->mark_is_due());
  const Outcome o = Replay();
  ASSERT_TRUE(o.status.ok()) << o.status;
  EXPECT_EQ(o.payloads, written_);
}

TEST_P(LogTest, GroupsThatFitTheBoundFitTheSegment) {
  const uint64_t size = segments_[0].extents.size() * uint64_t{floor_.io->extent_bytes()};
  const uint64_t most = LogWriter::MaxPayload(size, kBuffer, floor_.device->geometry().lba_bytes);
  ASSERT_GT(most, size / 2);
  ASSERT_TRUE(log_->Fits(most));
  ASSERT_TRUE(Add(std::string(most, 'm')).ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  EXPECT_EQ(Replay().payloads, written_);
}

TEST_P(LogTest, WhatWasNotDurableIsCutFromTheEndAlone) {
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Add("payload number " + std::to_string(i)).ok());
    if (i == 20) ASSERT_TRUE(log_->MakeDurable().ok());
    if (i > 20) ASSERT_TRUE(log_->Submit().ok());
  }
  log_.reset();
  const size_t n = floor_.device->unflushed();
  ASSERT_GE(n, 10u);
  // A hole: one lost, all behind it kept.
  floor_.tables.reset();
  floor_.io.reset();
  floor_.device->LoseUnflushed([&](size_t i) { return i != 5; });
  floor_.io = *ExtentIo::Create(floor_.device.get(), 64u << 10, 4, kBuffer, 0);
  const Outcome o = Replay();
  ASSERT_TRUE(o.status.ok()) << o.status;
  ASSERT_GE(o.payloads.size(), 21u);
  ASSERT_LT(o.payloads.size(), 40u);
  written_.resize(o.payloads.size());
  EXPECT_EQ(o.payloads, written_);
}

TEST_P(LogTest, RotBeforeTheLastDurableMarkIsDamageAndNamed) {
  std::vector<uint64_t> starts;
  for (int i = 0; i < 10; ++i) {
    starts.push_back(Replay().report.end.offset);
    ASSERT_TRUE(Add("payload number " + std::to_string(i)).ok());
    ASSERT_TRUE(log_->MakeDurable().ok());
  }
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const uint64_t lba = floor_.device->geometry().lba_bytes;
    const uint64_t at = (starts[i] + lba - 1) / lba * lba;
    *At(0, at + 80) ^= std::byte{1};
    const Outcome o = Replay();
    EXPECT_TRUE(absl::IsDataLoss(o.status)) << i << o.status;
    EXPECT_NE(std::string(o.status.message()).find("extent"), std::string::npos);
    const Outcome rest = Replay(true);
    EXPECT_TRUE(rest.status.ok());
    EXPECT_EQ(rest.damage.size(), 1u);
    EXPECT_EQ(rest.payloads.size(), written_.size() - 1) << i;
    *At(0, at + 80) ^= std::byte{1};
  }
  // Nothing vouches for the last group: its rot is the torn end. A mark behind it would.
  const uint64_t lba = floor_.device->geometry().lba_bytes;
  const uint64_t last = (starts.back() + lba - 1) / lba * lba;
  *At(0, last + 80) ^= std::byte{1};
  EXPECT_TRUE(Replay().status.ok());
  EXPECT_EQ(Replay().payloads.size(), written_.size() - 1);
  *At(0, last + 80) ^= std::byte{1};
  ASSERT_TRUE(log_->AppendMark(sequence_).ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  *At(0, last + 80) ^= std::byte{1};
  EXPECT_TRUE(absl::IsDataLoss(Replay().status));
}

TEST_P(LogTest, ALostTailOfASegmentEndsTheLogThere) {
  ASSERT_TRUE(Add("durable").ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  ASSERT_TRUE(Add("lost").ok());
  ASSERT_TRUE(log_->StartSegment(segments_[1]).ok());
  ASSERT_TRUE(Add("kept, but behind a hole").ok());
  ASSERT_TRUE(log_->Submit().ok());
  log_.reset();
  floor_.tables.reset();
  floor_.io.reset();
  floor_.device->LoseUnflushed([](size_t i) { return i != 0; });
  floor_.io = *ExtentIo::Create(floor_.device.get(), 64u << 10, 4, kBuffer, 0);
  const Outcome o = Replay();
  ASSERT_TRUE(o.status.ok()) << o.status;
  ASSERT_EQ(o.payloads.size(), 1u);
  EXPECT_EQ(o.payloads[0].second, "durable");
}

// Nothing in the first segment reached the media, all of the second did: it lies behind a hole.
TEST_P(LogTest, ALostSegmentEndsTheLogBeforeTheNext) {
  ASSERT_TRUE(Add("lost").ok());
  ASSERT_TRUE(log_->StartSegment(segments_[1]).ok());
  ASSERT_TRUE(Add("kept, but behind a hole").ok());
  ASSERT_TRUE(log_->Submit().ok());
  log_.reset();
  floor_.tables.reset();
  floor_.io.reset();
  ASSERT_EQ(floor_.device->unflushed(), 2u);
  floor_.device->LoseUnflushed([](size_t i) { return i == 1; });
  floor_.io = *ExtentIo::Create(floor_.device.get(), 64u << 10, 4, kBuffer, 0);
  const Outcome o = Replay();
  ASSERT_TRUE(o.status.ok()) << o.status;
  EXPECT_TRUE(o.payloads.empty());
}

TEST_P(LogTest, FullIsRepeatedAndNothingIsLost) {
  bool full = false;
  floor_.device->set_hook([&](const io::Request& r, const std::byte*) {
    io::IoStatus s;
    if (full && r.op == io::Op::kWrite) s.cls = io::IoClass::kFull;
    return s;
  });
  ASSERT_TRUE(Add("first").ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  full = true;
  ASSERT_TRUE(Add("second").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(log_->MakeDurable()));
  EXPECT_TRUE(absl::IsResourceExhausted(log_->MakeDurable()));
  EXPECT_FALSE(log_->all_durable());
  full = false;
  ASSERT_TRUE(Add("third").ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  EXPECT_EQ(Replay().payloads, written_);
  floor_.device->set_hook(nullptr);
}

// A block that can't be read ends nothing where nothing is: far behind the end it does not matter,
// where a record may lie it is an error with the place, and a rescue goes on.
TEST_P(LogTest, UnreadableBlocksMatterWhereARecordMayLie) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Add("payload number " + std::to_string(i)).ok());
    ASSERT_TRUE(log_->MakeDurable().ok());
  }
  uint64_t bad = 0;  // byte of the device
  floor_.device->set_hook([&](const io::Request& r, const std::byte*) {
    io::IoStatus s;
    const uint64_t at = io::Raw(r.lba) * floor_.device->geometry().lba_bytes;
    if (r.op == io::Op::kRead && at <= bad && bad < at + r.data[0].bytes) {
      s.cls = io::IoClass::kFatal;
      s.err = 5;
    }
    return s;
  });
  const auto byte_of = [&](uint64_t offset) {
    return static_cast<uint64_t>(At(0, offset) - floor_.device->contents().data());
  };
  bad = byte_of(600u << 10);
  EXPECT_TRUE(Replay().status.ok());
  EXPECT_EQ(Replay().payloads, written_);
  bad = byte_of(Replay().report.end.offset + 5000);  // the next record might be there
  Outcome o = Replay();
  EXPECT_TRUE(absl::IsDataLoss(o.status)) << o.status;
  EXPECT_NE(o.status.message().find("extent"), absl::string_view::npos) << o.status;
  bad = byte_of(0);
  EXPECT_TRUE(absl::IsDataLoss(Replay().status));
  o = Replay(true);
  EXPECT_TRUE(o.status.ok()) << o.status;
  EXPECT_EQ(o.damage.size(), 1u);
  // Far into the last record, which nothing vouches for: it was acknowledged, and is not dropped.
  bad = byte_of(700u << 10);
  const uint64_t end = Replay().report.end.offset;
  ASSERT_TRUE(Add(std::string(20'000, 'l')).ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  bad = byte_of(end + 18'000);
  EXPECT_TRUE(absl::IsDataLoss(Replay().status));
  // The begin of the next segment.
  ASSERT_TRUE(log_->StartSegment(segments_[1]).ok());
  ASSERT_TRUE(Add("in the next").ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  bad = static_cast<uint64_t>(At(1, 0) - floor_.device->contents().data());
  EXPECT_TRUE(absl::IsDataLoss(Replay().status));
  floor_.device->set_hook(nullptr);
  EXPECT_EQ(Replay().payloads, written_);
}

TEST_P(LogTest, AFailedWriteBreaksTheWriterForGood) {
  bool fail = false;
  floor_.device->set_hook([&](const io::Request& r, const std::byte*) {
    io::IoStatus s;
    if (fail && r.op == io::Op::kWrite) s.cls = io::IoClass::kFatal;
    return s;
  });
  ASSERT_TRUE(Add("first").ok());
  ASSERT_TRUE(log_->MakeDurable().ok());
  fail = true;
  ASSERT_TRUE(Add("second").ok());
  EXPECT_FALSE(log_->MakeDurable().ok());
  fail = false;
  EXPECT_FALSE(log_->MakeDurable().ok());
  EXPECT_FALSE(Add("third").ok());
  floor_.device->set_hook(nullptr);
  EXPECT_EQ(Replay().payloads.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Lba, LogTest, testing::Values(512u, 4096u));

}  // namespace
}  // namespace ashlar
