// The backends as open_device.cc chooses among them. Private to io/.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/device.h"
#include "io/fd.h"

namespace ashlar::io {

// `st` is of `path`, just taken; that the descriptor is of the same thing is verified.
absl::StatusOr<std::unique_ptr<Device>> OpenFile(const std::string& path, const struct stat& st,
                                                 OpenMode mode);
absl::StatusOr<std::unique_ptr<Device>> OpenBlock(const std::string& path, const struct stat& st,
                                                  OpenMode mode);

// A failed open(2) of `path`, errno `err`, as the status OpenDevice promises.
absl::Status OpenError(const std::string& path, OpenMode mode, int err);

// OK when `fd` is what `st` was taken of. Files are swapped under a path; a wrong disk is worse.
absl::Status SameThing(const std::string& path, const Fd& fd, const struct stat& st,
                       struct stat* opened);

}  // namespace ashlar::io
