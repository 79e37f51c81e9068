// One finished benchmark, and how it is shown. The JSON of a run is made by json.cc alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/config.h"
#include "kv/device_stat.h"
#include "kv/store.h"
#include "kv/workload.h"

namespace ashlar::bench {

// Unset: not known, which is never shown as zero.
struct Result {
  EngineInfo engine;
  std::string device_path;
  std::string benchmark;
  uint64_t threads = 0, num = 0, batch_size = 0;
  bool reads_checked = false;  // found and not_found mean something
  Totals totals;
  double settle_seconds = 0;
  bool settled = true;
  std::optional<DeviceCounters> device;  // until settled
  std::optional<double> write_amp, log_write_amp, space_amp, space_amp_peak, stall_ms;
  double cpu_us = 0, user_cpu_us = 0;
  uint64_t max_rss_bytes = 0;
  std::string config_hash, commit;

  double ops_per_sec() const;
  double micros_per_op() const;
  double mb_per_sec() const;
  std::optional<double> PerOp(double total) const;
};

// db_bench's line.
std::string ReportLine(const Result& result);
// What kv_bench adds below it.
std::string DetailLine(const Result& result);

// The list that --json=FILE becomes, and what --compare draws from it.
class JsonList {
 public:
  JsonList();
  ~JsonList();
  void Add(const Result& result);
  // Adds the objects of a file that another kv_bench wrote, and says in each which round it was.
  // What it returns are the figures that are compared, by benchmark, in the order of the list.
  using Figures = std::map<std::string, double>;
  struct Entry {
    std::string benchmark, engine, label;
    Figures figures;
  };
  absl::StatusOr<std::vector<Entry>> AddFile(const std::string& path, uint64_t round);
  absl::Status Write(const std::string& path) const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace ashlar::bench
