#include "kv/config.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kv/keyspace.h"

namespace ashlar::bench {

std::string ConfigHash(const Config& c) {
  const std::string text =
      absl::StrCat(absl::StrJoin(c.benchmarks, ","), ";", c.num, ";", c.reads, ";", c.key_size, ";",
                   c.value_size, ";", c.threads, ";", c.duration, ";", c.seed, ";", c.cache_size,
                   ";", c.write_buffer_size, ";", c.batch_size, ";", c.seek_nexts, ";",
                   c.write_rate_limit) +
      absl::StrCat(";", c.compression_type, ";", c.bloom_bits, ";", c.sync ? 1 : 0, ";",
                   c.use_existing_db ? 1 : 0, ";", c.touch ? 1 : 0, ";", c.settle_quiet_ms, ";",
                   c.idle_ms);
  uint64_t hash = text.size();
  for (const char ch : text) hash = Mix64(hash ^ static_cast<uint8_t>(ch));
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace ashlar::bench
