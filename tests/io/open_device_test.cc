// Opening, claiming and refusing.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "io/device.h"
#include "tests/io/scratch.h"
#include "tests/io/test_util.h"

namespace ashlar::io {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kBytes = 32 << 20;
constexpr uid_t kNobody = 65534;

testing::AssertionResult Says(const absl::Status& status, absl::StatusCode code,
                              const std::string& text) {
  if (status.code() == code && status.message().find(text) != absl::string_view::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << status << "; expected '" << text << "'";
}

bool Shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

uint32_t Crc32(const std::byte* data, size_t bytes) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<uint32_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

// An empty GUID partition table in the first 34 sectors of 512 bytes.
std::vector<std::byte> EmptyGpt(uint64_t disk_bytes) {
  std::vector<std::byte> image(34 * 512);
  const auto put = [&](size_t at, auto value) { std::memcpy(&image[at], &value, sizeof(value)); };
  put(446 + 4, uint8_t{0xee});  // the protective MBR's one partition
  put(446 + 8, uint32_t{1});
  put(446 + 12, static_cast<uint32_t>(disk_bytes / 512 - 1));
  put(510, uint16_t{0xaa55});
  const size_t header = 512;
  std::memcpy(&image[header], "EFI PART", 8);
  put(header + 8, uint32_t{0x10000});
  put(header + 12, uint32_t{92});
  put(header + 24, uint64_t{1});
  put(header + 32, disk_bytes / 512 - 1);
  put(header + 40, uint64_t{34});
  put(header + 48, disk_bytes / 512 - 34);
  put(header + 56, uint64_t{0x1234});
  put(header + 72, uint64_t{2});
  put(header + 80, uint32_t{128});
  put(header + 84, uint32_t{128});
  put(header + 88, Crc32(&image[1024], 128 * 128));
  put(header + 16, Crc32(&image[header], 92));
  return image;
}

std::unique_ptr<Queue> OpenQueue(Device& device, const Arena& arena, uint32_t depth = 32) {
  Device* const devices[] = {&device};
  auto queue = device.OpenQueue(devices, {.depth = depth}, arena);
  return queue.ok() ? std::move(*queue) : nullptr;
}

// Tries for at most five seconds, as the engine's open does.
absl::StatusOr<std::unique_ptr<Device>> OpenPatiently(const std::string& path) {
  const auto end = Clock::now() + std::chrono::seconds(5);
  for (;;) {
    auto device = OpenDevice(path, OpenMode::kClaim);
    if (!absl::IsUnavailable(device.status()) || Clock::now() > end) return device;
    usleep(1000);
  }
}

// Each test runs over a file and over a loop device.
class Claim : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(file_.ok());
    path_ = file_.path();
    if (!GetParam()) return;
    loop_ = std::make_unique<LoopDevice>(path_, 512);
    if (loop_->path().empty()) GTEST_SKIP() << "no loop device: " << loop_->why();
    path_ = loop_->path();
  }
  ScratchFile file_{"image", kBytes};
  std::unique_ptr<LoopDevice> loop_;
  std::string path_;
};

TEST_P(Claim, IsExclusiveAndReadersPass) {
  auto first = OpenDevice(path_, OpenMode::kClaim);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(
      Says(OpenDevice(path_, OpenMode::kClaim).status(), absl::StatusCode::kUnavailable, path_));
  auto arena = Arena::Create(1 << 20);
  ASSERT_TRUE(arena.ok());
  auto writer = OpenQueue(**first, **arena);
  ASSERT_NE(writer, nullptr);
  Fill((*arena)->data(), 4096, 11);
  Call call;
  call.Set(Op::kWrite, (*first)->geometry(), 8, 0, 4096);
  ASSERT_TRUE(call.Run(*writer).ok());

  auto reader = OpenDevice(path_, OpenMode::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->geometry().lba_bytes, (*first)->geometry().lba_bytes);
  auto queue = OpenQueue(**reader, **arena);
  ASSERT_NE(queue, nullptr);
  call.Set(Op::kRead, (*reader)->geometry(), 8, 8192, 4096);
  EXPECT_TRUE(call.Run(*queue).ok());
  EXPECT_TRUE(IsFilled((*arena)->data() + 8192, 4096, 11));
  call.Set(Op::kWrite, (*reader)->geometry(), 8, 65536, 4096);
  EXPECT_EQ(call.Run(*queue).cls, IoClass::kFatal);
  call.SetDeallocate(8, 8);
  EXPECT_FALSE(call.Run(*queue).ok());
  call.Set(Op::kRead, (*reader)->geometry(), 8, 8192, 4096);
  EXPECT_TRUE(call.Run(*queue).ok());
  EXPECT_TRUE(IsFilled((*arena)->data() + 8192, 4096, 11));
}

TEST_P(Claim, EndsWithTheDeviceAtOnce) {
  for (int i = 0; i < 5; ++i) {
    auto device = OpenDevice(path_, OpenMode::kClaim);
    ASSERT_TRUE(device.ok()) << device.status();
    auto arena = Arena::Create(1 << 20);
    ASSERT_TRUE(arena.ok());
    auto queue = OpenQueue(**device, **arena);
    ASSERT_NE(queue, nullptr);
    Call call;
    call.Set(Op::kWrite, (*device)->geometry(), 0, 0, 65536);
    ASSERT_TRUE(call.Run(*queue).ok());
  }
}

TEST_P(Claim, IsHeldByTheQueueToo) {
  auto arena = Arena::Create(1 << 20);
  ASSERT_TRUE(arena.ok());
  auto device = OpenDevice(path_, OpenMode::kClaim);
  ASSERT_TRUE(device.ok());
  auto queue = OpenQueue(**device, **arena);
  ASSERT_NE(queue, nullptr);
  // Against the rule that the device outlives its queues, to see the ring's own reference.
  device->reset();
  EXPECT_TRUE(absl::IsUnavailable(OpenDevice(path_, OpenMode::kClaim).status()));
  queue.reset();
  EXPECT_TRUE(OpenDevice(path_, OpenMode::kClaim).ok());
}

// The child writes 64 places over and over, each time with a higher number, until it is killed.
[[noreturn]] void WriteForEver(const std::string& path, int tell) {
  constexpr uint32_t kPlace = 256 << 10;
  auto arena = Arena::Create(64 * kPlace);
  auto device = OpenDevice(path, OpenMode::kClaim);
  if (!arena.ok() || !device.ok()) _exit(1);
  auto queue = OpenQueue(**device, **arena, 64);
  if (queue == nullptr) _exit(1);
  std::vector<Call> calls(64);
  std::vector<Request*> done(64);
  uint64_t number = 0;
  const auto start = [&](uint64_t place) {
    Fill((*arena)->data() + place * kPlace, kPlace, ++number);
    calls[place].Set(Op::kWrite, (*device)->geometry(),
                     place * (kPlace / (*device)->geometry().lba_bytes), place * kPlace, kPlace,
                     number % 4 == 0 ? kFua : 0);
    calls[place].request.cookie = place;
    Request* one = &calls[place].request;
    queue->Submit(std::span(&one, 1));
  };
  for (uint64_t place = 0; place < 64; ++place) start(place);
  for (;;) {
    const size_t count = queue->Poll(done, /*wait=*/true);
    for (size_t i = 0; i < count; ++i) {
      if (!done[i]->status.ok()) _exit(1);
      start(done[i]->cookie);
    }
    if (number >= 100) (void)!write(tell, "x", 1);
  }
}

TEST_P(Claim, OutlivesTheLastWriteOfAKilledProcess) {
  for (int round = 0; round < 5; ++round) {
    int tell[2];
    ASSERT_EQ(pipe2(tell, O_CLOEXEC), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForEver(path_, tell[1]);
    close(tell[1]);
    char c;
    EXPECT_EQ(read(tell[0], &c, 1), 1);
    kill(child, SIGKILL);
    close(tell[0]);
    auto device = OpenPatiently(path_);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    ASSERT_TRUE(device.ok()) << device.status();

    auto arena = Arena::Create(32 << 20);
    ASSERT_TRUE(arena.ok());
    auto queue = OpenQueue(**device, **arena);
    ASSERT_NE(queue, nullptr);
    Call call;
    constexpr uint32_t kSeen = 16 << 20;
    call.Set(Op::kRead, (*device)->geometry(), 0, 0, kSeen);
    ASSERT_TRUE(call.Run(*queue).ok());
    for (const auto end = Clock::now() + std::chrono::milliseconds(200); Clock::now() < end;) {
      call.Set(Op::kRead, (*device)->geometry(), 0, 16 << 20, kSeen);
      ASSERT_TRUE(call.Run(*queue).ok());
      ASSERT_EQ(std::memcmp((*arena)->data(), (*arena)->data() + kSeen, kSeen), 0)
          << "a write landed after the claim was obtained";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FileAndLoop, Claim, testing::Bool(),
                         [](const auto& info) { return info.param ? "Loop" : "File"; });

TEST(OpenDevice, NamesWhatIsNotADevice) {
  using absl::StatusCode;
  const ScratchFile missing("missing");
  EXPECT_TRUE(Says(OpenDevice(missing.path(), OpenMode::kClaim).status(), StatusCode::kNotFound,
                   missing.path()));
  EXPECT_TRUE(Says(OpenDevice("/tmp", OpenMode::kClaim).status(), StatusCode::kFailedPrecondition,
                   "directory"));
  EXPECT_TRUE(Says(OpenDevice("/dev/null", OpenMode::kClaim).status(),
                   StatusCode::kFailedPrecondition, "character device"));
  const ScratchFile fifo("fifo");
  ASSERT_EQ(mkfifo(fifo.path().c_str(), 0600), 0);
  EXPECT_TRUE(Says(OpenDevice(fifo.path(), OpenMode::kClaim).status(),
                   StatusCode::kFailedPrecondition, "FIFO"));
  const ScratchFile tiny("tiny", 511);
  EXPECT_TRUE(Says(OpenDevice(tiny.path(), OpenMode::kClaim).status(),
                   StatusCode::kFailedPrecondition, "too small"));
}

TEST(OpenDevice, NeedsTheRightToWrite) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  const ScratchFile file("private", kBytes);
  ASSERT_EQ(chmod(file.path().c_str(), 0444), 0);
  ASSERT_EQ(seteuid(kNobody), 0);
  const absl::Status claim = OpenDevice(file.path(), OpenMode::kClaim).status();
  const absl::Status reading = OpenDevice(file.path(), OpenMode::kReadOnly).status();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(Says(claim, absl::StatusCode::kPermissionDenied, "read and write"));
  EXPECT_TRUE(reading.ok()) << reading;
}

TEST(OpenDevice, NeverUsesAStandardDescriptor) {
  const ScratchFile file("image", kBytes);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(0);
    close(1);
    close(2);
    auto device = OpenDevice(file.path(), OpenMode::kClaim);
    _exit(device.ok() && fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0
              ? 0
              : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(OpenDevice, AFileOfOddSizeHasSmallBlocksAndIgnoresTheRest) {
  const ScratchFile file("odd", 4096 * 16 + 512 + 100);
  auto device = OpenDevice(file.path(), OpenMode::kClaim);
  ASSERT_TRUE(device.ok()) << device.status();
  const Geometry& g = (*device)->geometry();
  EXPECT_EQ(g.capacity_blocks, g.lba_bytes == 512 ? 129u : 16u);
}

TEST(OpenDevice, AFileCutOffUnderUsIsAnError) {
  const ScratchFile file("cut", kBytes);
  auto device = OpenDevice(file.path(), OpenMode::kClaim);
  auto arena = Arena::Create(1 << 20);
  ASSERT_TRUE(device.ok() && arena.ok());
  auto queue = OpenQueue(**device, **arena);
  ASSERT_NE(queue, nullptr);
  for (const off_t left : {65536 + 4096, 65536 + 1000, 0}) {
    ASSERT_EQ(truncate(file.path().c_str(), left), 0);
    Call call;
    call.Set(Op::kRead, (*device)->geometry(), 65536 / (*device)->geometry().lba_bytes, 0, 65536);
    EXPECT_EQ(call.Run(*queue).cls, IoClass::kFatal) << left;
    EXPECT_EQ(call.request.status.err, ENODATA) << left;
  }
}

TEST(OpenDevice, WorksWithoutTheRightToLockMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  const ScratchFile file("image", kBytes);
  ASSERT_EQ(chown(file.path().c_str(), kNobody, kNobody), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{65536, 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(2);
    if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0)
      _exit(2);
    auto device = OpenDevice(file.path(), OpenMode::kClaim);
    auto arena = Arena::Create(4 << 20);
    if (!device.ok() || !arena.ok()) _exit(3);
    auto queue = OpenQueue(**device, **arena);
    if (queue == nullptr) _exit(4);
    if ((*device)->Describe().find("plain buffers") == std::string::npos) _exit(5);
    Fill((*arena)->data(), 65536, 21);
    Call call;
    call.Set(Op::kWrite, (*device)->geometry(), 16, 0, 65536, kFua);
    if (!call.Run(*queue).ok()) _exit(6);
    call.Set(Op::kRead, (*device)->geometry(), 16, 1 << 20, 65536);
    if (!call.Run(*queue).ok()) _exit(7);
    _exit(IsFilled((*arena)->data() + (1 << 20), 65536, 21) ? 0 : 8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(OpenDevice, OneQueueDrivesTwoDevices) {
  const ScratchFile files[2] = {ScratchFile("a", kBytes), ScratchFile("b", kBytes)};
  auto a = OpenDevice(files[0].path(), OpenMode::kClaim);
  auto b = OpenDevice(files[1].path(), OpenMode::kClaim);
  auto arena = Arena::Create(1 << 20);
  ASSERT_TRUE(a.ok() && b.ok() && arena.ok());
  Device* const devices[] = {a->get(), b->get()};
  auto queue = (*a)->OpenQueue(devices, {}, **arena);
  ASSERT_TRUE(queue.ok()) << queue.status();
  for (uint8_t d = 0; d < 2; ++d) {
    Fill((*arena)->data(), 4096, 30 + d);
    Call call;
    call.Set(Op::kWrite, (*a)->geometry(), 7, 0, 4096);
    call.request.device = d;
    ASSERT_TRUE(call.Run(**queue).ok());
  }
  for (uint8_t d = 0; d < 2; ++d) {
    Call call;
    call.Set(Op::kRead, (*a)->geometry(), 7, 0, 4096);
    call.request.device = d;
    ASSERT_TRUE(call.Run(**queue).ok());
    EXPECT_TRUE(IsFilled((*arena)->data(), 4096, 30 + d));
  }
}

TEST(CreateSparseFile, MakesAPrivateFileOnce) {
  const ScratchFile file("made");
  ASSERT_TRUE(CreateSparseFile(file.path(), 1ull << 30).ok());
  struct stat st {};
  ASSERT_EQ(stat(file.path().c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 1 << 30);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_LT(st.st_blocks, 100);
  EXPECT_TRUE(absl::IsAlreadyExists(CreateSparseFile(file.path(), 1 << 20)));
  EXPECT_TRUE(absl::IsNotFound(CreateSparseFile(file.path() + ".no/such", 1 << 20)));
}

TEST(RecognisedContent, NamesWhatIsThere) {
  const ScratchFile file("image", kBytes);
  auto content = RecognisedContent(file.path());
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(*content, "");
  if (Shell("mkfs.ext4 -q -F " + file.path())) {
    content = RecognisedContent(file.path());
    ASSERT_TRUE(content.ok());
    EXPECT_EQ(*content, "ext4 file system");
  }
  const ScratchFile disk("disk", kBytes);
  const std::vector<std::byte> table = EmptyGpt(kBytes);
  const int fd = open(disk.path().c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(pwrite(fd, table.data(), table.size(), 0), static_cast<ssize_t>(table.size()));
  close(fd);
  content = RecognisedContent(disk.path());
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(*content, "gpt partition table");
  EXPECT_TRUE(absl::IsNotFound(RecognisedContent(disk.path() + ".no").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(RecognisedContent("/tmp").status()));
}

TEST(BlockDevice, RefusesAMountedOneNamingTheMountPoint) {
  const ScratchFile file("image", kBytes);
  const LoopDevice loop(file.path(), 512);
  if (loop.path().empty()) GTEST_SKIP() << "no loop device: " << loop.why();
  ASSERT_TRUE(Shell("mkfs.ext4 -q -F " + loop.path()));
  auto content = RecognisedContent(loop.path());
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(*content, "ext4 file system");
  const ScratchFile point("mount point");
  ASSERT_EQ(mkdir(point.path().c_str(), 0700), 0);
  // In a mount namespace of a child, so that nothing stays mounted whatever happens.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(loop.path().c_str(), point.path().c_str(), "ext4", 0, nullptr) != 0) {
      _exit(77);
    }
    const auto claim = OpenDevice(loop.path(), OpenMode::kClaim).status();
    const bool refused =
        bool{Says(claim, absl::StatusCode::kFailedPrecondition, "mounted on " + point.path())};
    if (!refused) std::fprintf(stderr, "%s\n", claim.ToString().c_str());
    _exit(refused && OpenDevice(loop.path(), OpenMode::kReadOnly).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "can't mount here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(BlockDevice, ReadOnlyOneIsPermissionDenied) {
  const ScratchFile file("image", kBytes);
  const LoopDevice loop(file.path(), 512, /*read_only=*/true);
  if (loop.path().empty()) GTEST_SKIP() << "no loop device: " << loop.why();
  EXPECT_TRUE(Says(OpenDevice(loop.path(), OpenMode::kClaim).status(),
                   absl::StatusCode::kPermissionDenied, "read-only"));
  EXPECT_TRUE(OpenDevice(loop.path(), OpenMode::kReadOnly).ok());
}

}  // namespace
}  // namespace ashlar::io
