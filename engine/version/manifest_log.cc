#include "engine/version/manifest_log.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/limits.h"
#include "engine/base/plant.h"
#include "engine/base/rounding.h"
#include "engine/base/status.h"
#include "engine/format/checksum.h"
#include "engine/wal/record_reader.h"

namespace ashlar {
namespace {

constexpr uint64_t kWantedMin = 256u << 10;
constexpr size_t kSnapshotTables = 2048;  // in one edit of a snapshot

// Ids and sequence numbers that an honest store of this epoch can have: what is written next counts
// on from them.
absl::Status CheckNumbers(const Version& version, uint32_t epoch) {
  constexpr SequenceNumber kMax = SequenceNumber{1} << 62;
  bool possible = version.last_sequence < kMax;
  for (const TablePtr& t : version.AllTables()) {
    possible &=
        t->id.epoch <= epoch && t->min_sequence <= t->max_sequence && t->max_sequence < kMax;
  }
  for (const auto& [id, segment] : version.segments) possible &= id.epoch <= epoch;
  if (possible) return absl::OkStatus();
  return absl::DataLossError("manifest: an id or sequence number that this store can't have given");
}

}  // namespace

uint64_t ManifestLog::WantedBytes(const Version& version, uint32_t lba_bytes) {
  std::string snapshot;
  EncodeEdit(SnapshotOf(version), &snapshot);
  // As much again for edits, and a good many of the smallest.
  return std::max<uint64_t>(kWantedMin, 3 * snapshot.size() + 32 * lba_bytes);
}

// One payload as one chain of records, each record in one write to each copy, then a flush.
absl::Status ManifestLog::Write(std::string_view payload) {
  const uint32_t lba_bytes = io_->block_bytes();
  ExtentIo::Lease lease = io_->Acquire();
  const uint32_t room = std::min(lease.buffer_bytes(), kRecordBytesMax) - kRecordHeaderBytes;
  RecordHeader header;
  do {
    const uint32_t n = static_cast<uint32_t>(std::min<size_t>(payload.size(), room));
    const uint64_t bytes = RoundUp(RecordBytes(n), lba_bytes);
    std::memset(lease.buffer(), 0, bytes);
    std::memcpy(lease.buffer() + kRecordHeaderBytes, payload.data(), n);
    payload.remove_prefix(n);
    header.payload_bytes = n;
    header.last = payload.empty();
    header.position = {id_.raw(), offset_};
    header.durable = header.position;
    header.previous_checksum = previous_checksum_;
    SealRecord(lease.buffer(), &header, StreamSeed(store_, id_));
    for (const auto& copy : copies_) {
      if (PLANT("manifest.one_copy") && &copy == &copies_[1]) continue;
      RETURN_IF_ERROR(io_->Write(lease.queue(), copy, offset_, {lease.buffer(), bytes}));
    }
    // What the next fragment says of this one must be true.
    if (!PLANT("manifest.skip_flush")) RETURN_IF_ERROR(io_->Flush(lease.queue()));
    if (offset_ == 0) first_checksum_ = header.checksum;
    previous_checksum_ = header.checksum;
    offset_ += bytes;
    header.first = false;
  } while (!payload.empty());
  return absl::OkStatus();
}

absl::Status ManifestLog::Start(WriteId id, std::array<std::vector<ExtentId>, 2> copies,
                                const Version& version) {
  id_ = id;
  copies_ = std::move(copies);
  offset_ = 0;
  previous_checksum_ = 0;
  // In edits of moderate size, each of which a reader takes in whole; only the last completes it.
  VersionEdit rest = SnapshotOf(version);
  const std::vector<TableMeta> tables = std::move(rest.add_tables);
  rest.add_tables.clear();
  VersionEdit some;
  for (const TableMeta& t : tables) {
    some.add_tables.push_back(t);
    if (some.add_tables.size() < kSnapshotTables) continue;
    RETURN_IF_ERROR(Append(some));
    some.add_tables.clear();
  }
  rest.add_tables = std::move(some.add_tables);
  rest.snapshot_end = true;
  return Append(rest);
}

absl::Status ManifestLog::Append(const VersionEdit& edit) {
  std::string payload;
  EncodeEdit(edit, &payload);
  const uint64_t size = copies_[0].size() * uint64_t{io_->extent_bytes()};
  const uint64_t room = std::min(io_->buffer_bytes(), kRecordBytesMax) - kRecordHeaderBytes;
  const uint64_t records = payload.size() / room + 1;
  const uint64_t most =
      payload.size() + records * (kRecordHeaderBytes + kRecordAlign + io_->block_bytes());
  if (offset_ + most > size) {
    return absl::OutOfRangeError(
        absl::StrCat("manifest: an edit of ", payload.size(), " bytes does not fit"));
  }
  return Write(payload);
}

absl::StatusOr<ManifestState> ReadManifest(ExtentIo* io, const Superblock& sb) {
  const auto& copies = sb.manifest_extents;
  ManifestState state;
  state.version = std::make_shared<Version>();
  bool complete = false;
  const std::vector<RecordStream> streams = {{"manifest", sb.manifest, {copies[0], copies[1]}}};
  ReplayReport report;
  RETURN_IF_ERROR(ReplayRecords(
      io, sb.store, streams,
      [&](SequenceNumber, std::string_view payload) -> absl::Status {
        VersionEdit edit;
        RETURN_IF_ERROR(DecodeEdit(payload, &edit, sb.store_bytes / sb.extent_bytes));
        ASSIGN_OR_RETURN(AppliedEdit applied, ApplyEdit(*state.version, edit));
        state.version = std::move(applied.version);
        complete |= edit.snapshot_end;
        return absl::OkStatus();
      },
      nullptr, &report));
  if (report.records == 0 || report.first_checksum != sb.manifest_first_checksum || !complete) {
    return absl::DataLossError(absl::StrCat("manifest: ", io->Where(copies[0][0], 0), " and ",
                                            io->Where(copies[1][0], 0),
                                            ": not the manifest that the superblock names"));
  }
  state.end = report.end.offset;
  RETURN_IF_ERROR(CheckVersion(*state.version));
  RETURN_IF_ERROR(CheckNumbers(*state.version, sb.epoch));
  // Nothing stands behind the last edit to vouch for it but the superblock that was written after
  // it.
  if (sb.owner == Owner() && !state.version->clean) {
    const uint64_t next = std::min(RoundUp(state.end, io->block_bytes()),
                                   copies[0].size() * uint64_t{io->extent_bytes()} - 1);
    const uint32_t page = static_cast<uint32_t>(next % io->extent_bytes() / kPageBytes);
    state.last_edit = absl::DataLossError(
        absl::StrCat("manifest: ", io->Where(copies[0][next / io->extent_bytes()], page), " and ",
                     io->Where(copies[1][next / io->extent_bytes()], page),
                     ": the edit with which the store was closed does not verify"));
  }
  for (const auto& d : report.copy_damage) {
    // A crash between the two copies of the last edit leaves it in one: no damage, unless the store
    // was closed behind it.
    if (d.last_record && sb.owner != Owner()) continue;
    state.damaged.emplace_back(absl::StrCat("manifest copy ", d.copy), d.where);
  }
  return state;
}

}  // namespace ashlar
