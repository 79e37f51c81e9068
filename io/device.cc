#include "io/device.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "io/check.h"

namespace ashlar::io {
namespace {

const char* OpName(Op op) {
  switch (op) {
    case Op::kRead:
      return "read";
    case Op::kWrite:
      return "write";
    case Op::kFlush:
      return "flush";
    case Op::kDeallocate:
      return "deallocate";
  }
  return "operation";
}

std::string Place(const Request& request) {
  switch (request.op) {
    case Op::kRead:
    case Op::kWrite:
      return absl::StrCat(" of ", request.blocks, " blocks at LBA ", Raw(request.lba));
    case Op::kDeallocate:
      if (request.ranges.empty()) return "";
      return absl::StrCat(" of ", request.ranges.size(), " ranges, the first ",
                          request.ranges[0].blocks, " blocks at LBA ", Raw(request.ranges[0].lba));
    case Op::kFlush:
      return "";
  }
  return "";
}

const char* ClassName(IoClass cls) {
  switch (cls) {
    case IoClass::kOk:
      return "ok";
    case IoClass::kRetry:
      return "not carried out, may work later";
    case IoClass::kPath:
      return "the path to the device failed";
    case IoClass::kFull:
      return "no room";
    case IoClass::kFatal:
      return "failed";
    case IoClass::kUnknown:
      return "outcome unknown";
  }
  return "failed";
}

absl::StatusCode Code(IoClass cls) {
  switch (cls) {
    case IoClass::kOk:
      return absl::StatusCode::kOk;
    case IoClass::kRetry:
    case IoClass::kPath:
      return absl::StatusCode::kUnavailable;
    case IoClass::kFull:
      return absl::StatusCode::kResourceExhausted;
    case IoClass::kFatal:
      return absl::StatusCode::kInternal;
    case IoClass::kUnknown:
      return absl::StatusCode::kUnknown;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

void Queue::Drain() {
  std::array<Request*, 64> done;
  while (in_flight() > 0) {
    CHECK(Poll(done, /*wait=*/true) > 0);
  }
}

absl::Status ToStatus(const Request& request, const Device& device) {
  const IoStatus& status = request.status;
  if (status.ok()) return absl::OkStatus();
  std::string text = absl::StrCat(OpName(request.op), Place(request), ": ", ClassName(status.cls));
  if (status.nvme != 0) absl::StrAppend(&text, ", NVMe status 0x", absl::Hex(status.nvme));
  if (status.err != 0) {
    // strerror is safe here: glibc's is thread-safe since 2.32.
    absl::StrAppend(&text, ", ", strerror(status.err), " (errno ", status.err, ")");
  }
  absl::StrAppend(&text, "; device: ", device.Describe());
  return absl::Status(Code(status.cls), text);
}

}  // namespace ashlar::io
