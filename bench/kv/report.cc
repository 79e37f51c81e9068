#include "kv/report.h"

#include <cstdarg>
#include <cstdio>

namespace ashlar::bench {
namespace {

std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string Format(const char* format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

unsigned long long Big(uint64_t x) { return x; }

void Optional(std::string* line, const char* name, const std::optional<double>& value) {
  if (value.has_value()) *line += Format(", %s %.2f", name, *value);
}

}  // namespace

double Result::ops_per_sec() const {
  return totals.seconds > 0 ? static_cast<double>(totals.ops) / totals.seconds : 0;
}

double Result::micros_per_op() const {
  return totals.ops > 0 ? totals.thread_seconds * 1e6 / static_cast<double>(totals.ops) : 0;
}

double Result::mb_per_sec() const {
  return totals.seconds > 0 ? static_cast<double>(totals.bytes) / 1048576.0 / totals.seconds : 0;
}

std::optional<double> Result::PerOp(double total) const {
  if (totals.ops == 0) return std::nullopt;
  return total / static_cast<double>(totals.ops);
}

std::string ReportLine(const Result& r) {
  std::string line = Format("%-12s : %11.3f micros/op %.0f ops/sec %.3f seconds %llu operations;",
                            r.benchmark.c_str(), r.micros_per_op(), r.ops_per_sec(),
                            r.totals.seconds, Big(r.totals.ops));
  if (r.totals.bytes > 0 || r.reads_checked) line += Format(" %6.1f MB/s", r.mb_per_sec());
  if (r.reads_checked) {
    line += Format(" (%llu of %llu found)", Big(r.totals.found),
                   Big(r.totals.found + r.totals.not_found));
  }
  return line;
}

std::string DetailLine(const Result& r) {
  const Histogram& h = r.totals.latency;
  std::string line;
  if (h.count() > 0) {
    line += Format(", p50 %.1f p99 %.1f p99.9 %.1f max %.0f us%s", h.AtShare(0.5) / 1000,
                   h.AtShare(0.99) / 1000, h.AtShare(0.999) / 1000,
                   static_cast<double>(h.max_ns()) / 1000,
                   r.benchmark == "multireadrandom" ? " a batch" : "");
  }
  if (r.totals.ops > 0) line += Format(", cpu %.2f us/op", *r.PerOp(r.cpu_us));
  if (r.totals.writes > 0) {
    line += Format(", settled in %.2f s%s", r.settle_seconds, r.settled ? "" : " (NOT SETTLED)");
  }
  Optional(&line, "write amp", r.write_amp);
  Optional(&line, "log", r.log_write_amp);
  Optional(&line, "space amp", r.space_amp);
  Optional(&line, "peak", r.space_amp_peak);
  if (r.device.has_value() && r.totals.ops > 0) {
    line += Format(", device reads/op %.3f", *r.PerOp(static_cast<double>(r.device->reads)));
  }
  return line.empty() ? line : "  " + line.substr(2);
}

}  // namespace ashlar::bench
