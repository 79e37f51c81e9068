// A memory device whose commands take their time: each is carried out, and given back, when its
// seeded delay has passed, so commands in flight overtake each other. Checks that no buffer changes
// while in flight. Can die: from the command on that the test names nothing is carried out any
// more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "io/memory_device.h"
#include "tests/support/sim_executor.h"

namespace ashlar {

class SimDevice : public io::Device {
 public:
  // Both outlive it.
  SimDevice(io::MemoryDevice* below, SimExecutor* sim) : below_(below), sim_(sim) {}

  const io::Geometry& geometry() const override { return below_->geometry(); }
  std::string Describe() const override { return "simulated"; }
  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(std::span<io::Device* const> devices,
                                                       const io::QueueOptions& options,
                                                       const io::Arena& arena) override;

  // Power fails at the n-th command from now: it and all later ones come back with an unknown
  // outcome.
  void DieAt(uint64_t n) { dies_at_ = commands_ + n; }
  bool dead() const { return commands_ >= dies_at_; }
  uint64_t commands() const { return commands_; }

 private:
  class SimQueue;

  io::MemoryDevice* const below_;
  SimExecutor* const sim_;
  uint64_t commands_ = 0;
  uint64_t dies_at_ = UINT64_MAX;
};

}  // namespace ashlar
