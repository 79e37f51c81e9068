#include "tests/sim/simulation.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/admin/store_admin.h"
#include "engine/db/db_impl.h"
#include "tests/support/content.h"

namespace ashlar {
namespace {

// The store shows, for each caller, its writes up to some point at or behind the last durable one;
// no write of anybody without those that had been acknowledged before it began; goes on from there,
// but where it is only `looking`. With `damage` DataLoss is an answer too, and any point is right.
std::string Compare(const Setup& setup, SimDevice* device, bool damage, bool looking,
                    std::vector<Caller>* callers) {
  Options options;
  options.read_only = true;
  options.memory_bytes = setup.memory_bytes;
  const auto refused = [&](const char* call, const absl::Status& s) {
    return damage && absl::IsDataLoss(s) ? "" : absl::StrCat(call, ": ", s.ToString());
  };
  auto db = DBImpl::Open(options, device, nullptr, Env{SystemClock(), InlineExecutor()});
  if (!db.ok()) return refused("reopening", db.status());
  std::vector<Contents> found(callers->size());
  {
    auto it = (*db)->NewIterator({});
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const std::string key(it->key());
      const std::optional<size_t> owner = OwnerOfKey(key);
      if (!owner) return "a key " + key;
      const std::string value(it->value());
      if (!it->status().ok()) break;
      // Whatever else is damaged: nothing is shown that was never written.
      const Caller& c = (*callers)[*owner];
      const bool written = std::any_of(c.writes.begin(), c.writes.end(), [&](const auto& write) {
        return std::any_of(write.changes.begin(), write.changes.end(), [&](const Change& change) {
          return change.key == key && change.value == value;
        });
      });
      if (damage && !written) return "a value of " + key + " that was never written";
      found[*owner][key] = value;
    }
    if (!it->status().ok()) return refused("a scan", it->status());
  }
  std::vector<Points> points;
  std::vector<size_t> most;
  for (Caller& c : *callers) {
    const Contents& shown = found[static_cast<size_t>(c.id)];
    const size_t least = damage ? 0 : c.durable;
    Contents state;
    for (size_t i = 0; i < least; ++i) Apply(c.writes[i].changes, &state);
    const auto fits = PointsOf(c, least, std::move(state), c.writes.size(), shown);
    if (!fits) {
      return absl::StrCat(c.Prefix(), " is at no point between its ", least, " durable and ",
                          c.writes.size(), " attempted writes");
    }
    points.push_back(*fits);
    most.push_back(c.writes.size());
    if (looking) continue;
    c.contents = shown;
    for (uint32_t k = 0; k < 6; ++k) {
      const std::string key = absl::StrCat(c.Prefix(), Mix({c.durable, k}) % setup.keys);
      Value value;
      const absl::Status s = (*db)->Get({}, key, &value);
      const auto expected = c.contents.find(key);
      if (s.ok() ? expected == c.contents.end() || value.view() != expected->second
                 : !absl::IsNotFound(s) || expected != c.contents.end()) {
        if (damage && absl::IsDataLoss(s)) continue;
        return absl::StrCat("Get of ", key, " after reopening: ", s.ToString());
      }
    }
  }
  if (std::string missing = MissingWrite(*callers, points, most); !missing.empty()) return missing;
  for (size_t a = 0; !looking && a < callers->size(); ++a) {
    Caller& c = (*callers)[a];
    c.acknowledged = points[a].first;
    c.writes.resize(c.acknowledged);
  }
  return "";
}

}  // namespace

Simulation::Simulation(uint64_t seed) : seed_(seed), lives_(LivesOf(seed)) {
  for (const LifePlan& life : lives_) items_ += life.items();
}

std::string Simulation::Text() const {
  const Setup s = SetupOf(seed_);
  return absl::StrCat(s.device.Text(), "; extents of ", s.extent_bytes, ", memory ", s.memory_bytes,
                      ", base level of ", s.level_base_bytes, ", ", s.keys, " keys, one value in ",
                      s.large, " large; ", items_, " items");
}

std::string Simulation::Text(const Keep& keep) const {
  static constexpr const char* kLucks[] = {"all lost", "all kept", "each kept or lost", "torn"};
  std::string text = Text() + "\n";
  size_t item = 0;
  for (const LifePlan& life : lives_) {
    uint64_t operations = 0;
    for (const uint32_t n : life.operations) {
      for (uint32_t i = 0; i < n; ++i) operations += keep(item++);
    }
    absl::StrAppend(&text, "life: ", operations, " operations");
    for (const DriveFault& f : life.faults) {
      if (keep(item++)) absl::StrAppend(&text, "; ", FaultText(f));
    }
    if (life.dies_at > 0 && keep(item++)) {
      absl::StrAppend(&text, "; dies at command ", life.dies_at,
                      life.power_cut ? ", power cut: " : "",
                      life.power_cut ? kLucks[static_cast<int>(life.luck)] : "");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Simulation::Run(const Keep& keep, SimulationCounts* counts) {
  const Setup setup = SetupOf(seed_);
  SimDevice device(setup.device, Mix({seed_, 4}));
  FILE* log = nullptr;
  if (const char* const path = std::getenv("ASHLAR_SIM_LOG"); path != nullptr) {
    log = std::fopen(path, "w");
    if (log == nullptr) return absl::StrCat("ASHLAR_SIM_LOG=", path, ": can't be written");
    device.set_log(log);
  }
  StoreId id;
  for (size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<uint8_t>(Mix({seed_, 5, i}));
  std::string wrong;
  if (absl::Status s = FormatDevice(&device, setup.extent_bytes, id); !s.ok()) return s.ToString();
  device.PowerCut(SimDevice::Luck::kLoseAll);  // format has made all of it durable
  std::vector<Caller> callers(kCallers);
  for (int i = 0; i < kCallers; ++i) callers[static_cast<size_t>(i)].id = i;
  size_t items_before = 0;
  uint64_t acknowledgements = 0;
  for (const LifePlan& life : lives_) {
    const LifeEnd end =
        RunLife(setup, life, keep, items_before, &device, &callers, &acknowledgements, counts);
    const bool damage = end.silent_damage, died = end.died;
    wrong = end.wrong;
    device.Revive();
    items_before += life.items();
    if (!wrong.empty()) break;
    if (life.power_cut) {
      counts->cuts += died;
      device.PowerCut(life.luck);
    } else {
      counts->deaths += died;
      // A read-only open takes no claim: it may look on while what is left lands.
      if (device.leftovers() > 0 && !damage && Mix({life.seed, 6}) % 2 == 0) {
        ++counts->looked_on;
        device.LandLeftoversLater(400'000);
        wrong = Compare(setup, &device, false, true, &callers);
        if (!wrong.empty()) wrong = "looking on: " + wrong;
      }
      device.LandLeftovers();
    }
    if (!damage && wrong.empty()) {
      auto report = CheckDevice(&device, nullptr);
      if (!report.ok()) wrong = "check: " + report.status().ToString();
      if (report.ok() && report->damage_total > 0) {
        const Damage& d = report->damage.front();
        wrong = absl::StrCat("check: ", d.what, ": ", d.where, ": ", d.detail);
      }
    }
    if (wrong.empty()) wrong = Compare(setup, &device, damage, false, &callers);
    if (damage || !wrong.empty()) break;
  }
  if (!wrong.empty()) {
    if (const char* const path = std::getenv("ASHLAR_SIM_IMAGE"); path != nullptr) {
      const absl::Status exported = ExportImage(device.contents(), path);
      if (!exported.ok()) absl::StrAppend(&wrong, "; the image: ", exported.message());
    }
  }
  if (log != nullptr) std::fclose(log);
  return wrong;
}

}  // namespace ashlar
