// Runs a list of benchmarks on one engine and measures each.
#pragma once

#include "absl/status/status.h"
#include "kv/config.h"
#include "kv/report.h"
#include "kv/store.h"

namespace ashlar::bench {

// InvalidArgument when the engine lacks what the list asks for; nothing is touched.
absl::Status CheckList(const Config& config);

// Prints each result and adds it to `json`. After an error the results before it are there. `wrong`
// is set when the error is a wrong answer of the engine. The store is closed and the device given
// back in every case. Cancelled after a signal.
absl::Status RunList(const Config& config, Engine* engine, JsonList* json, bool* wrong);

}  // namespace ashlar::bench
