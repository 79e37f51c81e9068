// A device in memory whose changes can be undone: one arena serves thousands of images of a store,
// each made by a few writes over a base and taken back afterwards. Commands complete at Submit and
// are given back by Poll, in order; there is no cache to lose: what is durable is for the
// RecordingDevice above it to say. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/device.h"

namespace ashlar {

class ImageDevice : public io::Device {
 public:
  // Zeros; `geometry` as it is to be reported. CHECKs that the memory is there.
  explicit ImageDevice(const io::Geometry& geometry);
  ~ImageDevice() override;

  const io::Geometry& geometry() const override { return geometry_; }
  std::string Describe() const override { return "image"; }
  absl::StatusOr<std::unique_ptr<io::Queue>> OpenQueue(std::span<io::Device* const> devices,
                                                       const io::QueueOptions& options,
                                                       const io::Arena& arena) override;

  // Changes that stay. Requires that nothing is to be undone.
  void WriteBase(uint64_t at, std::span<const std::byte> data);
  // Makes what is there the base.
  void Keep();

  // Changes that Undo takes back, as those that came through a queue.
  void Write(uint64_t at, std::span<const std::byte> data);
  // The bytes [at, at + bytes), to be changed in place, and taken back by Undo.
  std::byte* Edit(uint64_t at, uint64_t bytes);
  void Undo();

  std::span<const std::byte> contents() const { return {data_, bytes_}; }

 private:
  class ImageQueue;
  static constexpr uint64_t kGrain = 4096;

  void Save(uint64_t at, uint64_t bytes);

  const io::Geometry geometry_;
  const uint64_t bytes_;
  std::byte* data_;
  std::vector<bool> saved_;             // grains whose base content is in undo_
  std::vector<uint64_t> saved_grains_;  // in the order of undo_
  std::vector<std::byte> undo_;
};

}  // namespace ashlar
