// format, info, check: what works on a path and not on an open store.
#include <string>

#include "ashlar/admin.h"
#include "commands.h"
#include "print.h"

namespace ashlar::tools {
namespace {

std::string Safe(std::string_view text) { return EscapeForTerminal(text, Lines::kEscape); }

// Prints, and turns the outcome into an exit code: an answer that nobody could read is an I/O
// error.
int Print(const std::string& text, int code, bool json) {
  Output out;
  out.Write(text);
  const absl::Status written = out.Flush();
  return written.ok() ? code : Fail(written, json);
}

std::string ExtentLine(const StoreInfo& info, uint64_t extents) {
  return Grouped(extents) + "  (" + HumanBytes(extents * info.extent_bytes) + ")";
}

// "3-7, 12"
std::string Ranges(const std::vector<uint32_t>& extents) {
  std::string text;
  for (size_t i = 0; i < extents.size();) {
    size_t last = i;
    while (last + 1 < extents.size() && extents[last + 1] == extents[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(extents[i]);
    if (last > i) text += "-" + std::to_string(extents[last]);
    i = last + 1;
  }
  return text;
}

std::string Summary(const StoreInfo& info) {
  Columns columns("ll");
  const auto row = [&columns](const char* name, std::string text) {
    columns.Row({name, std::move(text)});
  };
  row("store", Safe(info.store_id));
  row("device", Safe(info.device));
  row("device size",
      HumanBytes(info.device_bytes) + "  (" + Grouped(info.device_bytes) + " bytes)");
  row("store size", HumanBytes(info.store_bytes) + "  (" + Grouped(info.store_bytes) + " bytes)");
  row("LBA, extent", HumanBytes(info.lba_bytes) + ", " + HumanBytes(info.extent_bytes));
  row("format version", std::to_string(info.format_version));
  row("opened to write", Grouped(info.epoch) + " times");
  row("generation", Grouped(info.generation));
  row("last sequence", Grouped(info.last_sequence) + "  (as of the manifest)");
  row("closed cleanly", info.clean ? "yes" : "no, the log is replayed at open");
  row("extents", ExtentLine(info, info.extents_total));
  row("  superblock", ExtentLine(info, info.extents_superblock));
  row("  manifest", ExtentLine(info, info.extents_manifest));
  row("  log", ExtentLine(info, info.extents_log));
  row("  tables", ExtentLine(info, info.extents_table));
  row("  free", ExtentLine(info, info.extents_free));
  row("reserve", HumanBytes(info.reserve_bytes) + "  (kept for deletes and merges)");
  row("tables", Grouped(info.tables.size()));
  return columns.Text();
}

std::string TableList(const StoreInfo& info, InfoParts parts) {
  if (info.tables.empty()) return "\nno tables\n";
  Columns columns(parts.tables ? "rrrrlll" : "rrl");
  if (parts.tables) {
    columns.Row({"table", "level", "entries", "size", "smallest", "largest",
                 parts.extents ? "extents" : ""});
  } else {
    columns.Row({"table", "level", "extents"});
  }
  for (const TableInfo& t : info.tables) {
    const std::string extents = parts.extents ? Ranges(t.extents) : "";
    if (parts.tables) {
      columns.Row({std::to_string(t.id), std::to_string(t.level), Grouped(t.entries),
                   HumanBytes(t.bytes), Quoted(t.smallest), Quoted(t.largest), extents});
    } else {
      columns.Row({std::to_string(t.id), std::to_string(t.level), extents});
    }
  }
  return "\n" + columns.Text();
}

std::string LogList(const StoreInfo& info) {
  if (info.log_segments.empty()) return "\nno log segments\n";
  Columns columns("rrl");
  columns.Row({"log segment", "size", "extents"});
  for (size_t i = 0; i < info.log_segments.size(); ++i) {
    const auto& extents = info.log_segments[i];
    columns.Row(
        {std::to_string(i), HumanBytes(extents.size() * info.extent_bytes), Ranges(extents)});
  }
  return "\n" + columns.Text();
}

std::string CheckText(const CheckReport& report) {
  Columns counts("lr");
  counts.Row({"pages verified", Grouped(report.pages_verified)});
  counts.Row({"entries in tables", Grouped(report.entries)});
  counts.Row({"log records", Grouped(report.log_records)});
  counts.Row({"damaged places", Grouped(report.damage_total)});
  std::string text = counts.Text();
  if (report.damage.empty()) return text + "everything that is live verifies\n";
  Columns places("lll");
  for (const Damage& d : report.damage) places.Row({Safe(d.what), Safe(d.where), Safe(d.detail)});
  text += "\nDAMAGED\n" + places.Text();
  if (report.damage_total > report.damage.size()) {
    text += "and " + Grouped(report.damage_total - report.damage.size()) + " more\n";
  }
  return text;
}

}  // namespace

int RunFormat(const FormatCommand& command) {
  FormatOptions options;
  options.serial = command.serial;
  options.wipe_store = command.wipe_store;
  options.wipe_foreign = command.wipe_foreign;
  if (!command.size.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(command.size);
    if (!bytes.ok()) return Fail(bytes.status(), command.json);
    options.file_bytes = *bytes;
  }
  if (!command.extent_bytes.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(command.extent_bytes);
    if (!bytes.ok()) return Fail(bytes.status(), command.json);
    if (*bytes > std::numeric_limits<uint32_t>::max()) {
      return Fail(absl::InvalidArgumentError("--extent-bytes must be below 4G"), command.json);
    }
    options.extent_bytes = static_cast<uint32_t>(*bytes);
  }
  const absl::StatusOr<std::string> id = FormatStore(command.path, options);
  if (!id.ok()) return Fail(id.status(), command.json);
  const std::string text = command.json ? JsonLine({{"path", command.path}, {"store_id", *id}})
                                        : Safe(command.path) + ": made store " + Safe(*id) + "\n";
  return Print(text, kExitOk, command.json);
}

int RunInfo(const InfoCommand& command) {
  const absl::StatusOr<StoreInfo> info = InspectStore(command.path);
  if (!info.ok()) return Fail(info.status(), command.json);
  if (command.json) return Print(JsonInfo(*info, command.parts), kExitOk, true);
  std::string text = Summary(*info);
  if (command.parts.tables || command.parts.extents) text += TableList(*info, command.parts);
  if (command.parts.log || command.parts.extents) text += LogList(*info);
  return Print(text, kExitOk, false);
}

int RunCheck(const CheckCommand& command) {
  absl::StatusOr<CheckReport> report;
  {
    ProgressLine line("verified");
    report = CheckStore(command.path,
                        [&line](uint64_t done, uint64_t total) { line.Show(done, total); });
  }
  if (!report.ok()) return Fail(report.status(), command.json);
  const int code = report->damage_total == 0 ? kExitOk : kExitNo;
  return Print(command.json ? JsonCheck(*report) : CheckText(*report), code, command.json);
}

}  // namespace ashlar::tools
