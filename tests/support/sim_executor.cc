#include "tests/support/sim_executor.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <thread>

#include "io/check.h"

namespace ashlar {
namespace {

// One in so many locks is a place where another thread may come in between.
constexpr uint64_t kYieldOneIn = 4;
// One in so many stalls the thread, in one run more often than in another, for a time of which each
// power of two is as likely.
constexpr uint64_t kStallOneIn[] = {25, 200, 1'600};
constexpr uint64_t kStallBitsMin = 12, kStallBitsMax = 34;

}  // namespace

struct SimExecutor::Baton {
  uint64_t id = 0;
  std::string name;
  enum class State { kRunnable, kBlocked, kEnded } state = State::kRunnable;
  const void* what = nullptr;  // blocked on
  uint64_t until_ns = kForever;
  std::condition_variable turn;
};

namespace {
thread_local void* self_baton = nullptr;
}

SimExecutor::Baton* SimExecutor::Self() const { return static_cast<Baton*>(self_baton); }

SimExecutor::SimExecutor(uint64_t seed)
    : random_(seed), stall_one_in_(kStallOneIn[random_() % std::size(kStallOneIn)]) {}

SimExecutor::~SimExecutor() = default;

void SimExecutor::Run(const std::function<void()>& body) {
  CHECK(threads_.empty());
  threads_.push_back(std::make_unique<Baton>());
  threads_.back()->name = "main";
  running_ = threads_.back().get();
  self_baton = running_;
  current_scheduler = this;
  body();
  current_scheduler = nullptr;
  self_baton = nullptr;
  for (size_t i = 1; i < threads_.size(); ++i) CHECK(threads_[i]->state == Baton::State::kEnded);
  threads_.clear();
}

class SimExecutor::SimThread : public Thread {
 public:
  SimThread(SimExecutor* sim, Baton* baton, std::function<void()> body)
      : sim_(sim), baton_(baton), thread_([this, body = std::move(body)] {
          {
            std::unique_lock lock(sim_->mutex_);
            while (sim_->running_ != baton_) baton_->turn.wait(lock);
          }
          self_baton = baton_;
          current_scheduler = sim_;
          body();
          current_scheduler = nullptr;
          std::unique_lock lock(sim_->mutex_);
          baton_->state = Baton::State::kEnded;
          for (auto& t : sim_->threads_) {
            if (t->state == Baton::State::kBlocked && t->what == baton_) {
              t->state = Baton::State::kRunnable;
            }
          }
          sim_->HandOver(lock, nullptr);
        }) {}
  ~SimThread() override {
    while (baton_->state != Baton::State::kEnded) sim_->Block(baton_, kForever);
    thread_.join();
  }

 private:
  SimExecutor* const sim_;
  Baton* const baton_;
  std::thread thread_;
};

std::unique_ptr<Thread> SimExecutor::Start(const std::string& name, std::function<void()> body) {
  Baton* baton;
  {
    const std::unique_lock lock(mutex_);
    threads_.push_back(std::make_unique<Baton>());
    baton = threads_.back().get();
    baton->id = threads_.size();
    baton->name = name;
  }
  return std::make_unique<SimThread>(this, baton, std::move(body));
}

void SimExecutor::HandOver(std::unique_lock<std::mutex>& lock, Baton* self) {
  std::vector<Baton*> runnable;
  for (;;) {
    for (auto& t : threads_) {
      if (t->state == Baton::State::kBlocked && t->until_ns <= now_ns_) {
        t->state = Baton::State::kRunnable;
      }
      if (t->state == Baton::State::kRunnable) runnable.push_back(t.get());
    }
    if (!runnable.empty()) break;
    uint64_t next = kForever;
    for (auto& t : threads_) {
      if (t->state == Baton::State::kBlocked) next = std::min(next, t->until_ns);
    }
    if (next == kForever) {
      for (auto& t : threads_) {
        std::fprintf(stderr, "thread %s: %s\n", t->name.c_str(),
                     t->state == Baton::State::kEnded ? "ended" : "waits for ever");
      }
      CHECK(next != kForever);  // a deadlock: everybody waits for somebody
    }
    now_ns_ = next;
  }
  Baton* const next = runnable[random_() % runnable.size()];
  ++switches_;
  trace_ = (trace_ ^ next->id) * 0x9e3779b97f4a7c15;
  running_ = next;
  if (next == self) return;
  next->turn.notify_one();
  while (self != nullptr && running_ != self) self->turn.wait(lock);
}

void SimExecutor::Block(const void* what, uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  Baton* const self = Self();
  CHECK(running_ == self);
  self->state = Baton::State::kBlocked;
  self->what = what;
  self->until_ns = timeout_ns == kForever ? kForever : now_ns_ + timeout_ns;
  HandOver(lock, self);
  self->what = nullptr;
  self->until_ns = kForever;
}

void SimExecutor::Wake(const void* what, bool all) {
  const std::unique_lock lock(mutex_);
  for (auto& t : threads_) {
    if (t->state != Baton::State::kBlocked || t->what != what) continue;
    t->state = Baton::State::kRunnable;
    if (!all) return;
  }
}

void SimExecutor::Yield() {
  uint64_t stall_ns = 0;
  {
    std::unique_lock lock(mutex_);
    if (random_() % stall_one_in_ == 0) {
      stall_ns = uint64_t{1} << (kStallBitsMin + random_() % (kStallBitsMax - kStallBitsMin + 1));
    } else if (random_() % kYieldOneIn == 0) {
      HandOver(lock, Self());
    }
  }
  if (stall_ns > 0) SleepNs(stall_ns);
}

uint64_t SimExecutor::NowNs() {
  const std::unique_lock lock(mutex_);
  return now_ns_;
}
int64_t SimExecutor::UnixMs() { return static_cast<int64_t>(NowNs() / 1'000'000); }
void SimExecutor::SleepNs(uint64_t ns) {
  const int self = 0;
  Block(&self, ns);
}

uint64_t SimExecutor::Random() {
  const std::unique_lock lock(mutex_);
  return random_();
}

}  // namespace ashlar
