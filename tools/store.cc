#include "store.h"

#include <stdio.h>

#include "commands.h"
#include "print.h"

namespace ashlar::tools {
namespace {

int CodeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kDataLoss:
      return kExitNo;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kPermissionDenied:
      return kExitRefused;
    default:  // NotFound is here a path that names nothing: a missing key is no error of Fail
      return kExitDevice;
  }
}

}  // namespace

int Fail(const absl::Status& error, bool json) {
  const int code = CodeOf(error);
  const std::string text = EscapeForTerminal(Std(error.message()), Lines::kKeep);
  fprintf(stderr, "ashlarctl: %s\n", text.c_str());
  if (json) {
    Output out;
    out.Write(JsonError(code, error));
  }
  return code;
}

absl::StatusOr<std::unique_ptr<DB>> OpenStore(const std::string& path, Access access) {
  Options options;
  options.read_only = access == Access::kRead;
  options.log_sink = [](LogLevel level, std::string_view text) {
    if (level == LogLevel::kInfo) return;
    fprintf(stderr, "ashlarctl: %s\n", EscapeForTerminal(text, Lines::kKeep).c_str());
  };
  return DB::Open(options, path);
}

absl::Status CloseStore(DB& db, absl::Status so_far) {
  const absl::Status closed = db.Close();
  return so_far.ok() ? closed : so_far;
}

}  // namespace ashlar::tools
