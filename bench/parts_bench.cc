// What the parts of a call cost in CPU time, without a device: checksums, memtable, table lookup,
// and whole puts and gets on the memory device. Shows which part is worth making faster; says
// nothing of a drive.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "engine/admin/store_admin.h"
#include "engine/base/limits.h"
#include "engine/db/db_impl.h"
#include "engine/format/page.h"
#include "engine/format/table_format.h"
#include "engine/memtable/memtable.h"
#include "io/arena.h"
#include "io/check.h"
#include "io/memory_device.h"

namespace ashlar {
namespace {

// 16 bytes, spread over the key space.
std::string SpreadKey(uint64_t i) {
  char key[17];
  std::snprintf(key, sizeof key, "%016llx",
                static_cast<unsigned long long>(i * 0x9e3779b97f4a7c15ull));
  return key;
}

void VerifyOnePage(benchmark::State& state) {
  std::vector<std::byte> page(kPageBytes, std::byte{7});
  PageHeader header;
  header.used = kPageBytes;
  SealPage(page.data(), header, StoreId{}, ExtentId{1}, 2);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        VerifyPage(page.data(), PageKind::kData, {}, StoreId{}, ExtentId{1}, 2, &header));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * kPageBytes);
}
BENCHMARK(VerifyOnePage);

void FilterLookup(benchmark::State& state) {
  FilterBuilder builder;
  for (uint64_t i = 0; i < 2000; ++i) builder.Add(SpreadKey(i));
  const std::string filter = builder.Finish();
  const std::string absent = SpreadKey(1u << 30);
  for (auto _ : state) benchmark::DoNotOptimize(FilterMayContain(filter, absent));
}
BENCHMARK(FilterLookup);

void MemtableAdd(benchmark::State& state) {
  const std::string value(static_cast<size_t>(state.range(0)), 'v');
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 200'000; ++i) keys.push_back(SpreadKey(i));
  auto memtable = std::make_unique<Memtable>(64u << 20);
  uint64_t sequence = 0;
  for (auto _ : state) {
    if (memtable->bytes_free() < (1u << 20)) {
      state.PauseTiming();
      memtable = std::make_unique<Memtable>(64u << 20);
      state.ResumeTiming();
    }
    ++sequence;
    memtable->Add(sequence, EntryKind::kValue, keys[sequence % keys.size()], value);
  }
}
BENCHMARK(MemtableAdd)->Arg(100)->Arg(1000);

void MemtableGet(benchmark::State& state) {
  Memtable memtable(64u << 20);
  std::vector<std::string> keys;
  const std::string value(100, 'v');
  for (uint64_t i = 1; i <= 200'000; ++i) {
    keys.push_back(SpreadKey(i));
    memtable.Add(i, EntryKind::kValue, keys.back(), value);
  }
  uint64_t i = 0;
  std::string_view found;
  for (auto _ : state) {
    benchmark::DoNotOptimize(memtable.Get(keys[i++ * 7919 % keys.size()], UINT64_MAX, &found));
  }
}
BENCHMARK(MemtableGet);

// A store on a memory device without a volatile cache: what is left is the engine's own work.
struct Store {
  Store() {
    io::MemoryDeviceOptions options;
    options.bytes = 1ull << 30;
    options.volatile_cache = false;
    device = *io::MemoryDevice::Create(options);
    if (!FormatDevice(device.get(), 0, StoreId{{1}}).ok()) std::abort();
    auto opened = DBImpl::Open(Options{}, device.get(), nullptr, Env{});
    if (!opened.ok()) std::abort();
    db = *std::move(opened);
  }
  std::unique_ptr<io::MemoryDevice> device;
  std::unique_ptr<DBImpl> db;
};

void Put(benchmark::State& state) {
  Store store;
  const std::string value(100, 'v');
  WriteOptions options;
  options.durability = state.range(0) != 0 ? Durability::kDurable : Durability::kBuffered;
  uint64_t i = 0;
  for (auto _ : state) {
    if (!store.db->Put(options, SpreadKey(i++ % 1'000'000), value).ok()) {
      state.SkipWithError("a put failed");
      break;
    }
  }
}
BENCHMARK(Put)->ArgName("durable")->Arg(0)->Arg(1);

void Get(benchmark::State& state) {
  Store store;
  constexpr uint64_t kKeys = 500'000;
  const std::string value(100, 'v');
  for (uint64_t i = 0; i < kKeys; ++i) {
    if (!store.db->Put({Durability::kBuffered}, SpreadKey(i), value).ok()) std::abort();
  }
  if (!store.db->MergeAll().ok()) std::abort();
  const bool present = state.range(0) != 0;
  uint64_t i = 0;
  Value found;
  for (auto _ : state) {
    const uint64_t k = i++ * 7919 % kKeys + (present ? 0 : kKeys);
    if (store.db->Get({}, SpreadKey(k), &found).ok() != present) {
      state.SkipWithError("a wrong answer");
      break;
    }
  }
}
BENCHMARK(Get)->ArgName("present")->Arg(1)->Arg(0);

// A store of 64 MiB with 2 MiB of memory, as the enumerating tests open it: read-only, or for
// writing, with `changes` left in its log.
void OpenStore(benchmark::State& state) {
  io::Arena::KeepFreed();
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  auto device = io::MemoryDevice::Create({.bytes = 64u << 20}).value();
  CHECK(FormatDevice(device.get(), 64u << 10, StoreId()).ok());
  Options options;
  options.memory_bytes = 2u << 20;
  const Env env{SystemClock(), InlineExecutor()};
  {
    auto db = DBImpl::Open(options, device.get(), nullptr, env).value();
    for (int i = 0; i < 200; ++i) {
      CHECK(db->Put({}, "key" + std::to_string(i), std::string(100, 'v')).ok());
    }
    CHECK(db->Flush().ok());
    for (int i = 0; i < state.range(1); ++i) {
      CHECK(db->Put({}, "key" + std::to_string(i), std::string(100, 'w')).ok());
    }
    if (state.range(1) == 0) {
      CHECK(db->Close().ok());
    } else {
      device->set_hook([](const io::Request& r, const std::byte*) {
        io::IoStatus dead;
        if (r.op != io::Op::kRead) dead = {.cls = io::IoClass::kFatal, .err = EIO};
        return dead;
      });
      db.reset();
      device->set_hook(nullptr);
    }
  }
  options.read_only = state.range(0) != 0;
  for (auto _ : state) {
    auto db = DBImpl::Open(options, device.get(), nullptr, env);
    CHECK(db.ok());
    state.PauseTiming();
    db->reset();
    state.ResumeTiming();
  }
}
BENCHMARK(OpenStore)
    ->ArgNames({"read_only", "changes"})
    ->Args({1, 0})
    ->Args({1, 100})
    ->Args({0, 0});

}  // namespace
}  // namespace ashlar

BENCHMARK_MAIN();
