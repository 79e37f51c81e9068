// What a file or block device seldom does, shown with a pipe: short transfers.
#include "io/uring_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"
#include "io/fd.h"
#include "tests/io/test_util.h"

namespace ashlar::io {
namespace {

TEST(UringQueue, AShortReadGoesOnWhereItStopped) {
  constexpr uint32_t kBytes = 64 << 10;
  auto arena = Arena::Create(2 * kBytes);
  ASSERT_TRUE(arena.ok());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  const Fd writer(ends[1]);
  UringTarget target{.fd = reader.get()};
  target.geometry.lba_bytes = 4096;
  target.geometry.capacity_blocks = kBytes / 4096;
  for (const bool owned : {false, true}) {
    for (const bool fixed : {false, true}) {
      UringOutcome outcome;
      auto queue = OpenUringQueue(std::span(&target, 1), {.single_owner = owned}, **arena,
                                  fixed ? RegisterBuffers(**arena) : nullptr, &outcome);
      ASSERT_TRUE(queue.ok()) << queue.status();
      std::vector<std::byte> sent(kBytes);
      Fill(sent.data(), kBytes, 4);
      std::memset((*arena)->data(), 0, 2 * kBytes);
      Call call;
      call.Set(Op::kRead, target.geometry, 0, 4096, kBytes);
      Request* one = &call.request;
      Request* done = nullptr;
      (*queue)->Submit(std::span(&one, 1));
      for (uint32_t at = 0; at < kBytes; at += 4096) {
        ASSERT_EQ((*queue)->Poll(std::span(&done, 1), /*wait=*/false), 0u);
        ASSERT_EQ(write(writer.get(), &sent[at], 4096), 4096);
      }
      ASSERT_EQ((*queue)->Poll(std::span(&done, 1), /*wait=*/true), 1u);
      EXPECT_TRUE(call.request.status.ok());
      EXPECT_TRUE(IsFilled((*arena)->data() + 4096, kBytes, 4));
    }
  }
}

}  // namespace
}  // namespace ashlar::io
