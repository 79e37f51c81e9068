#include "engine/space/extent_io.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"

namespace ashlar {
namespace {

constexpr uint32_t kLeaseDepth = 8;
constexpr int kReadTries = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentIo>> ExtentIo::Create(io::Device* device,
                                                           uint32_t extent_bytes, uint32_t leases,
                                                           uint32_t buffer_bytes,
                                                           uint64_t extra_bytes,
                                                           uint32_t block_bytes) {
  if (block_bytes == 0) block_bytes = device->geometry().lba_bytes;
  std::unique_ptr<ExtentIo> self(new ExtentIo(device, extent_bytes, block_bytes, buffer_bytes));
  ASSIGN_OR_RETURN(self->arena_, io::Arena::Create(uint64_t{leases} * buffer_bytes + extra_bytes));
  for (uint32_t i = 0; i < leases; ++i) {
    ASSIGN_OR_RETURN(auto queue, self->OpenQueue(kLeaseDepth));
    self->slots_.push_back({std::move(queue), self->arena_->data() + uint64_t{i} * buffer_bytes});
    MutexLock lock(&self->mutex_);
    self->idle_.push_back(leases - 1 - i);
  }
  self->extra_ = self->arena_->data() + uint64_t{leases} * buffer_bytes;
  return self;
}

absl::StatusOr<std::unique_ptr<io::Queue>> ExtentIo::OpenQueue(uint32_t depth) {
  io::QueueOptions options;
  options.depth = depth;
  io::Device* const devices[] = {device_};
  return device_->OpenQueue(devices, options, *arena_);
}

ExtentIo::Lease ExtentIo::Acquire() {
  MutexLock lock(&mutex_);
  while (idle_.empty()) released_.Wait(&mutex_);
  const size_t slot = idle_.back();
  idle_.pop_back();
  return Lease(this, slot);
}

ExtentIo::Lease::~Lease() {
  if (io_ == nullptr) return;
  MutexLock lock(&io_->mutex_);
  io_->idle_.push_back(slot_);
  io_->released_.SignalOne();
}
io::Queue& ExtentIo::Lease::queue() const { return *io_->slots_[slot_].queue; }
std::byte* ExtentIo::Lease::buffer() const { return io_->slots_[slot_].buffer; }
uint32_t ExtentIo::Lease::buffer_bytes() const { return io_->buffer_bytes_; }

void ExtentIo::Prepare(io::Op op, std::span<const ExtentId> extents, uint64_t offset,
                       std::span<const std::byte> data, uint8_t flags,
                       std::vector<Command>* commands) {
  const uint32_t lba_bytes = geometry().lba_bytes;
  CHECK(offset % lba_bytes == 0 && data.size() % lba_bytes == 0 && !data.empty());
  CHECK(offset + data.size() <= uint64_t{extents.size()} * extent_bytes_);
  commands->clear();
  const uint64_t bytes_in_all = data.size();
  while (!data.empty()) {
    const size_t first = offset / extent_bytes_;
    const uint64_t within = offset % extent_bytes_;
    size_t run = 1;
    while (run * uint64_t{extent_bytes_} - within < data.size() &&
           Raw(extents[first + run]) == Raw(extents[first]) + run) {
      ++run;
    }
    const uint32_t bytes = static_cast<uint32_t>(
        std::min<uint64_t>(data.size(), run * uint64_t{extent_bytes_} - within));
    Command command;
    command.request.op = op;
    command.request.flags = flags;
    command.request.lba =
        io::Lba{(uint64_t{Raw(extents[first])} * extent_bytes_ + within) / lba_bytes};
    command.request.blocks = bytes / lba_bytes;
    command.piece = arena_->PieceOf(data.data(), bytes);
    commands->push_back(command);
    offset += bytes;
    data = data.subspan(bytes);
  }
  for (Command& c : *commands) c.request.data = std::span<const io::Piece>(&c.piece, 1);
  CountCommands(op, commands->size(), bytes_in_all);
}

void ExtentIo::CountCommands(io::Op op, uint64_t commands, uint64_t bytes) {
  const bool read = op == io::Op::kRead;
  (read ? reads_ : writes_).Add(commands);
  (read ? bytes_read_ : bytes_written_).Add(bytes);
}

ExtentIo::Counts ExtentIo::counts() const {
  return {reads_.Sum(), bytes_read_.Sum(), writes_.Sum(), bytes_written_.Sum(), flushes_.Sum()};
}

// Submits as the depth allows and waits for all; reads that fail in a way that may pass are tried
// again. On failure the gravest error is returned, after every command has come back. `queue` has
// nothing else in flight.
absl::Status ExtentIo::Run(io::Queue& queue, std::vector<Command>& commands) {
  std::vector<io::Request*> requests;
  for (Command& c : commands) requests.push_back(&c.request);
  for (int attempt = 1;; ++attempt) {
    size_t next = 0, done = 0;
    std::array<io::Request*, kLeaseDepth> finished;
    while (done < requests.size()) {
      while (next < requests.size() && queue.in_flight() < queue.depth()) {
        io::Request* const one[] = {requests[next++]};
        queue.Submit(one);
      }
      done += queue.Poll(finished, true);
    }
    const auto gravest = std::max_element(
        requests.begin(), requests.end(),
        [](const io::Request* a, const io::Request* b) { return a->status.cls < b->status.cls; });
    if (gravest == requests.end() || (*gravest)->status.ok()) return absl::OkStatus();
    const io::IoClass cls = (*gravest)->status.cls;
    const bool may_pass = (*gravest)->op == io::Op::kRead &&
                          (cls == io::IoClass::kRetry || cls == io::IoClass::kPath);
    if (!may_pass || attempt == kReadTries) return io::ToStatus(**gravest, *device_);
    std::erase_if(requests, [](const io::Request* r) { return r->status.ok(); });
    for (io::Request* r : requests) r->status = {};
  }
}

absl::Status ExtentIo::Read(io::Queue& queue, std::span<const ExtentId> extents, uint64_t offset,
                            std::span<std::byte> data) {
  std::vector<Command> commands;
  Prepare(io::Op::kRead, extents, offset, data, 0, &commands);
  return Run(queue, commands);
}

absl::Status ExtentIo::Write(io::Queue& queue, std::span<const ExtentId> extents, uint64_t offset,
                             std::span<const std::byte> data) {
  std::vector<Command> commands;
  Prepare(io::Op::kWrite, extents, offset, data, 0, &commands);
  return Run(queue, commands);
}

uint64_t ExtentIo::BeginFlush() {
  MutexLock lock(&flush_mutex_);
  flushing_.insert(++flushes_begun_);
  return flushes_begun_;
}

void ExtentIo::EndFlush(uint64_t ticket, const absl::Status& status) {
  MutexLock lock(&flush_mutex_);
  if (!status.ok() && flush_failed_.ok()) flush_failed_ = status;
  flushing_.erase(ticket);
  flush_ended_.SignalAll();
}

// Those that began by now may have failed on the device before the caller's own was carried out.
// Nobody waits here before its own has ended.
absl::Status ExtentIo::OthersEnded() {
  MutexLock lock(&flush_mutex_);
  const uint64_t last = flushes_begun_;
  while (!PLANT("flush.alone") && !flushing_.empty() && *flushing_.begin() <= last) {
    flush_ended_.Wait(&flush_mutex_);
  }
  return flush_failed_;
}

absl::Status ExtentIo::EndFua(uint64_t ticket, const absl::Status& status) {
  const bool harmless = absl::IsResourceExhausted(status) || PLANT("log.fua_fails_alone");
  EndFlush(ticket, harmless ? absl::OkStatus() : status);
  if (!status.ok() || !geometry().fua_flushes || PLANT("log.fua_alone")) return status;
  return OthersEnded();
}

absl::Status ExtentIo::Flush(io::Queue& queue) {
  if (!geometry().volatile_cache) return absl::OkStatus();
  const uint64_t ticket = BeginFlush();
  flushes_.Add(1);
  std::vector<Command> commands(1);
  commands[0].request.op = io::Op::kFlush;
  absl::Status status = Run(queue, commands);
  if (absl::IsResourceExhausted(status)) status = absl::InternalError(status.message());
  EndFlush(ticket, status);
  const absl::Status all = OthersEnded();
  return PLANT("flush.forget_failures") ? status : all;
}

absl::Status ExtentIo::At(io::Op op, io::Queue& queue, uint64_t at,
                          std::span<const std::byte> data) {
  std::vector<Command> commands(1);
  Command& c = commands[0];
  c.request.op = op;
  c.request.lba = io::Lba{at / geometry().lba_bytes};
  c.request.blocks = static_cast<uint32_t>(data.size() / geometry().lba_bytes);
  c.piece = arena_->PieceOf(data.data(), static_cast<uint32_t>(data.size()));
  c.request.data = std::span<const io::Piece>(&c.piece, 1);
  CountCommands(op, 1, data.size());
  return Run(queue, commands);
}

absl::Status ExtentIo::ReadRaw(io::Queue& queue, uint64_t at, std::span<std::byte> data) {
  return At(io::Op::kRead, queue, at, data);
}

absl::Status ExtentIo::WriteRaw(io::Queue& queue, uint64_t at, std::span<const std::byte> data) {
  return At(io::Op::kWrite, queue, at, data);
}

std::string ExtentIo::Where(ExtentId extent, uint32_t page_in_extent) const {
  return absl::StrCat("extent ", Raw(extent), " page ", page_in_extent, " (byte ",
                      uint64_t{Raw(extent)} * extent_bytes_ + uint64_t{page_in_extent} * kPageBytes,
                      ")");
}

}  // namespace ashlar
