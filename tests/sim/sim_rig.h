// A formatted drive and the executor that its store runs on: one life of a store with its threads
// and callers, from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "io/check.h"
#include "tests/support/crash_rig.h"
#include "tests/support/sim_device.h"
#include "tests/support/sim_executor.h"

namespace ashlar {

struct SimRig {
  explicit SimRig(uint64_t seed) : device({}, seed), sim(seed) {
    CHECK(FormatDevice(&device, 64u << 10, FixedStoreId()).ok());
    device.set_sim(&sim);
  }

  // Opens the store in the first simulated thread, for the length of `body`. Empty, or what was
  // wrong: what `body` says, or why the store can't be opened.
  std::string Run(const std::function<std::string(DBImpl*)>& body) {
    std::string wrong;
    sim.Run([&] {
      auto db = DBImpl::Open(SmallOptions(), &device, nullptr, Env{&sim, &sim});
      wrong = db.ok() ? body(db->get()) : db.status().ToString();
    });
    return wrong;
  }

  SimDevice device;
  SimExecutor sim;
};

}  // namespace ashlar
