#include "json_text.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "print.h"

namespace ashlar::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

void AddBytes(Json* json, const char* name, std::string_view bytes) {
  if (IsUtf8(bytes)) {
    (*json)[name] = bytes;
  } else {
    (*json)[std::string(name) + "64"] = absl::Base64Escape(Absl(bytes));
  }
}

// Collects a record while the library walks over the text: no tree is built, nothing nests.
class RecordSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  RecordSax(std::string* key, std::string* value) : targets_{key, value} {}

  absl::Status Finish(bool parsed) const {
    if (!parsed) return absl::InvalidArgumentError(error_.empty() ? "no JSON object" : error_);
    if (!seen_[0]) return absl::InvalidArgumentError("neither k nor k64");
    if (!seen_[1]) return absl::InvalidArgumentError("neither v nor v64");
    return absl::OkStatus();
  }

  bool null() override { return NotAString(); }
  bool boolean(bool) override { return NotAString(); }
  bool number_integer(number_integer_t) override { return NotAString(); }
  bool number_unsigned(number_unsigned_t) override { return NotAString(); }
  bool number_float(number_float_t, const string_t&) override { return NotAString(); }
  bool binary(binary_t&) override { return NotAString(); }
  bool start_array(std::size_t) override { return NotAString(); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }

  bool start_object(std::size_t) override {
    if (in_object_) return NotAString();
    in_object_ = true;
    return true;
  }

  bool key(string_t& name) override {
    name_ = name;
    base64_ = name == "k64" || name == "v64";
    if (!base64_ && name != "k" && name != "v") return Fail("unknown field " + Quoted(name));
    field_ = name[0] == 'k' ? 0 : 1;
    if (seen_[field_]) return Fail("a second " + name_);
    seen_[field_] = true;
    return true;
  }

  bool string(string_t& text) override {
    if (!in_object_) return NotAString();
    if (!base64_) {
      *targets_[field_] = std::move(text);
      return true;
    }
    // One text for each value: what encodes differently has stray bits, spaces or padding.
    std::string* const target = targets_[field_];
    const bool whole = absl::Base64Unescape(text, target) && absl::Base64Escape(*target) == text;
    return whole || Fail(name_ + " is not base64");
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception...] parse error at line 1, column 5: what": the place is said in our words.
    const std::string_view text = error.what();
    const size_t colon = text.find(": ");
    return Fail("no JSON at byte " + std::to_string(position) + " of the line: " +
                std::string(colon == std::string_view::npos ? text : text.substr(colon + 2)));
  }

 private:
  bool NotAString() { return Fail(in_object_ ? name_ + " is not a string" : "no JSON object"); }
  bool Fail(std::string what) {
    error_ = std::move(what);
    return false;
  }

  std::array<std::string*, 2> targets_;
  std::array<bool, 2> seen_ = {false, false};
  bool in_object_ = false;
  bool base64_ = false;
  size_t field_ = 0;
  std::string name_, error_;
};

Json DamageList(const std::vector<Damage>& damage) {
  Json list = Json::array();
  for (const Damage& d : damage) {
    list.push_back({{"what", d.what}, {"where", d.where}, {"detail", d.detail}});
  }
  return list;
}

}  // namespace

std::string JsonRecord(std::string_view key, std::string_view value) {
  Json record = Json::object();
  AddBytes(&record, "k", key);
  AddBytes(&record, "v", value);
  return Dump(record, -1);
}

absl::Status ParseJsonRecord(std::string_view line, std::string* key, std::string* value) {
  RecordSax sax(key, value);
  return sax.Finish(nlohmann::json::sax_parse(line, &sax));
}

std::string JsonLine(const std::vector<JsonField>& fields) {
  Json json = Json::object();
  for (const auto& [name, value] : fields) {
    std::visit([&json, name = name](const auto& v) { json[name] = v; }, value);
  }
  return Dump(json, -1);
}

std::string JsonError(int exit_code, const absl::Status& error) {
  return Dump({{"error",
                {{"exit", exit_code},
                 {"code", absl::StatusCodeToString(error.code())},
                 {"message", Std(error.message())}}}},
              -1);
}

std::string JsonInfo(const StoreInfo& info, InfoParts parts) {
  Json json = {
      {"store_id", info.store_id},
      {"format_version", info.format_version},
      {"epoch", info.epoch},
      {"generation", info.generation},
      {"clean", info.clean},
      {"device", info.device},
      {"device_bytes", info.device_bytes},
      {"store_bytes", info.store_bytes},
      {"lba_bytes", info.lba_bytes},
      {"extent_bytes", info.extent_bytes},
      {"extents",
       {{"total", info.extents_total},
        {"superblock", info.extents_superblock},
        {"manifest", info.extents_manifest},
        {"log", info.extents_log},
        {"table", info.extents_table},
        {"free", info.extents_free}}},
      {"reserve_bytes", info.reserve_bytes},
      {"last_sequence", info.last_sequence},
      {"table_count", info.tables.size()},
  };
  if (parts.tables || parts.extents) {
    Json tables = Json::array();
    for (const TableInfo& t : info.tables) {
      Json table = {{"id", t.id}, {"level", t.level}};
      if (parts.tables) {
        table["entries"] = t.entries;
        table["bytes"] = t.bytes;
        AddBytes(&table, "smallest", t.smallest);
        AddBytes(&table, "largest", t.largest);
      }
      if (parts.extents) table["extents"] = t.extents;
      tables.push_back(std::move(table));
    }
    json["tables"] = std::move(tables);
  }
  if (parts.log || parts.extents) json["log_segments"] = info.log_segments;
  return Dump(json, 2);
}

std::string JsonCheck(const CheckReport& report) {
  return Dump({{"ok", report.damage_total == 0},
               {"pages_verified", report.pages_verified},
               {"entries", report.entries},
               {"log_records", report.log_records},
               {"damage_total", report.damage_total},
               {"damage", DamageList(report.damage)}},
              2);
}

std::string JsonDamage(const std::vector<Damage>& damage) {
  return Dump({{"damage", DamageList(damage)}}, -1);
}

}  // namespace ashlar::tools
