// get, put, delete, scan.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "commands.h"
#include "json_text.h"
#include "print.h"
#include "record_format.h"
#include "store.h"

namespace ashlar::tools {
namespace {

// An argument that is a key, a value or a bound.
absl::StatusOr<std::string> Bytes(const std::string& text, bool hex) {
  if (!hex) return text;
  return FromHex(text);
}

absl::StatusOr<std::string> ReadStandardInput() {
  std::string value;
  char piece[64 << 10];
  while (true) {
    const ssize_t n = read(0, piece, sizeof(piece));
    if (n == 0) return value;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return absl::InternalError(std::string("cannot read standard input: ") + strerror(errno));
    }
    value.append(piece, static_cast<size_t>(n));
    if (value.size() > DB::kMaxValueBytes) {
      return absl::InvalidArgumentError("the value on standard input is over the limit of " +
                                        Grouped(DB::kMaxValueBytes) + " bytes");
    }
  }
}

// The value alone; on a terminal escaped, and with a newline at its end.
void WriteValue(std::string_view value, bool hex, Output* out) {
  if (hex) {
    out->Write(ToHex(value));
  } else if (out->IsTerminal()) {
    out->Write(EscapeForTerminal(value, Lines::kKeep));
  } else {
    out->Write(value);
  }
  if (out->IsTerminal() && (hex || value.empty() || value.back() != '\n')) out->Write("\n");
}

int Done(const char* what, const KeyCommand& command) {
  Output out;
  if (command.json) out.Write(JsonLine({{what, true}}));
  const absl::Status written = out.Flush();
  return written.ok() ? kExitOk : Fail(written, command.json);
}

// The first key behind all that begin with `prefix`; empty: there is none.
std::string BehindPrefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

void WriteScanned(std::string_view key, std::string_view value, const ScanCommand& command,
                  Output* out) {
  if (command.json) {
    out->Write(JsonRecord(key, value));
  } else if (command.hex) {
    out->Write(ToHex(key) + "\t" + ToHex(value) + "\n");
  } else {
    std::string line;
    AppendTsvField(key, &line);
    line.push_back('\t');
    AppendTsvField(value, &line);
    out->Write(line + "\n");
  }
}

absl::Status ScanStore(DB& db, const ScanCommand& command, Output* out) {
  uint64_t left = command.limit;
  if (left == 0) return absl::OkStatus();
  const std::string lower = std::max(command.prefix, command.from);
  std::string upper = BehindPrefix(command.prefix);
  if (upper.empty() || (!command.to.empty() && command.to < upper)) upper = command.to;
  ReadOptions bounds;
  bounds.lower_bound = lower;
  bounds.upper_bound = upper;
  const auto it = db.NewIterator(bounds);
  command.reverse ? it->SeekToLast() : it->SeekToFirst();
  for (; it->Valid() && out->open(); command.reverse ? it->Prev() : it->Next()) {
    WriteScanned(it->key(), it->value(), command, out);
    if (--left == 0) break;
  }
  if (absl::Status s = out->Flush(); !s.ok()) return s;
  return it->Valid() ? absl::OkStatus() : it->status();
}

}  // namespace

int RunGet(const KeyCommand& command) {
  const absl::StatusOr<std::string> key = Bytes(command.key, command.hex);
  if (!key.ok()) return Fail(key.status(), command.json);
  auto db = OpenStore(command.path, Access::kRead);
  if (!db.ok()) return Fail(db.status(), command.json);
  Value value;
  const absl::Status got = (*db)->Get(ReadOptions{}, *key, &value);
  if (absl::IsNotFound(got)) {
    // A missing key is an answer, and says nothing on standard output.
    fprintf(stderr, "ashlarctl: not found: %s\n", Quoted(*key, DB::kMaxKeyBytes).c_str());
    if (command.json) Output().Write(JsonLine({{"found", false}}));
    return kExitNo;
  }
  if (!got.ok()) return Fail(got, command.json);
  Output out;
  if (command.json) {
    out.Write(JsonRecord(*key, value.view()));
  } else {
    WriteValue(value.view(), command.hex, &out);
  }
  const absl::Status end = CloseStore(**db, out.Flush());
  return end.ok() ? kExitOk : Fail(end, command.json);
}

int RunPut(const PutCommand& command) {
  const absl::StatusOr<std::string> key = Bytes(command.key, command.hex);
  if (!key.ok()) return Fail(key.status(), command.json);
  const absl::StatusOr<std::string> value =
      command.value == "-" ? ReadStandardInput() : Bytes(command.value, command.hex);
  if (!value.ok()) return Fail(value.status(), command.json);
  auto db = OpenStore(command.path, Access::kWrite);
  if (!db.ok()) return Fail(db.status(), command.json);
  const absl::Status end = CloseStore(**db, (*db)->Put(WriteOptions{}, *key, *value));
  if (!end.ok()) return Fail(end, command.json);
  return Done("written", {.json = command.json});
}

int RunDelete(const KeyCommand& command) {
  const absl::StatusOr<std::string> key = Bytes(command.key, command.hex);
  if (!key.ok()) return Fail(key.status(), command.json);
  auto db = OpenStore(command.path, Access::kWrite);
  if (!db.ok()) return Fail(db.status(), command.json);
  const absl::Status end = CloseStore(**db, (*db)->Delete(WriteOptions{}, *key));
  if (!end.ok()) return Fail(end, command.json);
  return Done("deleted", command);
}

int RunScan(const ScanCommand& command) {
  ScanCommand bounds = command;
  for (std::string* bound : {&bounds.prefix, &bounds.from, &bounds.to}) {
    absl::StatusOr<std::string> bytes = Bytes(*bound, command.hex);
    if (!bytes.ok()) return Fail(bytes.status(), command.json);
    *bound = *std::move(bytes);
  }
  auto db = OpenStore(command.path, Access::kRead);
  if (!db.ok()) return Fail(db.status(), command.json);
  Output out;
  const absl::Status end = CloseStore(**db, ScanStore(**db, bounds, &out));
  return end.ok() ? kExitOk : Fail(end, command.json);
}

int RunCompact(const CompactCommand& command) {
  const absl::StatusOr<std::string> from = Bytes(command.from, command.hex);
  if (!from.ok()) return Fail(from.status(), command.json);
  const absl::StatusOr<std::string> to = Bytes(command.to, command.hex);
  if (!to.ok()) return Fail(to.status(), command.json);
  auto db = OpenStore(command.path, Access::kWrite);
  if (!db.ok()) return Fail(db.status(), command.json);
  const auto in_use = [&] {
    const Stats s = (*db)->stats();
    return (s.extents_total - s.extents_free) * s.extent_bytes;
  };
  const uint64_t before = in_use();
  absl::Status end = (*db)->CompactRange(*from, *to);
  const uint64_t after = in_use();
  end = CloseStore(**db, end);
  if (!end.ok()) return Fail(end, command.json);
  Output out;
  if (command.json) {
    out.Write(JsonLine({{"bytes_in_use_before", before}, {"bytes_in_use", after}}));
  } else {
    out.Write("compacted: " + HumanBytes(after) + " in use, " + HumanBytes(before) + " before\n");
  }
  const absl::Status written = out.Flush();
  return written.ok() ? kExitOk : Fail(written, command.json);
}

}  // namespace ashlar::tools
