#include "tests/sim/simulation.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "io/check.h"
#include "tests/support/content.h"
#include "tests/support/ordering_monitor.h"
#include "tests/support/sim_device.h"
#include "tests/support/sim_executor.h"

namespace ashlar {
namespace {

constexpr int kLives = 4, kCallers = 3;

// A random number for a place: the same whatever else a run has.
uint64_t Mix(std::initializer_list<uint64_t> place) {
  uint64_t x = 0x9e3779b97f4a7c15;
  for (const uint64_t p : place) {
    x = (x ^ p) * 0xbf58476d1ce4e5b9;
    x ^= x >> 29;
    x = (x + 0x94d049bb133111eb) * 0xff51afd7ed558ccd;
    x ^= x >> 32;
  }
  return x;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t n) { return random_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

using Contents = std::map<std::string, std::string>;
struct Change {
  std::string key;
  std::optional<std::string> value;
};

void Apply(const std::vector<Change>& changes, Contents* contents) {
  for (const Change& c : changes) {
    if (c.value) {
      (*contents)[c.key] = *c.value;
    } else {
      contents->erase(c.key);
    }
  }
}

// What one caller did to its own keys, which nobody else writes.
struct Caller {
  int id = 0;
  std::vector<std::vector<Change>> writes;  // each whole or not at all
  // Of each write, how many of all callers' writes had been acknowledged when it began, and which
  // of these it was itself; 0: it was not.
  std::vector<uint64_t> began, ended;
  size_t acknowledged = 0;  // writes that returned OK; one more may be in doubt
  size_t durable = 0;       // of these are durable
  Contents contents;        // after the acknowledged ones

  std::string Prefix() const { return absl::StrCat("caller", id, "/"); }
};

enum class Kind : uint8_t {
  kWrite,
  kGet,
  kScan,
  kHold,  // an iterator is made, and steps beside what follows
  kSync,  // or Flush
  kSleep,
};

// What the drive does in one life.
struct DriveFault {
  enum class What : uint8_t {
    kStatus,      // a command ends with an error, once or from then on
    kFlippedBit,  // a read returns a wrong bit, once
    kWrongPlace,  // a read returns what lies elsewhere, once
    kSlow,        // a command takes seconds
    kLostWrite,   // reported as done, and nothing was
    kStrayWrite,  // lands elsewhere
  } what = What::kStatus;
  io::Op op = io::Op::kWrite;
  uint64_t at = 0;  // of all commands of this op the one with this number
  bool persistent = false;
  io::IoStatus status;
  SimFault::Effect effect = SimFault::Effect::kNone;
  uint64_t elsewhere = 0;
};

}  // namespace

struct Simulation::Life {
  uint64_t seed = 0;
  uint32_t operations[kCallers] = {};
  std::vector<DriveFault> faults;
  uint64_t dies_at = 0;  // 0: it closes
  bool power_cut = false;
  SimDevice::Luck luck = SimDevice::Luck::kEach;
};

namespace {

std::string FaultText(const DriveFault& f) {
  static constexpr const char* kWhats[] = {
      "fails", "returns a wrong bit", "reads elsewhere", "is slow", "is lost", "lands elsewhere"};
  static constexpr const char* kOps[] = {"read", "write", "flush", "deallocate"};
  static constexpr const char* kClasses[] = {"ok", "full", "retry", "path", "fatal", "unknown"};
  static constexpr const char* kEffects[] = {"whole", "part", "none", "later"};
  std::string text =
      absl::StrCat(kOps[static_cast<int>(f.op)], " ", f.at, " ",
                   f.persistent ? "and all later ones " : "", kWhats[static_cast<int>(f.what)]);
  if (f.what == DriveFault::What::kStatus) {
    absl::StrAppend(&text, " (", kClasses[static_cast<int>(f.status.cls)], "), effect ",
                    kEffects[static_cast<int>(f.effect)]);
  }
  return text;
}

struct Setup {
  SimDeviceOptions device;
  uint32_t extent_bytes = 64u << 10;
  uint64_t memory_bytes = 2u << 20;
  uint32_t keys = 40;   // of each caller
  uint32_t large = 12;  // one value in so many is large
};

Setup SetupOf(uint64_t seed) {
  Dice dice(Mix({seed, 1}));
  Setup s;
  s.device.lba_bytes = dice.OneIn(2) ? 512 : 4096;
  s.device.native_fua = dice.OneIn(2);
  s.device.volatile_cache = !dice.OneIn(8);
  s.device.atomic_blocks = dice.OneIn(2) ? 1 : 8;
  const uint32_t transfers[] = {4u << 10, 32u << 10, 128u << 10, 1u << 20};
  s.device.max_transfer_bytes = transfers[dice.Below(4)];
  s.device.noise = dice.OneIn(2);
  s.device.read_back = static_cast<SimDeviceOptions::ReadBack>(dice.Below(5));
  s.extent_bytes = dice.OneIn(4) ? 256u << 10 : 64u << 10;
  s.memory_bytes = dice.OneIn(4) ? 8u << 20 : 2u << 20;
  const uint32_t keys[] = {5, 40, 40, 400};
  s.keys = keys[dice.Below(4)];
  const uint32_t large[] = {4, 12, 12, 100};
  s.large = large[dice.Below(4)];
  return s;
}

}  // namespace

// One life: open, callers at work, and Close unless the process died.
class LifeRun {
 public:
  LifeRun(const Setup& setup, const Simulation::Life& life, uint64_t items_before,
          SimDevice* device, std::vector<Caller>* callers, uint64_t* acknowledgements,
          SimulationCounts* counts)
      : setup_(setup),
        life_(life),
        items_before_(items_before),
        sim_(life.seed),
        device_(device),
        callers_(callers),
        acknowledgements_(acknowledgements),
        counts_(counts) {}

  std::string Run(const Simulation::Keep& keep) {
    monitor_ = std::make_unique<OrderingMonitor>(device_->geometry(), device_->contents());
    device_->set_sim(&sim_);
    device_->set_observer(monitor_.get());
    // Items of this life: operations, caller by caller; faults; its end.
    size_t item = items_before_;
    std::vector<uint32_t> operations[kCallers];
    for (int c = 0; c < kCallers; ++c) {
      for (uint32_t i = 0; i < life_.operations[c]; ++i, ++item) {
        if (keep(item)) operations[c].push_back(i);
      }
    }
    for (const DriveFault& f : life_.faults) {
      if (keep(item++)) faults_.push_back(f);
    }
    const bool dies = life_.dies_at > 0 && keep(item++);
    if (!faults_.empty()) {
      device_->set_faults([this](const SimCommand& c) { return FaultOf(c); });
    }
    const uint64_t commands_before = device_->commands();
    sim_.Run([&] {
      if (dies) device_->DieAt(life_.dies_at);
      Options options;
      options.memory_bytes = setup_.memory_bytes;
      auto db = DBImpl::Open(options, device_, nullptr, Env{&sim_, &sim_});
      if (!db.ok()) {
        Explained(db.status(), "Open");
        return;
      }
      opened_ = true;
      if (!monitor_->watching()) Wrong("the order of commands can't be watched");
      // Opening has flushed the drive: what was there is there to stay.
      for (Caller& c : *callers_) c.durable = c.acknowledged;
      {
        std::vector<std::unique_ptr<Thread>> threads;
        for (int c = 0; c < kCallers; ++c) {
          threads.push_back(sim_.Start("caller", [&, c] {
            Work(db->get(), &(*callers_)[static_cast<size_t>(c)], operations[c]);
          }));
        }
        threads.clear();
      }
      const absl::Status closed = (*db)->Close();
      if (!closed.ok()) Explained(closed, "Close");
      if (closed.ok() && !device_->dead()) {
        for (Caller& c : *callers_) c.durable = c.acknowledged;
      }
      db->reset();
    });
    counts_->commands += device_->commands() - commands_before;
    counts_->trace = counts_->trace * 31 + sim_.trace();
    counts_->faults += fired_;
    counts_->edits += monitor_->edits();
    counts_->acknowledged += monitor_->acknowledged();
    if (!monitor_->violation().empty()) Wrong("order: " + monitor_->violation());
    return wrong_;
  }
  bool opened() const { return opened_; }
  bool silent_damage() const { return silent_damage_; }

 private:
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  // An error is right where a death came before it, or a fault that such an error can come from.
  void Explained(const absl::Status& s, const char* call) {
    if (device_->dead() || failed_ || (full_ && absl::IsResourceExhausted(s)) ||
        (damaged_ && absl::IsDataLoss(s))) {
      ++counts_->reported;
      return;
    }
    Wrong(absl::StrCat(call, ": ", s.ToString(), ", and nothing had failed that explains it"));
  }

  SimFault FaultOf(const SimCommand& c) {
    const uint64_t n = ++by_op_[static_cast<size_t>(c.op)];
    SimFault fault;
    for (const DriveFault& f : faults_) {
      if (f.op != c.op || (f.persistent ? n < f.at : n != f.at)) continue;
      const uint64_t bytes = c.ranges.empty() ? 0 : c.ranges[0].bytes;
      const uint64_t lba = device_->options().lba_bytes;
      const uint64_t elsewhere = f.elsewhere % ((device_->options().bytes - bytes) / lba + 1) * lba;
      switch (f.what) {
        case DriveFault::What::kStatus:
          fault.status = f.status;
          fault.effect = f.effect;
          if (f.op == io::Op::kRead && !f.persistent &&
              (f.status.cls == io::IoClass::kRetry || f.status.cls == io::IoClass::kPath)) {
            break;  // tried again, and nobody hears of it
          }
          (f.op == io::Op::kWrite && f.status.cls == io::IoClass::kFull ? full_ : failed_) = true;
          break;
        case DriveFault::What::kFlippedBit:
          if (!opened_) continue;
          fault.flip_a_bit = true;
          damaged_ = true;
          break;
        case DriveFault::What::kWrongPlace:
          if (!opened_) continue;
          fault.elsewhere = elsewhere;
          damaged_ = true;
          break;
        case DriveFault::What::kSlow:
          fault.delay_ns = 1 + f.elsewhere % 5'000'000'000;
          continue;  // slow is no reason for an error
        case DriveFault::What::kLostWrite:
          if (!opened_) continue;
          fault.effect = SimFault::Effect::kNone;
          silent_damage_ = damaged_ = true;
          break;
        case DriveFault::What::kStrayWrite:
          if (!opened_) continue;
          fault.elsewhere = elsewhere;
          silent_damage_ = damaged_ = true;
          break;
      }
      ++fired_;
    }
    return fault;
  }

  // ---- a caller ----

  struct Held {
    std::unique_ptr<Iterator> it;
    Contents moment;
    Contents::const_iterator at;
  };

  void Work(DBImpl* db, Caller* c, const std::vector<uint32_t>& operations) {
    std::optional<Held> held;
    for (const uint32_t i : operations) {
      // A caller whose write is in doubt knows no more what the store should hold.
      if (!wrong_.empty() || device_->dead() || c->writes.size() > c->acknowledged) break;
      ++counts_->operations;
      if (held && !Step(&*held, *c)) held.reset();
      Dice dice(Mix({life_.seed, static_cast<uint64_t>(c->id), i}));
      switch (KindOf(&dice)) {
        case Kind::kWrite:
          Write(db, c, &dice, i);
          break;
        case Kind::kGet:
          Get(db, *c, &dice);
          break;
        case Kind::kScan:
          Scan(db, *c);
          break;
        case Kind::kHold:
          held.emplace(Held{db->NewIterator({}), c->contents, {}});
          held->it->Seek(c->Prefix());
          held->at = held->moment.begin();
          break;
        case Kind::kSync: {
          const size_t before = c->acknowledged;
          const bool flush = dice.OneIn(4);
          const absl::Status s = flush ? db->Flush() : db->Sync();
          if (!s.ok()) {
            Explained(s, flush ? "Flush" : "Sync");
          } else if (!device_->dead()) {
            for (size_t w = c->durable; w < before; ++w) Durable(c->writes[w]);
            c->durable = std::max(c->durable, before);
          }
          break;
        }
        case Kind::kSleep:
          sim_.SleepNs(dice.OneIn(20) ? dice.Below(12'000'000'000) : dice.Below(200'000'000));
          break;
      }
    }
  }

  static Kind KindOf(Dice* dice) {
    const uint64_t n = dice->Below(100);
    return n < 60   ? Kind::kWrite
           : n < 84 ? Kind::kGet
           : n < 87 ? Kind::kScan
           : n < 90 ? Kind::kHold
           : n < 95 ? Kind::kSync
                    : Kind::kSleep;
  }

  std::string Key(const Caller& c, Dice* dice) const {
    return absl::StrCat(c.Prefix(), dice->Below(setup_.keys));
  }

  void Durable(const std::vector<Change>& changes) {
    for (const Change& change : changes) monitor_->Acknowledged(change.key, change.value);
  }

  void Write(DBImpl* db, Caller* c, Dice* dice, uint32_t item) {
    WriteBatch batch;
    std::vector<Change> changes;
    const uint64_t n = dice->OneIn(4) ? 1 + dice->Below(8) : 1;
    for (uint64_t i = 0; i < n; ++i) {
      Change change{Key(*c, dice), std::nullopt};
      if (dice->OneIn(4)) {
        batch.Delete(change.key);
      } else {
        const uint64_t size = dice->OneIn(setup_.large) ? dice->Below(40'000) : dice->Below(300);
        change.value = absl::StrCat(life_.seed, "/", item, "/", i, ":");
        change.value->append(size, 'v');
        batch.Put(change.key, *change.value);
      }
      changes.push_back(std::move(change));
    }
    WriteOptions options;
    options.durability = dice->OneIn(2) ? Durability::kDurable : Durability::kBuffered;
    c->writes.push_back(changes);
    c->began.push_back(*acknowledgements_);
    c->ended.push_back(0);
    const absl::Status s = db->Write(options, batch);
    if (!s.ok()) return Explained(s, "Write");
    c->acknowledged = c->writes.size();
    c->ended.back() = ++*acknowledgements_;
    ++counts_->writes;
    if (options.durability == Durability::kDurable) {
      c->durable = c->acknowledged;
      Durable(changes);
    }
    Apply(changes, &c->contents);
  }

  void Get(DBImpl* db, const Caller& c, Dice* dice) {
    const std::string key = Key(c, dice);
    Value value;
    const absl::Status s = db->Get({}, key, &value);
    const auto expected = c.contents.find(key);
    if (s.ok()) {
      if (expected == c.contents.end()) return Wrong(absl::StrCat(key, " is there"));
      if (value.view() != expected->second) {
        Wrong(absl::StrCat(key, " is ", std::string(value.view().substr(0, 40)), " (", value.size(),
                           ") instead of ", expected->second.substr(0, 40), " (",
                           expected->second.size(), ")"));
      }
    } else if (absl::IsNotFound(s)) {
      if (expected != c.contents.end()) Wrong(absl::StrCat(key, " is not there"));
    } else {
      Explained(s, "Get");
    }
  }

  // One step of an iterator beside what it should show; false at its end.
  bool Step(Held* held, const Caller& c) {
    const std::string prefix = c.Prefix();
    if (!held->it->Valid() || held->it->key().substr(0, prefix.size()) != prefix) {
      if (!held->it->status().ok()) {
        Explained(held->it->status(), "an iterator");
      } else if (held->at != held->moment.end()) {
        Wrong(absl::StrCat("an iterator ends before ", held->at->first));
      }
      return false;
    }
    if (held->at == held->moment.end() || held->it->key() != held->at->first) {
      Wrong(absl::StrCat("an iterator shows ", std::string(held->it->key()), " instead of ",
                         held->at == held->moment.end() ? "its end" : held->at->first));
      return false;
    }
    // A value that can't be read ends the iterator.
    if (held->it->value() != held->at->second && held->it->status().ok()) {
      Wrong(absl::StrCat("an iterator shows another value of ", held->at->first));
      return false;
    }
    if (!held->it->status().ok()) {
      Explained(held->it->status(), "an iterator");
      return false;
    }
    held->it->Next();
    ++held->at;
    return true;
  }

  void Scan(DBImpl* db, const Caller& c) {
    Held held{db->NewIterator({}), c.contents, {}};
    held.it->Seek(c.Prefix());
    held.at = held.moment.begin();
    while (wrong_.empty() && Step(&held, c)) sim_.Yield();
  }

  const Setup& setup_;
  const Simulation::Life& life_;
  const uint64_t items_before_;
  SimExecutor sim_;
  SimDevice* const device_;
  std::vector<Caller>* const callers_;
  uint64_t* const acknowledgements_;
  SimulationCounts* const counts_;
  std::unique_ptr<OrderingMonitor> monitor_;
  std::vector<DriveFault> faults_;
  uint64_t by_op_[4] = {};
  uint64_t fired_ = 0;
  bool opened_ = false;
  bool silent_damage_ = false;
  // Faults that have fired, by what they explain: any error, a store without room, damage.
  bool failed_ = false, full_ = false, damaged_ = false;
  std::string wrong_;
};

namespace {

// The store shows, for each caller, its writes up to some point at or behind the last durable one;
// no write of anybody without those that had been acknowledged before it began; goes on from there,
// but where it is only `looking`. With `damage` DataLoss is an answer too, and any point is right.
std::string Compare(const Setup& setup, SimDevice* device, bool damage, bool looking,
                    std::vector<Caller>* callers) {
  Options options;
  options.read_only = true;
  options.memory_bytes = setup.memory_bytes;
  const auto refused = [&](const char* call, const absl::Status& s) {
    return damage && absl::IsDataLoss(s) ? "" : absl::StrCat(call, ": ", s.ToString());
  };
  auto db = DBImpl::Open(options, device, nullptr, Env{SystemClock(), InlineExecutor()});
  if (!db.ok()) return refused("reopening", db.status());
  std::vector<Contents> found(callers->size());
  {
    auto it = (*db)->NewIterator({});
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const std::string key(it->key());
      if (key.size() < 8 || key[6] < '0' || key[6] >= '0' + kCallers) return "a key " + key;
      const std::string value(it->value());
      if (!it->status().ok()) break;
      // Whatever else is damaged: nothing is shown that was never written.
      const Caller& c = (*callers)[static_cast<size_t>(key[6] - '0')];
      const bool written = std::any_of(c.writes.begin(), c.writes.end(), [&](const auto& write) {
        return std::any_of(write.begin(), write.end(), [&](const Change& change) {
          return change.key == key && change.value == value;
        });
      });
      if (damage && !written) return "a value of " + key + " that was never written";
      found[static_cast<size_t>(key[6] - '0')][key] = value;
    }
    if (!it->status().ok()) return refused("a scan", it->status());
  }
  std::vector<std::pair<size_t, size_t>> points;  // the first and the last that fits
  for (Caller& c : *callers) {
    const Contents& shown = found[static_cast<size_t>(c.id)];
    const size_t least = damage ? 0 : c.durable;
    Contents state;
    for (size_t i = 0; i < least; ++i) Apply(c.writes[i], &state);
    size_t upto = least;
    while (state != shown && upto < c.writes.size()) Apply(c.writes[upto++], &state);
    if (state != shown) {
      return absl::StrCat(c.Prefix(), " is at no point between its ", least, " durable and ",
                          c.writes.size(), " attempted writes");
    }
    points.emplace_back(upto, upto);
    Contents later = state;
    for (size_t i = upto; i < c.writes.size(); ++i) {
      Apply(c.writes[i], &later);
      if (later == shown) points.back().second = i + 1;
    }
    if (looking) continue;
    c.contents = std::move(state);
    for (uint32_t k = 0; k < 6; ++k) {
      const std::string key = absl::StrCat(c.Prefix(), Mix({c.durable, k}) % setup.keys);
      Value value;
      const absl::Status s = (*db)->Get({}, key, &value);
      const auto expected = c.contents.find(key);
      if (s.ok() ? expected == c.contents.end() || value.view() != expected->second
                 : !absl::IsNotFound(s) || expected != c.contents.end()) {
        if (damage && absl::IsDataLoss(s)) continue;
        return absl::StrCat("Get of ", key, " after reopening: ", s.ToString());
      }
    }
  }
  for (size_t a = 0; a < callers->size(); ++a) {
    const Caller& later = (*callers)[a];
    for (size_t b = 0; b < callers->size(); ++b) {
      const Caller& earlier = (*callers)[b];
      for (size_t i = points[b].second; i < earlier.writes.size(); ++i) {
        for (size_t k = 0; k < points[a].first; ++k) {
          if (earlier.ended[i] == 0 || later.began[k] < earlier.ended[i]) continue;
          return absl::StrCat("write ", k, " of ", later.Prefix(), " is there and write ", i,
                              " of ", earlier.Prefix(), ", acknowledged before it began, is not");
        }
      }
    }
  }
  for (size_t a = 0; !looking && a < callers->size(); ++a) {
    Caller& c = (*callers)[a];
    c.acknowledged = points[a].first;
    c.writes.resize(c.acknowledged);
    c.began.resize(c.acknowledged);
    c.ended.resize(c.acknowledged);
  }
  return "";
}

}  // namespace

Simulation::Simulation(uint64_t seed) : seed_(seed) {
  Dice dice(Mix({seed, 2}));
  // What can go wrong differs from run to run: a fault that is always there hides others.
  const bool errors = dice.OneIn(3), reads = dice.OneIn(3), slow = dice.OneIn(3);
  const bool silent = dice.OneIn(6), deaths = !dice.OneIn(4);
  for (int l = 0; l < kLives; ++l) {
    Life life;
    life.seed = Mix({seed, 3, static_cast<uint64_t>(l)});
    Dice d(life.seed);
    const bool last = l + 1 == kLives;
    for (uint32_t& n : life.operations)
      n = static_cast<uint32_t>(20 + d.Below(d.OneIn(3) ? 1500 : 300));
    const auto any_op = [&] {
      return d.OneIn(3) ? io::Op::kRead : d.OneIn(3) ? io::Op::kFlush : io::Op::kWrite;
    };
    if (errors && d.OneIn(2)) {
      DriveFault f;
      f.op = any_op();
      f.at = 1 + d.Below(d.OneIn(3) ? 20 : 300);
      f.persistent = d.OneIn(3);
      const io::IoClass classes[] = {io::IoClass::kRetry, io::IoClass::kPath, io::IoClass::kFull,
                                     io::IoClass::kFatal, io::IoClass::kUnknown};
      f.status = {.cls = classes[d.Below(5)], .err = EIO};
      // Only what was not carried out may be tried again.
      f.effect = f.status.cls == io::IoClass::kRetry ? SimFault::Effect::kNone
                                                     : static_cast<SimFault::Effect>(d.Below(3));
      if (f.status.cls == io::IoClass::kUnknown && f.op == io::Op::kWrite && d.OneIn(2)) {
        f.effect = SimFault::Effect::kLater;
      }
      life.faults.push_back(f);
    }
    for (int i = 0; reads && i < 2; ++i) {
      DriveFault f;
      f.op = io::Op::kRead;
      f.what = d.OneIn(2) ? DriveFault::What::kFlippedBit : DriveFault::What::kWrongPlace;
      f.at = 1 + d.Below(150);
      f.elsewhere = d.Below(1u << 30);
      life.faults.push_back(f);
    }
    for (int i = 0; slow && i < 3; ++i) {
      DriveFault f;
      f.what = DriveFault::What::kSlow;
      f.op = any_op();
      f.at = 1 + d.Below(400);
      f.elsewhere = d.Below(1ull << 40);
      life.faults.push_back(f);
    }
    if (silent && last) {
      DriveFault f;
      f.what = d.OneIn(2) ? DriveFault::What::kLostWrite : DriveFault::What::kStrayWrite;
      f.op = io::Op::kWrite;
      f.at = 1 + d.Below(400);
      f.elsewhere = d.Below(1u << 30);
      life.faults.push_back(f);
    }
    if (deaths && (!last || silent)) {
      life.dies_at = 1 + d.Below(d.OneIn(4) ? 60 : 2500);
    }
    life.power_cut = !d.OneIn(3);
    life.luck = static_cast<SimDevice::Luck>(d.Below(4));
    for (const uint32_t n : life.operations) items_ += n;
    items_ += life.faults.size() + (life.dies_at > 0);
    lives_.push_back(std::move(life));
  }
}

Simulation::~Simulation() = default;

std::string Simulation::Text() const {
  const Setup s = SetupOf(seed_);
  return absl::StrCat(s.device.Text(), "; extents of ", s.extent_bytes, ", memory ", s.memory_bytes,
                      ", ", s.keys, " keys, one value in ", s.large, " large; ", items_, " items");
}

std::string Simulation::Text(const Keep& keep) const {
  static constexpr const char* kLucks[] = {"all lost", "all kept", "each kept or lost", "torn"};
  std::string text = Text() + "\n";
  size_t item = 0;
  for (const Life& life : lives_) {
    uint64_t operations = 0;
    for (const uint32_t n : life.operations) {
      for (uint32_t i = 0; i < n; ++i) operations += keep(item++);
    }
    absl::StrAppend(&text, "life: ", operations, " operations");
    for (const DriveFault& f : life.faults) {
      if (keep(item++)) absl::StrAppend(&text, "; ", FaultText(f));
    }
    if (life.dies_at > 0 && keep(item++)) {
      absl::StrAppend(&text, "; dies at command ", life.dies_at,
                      life.power_cut ? ", power cut: " : "",
                      life.power_cut ? kLucks[static_cast<int>(life.luck)] : "");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Simulation::Run(const Keep& keep, SimulationCounts* counts) {
  const Setup setup = SetupOf(seed_);
  SimDevice device(setup.device, Mix({seed_, 4}));
  FILE* log = nullptr;
  if (const char* const path = std::getenv("ASHLAR_SIM_LOG"); path != nullptr) {
    log = std::fopen(path, "w");
    device.set_log(log);
  }
  StoreId id;
  for (size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<uint8_t>(Mix({seed_, 5, i}));
  std::string wrong;
  if (absl::Status s = FormatDevice(&device, setup.extent_bytes, id); !s.ok()) return s.ToString();
  device.PowerCut(SimDevice::Luck::kLoseAll);  // format has made all of it durable
  std::vector<Caller> callers(kCallers);
  for (int i = 0; i < kCallers; ++i) callers[static_cast<size_t>(i)].id = i;
  size_t items_before = 0;
  uint64_t acknowledgements = 0;
  for (const Life& life : lives_) {
    bool damage = false, died = false;
    {
      LifeRun run(setup, life, items_before, &device, &callers, &acknowledgements, counts);
      wrong = run.Run(keep);
      died = device.dead();
      damage = run.silent_damage();
    }
    device.Revive();
    for (const uint32_t n : life.operations) items_before += n;
    items_before += life.faults.size() + (life.dies_at > 0);
    if (!wrong.empty()) break;
    if (life.power_cut) {
      counts->cuts += died;
      device.PowerCut(life.luck);
    } else {
      counts->deaths += died;
      // A read-only open takes no claim: it may look on while what is left lands.
      if (device.leftovers() > 0 && !damage && Mix({life.seed, 6}) % 2 == 0) {
        ++counts->looked_on;
        device.LandLeftoversLater(400'000);
        wrong = Compare(setup, &device, false, true, &callers);
        if (!wrong.empty()) wrong = "looking on: " + wrong;
      }
      device.LandLeftovers();
    }
    if (!damage && wrong.empty()) {
      auto report = CheckDevice(&device, nullptr);
      if (!report.ok()) wrong = "check: " + report.status().ToString();
      if (report.ok() && report->damage_total > 0) {
        const Damage& d = report->damage.front();
        wrong = absl::StrCat("check: ", d.what, ": ", d.where, ": ", d.detail);
      }
    }
    if (wrong.empty()) wrong = Compare(setup, &device, damage, false, &callers);
    if (damage || !wrong.empty()) break;
  }
  if (!wrong.empty()) {
    if (const char* const path = std::getenv("ASHLAR_SIM_IMAGE"); path != nullptr) {
      (void)ExportImage(device.contents(), path);
    }
  }
  if (log != nullptr) std::fclose(log);
  return wrong;
}

}  // namespace ashlar
