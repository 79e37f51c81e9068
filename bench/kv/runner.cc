#include "kv/runner.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kv/commit.h"

namespace ashlar::bench {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kSettleMaxNs = 600ll * 1000000000;
constexpr int64_t kSettleStepMs = 20;
// Of CPU time in one step: what the polling itself takes is well below.
constexpr uint64_t kQuietCpuUs = 2000;

// Bytes in use over live bytes, once a second while a benchmark writes. What the looking costs in
// CPU time is known, and left out of the benchmark's. One thread at a time but for Start to Stop,
// when only its own thread samples.
class SpaceSampler {
 public:
  SpaceSampler(Store* store, const KeySpace* keys) : store_(store), keys_(keys) {}
  ~SpaceSampler() { Stop(); }

  void Start() {
    thread_ = std::thread([this] {
      for (int step = 1; !stop_; ++step) {
        std::this_thread::sleep_for(milliseconds(20));
        if (step % 50 == 0) Sample();
      }
    });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::optional<double> Sample() {
    const CpuTime before = ThreadCpu();
    const uint64_t live = keys_->live_bytes();
    const auto used = store_->UsedBytes();
    const CpuTime after = ThreadCpu();
    cpu_.user_us += after.user_us - before.user_us;
    cpu_.system_us += after.system_us - before.system_us;
    if (live == 0 || !used.ok()) return std::nullopt;
    const double amp = static_cast<double>(*used) / static_cast<double>(live);
    if (amp > peak_.value_or(0)) peak_ = amp;
    return amp;
  }
  std::optional<double> peak() const { return peak_; }
  const CpuTime& cpu() const { return cpu_; }

 private:
  Store* const store_;
  const KeySpace* const keys_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::optional<double> peak_;
  CpuTime cpu_;
};

// Memtables to tables, then until nothing has moved for a while: the engine says it is not busy
// (where it says so), the device's counters stand still (where it has any), the process uses no
// CPU. The time is that of the last movement.
absl::Status Settle(const Config& config, Store* store, SpaceSampler* space, double* seconds,
                    bool* settled) {
  const int64_t began = NowNs();
  if (absl::Status s = store->Flush(); !s.ok()) return s;
  int64_t moved = NowNs(), sampled = moved;
  auto counters = ReadDeviceCounters(config.device);
  uint64_t cpu = ProcessCpu().total_us();
  const int64_t quiet_ns = static_cast<int64_t>(config.settle_quiet_ms) * 1000000;
  while (NowNs() - moved < quiet_ns && NowNs() - began < kSettleMaxNs && !g_interrupted) {
    std::this_thread::sleep_for(milliseconds(
        std::min<int64_t>(kSettleStepMs, static_cast<int64_t>(config.settle_quiet_ms))));
    auto counters_now = ReadDeviceCounters(config.device);
    uint64_t cpu_now = ProcessCpu().total_us();
    if (store->Busy() || counters_now != counters || cpu_now - cpu > kQuietCpuUs) moved = NowNs();
    if (NowNs() - sampled >= 1000000000) {
      space->Sample();
      sampled = NowNs();
      counters_now = ReadDeviceCounters(config.device);
      cpu_now = ProcessCpu().total_us();
    }
    counters = counters_now;
    cpu = cpu_now;
  }
  *settled = NowNs() - moved >= quiet_ns;
  *seconds = static_cast<double>(moved - began) * 1e-9;
  return absl::OkStatus();
}

class ListRunner {
 public:
  ListRunner(const Config& config, Engine* engine, JsonList* json)
      : config_(config),
        engine_(engine),
        json_(json),
        keys_(config.num, InsertsOf(config), config.key_size, config.value_size, config.seed) {}

  absl::Status Run(bool* wrong) {
    if (absl::Status s = Begin(); !s.ok()) return s;
    for (const std::string& name : config_.benchmarks) {
      const Workload& workload = *FindWorkload(name);
      if (workload.fresh && !config_.use_existing_db && used_) {
        if (absl::Status s = Close(); !s.ok()) return s;
        if (absl::Status s = OpenFresh(); !s.ok()) return s;
      }
      used_ = true;
      absl::Status status = One(workload, wrong);
      if (!status.ok())
        return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
      if (g_interrupted) return absl::CancelledError("ended by a signal");
    }
    return absl::OkStatus();
  }

  absl::Status Close() {
    if (store_ == nullptr) return absl::OkStatus();
    absl::Status status = store_->Close();
    store_.reset();
    return status;
  }

 private:
  absl::Status OpenFresh() {
    auto store = engine_->OpenFresh();
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    keys_.Forget();
    used_ = false;
    return absl::OkStatus();
  }

  absl::Status Begin() {
    if (!config_.use_existing_db) {
      if (absl::Status s = engine_->CheckDevice(); !s.ok()) return s;
      if (absl::Status s = OpenFresh(); !s.ok()) return s;
    } else {
      auto store = engine_->OpenExisting();
      if (!store.ok()) return store.status();
      store_ = *std::move(store);
      if (absl::Status s = LearnContent(store_.get(), &keys_); !s.ok()) return s;
    }
    const EngineInfo& info = engine_->info();
    std::printf("engine:  %s %s, writes %s%s\n", info.name.c_str(), info.version.c_str(),
                info.durability.c_str(),
                info.assertions.value_or(false)
                    ? "; its library is built WITH ASSERTIONS, which slow it down"
                    : "");
    std::printf("device:  %s (%s)\n", config_.device.c_str(), info.backend.c_str());
    std::printf("data:    %llu keys of %llu bytes, values of %llu; %llu live at the start\n",
                static_cast<unsigned long long>(config_.num),
                static_cast<unsigned long long>(config_.key_size),
                static_cast<unsigned long long>(config_.value_size),
                static_cast<unsigned long long>(keys_.live_keys()));
    std::fflush(stdout);
    return absl::OkStatus();
  }

  absl::Status One(const Workload& workload, bool* wrong) {
    if (workload.name == "stats") {
      std::printf("stats:\n%s", store_->Stats().c_str());
      return absl::OkStatus();
    }
    Result r;
    SpaceSampler space(store_.get(), &keys_);
    if (workload.writes) space.Start();
    const auto device_before = ReadDeviceCounters(config_.device);
    const auto log_before = store_->LogBytes(), stall_before = store_->StallMicros();
    const CpuTime cpu_before = ProcessCpu();
    absl::Status status = Timed(workload, &space, &r, wrong);
    space.Stop();
    if (status.ok() && workload.writes && !g_interrupted) {
      status = Settle(config_, store_.get(), &space, &r.settle_seconds, &r.settled);
    }
    const CpuTime cpu_after = ProcessCpu();
    const auto device_after = ReadDeviceCounters(config_.device);
    if (!status.ok() || g_interrupted) return status;

    r.cpu_us = static_cast<double>(cpu_after.total_us() - cpu_before.total_us()) -
               static_cast<double>(space.cpu().total_us());
    r.user_cpu_us = static_cast<double>(cpu_after.user_us - cpu_before.user_us) -
                    static_cast<double>(space.cpu().user_us);
    if (device_before.has_value() && device_after.has_value()) {
      r.device = *device_after - *device_before;
    }
    const auto written = static_cast<double>(r.totals.written_bytes);
    if (r.totals.written_bytes > 0) {
      if (r.device.has_value()) {
        r.write_amp = static_cast<double>(r.device->bytes_written) / written;
      }
      if (const auto log = store_->LogBytes(); log.has_value() && log_before.has_value()) {
        r.log_write_amp = static_cast<double>(*log - *log_before) / written;
      }
    }
    if (const auto stall = store_->StallMicros(); stall.has_value() && stall_before.has_value()) {
      r.stall_ms = static_cast<double>(*stall - *stall_before) / 1000;
    }
    r.space_amp = space.Sample();
    if (workload.writes) r.space_amp_peak = space.peak();
    Fill(workload, &r);
    std::printf("%s\n%s\n", ReportLine(r).c_str(), DetailLine(r).c_str());
    if (config_.histogram && r.totals.latency.count() > 0) {
      std::printf("Microseconds per operation:\n%s", r.totals.latency.ToString().c_str());
    }
    std::fflush(stdout);
    json_->Add(r);
    return absl::OkStatus();
  }

  absl::Status Timed(const Workload& workload, SpaceSampler* space, Result* r, bool* wrong) {
    const bool compact = workload.name == "compact";
    if (!compact && workload.name != "waitforcompaction") {
      return RunWorkload(workload, config_, store_.get(), &keys_, ++turn_, &r->totals, wrong);
    }
    const int64_t began = NowNs();
    absl::Status status = compact ? store_->Compact() : absl::OkStatus();
    if (status.ok()) status = Settle(config_, store_.get(), space, &r->settle_seconds, &r->settled);
    r->totals.ops = 1;
    // Of waitforcompaction, without the time that showed nothing was moving any more.
    r->totals.seconds = compact ? static_cast<double>(NowNs() - began) * 1e-9 : r->settle_seconds;
    r->totals.thread_seconds = r->totals.seconds;
    return status;
  }

  void Fill(const Workload& workload, Result* r) const {
    r->engine = engine_->info();
    r->device_path = config_.device;
    r->benchmark = workload.name;
    r->threads = config_.threads;
    r->num = config_.num;
    r->batch_size = config_.batch_size;
    r->reads_checked = r->totals.found + r->totals.not_found > 0;
    r->max_rss_bytes = MaxRssBytes();
    r->config_hash = ConfigHash(config_);
    r->commit = kCommit;
  }

  const Config& config_;
  Engine* const engine_;
  JsonList* const json_;
  KeySpace keys_;
  std::unique_ptr<Store> store_;
  uint64_t turn_ = 0;
  bool used_ = false;  // something ran on the store since it was made
};

}  // namespace

absl::Status CheckList(const Config& config) {
  for (const std::string& name : config.benchmarks) {
    const Workload* workload = FindWorkload(name);
    if (workload == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--benchmarks: there is no benchmark \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status RunList(const Config& config, Engine* engine, JsonList* json, bool* wrong) {
  absl::Status status;
  {
    ListRunner runner(config, engine, json);
    status = runner.Run(wrong);
    const absl::Status closed = runner.Close();
    if (status.ok()) status = closed;
  }
  const absl::Status released = engine->Release();
  return status.ok() ? released : status;
}

}  // namespace ashlar::bench
