// Built in place of store_rocksdb.cc where the package is missing.
#include "kv/store.h"

namespace ashlar::bench {

absl::StatusOr<std::unique_ptr<Engine>> NewRocksdbEngine(const Config&) {
  return absl::InvalidArgumentError(
      "--engine=rocksdb: librocksdb-dev was not found when kv_bench was built");
}

}  // namespace ashlar::bench
