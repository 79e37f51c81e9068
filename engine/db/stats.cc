// STATS: gathered from whoever counts.
#include "ashlar/stats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/db/db_impl.h"

namespace ashlar {

Stats DBImpl::stats() const {
  MutexLock lock(&mutex_);
  Stats s = counted_;
  s.gets = gets_.Sum();
  s.gets_found = gets_found_.Sum();
  s.iterators = iterators_.size();
  s.snapshots = snapshots_->size();
  s.last_sequence = last_sequence_;
  const std::vector<SequenceNumber> live = LiveSequences();
  s.oldest_sequence = live.empty() ? last_sequence_ : live.front();
  if (version_ == nullptr) return s;  // closed: the rest has gone
  const ExtentIo::Counts io = io_->counts();
  s.device_reads = io.reads;
  s.device_bytes_read = io.bytes_read;
  s.device_writes = io.writes;
  s.device_bytes_written = io.bytes_written;
  s.device_flushes = io.flushes;
  if (log_ != nullptr) s.log_bytes_written = log_->bytes_written();
  s.extent_bytes = superblock_.extent_bytes;
  s.levels.resize(kLastLevel + 1);
  for (const TablePtr& t : version_->AllTables()) {
    Stats::Level& level = s.levels[t->level];
    ++level.tables;
    level.entries += t->entries;
    level.tombstones += t->tombstones;
    level.bytes += t->extents.size() * s.extent_bytes;
  }
  s.extents_total = space_->total();
  s.extents_free = space_->free();
  s.extents_reserved = std::min<uint64_t>(sizing_.reserve_writes, s.extents_free);
  for (const Pending& p : pending_) s.extents_pinned += p.extents.size();
  for (const MemtablePtr& m : {memtable_, sealed_}) {
    if (m != nullptr) s.memtable_bytes += sizing_.memtable_bytes - m->table.bytes_free();
  }
  s.settled = sealed_ == nullptr && !unfinished_ && !background_busy_ && !NextMerge(true);
  return s;
}

std::string Stats::ToJson() const {
  std::string text = "{";
  const auto add = [&](std::string_view name, uint64_t value) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", "\"",
                    absl::string_view(name.data(), name.size()), "\":", value);
  };
  const auto stall = [&](std::string_view name, const Stall& s) {
    absl::StrAppend(&text, ",\"", absl::string_view(name.data(), name.size()),
                    "\":{\"count\":", s.count, ",\"total_ns\":", s.total_ns,
                    ",\"longest_ns\":", s.longest_ns, "}");
  };
  add("batches", batches);
  add("changes", changes);
  add("gets", gets);
  add("gets_found", gets_found);
  add("device_reads", device_reads);
  add("device_bytes_read", device_bytes_read);
  add("device_writes", device_writes);
  add("device_bytes_written", device_bytes_written);
  add("device_flushes", device_flushes);
  add("log_bytes_written", log_bytes_written);
  add("flush_bytes_written", flush_bytes_written);
  add("merge_bytes_written", merge_bytes_written);
  add("flushes", flushes);
  add("merge_steps", merge_steps);
  add("merge_moves", merge_moves);
  stall("memtable_stalls", memtable_stalls);
  stall("merge_stalls", merge_stalls);
  stall("space_stalls", space_stalls);
  stall("paced_stalls", paced_stalls);
  text += ",\"levels\":[";
  for (size_t i = 0; i < levels.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "," : "", "{\"tables\":", levels[i].tables,
                    ",\"entries\":", levels[i].entries, ",\"tombstones\":", levels[i].tombstones,
                    ",\"bytes\":", levels[i].bytes, "}");
  }
  text += "]";
  add("extent_bytes", extent_bytes);
  add("extents_total", extents_total);
  add("extents_free", extents_free);
  add("extents_reserved", extents_reserved);
  add("extents_pinned", extents_pinned);
  add("memtable_bytes", memtable_bytes);
  add("iterators", iterators);
  add("snapshots", snapshots);
  add("last_sequence", last_sequence);
  add("oldest_sequence", oldest_sequence);
  absl::StrAppend(&text, ",\"settled\":", settled ? "true" : "false", "}");
  return text;
}

}  // namespace ashlar
