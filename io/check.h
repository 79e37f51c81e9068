// CHECK and DCHECK: for what only a bug of ours can cause. Anything that a caller, a device or the
// media can cause is an absl::Status instead. CHECK is on in every build; DCHECK, for the dear
// ones, only where ASHLAR_DCHECK is defined. A failed check prints the place and the condition and
// aborts.
#pragma once

namespace ashlar {

// Prints "FILE:LINE: CHECK failed: TEXT" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* text);

}  // namespace ashlar

#define CHECK(condition)                             \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? (void)0                                     \
       : ::ashlar::CheckFailed(__FILE__, __LINE__, #condition))
#ifdef ASHLAR_DCHECK
#define DCHECK(condition) CHECK(condition)
#else
#define DCHECK(condition) ((void)sizeof(static_cast<bool>(condition)))
#endif
