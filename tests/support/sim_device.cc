#include "tests/support/sim_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>

#include "absl/strings/str_cat.h"
#include "io/check.h"
#include "io/request.h"

namespace ashlar {
namespace {

constexpr uint64_t kDelayMinNs = 5'000, kDelayMaxNs = 200'000, kFlushFactor = 8;
constexpr uint64_t kGrain = 64u << 10;
constexpr std::byte kPoison{0xdb};  // what a buffer holds until its read has completed

const char* Name(io::Op op) {
  switch (op) {
    case io::Op::kRead:
      return "read";
    case io::Op::kWrite:
      return "write";
    case io::Op::kFlush:
      return "flush";
    case io::Op::kDeallocate:
      return "deallocate";
  }
  return "?";
}

std::byte* Map(uint64_t bytes) {
  void* const map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(map != MAP_FAILED);
  return static_cast<std::byte*>(map);
}

// A drive's memory from one drive to the next: mapping it anew costs more than many a run.
struct Memory {
  uint64_t bytes = 0;
  std::byte* current = nullptr;
  std::byte* persisted = nullptr;
};
Memory spare;

}  // namespace

std::string SimDeviceOptions::Text() const {
  static constexpr const char* kReadBacks[] = {"old", "zeros", "ones", "random", "error"};
  return absl::StrCat("LBA ", lba_bytes, volatile_cache ? ", cache" : ", no cache",
                      fua_is_flush ? ", FUA by flush"
                      : native_fua ? ", FUA"
                                   : "",
                      ", atomic ", atomic_blocks, ", transfer ", max_transfer_bytes, ", read-back ",
                      kReadBacks[static_cast<int>(read_back)], noise ? ", noise" : "");
}

class SimDevice::SimQueue : public io::Queue {
 public:
  SimQueue(SimDevice* device, uint32_t depth, const io::Arena& arena)
      : device_(device), depth_(depth), arena_(arena) {
    device_->queues_.push_back(this);
  }
  ~SimQueue() override {
    Drain();
    std::erase(device_->queues_, this);
  }

  void Submit(std::span<io::Request* const> requests) override {
    CHECK(requests.size() <= depth() - in_flight());
    for (io::Request* r : requests) {
      requests_.push_back({r});
      r->status = io::CheckRequest(*r, device_->geometry_, arena_);
      if (r->status.ok()) Start(&requests_.back());
    }
    if (device_->sim_ != nullptr) device_->sim_->Yield();
  }

  size_t Poll(std::span<io::Request*> done, bool wait) override {
    for (;;) {
      device_->LandDue();
      const uint64_t now = device_->Now();
      for (size_t i = 0; i < commands_.size();) {
        if (commands_[i].due_ns > now) {
          ++i;
          continue;
        }
        Pending p = std::move(commands_[i]);
        commands_.erase(commands_.begin() + static_cast<ptrdiff_t>(i));
        Complete(std::move(p));
      }
      const size_t n = GiveBack(done);
      if (n > 0 || !wait || requests_.empty()) return n;
      uint64_t next = UINT64_MAX;
      for (const Pending& p : commands_) next = std::min(next, p.due_ns);
      CHECK(next != UINT64_MAX);
      if (device_->sim_ != nullptr) {
        device_->sim_->Block(this, next - now);
      } else {
        device_->now_ns_ = next;
      }
    }
  }

  size_t in_flight() const override { return requests_.size(); }
  size_t depth() const override { return depth_; }

  // The process is gone: nobody hears of these any more.
  void LeaveBehind() {
    for (Pending& p : commands_) {
      // A read that nobody waits for, and a flush, leave nothing.
      if (p.command.op == io::Op::kWrite || p.command.op == io::Op::kDeallocate) {
        if (p.fault.effect != SimFault::Effect::kNone) {
          device_->leftovers_.push_back({std::move(p.command)});
        }
      }
      p.of->request->status = {.cls = io::IoClass::kUnknown, .err = ENODEV};
      --p.of->pending;
    }
    commands_.clear();
  }

 private:
  struct InFlight {
    io::Request* request;
    size_t pending = 0;        // commands
    bool flush_after = false;  // FUA on a drive without it
  };
  struct Pending {
    InFlight* of;
    SimCommand command;
    SimFault fault;
    uint64_t due_ns = 0;
    std::byte* buffer = nullptr;  // of a read or write
    uint64_t submitted = 0;       // in events_
  };

  void Start(InFlight* f) {
    const io::Request& r = *f->request;
    const uint64_t lba_bytes = device_->options_.lba_bytes;
    switch (r.op) {
      case io::Op::kRead:
      case io::Op::kWrite: {
        const bool fua = r.op == io::Op::kWrite && (r.flags & io::kFua) != 0;
        f->flush_after = fua && device_->options_.volatile_cache &&
                         (!device_->options_.native_fua || device_->options_.fua_is_flush);
        const uint64_t most = device_->options_.max_transfer_bytes / lba_bytes * lba_bytes;
        std::byte* const buffer = arena_.At(r.data[0]);
        f->pending = (r.data[0].bytes + most - 1) / most;
        for (uint64_t at = 0; at < r.data[0].bytes; at += most) {
          const uint64_t n = std::min<uint64_t>(most, r.data[0].bytes - at);
          SimCommand c{.op = r.op, .fua = fua && !f->flush_after};
          c.ranges.push_back({io::Raw(r.lba) * lba_bytes + at, n});
          Issue(f, std::move(c), buffer + at);
        }
        break;
      }
      case io::Op::kFlush:
        f->pending = 1;
        Issue(f, {.op = r.op}, nullptr);
        break;
      case io::Op::kDeallocate: {
        f->pending = 1;
        SimCommand c{.op = r.op};
        for (const io::LbaRange& range : r.ranges) {
          c.ranges.push_back({io::Raw(range.lba) * lba_bytes, range.blocks * lba_bytes});
        }
        Issue(f, std::move(c), nullptr);
        break;
      }
    }
  }

  void Issue(InFlight* f, SimCommand c, std::byte* buffer) {
    if (!device_->dead_ && ++device_->number_ >= device_->dies_at_) device_->Die();
    if (device_->dead_) {
      --f->pending;
      f->flush_after = false;
      f->request->status = {.cls = io::IoClass::kUnknown, .err = ENODEV};
      return;
    }
    c.number = device_->number_;
    const uint64_t bytes = c.ranges.empty() ? 0 : c.ranges[0].bytes;
    if (c.op == io::Op::kWrite) c.data.assign(buffer, buffer + bytes);
    if (c.op == io::Op::kRead) std::memset(buffer, static_cast<int>(kPoison), bytes);
    if (c.op == io::Op::kDeallocate) FillReadBack(&c);
    Pending p{.of = f, .command = std::move(c), .buffer = buffer, .submitted = device_->events_};
    if (device_->faults_) p.fault = device_->faults_(p.command);
    uint64_t delay = kDelayMinNs + device_->Random() % (kDelayMaxNs - kDelayMinNs);
    if (p.command.op == io::Op::kFlush) delay *= kFlushFactor;
    p.due_ns = device_->Now() + delay + p.fault.delay_ns;
    device_->Note("submitted", p.command);
    if (p.command.op != io::Op::kRead && device_->observer_ != nullptr) {
      device_->observer_->Submitted({.id = p.command.number,
                                     .op = p.command.op,
                                     .fua = p.command.fua,
                                     .ranges = p.command.ranges,
                                     .data = p.command.op == io::Op::kWrite
                                                 ? std::span<const std::byte>(p.command.data)
                                                 : std::span<const std::byte>()});
    }
    commands_.push_back(std::move(p));
  }

  void FillReadBack(SimCommand* c) {
    using ReadBack = SimDeviceOptions::ReadBack;
    for (const ByteRange& r : c->ranges) {
      const size_t from = c->data.size();
      switch (device_->options_.read_back) {
        case ReadBack::kOld:
          c->data.insert(c->data.end(), device_->current_ + r.at, device_->current_ + r.end());
          break;
        case ReadBack::kOnes:
          c->data.resize(from + r.bytes, std::byte{0xff});
          break;
        case ReadBack::kRandom:
          c->data.resize(from + r.bytes);
          for (size_t i = from; i < c->data.size(); ++i) {
            c->data[i] = static_cast<std::byte>(device_->Random());
          }
          break;
        default:
          c->data.resize(from + r.bytes);
      }
    }
  }

  void Complete(Pending p) {
    SimCommand& c = p.command;
    // A buffer belongs to the device until its command has completed.
    if (c.op == io::Op::kWrite) {
      CHECK(std::memcmp(p.buffer, c.data.data(), c.data.size()) == 0);
    }
    io::IoStatus status = p.fault.status;
    using Effect = SimFault::Effect;
    if (c.op == io::Op::kRead) {
      if (status.ok()) status = Read(p);
    } else if (c.op == io::Op::kFlush) {
      if (p.fault.effect == Effect::kWhole) {
        device_->Flush(p.submitted);
      } else if (status.cls != io::IoClass::kRetry) {
        device_->FailFlush(p.submitted, p.fault.effect == Effect::kPart);
      }
    } else if (p.fault.effect == Effect::kLater) {
      device_->leftovers_.push_back({c, device_->Now() + device_->Random() % 2'000'000'000});
    } else if (p.fault.effect != Effect::kNone) {
      SimCommand landed = c;
      if (p.fault.elsewhere) landed.ranges[0].at = *p.fault.elsewhere;
      if (p.fault.effect == SimFault::Effect::kPart) {
        const std::vector<bool> some = device_->SomeBlocks(landed);
        device_->Carry(std::move(landed), &some);
      } else {
        device_->Carry(std::move(landed), nullptr);
      }
    }
    ++device_->events_;
    device_->Note(status.ok() ? "completed" : "failed", c);
    if (c.op != io::Op::kRead && device_->observer_ != nullptr) {
      device_->observer_->Completed(c.number, status.ok());
    }
    InFlight* const f = p.of;
    if (status.cls > f->request->status.cls) f->request->status = status;
    if (--f->pending == 0 && f->flush_after && f->request->status.ok()) {
      f->flush_after = false;
      f->pending = 1;
      Issue(f, {.op = io::Op::kFlush}, nullptr);
    }
  }

  io::IoStatus Read(const Pending& p) {
    const ByteRange range = p.command.ranges[0];
    const uint64_t at = p.fault.elsewhere.value_or(range.at);
    const uint64_t lba_bytes = device_->options_.lba_bytes;
    if (!device_->current_gone_.empty()) {
      for (uint64_t b = at / lba_bytes; b < (at + range.bytes) / lba_bytes; ++b) {
        if (device_->current_gone_[b]) return {.cls = io::IoClass::kFatal, .err = EIO};
      }
    }
    std::memcpy(p.buffer, device_->current_ + at, range.bytes);
    for (uint64_t b = 0; !device_->written_.empty() && b < range.bytes / lba_bytes; ++b) {
      if (device_->written_[at / lba_bytes + b]) continue;
      for (uint64_t i = 0; i < lba_bytes; i += sizeof(uint64_t)) {
        const uint64_t noise = (at + b * lba_bytes + i + 1) * 0x9e3779b97f4a7c15;
        std::memcpy(p.buffer + b * lba_bytes + i, &noise, sizeof noise);
      }
    }
    if (p.fault.flip_a_bit) {
      const uint64_t bit = device_->Random() % (range.bytes * 8);
      p.buffer[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    return {};
  }

  size_t GiveBack(std::span<io::Request*> done) {
    size_t n = 0;
    for (auto it = requests_.begin(); it != requests_.end() && n < done.size();) {
      if (it->pending > 0) {
        ++it;
        continue;
      }
      done[n++] = it->request;
      it = requests_.erase(it);
    }
    return n;
  }

  SimDevice* const device_;
  const uint32_t depth_;
  const io::Arena& arena_;
  std::list<InFlight> requests_;
  std::vector<Pending> commands_;
};

SimDevice::SimDevice(const SimDeviceOptions& options, uint64_t seed)
    : options_(options), random_(seed), touched_(options.bytes / kGrain + 1) {
  if (spare.bytes == options.bytes) {
    current_ = spare.current;
    persisted_ = spare.persisted;
    spare = {};
  } else {
    current_ = Map(options.bytes);
    persisted_ = Map(options.bytes);
  }
  if (options.noise) written_.resize(options.bytes / options.lba_bytes);
  if (options.read_back == SimDeviceOptions::ReadBack::kError) {
    current_gone_.resize(options.bytes / options.lba_bytes);
    persisted_gone_ = current_gone_;
  }
  geometry_.lba_bytes = options.lba_bytes;
  geometry_.capacity_blocks = options.bytes / options.lba_bytes;
  geometry_.max_transfer_bytes = options.max_transfer_bytes;
  geometry_.max_segments = 1;
  geometry_.volatile_cache = options.volatile_cache;
  geometry_.native_fua = options.native_fua || !options.volatile_cache;
  geometry_.fua_flushes = options.fua_is_flush;
  geometry_.atomic_bytes = options.atomic_blocks * options.lba_bytes;
  geometry_.discard_grain_bytes = options.lba_bytes;
  geometry_.discard_max_ranges = 256;
  geometry_.discard_max_bytes = options.bytes;
  using ReadBack = SimDeviceOptions::ReadBack;
  geometry_.dlfeat = options.read_back == ReadBack::kZeros  ? 1
                     : options.read_back == ReadBack::kOnes ? 2
                                                            : 0;
  geometry_.identity.model = "simulated";
  geometry_.identity.serial = options.serial;
}

SimDevice::~SimDevice() {
  CHECK(queues_.empty());
  if (spare.current != nullptr) {
    munmap(current_, options_.bytes);
    munmap(persisted_, options_.bytes);
    return;
  }
  for (size_t g = 0; g < touched_.size(); ++g) {
    if (!touched_[g]) continue;
    const uint64_t at = g * kGrain, n = std::min(kGrain, options_.bytes - at);
    std::memset(current_ + at, 0, n);
    std::memset(persisted_ + at, 0, n);
  }
  spare = {options_.bytes, current_, persisted_};
}

absl::StatusOr<std::unique_ptr<io::Queue>> SimDevice::OpenQueue(
    std::span<io::Device* const> devices, const io::QueueOptions& options, const io::Arena& arena) {
  CHECK(devices.size() == 1 && devices[0] == this);
  return std::make_unique<SimQueue>(this, options.depth, arena);
}

void SimDevice::Note(const char* what, const SimCommand& c) {
  if (log_ == nullptr) return;
  std::fprintf(log_, "%12llu %-9s %llu %s%s", static_cast<unsigned long long>(Now()), what,
               static_cast<unsigned long long>(c.number), Name(c.op), c.fua ? " FUA" : "");
  for (const ByteRange& r : c.ranges) {
    std::fprintf(log_, " %llu+%llu", static_cast<unsigned long long>(r.at),
                 static_cast<unsigned long long>(r.bytes));
  }
  std::fputc('\n', log_);
}

uint64_t SimDevice::Blocks(const SimCommand& c) const {
  uint64_t bytes = 0;
  for (const ByteRange& r : c.ranges) bytes += r.bytes;
  return bytes / options_.lba_bytes;
}

std::vector<bool> SimDevice::SomeBlocks(const SimCommand& c) {
  std::vector<bool> some(Blocks(c));
  for (size_t i = 0; i < some.size(); ++i) some[i] = Random() % 2 == 0;
  return some;
}

void SimDevice::Touch(uint64_t at, uint64_t bytes) {
  for (uint64_t g = at / kGrain; g <= (at + bytes - 1) / kGrain; ++g) touched_[g] = true;
  if (written_.empty()) return;
  const uint64_t lba_bytes = options_.lba_bytes;
  for (uint64_t b = at / lba_bytes; b <= (at + bytes - 1) / lba_bytes; ++b) written_[b] = true;
}

template <typename Wanted, typename Put>
void SimDevice::EachBlock(const SimCommand& c, const Wanted& wanted, const Put& put) const {
  const uint64_t lba_bytes = options_.lba_bytes;
  uint64_t block = 0;
  for (const ByteRange& r : c.ranges) {
    for (uint64_t at = r.at; at < r.end(); at += lba_bytes, ++block) {
      if (wanted(block)) put(at, c.data.data() + block * lba_bytes);
    }
  }
}

void SimDevice::ToCurrent(const SimCommand& c, const std::vector<bool>* only) {
  const bool gone = c.op == io::Op::kDeallocate && !current_gone_.empty();
  EachBlock(
      c, [&](uint64_t b) { return only == nullptr || (*only)[b]; },
      [&](uint64_t at, const std::byte* data) {
        Touch(at, options_.lba_bytes);
        std::memcpy(current_ + at, data, options_.lba_bytes);
        if (!current_gone_.empty()) current_gone_[at / options_.lba_bytes] = gone;
      });
}

void SimDevice::Persist(const SimCommand& c, const std::vector<bool>* except) {
  const uint64_t lba_bytes = options_.lba_bytes;
  const bool gone = c.op == io::Op::kDeallocate && !persisted_gone_.empty();
  EachBlock(
      c, [&](uint64_t b) { return except->empty() || !(*except)[b]; },
      [&](uint64_t at, const std::byte* data) {
        Touch(at, lba_bytes);
        std::memcpy(persisted_ + at, data, lba_bytes);
        if (!persisted_gone_.empty()) persisted_gone_[at / lba_bytes] = gone;
      });
}

// A block was persisted: nothing in the cache, all of it older, may come over it later.
void SimDevice::Supersede(uint64_t at) {
  for (Cached& older : cache_) {
    uint64_t block = 0;
    for (const ByteRange& o : older.command.ranges) {
      if (at >= o.at && at < o.end()) {
        older.gone.resize(Blocks(older.command));
        older.gone[block + (at - o.at) / options_.lba_bytes] = true;
      }
      block += o.bytes / options_.lba_bytes;
    }
  }
}

void SimDevice::Carry(SimCommand command, const std::vector<bool>* only) {
  ToCurrent(command, only);
  std::vector<bool> except;
  if (only != nullptr) {
    except = *only;
    except.flip();
  }
  if (!options_.volatile_cache || command.fua) {
    Persist(command, &except);
    EachBlock(
        command, [&](uint64_t b) { return except.empty() || !except[b]; },
        [&](uint64_t at, const std::byte*) { Supersede(at); });
  } else {
    cache_.push_back({std::move(command), events_, std::move(except)});
  }
}

void SimDevice::Flush(uint64_t completed_before) {
  std::vector<Cached> cached = std::move(cache_);
  cache_.clear();
  for (Cached& c : cached) {
    if (c.completed >= completed_before || c.lost) cache_.push_back(std::move(c));
  }
  // In the order of completion: what lies over something comes after it.
  for (const Cached& c : cached) {
    if (!c.command.ranges.empty()) Persist(c.command, &c.gone);
  }
}

void SimDevice::FailFlush(uint64_t completed_before, bool persist_some) {
  std::vector<Cached> cached = std::move(cache_);
  cache_.clear();
  for (Cached& c : cached) {
    if (c.completed >= completed_before || c.lost || Random() % 2 == 0) {
      cache_.push_back(std::move(c));
    } else if (persist_some && Random() % 2 == 0) {
      Persist(c.command, &c.gone);
    } else {
      c.lost = true;
      cache_.push_back(std::move(c));
    }
  }
}

void SimDevice::Die() {
  if (dead_) return;
  dead_ = true;
  for (SimQueue* q : queues_) q->LeaveBehind();
  if (log_ != nullptr) std::fprintf(log_, "%12llu died\n", static_cast<unsigned long long>(Now()));
}

void SimDevice::LandLeftovers() {
  std::shuffle(leftovers_.begin(), leftovers_.end(), random_);
  std::vector<Leftover> all = std::move(leftovers_);
  leftovers_.clear();
  for (Leftover& l : all) {
    Note("landed", l.command);
    Carry(std::move(l.command), nullptr);
    ++events_;
  }
}

void SimDevice::LandLeftoversLater(uint64_t within_ns) {
  for (Leftover& l : leftovers_) l.due_ns = Now() + Random() % within_ns;
}

void SimDevice::LandDue() {
  for (size_t i = 0; i < leftovers_.size();) {
    if (leftovers_[i].due_ns > Now()) {
      ++i;
      continue;
    }
    SimCommand c = std::move(leftovers_[i].command);
    leftovers_.erase(leftovers_.begin() + static_cast<ptrdiff_t>(i));
    Note("landed", c);
    Carry(std::move(c), nullptr);
    ++events_;
  }
}

void SimDevice::PowerCut(Luck luck) {
  CHECK(queues_.empty());
  struct Chance {
    SimCommand command;
    std::vector<bool> gone;
    bool completed;
  };
  std::vector<Chance> chances;
  for (Cached& c : cache_) {
    if (c.lost) c.gone.assign(Blocks(c.command), true);
    chances.push_back({std::move(c.command), std::move(c.gone), true});
  }
  for (Leftover& l : leftovers_) chances.push_back({std::move(l.command), {}, false});
  cache_.clear();
  leftovers_.clear();
  for (const Chance& c : chances) {
    // What reads saw of it is forgotten first.
    EachBlock(
        c.command, [](uint64_t) { return true; },
        [&](uint64_t at, const std::byte*) {
          std::memcpy(current_ + at, persisted_ + at, options_.lba_bytes);
          if (!current_gone_.empty()) {
            current_gone_[at / options_.lba_bytes] = persisted_gone_[at / options_.lba_bytes];
          }
        });
  }
  for (Chance& c : chances) {
    const uint64_t blocks = Blocks(c.command);
    std::vector<bool> only(blocks, luck == Luck::kKeepAll);
    if (luck == Luck::kEach || blocks <= options_.atomic_blocks) {
      if (luck != Luck::kKeepAll && luck != Luck::kLoseAll) {
        only.assign(blocks, Random() % 2 == 0);
      }
    } else if (luck == Luck::kTear) {
      only = SomeBlocks(c.command);
      // A write above the atomic size that was under way may leave anything in its blocks.
      for (uint64_t b = 0; !c.completed && b < blocks; ++b) {
        if (c.command.op != io::Op::kWrite || Random() % 8 != 0) continue;
        only[b] = true;
        for (uint64_t i = 0; i < options_.lba_bytes; ++i) {
          c.command.data[b * options_.lba_bytes + i] = static_cast<std::byte>(Random());
        }
      }
    }
    for (size_t b = 0; b < c.gone.size(); ++b) {
      if (c.gone[b]) only[b] = false;
    }
    ToCurrent(c.command, &only);
    std::vector<bool> except = only;
    except.flip();
    Persist(c.command, &except);
  }
  if (log_ != nullptr) {
    std::fprintf(log_, "%12llu power cut, %zu writes in doubt\n",
                 static_cast<unsigned long long>(Now()), chances.size());
  }
}

void SimDevice::Revive() {
  CHECK(queues_.empty());
  dead_ = false;
  dies_at_ = UINT64_MAX;
  sim_ = nullptr;
  observer_ = nullptr;
  faults_ = nullptr;
}

void SimDevice::Overwrite(uint64_t at, std::span<const std::byte> bytes) {
  CHECK(cache_.empty() && !bytes.empty() && at + bytes.size() <= options_.bytes);
  Touch(at, bytes.size());
  std::memcpy(current_ + at, bytes.data(), bytes.size());
  std::memcpy(persisted_ + at, bytes.data(), bytes.size());
}

}  // namespace ashlar
