#include "tests/damage/checker.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/format/superblock.h"

namespace {
size_t g_largest_allocation = 0;
}  // namespace

// The sanitizers have operators of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
  g_largest_allocation = std::max(g_largest_allocation, bytes);
  void* const p = std::malloc(bytes);
  if (p == nullptr) std::abort();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace ashlar {

size_t TakeLargestAllocation() { return std::exchange(g_largest_allocation, 0); }

namespace {

// What an open store of 2 MiB of memory may ask for at once.
constexpr size_t kAllocationMax = 4u << 20;

std::string Text(const Damage& d) {
  return absl::StrCat(d.what, ": ", d.where, ": ", d.detail, " \n");
}

}  // namespace

void Checker::Put(const Case& c) {
  for (const auto& [at, bytes] : c.writes) s_.device->Write(at, bytes);
}

bool Checker::NamesPlace(const std::string& text, uint64_t named) const {
  const std::string place = absl::StrCat("byte ", named);
  for (size_t at = text.find(place); at != std::string::npos; at = text.find(place, at + 1)) {
    const size_t end = at + place.size();
    if (end == text.size() || !std::isdigit(static_cast<unsigned char>(text[end]))) return true;
  }
  return false;
}

bool Checker::Named(const std::string& text) const {
  return std::any_of(touched_.begin(), touched_.end(),
                     [&](const Live& l) { return NamesPlace(text, l.named); });
}

void Checker::Judge(const Case& c) {
  touched_.clear();
  std::vector<const Live*> pieces;
  for (const auto& [at, bytes] : c.writes) {
    const std::byte* const old = s_.device->contents().data() + at;
    const auto [first, last] = s_.Touched(at, at + bytes.size());
    for (size_t i = first; i < last; ++i) {
      const Live& l = s_.live[i];
      const uint64_t from = std::max(l.begin, at), to = std::min(l.end, at + bytes.size());
      if (std::memcmp(old + (from - at), bytes.data() + (from - at), to - from) != 0) {
        touched_.push_back(l);
      }
    }
  }
  Put(c);

  must_refuse_ = may_refuse_ = superblocks_gone_ = manifest_gone_ = log_gone_ = false;
  last_edit_gone_ = tables_ = visible_ = false;
  whole_superblocks_ = kSuperblockCopies;
  commits_ = s_.commits;
  must_name_.clear();
  any_of_.clear();

  std::set<uint32_t> superblocks, lost_log;
  std::map<uint32_t, uint32_t> manifest;  // record -> copies lost
  std::set<uint32_t> broken_index;
  for (const Live& l : touched_) {
    if (l.part == Part::kSuperblock) superblocks.insert(l.item);
    if (l.part == Part::kManifest) manifest[l.item] |= 1u << l.copy;
    if (l.part == Part::kIndex) broken_index.insert(l.item);
    if (l.part == Part::kLog) lost_log.insert(l.item);
  }

  whole_superblocks_ -= static_cast<int>(superblocks.size());
  superblocks_gone_ = whole_superblocks_ < 2;
  std::map<uint64_t, int> foreign;  // by content
  for (const uint32_t copy : superblocks) {
    Superblock sb;
    std::string detail;
    if (ParseSuperblock(
            s_.device->contents().data() + SuperblockPlace(static_cast<int>(copy), kStoreBytes),
            static_cast<int>(copy), &sb, &detail) == SuperblockParse::kOk &&
        sb.store != s_.life.id && ++foreign[ContentChecksum(sb)] == 2) {
      superblocks_gone_ = must_refuse_ = true;  // two stores
    }
  }
  if (whole_superblocks_ == 0) must_refuse_ = true;
  if (whole_superblocks_ == 1) may_refuse_ = true;
  for (const auto& [record, copies] : manifest) {
    if (copies != 3) continue;
    if (record + 1 == s_.manifest_records && !s_.closed) {
      last_edit_gone_ = true;
    } else {
      manifest_gone_ = must_refuse_ = true;
    }
  }
  // A record is found where it begins an LBA, or right behind one that is found.
  LogPosition vouched, behind;
  for (uint32_t r = 0; r < s_.log.size(); ++r) {
    const LogRecord& record = s_.log[r];
    if (lost_log.count(r) == 0 &&
        (record.position.offset % s_.life.lba_bytes == 0 || record.position == behind)) {
      vouched = std::max(vouched, record.durable);
      behind = record.end;
    }
  }
  if (!lost_log.empty()) {
    const LogRecord& first = s_.log[*lost_log.begin()];
    log_gone_ = first.position < vouched;
    must_refuse_ |= log_gone_;
    commits_ = std::min(commits_, s_.model.CommitsBefore(first.first_sequence));
  }

  for (const Live& l : touched_) {
    switch (l.part) {
      case Part::kSuperblock: {
        // One of an older generation in the second half is what a crash leaves.
        Superblock sb;
        std::string detail;
        const bool older =
            l.item >= 2 &&
            ParseSuperblock(s_.device->contents().data() + l.begin, static_cast<int>(l.item), &sb,
                            &detail) == SuperblockParse::kOk &&
            sb.store == s_.life.id;
        if (!older) must_name_.insert(l.named);
        break;
      }
      case Part::kManifest:
        if (l.item + 1 != s_.manifest_records || s_.closed) must_name_.insert(l.named);
        break;
      case Part::kData:
        tables_ = true;
        if (broken_index.count(l.item) == 0) must_name_.insert(l.named);
        break;
      case Part::kIndex:
        tables_ = true;
        any_of_ += 'i';
        break;
      case Part::kLog:
        if (log_gone_ && l.item == *lost_log.begin()) any_of_ += 'l';
        break;
    }
  }
  visible_ = !must_name_.empty() || !any_of_.empty();
  counts_.visible += visible_;
}

// Empty when it is a refusal that the damage accounts for.
std::string Checker::Refusal(const absl::Status& s) const {
  const std::string text(s.message());
  if (!must_refuse_ && !may_refuse_ && !last_edit_gone_)
    return absl::StrCat("refused: ", s.ToString());
  const bool nothing_left =
      whole_superblocks_ == 0 && text.find("not an Ashlar store") != std::string::npos;
  if (!absl::IsDataLoss(s) && !nothing_left) return absl::StrCat("refused as ", s.ToString());
  if (nothing_left || last_edit_gone_) return "";
  if (superblocks_gone_ && text.find("superblock") != std::string::npos) return "";
  if (Named(text)) return "";
  return absl::StrCat("refused without a place: ", s.ToString());
}

std::string Checker::Finds() {
  const auto report = CheckDevice(s_.device.get(), nullptr);
  if (!report.ok()) return Refusal(report.status());
  std::string all, superblocks, manifests;
  for (const Damage& d : report->damage) absl::StrAppend(&all, Text(d));
  if (superblocks_gone_ && all.find("superblock") != std::string::npos) return "";
  if (last_edit_gone_) return "";
  if (manifest_gone_) return Named(all) ? "" : absl::StrCat("check says: ", all);
  for (const uint64_t place : must_name_) {
    if (!NamesPlace(all, place)) return absl::StrCat("check does not name ", place, ": ", all);
  }
  for (const Part part : {Part::kIndex, Part::kLog}) {
    if (any_of_.find(part == Part::kIndex ? 'i' : 'l') == std::string::npos) continue;
    if (std::none_of(touched_.begin(), touched_.end(),
                     [&](const Live& l) { return l.part == part && NamesPlace(all, l.named); })) {
      return absl::StrCat("check does not name the ", part == Part::kIndex ? "index" : "log", ": ",
                          all);
    }
  }
  if (!visible_ && report->damage_total != 0) {
    return absl::StrCat("check finds damage where there is none: ", all);
  }
  return "";
}

// Walks over everything and gets keys: each answer is that of the state after commits_, or names
// the damage.
std::string Checker::ReadsAreRight(DB* db, const Overlay& written) {
  std::vector<std::pair<std::string, std::string>> changed;
  const auto* want = &s_.State(commits_);
  if (!written.empty()) {
    std::map<std::string, std::string> state(want->begin(), want->end());
    for (const auto& [key, value] : written) {
      state.erase(key);
      if (value) state[key] = *value;
    }
    changed.assign(state.begin(), state.end());
    want = &changed;
  }
  const auto bad = [&](const absl::Status& s) {
    return !(absl::IsDataLoss(s) &&
             (last_edit_gone_ || (tables_ && Named(std::string(s.message()))))) ||
           TakeLargestAllocation() > kAllocationMax;
  };
  const auto it = db->NewIterator(ReadOptions());
  it->SeekToFirst();
  for (size_t i = 0;;) {
    if (it->Valid()) {
      if (i == want->size())
        return absl::StrCat("an iterator shows a key too many: ", std::string(it->key()));
      if (it->key() != (*want)[i].first || it->value() != (*want)[i].second) {
        return absl::StrCat("an iterator shows ", std::string(it->key()), ", ", it->value().size(),
                            " bytes, instead of ", (*want)[i].first);
      }
      ++i;
      it->Next();
      continue;
    }
    if (it->status().ok()) {
      if (i == want->size()) break;
      return absl::StrCat("an iterator ends before ", (*want)[i].first);
    }
    if (bad(it->status())) return absl::StrCat("an iterator: ", it->status().ToString());
    ++counts_.failed_reads;
    if (i == want->size()) break;
    // On from the next key: what lies beside the damage is right.
    if (++i == want->size()) break;
    it->Seek((*want)[i].first);
  }

  Value value;
  const size_t step = tables_ ? 1 : std::max<size_t>(1, s_.keys.size() / 4);
  for (size_t k = tables_ ? 0 : salt_ % step; k < s_.keys.size(); k += step) {
    const std::string& key = s_.keys[k];
    const std::string* right = s_.model.At(commits_, key);
    const auto now = written.find(key);
    if (now != written.end()) right = now->second ? &*now->second : nullptr;
    const absl::Status got = db->Get(ReadOptions(), key, &value);
    if (got.ok() ? right != nullptr && value.view() == *right
                 : right == nullptr && absl::IsNotFound(got)) {
      continue;
    }
    if (got.ok() || absl::IsNotFound(got) || bad(got)) {
      return absl::StrCat(
          "Get of ", key, ": ",
          got.ok() ? absl::StrCat("a wrong value of ", value.size(), " bytes") : got.ToString());
    }
    ++counts_.failed_reads;
    failed_.insert(key);
  }
  return "";
}

// Writes beside the damage and over it. Damage may keep a merge from going on, nothing else.
std::string Checker::Writes(DB* db, Overlay* written) {
  const auto key = [&](uint64_t n) { return s_.keys[(salt_ + n) % s_.keys.size()]; };
  absl::Status s = db->Put(WriteOptions(), key(0), "over it");
  (*written)[key(0)] = "over it";
  WriteBatch batch;
  batch.Delete(key(3));
  (*written)[key(3)] = std::nullopt;
  batch.Put("~ beside it", "and durable");
  (*written)["~ beside it"] = "and durable";
  if (s.ok()) s = db->Write(WriteOptions(), batch);
  if (s.ok()) s = db->Flush();
  if (!s.ok()) return absl::StrCat("writing beside the damage: ", s.ToString());
  // What was just written is read without looking below.
  Value value;
  s = db->Get(ReadOptions(), key(0), &value);
  if (!s.ok() || value.view() != "over it")
    return absl::StrCat("Get of what was written: ", s.ToString());
  if (salt_ / 64 % 2 == 0) {
    s = static_cast<DBImpl*>(db)->MergeAll();
    if (!s.ok() && !(absl::IsDataLoss(s) &&
                     (last_edit_gone_ || (tables_ && Named(std::string(s.message())))))) {
      return absl::StrCat("merging beside the damage: ", s.ToString());
    }
  }
  const std::string wrong = ReadsAreRight(db, *written);
  if (!wrong.empty()) return absl::StrCat("after writing: ", wrong);
  s = db->Close();
  return s.ok() ? "" : absl::StrCat("closing: ", s.ToString());
}

std::string Checker::OpensAndReads(bool write) {
  ++counts_.opens;
  Options options = SmallOptions();
  options.read_only = !write;
  Overlay written;
  bool opened = false;
  {
    auto db = DBImpl::Open(options, s_.device.get(), nullptr, FixedEnv());
    if (!db.ok()) {
      ++counts_.refused;
      const std::string wrong = Refusal(db.status());
      if (!wrong.empty() || !write) return wrong;
    } else {
      opened = true;
      if (must_refuse_) return "opened as if nothing were wrong";
      std::string wrong = ReadsAreRight(db->get(), {});
      if (!wrong.empty() || !write) return wrong;
      wrong = Writes(db->get(), &written);
      if (!wrong.empty()) return wrong;
    }
  }
  // What an open for writing left behind: still refused, or still right.
  options.read_only = true;
  auto db = DBImpl::Open(options, s_.device.get(), nullptr, FixedEnv());
  if (!opened) return db.ok() ? "refused, and opened the next time" : Refusal(db.status());
  if (!db.ok()) return absl::StrCat("does not open again: ", db.status().ToString());
  const std::string wrong = ReadsAreRight(db->get(), written);
  return wrong.empty() ? "" : absl::StrCat("opened again: ", wrong);
}

std::string Checker::SalvageBringsTheRest() {
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
  if (!damage.ok()) {
    return superblocks_gone_ || manifest_gone_ || last_edit_gone_
               ? Refusal(damage.status())
               : absl::StrCat("salvage: ", damage.status().ToString());
  }
  if (!ordered) return "salvage: out of order";
  counts_.salvaged += out.size();
  std::string all;
  for (const Damage& d : *damage) absl::StrAppend(&all, Text(d));
  // What it did not have to read it can't name: parts of a value that is not the newest.
  const uint64_t missing = counts_.missing;
  if (!last_edit_gone_) {
    if (log_gone_ || any_of_.find('i') != std::string::npos) {
      if (!Named(all)) return absl::StrCat("salvage does not name it: ", all);
    } else if (manifest_gone_) {
      // The edit with which the store was closed: the state before it is whole.
      if (!Named(all)) return absl::StrCat("salvage does not name it: ", all);
    } else if (!all.empty() && !tables_) {
      return absl::StrCat("salvage finds damage where there is none: ", all);
    }
  }
  for (const auto& [key, value] : out) {
    bool ever = false;
    for (uint32_t p = 0; p <= s_.commits && !ever; ++p) {
      const std::string* const then = s_.model.At(p, key);
      ever = then != nullptr && *then == value;
    }
    if (!ever) return absl::StrCat("salvage gives a value that ", key, " never had");
  }
  const bool data = std::any_of(touched_.begin(), touched_.end(),
                                [](const Live& l) { return l.part == Part::kData; });
  const bool readable = !must_refuse_;
  for (const auto& [key, value] : s_.State(s_.commits)) {
    if (log_gone_) {
      // Written in the log, perhaps in what is gone.
      const std::string* const before = s_.model.At(s_.in_tables, key);
      if (before == nullptr || *before != value) continue;
    }
    const auto it = out.find(key);
    if (it != out.end() && it->second == value) continue;
    const std::string* const shown = s_.model.At(commits_, key);
    if (it == out.end() ? shown == nullptr : shown != nullptr && *shown == it->second) continue;
    ++counts_.missing;
    if (!last_edit_gone_ && !(data && (!readable || failed_.count(key) != 0))) {
      return absl::StrCat("salvage does not bring out ", key, ", which is not damaged");
    }
  }
  if (counts_.missing != missing && !last_edit_gone_ && !Named(all)) {
    return absl::StrCat("salvage does not name what it misses: ", all);
  }
  return "";
}

std::string Checker::Run(const Case& c, const Depth& depth) {
  failed_.clear();
  salt_ = depth.salt;
  TakeLargestAllocation();
  Judge(c);
  std::string wrong = OpensAndReads(false);
  if (wrong.empty() && depth.check) wrong = Finds();
  if (wrong.empty() && depth.salvage) wrong = SalvageBringsTheRest();
  if (wrong.empty() && depth.write) wrong = OpensAndReads(true);
  const size_t largest = TakeLargestAllocation();
  if (wrong.empty() && largest > kAllocationMax) {
    wrong = absl::StrCat("an allocation of ", largest, " bytes");
  }
  s_.device->Undo();
  if (!wrong.empty()) {
    for (const Live& l : touched_) {
      absl::StrAppend(&wrong, "; touches [", l.begin, ",", l.end, ") of part ",
                      static_cast<int>(l.part), " item ", l.item, " named ", l.named);
    }
  }
  return wrong;
}

}  // namespace ashlar
