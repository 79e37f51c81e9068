#include "engine/base/sync.h"

#include <pthread.h>

#include <chrono>
#include <thread>

namespace ashlar {

void Mutex::LockSimulated() {
  current_scheduler->Yield();
  while (!mutex_.try_lock()) current_scheduler->Block(this, kForever);
}

void CondVar::Wait(Mutex* mutex) {
  if (current_scheduler != nullptr) return WaitFor(mutex, kForever);
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  cond_.wait(lock);
  lock.release();
}

void CondVar::WaitFor(Mutex* mutex, uint64_t ns) {
  if (current_scheduler != nullptr) {
    // Nobody runs between these two, so no signal is lost.
    mutex->Unlock();
    current_scheduler->Block(this, ns);
    mutex->Lock();
    return;
  }
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
#ifdef __SANITIZE_THREAD__
  // TSan of this compiler does not know pthread_cond_clockwait, which the steady clock takes.
  cond_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::nanoseconds(ns));
#else
  cond_.wait_for(lock, std::chrono::nanoseconds(ns));
#endif
  lock.release();
}

namespace {

class StdThread : public Thread {
 public:
  explicit StdThread(std::function<void()> body) : thread_(std::move(body)) {}
  ~StdThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

class RealClock : public Clock {
 public:
  uint64_t NowNs() override {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  int64_t UnixMs() override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  void SleepNs(uint64_t ns) override { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }
};

class ThreadExecutor : public Executor {
 public:
  std::unique_ptr<Thread> Start(const std::string& name, std::function<void()> body) override {
    return std::make_unique<StdThread>([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      body();
    });
  }
};

class NoThreads : public Executor {
 public:
  std::unique_ptr<Thread> Start(const std::string&, std::function<void()>) override {
    return nullptr;
  }
};

}  // namespace

Clock* SystemClock() {
  static Clock* const clock = new RealClock;
  return clock;
}
Executor* SystemExecutor() {
  static Executor* const executor = new ThreadExecutor;
  return executor;
}
Executor* InlineExecutor() {
  static Executor* const executor = new NoThreads;
  return executor;
}

}  // namespace ashlar
