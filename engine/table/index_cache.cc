#include "engine/table/index_cache.h"

#include <algorithm>

namespace ashlar {

size_t TopIndex::charge() const {
  size_t bytes = sizeof(TopIndex) + entries.capacity() * sizeof(TopEntry);
  for (const TopEntry& e : entries) bytes += e.key.capacity();
  return bytes;
}

size_t TopIndex::PartitionFor(std::string_view key) const {
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), key,
      [](std::string_view k, const TopEntry& e) { return k < std::string_view(e.key); });
  return after == entries.begin() ? 0 : static_cast<size_t>(after - entries.begin()) - 1;
}

IndexCache::IndexCache(uint64_t capacity_bytes) : shard_capacity_(capacity_bytes / kShards) {}

std::shared_ptr<const TopIndex> IndexCache::FindTop(WriteId table) {
  return std::static_pointer_cast<const TopIndex>(Find({table.raw(), kTop}));
}
std::shared_ptr<const Partition> IndexCache::FindPartition(WriteId table, uint32_t index) {
  return std::static_pointer_cast<const Partition>(Find({table.raw(), index}));
}
void IndexCache::Insert(WriteId table, std::shared_ptr<const TopIndex> top) {
  const size_t charge = top->charge();
  Put({table.raw(), kTop}, std::move(top), charge);
}
void IndexCache::Insert(WriteId table, uint32_t index, std::shared_ptr<const Partition> partition) {
  const size_t charge = partition->charge();
  Put({table.raw(), index}, std::move(partition), charge);
}

void IndexCache::Clear() {
  for (Shard& shard : shards_) {
    MutexLock lock(&shard.mutex);
    shard.map.clear();
    shard.items.clear();
    shard.charge = 0;
  }
}

std::shared_ptr<const void> IndexCache::Find(const Key& key) {
  Shard& shard = ShardOf(key);
  MutexLock lock(&shard.mutex);
  const auto it = shard.map.find(key);
  if (it == shard.map.end()) return nullptr;
  shard.items.splice(shard.items.begin(), shard.items, it->second);
  return it->second->object;
}

void IndexCache::Put(const Key& key, std::shared_ptr<const void> object, size_t charge) {
  constexpr size_t kItemBytes = 160;  // list node, map node and control block
  charge += kItemBytes;
  Shard& shard = ShardOf(key);
  MutexLock lock(&shard.mutex);
  if (charge > shard_capacity_ || shard.map.count(key) != 0) return;
  shard.items.push_front({key, std::move(object), charge});
  shard.map[key] = shard.items.begin();
  shard.charge += charge;
  while (shard.charge > shard_capacity_) {
    const Item& last = shard.items.back();
    shard.charge -= last.charge;
    shard.map.erase(last.key);
    shard.items.pop_back();
  }
}

}  // namespace ashlar
