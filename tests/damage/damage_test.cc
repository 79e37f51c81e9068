// Every page of a small store damaged, one at a time: the store opens, reads answer right or name
// the place, check finds what can be seen, and salvage brings out the rest.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/base/limits.h"
#include "engine/format/checksum.h"
#include "engine/format/log_format.h"
#include "engine/space/extent_io.h"
#include "engine/version/manifest_log.h"
#include "engine/version/superblock_store.h"
#include "gtest/gtest.h"
#include "io/memory_device.h"
#include "tests/support/crash_rig.h"
#include "tests/support/seed.h"

namespace ashlar {
namespace {

constexpr uint64_t kStoreBytes = 64u << 20;
constexpr uint32_t kExtentBytes = 64u << 10;

std::string Bytes(size_t size, uint64_t n) {
  std::mt19937_64 random(n);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// What a byte of the device is to the store.
enum class Part { kSuperblock, kManifest, kData, kIndex, kLog, kLogTail };

// Bytes [begin, end) of the device, all in one page, that can be seen; damage in them is named as
// page `named`.
struct Live {
  uint64_t begin, end, named;
  Part part;
};

// A store on a device whose pages are damaged in turn.
class Subject {
 public:
  explicit Subject(const std::function<void(RecordedStore&)>& workload) {
    KeepFreedMemory();
    auto memory = *io::MemoryDevice::Create({.bytes = kStoreBytes, .lba_bytes = 4096});
    CHECK(FormatDevice(memory.get(), kExtentBytes, FixedStoreId()).ok());
    Recording recording;
    {
      RecordingDevice recorder(memory.get(), &recording);
      RecordedStore store(&recorder, &recording, &model);
      workload(store);
    }
    memory->LoseUnflushed([](size_t) { return true; });
    device = std::make_unique<ImageDevice>(memory->geometry());
    const auto contents = memory->contents();
    for (uint64_t at = 0; at < contents.size(); at += kPageBytes) {
      const auto page = contents.subspan(at, kPageBytes);
      if (std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; })) {
        continue;
      }
      device->WriteBase(at, page);
      pages.push_back(at);
    }
    FindLive();
  }

  // The live ranges that a change of [begin, end) touches.
  std::vector<Live> Touched(uint64_t begin, uint64_t end) const {
    std::vector<Live> touched;
    for (const Live& l : live) {
      if (l.begin < end && begin < l.end) touched.push_back(l);
    }
    return touched;
  }

  std::unique_ptr<ImageDevice> device;
  StoreModel model;
  std::vector<uint64_t> pages;  // that are not all zero
  std::vector<Live> live;
  uint32_t vouched = 0;    // commits that damage of the log's tail can't take
  uint32_t in_tables = 0;  // commits that are in tables

 private:
  uint64_t Place(const std::vector<ExtentId>& extents, uint64_t offset) const {
    return uint64_t{Raw(extents[offset / kExtentBytes])} * kExtentBytes + offset % kExtentBytes;
  }

  // Calls `record` with each valid record of a stream.
  void Walk(WriteId id, const std::vector<ExtentId>& extents,
            const std::function<void(const RecordHeader&)>& record) const {
    std::vector<std::byte> bytes;
    for (const ExtentId e : extents) {
      const auto extent = device->contents().subspan(uint64_t{Raw(e)} * kExtentBytes, kExtentBytes);
      bytes.insert(bytes.end(), extent.begin(), extent.end());
    }
    for (uint64_t at = 0; at < bytes.size();) {
      RecordHeader header;
      std::string_view payload;
      if (ParseRecord(std::span(bytes).subspan(at), {id.raw(), at}, StreamSeed(FixedStoreId(), id),
                      &header, &payload) != RecordParse::kOk) {
        at = at / kPageBytes * kPageBytes + kPageBytes;
        continue;
      }
      record(header);
      at += RecordBytes(header.payload_bytes);
    }
  }

  void AddRecord(const std::vector<ExtentId>& extents, const RecordHeader& h, Part part) {
    const uint64_t end = h.position.offset + kRecordHeaderBytes + h.payload_bytes;
    for (uint64_t at = h.position.offset; at < end;) {
      const uint64_t stop = std::min(end, at / kPageBytes * kPageBytes + kPageBytes);
      const uint64_t begin = Place(extents, at);
      live.push_back({begin, begin + (stop - at),
                      Place(extents, h.position.offset / kPageBytes * kPageBytes), part});
      at = stop;
    }
  }

  void FindLive() {
    auto io = *ExtentIo::Create(device.get(), kExtentBytes, 2, 128u << 10, 0);
    const SuperblockScan scan = *ReadSuperblocks(io.get());
    const Superblock& sb = scan.current;
    const Version version = *ReadManifest(io.get(), sb)->version;
    for (int copy = 0; copy < kSuperblockCopies; ++copy) {
      const uint64_t at = SuperblockPlace(copy, kStoreBytes);
      live.push_back({at, at + kSuperblockBytes, at, Part::kSuperblock});
    }
    for (const auto& copy : sb.manifest_extents) {
      std::vector<RecordHeader> records;
      Walk(sb.manifest, copy, [&](const RecordHeader& h) { records.push_back(h); });
      // Of a store that was not closed the last edit may well stand in one copy.
      if (sb.owner != Owner()) records.pop_back();
      for (const RecordHeader& h : records) AddRecord(copy, h, Part::kManifest);
    }
    for (const auto* list : {&version.level0, &version.run}) {
      for (const TablePtr& t : *list) {
        const uint32_t per_extent = kExtentBytes / kPageBytes;
        for (uint32_t p = t->dropped_extents * per_extent; p < t->pages; ++p) {
          const uint64_t at = Place(t->extents, (p - t->dropped_extents * per_extent) * kPageBytes);
          // The kind stands in the page's header; the pages are whole here.
          PageHeader header = ReadPageHeader(device->contents().data() + at);
          live.push_back({at, at + kPageBytes, at,
                          header.kind == PageKind::kData ? Part::kData : Part::kIndex});
        }
      }
    }
    LogPosition vouched_position;
    uint64_t first_unvouched = UINT64_MAX;
    for (const auto& [id, segment] : version.segments) {
      Walk(id, segment.extents, [&](const RecordHeader& h) {
        vouched_position = std::max(vouched_position, h.durable);
      });
    }
    for (const auto& [id, segment] : version.segments) {
      const auto& extents = segment.extents;
      Walk(id, extents, [&](const RecordHeader& h) {
        const bool vouched_for = h.position < vouched_position;
        if (!vouched_for) first_unvouched = std::min(first_unvouched, h.first_sequence);
        AddRecord(extents, h, vouched_for ? Part::kLog : Part::kLogTail);
      });
    }
    vouched =
        first_unvouched == UINT64_MAX ? model.commits() : model.CommitsBefore(first_unvouched);
    in_tables = model.CommitsBefore(version.last_sequence + 1);
  }
};

// One way to damage the store: the bytes that are put in place.
struct Case {
  std::string what;
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> writes;
};

struct Counts {
  uint64_t cases = 0, visible = 0, failed_opens = 0, failed_gets = 0, salvaged = 0, missing = 0;
};

class Checker {
 public:
  Checker(Subject* subject, bool closed) : s_(*subject), closed_(closed) {}

  void Check(const Case& c) {
    touched_.clear();
    for (const auto& [at, bytes] : c.writes) {
      const std::byte* const old = s_.device->contents().data() + at;
      for (const Live& l : s_.Touched(at, at + bytes.size())) {
        const uint64_t from = std::max(l.begin, at), to = std::min(l.end, at + bytes.size());
        if (std::memcmp(old + (from - at), bytes.data() + (from - at), to - from) != 0) {
          touched_.push_back(l);
        }
      }
    }
    ++counts.cases;
    visible_ = log_ = tail_ = false;
    for (const Live& l : touched_) {
      visible_ |= l.part != Part::kLogTail;
      log_ |= l.part == Part::kLog;
      tail_ |= l.part == Part::kLogTail;
    }
    counts.visible += visible_;
    std::string touched;
    for (const Live& l : touched_) {
      absl::StrAppend(&touched, " [", l.begin, ",", l.end, ") of part ", static_cast<int>(l.part),
                      " named ", l.named);
    }
    SCOPED_TRACE(absl::StrCat("touches", touched));
    Put(c);
    CheckFinds();
    ReadsAreRight();
    s_.device->Undo();
    Put(c);
    SalvageBringsTheRest();
    s_.device->Undo();
  }

  Counts counts;

 private:
  void Put(const Case& c) {
    for (const auto& [at, bytes] : c.writes) s_.device->Write(at, bytes);
  }

  // Whether a text names one of the damaged places.
  bool Named(const std::string& text) const {
    for (const Live& l : touched_) {
      const std::string place = absl::StrCat("byte ", l.named);
      const size_t at = text.find(place);
      if (at != std::string::npos && !std::isdigit(text[at + place.size()])) return true;
    }
    return false;
  }

  void CheckFinds() {
    const auto report = CheckDevice(s_.device.get(), nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    std::string all;
    for (const Damage& d : report->damage) {
      absl::StrAppend(&all, d.what, ": ", d.where, ": ", d.detail, " \n");
    }
    if (visible_) {
      ASSERT_TRUE(Named(all)) << "check does not find it; it says: " << all;
    } else {
      ASSERT_EQ(report->damage_total, 0u) << all;
    }
  }

  // The value is right for some state that the store may be in.
  bool Right(const std::string& key, const std::string* value) const {
    for (uint32_t p = tail_ ? s_.vouched : s_.model.commits(); p <= s_.model.commits(); ++p) {
      const std::string* const want = s_.model.At(p, key);
      if (value == nullptr ? want == nullptr : want != nullptr && *want == *value) return true;
    }
    return false;
  }

  void ReadsAreRight() {
    failed_.clear();
    opened_ = false;
    auto db = DBImpl::Open(SmallOptions(), s_.device.get(), nullptr, FixedEnv());
    if (!db.ok()) {
      ++counts.failed_opens;
      ASSERT_TRUE(!closed_ && log_) << db.status();
      ASSERT_TRUE(absl::IsDataLoss(db.status()) && Named(std::string(db.status().message())))
          << db.status();
      return;
    }
    opened_ = true;
    ASSERT_FALSE(log_) << "opened without part of the log that was known to be durable";
    Value value;
    for (const std::string& key : s_.model.Keys()) {
      const absl::Status got = (*db)->Get(ReadOptions(), key, &value);
      if (absl::IsDataLoss(got)) {
        ++counts.failed_gets;
        failed_.insert(key);
        ASSERT_TRUE(visible_ && Named(std::string(got.message()) + " ")) << got;
        continue;
      }
      ASSERT_TRUE(got.ok() || absl::IsNotFound(got)) << got;
      const std::string bytes(value.view());
      ASSERT_TRUE(Right(key, got.ok() ? &bytes : nullptr)) << "Get of " << key << ": " << got;
    }
    {
      const auto state = s_.model.State(s_.model.commits());
      auto want = state.begin();
      const auto it = (*db)->NewIterator(ReadOptions());
      std::string last;
      for (it->SeekToFirst(); it->Valid(); it->Next()) {
        const std::string key(it->key()), bytes(it->value());
        ASSERT_TRUE(Right(key, &bytes)) << "iterator at " << key;
        ASSERT_LT(last, key);
        last = key;
        if (tail_) continue;
        ASSERT_TRUE(want != state.end() && want->first == key) << "iterator at " << key;
        ++want;
      }
      if (!it->status().ok()) {
        ASSERT_TRUE(absl::IsDataLoss(it->status()) && visible_ &&
                    Named(std::string(it->status().message()) + " "))
            << it->status();
      } else if (!tail_) {
        ASSERT_TRUE(want == state.end()) << "the iterator ends early";
      }
    }
    if (tail_ && !visible_) {
      const auto p = s_.model.Match(db->get(), s_.vouched, s_.model.commits(), 1, {});
      ASSERT_TRUE(p.ok()) << p.status();
    }
    const absl::Status closed = (*db)->Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }

  void SalvageBringsTheRest() {
    std::map<std::string, std::string> out;
    std::string last;
    bool ordered = true;
    const auto damage =
        SalvageDevice(s_.device.get(), [&](std::string_view key, std::string_view value) {
          ordered &= last < key;
          last = std::string(key);
          out[last] = std::string(value);
          return absl::OkStatus();
        });
    ASSERT_TRUE(damage.ok()) << damage.status();
    ASSERT_TRUE(ordered);
    counts.salvaged += out.size();
    std::string all;
    for (const Damage& d : *damage) {
      absl::StrAppend(&all, d.what, ": ", d.where, ": ", d.detail, " \n");
    }
    bool table = false;
    for (const Live& l : touched_) table |= l.part == Part::kData || l.part == Part::kIndex;
    if (log_ || table) {
      ASSERT_TRUE(Named(all)) << "salvage does not name it; it says: " << all;
    } else {
      ASSERT_EQ(all, "");
    }
    for (const auto& [key, value] : out) {
      bool ever = false;
      for (uint32_t p = 0; p <= s_.model.commits() && !ever; ++p) {
        const std::string* const then = s_.model.At(p, key);
        ever = then != nullptr && *then == value;
      }
      ASSERT_TRUE(ever) << "salvage gives a value that " << key << " never had";
    }
    const bool data = std::any_of(touched_.begin(), touched_.end(),
                                  [](const Live& l) { return l.part == Part::kData; });
    for (const auto& [key, value] : s_.model.State(s_.model.commits())) {
      if (log_ && s_.model.At(s_.in_tables, key) != value) continue;  // written in the log
      const auto it = out.find(key);
      if (it != out.end() && *value == it->second) continue;
      if (tail_ && it != out.end() && Right(key, &it->second)) continue;
      if (tail_ && it == out.end() && Right(key, nullptr)) continue;
      ++counts.missing;
      ASSERT_TRUE(data && (!opened_ || failed_.count(key) != 0))
          << "salvage does not bring out " << key << ", which is not damaged";
    }
  }

  Subject& s_;
  const bool closed_;
  std::vector<Live> touched_;
  bool visible_ = false, log_ = false, tail_ = false;
  bool opened_ = false;
  std::set<std::string> failed_;  // keys whose Get named the damage
};

void DamageEveryPage(const char* name, Subject& subject, bool closed) {
  std::mt19937_64 random(g_seed);
  std::set<uint64_t> pages(subject.pages.begin(), subject.pages.end());
  uint64_t live_pages = 0;
  for (const Live& l : subject.live) {
    live_pages += pages.insert(l.begin / kPageBytes * kPageBytes).second;
  }
  const std::vector<uint64_t> list(pages.begin(), pages.end());
  Checker checker(&subject, closed);
  const auto contents = subject.device->contents();
  const auto copy = [&](uint64_t at, uint64_t bytes) {
    const auto from = contents.subspan(at, bytes);
    return std::vector<std::byte>(from.begin(), from.end());
  };
  const auto check = [&](Case c) {
    if (static_cast<double>(random() % 100) >= g_scale / 0.04 * 100) return;
    SCOPED_TRACE(c.what);
    checker.Check(c);
  };
  for (const uint64_t page : list) {
    const std::string place = absl::StrCat("page at byte ", page);
    const std::vector<Live> live = subject.Touched(page, page + kPageBytes);
    const auto pick = [&] {
      if (live.empty()) return page + random() % kPageBytes;
      const Live& l = live[random() % live.size()];
      return l.begin + random() % (l.end - l.begin);
    };
    for (int i = 0; i < 6; ++i) {
      const uint64_t at = pick();
      Case c{absl::StrCat("bit flipped in ", place, ", byte ", at - page), {{at, copy(at, 1)}}};
      c.writes[0].second[0] ^= std::byte{static_cast<uint8_t>(1u << random() % 8)};
      check(std::move(c));
    }
    for (int i = 0; i < 2; ++i) {
      const uint64_t at = pick();
      const uint64_t bytes = std::min<uint64_t>(1 + random() % 64, page + kPageBytes - at);
      Case c{absl::StrCat(bytes, " bytes changed in ", place, ", byte ", at - page),
             {{at, copy(at, bytes)}}};
      for (std::byte& b : c.writes[0].second) b ^= std::byte{static_cast<uint8_t>(random() | 1)};
      check(std::move(c));
    }
    check({absl::StrCat("zeroed ", place), {{page, std::vector<std::byte>(kPageBytes)}}});
    check({absl::StrCat("ones in ", place),
           {{page, std::vector<std::byte>(kPageBytes, std::byte{0xff})}}});
    for (int i = 0; i < 3; ++i) {
      const uint64_t other = list[random() % list.size()];
      if (other == page) continue;
      check({absl::StrCat("swapped ", place, " with the one at byte ", other),
             {{page, copy(other, kPageBytes)}, {other, copy(page, kPageBytes)}}});
    }
    if (testing::Test::HasFailure()) break;
  }
  const Counts& n = checker.counts;
  std::printf(
      "damage %s: %zu pages, %llu cases, %llu visible, %llu opens and %llu gets named the "
      "place, %llu records salvaged, %llu not\n",
      name, list.size(), static_cast<unsigned long long>(n.cases),
      static_cast<unsigned long long>(n.visible), static_cast<unsigned long long>(n.failed_opens),
      static_cast<unsigned long long>(n.failed_gets), static_cast<unsigned long long>(n.salvaged),
      static_cast<unsigned long long>(n.missing));
  EXPECT_GE(n.cases, 900 * std::min(1.0, g_scale / 0.04));
  EXPECT_GT(n.visible, n.cases / 4);
}

// Tables in both levels, values of a few bytes and of several pages, deletes.
void Fill(RecordedStore& store) {
  store.Open();
  uint64_t n = 0;
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i, ++n) {
      const std::string key = absl::StrCat("key", n * 13 % 101, std::string(n % 40, '-'));
      if (n % 9 == 7) {
        store.Write({{key, std::nullopt}}, Durability::kBuffered);
      } else {
        store.Put(key, Bytes(n % 17 == 3 ? 9000 : 40 + n % 300, n), Durability::kBuffered);
      }
    }
  };
  some(160);
  store.MergeAll();
  some(60);
  store.Flush();
  some(40);
  store.Flush();
}

TEST(Damage, OfAnyPageOfAClosedStore) {
  Subject subject([](RecordedStore& store) {
    Fill(store);
    store.Close();
  });
  DamageEveryPage("closed", subject, true);
}

TEST(Damage, OfAnyPageOfAnUnclosedStore) {
  Subject subject([](RecordedStore& store) {
    Fill(store);
    for (uint64_t n = 0; n < 60; ++n) {
      store.Put(absl::StrCat("key", n * 7 % 60), Bytes(n % 11 == 5 ? 9000 : 30 + n * 5, 1000 + n),
                n % 4 == 3 ? Durability::kDurable : Durability::kBuffered);
    }
    store.Die();
  });
  DamageEveryPage("unclosed", subject, false);
}

}  // namespace
}  // namespace ashlar
