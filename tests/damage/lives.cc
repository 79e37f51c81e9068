#include "tests/damage/lives.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ashlar {
namespace {

class Writer {
 public:
  explicit Writer(RecordedStore* store) : store_(*store) {}

  // Batches, most of them of one change.
  void Some(int count, Durability durability = Durability::kBuffered) {
    for (int i = 0; i < count; ++i, ++n_) {
      std::vector<StoreModel::Change> changes = {Change(n_)};
      if (n_ % 7 == 2) changes.push_back(Change(n_ + 1000));
      store_.Write(changes, n_ % 3 == 0 ? Durability::kDurable : durability);
    }
  }

 private:
  static StoreModel::Change Change(uint64_t n) {
    const std::string key = absl::StrCat("key", n * 13 % 47, std::string(n % 5, '-'));
    if (n % 9 == 7) return {key, std::nullopt};
    return {key, Bytes(n % 19 == 3 ? 5000 : 10 + n * 7 % 90, n)};
  }

  RecordedStore& store_;
  uint64_t n_ = 0;
};

void Fill(RecordedStore* store, Writer* writer) {
  store->Open();
  writer->Some(50);
  store->MergeAll();
  writer->Some(24);
  store->Flush();
  writer->Some(16);
  store->Flush();
}

void Long(RecordedStore& store) {
  Writer writer(&store);
  Fill(&store, &writer);
  writer.Some(12);
  store.Sync();  // what a kill takes would be missed by the model
  store.Die();
  store.Open();
  writer.Some(15);
  store.Close();
  store.Open();
  writer.Some(10);
  store.MergeAll();
  writer.Some(8);
  store.Flush();
  writer.Some(8);
  store.Sync();
  store.Die();
  store.Open();
  writer.Some(6);
  store.Close();
  store.Open();
  writer.Some(14);
  store.Sync();
  writer.Some(5);
  store.Die();
}

const Life& Kept(std::map<uint32_t, std::unique_ptr<Life>>* kept, uint32_t lba_bytes,
                 const StoreId& id, const std::function<void(RecordedStore&)>& workload,
                 const Life* before = nullptr) {
  std::unique_ptr<Life>& life = (*kept)[lba_bytes];
  if (life == nullptr) life = std::make_unique<Life>(lba_bytes, id, workload, before);
  return *life;
}

}  // namespace

StoreId OtherStoreId() {
  StoreId id = FixedStoreId();
  id.bytes[5] ^= 1;
  return id;
}

const Life& ClosedLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, FixedStoreId(), [](RecordedStore& store) {
    Writer writer(&store);
    Fill(&store, &writer);
    store.Close();
  });
}

const Life& UnclosedLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, FixedStoreId(), [](RecordedStore& store) {
    Writer writer(&store);
    Fill(&store, &writer);
    writer.Some(30);
    store.Sync();
    writer.Some(4);
    store.Sync();
    store.Die();
  });
}

const Life& LongLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, FixedStoreId(), Long);
}

const Life& MergingLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, FixedStoreId(), [](RecordedStore& store) {
    Writer writer(&store);
    store.Open();
    for (int round = 0; round < 9; ++round) {
      writer.Some(9);
      if (round % 3 == 2) {
        store.MergeAll();
      } else {
        store.Flush();
      }
      if (round == 4) {
        store.Close();
        store.Open();
      }
    }
    store.Close();
  });
}

const Life& BatchLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, FixedStoreId(), [](RecordedStore& store) {
    store.Open();
    uint64_t n = 0;
    for (uint64_t batch = 0; batch < 44; ++batch) {
      std::vector<StoreModel::Change> changes;
      for (uint64_t i = 0; i < 1 + batch % 9; ++i, ++n) {
        const std::string key = absl::StrCat("key", n * 5 % 53);
        if (n % 6 == 4) {
          changes.emplace_back(key, std::nullopt);
        } else {
          // Now and then a group of several records, and of several buffers of the log.
          changes.emplace_back(key, Bytes(batch == 30 && i == 1 ? 40000 : 30 + n % 5 * 300, n));
        }
      }
      store.Write(changes, batch % 4 == 3 ? Durability::kDurable : Durability::kBuffered);
      if (batch % 11 == 6) store.Sync();
      if (batch == 25) store.Flush();
    }
    store.Sync();
    store.Die();
  });
}

const Life& TwoSegmentLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, FixedStoreId(), [](RecordedStore& store) {
    store.Open();
    // Half a MiB is a memtable.
    for (uint64_t n = 0; n < 24; ++n) {
      store.Put(absl::StrCat("key", n * 5 % 13), Bytes(n % 3 == 0 ? 60 : 36000, n));
    }
    store.Die();
  });
}

Life::Moment InTwoSegments(const Life& life) {
  // The call in which a table was written is the one with the most commands, but for the open.
  const auto& moments = life.moments();
  size_t sealing = 1;
  for (size_t i = 2; i < moments.size(); ++i) {
    if (moments[i].commands - moments[i - 1].commands >
        moments[sealing].commands - moments[sealing - 1].commands) {
      sealing = i;
    }
  }
  // Its first command writes the group to the new segment.
  return {moments[sealing - 1].commands + 1, moments[sealing].started,
          moments[sealing - 1].durable};
}

const Life& OtherLife(uint32_t lba_bytes) {
  static std::map<uint32_t, std::unique_ptr<Life>> kept;
  return Kept(&kept, lba_bytes, OtherStoreId(), Long);
}

const Life& LaterLife(uint32_t lba_bytes, bool close) {
  static std::map<uint32_t, std::unique_ptr<Life>> closed, unclosed;
  return Kept(
      close ? &closed : &unclosed, lba_bytes, OtherStoreId(),
      [&](RecordedStore& store) {
        Writer writer(&store);
        store.Open();
        writer.Some(20);
        store.Flush();
        writer.Some(9);
        if (close) {
          store.Close();
        } else {
          store.Die();
        }
      },
      &LongLife(lba_bytes));
}

}  // namespace ashlar
