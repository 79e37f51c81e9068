#include "kv/workload.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kv/device_stat.h"

namespace ashlar::bench {

std::atomic<bool> g_interrupted{false};

namespace {

absl::string_view Absl(std::string_view s) { return {s.data(), s.size()}; }

struct Shared {
  const Workload& workload;
  const Config& config;
  Store* store;
  KeySpace* keys;
  const Zipfian* zipfian;
  uint64_t turn;
  std::atomic<bool> stop{false};
  std::atomic<bool> wrong{false};
  std::atomic<uint64_t> readers{0};
  int64_t start_ns = 0;
};

// One thread of a benchmark.
class Worker {
 public:
  Worker(Shared* shared, uint64_t index, uint64_t limit)
      : shared_(shared),
        config_(shared->config),
        keys_(shared->keys),
        index_(index),
        limit_(limit),
        rng_(Mix64(Mix64(shared->config.seed) + (shared->turn << 32) + index)),
        reader_(shared->store->NewReader()) {}

  absl::Status Run(std::string_view name);

  Totals totals;

 private:
  // False when the thread has done its part.
  bool More() const {
    return done_ < limit_ && !shared_->stop.load(std::memory_order_relaxed) &&
           !g_interrupted.load(std::memory_order_relaxed) &&
           (deadline_ns_ == 0 || last_ns_ < deadline_ns_);
  }
  // The call since the last one ended is `ops` operations.
  void Done(uint64_t ops) {
    const int64_t now = NowNs();
    totals.latency.Add(static_cast<uint64_t>(now - last_ns_));
    last_ns_ = now;
    done_ += ops;
  }

  absl::Status Fill(bool in_order);
  absl::Status Overwrite();
  absl::Status Delete(bool in_order);
  absl::Status ReadRandom(uint64_t range);
  absl::Status ReadMissing();
  absl::Status MultiReadRandom();
  absl::Status Scan(bool backwards);
  absl::Status SeekRandom();
  absl::Status WriteBeside();
  absl::Status Ycsb(char kind);

  absl::Status PutOne(uint64_t id);
  absl::Status DeleteOne(uint64_t id);
  // `next(i)` is the id of the i-th write.
  template <typename Next>
  absl::Status WriteAll(bool deletes, Next next);
  void Wrote(uint64_t id, bool deletes);
  void Pace();

  absl::Status ReadOne(uint64_t id);
  absl::Status CheckAnswer(uint64_t id, bool was_live, bool found, std::string_view value);
  absl::Status CheckEntry(const Cursor& cursor, uint64_t* id);
  absl::Status ShortScan(Cursor* cursor, uint64_t id, uint64_t entries, bool* exact);
  absl::Status Wrong(const std::string& what) {
    shared_->wrong = true;
    return absl::DataLossError(absl::StrCat("wrong answer: ", what));
  }
  // This thread's part of n operations that all threads share, as [first, last).
  std::pair<uint64_t, uint64_t> Part(uint64_t n) const {
    return {n * index_ / config_.threads, n * (index_ + 1) / config_.threads};
  }

  Shared* const shared_;
  const Config& config_;
  KeySpace* const keys_;
  const uint64_t index_;
  const uint64_t limit_;
  int64_t deadline_ns_ = 0, last_ns_ = 0;
  uint64_t done_ = 0;
  Rng rng_;
  const std::unique_ptr<Reader> reader_;
  std::string key_, value_, scan_key_;
  uint64_t paced_bytes_ = 0;
};

std::string KeyName(std::string_view key) {
  return absl::StrCat("key \"", absl::CHexEscape(Absl(key)), "\"");
}

// --- writing

void Worker::Wrote(uint64_t id, bool deletes) {
  const uint64_t bytes = deletes ? config_.key_size : keys_->pair_bytes();
  deletes ? keys_->SetDead(id) : keys_->SetLive(id);
  totals.written_bytes += bytes;
  totals.bytes += bytes;
  totals.writes += 1;
  paced_bytes_ += bytes;
}

absl::Status Worker::PutOne(uint64_t id) {
  keys_->MakeKey(id, &key_);
  absl::Status s = shared_->store->Put(key_, keys_->MakeValue(id, &rng_, &value_));
  if (s.ok()) Wrote(id, false);
  return s;
}

absl::Status Worker::DeleteOne(uint64_t id) {
  keys_->MakeKey(id, &key_);
  absl::Status s = shared_->store->Delete(key_);
  if (s.ok()) Wrote(id, true);
  return s;
}

// Waits, outside the timed call, until the writers are not ahead of their rate.
void Worker::Pace() {
  if (config_.write_rate_limit == 0) return;
  const uint64_t writers =
      shared_->workload.name == "readwhilewriting" ? 1 : std::max<uint64_t>(1, config_.threads);
  const double due =
      static_cast<double>(paced_bytes_ * writers) / static_cast<double>(config_.write_rate_limit);
  const int64_t due_ns = shared_->start_ns + static_cast<int64_t>(due * 1e9);
  while (NowNs() < due_ns && !shared_->stop && !g_interrupted) {
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(std::clamp<int64_t>(due_ns - NowNs(), 0, 20'000'000)));
  }
  last_ns_ = NowNs();
}

template <typename Next>
absl::Status Worker::WriteAll(bool deletes, Next next) {
  if (config_.batch_size == 1) {
    for (uint64_t i = 0; More(); ++i) {
      const uint64_t id = next(i);
      if (absl::Status s = deletes ? DeleteOne(id) : PutOne(id); !s.ok()) return s;
      Done(1);
      Pace();
    }
    return absl::OkStatus();
  }
  const auto batch = shared_->store->NewBatch();
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; More();) {
    ids.clear();
    while (ids.size() < std::min(config_.batch_size, limit_ - done_)) {
      const uint64_t id = next(i++);
      ids.push_back(id);
      keys_->MakeKey(id, &key_);
      if (deletes) {
        batch->Delete(key_);
      } else {
        batch->Put(key_, keys_->MakeValue(id, &rng_, &value_));
      }
    }
    if (absl::Status s = batch->Commit(); !s.ok()) return s;
    for (const uint64_t id : ids) Wrote(id, deletes);
    Done(ids.size());
    Pace();
  }
  return absl::OkStatus();
}

absl::Status Worker::Fill(bool in_order) {
  const uint64_t first = Part(keys_->num()).first;
  return WriteAll(false,
                  [&](uint64_t i) { return in_order ? first + i : keys_->InLoadOrder(first + i); });
}

absl::Status Worker::Overwrite() {
  return WriteAll(false, [&](uint64_t) { return rng_.Uniform(keys_->num()); });
}

absl::Status Worker::Delete(bool in_order) {
  const uint64_t first = Part(keys_->num()).first;
  return WriteAll(true,
                  [&](uint64_t i) { return in_order ? first + i : rng_.Uniform(keys_->num()); });
}

// The writer of readwhilewriting: until the last reader is done.
absl::Status Worker::WriteBeside() {
  while (shared_->readers.load() > 0 && !shared_->stop && !g_interrupted) {
    if (absl::Status s = PutOne(rng_.Uniform(keys_->num())); !s.ok()) return s;
    Pace();
  }
  return absl::OkStatus();
}

// --- reading

// A key that was live before the read and that nobody deletes is found; one that nobody has written
// is not.
absl::Status Worker::CheckAnswer(uint64_t id, bool was_live, bool found, std::string_view value) {
  if (!found) {
    ++totals.not_found;
    if (!was_live) return absl::OkStatus();
    keys_->MakeKey(id, &key_);
    return Wrong(KeyName(key_) + " was written and is not found");
  }
  ++totals.found;
  totals.bytes += keys_->pair_bytes();
  if (!keys_->ValueBelongs(id, value)) {
    keys_->MakeKey(id, &key_);
    return Wrong(absl::StrCat(KeyName(key_), " has a value of ", value.size(),
                              " bytes that is not its own of ", config_.value_size));
  }
  if (!was_live && !shared_->workload.writes) {
    keys_->MakeKey(id, &key_);
    return Wrong(KeyName(key_) + " is found and is not there");
  }
  return absl::OkStatus();
}

absl::Status Worker::ReadOne(uint64_t id) {
  const bool was_live = keys_->live(id);
  bool found = false;
  std::string_view value;
  keys_->MakeKey(id, &key_);
  if (absl::Status s = reader_->Get(key_, &found, &value); !s.ok()) return s;
  return CheckAnswer(id, was_live, found, value);
}

absl::Status Worker::ReadRandom(uint64_t range) {
  while (More()) {
    if (absl::Status s = ReadOne(rng_.Uniform(range)); !s.ok()) return s;
    Done(1);
  }
  return absl::OkStatus();
}

// Keys between those that are loaded.
absl::Status Worker::ReadMissing() {
  while (More()) {
    keys_->MakeKey(rng_.Uniform(keys_->num()), &key_);
    key_ += '.';
    bool found = false;
    std::string_view value;
    if (absl::Status s = reader_->Get(key_, &found, &value); !s.ok()) return s;
    if (found) return Wrong(KeyName(key_) + " was never written and is found");
    ++totals.not_found;
    Done(1);
  }
  return absl::OkStatus();
}

absl::Status Worker::MultiReadRandom() {
  std::vector<std::string> names;
  std::vector<uint64_t> ids;
  std::vector<bool> live;
  while (More()) {
    const uint64_t n = std::min(config_.batch_size, limit_ - done_);
    names.resize(n);
    ids.resize(n);
    live.resize(n);
    for (uint64_t i = 0; i < n; ++i) {
      ids[i] = rng_.Uniform(keys_->num());
      live[i] = keys_->live(ids[i]);
      keys_->MakeKey(ids[i], &names[i]);
    }
    absl::Status s = reader_->MultiGet(names, [&](size_t i, bool found, std::string_view value) {
      return CheckAnswer(ids[i], live[i], found, value);
    });
    if (!s.ok()) return s;
    Done(n);
  }
  return absl::OkStatus();
}

absl::Status Worker::CheckEntry(const Cursor& cursor, uint64_t* id) {
  if (!keys_->ParseKey(cursor.key(), id)) {
    return Wrong(KeyName(cursor.key()) + " is no key of this run");
  }
  if (!keys_->ValueBelongs(*id, cursor.value())) {
    return Wrong(KeyName(cursor.key()) + " has a value that is not its own");
  }
  if (!shared_->workload.writes && !keys_->live(*id)) {
    return Wrong(KeyName(cursor.key()) + " is found and is not there");
  }
  totals.bytes += keys_->pair_bytes();
  return absl::OkStatus();
}

// Each thread walks the store once; --reads, where it is given, cuts the walk short.
absl::Status Worker::Scan(bool backwards) {
  const auto cursor = shared_->store->NewCursor(/*cache=*/false);
  backwards ? cursor->SeekToLast() : cursor->SeekToFirst();
  scan_key_.clear();
  for (; cursor->Valid() && More(); backwards ? cursor->Prev() : cursor->Next()) {
    uint64_t id = 0;
    if (absl::Status s = CheckEntry(*cursor, &id); !s.ok()) return s;
    const int order = cursor->key().compare(scan_key_);
    if (!scan_key_.empty() && (backwards ? order >= 0 : order <= 0)) {
      return Wrong(KeyName(cursor->key()) + " is out of order");
    }
    scan_key_.assign(cursor->key());
    ++totals.found;
    Done(1);
  }
  if (absl::Status s = cursor->status(); !s.ok()) return s;
  // Every live key was met, when the walk was not cut short.
  if (!cursor->Valid() && totals.found != keys_->live_keys()) {
    return Wrong(
        absl::StrCat("a walk over the store met ", totals.found, " keys of ", keys_->live_keys()));
  }
  return absl::OkStatus();
}

absl::Status Worker::ShortScan(Cursor* cursor, uint64_t id, uint64_t entries, bool* exact) {
  const bool was_live = keys_->live(id);
  keys_->MakeKey(id, &key_);
  cursor->Seek(key_);
  *exact = cursor->Valid() && cursor->key() == key_;
  if (was_live && !*exact) return Wrong(KeyName(key_) + " was written and is not found");
  scan_key_.clear();
  for (uint64_t i = 0; i < entries && cursor->Valid(); ++i) {
    uint64_t met = 0;
    if (absl::Status s = CheckEntry(*cursor, &met); !s.ok()) return s;
    if (cursor->key() < key_ || (i > 0 && cursor->key() <= scan_key_)) {
      return Wrong(KeyName(cursor->key()) + " is out of order");
    }
    scan_key_.assign(cursor->key());
    if (i + 1 < entries) cursor->Next();
  }
  return cursor->status();
}

// A new iterator for each seek: a scan sees the store as it is when it begins.
absl::Status Worker::SeekRandom() {
  while (More()) {
    const auto cursor = shared_->store->NewCursor(/*cache=*/true);
    bool exact = false;
    const uint64_t id = rng_.Uniform(keys_->num());
    if (absl::Status s = ShortScan(cursor.get(), id, 1 + config_.seek_nexts, &exact); !s.ok()) {
      return s;
    }
    ++(exact ? totals.found : totals.not_found);
    Done(1);
  }
  return absl::OkStatus();
}

// --- YCSB's core workloads: A 50 % reads, 50 % updates; B 95 / 5; C reads; D 95 % reads of the
// latest records, 5 % inserts; E 95 % scans of 1 to 100 records, 5 % inserts; F 50 % reads, 50 %
// read-modify-writes.
absl::Status Worker::Ycsb(char kind) {
  const uint64_t percent_read = kind == 'a' || kind == 'f' ? 50 : kind == 'c' ? 100 : 95;
  while (More()) {
    const uint64_t rank = shared_->zipfian->Draw(&rng_);
    uint64_t id = keys_->Scrambled(rank);
    absl::Status s;
    if (rng_.Uniform(100) < percent_read) {
      if (kind == 'd') {
        const uint64_t records = keys_->records();
        id = keys_->IdOfRecord(records - 1 - std::min(rank, records - 1));
      }
      if (kind == 'e') {
        const auto cursor = shared_->store->NewCursor(/*cache=*/true);
        bool exact = false;
        s = ShortScan(cursor.get(), id, 1 + rng_.Uniform(100), &exact);
        ++(exact ? totals.found : totals.not_found);
      } else {
        s = ReadOne(id);
      }
    } else if (kind == 'd' || kind == 'e') {
      const uint64_t record = keys_->NextInsert();
      if (record == UINT64_MAX) {
        return absl::InvalidArgumentError("every planned insert is made: give a larger --num");
      }
      s = PutOne(keys_->IdOfRecord(record));
    } else {
      if (kind == 'f') s = ReadOne(id);
      if (s.ok()) s = PutOne(id);
    }
    if (!s.ok()) return s;
    Done(1);
    if (config_.write_rate_limit != 0) Pace();
  }
  return absl::OkStatus();
}

absl::Status Worker::Run(std::string_view name) {
  last_ns_ = NowNs();
  const int64_t began = last_ns_;
  if (config_.duration != 0) {
    deadline_ns_ = shared_->start_ns + static_cast<int64_t>(config_.duration) * 1000000000;
  }
  const bool beside = name == "readwhilewriting" && index_ == config_.threads;
  absl::Status status = [&] {
    if (beside) return WriteBeside();
    if (name == "fillseq") return Fill(true);
    if (name == "fillrandom") return Fill(false);
    if (name == "overwrite") return Overwrite();
    if (name == "deleteseq") return Delete(true);
    if (name == "deleterandom") return Delete(false);
    if (name == "readmissing") return ReadMissing();
    if (name == "readhot") return ReadRandom((keys_->num() + 99) / 100);
    if (name == "multireadrandom") return MultiReadRandom();
    if (name == "readseq") return Scan(false);
    if (name == "readreverse") return Scan(true);
    if (name == "seekrandom") return SeekRandom();
    if (name.substr(0, 4) == "ycsb") return Ycsb(name[4]);
    return ReadRandom(keys_->num());  // readrandom, readwhilewriting
  }();
  totals.ops = beside ? 0 : done_;
  if (beside) {
    totals.background_writes = totals.writes;
    totals.bytes = 0;
  } else {
    totals.thread_seconds = static_cast<double>(NowNs() - began) * 1e-9;
    shared_->readers.fetch_sub(1);
  }
  if (!status.ok()) shared_->stop = true;
  return status;
}

bool Writes(std::string_view name) {
  return name == "fillseq" || name == "fillrandom" || name == "overwrite" || name == "deleteseq" ||
         name == "deleterandom";
}

// Operations of one thread: writes are num in all, reads are --reads of each thread, walks go to
// the end. With
// --duration the clock ends what draws at random; what walks the keys ends with them.
uint64_t LimitOf(std::string_view name, const Config& config, uint64_t index) {
  const bool walks = name == "fillseq" || name == "fillrandom" || name == "deleteseq" ||
                     name == "readseq" || name == "readreverse";
  if (config.duration != 0 && !walks) return UINT64_MAX;
  if ((name == "readseq" || name == "readreverse") && config.reads == 0) return UINT64_MAX;
  if (!Writes(name)) return config.reads_per_thread();
  return config.num * (index + 1) / config.threads - config.num * index / config.threads;
}

}  // namespace

const std::vector<Workload>& Workloads() {
  static const std::vector<Workload> all = {
      {"fillseq", "writes num keys in order into an empty store", true, true},
      {"fillrandom", "writes each of num keys once, in a random order, into an empty store", true,
       true},
      {"overwrite", "num writes of keys drawn uniformly", true},
      {"readrandom", "reads of keys drawn uniformly"},
      {"readmissing", "reads of keys that lie between those loaded"},
      {"readhot", "reads of the first 1 % of the keys"},
      {"multireadrandom", "as readrandom, --batch_size keys a call (ashlar: a loop of Get)"},
      {"readseq", "each thread walks over the store once"},
      {"readreverse", "as readseq, from the end"},
      {"seekrandom", "a new iterator, a seek and --seek_nexts steps"},
      {"deleteseq", "deletes num keys in order", true},
      {"deleterandom", "num deletes of keys drawn uniformly", true},
      {"readwhilewriting", "readrandom while one more thread overwrites", true},
      {"ycsba", "50 % reads, 50 % updates, zipfian", true},
      {"ycsbb", "95 % reads, 5 % updates, zipfian", true},
      {"ycsbc", "reads, zipfian"},
      {"ycsbd", "95 % reads of the latest, 5 % inserts", true},
      {"ycsbe", "95 % scans of 1 to 100 records, 5 % inserts, zipfian", true},
      {"ycsbf", "50 % reads, 50 % read-modify-writes, zipfian", true},
      {"waitforcompaction", "waits until background work has settled"},
      {"stats", "prints what the engine says of itself"},
      {"compact", "compacts the whole store"},
  };
  return all;
}

const Workload* FindWorkload(std::string_view name) {
  for (const Workload& w : Workloads()) {
    if (w.name == name) return &w;
  }
  return nullptr;
}

uint64_t InsertsOf(const Config& config) {
  uint64_t inserts = 0;
  for (const std::string& name : config.benchmarks) {
    if (name != "ycsbd" && name != "ycsbe") continue;
    // Twice the mean, and more than chance can add to a short run.
    inserts +=
        config.duration != 0 ? 64ull << 20 : config.threads * config.reads_per_thread() / 10 + 1000;
  }
  return inserts;
}

absl::Status RunWorkload(const Workload& workload, const Config& config, Store* store,
                         KeySpace* keys, uint64_t turn, Totals* totals, bool* wrong) {
  std::unique_ptr<Zipfian> zipfian;
  if (workload.name.substr(0, 4) == "ycsb") zipfian = std::make_unique<Zipfian>(keys->num());
  Shared shared{workload, config, store, keys, zipfian.get(), turn};
  const uint64_t threads = config.threads + (workload.name == "readwhilewriting" ? 1 : 0);
  shared.readers = config.threads;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint64_t i = 0; i < threads; ++i) {
    workers.push_back(std::make_unique<Worker>(&shared, i, LimitOf(workload.name, config, i)));
  }
  std::vector<absl::Status> status(threads);
  std::latch ready(static_cast<std::ptrdiff_t>(threads)), go(1);
  // The threads of the bench itself: no test of Ashlar simulates them.
  std::vector<std::thread> running;
  for (uint64_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ready.count_down();
      go.wait();
      status[i] = workers[i]->Run(workload.name);
    });
  }
  ready.wait();
  shared.start_ns = NowNs();
  go.count_down();
  for (std::thread& t : running) t.join();
  totals->seconds = static_cast<double>(NowNs() - shared.start_ns) * 1e-9;
  for (const auto& worker : workers) {
    const Totals& t = worker->totals;
    totals->ops += t.ops;
    totals->found += t.found;
    totals->not_found += t.not_found;
    totals->bytes += t.bytes;
    totals->written_bytes += t.written_bytes;
    totals->writes += t.writes;
    totals->background_writes += t.background_writes;
    totals->thread_seconds += t.thread_seconds;
    totals->latency.Merge(t.latency);
  }
  *wrong = shared.wrong;
  // A wrong answer is said before what else went wrong.
  for (const absl::Status& s : status) {
    if (!s.ok() && (!shared.wrong || absl::IsDataLoss(s))) return s;
  }
  return absl::OkStatus();
}

absl::Status LearnContent(Store* store, KeySpace* keys) {
  const auto cursor = store->NewCursor(/*cache=*/false);
  for (cursor->SeekToFirst(); cursor->Valid() && !g_interrupted; cursor->Next()) {
    uint64_t id = 0;
    if (!keys->ParseKey(cursor->key(), &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--use_existing_db: ", KeyName(cursor->key()),
                       " is no key of a run with this --num and --key_size"));
    }
    if (cursor->value().size() != keys->value_size()) {
      return absl::InvalidArgumentError(absl::StrCat("--use_existing_db: ", KeyName(cursor->key()),
                                                     " has a value of ", cursor->value().size(),
                                                     " bytes, not the --value_size of this run"));
    }
    keys->SetLive(id);
  }
  return cursor->status();
}

}  // namespace ashlar::bench
