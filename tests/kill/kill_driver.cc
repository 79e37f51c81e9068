// Starts the writer on a store, kills it at a random moment, and looks at what it left, ROUNDS
// times.
//   kill_driver WRITER ASHLARCTL DEVICE ROUNDS SEED
// Exit 0 and counts on standard output when every round was right; else what was wrong on standard
// error.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "ashlar/db.h"
#include "tests/kill/workload.h"

namespace {

using namespace kill_workload;

struct Totals {
  int kills = 0;
  int in_open = 0;  // of them before the store was open
  int verified = 0;
  int checked = 0;
  uint64_t acks = 0;
  uint64_t slowest_open_ms = 0;
};

int g_round = 0;
uint64_t g_seed = 0;

[[noreturn]] void Wrong(const std::string& what) {
  std::fprintf(stderr, "round %d, seed %llu: %s\n", g_round,
               static_cast<unsigned long long>(g_seed), what.c_str());
  std::exit(1);
}

uint64_t NowMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// A child whose standard output is `out`.
pid_t Start(const std::string& program, const std::vector<std::string>& args, int* out) {
  int ends[2];
  if (pipe(ends) != 0) Wrong("pipe");
  const pid_t pid = fork();
  if (pid < 0) Wrong("fork");
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(ends[1]);
  *out = ends[0];
  return pid;
}

// Adds what can be read within `ms`; false at the end.
bool ReadSome(int fd, int ms, std::string* text) {
  pollfd p = {fd, POLLIN, 0};
  if (poll(&p, 1, ms) <= 0) return true;
  char buffer[65536];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n <= 0) return false;
  text->append(buffer, static_cast<size_t>(n));
  return true;
}

// One life of the writer. Takes what it acknowledged into `acked`.
void LiveAndDie(const std::string& writer, const std::string& device, std::mt19937_64* random,
                uint64_t (&acked)[kThreads], Totals* totals) {
  int out;
  const pid_t pid = Start(writer, {device}, &out);
  // A quarter of the kills is counted from the start: they hit the open.
  const bool early = (*random)() % 4 == 0;
  const uint64_t life_ms = 1 + (*random)() % (early ? 40 : 150);
  std::string text;
  uint64_t die_at = early ? NowMs() + life_ms : 0;
  bool ended = false;
  while (!ended) {
    if (die_at == 0 && text.find("open\n") != std::string::npos) die_at = NowMs() + life_ms;
    const uint64_t now = NowMs();
    if (die_at != 0 && now >= die_at) break;
    ended = !ReadSome(out, die_at == 0 ? 100 : static_cast<int>(die_at - now), &text);
  }
  kill(pid, SIGKILL);
  while (ReadSome(out, -1, &text)) {
  }
  close(out);
  int status;
  waitpid(pid, &status, 0);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
    Wrong("the writer ended by itself, exit " + std::to_string(WEXITSTATUS(status)));
  }
  ++totals->kills;
  if (text.find("open\n") == std::string::npos) ++totals->in_open;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    int thread;
    unsigned long long batch;
    if (std::sscanf(text.c_str() + at, "ack %d %llu", &thread, &batch) == 2) {
      acked[thread] = std::max<uint64_t>(acked[thread], batch);
      ++totals->acks;
    }
    at = end + 1;
  }
}

void Verify(const std::string& device, const uint64_t (&acked)[kThreads], Totals* totals) {
  ashlar::Options options;
  options.memory_bytes = 4 << 20;
  const uint64_t start = NowMs();
  auto db = ashlar::DB::Open(options, device);
  if (!db.ok()) Wrong("open after the kill: " + db.status().ToString());
  totals->slowest_open_ms = std::max(totals->slowest_open_ms, NowMs() - start);
  std::map<std::string, std::string> want;
  for (int t = 0; t < kThreads; ++t) {
    ashlar::Value value;
    const absl::Status s = (*db)->Get(ashlar::ReadOptions{}, HeadKey(t), &value);
    if (!s.ok() && !absl::IsNotFound(s)) Wrong("head: " + s.ToString());
    const uint64_t head =
        s.ok() ? std::strtoull(std::string(value.view()).c_str(), nullptr, 10) : 0;
    if (head < acked[t]) {
      Wrong("thread " + std::to_string(t) + " is at batch " + std::to_string(head) +
            ", but batch " + std::to_string(acked[t]) + " was acknowledged as durable");
    }
    if (head > 0) want[HeadKey(t)] = std::to_string(head);
    for (uint64_t b = head > kSlots ? head - kSlots + 1 : 1; b <= head; ++b) {
      for (int m = 0; m < kMembers; ++m) want[SlotKey(t, b % kSlots, m)] = ValueOf(t, b, m);
    }
  }
  {
    const auto it = (*db)->NewIterator(ashlar::ReadOptions{});
    auto expected = want.begin();
    for (it->SeekToFirst(); it->Valid(); it->Next(), ++expected) {
      if (expected == want.end()) Wrong("an unexpected key " + std::string(it->key()));
      if (it->key() != expected->first || it->value() != expected->second) {
        Wrong("found " + std::string(it->key()) + " = " + std::string(it->value().substr(0, 20)) +
              ", expected " + expected->first + " = " + expected->second.substr(0, 20));
      }
    }
    if (!it->status().ok()) Wrong("iterator: " + it->status().ToString());
    if (expected != want.end()) Wrong("the key " + expected->first + " is missing");
  }
  if (const absl::Status s = (*db)->Close(); !s.ok()) Wrong("close: " + s.ToString());
  ++totals->verified;
}

void Check(const std::string& ashlarctl, const std::string& device, Totals* totals) {
  int out;
  const pid_t pid = Start(ashlarctl, {"check", device}, &out);
  std::string text;
  while (ReadSome(out, -1, &text)) {
  }
  close(out);
  int status;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) Wrong("ashlarctl check: " + text);
  ++totals->checked;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string writer = argv[1], ashlarctl = argv[2], device = argv[3];
  const int rounds = std::atoi(argv[4]);
  g_seed = std::strtoull(argv[5], nullptr, 0);
  std::mt19937_64 random(g_seed);
  uint64_t acked[kThreads] = {};
  Totals totals;
  for (g_round = 1; g_round <= rounds; ++g_round) {
    LiveAndDie(writer, device, &random, acked, &totals);
    // One in three is killed again on what the one before left behind.
    if (random() % 3 == 0 && g_round != rounds) continue;
    Verify(device, acked, &totals);
    if (totals.verified % 10 == 1 || g_round == rounds) Check(ashlarctl, device, &totals);
  }
  std::printf(
      "%d kills (%d while the store was opened), %llu durable acks, %d times verified, %d times "
      "checked, slowest open %llu ms, seed %llu\n",
      totals.kills, totals.in_open, static_cast<unsigned long long>(totals.acks), totals.verified,
      totals.checked, static_cast<unsigned long long>(totals.slowest_open_ms),
      static_cast<unsigned long long>(g_seed));
}
