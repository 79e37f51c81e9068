// A call that is under way keeps what it looks at: extents that were freed under it are not used
// again before it ends.
#include "engine/db/store_iterator.h"
#include "tests/db/rig.h"

namespace ashlar {
namespace {

TEST(View, KeepsItsExtentsWhileTheStoreGoesRoundTheDevice) {
  Rig rig;
  ASHLAR_OK(rig.Open());
  constexpr uint64_t kKeys = 300;
  const auto fill = [&](uint64_t round) -> absl::Status {
    for (uint64_t i = 0; i < kKeys; ++i) {
      const absl::Status s =
          rig->Put(kBufferedWrite, absl::StrCat("key", i), Bytes(round * kKeys + i, 16'000));
      if (!s.ok()) return s;
    }
    return rig->MergeAll();
  };
  ASHLAR_OK(fill(0));
  ViewPtr view = *rig->TakeView();
  // What is freed from here on is kept for the view, so the store fills up before it has come round
  // the device of 64 MiB. If it did not keep it, 20 times 5 MB would go over everything.
  absl::Status s;
  uint64_t round = 1;
  while (s.ok() && round <= 20) s = fill(round++);
  EXPECT_TRUE(absl::IsResourceExhausted(s)) << s;
  EXPECT_NE(s.message().find("readers hold"), absl::string_view::npos) << s;
  {
    const auto it = NewViewIterator(*view);
    uint64_t seen = 0;
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      if (it->sequence() > kKeys) continue;  // the memtable went on
      ++seen;
      ASSERT_TRUE(it->LoadValue()) << it->status();
      const uint64_t i = std::stoull(std::string(it->key().substr(3)));
      ASSERT_EQ(it->value(), Bytes(i, 16'000)) << it->key();
    }
    ASSERT_TRUE(it->status().ok()) << it->status();
    EXPECT_EQ(seen, kKeys);
  }
  // Once nobody looks, they come back.
  view.reset();
  for (int i = 0; i < 3; ++i) ASHLAR_OK(fill(round++));
  ASHLAR_OK(rig.Close());
  rig.Check("after Close");
}

}  // namespace
}  // namespace ashlar
