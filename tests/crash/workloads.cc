#include "tests/crash/workloads.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "tests/support/content.h"

namespace ashlar {

namespace {

constexpr uint64_t kStoreBytes = 64u << 20;
constexpr uint64_t kMs = 1'000'000;

Durability Buffered(bool yes) { return yes ? Durability::kBuffered : Durability::kDurable; }

// Single puts, most of them acknowledged as durable, over few keys; some flushes.
void Puts(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 4000; ++n) {
    store.Put(Key(n * 7 % 97), Bytes(20 + n % 300, n), Buffered(n % 5 == 3));
    if (n % 400 == 399) store.Sync();
    if (n % 200 == 150) store.Flush();
  }
  store.Close();
}

// Batches of puts and deletes, larger than the log's buffers now and then, most of them buffered;
// the process is killed in between.
void Batches(RecordedStore& store) {
  store.Open();
  uint64_t n = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<StoreModel::Change> changes;
    for (int i = 0; i < 1 + round % 13; ++i, ++n) {
      const std::string key = Key(n * 11 % 61);
      if (n % 3 == 1) {
        changes.emplace_back(key, std::nullopt);
      } else {
        changes.emplace_back(key, Bytes(round % 20 == 7 ? 6000 : 10 + n % 200, n));
      }
    }
    store.Write(changes, Buffered(round % 3 != 2));
    if (round % 25 == 20) store.Flush();
    if (round % 10 == 9) store.Sync();
    if (round % 200 == 169) {
      store.Die();
      store.Open();
    }
  }
  store.Close();
}

// Few keys again and again, with several log buffers in flight.
void Overwrites(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 2600; ++n) {
    store.Put(Key(n % 7), Bytes(200 + n % 1700, n), Buffered(n % 48 != 47));
    if (n % 180 == 100) store.Flush();
  }
  store.MergeAll();
  store.Close();
}

// Everything is deleted, flushed and merged away, and comes back.
void Deletes(RecordedStore& store) {
  store.Open();
  uint64_t n = 0;
  for (int round = 0; round < 24; ++round) {
    for (uint64_t k = 0; k < 120; k += 4, ++n) {
      std::vector<StoreModel::Change> changes;
      for (uint64_t i = k; i < k + 4; ++i) changes.emplace_back(Key(i), Bytes(50 + n % 500, n + i));
      store.Write(changes, Buffered(k % 16 != 0));
    }
    if (round % 2 == 0) store.Flush();
    for (uint64_t k = 0; k < 120; k += 6) {
      std::vector<StoreModel::Change> changes;
      for (uint64_t i = k; i < k + 6; ++i) changes.emplace_back(Key(i), std::nullopt);
      store.Write(changes, Buffered(k % 18 != 0));
    }
    store.Flush();
    if (round != 2) store.MergeAll();
  }
  store.Close();
}

// A flush every few puts: level 0 fills and is merged.
void Flushes(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 330; ++n) {
    store.Put(Key(n * 5 % 53), Bytes(300 + n * 7 % 2500, n), Buffered(n % 4 != 0));
    if (n % 11 == 10) store.Flush();
  }
  store.Close();
}

// More than a merge step holds, spread over many keys, so that merges go in several steps.
void MergeSteps(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 260; ++n) {
    store.Put(Key(n * 37 % 120), Bytes(20000 + n * 331 % 9000, n), Durability::kBuffered);
  }
  store.MergeAll();
  for (uint64_t n = 260; n < 330; ++n) {
    store.Put(Key(n * 37 % 120), Bytes(20000 + n * 331 % 9000, n), Durability::kBuffered);
  }
  store.MergeAll();
  store.Close();
}

// Several levels, filled and merged by their sizes: tiers, passes over level 0, tables that move,
// keys that come back in order, deletes that have versions beneath them, and a death in the middle
// of it.
void Levels(RecordedStore& store) {
  store.set_level_base_bytes(64u << 10);
  store.Open();
  uint64_t n = 0;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 12; ++i, ++n) {
      const uint64_t key = round % 5 == 4 ? 200 + n : n * 37 % 150;
      if (n % 6 == 5 && round % 5 != 4) {
        store.Write({{Key(key), std::nullopt}}, Durability::kBuffered);
      } else {
        store.Put(Key(key), Bytes(200 + n * 331 % (round % 9 == 3 ? 30'000 : 3'000), n),
                  Durability::kBuffered);
      }
    }
    store.Flush();
    store.Background();
    if (round == 30) {
      store.Die();
      store.Open();
    }
  }
  store.Close();
}

// The log goes through many segments.
void Segments(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 420; ++n) {
    store.Put(Key(n % 5), Bytes(6000 + n * 13 % 3000, n), Buffered(n % 13 != 0));
  }
  store.Close();
}

// One small edit after the other, until a manifest is full, and once more.
void Manifests(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 220; ++n) {
    store.Put(Key(n % 17), Bytes(40 + n % 90, n), Buffered(n % 3 == 0));
    store.Flush();
  }
  store.Close();
}

// Values up to the limit, which pages, log records and merge steps have to be cut for.
void LargeValues(RecordedStore& store) {
  store.Open();
  const size_t limit = store.db()->limits().value_bytes;
  uint64_t n = 0;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 3; ++i, ++n) {
      const size_t size = n % 4 == 0   ? limit - n % 64
                          : n % 4 == 1 ? 5000 + 37 * n
                                       : 40000 + n * 331 % 50000;
      store.Put(Key(n * 5 % 7), Bytes(size, n), Buffered(n % 6 == 4));
    }
    if (round % 4 == 3)
      store.Write({{Key(0), std::nullopt}, {Key(3), "small"}}, Durability::kDurable);
  }
  store.MergeAll();
  store.Close();
}

// Nearly as much as the store takes.
void FillDevice(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 380; ++n) {
    store.Put(Key(n), Bytes(60000 + n, n), Durability::kBuffered);
  }
  store.Close();
}
// Puts until there is no room, deletes, and puts again.
void FullDevice(RecordedStore& store) {
  store.Open();
  int refused = 0;
  uint64_t n = 400;
  for (int round = 0; round < 2; ++round) {
    for (; n < 2000; ++n) {
      if (!store.WriteIfRoom({{Key(n), Bytes(50000 + n, n)}}, Buffered(n % 4 != 0))) break;
    }
    refused += n < 2000;
    for (int d = 0; d < 3; ++d, n += 11) {
      std::vector<StoreModel::Change> changes;
      for (uint64_t k = 0; k < 40; ++k) changes.emplace_back(Key((n + k) % 380), std::nullopt);
      CHECK(store.WriteIfRoom(changes, Durability::kDurable));
    }
    store.MergeAll();
    CHECK(store.WriteIfRoom({{Key(n), Bytes(50000, n)}}, Durability::kDurable));
  }
  CHECK(refused == 2);
  store.Close();
}

// Iterators keep old versions over flushes and merges, and let them go later.
void Iterators(RecordedStore& store) {
  store.Open();
  std::vector<std::unique_ptr<Iterator>> held;
  for (uint64_t n = 0; n < 1000; ++n) {
    store.Put(Key(n * 3 % 41), Bytes(100 + n * 7 % 1500, n), Buffered(n % 4 != 0));
    if (n % 20 == 7) {
      held.push_back(store.db()->NewIterator(ReadOptions()));
      held.back()->SeekToFirst();
    }
    if (n % 25 == 24) store.Flush();
    if (n % 100 == 99) store.MergeAll();
    for (const auto& it : held) {
      if (n % 7 == 0 && it->Valid()) it->Next();
    }
    if (n % 90 == 89 && !held.empty()) held.erase(held.begin());
    if (n % 200 == 199) held.clear();
  }
  held.clear();
  store.MergeAll();
  store.Close();
}

// Opened, closed and killed again and again.
void Reopens(RecordedStore& store) {
  uint64_t n = 0;
  for (int round = 0; round < 24; ++round) {
    store.Open();
    for (int i = 0; i < 3 + round % 5 * 4; ++i, ++n) {
      store.Put(Key(n * 5 % 37), Bytes(100 + n * 31 % 1900, n), Buffered(i % 4 != 0));
    }
    if (round % 5 == 2) store.Flush();
    if (round % 3 == 1) {
      store.Close();
    } else {
      store.Die();
    }
  }
  store.Open();
  store.Close();
}

// Buffered writes that only the log's timers take to the device, make durable and vouch for.
void Timers(RecordedStore& store) {
  store.Open();
  for (uint64_t n = 0; n < 2400; ++n) {
    store.Put(Key(n * 5 % 43), Bytes(30 + n * 7 % 900, n), Buffered(n % 9 != 0));
    if (n % 3 == 0) store.Wait(2 * kMs);           // submitted
    if (n % 21 == 20) store.Wait(150 * kMs);       // perhaps a mark
    if (n % 35 == 34) store.Wait(1100 * kMs);      // durable, then a mark
    if (n % 140 == 139) store.Wait(11'000 * kMs);  // sealed, since nothing happens
    if (n % 500 == 300) {
      store.Die();
      store.Open();
    }
  }
  store.Close();
}

// Some of everything.
void Mixed(RecordedStore& store) {
  store.Open();
  uint64_t n = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<StoreModel::Change> changes;
    for (int i = 0; i < 1 + round % 7; ++i, ++n) {
      if (n % 5 == 1) {
        changes.emplace_back(Key(n * 11 % 47), std::nullopt);
      } else {
        changes.emplace_back(Key(n * 11 % 47), Bytes(10 + n * 17 % 1200, n));
      }
    }
    store.Write(changes, Buffered(round % 5 != 2));
    if (round % 16 == 9) store.Flush();
    if (round % 20 == 11) store.Wait(1200 * kMs);
    if (round % 150 == 60) {
      store.Die();
      store.Open();
    }
    if (round % 150 == 90) store.MergeAll();
    if (round % 150 == 120) {
      store.Close();
      store.Open();
    }
  }
  store.Close();
}

io::MemoryDeviceOptions Device(uint32_t lba_bytes, bool fua, bool cache = true) {
  io::MemoryDeviceOptions options;
  options.bytes = kStoreBytes;
  options.lba_bytes = lba_bytes;
  options.native_fua = fua;
  options.volatile_cache = cache;
  return options;
}

}  // namespace

const std::vector<Workload>& Workloads() {
  using S = const RecordingSummary&;
  static const auto* const workloads = new std::vector<Workload>{
      {"puts", Device(4096, true), Puts, [](S s) { return s.flushes >= 8 && s.log_writes >= 1000; },
       14000, 30000, 1400},
      {"puts_small_blocks", Device(512, true), Puts,
       [](S s) { return s.flushes >= 8 && s.log_writes >= 1000; }, 10500, 30000, 1400},
      {"batches", Device(512, false), Batches,
       [](S s) { return s.flushes >= 10 && s.superblock_updates >= 5; }, 18000, 30000, 1400},
      {"overwrites", Device(4096, false), Overwrites, [](S s) { return s.merge_steps >= 1; }, 14000,
       30000, 1400},
      {"deletes", Device(4096, true), Deletes, [](S s) { return s.merge_steps >= 4; }, 13500, 30000,
       1400},
      {"flushes", Device(512, true), Flushes,
       [](S s) { return s.flushes >= 30 && s.merge_steps >= 6; }, 23500, 30000, 1400},
      {"merge_steps", Device(4096, true), MergeSteps,
       [](S s) { return s.shortening_steps >= 3 && s.merge_steps >= 5; }, 2500, 3000, 200},
      {"levels", Device(4096, true), Levels,
       [](S s) { return s.merge_steps >= 20 && s.moves >= 3 && s.shortening_steps >= 1; }, 9000,
       30000, 1400},
      {"segments", Device(4096, false), Segments, [](S s) { return s.segments >= 5; }, 21500, 30000,
       1400},
      {"manifests", Device(4096, true), Manifests,
       [](S s) { return s.manifests >= 4 && s.superblock_updates >= 5; }, 27500, 30000, 1400},
      {"large_values", Device(4096, true), LargeValues,
       [](S s) { return s.flushes >= 6 && s.merge_steps >= 1; }, 2500, 3000, 200},
      {"full_device", Device(4096, true), FullDevice,
       [](S s) { return s.flushes >= 3 && s.merge_steps >= 3; }, 270, 300, 0, 1u << 20, FillDevice,
       true},
      {"iterators", Device(4096, false), Iterators,
       [](S s) { return s.merge_steps >= 4 && s.flushes >= 16; }, 19000, 20000, 1400},
      {"reopens", Device(512, false), Reopens, [](S s) { return s.superblock_updates >= 50; },
       10500, 30000, 1400},
      {"timers", Device(4096, true), Timers, [](S s) { return s.marks >= 10 && s.flushes >= 3; },
       12000, 30000, 1400},
      {"timers_without_fua", Device(512, false), Timers,
       [](S s) { return s.marks >= 10 && s.flushes >= 3; }, 19000, 20000, 1400},
      {"no_cache", Device(4096, true, false), Mixed, [](S s) { return s.flushes >= 10; }, 20000,
       30000, 1400},
      {"no_cache_small_blocks", Device(512, true, false), Mixed,
       [](S s) { return s.flushes >= 10; }, 19500, 30000, 1400},
  };
  return *workloads;
}

}  // namespace ashlar
