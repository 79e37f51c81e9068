#include "kv/compare.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace ashlar::bench {
namespace {

// Runs this program again and returns its exit code.
int RunSelf(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
      error != 0) {
    std::fprintf(stderr, "kv_bench: starting a run: %s\n", std::strerror(error));
    return 4;
  }
  int status = 0;
  bool told = false;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    // A signal that this process got alone: the run ends by it too, and gives its device back.
    if (g_interrupted && !told) kill(pid, SIGTERM);
    told = g_interrupted;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Compared {
  std::string benchmark, figure, label;
  std::vector<double> ratios;
};

void PrintRatios(const std::string& a, const std::string& b, std::vector<Compared> all) {
  std::printf("\nratios %s / %s of each round's pair: min, median, max\n", a.c_str(), b.c_str());
  for (Compared& c : all) {
    std::sort(c.ratios.begin(), c.ratios.end());
    const size_t n = c.ratios.size();
    const double median =
        n % 2 == 1 ? c.ratios[n / 2] : (c.ratios[n / 2 - 1] + c.ratios[n / 2]) / 2;
    std::printf("%-16s %-10s %8.3f %8.3f %8.3f  %zu rounds; %s\n", c.benchmark.c_str(),
                c.figure.c_str(), c.ratios.front(), median, c.ratios.back(), n, c.label.c_str());
  }
}

// The pairs of one round: the i-th benchmark of A with the i-th of B.
void AddRound(const std::vector<JsonList::Entry>& a, const std::vector<JsonList::Entry>& b,
              std::vector<Compared>* all) {
  size_t at = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    for (const char* name :
         {"ops/sec", "p50", "p99", "cpu/op", "reads/op", "write amp", "space amp", "space peak"}) {
      const auto x = a[i].figures.find(name), y = b[i].figures.find(name);
      if (at == all->size()) {
        all->push_back({a[i].benchmark, name, a[i].label + " against " + b[i].label, {}});
      }
      if (x != a[i].figures.end() && y != b[i].figures.end() && y->second > 0) {
        (*all)[at].ratios.push_back(x->second / y->second);
      }
      ++at;
    }
  }
}

}  // namespace

int RunCompare(const std::vector<std::string>& arguments, const std::string& a,
               const std::string& b, uint64_t rounds, JsonList* json) {
  char path[] = "/tmp/kv_bench.XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) {
    std::fprintf(stderr, "kv_bench: %s: %s\n", path, std::strerror(errno));
    return 4;
  }
  close(fd);
  std::vector<Compared> all;
  int code = 0;
  for (uint64_t round = 1; round <= rounds && code == 0; ++round) {
    std::vector<JsonList::Entry> entries[2];
    for (int turn = 0; turn < 2 && code == 0; ++turn) {
      const bool second = (turn == 1) == (round % 2 == 1);  // A first in odd rounds
      const std::string& engine = second ? b : a;
      std::printf("\n== round %llu of %llu: %s\n", static_cast<unsigned long long>(round),
                  static_cast<unsigned long long>(rounds), engine.c_str());
      std::fflush(stdout);
      std::vector<std::string> command = arguments;
      command.push_back("--engine=" + engine);
      command.push_back("--json=" + std::string(path));
      code = RunSelf(std::move(command));
      auto added = json->AddFile(path, round);
      if (added.ok()) {
        entries[second ? 1 : 0] = *std::move(added);
      } else if (code == 0) {
        std::fprintf(stderr, "kv_bench: %s\n", added.status().ToString().c_str());
        code = 4;
      }
      if (truncate(path, 0) != 0 && code == 0) code = 4;
    }
    if (code == 0) AddRound(entries[0], entries[1], &all);
  }
  unlink(path);
  std::erase_if(all, [](const Compared& c) { return c.ratios.empty(); });
  if (!all.empty()) PrintRatios(a, b, std::move(all));
  return code;
}

}  // namespace ashlar::bench
