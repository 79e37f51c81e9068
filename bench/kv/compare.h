// --compare=A,B --rounds=N: each run of the list is a kv_bench of its own, so that neither engine
// inherits the other's memory; then the ratios, round by round.
#pragma once

#include <string>
#include <vector>

#include "kv/report.h"

namespace ashlar::bench {

// `arguments` are this program's, without those that say what is compared; each run adds its
// engine. Returns the exit code: 0, or that of the first run that failed.
int RunCompare(const std::vector<std::string>& arguments, const std::string& a,
               const std::string& b, uint64_t rounds, JsonList* json);

}  // namespace ashlar::bench
