// Real threads that hand one baton among them: at each lock, wait and poll the seed says who runs
// next, and time moves only when all wait. Now and then a thread is stalled for up to seconds, as
// one that the kernel does not run: what others do meanwhile is what it least expects. So a store
// with its background work and several callers runs from a seed, the same way each time. Executor,
// clock and scheduler in one.
//
//   SimExecutor sim(seed);
//   sim.Run([&] { ... open a store with Env{&sim, &sim}; start callers with sim.Start ... });
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "engine/base/sync.h"

namespace ashlar {

class SimExecutor : public Executor, public Clock, public Scheduler {
 public:
  explicit SimExecutor(uint64_t seed);
  ~SimExecutor() override;

  // Runs `body` as the first simulated thread, in the calling one. Every thread it starts must have
  // ended when it returns.
  void Run(const std::function<void()>& body);

  std::unique_ptr<Thread> Start(const std::string& name, std::function<void()> body) override;

  uint64_t NowNs() override;
  int64_t UnixMs() override;
  void SleepNs(uint64_t ns) override;

  void Block(const void* what, uint64_t timeout_ns) override;
  void Wake(const void* what, bool all) override;
  void Yield() override;

  // How often the baton changed hands, and a hash over who had it: equal for equal runs.
  uint64_t switches() const { return switches_; }
  uint64_t trace() const { return trace_; }
  // For choices that belong to the run: a device's delays, a caller's operations. Any simulated
  // thread.
  uint64_t Random();

 private:
  struct Baton;
  class SimThread;

  Baton* Self() const;
  // Picks who runs next; with `self` set, waits until it is self's turn again.
  void HandOver(std::unique_lock<std::mutex>& lock, Baton* self);

  std::mutex mutex_;
  std::mt19937_64 random_;
  const uint64_t stall_one_in_;
  std::vector<std::unique_ptr<Baton>> threads_;
  Baton* running_ = nullptr;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t switches_ = 0;
  uint64_t trace_ = 0;
};

}  // namespace ashlar
