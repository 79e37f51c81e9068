// A device in memory that is honest about a volatile cache: a write or deallocate is seen by reads
// at once and is durable only after a flush or with FUA. As on a drive, a flush covers what a Poll
// or Drain of any queue had given back before it, no more. LoseUnflushed() is a power cut. For
// embedding without media, for tests, and as the base of their fault devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/device.h"

namespace ashlar::io {

struct MemoryDeviceOptions {
  uint64_t bytes = 64ull << 20;
  uint32_t lba_bytes = 4096;
  bool volatile_cache = true;
  bool native_fua = true;
  uint32_t max_transfer_bytes = 1u << 20;
  std::string serial;
};

// Requests complete at Submit and are given back by Poll, in order. The device may be used from
// several queues and threads; the calls below the line only while nothing is in flight
// (LoseUnflushed: no queue open).
class MemoryDevice : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<MemoryDevice>> Create(const MemoryDeviceOptions& options);
  ~MemoryDevice() override;

  const Geometry& geometry() const override;
  std::string Describe() const override;
  absl::StatusOr<std::unique_ptr<Queue>> OpenQueue(std::span<Device* const> devices,
                                                   const QueueOptions& options,
                                                   const Arena& arena) override;

  // Called with each valid request before it is carried out (`data`: the bytes of a write, else
  // null), in the order of the device; reads run beside the others and beside each other, also
  // while a hook of another request waits. A non-OK return is that request's result and nothing is
  // carried out.
  using Hook = std::function<IoStatus(const Request&, const std::byte* data)>;
  void set_hook(Hook hook);

  // ---- with nothing in flight ----
  // Unflushed writes and deallocates, oldest first; each a whole request.
  size_t unflushed() const;
  // A power cut, with no queue open: of the unflushed writes those with keep(i) reach the media,
  // the others are lost.
  void LoseUnflushed(const std::function<bool(size_t)>& keep);
  // The media as it is seen by reads (unflushed writes included).
  std::span<std::byte> contents();

 private:
  class Impl;
  explicit MemoryDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ashlar::io
