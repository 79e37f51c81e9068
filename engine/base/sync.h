// Mutex, CondVar, Thread, Clock, Executor: the only place that names std::mutex and std::thread, so that one
// build can own every wait. Annotated for clang's -Wthread-safety.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace ashlar {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
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
  void SignalOne() { cond_.notify_one(); }
  void SignalAll() { cond_.notify_all(); }

 private:
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
  virtual uint64_t NowNs() = 0;    // monotonic
  virtual int64_t UnixMs() = 0;    // for people; orders nothing
  virtual void SleepNs(uint64_t ns) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Starts a thread, or returns null: then the store does its background work inside the calls that would
  // wait for it, and everything happens in the caller's thread.
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
};

}  // namespace ashlar
