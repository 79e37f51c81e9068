// Decoded top indexes and index partitions, least recently used first out. Bounded by its charge,
// whatever the data: what does not fit is read again. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/base/sync.h"
#include "engine/base/types.h"
#include "engine/format/table_format.h"

namespace ashlar {

struct TopIndex {
  Footer footer;
  std::vector<TopEntry> entries;
  size_t charge() const;
  // The partition that answers for `key`: the last whose key is not greater, else the first.
  size_t PartitionFor(std::string_view key) const;
};

class IndexCache {
 public:
  explicit IndexCache(uint64_t capacity_bytes);

  // `index` is the number of a partition, or kTop.
  static constexpr uint32_t kTop = UINT32_MAX;
  std::shared_ptr<const TopIndex> FindTop(WriteId table);
  std::shared_ptr<const Partition> FindPartition(WriteId table, uint32_t index);
  void Insert(WriteId table, std::shared_ptr<const TopIndex> top);
  void Insert(WriteId table, uint32_t index, std::shared_ptr<const Partition> partition);
  // Empties it. For tests: what is read next is read from the device.
  void Clear();

 private:
  struct Key {
    uint64_t table;
    uint32_t index;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      const uint64_t h = (k.table ^ uint64_t{k.index} << 40) * 0x9e3779b97f4a7c15;
      return h ^ h >> 29;
    }
  };
  struct Item {
    Key key;
    std::shared_ptr<const void> object;
    size_t charge;
  };
  struct Shard {
    Mutex mutex;
    std::list<Item> items ABSL_GUARDED_BY(mutex);  // most recently used in front
    std::unordered_map<Key, std::list<Item>::iterator, KeyHash> map ABSL_GUARDED_BY(mutex);
    uint64_t charge ABSL_GUARDED_BY(mutex) = 0;
  };
  static constexpr size_t kShards = 8;

  Shard& ShardOf(const Key& key) { return shards_[KeyHash()(key) >> 7 & (kShards - 1)]; }
  std::shared_ptr<const void> Find(const Key& key);
  void Put(const Key& key, std::shared_ptr<const void> object, size_t charge);

  const uint64_t shard_capacity_;
  std::array<Shard, kShards> shards_;
};

}  // namespace ashlar
