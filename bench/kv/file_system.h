// The file system that a rival is given on a block device: made anew, labelled, and mounted where
// no other process sees it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "kv/config.h"

namespace ashlar::bench {

// Mounted in a mount namespace of this process: however the process ends, the kernel unmounts it.
// One thread; before any other thread is started.
class BenchFileSystem {
 public:
  BenchFileSystem() = default;
  ~BenchFileSystem();
  BenchFileSystem(const BenchFileSystem&) = delete;
  BenchFileSystem& operator=(const BenchFileSystem&) = delete;

  // mkfs.ext4 -L ashlar-bench, everything written now and nothing later. The device may be used,
  // and `store_id` is of the store that FormatAshlar has made there: see device_prep.h.
  absl::Status Make(const std::string& device, const std::string& store_id);
  // noatime. FailedPrecondition when it does not have the label.
  absl::Status Mount(const std::string& device);
  absl::Status Unmount();

  // Of the mount; empty when there is none.
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

}  // namespace ashlar::bench
