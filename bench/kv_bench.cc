// kv_bench: Ashlar, or a rival, under the benchmarks that db_bench has made usual. The command
// line; what is run stands in kv/.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kv/compare.h"
#include "kv/config.h"
#include "kv/report.h"
#include "kv/runner.h"
#include "kv/store.h"
#include "kv/workload.h"

namespace {

using namespace ashlar::bench;  // NOLINT: this file is the face of that namespace

enum Exit { kOk = 0, kWrongAnswer = 1, kUsage = 2, kRefused = 3, kFailed = 4 };

struct Line {
  Config config;
  std::vector<std::string> compare;
  uint64_t rounds = 3;
  std::string json;
};

std::string Footer() {
  std::string text = "Benchmarks:\n";
  for (const Workload& w : Workloads()) {
    absl::StrAppend(&text, "  ", std::string(w.name), std::string(18 - w.name.size(), ' '),
                    std::string(w.what), "\n");
  }
  return text +
         "Exit codes: 0 ok, 1 a wrong answer of the engine, 2 usage, 3 refused for safety (the "
         "device\n"
         "holds what kv_bench did not make), 4 device or engine error, 128 + N ended by signal N.";
}

void AddOptions(CLI::App* app, Line* line) {
  Config* c = &line->config;
  const auto count = CLI::Range(uint64_t{1}, uint64_t{1} << 40);
  const auto any = CLI::Range(uint64_t{0}, uint64_t{1} << 40);
  const auto bytes = CLI::AsSizeValue(false);
  app->add_option("--benchmarks", c->benchmarks, "comma-separated, run in this order")
      ->delimiter(',');
  app->add_option("--device", c->device, "block device or file; a file is made when it is missing")
      ->required();
  app->add_option("--engine", c->engine, "ashlar or rocksdb");
  app->add_option("--compare", line->compare, "A,B: the list on A, then on B, in turns")
      ->delimiter(',')
      ->expected(2);
  app->add_option("--rounds", line->rounds, "of --compare")->check(CLI::Range(1, 1000));
  app->add_option("--num", c->num, "keys")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32));
  app->add_option("--reads", c->reads, "of each thread (default: num)")->check(count);
  app->add_option("--key_size", c->key_size, "bytes")->check(CLI::Range(8, 4095));
  app->add_option("--value_size", c->value_size, "bytes")->check(CLI::Range(0, 16 << 20));
  app->add_option("--threads", c->threads, "")->check(CLI::Range(1, 256));
  app->add_option("--duration", c->duration, "seconds, in place of --num and --reads")
      ->check(CLI::Range(1, 1000000));
  app->add_option("--seed", c->seed, "")->check(any);
  app->add_option("--cache_size", c->cache_size, "bytes, such as 256M")->transform(bytes);
  app->add_option("--write_buffer_size", c->write_buffer_size,
                  "bytes; ashlar's memory is cache_size + 2 write_buffer_size")
      ->transform(bytes);
  app->add_option("--sync", c->sync, "1: each write is durable before the next")
      ->check(CLI::Range(0, 1));
  app->add_option("--batch_size", c->batch_size, "keys of one write, and of multireadrandom")
      ->check(CLI::Range(1, 1000000));
  app->add_option("--seek_nexts", c->seek_nexts, "steps after a seek of seekrandom")
      ->check(CLI::Range(0, 1000000));
  app->add_option("--compression_type", c->compression_type,
                  "none, or of rocksdb alone: snappy, lz4, zstd")
      ->check(CLI::IsMember({"none", "snappy", "lz4", "zstd"}));
  app->add_option("--bloom_bits", c->bloom_bits,
                  "of a key; of rocksdb alone, ashlar chooses its own")
      ->check(CLI::Range(0, 64));
  app->add_flag("--histogram", c->histogram, "print the latencies");
  app->add_option("--use_existing_db", c->use_existing_db,
                  "1: keep what an earlier run wrote; it is read once before anything is timed")
      ->check(CLI::Range(0, 1));
  app->add_option("--benchmark_write_rate_limit", c->write_rate_limit, "bytes a second")
      ->transform(bytes);
  app->add_option("--json", line->json, "write the results to this file, as a list");
  app->add_flag("--destroy-data", c->destroy_data,
                "use the device though it holds what kv_bench did not make");
  app->add_option("--serial", c->serial, "what the device must report as its serial");
  app->add_option("--wipe-store", c->wipe_store,
                  "id of an Ashlar store that can't be opened and is replaced");
  app->add_option("--file_size", c->file_size,
                  "of a file that is made (default: 4 times the data, 1 GiB at least)")
      ->transform(bytes);
  app->add_option("--touch", c->touch, "0: a loop device is not written over before the first run")
      ->check(CLI::Range(0, 1));
  app->add_option("--settle_quiet_ms", c->settle_quiet_ms,
                  "background work has settled when nothing moved for so long")
      ->check(CLI::Range(1, 60000));
  app->add_option("--idle_ms", c->idle_ms,
                  "ashlar: after so long without a write it merges what takes needless space")
      ->check(CLI::Range(1, 3600000));
}

int ExitOf(const absl::Status& status, bool wrong) {
  if (status.ok()) return kOk;
  if (wrong) return kWrongAnswer;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return kUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kRefused;
    default:
      return kFailed;
  }
}

int Fail(const absl::Status& status, bool wrong) {
  std::fflush(stdout);
  std::fprintf(stderr, "kv_bench: %s\n", std::string(status.message()).c_str());
  return ExitOf(status, wrong);
}

volatile sig_atomic_t g_signal = 0;
void OnSignal(int number) {
  g_signal = number;
  g_interrupted = true;
}

absl::StatusOr<std::unique_ptr<Engine>> NewEngine(const Config& config) {
  if (config.engine == "ashlar") return NewAshlarEngine(config);
  if (config.engine == "rocksdb") return NewRocksdbEngine(config);
  for (const char* rival : {"leveldb", "lmdb", "wiredtiger"}) {
    if (config.engine == rival) {
      return absl::InvalidArgumentError(
          absl::StrCat("--engine=", config.engine, ": kv_bench is built without it"));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no engine \"", config.engine, "\"; there are ashlar and rocksdb"));
}

// What the line asks of one engine can be given.
absl::Status CheckEngine(const Config& config) {
  auto engine = NewEngine(config);
  if (!engine.ok()) return engine.status();
  return CheckList(config);
}

absl::Status CheckLine(const Line& line, bool bloom_given) {
  const Config& c = line.config;
  std::vector<std::string> engines = line.compare;
  if (engines.empty()) engines.push_back(c.engine);
  for (const std::string& engine : engines) {
    Config one = c;
    one.engine = engine;
    if (absl::Status s = CheckEngine(one); !s.ok()) return s;
  }
  if (c.benchmarks.empty()) return absl::InvalidArgumentError("--benchmarks: names none");
  if (!line.compare.empty() && c.use_existing_db) {
    return absl::InvalidArgumentError(
        "--compare formats the device anew for each run: not with "
        "--use_existing_db");
  }
  const bool ashlar = engines[0] == "ashlar" || engines.back() == "ashlar";
  if (ashlar && c.compression_type != "none") {
    return absl::InvalidArgumentError("--compression_type: ashlar does not compress");
  }
  if (bloom_given && engines[0] == "ashlar" && engines.back() == "ashlar") {
    return absl::InvalidArgumentError("--bloom_bits: ashlar chooses its own");
  }
  if (c.device.rfind("mem:", 0) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", c.device,
                     ": there is no device in memory; a file in /dev/shm is "
                     "near it"));
  }
  if (c.num > UINT64_MAX / 8 / (c.key_size + c.value_size)) {
    return absl::InvalidArgumentError("--num times --value_size is more than can be counted");
  }
  if (c.cache_size > 1ull << 46 || c.write_buffer_size > 1ull << 44) {
    return absl::InvalidArgumentError("--cache_size or --write_buffer_size is beyond any memory");
  }
  return absl::OkStatus();
}

// The arguments without NAME=VALUE and NAME VALUE of these names.
std::vector<std::string> Without(int argc, char** argv, const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    bool drop = false;
    for (const std::string& name : names) {
      if (word == name) {
        drop = true;
        ++i;
      } else if (word.rfind(name + "=", 0) == 0) {
        drop = true;
      }
    }
    if (!drop) kept.push_back(word);
  }
  return kept;
}

}  // namespace

int main(int argc, char** argv) {
  Line line;
  line.config.benchmarks = {"fillrandom", "readrandom", "readseq"};
  CLI::App app("kv_bench: measures Ashlar and its rivals", "kv_bench");
  AddOptions(&app, &line);
  app.footer(Footer());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }
  if (absl::Status s = CheckLine(line, app.count("--bloom_bits") > 0); !s.ok()) {
    return Fail(s, false);
  }
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);

  JsonList json;
  int code = kOk;
  if (!line.compare.empty()) {
    code = RunCompare(Without(argc, argv, {"--compare", "--rounds", "--json", "--engine"}),
                      line.compare[0], line.compare[1], line.rounds, &json);
  } else {
    auto engine = NewEngine(line.config);
    if (!engine.ok()) return Fail(engine.status(), false);
    bool wrong = false;
    const absl::Status status = RunList(line.config, engine->get(), &json, &wrong);
    if (!status.ok()) code = Fail(status, wrong);
  }
  if (g_signal != 0) code = 128 + g_signal;
  // What was measured before a failure is worth keeping.
  if (!line.json.empty()) {
    if (absl::Status s = json.Write(line.json); !s.ok() && code == kOk) code = Fail(s, false);
  }
  return code;
}
