// Watches the commands of a store and says when one breaks the order that its safety rests on:
//
//   - no root points to what is not durable: an edit of the manifest to a table, a superblock to a
//     manifest or to the tables in it, copies 2 and 3 of a superblock before 0 and 1;
//   - nothing is acknowledged as durable before it is (Acknowledged);
//   - no extent is written, or discarded, while a durable state or one that may become durable
//     names it; a log segment and a manifest only at their end; superblocks only at their places;
//   - a superblock names the one before it, and each open takes an epoch that none has had;
//   - no block is written while another write or a discard of it is in flight.
//
// It reads the bytes that are written and keeps its own account of what is durable: a write is,
// once it was given back with FUA, or a flush that was submitted after it was given back was itself
// given back. That no buffer changes in flight is for the device to check, which has the buffer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/types.h"
#include "engine/format/superblock.h"
#include "engine/version/version.h"
#include "io/device.h"
#include "tests/support/command_observer.h"

namespace ashlar {

class OrderingMonitor : public CommandObserver {
 public:
  // Begins with what lies on a device, all of it durable: `contents` are what reads see, now and
  // later. A device without a readable store is not watched.
  OrderingMonitor(const io::Geometry& geometry, std::span<const std::byte> contents);

  void Submitted(const ObservedCommand& command) override;
  void Completed(uint64_t id, bool ok) override;

  // A write of this change was acknowledged as durable. Empty value: a delete.
  void Acknowledged(std::string_view key, const std::optional<std::string>& value);

  // A reader was shown this change, whose writer asks for durability: it may be seen only once it
  // is durable. One that was acknowledged already is passed over.
  void Shown(std::string_view key, const std::optional<std::string>& value);

  bool watching() const { return watching_; }
  // The first order that was broken; empty: none.
  const std::string& violation() const { return violation_; }
  // What was checked, so that a test sees that it was.
  uint64_t edits() const { return edits_; }
  uint64_t acknowledged() const { return acknowledged_; }

 private:
  struct Command {
    uint64_t id = 0;
    io::Op op = io::Op::kWrite;
    bool fua = false;
    std::vector<ByteRange> ranges;
    enum class State { kInFlight, kCompleted, kFailed } state = State::kInFlight;
  };
  // Commands that wrote stretches of a stream, until they are durable.
  struct Part {
    uint64_t begin = 0, end = 0;  // offsets in the stream
    uint64_t command = 0;
  };
  // A stream of records as it is being written.
  struct Stream {
    uint64_t end = 0;               // behind the last write
    std::vector<std::byte> unread;  // the begin of a record whose rest is yet to come
    std::vector<Part> parts;
    std::string payload;                     // of records so far, until the last fragment
    std::vector<uint64_t> payload_commands;  // that carry it
  };
  struct Edit {
    VersionEdit edit;
    uint64_t end = 0;  // offset behind it
  };
  struct Root {
    Superblock superblock;
    std::shared_ptr<const Version> version;  // durable
    uint64_t manifest_end = 0;
    std::array<uint64_t, kSuperblockCopies> copies{};  // commands; 0: not written
  };
  // A group of changes in the log: in which commands it lies.
  using Group = std::shared_ptr<std::vector<uint64_t>>;
  // A change that was logged and not acknowledged yet: where it was last, and how often.
  struct Logged {
    Group group;
    uint64_t times = 0;
  };
  enum class Use : uint8_t { kFree, kSuperblock, kManifest, kNextManifest, kSegment, kTable };

  void Broken(const std::string& what);
  // The change is durable, as `what` of it says.
  void CheckDurable(const Group& group, std::string_view key, const char* what);
  bool Durable(uint64_t id) const { return pending_.count(id) == 0; }
  // The first write to the first `bytes` of these extents that is not durable.
  const Command* Undurable(const std::vector<ExtentId>& extents, uint64_t bytes) const;
  void MadeDurable(const std::vector<uint64_t>& ids);
  void Account();  // uses_ from the states that may count

  void Written(const ObservedCommand& command);
  void SuperblockWritten(const ObservedCommand& command);
  using Payload = std::function<void(std::string_view, uint64_t end)>;
  // Takes what one write adds to a stream; false: it is no record, nor the rest of one.
  bool TakeRecords(const ObservedCommand& command, WriteId id, Stream* stream,
                   const Payload& payload);
  // The manifest that lies on the device now.
  bool ReadManifestNow(const Superblock& sb, std::shared_ptr<const Version>* version,
                       uint64_t* end);
  void ManifestWritten(const ObservedCommand& command, int copy, uint64_t offset);
  void LogWritten(const ObservedCommand& command, const SegmentMeta& segment, uint64_t offset);
  void CheckTable(const TableMeta& table, const char* who);
  std::string Where(const ByteRange& range) const;

  const io::Geometry geometry_;
  const std::span<const std::byte> contents_;
  bool watching_ = false;
  std::string violation_;
  uint64_t edits_ = 0, acknowledged_ = 0;

  std::map<uint64_t, Command> pending_;                           // not durable, by id
  std::unordered_map<uint64_t, std::vector<uint64_t>> flushing_;  // flush -> what it covers
  bool repeats_ = false;  // the command at hand writes what was written there before

  Root root_;
  uint64_t root_content_ = 0;               // its ContentChecksum, as a successor must name it
  uint32_t highest_epoch_ = 0, epoch_ = 0;  // before this open, and of it; 0: not known yet
  std::optional<Root> next_root_;
  std::array<Stream, 2> manifest_;      // the copies; the second is not read
  std::vector<Edit> edits_pending_;     // submitted, not durable in both copies
  std::shared_ptr<const Version> tip_;  // root_.version and these
  std::map<WriteId, Stream> logs_;
  std::unordered_map<uint64_t, Logged> entries_;             // by the hash of a change
  std::unordered_map<uint64_t, std::vector<Group>> groups_;  // that a command not durable carries
  std::vector<Use> uses_;                                    // of each extent
};

}  // namespace ashlar
