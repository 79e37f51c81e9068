// ashlarctl: the command line. What a command says becomes a plain struct of commands.h; the
// command that was named runs after the whole line has been read.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "commands.h"

namespace {

using namespace ashlar::tools;  // NOLINT: this file is the face of that namespace

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 the answer is no (not found, damage found), 2 usage or bad input,\n"
    "3 refused for safety, 4 device or I/O error.\n"
    "KEY, VALUE and bounds that begin with '-' come after '--'.";

using Action = std::function<int()>;

// A command with its DEVICE and --json; `run` is called with what `add` has bound to the line.
template <typename Command>
void AddCommand(CLI::App* app, Action* action, const char* name, const char* what,
                int (*run)(const Command&), void (*add)(CLI::App*, Command*)) {
  CLI::App* sub = app->add_subcommand(name, what);
  auto command = std::make_shared<Command>();
  sub->add_option("DEVICE", command->path, "block device or file")->required();
  add(sub, command.get());
  sub->add_flag("--json", command->json, "answer in JSON");
  sub->callback([action, run, command] { *action = [run, command] { return run(*command); }; });
}

void AddFormatOptions(CLI::App* sub, FormatCommand* c) {
  sub->add_option("--size", c->size, "make DEVICE a new sparse file of this size, such as 8G");
  sub->add_option("--serial", c->serial, "what the device must report as its serial");
  sub->add_option("--wipe-store", c->wipe_store, "id of the Ashlar store that is replaced");
  sub->add_flag("--wipe-foreign", c->wipe_foreign, "replace content that is not an Ashlar store");
  sub->add_option("--extent-bytes", c->extent_bytes, "unit of allocation (default: by the size)");
}

void AddInfoOptions(CLI::App* sub, InfoCommand* c) {
  sub->add_flag("--tables", c->parts.tables, "list the tables");
  sub->add_flag("--extents", c->parts.extents, "list the extents of tables and log");
  sub->add_flag("--log", c->parts.log, "list the log segments");
}

void AddKey(CLI::App* sub, KeyCommand* c) { sub->add_option("KEY", c->key, "the key")->required(); }

void AddGetOptions(CLI::App* sub, KeyCommand* c) {
  AddKey(sub, c);
  sub->add_flag("--hex", c->hex, "KEY is, and the value is written, in hexadecimal");
}

void AddDeleteOptions(CLI::App* sub, KeyCommand* c) {
  AddKey(sub, c);
  sub->add_flag("--hex", c->hex, "KEY is in hexadecimal");
}

void AddPutOptions(CLI::App* sub, PutCommand* c) {
  sub->add_option("KEY", c->key, "the key")->required();
  sub->add_option("VALUE", c->value, "the value; - reads standard input as it is")->required();
  sub->add_flag("--hex", c->hex, "KEY and VALUE are in hexadecimal");
}

void AddScanOptions(CLI::App* sub, ScanCommand* c) {
  sub->add_option("--prefix", c->prefix, "keys that begin with this");
  sub->add_option("--from", c->from, "from this key on");
  sub->add_option("--to", c->to, "up to this key, without it");
  sub->add_option("--limit", c->limit, "at most so many records")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 62));
  sub->add_flag("--reverse", c->reverse, "from the last key to the first");
  sub->add_flag("--hex", c->hex, "bounds are, and records are written, in hexadecimal");
}

void AddCompactOptions(CLI::App* sub, CompactCommand* c) {
  sub->add_option("--from", c->from, "only what holds keys from this one on");
  sub->add_option("--to", c->to, "only what holds keys below this one");
  sub->add_flag("--hex", c->hex, "bounds are in hexadecimal");
}

void AddRecordFormat(CLI::App* sub, std::string* format, std::string* key_field) {
  sub->add_option("--format", *format, "tsv (default), jsonl, binary or stanza")
      ->check(CLI::IsMember({"tsv", "jsonl", "binary", "stanza"}))
      ->type_name("FORMAT");
  sub->add_option("--key-field", *key_field, "field of a stanza that is its key (default Package)");
}

void AddLoadOptions(CLI::App* sub, LoadCommand* c) {
  sub->add_option("FILE", c->file, "the records (default or -: standard input)");
  AddRecordFormat(sub, &c->format, &c->key_field);
  sub->add_flag("--durable", c->durable, "each batch is durable before the next is read");
  sub->add_flag("--report-durable", c->report_durable,
                "as --durable, and a line 'durable RECORDS' after each batch");
  sub->add_option("--batch-records", c->batch_records, "at most so many records in a batch")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
}

void AddDumpOptions(CLI::App* sub, DumpCommand* c) {
  AddRecordFormat(sub, &c->format, &c->key_field);
  sub->add_flag("--skip-damaged", c->skip_damaged,
                "write every record that verifies, and name the damage");
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away is seen where it is written to, so a store open for writing is still
  // closed.
  signal(SIGPIPE, SIG_IGN);

  Action action;
  CLI::App app("ashlarctl: makes, fills, reads and verifies Ashlar stores", "ashlarctl");
  app.set_version_flag("--version", "ashlarctl " ASHLAR_VERSION);
  app.require_subcommand(1);
  app.footer(kFooter);
  AddCommand(&app, &action, "format", "make an empty store", RunFormat, AddFormatOptions);
  AddCommand(&app, &action, "info", "describe a store", RunInfo, AddInfoOptions);
  AddCommand(&app, &action, "get", "write the value of a key", RunGet, AddGetOptions);
  AddCommand(&app, &action, "put", "set the value of a key", RunPut, AddPutOptions);
  AddCommand(&app, &action, "delete", "remove a key", RunDelete, AddDeleteOptions);
  AddCommand(&app, &action, "scan", "write the records of a range of keys", RunScan,
             AddScanOptions);
  AddCommand(&app, &action, "load", "put the records of a file", RunLoad, AddLoadOptions);
  AddCommand(&app, &action, "dump", "write all records in key order", RunDump, AddDumpOptions);
  AddCommand(&app, &action, "compact",
             "merge all down: deletes and old versions give their space back", RunCompact,
             AddCompactOptions);
  AddCommand<CheckCommand>(&app, &action, "check", "verify every byte that is live", RunCheck,
                           [](CLI::App*, CheckCommand*) {});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return action();
}
