// Workloads for a store whose drive fails: each goes on until a call fails for good, and knows what
// was acknowledged by then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/db/db_impl.h"
#include "tests/support/content.h"
#include "tests/support/ordering_monitor.h"
#include "tests/support/sim_device.h"
#include "tests/support/store_model.h"

namespace ashlar {

// A drive with an empty store on it, all of it durable.
std::unique_ptr<SimDevice> FormattedDrive(const SimDeviceOptions& options, uint64_t seed);

// The store of one run. Steps do nothing once one of them has failed.
class ScriptStore {
 public:
  explicit ScriptStore(SimDevice* device) : device_(device) {}
  ~ScriptStore();

  void Open();
  void Write(const std::vector<StoreModel::Change>& changes, Durability durability);
  void Put(uint64_t key, size_t size, uint64_t n, Durability durability = Durability::kDurable) {
    Write({{Key(key), Bytes(size, n)}}, durability);
  }
  void Delete(uint64_t key) { Write({{Key(key), std::nullopt}}, Durability::kDurable); }
  void Sync();
  void Flush();
  void MergeAll();
  void Scan();  // what it shows is what was acknowledged
  void Close();
  void Die();  // the process; what it left in flight lands

  // Called before each Close, after which there is no store to ask any more.
  void set_before_close(std::function<void()> look) { before_close_ = std::move(look); }

  bool stopped() const { return stopped_; }
  const absl::Status& failed() const { return failed_; }  // the call that stopped it
  DBImpl* db() const { return db_.get(); }
  const StoreModel& model() const { return model_; }
  uint32_t acknowledged() const { return acknowledged_; }
  uint32_t durable() const { return durable_; }
  // What was found wrong on the way; empty: nothing.
  const std::string& wrong() const { return wrong_; }

 private:
  bool Ended(const absl::Status& s);
  void Watch();

  SimDevice* const device_;
  std::function<void()> before_close_;
  StoreModel model_;
  std::unique_ptr<OrderingMonitor> monitor_;
  std::unique_ptr<DBImpl> db_;
  std::vector<std::vector<StoreModel::Change>> commits_;
  uint32_t acknowledged_ = 0, durable_ = 0;
  bool stopped_ = false;
  absl::Status failed_;
  std::string wrong_;
};

struct Script {
  const char* name;
  SimDeviceOptions drive;
  std::function<void(ScriptStore&)> run;
};
const std::vector<Script>& Scripts();

}  // namespace ashlar
