// The benchmarks themselves: what each thread does to the store, timed call by call, and every
// answer compared with what was written.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kv/config.h"
#include "kv/histogram.h"
#include "kv/keyspace.h"
#include "kv/store.h"

namespace ashlar::bench {

// Set by a signal: every loop ends at its next operation.
extern std::atomic<bool> g_interrupted;

struct Totals {
  uint64_t ops = 0, found = 0, not_found = 0;
  uint64_t bytes = 0;              // keys and values written or found
  uint64_t written_bytes = 0;      // of them, written: keys and values; of a delete the key
  uint64_t writes = 0;             // puts and deletes
  uint64_t background_writes = 0;  // those of readwhilewriting's writer, not part of ops
  double thread_seconds = 0;       // summed over the threads that ops come from
  double seconds = 0;
  Histogram latency;
};

struct Workload {
  std::string_view name;
  std::string_view what;  // for --help
  bool writes = false;
  bool fresh = false;  // begins with an empty store
};

const std::vector<Workload>& Workloads();
const Workload* FindWorkload(std::string_view name);

// How many records the list may add to those that are loaded.
uint64_t InsertsOf(const Config& config);

// Runs one benchmark with config.threads threads. `turn` is its place in the list: each draws keys
// of its own. `wrong` is set when an answer was wrong: the status says which. Not for
// waitforcompaction, compact and stats.
absl::Status RunWorkload(const Workload& workload, const Config& config, Store* store,
                         KeySpace* keys, uint64_t turn, Totals* totals, bool* wrong);

// Reads the whole store, and marks in `keys` what is there.
absl::Status LearnContent(Store* store, KeySpace* keys);

}  // namespace ashlar::bench
