// MERGE: pick -> read, merge and write one step, durable -> one edit. Repeated by the background
// until there is nothing to pick; each step leaves a state that a crash may find. A move is an edit
// alone.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/plant.h"
#include "engine/base/status.h"
#include "engine/compaction/merge_job.h"
#include "engine/compaction/picker.h"
#include "engine/db/db_impl.h"

namespace ashlar {
namespace {

// A step whose inputs hide most of what they hold ends by what it read.
constexpr uint64_t kMergeInputSteps = 4;

constexpr uint64_t kPaceGrainNs = 1'000'000;    // shorter waits are saved up
constexpr uint64_t kPaceMaxNs = 100'000'000;    // and none is longer
constexpr uint64_t kPaceGapNs = 2'000'000'000;  // steps further apart than this do not follow
constexpr double kPaceRateMin = 1 << 20;        // bytes a second

}  // namespace

std::optional<MergePlan> DBImpl::NextMerge(const MergeDemand& demand) const {
  if (!merge_blocked_.ok()) return std::nullopt;
  MergePolicy policy;
  policy.base_bytes = sizing_.level_base_bytes;
  policy.step_bytes = sizing_.step_bytes;
  policy.level0_stop = sizing_.level0_stop;
  return PickMerge(version_, policy, demand, merge_cursor_);
}

std::optional<MergePlan> DBImpl::NextMerge(bool idle) const {
  MergeDemand demand;
  demand.idle = idle;
  demand.all = reclaiming_ || compacting_;
  demand.rewrite = reclaiming_ || (compacting_ && compacting_->rewrite);
  if (compacting_ && !reclaiming_) {
    demand.begin = compacting_->begin;
    demand.end = compacting_->end;
  }
  demand.readers = LiveSequences();
  return NextMerge(demand);
}

absl::Status DBImpl::MergeStep(const MergePlan& plan) {
  merge_cursor_ = CursorBehind(plan, merge_cursor_);
  if (plan.move) {
    VersionEdit edit;
    edit.move_tables.push_back({plan.upper.front()->id, static_cast<uint8_t>(plan.output_level)});
    RETURN_IF_ERROR(Install(std::move(edit)));
    ++counted_.merge_moves;
    return absl::OkStatus();
  }
  const uint64_t began = env_.clock->NowNs();
  const uint64_t level0_before = Level0Bytes();
  MergeInput input;
  input.io = io_;
  input.tables = tables_;
  input.store = superblock_.store;
  input.id = NextWriteId();
  input.snapshots = LiveSequences();
  input.output_bytes = plan.output_level == 0 ? UINT64_MAX : sizing_.step_bytes;
  input.input_bytes = plan.output_level == 0 ? UINT64_MAX : kMergeInputSteps * sizing_.step_bytes;
  input.extents = [this, purpose = plan.output_level == 0 ? Purpose::kLevel0 : Purpose::kLevelN] {
    return TakeExtent(purpose);
  };
  std::vector<ExtentId> taken;
  mutex_.Unlock();
  auto edit = RunMergeStep(plan, input, &taken);
  mutex_.Lock();
  if (!edit.ok()) {
    if (!PLANT("merge.leak_after_failure")) space_->Free(taken);
    // Damage of an input stops merging for good, so that it is never copied or merged away. Any
    // other error, and any of Install, is the store's.
    if (!absl::IsDataLoss(edit.status())) return edit.status();
    merge_blocked_ = edit.status();
    since_unix_ms_ = env_.clock->UnixMs();
    unsaid_.push_back(absl::StrCat("merging stopped: ", merge_blocked_.message()));
    return absl::OkStatus();
  }
  uint64_t pages = 0;
  for (const TableMeta& t : edit->add_tables) pages += t.pages;
  RETURN_IF_ERROR(Install(*std::move(edit)));
  ++counted_.merge_steps;
  counted_.merge_bytes_written += pages * kPageBytes;
  if (plan.level == 0 && plan.output_level > 0) NoteLevel0Step(began, level0_before);
  return absl::OkStatus();
}

// ---- pace ----

// Level 0 in tables, those that a merge has shortened counted as what is left of them: their number
// falls only at the end of a pass, this falls with each step.
double DBImpl::Level0Load() const {
  double load = 0;
  for (const TablePtr& t : version_->levels[0]) {
    load += static_cast<double>(t->extents.size()) /
            static_cast<double>(t->extents.size() + t->dropped_extents);
  }
  return load;
}

uint64_t DBImpl::Level0Bytes() const {
  uint64_t bytes = 0;
  for (const TablePtr& t : version_->levels[0]) bytes += LiveBytes(*t);
  return bytes;
}

// How fast merges take level 0 away, over the last few steps, whatever else was done between them.
void DBImpl::NoteLevel0Step(uint64_t began_ns, uint64_t bytes_before) {
  const uint64_t now = env_.clock->NowNs(), after = Level0Bytes();
  const bool follows = level0_step_ns_ != 0 && began_ns < level0_step_ns_ + kPaceGapNs;
  const uint64_t ns = now - (follows ? level0_step_ns_ : began_ns);
  level0_step_ns_ = now;
  // What was flushed meanwhile is not seen here: the step alone changes the version while it is
  // installed, and nobody else flushes.
  const double rate = static_cast<double>(bytes_before - std::min(after, bytes_before)) * 1e9 /
                      static_cast<double>(std::max<uint64_t>(ns, 1));
  level0_rate_ = level0_rate_ == 0 ? rate : level0_rate_ + (rate - level0_rate_) / 8;
}

// From a quarter of the stop on, writes are let through at about the rate at which merges take away
// what they bring: half as fast again at first, half as fast at half of the stop. There it
// balances, and level 0 does not reach the stop.
void DBImpl::NotePace(uint64_t written_bytes) {
  if (!has_threads_ || !merge_blocked_.ok() || level0_rate_ == 0 || PLANT("pace.never")) return;
  const double slow = std::max(kLevel0Merge, sizing_.level0_stop / 4);
  const double most = std::max<double>(sizing_.level0_stop / 2.0, slow + 1);
  const double over = (Level0Load() - slow) / (most - slow);
  if (over <= 0) return;
  const double rate = std::max(level0_rate_ * (1.5 - std::min(over, 1.0)), kPaceRateMin);
  const uint64_t now = env_.clock->NowNs();
  const uint64_t owed = static_cast<uint64_t>(static_cast<double>(written_bytes) * 1e9 / rate);
  paced_until_ns_ = std::min(std::max(paced_until_ns_, now) + owed, now + kPaceMaxNs);
}

void DBImpl::Pace() {
  const uint64_t begin = env_.clock->NowNs();
  if (paced_until_ns_ < begin + kPaceGrainNs) return;
  uint64_t now = begin;
  while (now < paced_until_ns_ && failed_.ok() && !stopping_) {
    pace_.WaitFor(&mutex_, paced_until_ns_ - now);
    now = env_.clock->NowNs();
  }
  CountStall(&counted_.paced_stalls, now - begin);
}

}  // namespace ashlar
