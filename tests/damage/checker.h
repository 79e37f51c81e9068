// Judges a damaged store: what an answer may be is derived from which live bytes differ, never from
// what the engine says of them.
//
// What is promised, and held here of every case:
//  - superblock: two whole copies and the store opens; none and it is refused, as damaged, and so
//    where two copies of another store agree;
//  - manifest: each record whole in one copy and the store opens; one whole in neither and it is
//    refused, but for the last one of a store that was not closed, which a crash can leave so: then
//    the answers are as without the damage, or errors;
//  - tables: each answer is right or is DataLoss naming a damaged page;
//  - log: let V be the greatest durable position that a record names which is whole, and begins an
//    LBA or stands right behind such a record. Damage before V refuses the store, by name. Behind
//    it the log ends at the first damaged record: a prefix of the commits, of which none that lies
//    before V is missing;
//  - check names every damaged page that it can get to, and nothing where nothing live is damaged;
//  - salvage brings out every key that the damage leaves, and no value that the key never had.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/damage/subject.h"

namespace ashlar {

// One way to damage a store: the bytes that are put in place.
struct Case {
  std::string what;
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> writes;
};

// What is done with a damaged store. It is always opened, read-only, and read.
struct Depth {
  bool check = true;   // check finds the damage
  bool write = false;  // it is opened for writing, written to, closed, and read again
  bool salvage = false;
  uint64_t salt = 0;  // chooses what is read and written beside the damage
};

class Checker {
 public:
  explicit Checker(Subject* subject) : s_(*subject) {}

  // What is wrong with how the engine takes it; empty: nothing.
  std::string Run(const Case& c, const Depth& depth);

  struct Counts {
    uint64_t opens = 0, refused = 0, visible = 0, failed_reads = 0, salvaged = 0, missing = 0;
  };
  const Counts& counts() const { return counts_; }
  // Of the last case: whether anything live differed.
  bool touched() const { return !touched_.empty(); }

 private:
  // What was written over the state, or with no value deleted.
  using Overlay = std::map<std::string, std::optional<std::string>>;

  void Put(const Case& c);
  void Judge(const Case& c);
  bool Named(const std::string& text) const;
  bool NamesPlace(const std::string& text, uint64_t place) const;
  std::string Refusal(const absl::Status& s) const;
  std::string Finds();
  std::string OpensAndReads(bool write);
  std::string ReadsAreRight(DB* db, const Overlay& written);
  std::string Writes(DB* db, Overlay* written);
  std::string SalvageBringsTheRest();

  Subject& s_;
  Counts counts_;
  uint64_t salt_ = 0;
  std::vector<Live> touched_;
  std::set<std::string> failed_;  // keys whose Get named the damage

  // The verdict.
  int whole_superblocks_ = 0;
  bool must_refuse_ = false, may_refuse_ = false;
  bool superblocks_gone_ = false, manifest_gone_ = false, log_gone_ = false;
  bool last_edit_gone_ = false, tables_ = false, visible_ = false;
  uint32_t commits_ = 0;          // that must be shown
  std::set<uint64_t> must_name_;  // by check
  std::string any_of_;            // parts of which check must name one: letters of Part
};

// The largest allocation since the last call, of a build that is not sanitized.
size_t TakeLargestAllocation();

}  // namespace ashlar
