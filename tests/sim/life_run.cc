#include "tests/sim/life_run.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/db/db_impl.h"
#include "tests/support/ordering_monitor.h"
#include "tests/support/sim_executor.h"

namespace ashlar {
namespace {

enum class Kind : uint8_t {
  kWrite,
  kGet,
  kScan,
  kHold,      // an iterator is made, and steps beside what follows
  kSnapshot,  // one is taken, and read beside what follows; or let go
  kSync,      // or Flush
  kSleep,
};

class LifeRun {
 public:
  LifeRun(const Setup& setup, const LifePlan& life, uint64_t items_before, SimDevice* device,
          std::vector<Caller>* callers, uint64_t* acknowledgements, SimulationCounts* counts)
      : setup_(setup),
        life_(life),
        items_before_(items_before),
        sim_(life.seed),
        device_(device),
        callers_(callers),
        acknowledgements_(acknowledgements),
        counts_(counts) {}

  std::string Run(const Keep& keep) {
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
      auto db = DBImpl::Open(options, device_, nullptr, Env{&sim_, &sim_, setup_.level_base_bytes});
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

  struct Taken {
    std::unique_ptr<const Snapshot> snapshot;
    Contents moment;
  };

  void Work(DBImpl* db, Caller* c, const std::vector<uint32_t>& operations) {
    std::optional<Held> held;
    std::optional<Taken> taken;
    for (const uint32_t i : operations) {
      // A caller whose write is in doubt knows no more what the store should hold.
      if (!wrong_.empty() || device_->dead() || c->writes.size() > c->acknowledged) break;
      ++counts_->operations;
      if (held && !Step(&*held, *c)) held.reset();
      Dice dice(Mix({life_.seed, static_cast<uint64_t>(c->id), i}));
      if (taken && dice.OneIn(4)) {
        Get(db, {taken->snapshot.get()}, taken->moment, Key(*c, &dice));
      }
      switch (KindOf(&dice)) {
        case Kind::kWrite:
          Write(db, c, &dice, i);
          break;
        case Kind::kGet:
          dice.OneIn(3) ? GetOfAnother(db, *c, &dice) : Get(db, {}, c->contents, Key(*c, &dice));
          break;
        case Kind::kScan:
          dice.OneIn(2) ? ScanAll(db, &dice) : Scan(db, *c);
          break;
        case Kind::kHold:
          held.emplace(Held{db->NewIterator({}), c->contents, {}});
          held->it->Seek(c->Prefix());
          held->at = held->moment.begin();
          break;
        case Kind::kSnapshot:
          if (taken && dice.OneIn(2)) {
            Held all{db->NewIterator({taken->snapshot.get()}), taken->moment, {}};
            ShowsAll(&all, *c);
          }
          taken.reset();
          if (dice.OneIn(2)) taken.emplace(Taken{db->GetSnapshot(), c->contents});
          break;
        case Kind::kSync: {
          const size_t before = c->acknowledged;
          const bool flush = dice.OneIn(4);
          const absl::Status s = flush ? db->Flush() : db->Sync();
          if (!s.ok()) {
            Explained(s, flush ? "Flush" : "Sync");
          } else if (!device_->dead()) {
            for (size_t w = c->durable; w < before; ++w) Durable(c->writes[w].changes);
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
           : n < 89 ? Kind::kHold
           : n < 91 ? Kind::kSnapshot
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
    BatchWrite write;
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
      write.changes.push_back(std::move(change));
    }
    WriteOptions options;
    write.durable = dice->OneIn(2);
    options.durability = write.durable ? Durability::kDurable : Durability::kBuffered;
    write.began = *acknowledgements_;
    c->writes.push_back(std::move(write));
    const absl::Status s = db->Write(options, batch);
    if (!s.ok()) return Explained(s, "Write");
    BatchWrite& written = c->writes.back();
    c->acknowledged = c->writes.size();
    written.ended = ++*acknowledgements_;
    ++counts_->writes;
    if (written.durable) {
      c->durable = c->acknowledged;
      Durable(written.changes);
    }
    Apply(written.changes, &c->contents);
  }

  void Get(DBImpl* db, const ReadOptions& options, const Contents& contents,
           const std::string& key) {
    Value value;
    const absl::Status s = db->Get(options, key, &value);
    const auto expected = contents.find(key);
    if (s.ok()) {
      if (expected == contents.end()) return Wrong(absl::StrCat(key, " is there"));
      if (value.view() != expected->second) {
        Wrong(absl::StrCat(key, " is ", std::string(value.view().substr(0, 40)), " (", value.size(),
                           ") instead of ", expected->second.substr(0, 40), " (",
                           expected->second.size(), ")"));
      }
    } else if (absl::IsNotFound(s)) {
      if (expected != contents.end()) Wrong(absl::StrCat(key, " is not there"));
    } else {
      Explained(s, "Get");
    }
  }

  // A key that another caller writes: as it was when the call began, or as a write since then left
  // it; and no write is to be seen before it is as durable as its writer asked.
  void GetOfAnother(DBImpl* db, const Caller& self, Dice* dice) {
    const auto other = (static_cast<size_t>(self.id) + 1 + dice->Below(kCallers - 1)) % kCallers;
    const Caller& c = (*callers_)[other];
    const std::string key = Key(c, dice);
    const size_t least = c.acknowledged;
    std::optional<std::string> before;
    if (const auto it = c.contents.find(key); it != c.contents.end()) before = it->second;
    Value value;
    const absl::Status s = db->Get({}, key, &value);
    if (!s.ok() && !absl::IsNotFound(s)) return Explained(s, "Get");
    std::optional<std::string> shown;
    if (s.ok()) shown.emplace(value.view());
    bool right = shown == before;
    for (size_t w = least; w < c.writes.size(); ++w) {
      const std::vector<Change>& changes = c.writes[w].changes;
      const auto last = std::find_if(changes.rbegin(), changes.rend(),
                                     [&](const Change& change) { return change.key == key; });
      if (last == changes.rend() || last->value != shown) continue;
      // A key that is not there may be so by any delete, or from before.
      if (c.writes[w].durable && shown && !device_->dead()) monitor_->Shown(key, shown);
      right = true;
    }
    ++counts_->seen_of_others;
    if (!right) {
      Wrong(absl::StrCat(key, ", read beside its writer, is ",
                         shown ? shown->substr(0, 40) : "not there"));
    }
  }

  // All callers' keys in one iterator: of each caller the state after one of its writes, between
  // those that were acknowledged and those that had begun when the iterator was made.
  void ScanAll(DBImpl* db, Dice* dice) {
    std::vector<size_t> least, most;
    std::vector<Contents> states, shown(callers_->size());
    for (const Caller& c : *callers_) {
      least.push_back(c.acknowledged);
      states.push_back(c.contents);
    }
    const auto it = db->NewIterator({});
    for (const Caller& c : *callers_) most.push_back(c.writes.size());
    const bool backward = dice->OneIn(2);
    backward ? it->SeekToLast() : it->SeekToFirst();
    for (; it->Valid(); backward ? it->Prev() : it->Next()) {
      const std::string key(it->key()), value(it->value());
      if (!it->status().ok()) break;
      const std::optional<size_t> owner = OwnerOfKey(key);
      if (!owner) return Wrong("a key " + key);
      if (!shown[*owner].emplace(key, value).second) return Wrong("twice the key " + key);
      sim_.Yield();
      if (dice->OneIn(4)) sim_.SleepNs(dice->Below(dice->OneIn(20) ? 200'000'000 : 100'000));
    }
    if (!it->status().ok()) return Explained(it->status(), "a scan of all");
    std::vector<Points> points;
    for (const Caller& c : *callers_) {
      const auto i = static_cast<size_t>(c.id);
      const auto found = PointsOf(c, least[i], states[i], most[i], shown[i]);
      if (!found) {
        return Wrong(absl::StrCat("an iterator shows ", c.Prefix(), " at no point between ",
                                  least[i], " and ", most[i], " of its writes"));
      }
      points.push_back(*found);
    }
    ++counts_->scans_of_all;
    if (const std::string missing = MissingWrite(*callers_, points, most); !missing.empty()) {
      Wrong("in an iterator " + missing);
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
    // Now and then it turns round.
    if (held->at != held->moment.begin() && sim_.Random() % 6 == 0) {
      held->it->Prev();
      --held->at;
    } else {
      held->it->Next();
      ++held->at;
    }
    return true;
  }

  void Scan(DBImpl* db, const Caller& c) {
    Held held{db->NewIterator({}), c.contents, {}};
    ShowsAll(&held, c);
  }
  void ShowsAll(Held* held, const Caller& c) {
    held->it->Seek(c.Prefix());
    held->at = held->moment.begin();
    while (wrong_.empty() && Step(held, c)) sim_.Yield();
  }

  const Setup& setup_;
  const LifePlan& life_;
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

}  // namespace

LifeEnd RunLife(const Setup& setup, const LifePlan& life, const Keep& keep, size_t items_before,
                SimDevice* device, std::vector<Caller>* callers, uint64_t* acknowledgements,
                SimulationCounts* counts) {
  LifeRun run(setup, life, items_before, device, callers, acknowledgements, counts);
  LifeEnd end;
  end.wrong = run.Run(keep);
  end.died = device->dead();
  end.silent_damage = run.silent_damage();
  return end;
}

}  // namespace ashlar
