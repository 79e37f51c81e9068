// A simulated drive. A command is submitted, completed and, later, persisted, each at a time of its
// own: commands in flight overtake each other, a completed write lies in a volatile cache until it
// was written with FUA or a flush covers it, and a power cut keeps, loses or tears what lies there.
// Every command can be made to fail, to end with an unknown outcome, to be lost or to go astray; a
// process can die and leave commands that land after it. All of it follows from a seed.
//
// The drive outlives the process: Die() ends one life of it, Revive() begins the next. With a
// SimExecutor, delays are virtual time and Poll hands the baton on; without one everything happens
// in the calling thread and time stands still outside of Poll.
//
// A request is split into commands of at most the drive's transfer size. A write with FUA on a
// drive without it is its commands and then a flush.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "io/device.h"
#include "tests/support/command_observer.h"
#include "tests/support/sim_executor.h"

namespace ashlar {

struct SimDeviceOptions {
  uint64_t bytes = 64u << 20;
  uint32_t lba_bytes = 4096;
  bool volatile_cache = true;
  bool native_fua = true;
  bool fua_is_flush = false;   // FUA is said to be native and is a write and a flush: as of a file
  uint32_t atomic_blocks = 1;  // AWUPF + 1: a write of so many LBAs survives whole or not at all
  uint32_t max_transfer_bytes = 1u << 20;
  // What a deallocated block reads as; kError: reading it fails.
  enum class ReadBack { kOld, kZeros, kOnes, kRandom, kError } read_back = ReadBack::kZeros;
  bool noise = false;  // what was never written reads as noise, not as zeros
  std::string serial;

  std::string Text() const;
};

struct SimCommand {
  uint64_t number = 0;  // counted over the drive's life, reads included
  io::Op op = io::Op::kRead;
  bool fua = false;
  std::vector<ByteRange> ranges;
  std::vector<std::byte>
      data;  // of a write, as it was at submission; of a deallocate, the read-back
};

// What happens to a command instead of what should.
struct SimFault {
  io::IoStatus status;  // what the host is told
  // What the media sees of it. kPart: some LBAs of a write; a flush that fails covers some writes
  // and loses others for good. kNone: nothing; a flush that fails, but for kRetry, may have lost
  // some. kLater: a write lands within the next two seconds, after its end was reported.
  enum class Effect : uint8_t { kWhole, kPart, kNone, kLater } effect = Effect::kWhole;
  std::optional<uint64_t> elsewhere;  // a read or write goes to this byte instead
  bool flip_a_bit = false;            // of what a read returns
  uint64_t delay_ns = 0;              // on top of the usual
};

class SimDevice : public io::Device {
 public:
  // Zeros.
  SimDevice(const SimDeviceOptions& options, uint64_t seed);
  ~SimDevice() override;

  const io::Geometry& geometry() const override { return geometry_; }
  std::string Describe() const override { return "simulated"; }
  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(std::span<io::Device* const> devices,
                                                       const io::QueueOptions& options,
                                                       const io::Arena& arena) override;
  const SimDeviceOptions& options() const { return options_; }

  // ---- during a life ----
  void set_sim(SimExecutor* sim) { sim_ = sim; }  // null: the calling thread alone
  void set_observer(CommandObserver* observer) { observer_ = observer; }
  // Asked for each command when it is submitted.
  using FaultPlan = std::function<SimFault(const SimCommand&)>;
  void set_faults(FaultPlan plan) { faults_ = std::move(plan); }
  const FaultPlan& faults() const { return faults_; }
  // The process dies when the n-th command from now is submitted: it and all later ones reach
  // nothing and come back with an unknown outcome; those in flight are left behind.
  void DieAt(uint64_t n) { dies_at_ = number_ + n; }
  void Die();
  bool dead() const { return dead_; }
  uint64_t commands() const { return number_; }  // submitted so far

  // ---- after a death, with no queue open ----
  // What the dead process left in flight reaches the drive now, in any order.
  void LandLeftovers();
  // It lands bit by bit, while the commands of the life that has begun are polled for.
  void LandLeftoversLater(uint64_t within_ns);
  size_t leftovers() const { return leftovers_.size(); }
  enum class Luck { kLoseAll, kKeepAll, kEach, kTear };
  // The power goes: of what was in flight, or completed and not persisted, some survives.
  void PowerCut(Luck luck);
  void Revive();

  // ---- with nothing in flight ----
  // What reads see.
  std::span<const std::byte> contents() const { return {current_, options_.bytes}; }
  // Changes what is persisted, as rot or another program does.
  void Overwrite(uint64_t at, std::span<const std::byte> bytes);

  // Every event from here on is a line in `file`.
  void set_log(FILE* file) { log_ = file; }

 private:
  class SimQueue;
  friend class SimQueue;

  // In the volatile cache: in current_, not in persisted_.
  struct Cached {
    SimCommand command;
    uint64_t completed = 0;  // when, in events_
    std::vector<bool> gone;  // LBAs that something newer was persisted over; empty: none
    bool lost = false;       // a flush that failed has dropped it: it will not be persisted
  };
  struct Leftover {
    SimCommand command;
    uint64_t due_ns = UINT64_MAX;
  };

  uint64_t Now() const { return sim_ != nullptr ? sim_->NowNs() : now_ns_; }
  uint64_t Random() { return random_(); }
  void Touch(uint64_t at, uint64_t bytes);
  // Calls put(first byte, data) for each LBA of the command that `wanted` (of its LBA's index)
  // says.
  template <typename Wanted, typename Put>
  void EachBlock(const SimCommand& c, const Wanted& wanted, const Put& put) const;
  void ToCurrent(const SimCommand& c, const std::vector<bool>* only);
  void Persist(const SimCommand& c, const std::vector<bool>* except);
  void Supersede(uint64_t at);
  // A write or deallocate takes effect; `only`: these LBAs of it.
  void Carry(SimCommand command, const std::vector<bool>* only);
  void Flush(uint64_t completed_before);
  void FailFlush(uint64_t completed_before, bool persist_some);
  void LandDue();
  void Note(const char* what, const SimCommand& c);
  std::vector<bool> SomeBlocks(const SimCommand& c);
  uint64_t Blocks(const SimCommand& c) const;

  const SimDeviceOptions options_;
  io::Geometry geometry_;
  std::mt19937_64 random_;
  SimExecutor* sim_ = nullptr;
  CommandObserver* observer_ = nullptr;
  FaultPlan faults_;
  FILE* log_ = nullptr;
  std::byte* current_ = nullptr;
  std::byte* persisted_ = nullptr;
  std::vector<bool> touched_;       // 64 KiB grains that may hold other than zeros
  std::vector<bool> written_;       // LBAs; with noise only
  std::vector<bool> current_gone_;  // deallocated LBAs that can't be read
  std::vector<bool> persisted_gone_;
  std::vector<Cached> cache_;  // in the order of completion
  std::vector<Leftover> leftovers_;
  std::vector<SimQueue*> queues_;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t number_ = 0;
  uint64_t events_ = 0;  // completions so far
  uint64_t dies_at_ = UINT64_MAX;
  bool dead_ = false;
};

}  // namespace ashlar
