#include "io/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ashlar::io {
namespace {

constexpr size_t kHugePage = 2ull << 20;
constexpr size_t kKept = 8;

// Arenas that ended, if they are to be kept at all.
struct Kept {
  std::mutex mutex;
  bool wanted = false;
  pid_t process = getpid();  // that has them: a child does not inherit arenas
  std::vector<std::pair<std::byte*, size_t>> arenas;
};
Kept& kept() {
  static Kept* const kept = new Kept;
  return *kept;
}

std::byte* TakeKept(size_t size) {
  const std::lock_guard lock(kept().mutex);
  if (kept().process != getpid()) {
    kept().process = getpid();
    kept().arenas.clear();
  }
  for (auto& [data, bytes] : kept().arenas) {
    if (bytes != size) continue;
    std::byte* const found = data;
    std::tie(data, bytes) = kept().arenas.back();
    kept().arenas.pop_back();
    return found;
  }
  return nullptr;
}

// Makes every page present now, so that no memory is asked for later. MADV_POPULATE_WRITE (5.14)
// returns an error where touching would kill.
bool Populate(std::byte* data, size_t bytes) {
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;
#endif
  int err = 0;
  do {
    err = madvise(data, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (err == EINTR || err == EAGAIN);
  if (err == 0) return true;
  if (err != EINVAL) {
    errno = err;
    return false;
  }
  for (size_t at = 0; at < bytes; at += Arena::kAlign) {
    *reinterpret_cast<volatile unsigned char*>(data + at) = 0;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("an arena of 0 bytes");
  const auto exhausted = [&](const char* call) {
    return absl::ResourceExhaustedError(
        absl::StrCat("buffers of ", bytes, " bytes: ", call, ": ", strerror(errno)));
  };
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return exhausted("mmap");
  }
  const size_t size = (bytes + kAlign - 1) / kAlign * kAlign;
  if (std::byte* const data = TakeKept(size); data != nullptr) {
    return std::unique_ptr<Arena>(new Arena(data, size));
  }
  // Reserve one huge page more and cut the ends off, so that the arena starts on a huge page.
  const size_t reserved = size + kHugePage;
  void* map = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return exhausted("mmap");
  std::byte* const base = static_cast<std::byte*>(map);
  const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  std::byte* const data = base + head;
  if (head > 0) munmap(base, head);
  if (head < kHugePage) munmap(data + size, kHugePage - head);
  (void)madvise(data, size, MADV_HUGEPAGE);  // a wish: without huge pages only opening is slower
  (void)madvise(data, size, MADV_DONTFORK);  // pages that a device writes to are not for a child
  if (!Populate(data, size)) {
    const absl::Status status = exhausted("madvise(MADV_POPULATE_WRITE)");
    munmap(data, size);
    return status;
  }
  return std::unique_ptr<Arena>(new Arena(data, size));
}

Arena::Arena(std::byte* data, size_t size) : data_(data), size_(size), process_(getpid()) {}

Arena::~Arena() {
  const std::lock_guard lock(kept().mutex);
  if (kept().wanted && process_ == getpid() && kept().arenas.size() < kKept) {
    kept().arenas.emplace_back(data_, size_);
  } else {
    munmap(data_, size_);
  }
}

void Arena::KeepFreed() {
  const std::lock_guard lock(kept().mutex);
  kept().wanted = true;
}

}  // namespace ashlar::io
