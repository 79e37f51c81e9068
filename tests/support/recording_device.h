// Passes everything on to the device below and keeps what passed: each command that changes
// something, with its bytes, and when it was given back. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/device.h"
#include "tests/support/command_observer.h"

namespace ashlar {

struct Recording {
  struct Stretch {
    uint64_t at = 0;  // byte on the device
    std::vector<std::byte> bytes;
  };
  struct Command {
    io::Op op = io::Op::kWrite;  // write, flush or deallocate (with zeros for its bytes)
    bool fua = false;
    std::vector<Stretch> stretches;  // of a flush: none
  };
  // What happened, in order. A command takes effect at some time between the two events.
  struct Event {
    enum class Kind { kSubmitted, kGivenBack } kind;
    uint32_t command;
  };
  // What a workload knows after the first `events` events: commits [0, started) have been begun,
  // and [0, durable) were acknowledged as durable.
  struct Marker {
    size_t events = 0;
    uint32_t started = 0;
    uint32_t durable = 0;
  };

  uint32_t lba_bytes = 0;
  bool volatile_cache = true;  // false: a write that was given back is durable
  std::vector<Command> commands;
  std::vector<Event> events;
  std::vector<Marker> markers;
};

class RecordingDevice : public io::Device {
 public:
  // Both outlive it.
  RecordingDevice(io::Device* below, Recording* recording);

  const io::Geometry& geometry() const override { return below_->geometry(); }
  std::string Describe() const override { return below_->Describe(); }
  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(std::span<io::Device* const> devices,
                                                       const io::QueueOptions& options,
                                                       const io::Arena& arena) override;

  // Told of each event before the command is passed on and before it is given back; the id is the
  // command's place in the recording + 1. Null: nobody.
  void set_observer(CommandObserver* observer) { observer_ = observer; }

  // While dead, commands fail with EIO, reach nothing and are not recorded: what is left of a
  // process that was killed may go on, and changes nothing any more. What was in flight completes.
  void set_dead(bool dead) { dead_ = dead; }

 private:
  class RecordingQueue;
  io::Device* const below_;
  Recording* const recording_;
  CommandObserver* observer_ = nullptr;
  bool dead_ = false;
};

}  // namespace ashlar
