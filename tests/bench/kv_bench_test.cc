// kv_bench as a person or a script meets it: what it counts, prints and writes, what it refuses,
// and the exit code. Nothing here looks at a speed.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace ashlar::bench {
namespace {

using Json = nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class KvBench : public testing::Test {
 protected:
  void SetUp() override {
    // In memory where that is possible: it is not the engine that is tested here.
    const char* base = std::getenv("ASHLAR_TEST_DIR");
    dir_ = (access("/dev/shm", W_OK) == 0 ? std::string("/dev/shm")
            : base != nullptr             ? std::string(base)
                                          : testing::TempDir()) +
           "/ashlar-test." + std::to_string(getpid()) + ".XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr) << dir_;
    image_ = dir_ + "/ashlar-test." + std::to_string(getpid()) + ".image";
  }
  void TearDown() override {
    if (!loop_.empty()) Shell("losetup -d " + loop_);
    Shell("rm -rf " + dir_);
  }

  // Exit code; what was printed is in out_ and err_.
  int Shell(const std::string& command) {
    const int status =
        std::system((command + " >" + dir_ + "/out 2>" + dir_ + "/err </dev/null").c_str());
    out_ = ReadFile(dir_ + "/out");
    err_ = ReadFile(dir_ + "/err");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // kv_bench on `device` with a small store's settings and a JSON file, which is read.
  int RunOn(const std::string& device, const std::string& flags) {
    const std::string json = dir_ + "/json";
    unlink(json.c_str());
    const int code =
        Shell(std::string(KV_BENCH) + " --device=" + device + " --json=" + json +
              (flags.find("--file_size") == std::string::npos ? " --file_size=128M" : "") +
              " --cache_size=8M --write_buffer_size=4M --settle_quiet_ms=5 --idle_ms=20"
              " --seed=" +
              std::to_string(g_seed) + " " + flags);
    json_ = Json::parse(ReadFile(json), nullptr, false);
    return code;
  }
  int Run(const std::string& flags) { return RunOn(image_, flags); }

  // A loop device over a file in memory; false where there can be none.
  bool MakeLoop() {
    if (geteuid() != 0 || Shell("command -v losetup mkfs.ext4") != 0) return false;
    Shell("truncate -s 128M " + image_);
    if (Shell("losetup -f --show " + image_) != 0) return false;
    loop_ = out_.substr(0, out_.find('\n'));
    return true;
  }

  std::string dir_, image_, loop_, out_, err_;
  Json json_;
};

void ExpectEveryField(const Json& object, bool block_device) {
  for (const char* name : {"engine",
                           "benchmark",
                           "threads",
                           "num",
                           "ops",
                           "found",
                           "not_found",
                           "seconds",
                           "settle_seconds",
                           "ops_per_sec",
                           "micros_per_op",
                           "mb_per_sec",
                           "latency_us",
                           "device",
                           "write_amp",
                           "log_write_amp",
                           "reads_per_op",
                           "bytes_read_per_op",
                           "space_amp",
                           "space_amp_peak",
                           "cpu_us_per_op",
                           "user_cpu_us_per_op",
                           "max_rss_bytes",
                           "stall_ms",
                           "config_hash",
                           "commit"}) {
    EXPECT_TRUE(object.contains(name)) << name;
  }
  for (const char* name : {"mean", "p50", "p95", "p99", "p999", "max"}) {
    EXPECT_TRUE(object["latency_us"][name].is_number()) << name;
  }
  const Json& device = object["device"];
  for (const char* name : {"path", "backend", "completion", "fixed_buffers"}) {
    EXPECT_TRUE(device.contains(name)) << name;
  }
  for (const char* name : {"reads", "writes", "discards", "flushes", "bytes_read", "bytes_written",
                           "bytes_discarded"}) {
    ASSERT_TRUE(device.contains(name)) << name;
    // What is not known is null, never zero.
    EXPECT_EQ(device[name].is_number(), block_device) << name;
  }
  EXPECT_EQ(object["reads_per_op"].is_number(), block_device);
  EXPECT_EQ(object["config_hash"].get<std::string>().size(), 16u);
  EXPECT_GT(object["seconds"].get<double>(), 0);
  EXPECT_GT(object["max_rss_bytes"].get<uint64_t>(), 1u << 20);
}

// The lines of `out` that are db_bench's: the benchmarks' names in order.
std::vector<std::string> ReportLines(const std::string& out) {
  static const std::regex line(
      "([a-z]+) *: +[0-9]+\\.[0-9]{3} micros/op [0-9]+ ops/sec [0-9]+\\.[0-9]{3} seconds [0-9]+ "
      "operations;( +[0-9]+\\.[0-9] MB/s( \\([0-9]+ of [0-9]+ found\\))?)?");
  std::vector<std::string> names;
  std::istringstream in(out);
  for (std::string text; std::getline(in, text);) {
    std::smatch match;
    if (std::regex_match(text, match, line)) names.push_back(match[1]);
  }
  return names;
}

TEST_F(KvBench, EveryBenchmarkCountsExactly) {
  const std::vector<std::string> list = {"readrandom",      "fillseq",
                                         "readseq",         "fillrandom",
                                         "overwrite",       "readrandom",
                                         "readmissing",     "readhot",
                                         "multireadrandom", "readseq",
                                         "seekrandom",      "readwhilewriting",
                                         "ycsba",           "ycsbb",
                                         "ycsbc",           "ycsbd",
                                         "ycsbe",           "ycsbf",
                                         "readseq",         "compact",
                                         "deleteseq",       "waitforcompaction",
                                         "readseq",         "readrandom"};
  std::string flag = "--benchmarks=stats";
  for (const std::string& name : list) flag += "," + name;
  ASSERT_EQ(Run(flag + " --num=2000 --batch_size=7 --seek_nexts=3"), 0) << out_ << err_;
  EXPECT_EQ(ReportLines(out_), list);
  const size_t stats = out_.find("stats:\n{");
  ASSERT_NE(stats, std::string::npos) << out_;
  const Json counted = Json::parse(out_.substr(stats + 7, out_.find('\n', stats + 7) - stats - 7));
  EXPECT_EQ(counted["changes"], 1) << "the mark";
  EXPECT_TRUE(counted["settled"].get<bool>());
  ASSERT_EQ(json_.size(), list.size());
  // The order of list; kAny: not the same each time.
  constexpr int kAny = -1;
  const struct {
    int ops, found, not_found;
  } wanted[] = {{2000, 0, 2000}, {2000, 0, 0},    {2000, 2000, 0}, {2000, 0, 0},    {2000, 0, 0},
                {2000, 2000, 0}, {2000, 0, 2000}, {2000, 2000, 0}, {2000, 2000, 0}, {2000, 2000, 0},
                {2000, 2000, 0}, {2000, 2000, 0}, {2000, kAny, 0}, {2000, kAny, 0}, {2000, 2000, 0},
                {2000, kAny, 0}, {2000, kAny, 0}, {2000, 2000, 0}, {kAny, kAny, 0}, {1, 0, 0},
                {2000, 0, 0},    {1, 0, 0},       {kAny, kAny, 0}, {2000, 0, 2000}};
  for (size_t i = 0; i < list.size(); ++i) {
    SCOPED_TRACE(list[i]);
    const Json& r = json_[i];
    ExpectEveryField(r, false);
    EXPECT_EQ(r["engine"], "ashlar");
    EXPECT_EQ(r["benchmark"], list[i]);
    EXPECT_EQ(r["num"], 2000);
    EXPECT_EQ(r["threads"], 1);
    if (wanted[i].ops != kAny) EXPECT_EQ(r["ops"], wanted[i].ops);
    if (wanted[i].found != kAny) EXPECT_EQ(r["found"], wanted[i].found);
    EXPECT_EQ(r["not_found"], wanted[i].not_found);
    EXPECT_TRUE(r["write_amp"].is_null());  // of the device, which is a file
    EXPECT_EQ(r["log_write_amp"].is_number(), r["user_bytes_written"] != 0);
  }
  // Reads are what is not an update or insert; those inserted are met by the walk and outlive the
  // deletion of what was loaded.
  EXPECT_NEAR(json_[12]["found"].get<int>(), 1000, 150);
  EXPECT_NEAR(json_[13]["found"].get<int>(), 1900, 60);
  const int inserted = 2 * 2000 - json_[15]["found"].get<int>() - json_[16]["found"].get<int>();
  EXPECT_GT(inserted, 0);
  EXPECT_EQ(json_[18]["found"], 2000 + inserted);
  EXPECT_EQ(json_[18]["ops"], 2000 + inserted);
  EXPECT_EQ(json_[22]["found"], inserted);
  // Bytes of the user: keys and values of puts, keys of deletes.
  EXPECT_EQ(json_[3]["user_bytes_written"], 2000 * 116);
  EXPECT_EQ(json_[20]["user_bytes_written"], 2000 * 16);
  EXPECT_TRUE(json_[0]["space_amp"].is_null()) << "nothing is live";
  EXPECT_GT(json_[3]["space_amp"].get<double>(), 1);
  EXPECT_GE(json_[3]["space_amp_peak"], json_[3]["space_amp"]);
  EXPECT_GT(json_[11]["background_writes"].get<int>(), 0);
}

TEST_F(KvBench, ThreadsShareWritesAndEachReadsItsOwn) {
  ASSERT_EQ(Run("--num=1000 --threads=3 --reads=100 --sync=1 --histogram --batch_size=5 "
                "--benchmarks=fillrandom,deleterandom,readrandom,fillseq,readseq"),
            0)
      << out_ << err_;
  ASSERT_EQ(json_.size(), 5u);
  EXPECT_EQ(json_[0]["ops"], 1000);
  EXPECT_EQ(json_[0]["threads"], 3);
  EXPECT_EQ(json_[0]["durability"], "kDurable");
  EXPECT_EQ(json_[1]["ops"], 1000);
  EXPECT_EQ(json_[2]["ops"], 300);
  EXPECT_EQ(json_[2]["found"].get<int>() + json_[2]["not_found"].get<int>(), 300);
  EXPECT_NEAR(json_[2]["found"].get<int>(), 300 / 2.718, 60) << "1 / e of the keys are left";
  EXPECT_EQ(json_[4]["ops"], 300) << "--reads cuts a walk short";
  EXPECT_NE(out_.find("Percentiles: P50: "), std::string::npos);
}

TEST_F(KvBench, ALaterRunReadsTheSameStore) {
  ASSERT_EQ(Run("--num=1000 --benchmarks=fillrandom"), 0) << err_;
  ASSERT_EQ(Run("--num=1000 --use_existing_db=1 --benchmarks=readseq,readrandom,overwrite"), 0)
      << err_;
  EXPECT_EQ(json_[0]["found"], 1000);
  EXPECT_EQ(json_[1]["not_found"], 0);
  EXPECT_TRUE(json_[2]["space_amp"].is_number());
  EXPECT_EQ(Run("--num=999 --use_existing_db=1 --benchmarks=readseq"), 2);
  EXPECT_EQ(Run("--num=1000 --key_size=20 --use_existing_db=1 --benchmarks=readseq"), 2);
  EXPECT_EQ(Run("--num=1000 --value_size=99 --use_existing_db=1 --benchmarks=readseq"), 2);
  EXPECT_NE(err_.find("--value_size"), std::string::npos) << err_;
  ASSERT_EQ(Run("--num=1000 --use_existing_db=1 --benchmarks=readseq"), 0) << "nothing was lost";
  EXPECT_EQ(json_[0]["found"], 1000);
}

// The key of record 5 and a value of the right size that is not its own.
TEST_F(KvBench, AWrongAnswerEndsTheRunWith1) {
  ASSERT_EQ(Run("--num=1000 --benchmarks=fillrandom"), 0) << err_;
  ASSERT_EQ(Shell(std::string(ASHLARCTL) + " put --hex " + image_ +
                  " 00000000000005003030303030303030 " + std::string(200, '5')),
            0)
      << err_;
  for (const char* name :
       {"readrandom", "readseq", "multireadrandom", "readhot", "seekrandom", "ycsbc"}) {
    EXPECT_EQ(Run(std::string("--num=1000 --reads=20000 --use_existing_db=1 --benchmarks=") + name +
                  ",readmissing"),
              1)
        << name << err_;
    EXPECT_NE(err_.find("wrong answer: key"), std::string::npos) << err_;
    EXPECT_EQ(json_.size(), 0u) << "nothing after it is run";
  }
}

TEST_F(KvBench, UsageErrorsExit2AndTouchNothing) {
  for (const char* flags : {"--benchmarks=nonsense",
                            "--benchmarks=fillseq,nonsense",
                            "--benchmarks=",
                            "--engine=nonsense",
                            "--engine=leveldb",
                            "--engine=",
                            "--nonsense",
                            "nonsense",
                            "--num=0",
                            "--num=-1",
                            "--num=x",
                            "--num=1e3",
                            "--num=99999999999999999999999",
                            "--num=4294967297",
                            "--key_size=7",
                            "--key_size=4096",
                            "--value_size=16777217",
                            "--threads=0",
                            "--threads=257",
                            "--threads=-1",
                            "--duration=0",
                            "--reads=0",
                            "--sync=2",
                            "--batch_size=0",
                            "--seek_nexts=-1",
                            "--cache_size=-1",
                            "--cache_size=99999999T",
                            "--write_buffer_size=16E",
                            "--compression_type=lz4",
                            "--compression_type=x",
                            "--bloom_bits=5",
                            "--compare=ashlar",
                            "--compare=ashlar,nonsense",
                            "--compare=ashlar,ashlar --rounds=0",
                            "--compare=ashlar,ashlar --use_existing_db=1",
                            "--settle_quiet_ms=0",
                            "--idle_ms=0"}) {
    EXPECT_EQ(Run(flags), 2) << flags << out_ << err_;
    EXPECT_FALSE(err_.empty()) << flags;
    EXPECT_NE(access(image_.c_str(), F_OK), 0) << flags;
  }
  EXPECT_EQ(Shell(std::string(KV_BENCH) + " --num=10"), 2) << "no device";
  EXPECT_EQ(RunOn("mem:1G", "--num=10"), 2);
  EXPECT_EQ(RunOn(dir_, "--num=10"), 2) << "a directory is no device of ashlar's";
  EXPECT_EQ(Run("--num=10 --value_size=10M --benchmarks=fillseq"), 2)
      << "more than the store takes";
}

TEST_F(KvBench, HelpNamesEveryBenchmark) {
  ASSERT_EQ(Shell(std::string(KV_BENCH) + " --help"), 0);
  for (const char* name : {"fillseq", "readreverse", "readwhilewriting", "ycsbf", "compact",
                           "waitforcompaction", "stats"}) {
    EXPECT_NE(out_.find(std::string("  ") + name + " "), std::string::npos) << name;
  }
  EXPECT_EQ(out_.find("async"), std::string::npos);
}

TEST_F(KvBench, RefusesWhatItDidNotMake) {
  // Something foreign.
  std::ofstream(image_) << std::string(2 << 20, 'x');
  Shell("truncate -s 128M " + image_);
  const std::string before = ReadFile(image_);
  EXPECT_EQ(Run("--num=100"), 3) << err_;
  EXPECT_TRUE(ReadFile(image_) == before);
  EXPECT_EQ(Run("--num=100 --destroy-data"), 0) << err_;
  EXPECT_EQ(Run("--num=100"), 0) << "its own store" << err_;
  // A store with a record, and one without.
  const std::string ctl = ASHLARCTL;
  unlink(image_.c_str());
  ASSERT_EQ(Shell(ctl + " format " + image_ + " --size=128M"), 0);
  EXPECT_EQ(Run("--num=100"), 0) << "an empty store" << err_;
  unlink(image_.c_str());
  ASSERT_EQ(Shell(ctl + " format " + image_ + " --size=128M"), 0);
  ASSERT_EQ(Shell(ctl + " put " + image_ + " key value"), 0);
  EXPECT_EQ(Run("--num=100"), 3);
  EXPECT_NE(err_.find("kv_bench did not make"), std::string::npos) << err_;
  EXPECT_EQ(Run("--num=100 --use_existing_db=1"), 3);
  EXPECT_EQ(Run("--num=100 --use_existing_db=1 --destroy-data"), 3);
  ASSERT_EQ(Shell(ctl + " get " + image_ + " key"), 0);
  EXPECT_EQ(out_, "value");
  EXPECT_EQ(Run("--num=100 --destroy-data"), 0) << err_;
  EXPECT_EQ(RunOn("/dev/null", "--num=100"), 2);
}

TEST_F(KvBench, RefusesFileSystemsThatAreNotItsOwn) {
  if (Shell("command -v mkfs.ext4") != 0) GTEST_SKIP() << "no mkfs.ext4";
  Shell("truncate -s 128M " + image_);
  ASSERT_EQ(Shell("mkfs.ext4 -q " + image_), 0);
  EXPECT_EQ(Run("--num=100"), 3) << err_;
  Shell("mkfs.ext4 -q -F -L ashlar-bench2 " + image_);
  EXPECT_EQ(Run("--num=100"), 3) << err_;
  Shell("mkfs.ext4 -q -F -L ashlar-bench " + image_);
  EXPECT_EQ(Run("--num=100"), 0) << err_;
}

TEST_F(KvBench, AFullDeviceIsAnErrorOfItsOwn) {
  EXPECT_EQ(Run("--num=200000 --value_size=2000 --file_size=64M --benchmarks=fillseq,readseq"), 4);
  EXPECT_EQ(err_.rfind("kv_bench: fillseq: ", 0), 0u) << err_;
  EXPECT_EQ(Run("--num=100"), 0) << "and leaves what can be used again" << err_;
  EXPECT_EQ(RunOn(dir_ + "/no/such", "--num=100"), 4);
}

TEST_F(KvBench, CompareGivesEachRoundsRatios) {
  ASSERT_EQ(Run("--num=500 --compare=ashlar,ashlar --rounds=3 --benchmarks=fillrandom,readrandom"),
            0)
      << out_ << err_;
  ASSERT_EQ(json_.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(json_[i]["round"], i / 4 + 1);
    ExpectEveryField(json_[i], false);
  }
  const std::regex ratio(
      "fillrandom +ops/sec +([0-9.]+) +([0-9.]+) +([0-9.]+)  3 rounds; ashlar 0\\.1\\.0 "
      "\\(kBuffered\\) against ashlar 0\\.1\\.0 \\(kBuffered\\)");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(out_, match, ratio)) << out_;
  std::vector<double> wanted;
  for (int round = 0; round < 3; ++round) {
    // A goes first in odd rounds.
    const size_t a = round * 4 + (round % 2) * 2, b = round * 4 + 2 - (round % 2) * 2;
    wanted.push_back(json_[a]["ops_per_sec"].get<double>() / json_[b]["ops_per_sec"].get<double>());
  }
  std::sort(wanted.begin(), wanted.end());
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(std::stod(match[i + 1]), wanted[i], 0.001);
}

TEST_F(KvBench, ALoopDeviceIsCounted) {
  if (!MakeLoop()) GTEST_SKIP() << "no loop device here";
  ASSERT_EQ(RunOn(loop_, "--num=2000 --benchmarks=fillrandom,readrandom,readmissing"), 0) << err_;
  ASSERT_EQ(json_.size(), 3u);
  for (const Json& r : json_) ExpectEveryField(r, true);
  // Log and table both: each byte at least twice.
  EXPECT_GT(json_[0]["write_amp"].get<double>(), 2);
  EXPECT_GE(json_[0]["device"]["bytes_written"].get<uint64_t>(), 2u * 2000 * 116);
  EXPECT_GE(json_[1]["reads_per_op"].get<double>(), 0.9);
  EXPECT_EQ(json_[2]["device"]["writes"], 0);
  struct stat st;
  ASSERT_EQ(stat(image_.c_str(), &st), 0);
  EXPECT_GE(st.st_blocks * 512, 127 << 20) << "every byte was touched before the run";
}

#ifdef KV_BENCH_ROCKSDB
TEST_F(KvBench, RocksdbRunsInADirectory) {
  const std::string db = dir_ + "/db";
  mkdir(db.c_str(), 0700);
  ASSERT_EQ(RunOn(db,
                  "--engine=rocksdb --num=2000 --batch_size=4 --benchmarks=fillrandom,readrandom,"
                  "readmissing,multireadrandom,readseq,readreverse,compact,deleteseq,readseq"),
            0)
      << out_ << err_;
  ASSERT_EQ(json_.size(), 9u);
  for (const Json& r : json_) {
    ExpectEveryField(r, false);
    EXPECT_EQ(r["engine"], "rocksdb");
    EXPECT_TRUE(r["assertions"].is_boolean());
  }
  EXPECT_EQ(json_[1]["found"], 2000);
  EXPECT_EQ(json_[2]["not_found"], 2000);
  EXPECT_EQ(json_[3]["found"], 2000);
  EXPECT_EQ(json_[4]["found"], 2000);
  EXPECT_EQ(json_[5]["found"], 2000);
  EXPECT_EQ(json_[8]["found"], 0);
  EXPECT_GT(json_[0]["log_write_amp"].get<double>(), 1);
  EXPECT_EQ(RunOn(db, "--engine=rocksdb --num=2000 --use_existing_db=1 --benchmarks=readseq"), 0);
  EXPECT_EQ(RunOn(image_, "--engine=rocksdb --num=100"), 2) << "a file";
  const std::string foreign = dir_ + "/foreign";
  mkdir(foreign.c_str(), 0700);
  std::ofstream(foreign + "/letter") << "dear";
  EXPECT_EQ(RunOn(foreign, "--engine=rocksdb --num=100"), 3) << err_;
  EXPECT_EQ(ReadFile(foreign + "/letter"), "dear");
}

// Whether a process may have mounts of its own: not without root, nor where / is no mount point.
bool CanMountPrivately() {
  const pid_t child = fork();
  if (child == 0) {
    const bool can =
        unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    _exit(can ? 0 : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(KvBench, EnginesMeetTheSameDeviceInTurns) {
  if (!MakeLoop()) GTEST_SKIP() << "no loop device here";
  if (!CanMountPrivately()) GTEST_SKIP() << "can't mount here";
  ASSERT_EQ(RunOn(loop_, "--num=1000 --compare=ashlar,rocksdb --rounds=2 --benchmarks=fillrandom"),
            0)
      << out_ << err_;
  ASSERT_EQ(json_.size(), 4u);
  for (const Json& r : json_) ExpectEveryField(r, true);
  EXPECT_EQ(json_[0]["engine"], "ashlar");
  EXPECT_EQ(json_[1]["engine"], "rocksdb");
  EXPECT_EQ(json_[2]["engine"], "rocksdb");
  EXPECT_EQ(json_[3]["engine"], "ashlar");
  if (json_[1]["assertions"] == true) {
    EXPECT_TRUE(
        std::regex_search(out_, std::regex("2 rounds; .*against rocksdb .*WITH ASSERTIONS")));
  }
  EXPECT_EQ(RunOn(loop_, "--engine=rocksdb --num=1000 --use_existing_db=1 --benchmarks=readseq"), 3)
      << "the last was ashlar's";
  // Ended by a signal: nothing stays mounted, and the device is free.
  Shell(std::string("timeout -s TERM 0.4 ") + KV_BENCH + " --engine=rocksdb --device=" + loop_ +
        " --num=100000000 --benchmarks=overwrite --benchmark_write_rate_limit=1M");
  EXPECT_EQ(ReadFile("/proc/mounts").find(loop_ + " "), std::string::npos);
  EXPECT_EQ(RunOn(loop_, "--num=1000 --benchmarks=fillrandom"), 0) << err_;
}
#else
TEST_F(KvBench, AMissingRivalIsNamed) {
  EXPECT_EQ(Run("--engine=rocksdb"), 2);
  EXPECT_NE(err_.find("librocksdb-dev"), std::string::npos) << err_;
}
#endif

}  // namespace
}  // namespace ashlar::bench
