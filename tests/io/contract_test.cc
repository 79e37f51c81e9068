// What io/README.md promises of every backend, asked of each of them.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "io/device.h"
#include "io/memory_device.h"
#include "tests/io/scratch.h"
#include "tests/io/test_util.h"

namespace ashlar::io {
namespace {

constexpr uint64_t kDeviceBytes = 16 << 20;
constexpr uint64_t kArenaBytes = 8 << 20;

struct Backend {
  std::string name;
  enum Kind { kMemory, kFile, kLoop } kind = kMemory;
  uint32_t lba_bytes = 4096;
  bool cache = true;
  bool fua = true;
};

class Contract : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    const Backend& backend = GetParam();
    auto arena = Arena::Create(kArenaBytes);
    ASSERT_TRUE(arena.ok()) << arena.status();
    arena_ = std::move(*arena);
    if (backend.kind == Backend::kMemory) {
      auto device = MemoryDevice::Create({.bytes = kDeviceBytes,
                                          .lba_bytes = backend.lba_bytes,
                                          .volatile_cache = backend.cache,
                                          .native_fua = backend.fua});
      ASSERT_TRUE(device.ok()) << device.status();
      device_ = std::move(*device);
    } else {
      // One odd 512 makes a file of LBA 512.
      const bool odd = backend.kind == Backend::kFile && backend.lba_bytes == 512;
      file_ = std::make_unique<ScratchFile>("image", kDeviceBytes + (odd ? 512 : 0));
      ASSERT_TRUE(file_->ok());
      std::string path = file_->path();
      if (backend.kind == Backend::kLoop) {
        loop_ = std::make_unique<LoopDevice>(path, backend.lba_bytes);
        if (loop_->path().empty()) GTEST_SKIP() << "no loop device: " << loop_->why();
        path = loop_->path();
      }
      auto device = OpenDevice(path, OpenMode::kClaim);
      ASSERT_TRUE(device.ok()) << device.status();
      device_ = std::move(*device);
    }
    if (g().lba_bytes != backend.lba_bytes) GTEST_SKIP() << "LBA " << g().lba_bytes << " here";
  }

  const Geometry& g() const { return device_->geometry(); }
  std::byte* at(uint64_t offset) const { return arena_->data() + offset; }
  std::unique_ptr<Queue> Open(const QueueOptions& options = {}) {
    Device* const devices[] = {device_.get()};
    auto queue = device_->OpenQueue(devices, options, *arena_);
    EXPECT_TRUE(queue.ok()) << queue.status();
    return queue.ok() ? std::move(*queue) : nullptr;
  }
  uint64_t lbas(uint64_t bytes) const { return bytes / g().lba_bytes; }

  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<LoopDevice> loop_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Device> device_;
};

TEST_P(Contract, GeometryIsSane) {
  EXPECT_TRUE(g().lba_bytes == 512 || g().lba_bytes == 4096);
  EXPECT_GE(g().capacity_bytes(), kDeviceBytes);
  EXPECT_LE(g().capacity_bytes(), kDeviceBytes + 4096);
  EXPECT_EQ(g().metadata_bytes, 0u);
  EXPECT_GE(g().max_transfer_bytes, 4096u);
  EXPECT_EQ(g().max_transfer_bytes % g().lba_bytes, 0u);
  EXPECT_GE(g().preferred_write_bytes, 4096u);
  EXPECT_FALSE(device_->Describe().empty());
}

TEST_P(Contract, RoundTripsAtManySizesAndOffsets) {
  auto queue = Open();
  ASSERT_NE(queue, nullptr);
  std::mt19937_64 random(g_seed);
  std::vector<uint32_t> sizes = {512, 1024, 4096, 4608, 8192, 65536, 131072, 1 << 20, 3 << 20};
  for (int i = 0; i < 20; ++i) sizes.push_back(512 * (1 + random() % 512));
  for (uint32_t bytes : sizes) {
    bytes = std::max(bytes / g().lba_bytes * g().lba_bytes, g().lba_bytes);
    const uint64_t last = g().capacity_blocks - lbas(bytes);
    for (const uint64_t lba : {uint64_t{0}, last, random() % (last + 1)}) {
      const uint64_t key = random();
      const uint64_t from = random() % ((kArenaBytes / 2 - bytes) / g().lba_bytes) * g().lba_bytes;
      Fill(at(from), bytes, key);
      Call write;
      write.Set(Op::kWrite, g(), lba, from, bytes);
      ASSERT_TRUE(write.Run(*queue).ok()) << ToStatus(write.request, *device_);
      Call read;
      read.Set(Op::kRead, g(), lba, kArenaBytes / 2, bytes);
      std::memset(at(kArenaBytes / 2), 0xaa, bytes);
      ASSERT_TRUE(read.Run(*queue).ok()) << ToStatus(read.request, *device_);
      ASSERT_TRUE(IsFilled(at(kArenaBytes / 2), bytes, key)) << bytes << " at LBA " << lba;
    }
  }
}

// Random reads and writes, up to the queue's depth in flight, one at a time per place.
void ManyInFlight(Queue& queue, const Device& device, const Arena& arena, bool wait) {
  const Geometry& g = device.geometry();
  constexpr uint32_t kPlaceBytes = 16384;
  const size_t depth = queue.depth();
  std::mt19937_64 random(g_seed);
  std::vector<Call> calls(depth);
  std::vector<uint64_t> keys(depth, 0);
  std::vector<Op> ops(depth, Op::kWrite);
  std::vector<Request*> batch;
  std::vector<Request*> done(depth);
  size_t started = 0;
  size_t finished = 0;
  const size_t total = 100 * depth;
  const auto start = [&](size_t place) {
    ops[place] = keys[place] == 0 || random() % 2 == 0 ? Op::kWrite : Op::kRead;
    std::byte* const buffer = arena.data() + place * kPlaceBytes;
    if (ops[place] == Op::kWrite) {
      keys[place] = random() | 1;
      Fill(buffer, kPlaceBytes, keys[place]);
    } else {
      std::memset(buffer, 0xaa, kPlaceBytes);
    }
    calls[place].Set(ops[place], g, place * (kPlaceBytes / g.lba_bytes), place * kPlaceBytes,
                     kPlaceBytes, random() % 8 == 0 ? kFua : 0);
    calls[place].request.cookie = place;
    batch.push_back(&calls[place].request);
    ++started;
  };
  for (size_t place = 0; place < depth; ++place) start(place);
  while (finished < total) {
    queue.Submit(batch);
    batch.clear();
    const size_t count = queue.Poll(done, wait);
    if (wait) {
      ASSERT_GT(count, 0u);
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t place = done[i]->cookie;
      ASSERT_TRUE(done[i]->status.ok()) << ToStatus(*done[i], device);
      if (ops[place] == Op::kRead) {
        ASSERT_TRUE(IsFilled(arena.data() + place * kPlaceBytes, kPlaceBytes, keys[place]));
      }
      ++finished;
      if (started < total) start(place);
    }
    ASSERT_EQ(queue.in_flight() + batch.size(), started - finished);
  }
  ASSERT_EQ(queue.in_flight(), 0u);
  ASSERT_EQ(queue.Poll(done, /*wait=*/true), 0u);
}

TEST_P(Contract, ManyInFlight) {
  auto queue = Open({.depth = 64});
  ASSERT_NE(queue, nullptr);
  ManyInFlight(*queue, *device_, *arena_, /*wait=*/true);
}

TEST_P(Contract, ManyInFlightOnAnOwnedQueueWithoutWaiting) {
  auto queue = Open({.depth = 17, .polled = true, .single_owner = true});
  ASSERT_NE(queue, nullptr);
  ManyInFlight(*queue, *device_, *arena_, /*wait=*/false);
}

TEST_P(Contract, LeasedQueueGoesFromThreadToThread) {
  auto queue = Open({.depth = 16});
  ASSERT_NE(queue, nullptr);
  Call writes[8];
  for (uint64_t i = 0; i < 8; ++i) {
    Fill(at(i * 4096), 4096, 100 + i);
    std::thread([&] {
      writes[i].Set(Op::kWrite, g(), i * lbas(4096), i * 4096, 4096);
      Request* one = &writes[i].request;
      queue->Submit(std::span(&one, 1));
    }).join();
  }
  queue->Drain();
  for (const Call& write : writes) EXPECT_TRUE(write.request.status.ok());
  // A flush runs on a kernel worker of the thread that submitted it and ended.
  Call flushes[8];
  for (Call& flush : flushes) {
    std::thread([&] {
      flush.SetFlush();
      Request* one = &flush.request;
      queue->Submit(std::span(&one, 1));
    }).join();
  }
  queue->Drain();
  for (const Call& flush : flushes) {
    EXPECT_TRUE(flush.request.status.ok()) << ToStatus(flush.request, *device_);
  }
  Call read;
  read.Set(Op::kRead, g(), 0, 1 << 20, 8 * 4096);
  std::thread([&] { EXPECT_TRUE(read.Run(*queue).ok()); }).join();
  for (uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(IsFilled(at((1 << 20) + i * 4096), 4096, 100 + i));
}

TEST_P(Contract, FuaAndFlushAreDone) {
  auto queue = Open();
  ASSERT_NE(queue, nullptr);
  Fill(at(0), 8192, 5);
  Call write;
  write.Set(Op::kWrite, g(), lbas(8192), 0, 8192, kFua);
  EXPECT_TRUE(write.Run(*queue).ok()) << ToStatus(write.request, *device_);
  write.Set(Op::kWrite, g(), lbas(65536), 0, 8192);
  EXPECT_TRUE(write.Run(*queue).ok());
  Call flush;
  flush.SetFlush();
  EXPECT_TRUE(flush.Run(*queue).ok()) << ToStatus(flush.request, *device_);
  queue.reset();
  if (auto* memory = dynamic_cast<MemoryDevice*>(device_.get())) {
    EXPECT_EQ(memory->unflushed(), 0u);
  }
}

TEST_P(Contract, DeallocateThenReadGivesZerosWhereThatIsPromised) {
  auto queue = Open();
  ASSERT_NE(queue, nullptr);
  if (g().discard_grain_bytes == 0) GTEST_SKIP() << "no deallocate: " << device_->Describe();
  constexpr uint32_t kBytes = 1 << 20;
  Fill(at(0), kBytes, 9);
  Call call;
  call.Set(Op::kWrite, g(), 0, 0, kBytes);
  ASSERT_TRUE(call.Run(*queue).ok());
  // Two ranges in one request, a gap between them.
  Request request;
  request.op = Op::kDeallocate;
  const LbaRange ranges[] = {{Lba{0}, lbas(kBytes / 4)}, {Lba{lbas(kBytes / 2)}, lbas(kBytes / 4)}};
  request.ranges = ranges;
  Request* one = &request;
  queue->Submit(std::span(&one, 1));
  queue->Drain();
  ASSERT_TRUE(request.status.ok()) << ToStatus(request, *device_);
  call.Set(Op::kRead, g(), 0, 4 << 20, kBytes);
  ASSERT_TRUE(call.Run(*queue).ok());
  std::vector<std::byte> old(kBytes);
  Fill(old.data(), kBytes, 9);
  const std::vector<std::byte> zeros(4096);
  for (uint32_t from = 0; from < kBytes; from += 4096) {
    const bool given = from / (kBytes / 4) % 2 == 0;
    const bool is_old = std::memcmp(at((4 << 20) + from), old.data() + from, 4096) == 0;
    const bool is_zero = std::memcmp(at((4 << 20) + from), zeros.data(), 4096) == 0;
    if (given) {
      ASSERT_TRUE(is_zero || (is_old && g().dlfeat == 0)) << "byte " << from;
    } else {
      ASSERT_TRUE(is_old) << "byte " << from;
    }
  }
}

TEST_P(Contract, BeyondTheEndFailsAndChangesNothing) {
  auto queue = Open();
  ASSERT_NE(queue, nullptr);
  const uint64_t end = g().capacity_blocks;
  Fill(at(0), 4 * g().lba_bytes, 3);
  Call call;
  call.Set(Op::kWrite, g(), end - 2, 0, 2 * g().lba_bytes);
  ASSERT_TRUE(call.Run(*queue).ok());
  for (const Op op : {Op::kRead, Op::kWrite}) {
    for (const uint64_t lba : {end - 1, end, end + 1000, UINT64_MAX - 1, UINT64_MAX / 4096}) {
      call.Set(op, g(), lba, 64 << 10, 2 * g().lba_bytes);
      EXPECT_EQ(call.Run(*queue).cls, IoClass::kFatal) << lba;
      EXPECT_TRUE(absl::IsInternal(ToStatus(call.request, *device_)));
    }
  }
  call.SetDeallocate(end - 1, 2);
  EXPECT_EQ(call.Run(*queue).cls, IoClass::kFatal);
  call.SetDeallocate(1, UINT64_MAX);
  EXPECT_EQ(call.Run(*queue).cls, IoClass::kFatal);
  call.Set(Op::kRead, g(), end - 2, 128 << 10, 2 * g().lba_bytes);
  ASSERT_TRUE(call.Run(*queue).ok());
  EXPECT_TRUE(IsFilled(at(128 << 10), 2 * g().lba_bytes, 3));
}

TEST_P(Contract, DestructorDrains) {
  std::vector<Call> writes(16);
  auto queue = Open({.depth = 16});
  ASSERT_NE(queue, nullptr);
  std::vector<Request*> batch;
  for (size_t i = 0; i < writes.size(); ++i) {
    writes[i].Set(Op::kWrite, g(), i * lbas(65536), i * 65536, 65536);
    writes[i].request.status = {.cls = IoClass::kRetry};
    batch.push_back(&writes[i].request);
  }
  queue->Submit(batch);
  queue.reset();
  for (const Call& write : writes) EXPECT_TRUE(write.request.status.ok());
}

TEST_P(Contract, TwoQueuesShareAnArena) {
  auto one = Open();
  auto two = Open({.depth = 4, .single_owner = true});
  ASSERT_TRUE(one != nullptr && two != nullptr);
  Fill(at(0), 4096, 77);
  Call call;
  call.Set(Op::kWrite, g(), 5, 0, 4096);
  ASSERT_TRUE(call.Run(*one).ok());
  one.reset();
  call.Set(Op::kRead, g(), 5, 8192, 4096);
  ASSERT_TRUE(call.Run(*two).ok());
  EXPECT_TRUE(IsFilled(at(8192), 4096, 77));
}

std::vector<Backend> Backends() {
  std::vector<Backend> all;
  for (const uint32_t lba : {512u, 4096u}) {
    const std::string suffix = std::to_string(lba);
    all.push_back({"Memory" + suffix, Backend::kMemory, lba, true, true});
    all.push_back({"MemoryNoFua" + suffix, Backend::kMemory, lba, true, false});
    all.push_back({"MemoryNoCache" + suffix, Backend::kMemory, lba, false, false});
    all.push_back({"File" + suffix, Backend::kFile, lba});
    all.push_back({"Loop" + suffix, Backend::kLoop, lba});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Contract, testing::ValuesIn(Backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ashlar::io
