// The only source of kv_bench that includes nlohmann-json, which is slow to compile.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "kv/report.h"

namespace ashlar::bench {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json DeviceJson(const Result& r) {
  Json j;
  j["path"] = r.device_path;
  j["backend"] = TextOrNull(r.engine.backend);
  j["completion"] = TextOrNull(r.engine.completion);
  j["fixed_buffers"] = OrNull(r.engine.fixed_buffers);
  const auto count = [&](uint64_t DeviceCounters::*field) {
    return r.device.has_value() ? Json((*r.device).*field) : Json(nullptr);
  };
  j["reads"] = count(&DeviceCounters::reads);
  j["writes"] = count(&DeviceCounters::writes);
  j["discards"] = count(&DeviceCounters::discards);
  j["flushes"] = count(&DeviceCounters::flushes);
  j["bytes_read"] = count(&DeviceCounters::bytes_read);
  j["bytes_written"] = count(&DeviceCounters::bytes_written);
  j["bytes_discarded"] = count(&DeviceCounters::bytes_discarded);
  return j;
}

Json ResultJson(const Result& r) {
  const Histogram& h = r.totals.latency;
  Json j;
  j["engine"] = r.engine.name;
  j["engine_version"] = r.engine.version;
  j["durability"] = r.engine.durability;
  j["assertions"] = OrNull(r.engine.assertions);
  j["benchmark"] = r.benchmark;
  j["threads"] = r.threads;
  j["num"] = r.num;
  j["batch_size"] = r.batch_size;
  j["ops"] = r.totals.ops;
  j["found"] = r.totals.found;
  j["not_found"] = r.totals.not_found;
  j["background_writes"] = r.totals.background_writes;
  j["seconds"] = r.totals.seconds;
  j["settle_seconds"] = r.settle_seconds;
  j["settled"] = r.settled;
  j["ops_per_sec"] = r.ops_per_sec();
  j["micros_per_op"] = r.micros_per_op();
  j["mb_per_sec"] = r.mb_per_sec();
  Json latency;
  latency["mean"] = h.mean_ns() / 1000;
  latency["p50"] = h.AtShare(0.5) / 1000;
  latency["p95"] = h.AtShare(0.95) / 1000;
  latency["p99"] = h.AtShare(0.99) / 1000;
  latency["p999"] = h.AtShare(0.999) / 1000;
  latency["max"] = static_cast<double>(h.max_ns()) / 1000;
  j["latency_us"] = latency;
  j["device"] = DeviceJson(r);
  j["user_bytes_written"] = r.totals.written_bytes;
  j["write_amp"] = OrNull(r.write_amp);
  j["log_write_amp"] = OrNull(r.log_write_amp);
  std::optional<double> reads, bytes_read;
  if (r.device.has_value()) {
    reads = r.PerOp(static_cast<double>(r.device->reads));
    bytes_read = r.PerOp(static_cast<double>(r.device->bytes_read));
  }
  j["reads_per_op"] = OrNull(reads);
  j["bytes_read_per_op"] = OrNull(bytes_read);
  j["space_amp"] = OrNull(r.space_amp);
  j["space_amp_peak"] = OrNull(r.space_amp_peak);
  j["cpu_us_per_op"] = OrNull(r.PerOp(r.cpu_us));
  j["user_cpu_us_per_op"] = OrNull(r.PerOp(r.user_cpu_us));
  j["max_rss_bytes"] = r.max_rss_bytes;
  j["stall_ms"] = OrNull(r.stall_ms);
  j["config_hash"] = r.config_hash;
  j["commit"] = r.commit;
  return j;
}

// What is set and a number.
void Take(const Json& object, const char* name, const std::string& as, JsonList::Figures* figures) {
  const auto it = object.find(name);
  if (it != object.end() && it->is_number()) (*figures)[as] = it->get<double>();
}

}  // namespace

struct JsonList::Rep {
  Json list = Json::array();
};

JsonList::JsonList() : rep_(std::make_unique<Rep>()) {}
JsonList::~JsonList() = default;

void JsonList::Add(const Result& result) { rep_->list.push_back(ResultJson(result)); }

absl::StatusOr<std::vector<JsonList::Entry>> JsonList::AddFile(const std::string& path,
                                                               uint64_t round) {
  std::ifstream in(path);
  Json list = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) {
    return absl::InternalError(absl::StrCat(path, ": not the JSON of a run"));
  }
  std::vector<Entry> entries;
  for (Json& object : list) {
    Entry e;
    e.benchmark = object["benchmark"].get<std::string>();
    e.engine = object["engine"].get<std::string>();
    const Json& assertions = object["assertions"];
    e.label = absl::StrCat(e.engine, " ", object["engine_version"].get<std::string>(), " (",
                           object["durability"].get<std::string>(),
                           assertions.is_boolean() && assertions.get<bool>()
                               ? ", built WITH ASSERTIONS, which slow it down"
                               : "",
                           ")");
    Take(object, "ops_per_sec", "ops/sec", &e.figures);
    Take(object["latency_us"], "p50", "p50", &e.figures);
    Take(object["latency_us"], "p99", "p99", &e.figures);
    Take(object, "cpu_us_per_op", "cpu/op", &e.figures);
    if (object["user_bytes_written"] != 0) {
      Take(object, "write_amp", "write amp", &e.figures);
      Take(object, "space_amp", "space amp", &e.figures);
      Take(object, "space_amp_peak", "space peak", &e.figures);
    } else {
      Take(object, "reads_per_op", "reads/op", &e.figures);
    }
    entries.push_back(std::move(e));
    object["round"] = round;
    rep_->list.push_back(std::move(object));
  }
  return entries;
}

absl::Status JsonList::Write(const std::string& path) const {
  std::ofstream out(path, std::ios::trunc);
  out << rep_->list.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) return absl::InternalError(absl::StrCat(path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace ashlar::bench
