// What the command line of kv_bench says, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::bench {

struct Config {
  std::vector<std::string> benchmarks;
  std::string engine = "ashlar";
  std::string device;
  std::string serial;      // what a device that reports a serial must report
  std::string wipe_store;  // the id of a store that can't be opened and is to be replaced
  uint64_t file_size = 0;  // of a file that is to be made; 0: four times the data, 1 GiB at least
  uint64_t num = 1000000;
  uint64_t reads = 0;  // of each thread; 0: num
  uint64_t key_size = 16;
  uint64_t value_size = 100;
  uint64_t threads = 1;
  uint64_t duration = 0;  // seconds; 0: as many operations as --num or --reads say
  uint64_t seed = 1;
  uint64_t cache_size = 256ull << 20;
  uint64_t write_buffer_size = 64ull << 20;
  uint64_t batch_size = 1;
  uint64_t seek_nexts = 0;
  uint64_t write_rate_limit = 0;  // bytes a second over all writers; 0: none
  uint64_t settle_quiet_ms = 300;
  uint64_t idle_ms = 10000;
  std::string compression_type = "none";
  uint64_t bloom_bits = 10;
  bool sync = false;
  bool histogram = false;
  bool use_existing_db = false;
  bool destroy_data = false;
  bool touch = true;

  uint64_t reads_per_thread() const { return reads != 0 ? reads : num; }
  uint64_t data_bytes() const { return num * (key_size + value_size); }
};

// Of all that changes what is measured; not of the device and the files.
std::string ConfigHash(const Config& config);

}  // namespace ashlar::bench
