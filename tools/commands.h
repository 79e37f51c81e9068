// The commands of ashlarctl: what the command line says, as plain values, and one function for each
// command that does the work, prints, and returns the exit code. Text is checked here, not by the
// parser.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "json_text.h"

namespace ashlar::tools {

enum ExitCode {
  kExitOk = 0,
  kExitNo = 1,       // the answer is no: not found, damage found
  kExitUsage = 2,    // bad arguments, bad input
  kExitRefused = 3,  // refused for safety: not ours, not meant, in use
  kExitDevice = 4,   // a device, a file or the system failed; no room
};

// Says the error on standard error (with json, as an object on standard output too); returns its
// code.
int Fail(const absl::Status& error, bool json);

struct FormatCommand {
  std::string path, size, serial, wipe_store, extent_bytes;
  bool wipe_foreign = false;
  bool json = false;
};
int RunFormat(const FormatCommand& command);

struct InfoCommand {
  std::string path;
  InfoParts parts;
  bool json = false;
};
int RunInfo(const InfoCommand& command);

struct CheckCommand {
  std::string path;
  bool json = false;
};
int RunCheck(const CheckCommand& command);

struct KeyCommand {
  std::string path, key;
  bool hex = false;
  bool json = false;
};
int RunGet(const KeyCommand& command);
int RunDelete(const KeyCommand& command);

struct PutCommand {
  std::string path, key, value;  // value "-": standard input
  bool hex = false;
  bool json = false;
};
int RunPut(const PutCommand& command);

struct ScanCommand {
  std::string path, prefix, from, to;  // empty: no bound; `to` is the first key left out
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  bool reverse = false;  // from the last key down
  bool hex = false;
  bool json = false;
};
int RunScan(const ScanCommand& command);

struct CompactCommand {
  std::string path, from, to;  // empty: no bound; `to` is the first key left out
  bool hex = false;
  bool json = false;
};
int RunCompact(const CompactCommand& command);

struct LoadCommand {
  std::string path, file;  // file empty or "-": standard input
  std::string format = "tsv", key_field = "Package";
  uint64_t batch_records = std::numeric_limits<uint64_t>::max();
  bool durable = false;         // every batch is on the media before the next is read
  bool report_durable = false;  // durable, and a line "durable RECORDS" after each batch
  bool json = false;
};
int RunLoad(const LoadCommand& command);

struct DumpCommand {
  std::string path;
  std::string format = "tsv", key_field = "Package";
  bool skip_damaged = false;
  bool json = false;
};
int RunDump(const DumpCommand& command);

}  // namespace ashlar::tools
