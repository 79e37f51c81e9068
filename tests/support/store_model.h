// What a store must hold: the commits in order, and the state after each prefix of them. And the
// comparison of an open store with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ashlar/db.h"

namespace ashlar {

class StoreModel {
 public:
  // A put, or with no value a delete.
  using Change = std::pair<std::string, std::optional<std::string>>;

  StoreModel() : digests_(1, 0) {}

  static WriteBatch BatchOf(const std::vector<Change>& changes);

  // One more commit, whole or not at all.
  void Commit(const std::vector<Change>& changes);
  uint32_t commits() const { return static_cast<uint32_t>(digests_.size()) - 1; }
  // How many commits have all their changes before the change with this sequence number (the first
  // has 1).
  uint32_t CommitsBefore(uint64_t sequence) const;

  // The value of a key after the first `prefix` commits; null when there is none.
  const std::string* At(uint32_t prefix, const std::string& key) const;
  // Every key ever changed.
  std::vector<std::string> Keys() const;
  // The state after `prefix` commits.
  std::map<std::string, const std::string*> State(uint32_t prefix) const;

  // The longest prefix of [least, most] commits whose state `db` shows, whole: by a walk over it,
  // and some Gets (which ones `salt` chooses) of keys that are there, that were, and that never
  // were. DataLoss saying what was found when there is no such prefix. `extra` are pairs beside the
  // model's.
  absl::StatusOr<uint32_t> Match(
      DB* db, uint32_t least, uint32_t most, uint64_t salt,
      const std::vector<std::pair<std::string, std::string>>& extra) const;

 private:
  struct Version {
    uint32_t commit;  // the state after this many commits shows it
    std::optional<std::string> value;
  };
  std::map<std::string, std::vector<Version>> keys_;
  std::vector<uint64_t> last_sequences_;  // of commit i
  std::vector<uint64_t> digests_;         // of the state after i commits
};

}  // namespace ashlar
