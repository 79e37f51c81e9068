#include "tests/support/recording_device.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "io/check.h"

namespace ashlar {

class RecordingDevice::RecordingQueue : public io::Queue {
 public:
  RecordingQueue(std::unique_ptr<io::Queue> below, const RecordingDevice* device,
                 const io::Arena& arena)
      : below_(std::move(below)), device_(device), recording_(device->recording_), arena_(arena) {}
  ~RecordingQueue() override { Drain(); }

  void Submit(std::span<io::Request* const> requests) override {
    for (io::Request* request : requests) {
      if (device_->dead_) {
        request->status = {.cls = io::IoClass::kFatal, .err = EIO};
        failed_.push_back(request);
        continue;
      }
      if (request->op != io::Op::kRead) {
        const uint32_t command = static_cast<uint32_t>(recording_->commands.size());
        recording_->commands.push_back(Copy(*request));
        Happened(Recording::Event::Kind::kSubmitted, command);
        in_flight_.emplace_back(request, command);
      }
      below_->Submit(std::span(&request, 1));
    }
  }

  size_t Poll(std::span<io::Request*> done, bool wait) override {
    if (below_->in_flight() == 0 && !failed_.empty()) {
      done[0] = failed_.front();
      failed_.pop_front();
      return 1;
    }
    const size_t n = below_->Poll(done, wait);
    for (size_t i = 0; i < n; ++i) {
      if (done[i]->op == io::Op::kRead) continue;
      CHECK(done[i]->status.ok());  // nothing fails on the devices that are recorded
      const auto it = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [&](const auto& f) { return f.first == done[i]; });
      CHECK(it != in_flight_.end());
      Happened(Recording::Event::Kind::kGivenBack, it->second);
      in_flight_.erase(it);
    }
    return n;
  }

  size_t in_flight() const override { return below_->in_flight() + failed_.size(); }
  size_t depth() const override { return below_->depth(); }

 private:
  void Happened(Recording::Event::Kind kind, uint32_t command) {
    recording_->events.push_back({kind, command});
    if (device_->observer_ == nullptr) return;
    if (kind == Recording::Event::Kind::kGivenBack) {
      return device_->observer_->Completed(command + 1, true);
    }
    const Recording::Command& c = recording_->commands[command];
    std::vector<ByteRange> ranges;
    for (const Recording::Stretch& s : c.stretches) ranges.push_back({s.at, s.bytes.size()});
    ObservedCommand observed{.id = command + 1, .op = c.op, .fua = c.fua, .ranges = ranges};
    if (c.op == io::Op::kWrite) observed.data = c.stretches[0].bytes;
    device_->observer_->Submitted(observed);
  }

  Recording::Command Copy(const io::Request& request) const {
    Recording::Command command;
    command.op = request.op;
    command.fua = (request.flags & io::kFua) != 0;
    const uint64_t lba_bytes = recording_->lba_bytes;
    if (request.op == io::Op::kWrite) {
      const std::byte* const data = arena_.At(request.data[0]);
      command.stretches.push_back(
          {io::Raw(request.lba) * lba_bytes, {data, data + request.data[0].bytes}});
    }
    for (const io::LbaRange& r : request.ranges) {
      command.stretches.push_back(
          {io::Raw(r.lba) * lba_bytes, std::vector<std::byte>(r.blocks * lba_bytes)});
    }
    return command;
  }

  const std::unique_ptr<io::Queue> below_;
  const RecordingDevice* const device_;
  Recording* const recording_;
  const io::Arena& arena_;
  std::deque<io::Request*> failed_;
  std::vector<std::pair<io::Request*, uint32_t>> in_flight_;
};

RecordingDevice::RecordingDevice(io::Device* below, Recording* recording)
    : below_(below), recording_(recording) {
  recording_->lba_bytes = below->geometry().lba_bytes;
  recording_->volatile_cache = below->geometry().volatile_cache;
}

absl::StatusOr<std::unique_ptr<io::Queue>> RecordingDevice::OpenQueue(
    std::span<io::Device* const> devices, const io::QueueOptions& options, const io::Arena& arena) {
  CHECK(devices.size() == 1 && devices[0] == this);
  io::Device* const below[] = {below_};
  auto queue = below_->OpenQueue(below, options, arena);
  if (!queue.ok()) return queue.status();
  return std::make_unique<RecordingQueue>(*std::move(queue), this, arena);
}

}  // namespace ashlar
