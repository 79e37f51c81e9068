// How a change of the version counts: edit durable in both copies of the manifest, then current,
// then what it no longer owns is free as soon as no reader looks at it. And the store's book of
// extents and write ids.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/rounding.h"
#include "engine/base/status.h"
#include "engine/db/db_impl.h"
#include "engine/db/store_file.h"
#include "engine/db/store_iterator.h"
#include "engine/version/superblock_store.h"

namespace ashlar {

WriteId DBImpl::NextWriteId() { return {superblock_.epoch, ++write_counter_}; }

absl::StatusOr<SegmentMeta> DBImpl::NewSegment() {
  FreeUnreferenced();
  SegmentMeta segment;
  segment.id = NextWriteId();
  ASSIGN_OR_RETURN(segment.extents, space_->Allocate(Purpose::kLog, sizing_.segment_extents));
  return segment;
}

absl::StatusOr<ExtentId> DBImpl::TakeExtent(Purpose purpose) {
  MutexLock lock(&mutex_);
  if (space_->free() == 0) FreeUnreferenced();
  ASSIGN_OR_RETURN(const std::vector<ExtentId> one, space_->Allocate(purpose, 1));
  return one.front();
}

void DBImpl::ReturnExtents(const std::vector<ExtentId>& extents) {
  MutexLock lock(&mutex_);
  space_->Free(extents);
}

absl::Status DBImpl::Install(VersionEdit edit) {
  auto applied = ApplyEdit(*version_, edit);
  CHECK(applied.ok());  // made by this code from this version
  absl::Status status = absl::OutOfRangeError("");
  if (PLANT("install.free_before_durable")) space_->Free(std::exchange(applied->released, {}));
  if (!manifest_must_roll_) {
    mutex_.Unlock();
    status = manifest_->Append(edit);
    mutex_.Lock();
    if (PLANT("manifest.go_on_after_failure") && !absl::IsOutOfRange(status)) status = {};
    manifest_must_roll_ = !status.ok();
  }
  // Only what found no room is written anew. A command of unknown outcome may still reach the old
  // manifest, whose extents a new one frees; a flush that failed may have lost what was written
  // before it, by whomever.
  if (!status.ok() && !absl::IsOutOfRange(status) && !absl::IsResourceExhausted(status)) {
    return status;
  }
  if (!status.ok()) {
    status = RollManifest(*applied->version);
    if (!status.ok()) {
      // Part of the edit may be durable: what it gives and what it takes both stay as they are
      // until a manifest that says which is.
      if (absl::IsResourceExhausted(status)) unfinished_ = std::move(edit);
      return status;
    }
  }
  manifest_must_roll_ = false;
  unfinished_.reset();
  for (SegmentMeta& s : edit.assign_segments) {
    CHECK(!spare_);
    spare_ = std::move(s);
  }
  const bool flushed =
      sealed_ != nullptr && applied->version->segments.count(sealed_->segment) == 0;
  if (flushed) sealed_.reset();
  SetVersion(std::move(applied->version), std::move(applied->released));
  if (flushed || LowOnSpace(false)) ReleaseViews();
  FreeUnreferenced();
  return absl::OkStatus();
}

absl::Status DBImpl::StartManifest(const Version& version) {
  FreeUnreferenced();
  const uint64_t bytes = ManifestLog::WantedBytes(version, superblock_.lba_bytes);
  const uint32_t want = static_cast<uint32_t>(
      std::clamp<uint64_t>(CeilDiv(bytes, superblock_.extent_bytes), 1, kManifestExtentsMax));
  std::array<std::vector<ExtentId>, 2> copies;
  for (auto& copy : copies) {
    auto extents = space_->Allocate(Purpose::kManifest, want);
    if (!extents.ok()) {
      if (&copy == &copies[1]) space_->Free(copies[0]);
      return extents.status();
    }
    copy = *std::move(extents);
  }
  Superblock next = SuccessorOf(superblock_, superblock_.generation + 1);
  next.manifest = NextWriteId();
  mutex_.Unlock();
  auto manifest = std::make_unique<ManifestLog>(io_, next.store);
  const absl::Status status = manifest->Start(next.manifest, copies, version);
  mutex_.Lock();
  if (!status.ok()) {
    for (const auto& copy : copies) space_->Free(copy);
    // A snapshot that fits no manifest is a store that can't go on.
    return absl::IsOutOfRange(status) ? absl::InternalError(status.message()) : status;
  }
  next.manifest_first_checksum = manifest->first_checksum();
  next.manifest_extents = copies;
  roll_ = Roll{next, version.number, std::move(manifest)};
  return absl::OkStatus();
}

absl::Status DBImpl::RollManifest(const Version& version) {
  if (!roll_) RETURN_IF_ERROR(StartManifest(version));
  CHECK(roll_->version == version.number);  // nothing else was installed since it was started
  mutex_.Unlock();
  const absl::Status status = WriteSuperblocks(io_, roll_->superblock);
  mutex_.Lock();
  // After an error it is not known which superblock holds: neither manifest's extents may be
  // touched. When there was no room for it, the same one is written again.
  RETURN_IF_ERROR(status);
  for (const auto& copy : superblock_.manifest_extents) {
    if (!PLANT("manifest.leak_the_old_one")) space_->Free(copy);
  }
  superblock_ = roll_->superblock;
  manifest_ = std::move(roll_->manifest);
  roll_.reset();
  return absl::OkStatus();
}

void DBImpl::SetVersion(std::shared_ptr<const Version> version, std::vector<ExtentId> released) {
  version_ = std::move(version);
  versions_.emplace_back(version_->number, version_);
  if (!released.empty()) pending_.push_back({version_->number, std::move(released)});
  RebuildView();
}

void DBImpl::FreeUnreferenced() {
  while (!versions_.empty() && versions_.front().second.expired()) versions_.pop_front();
  const uint64_t oldest = versions_.empty() ? UINT64_MAX : versions_.front().first;
  while (!pending_.empty() &&
         (pending_.front().version <= oldest || PLANT("space.free_under_readers"))) {
    space_->Free(pending_.front().extents);
    pending_.pop_front();
  }
}

absl::Status DBImpl::CheckSpace() {
  MutexLock lock(&mutex_);
  FreeUnreferenced();
  ASSIGN_OR_RETURN(const ExtentMap derived, DeriveSpace(superblock_, *version_));
  const auto used_of = [](const ExtentMap& m) { return m.total() - m.free() - m.superblock(); };
  uint64_t named = used_of(derived);
  const auto add = [&](const std::vector<ExtentId>& extents) { named += extents.size(); };
  if (roll_) {
    for (const auto& copy : roll_->superblock.manifest_extents) add(copy);
  }
  for (const Pending& p : pending_) add(p.extents);
  if (unfinished_) {
    for (const TableMeta& t : unfinished_->add_tables) add(t.extents);
    for (const SegmentMeta& s : unfinished_->assign_segments) add(s.extents);
  }
  const uint64_t used = used_of(*space_);
  if (used == named) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(used, " extents are in use, ", named, " are named"));
}

void DBImpl::RebuildView() {
  auto view = std::make_shared<ReadView>();
  view->files = files_;
  if (memtable_ != nullptr) view->memtables.push_back(memtable_);
  if (sealed_ != nullptr) view->memtables.push_back(sealed_);
  view->memtables.insert(view->memtables.end(), replayed_.begin(), replayed_.end());
  view->version = version_;
  view_ = std::move(view);
}

std::vector<SequenceNumber> DBImpl::LiveSequences() const {
  std::vector<SequenceNumber> sequences;
  for (const auto& [number, state] : iterators_) {
    if (!PLANT("iterator.not_counted")) sequences.push_back(state->sequence);
  }
  if (!PLANT("snapshot.not_counted")) snapshots_->AppendTo(&sequences);
  std::sort(sequences.begin(), sequences.end());
  return sequences;
}

void DBImpl::ReleaseViews() {
  std::vector<std::shared_ptr<IteratorState>> states;
  for (const auto& [number, state] : iterators_) states.push_back(state);
  if (states.empty()) return;
  mutex_.Unlock();
  for (const auto& state : states) {
    MutexLock lock(&state->mutex);
    state->LetGo();
  }
  mutex_.Lock();
}

}  // namespace ashlar
