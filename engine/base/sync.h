// Mutex, CondVar, Thread, Clock, Executor: the only place that names std::mutex and std::thread, so
// that one build can own every wait. Annotated for clang's -Wthread-safety.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"

namespace ashlar {

// Decides which thread runs, where the threads are simulated: they hand one baton among them, so
// that a run follows from a seed. Set for each such thread; without one (always, outside of tests)
// the kernel decides.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // Gives the baton away until Wake(what), or until `timeout_ns` of the scheduler's own time have
  // passed.
  virtual void Block(const void* what, uint64_t timeout_ns) = 0;
  // Those who are blocked on `what` may run again: all of them, or one. The caller keeps the baton.
  virtual void Wake(const void* what, bool all) = 0;
  // Lets others run, if the scheduler wants.
  virtual void Yield() = 0;
};
inline constinit thread_local Scheduler* current_scheduler = nullptr;
constexpr uint64_t kForever = UINT64_MAX;

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (current_scheduler != nullptr) return LockSimulated();
    mutex_.lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    mutex_.unlock();
    if (current_scheduler != nullptr) current_scheduler->Wake(this, true);
  }

 private:
  friend class CondVar;
  void LockSimulated();
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits may end without a signal: always in a loop over the condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // At most `ns` nanoseconds.
  void WaitFor(Mutex* mutex, uint64_t ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void SignalOne() { Signal(false); }
  void SignalAll() { Signal(true); }

 private:
  void Signal(bool all) {
    if (current_scheduler != nullptr) return current_scheduler->Wake(this, all);
    all ? cond_.notify_all() : cond_.notify_one();
  }
  std::condition_variable cond_;
};

// Joined by its end.
class Thread {
 public:
  virtual ~Thread() = default;
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t NowNs() = 0;  // monotonic
  virtual int64_t UnixMs() = 0;  // for people; orders nothing
  virtual void SleepNs(uint64_t ns) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Starts a thread, or returns null: then the store does its background work inside the calls that
  // would wait for it, and everything happens in the caller's thread.
  virtual std::unique_ptr<Thread> Start(const std::string& name, std::function<void()> body) = 0;
};

// The machine's own; they live for ever.
Clock* SystemClock();
Executor* SystemExecutor();
// Starts no threads.
Executor* InlineExecutor();

// What a store runs on besides its device. Pointers outlive the store.
struct Env {
  Clock* clock = SystemClock();
  Executor* executor = SystemExecutor();
  // Not 0: size of the first level below level 0 instead of the one that follows from memory, so
  // that a small store has several.
  uint64_t level_base_bytes = 0;
};

}  // namespace ashlar
