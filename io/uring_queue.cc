#include "io/uring_queue.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "io/check.h"
#include "io/request.h"

// What liburing 2.3 and the 6.1 headers lack, from include/uapi/linux/{blkdev,io_uring}.h.
#ifndef BLOCK_URING_CMD_DISCARD
#define BLOCK_URING_CMD_DISCARD _IO(0x12, 0)
#endif

namespace ashlar::io {
namespace {

constexpr unsigned kRegisterCloneBuffers = 30;  // IORING_REGISTER_CLONE_BUFFERS
struct CloneBuffers {                           // struct io_uring_clone_buffers
  uint32_t src_fd = 0;
  uint32_t flags = 0;
  uint32_t src_off = 0;
  uint32_t dst_off = 0;
  uint32_t nr = 0;  // 0 = all
  uint32_t pad[3] = {};
};
static_assert(sizeof(CloneBuffers) == 32);

// A command that was interrupted, or not started for lack of a kernel resource, is issued again:
// same bytes, same place, and no longer in flight.
constexpr uint32_t kMaxRetries = 32;
constexpr uint32_t kMaxSubmitRetries = 1000;

int Register(io_uring* ring, const Arena& arena) {
  std::vector<iovec> pieces;
  for (size_t at = 0; at < arena.size(); at += Arena::kPieceBytes) {
    pieces.push_back({arena.data() + at, std::min<size_t>(Arena::kPieceBytes, arena.size() - at)});
  }
  return -io_uring_register_buffers(ring, pieces.data(), static_cast<unsigned>(pieces.size()));
}

class SharedBuffers : public UringBuffers {
 public:
  // errno of what failed, 0 when done.
  int Init(const Arena& arena) {
    const int err = -io_uring_queue_init(1, &ring_, 0);
    if (err != 0) return err;
    open_ = true;
    data_ = arena.data();
    size_ = arena.size();
    return Register(&ring_, arena);
  }
  ~SharedBuffers() override {
    if (!open_) return;
    io_uring_unregister_buffers(&ring_);
    io_uring_queue_exit(&ring_);
  }
  bool IsOf(const Arena& arena) const override {
    return data_ == arena.data() && size_ == arena.size();
  }
  int ring_fd() const override { return ring_.ring_fd; }

 private:
  io_uring ring_{};
  bool open_ = false;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class UringQueue : public Queue {
 public:
  UringQueue(std::span<const UringTarget> targets, const QueueOptions& options, const Arena& arena,
             std::shared_ptr<UringBuffers> buffers)
      : options_(options),
        arena_(arena),
        buffers_(std::move(buffers)),
        targets_(targets.begin(), targets.end()),
        slots_(options.depth) {
    free_.reserve(options.depth);
    finished_.reserve(options.depth);
    for (uint32_t i = options.depth; i-- > 0;) free_.push_back(i);
  }
  ~UringQueue() override;

  absl::Status Open(UringOutcome* outcome);

  void Submit(std::span<Request* const> requests) override;
  size_t Poll(std::span<Request*> done, bool wait) override;
  size_t in_flight() const override { return options_.depth - free_.size(); }
  size_t depth() const override { return options_.depth; }

 private:
  // One request; at most one command of it is in flight.
  struct Slot {
    Request* request = nullptr;
    uint32_t bytes_done = 0;
    uint32_t range = 0;  // of a deallocate
    uint32_t retries = 0;
  };

  void Start(uint32_t index);
  void Prepare(uint32_t index);
  void DiscardNow(uint32_t index);
  void Complete(uint32_t index, int result);
  void Finish(uint32_t index, IoStatus status);
  void Reap();
  void Enter(bool wait);
  void GiveUpUnsubmitted(int err);
  // Commands that the kernel may still complete, or has completed and we have not seen.
  bool busy() const { return in_flight() > finished_.size(); }

  const QueueOptions options_;
  const Arena& arena_;
  const std::shared_ptr<UringBuffers> buffers_;
  const std::vector<UringTarget> targets_;
  io_uring ring_{};
  bool open_ = false;
  bool fixed_ = false;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> finished_;  // slots, status set, not yet given back; oldest first
  uint32_t submit_failures_ = 0;    // in a row
};

absl::Status UringQueue::Open(UringOutcome* outcome) {
  // A thread that owns the ring runs its completions itself when it polls. A leased queue goes from
  // thread to thread: neither SINGLE_ISSUER (-EEXIST to the second thread) nor COOP_TASKRUN (the
  // completion would wait for a thread that has left).
  io_uring_params params{};
  params.flags = IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP;
  if (options_.single_owner) {
    params.flags |=
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  }
  int err = -io_uring_queue_init_params(options_.depth, &ring_, &params);
  if (err == EINVAL) {  // below 6.1
    params = io_uring_params{};
    params.flags = IORING_SETUP_CLAMP;
    err = -io_uring_queue_init_params(options_.depth, &ring_, &params);
  }
  if (err != 0) {
    const std::string text = absl::StrCat(
        "io_uring with ", options_.depth, " entries: ", strerror(err),
        err == EPERM || err == EACCES ? " (see /proc/sys/kernel/io_uring_disabled, seccomp)" : "");
    if (err == ENOMEM || err == EMFILE || err == ENFILE) return absl::ResourceExhaustedError(text);
    return absl::FailedPreconditionError(text);
  }
  open_ = true;
  if (params.sq_entries < options_.depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("queue depth ", options_.depth, ", the kernel gives ", params.sq_entries));
  }

  std::vector<int> files;
  for (const UringTarget& target : targets_) files.push_back(target.fd);
  for (const UringTarget& target : targets_) {
    if (target.claim_fd >= 0) files.push_back(target.claim_fd);
  }
  err = -io_uring_register_files(&ring_, files.data(), static_cast<unsigned>(files.size()));
  if (err != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("registering ", files.size(), " files with io_uring: ", strerror(err)));
  }

  err = ENOMEM;
  if (buffers_ != nullptr) {
    CloneBuffers clone{.src_fd = static_cast<uint32_t>(buffers_->ring_fd())};
    outcome->cloned =
        syscall(__NR_io_uring_register, ring_.ring_fd, kRegisterCloneBuffers, &clone, 1) == 0;
    err = outcome->cloned ? 0 : Register(&ring_, arena_);
  }
  fixed_ = err == 0;
  outcome->fixed_error = err;
  return absl::OkStatus();
}

UringQueue::~UringQueue() {
  if (!open_) return;
  Drain();
  // The kernel takes a ring apart in the background. The claim and the memory are let go of here,
  // so that whoever waited for this destructor can have them.
  io_uring_unregister_files(&ring_);
  if (fixed_) io_uring_unregister_buffers(&ring_);
  io_uring_queue_exit(&ring_);
}

void UringQueue::Submit(std::span<Request* const> requests) {
  CHECK(requests.size() <= free_.size());
  for (Request* request : requests) {
    CHECK(request->device < targets_.size());
    const uint32_t index = free_.back();
    free_.pop_back();
    slots_[index] = Slot{.request = request};
    const IoStatus status = CheckRequest(*request, targets_[request->device].geometry, arena_);
    if (status.ok()) {
      Start(index);
    } else {
      Finish(index, status);
    }
  }
  if (io_uring_sq_ready(&ring_) > 0) Enter(/*wait=*/false);
}

void UringQueue::Start(uint32_t index) {
  const Request& request = *slots_[index].request;
  if (request.op == Op::kDeallocate && targets_[request.device].discard_by == DiscardBy::kIoctl) {
    DiscardNow(index);
  } else {
    Prepare(index);
  }
}

// Puts the next command of the slot into the submission ring. There is room: one command a slot.
void UringQueue::Prepare(uint32_t index) {
  const Slot& slot = slots_[index];
  const Request& request = *slot.request;
  const UringTarget& target = targets_[request.device];
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
  CHECK(sqe != nullptr);
  const uint64_t lba_bytes = target.geometry.lba_bytes;
  const int file = request.device;
  switch (request.op) {
    case Op::kRead:
    case Op::kWrite: {
      const Piece& piece = request.data[0];
      std::byte* const at = arena_.At(piece) + slot.bytes_done;
      const uint32_t bytes = piece.bytes - slot.bytes_done;
      const uint64_t offset = Raw(request.lba) * lba_bytes + slot.bytes_done;
      const int buffer = static_cast<int>(piece.buffer);
      if (request.op == Op::kRead) {
        if (fixed_) {
          io_uring_prep_read_fixed(sqe, file, at, bytes, offset, buffer);
        } else {
          io_uring_prep_read(sqe, file, at, bytes, offset);
        }
      } else {
        if (fixed_) {
          io_uring_prep_write_fixed(sqe, file, at, bytes, offset, buffer);
        } else {
          io_uring_prep_write(sqe, file, at, bytes, offset);
        }
        if (request.flags & kFua) sqe->rw_flags = RWF_DSYNC;
      }
      break;
    }
    case Op::kFlush:
      io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
      break;
    case Op::kDeallocate: {
      const LbaRange& range = request.ranges[slot.range];
      const uint64_t offset = Raw(range.lba) * lba_bytes;
      const uint64_t bytes = range.blocks * lba_bytes;
      if (target.discard_by == DiscardBy::kRing) {
        io_uring_prep_rw(IORING_OP_URING_CMD, sqe, file, nullptr, 0, 0);
        sqe->cmd_op = BLOCK_URING_CMD_DISCARD;
        sqe->addr = offset;
        sqe->addr3 = bytes;
      } else {
        io_uring_prep_fallocate(sqe, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(offset), static_cast<off_t>(bytes));
      }
      break;
    }
  }
  sqe->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data64(sqe, index);
}

void UringQueue::DiscardNow(uint32_t index) {
  const Request& request = *slots_[index].request;
  const UringTarget& target = targets_[request.device];
  for (const LbaRange& range : request.ranges) {
    uint64_t bytes[2] = {Raw(range.lba) * target.geometry.lba_bytes,
                         range.blocks * target.geometry.lba_bytes};
    uint32_t retries = 0;
    while (ioctl(target.fd, BLKDISCARD, bytes) != 0) {
      if (errno == EINTR && ++retries <= kMaxRetries) continue;
      return Finish(index, FromErrno(request.op, errno));
    }
  }
  Finish(index, IoStatus{});
}

// The end of one command: the request goes on or is finished.
void UringQueue::Complete(uint32_t index, int result) {
  Slot& slot = slots_[index];
  const Request& request = *slot.request;
  if (result < 0) {
    const bool again = result == -EAGAIN || result == -EINTR;
    if (again && ++slot.retries <= kMaxRetries) return Prepare(index);
    return Finish(index, FromErrno(request.op, -result));
  }
  switch (request.op) {
    case Op::kFlush:
      return Finish(index, IoStatus{});
    case Op::kDeallocate:
      if (++slot.range < request.ranges.size()) return Prepare(index);
      return Finish(index, IoStatus{});
    case Op::kRead:
    case Op::kWrite:
      break;
  }
  const uint32_t bytes = static_cast<uint32_t>(result);
  CHECK(bytes <= request.data[0].bytes - slot.bytes_done);
  slot.bytes_done += bytes;
  if (slot.bytes_done == request.data[0].bytes) return Finish(index, IoStatus{});
  // Short. Nothing, or a part of a block, is the end of a file that was cut off under us.
  const bool end = bytes == 0 || bytes % targets_[request.device].geometry.lba_bytes != 0;
  if (end) return Finish(index, {.cls = IoClass::kFatal, .err = ENODATA});
  Prepare(index);
}

void UringQueue::Finish(uint32_t index, IoStatus status) {
  slots_[index].request->status = status;
  finished_.push_back(index);
}

void UringQueue::Reap() {
  std::array<io_uring_cqe*, 64> batch;
  for (;;) {
    const unsigned count = io_uring_peek_batch_cqe(&ring_, batch.data(), batch.size());
    // Completing may prepare commands, never submit them, so the entries stay as they are.
    for (unsigned i = 0; i < count; ++i) {
      Complete(static_cast<uint32_t>(io_uring_cqe_get_data64(batch[i])), batch[i]->res);
    }
    io_uring_cq_advance(&ring_, count);
    if (count < batch.size()) return;
  }
}

// Submits what is prepared; with `wait`, until one completion is there. Errors of the call itself
// are passing ones (no memory, a signal) or bugs; what stays unsubmitted is tried again by the next
// Poll.
void UringQueue::Enter(bool wait) {
  const int result = wait ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit(&ring_);
  if (result >= 0) {
    submit_failures_ = 0;
    return;
  }
  CHECK(result != -EEXIST);  // a second thread on a single_owner queue
  if (result == -EINTR) return;
  CHECK(result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
  if (++submit_failures_ < kMaxSubmitRetries) {
    usleep(100);
  } else {
    GiveUpUnsubmitted(-result);
  }
}

// Takes back the entries that the kernel has not consumed. Without SQPOLL it looks at them only
// inside io_uring_enter.
void UringQueue::GiveUpUnsubmitted(int err) {
  io_uring_sq& sq = ring_.sq;
  const unsigned mask = *sq.kring_mask;
  const unsigned head = *sq.khead;
  const unsigned unsubmitted = *sq.ktail - head;
  for (unsigned i = 0; i < unsubmitted; ++i) {
    const io_uring_sqe& sqe = sq.sqes[sq.array[(head + i) & mask]];
    const uint32_t index = static_cast<uint32_t>(sqe.user_data);
    Finish(index, FromErrno(slots_[index].request->op, err));
  }
  io_uring_smp_store_release(sq.ktail, head);
  sq.sqe_head -= unsubmitted;
  sq.sqe_tail -= unsubmitted;
  submit_failures_ = 0;
}

size_t UringQueue::Poll(std::span<Request*> done, bool wait) {
  if (done.empty()) return 0;
  for (;;) {
    if (busy()) Reap();
    const bool must_wait = wait && finished_.empty() && busy();
    if (must_wait || io_uring_sq_ready(&ring_) > 0) Enter(must_wait);
    if (!must_wait) break;
  }
  const size_t count = std::min(done.size(), finished_.size());
  for (size_t i = 0; i < count; ++i) {
    done[i] = slots_[finished_[i]].request;
    slots_[finished_[i]].request = nullptr;
    free_.push_back(finished_[i]);
  }
  finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(count));
  return count;
}

}  // namespace

std::shared_ptr<UringBuffers> RegisterBuffers(const Arena& arena) {
  auto buffers = std::make_shared<SharedBuffers>();
  const int err = buffers->Init(arena);
  if (err == 0) return buffers;
  buffers.reset();
  errno = err;
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Queue>> OpenUringQueue(std::span<const UringTarget> targets,
                                                      const QueueOptions& options,
                                                      const Arena& arena,
                                                      std::shared_ptr<UringBuffers> buffers,
                                                      UringOutcome* outcome) {
  auto queue = std::make_unique<UringQueue>(targets, options, arena, std::move(buffers));
  if (absl::Status status = queue->Open(outcome); !status.ok()) return status;
  return queue;
}

}  // namespace ashlar::io
