// What the manifest says: tables, segments, and the edits that change them, as values and as bytes.
// FORMAT.md, "Manifest".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/types.h"

namespace ashlar {

// All that is known of a table without reading it. `id` is also its write id. Pages are numbered
// from 0 over the table's life; shortening drops whole extents from the front and leaves the
// numbers as they are.
struct TableMeta {
  WriteId id;
  uint8_t level = 0;
  std::vector<ExtentId> extents;  // those still owned
  uint32_t dropped_extents = 0;   // owned once, in front of `extents`
  uint32_t pages = 0;             // all, the dropped ones too; the last is the footer
  uint32_t tail_pages = 0;        // top index and footer, at the end
  uint64_t footer_checksum = 0;
  uint64_t entries = 0;     // as written
  uint64_t tombstones = 0;  // as written
  // Not stored: the range of sequence numbers whose readers were what older versions, and
  // tombstones with nothing beneath them, were kept for; `kept` whether there were any. A store
  // that was opened again has no such readers.
  bool kept = false;
  SequenceNumber kept_from = 0, kept_to = 0;
  uint64_t record_bytes = 0;  // keys and values, as written
  SequenceNumber min_sequence = 0, max_sequence = 0;
  // Bounds of the keys it serves, both inclusive. Shortening raises `smallest` to the key that
  // follows the last one merged away, one zero byte longer, so it can have kMaxKeyBytes + 1 bytes.
  std::string smallest, largest;
};

struct SegmentMeta {
  WriteId id;
  std::vector<ExtentId> extents;
};

// A change to the state of the store, applied whole or not at all.
struct VersionEdit {
  struct Shorten {
    WriteId table;
    uint32_t dropped_extents = 0;  // new total
    std::string smallest;          // new bound
  };
  // Its bytes stay where they are. Before those added, after those shortened.
  struct Move {
    WriteId table;
    uint8_t level = 0;
  };
  std::vector<TableMeta> add_tables;
  std::vector<WriteId> remove_tables;
  std::vector<Shorten> shorten_tables;
  std::vector<Move> move_tables;
  std::vector<SegmentMeta> assign_segments;
  std::vector<WriteId> release_segments;
  std::optional<SequenceNumber> last_sequence;
  bool clean = false;         // closed in order: no segment holds anything
  bool snapshot_end = false;  // the state is complete: last edit of a manifest's opening run
};

void EncodeEdit(const VersionEdit& edit, std::string* out);
// DataLoss naming the field; also for a field this version must understand and does not.
// `extents_max` is how many extents the store has: an edit that names more of them in all is
// refused, so that a decoder allocates no more than an honest edit would.
absl::Status DecodeEdit(std::string_view in, VersionEdit* edit, uint64_t extents_max = 1u << 20);

}  // namespace ashlar
