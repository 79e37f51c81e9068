// What the tests of damage damage: the life of a small store, as it was recorded from its format
// on, and the store as it lay on its device at one moment of it, with what each live byte is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/content.h"
#include "tests/support/crash_rig.h"

namespace ashlar {

constexpr uint64_t kStoreBytes = 64u << 20;
constexpr uint32_t kExtentBytes = 64u << 10;

// All that was written to a device, in the order in which it took effect.
class Life {
 public:
  // Formats a store and lets the workload run on it; `before`, which outlives it, was there first.
  Life(uint32_t lba_bytes, const StoreId& id, const std::function<void(RecordedStore&)>& workload,
       const Life* before = nullptr);

  // What the device held after the first `commands`.
  std::unique_ptr<ImageDevice> At(size_t commands) const;
  // Moments between calls: the number of commands so far, and the commits begun by then and known
  // to be durable.
  struct Moment {
    size_t commands;
    uint32_t started, durable;
  };
  const std::vector<Moment>& moments() const { return moments_; }
  Moment end() const { return moments_.back(); }

  // One LBA's contents over time: (number of the command, its bytes), oldest first.
  using Writes = std::vector<std::pair<size_t, const std::byte*>>;
  const std::map<uint64_t, Writes>& lbas() const { return lbas_; }
  // What an LBA held after the first `commands`; what was there before the life began is zeros.
  std::span<const std::byte> LbaAt(uint64_t at, size_t commands) const;

  const uint32_t lba_bytes;
  const StoreId id;
  const Life* const before;
  Recording recording;
  StoreModel model;

 private:
  std::vector<Moment> moments_;
  std::map<uint64_t, Writes> lbas_;  // by byte on the device
};

// What a byte of the device is to the store.
enum class Part { kSuperblock, kManifest, kData, kIndex, kLog };

// Bytes [begin, end) of the device, all in one page, that can be seen; damage in them is named as
// byte `named`.
struct Live {
  uint64_t begin, end, named;
  Part part;
  uint32_t item;    // number of the copy, the table, the record of the log or of the manifest
  uint32_t copy;    // of the manifest
  uint64_t within;  // a record of the log or manifest: which bytes of it these are
};

// A record of the log.
struct LogRecord {
  LogPosition position, end, durable;
  SequenceNumber first_sequence;
};

// The store at one moment of a life, when nothing was in flight.
class Subject {
 public:
  Subject(const Life& life, const Life::Moment& moment);
  explicit Subject(const Life& life) : Subject(life, life.end()) {}

  // The pieces that [begin, end) touches, as a range of `live`.
  std::pair<size_t, size_t> Touched(uint64_t begin, uint64_t end) const;
  // The pairs after `prefix` commits, in order.
  const std::vector<std::pair<std::string, std::string>>& State(uint32_t prefix);

  const Life& life;
  const Life::Moment moment;
  std::unique_ptr<ImageDevice> device;
  const StoreModel& model;
  bool closed = false;         // nobody had it open
  uint32_t commits = 0;        // that it shows
  std::vector<Live> live;      // ascending
  std::vector<uint64_t> lbas;  // live ones, ascending
  uint32_t manifest_records = 0;
  std::vector<LogRecord> log;  // in order
  std::vector<std::string> keys;
  uint32_t in_tables = 0;     // commits that are in tables
  std::vector<uint64_t> hot;  // LBAs that are not live but were once written

 private:
  void FindLive();

  std::map<uint32_t, std::vector<std::pair<std::string, std::string>>> states_;
};

}  // namespace ashlar
