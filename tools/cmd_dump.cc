// dump: every record, in key order, to standard output.
#include <stdio.h>

#include "ashlar/admin.h"
#include "commands.h"
#include "print.h"
#include "record_format.h"
#include "store.h"

namespace ashlar::tools {
namespace {

// Ends a salvage whose reader went away; never seen outside this file.
absl::Status ReaderGone() { return absl::CancelledError(); }

class Dumper {
 public:
  Dumper(RecordFormat format, const DumpCommand& command, Output* out)
      : escape_(format == RecordFormat::kStanza && out->IsTerminal()),
        writer_(format, command.key_field),
        out_(out) {}

  absl::Status Write(std::string_view key, std::string_view value) {
    record_.clear();
    if (absl::Status s = writer_.Append(key, value, &record_); !s.ok()) return s;
    out_->Write(escape_ ? EscapeForTerminal(record_, Lines::kKeep) : record_);
    return out_->open() ? absl::OkStatus() : ReaderGone();
  }

 private:
  const bool escape_;
  const RecordWriter writer_;
  Output* const out_;
  std::string record_;
};

absl::Status DumpStore(DB& db, Dumper* dumper) {
  const auto it = db.NewIterator(ReadOptions{});
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    if (absl::Status s = dumper->Write(it->key(), it->value()); !s.ok()) return s;
  }
  return it->status();
}

void TellDamage(const std::vector<Damage>& damage, bool json) {
  if (json) {
    fputs(JsonDamage(damage).c_str(), stderr);
    return;
  }
  Columns places("lll");
  for (const Damage& d : damage) {
    places.Row({EscapeForTerminal(d.what, Lines::kEscape),
                EscapeForTerminal(d.where, Lines::kEscape),
                EscapeForTerminal(d.detail, Lines::kEscape)});
  }
  fprintf(stderr, "ashlarctl: %zu damaged places; around them records are missing or older:\n%s",
          damage.size(), places.Text().c_str());
}

// The outcome of the dump and that of the writing of it: a reader that went away has what it
// wanted.
absl::Status Outcome(absl::Status dumped, Output* out) {
  const absl::Status written = out->Flush();
  if (absl::IsCancelled(dumped)) return written;
  return dumped.ok() ? written : dumped;
}

}  // namespace

int RunDump(const DumpCommand& command) {
  const auto format = RecordFormatFromName(command.json ? "jsonl" : command.format);
  if (!format) return Fail(absl::InvalidArgumentError("no such format"), command.json);
  Output out;
  if (*format == RecordFormat::kBinary && out.IsTerminal()) {
    return Fail(
        absl::InvalidArgumentError("binary records are not for a terminal: send them to a file"),
        command.json);
  }
  Dumper dumper(*format, command, &out);

  if (command.skip_damaged) {
    const auto damage = SalvageStore(
        command.path,
        [&dumper](std::string_view k, std::string_view v) { return dumper.Write(k, v); });
    const absl::Status end = Outcome(damage.status(), &out);
    if (!end.ok()) return Fail(end, /*json=*/false);
    if (!damage.ok() || damage->empty()) return kExitOk;
    TellDamage(*damage, command.json);
    return kExitNo;
  }

  auto db = OpenStore(command.path, Access::kRead);
  if (!db.ok()) return Fail(db.status(), command.json);
  const absl::Status end = CloseStore(**db, Outcome(DumpStore(**db, &dumper), &out));
  if (end.ok()) return kExitOk;
  const absl::Status hint = absl::IsDataLoss(end)
                                ? absl::DataLossError(std::string(Std(end.message())) +
                                                      "; dump --skip-damaged writes what verifies")
                                : end;
  // Standard output holds records: the error stays off it.
  return Fail(hint, /*json=*/false);
}

}  // namespace ashlar::tools
