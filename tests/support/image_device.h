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
  // Between Push and Pop changes are remembered on their own, and taken back by Pop; an Undo in
  // between goes as far as the Push. They nest.
  void Push() { ++level_; }
  void Pop();

  // The bytes [at, at + bytes). Valid until the next change.
  const std::byte* Read(uint64_t at, uint64_t bytes);
  std::span<const std::byte> contents();

 private:
  static constexpr uint64_t kGrain = 4096;
  // Of a grain: nothing was ever written there (or that was undone), so it reads as zeros whatever
  // lies in memory. Most of a store is like that, and costs nothing to read or to undo.
  static constexpr uint8_t kWritten = 1;
  static constexpr uint8_t kListed = 2;  // in stale_

  struct Saved {
    uint64_t grain;
    uint8_t level;  // that it was saved at before
    bool written;   // and then its content is in undo_
  };

  void Save(uint64_t at, uint64_t bytes, bool overwrites);
  void ReadInto(uint64_t at, std::byte* to, uint64_t bytes) const;

  const io::Geometry geometry_;
  const uint64_t bytes_;
  std::byte* data_;
  uint8_t level_ = 1;
  std::vector<uint8_t> state_;        // of each grain
  std::vector<uint64_t> stale_;       // grains that are not written but whose memory is not zero
  std::vector<uint8_t> saved_level_;  // highest level at which the grain's content was saved
  std::vector<Saved> saved_;          // in the order of undo_
  std::vector<std::byte> undo_;
};

}  // namespace ashlar
