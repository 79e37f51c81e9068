#include "tests/support/store_model.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/format/checksum.h"

namespace ashlar {
namespace {

constexpr int kGets = 6;

// A state's digest is the sum over its pairs, so that a change costs what it changes.
uint64_t PairDigest(std::string_view key, std::string_view value) {
  return Checksum(value.data(), value.size(), Checksum(key.data(), key.size(), 1));
}

}  // namespace

WriteBatch StoreModel::BatchOf(const std::vector<Change>& changes) {
  WriteBatch batch;
  for (const auto& [key, value] : changes) {
    if (value) {
      batch.Put(key, *value);
    } else {
      batch.Delete(key);
    }
  }
  return batch;
}

void StoreModel::Commit(const std::vector<Change>& changes) {
  uint64_t digest = digests_.back();
  const uint32_t commit = static_cast<uint32_t>(digests_.size());
  for (const auto& [key, value] : changes) {
    std::vector<Version>& versions = keys_[key];
    if (!versions.empty() && versions.back().value) {
      digest -= PairDigest(key, *versions.back().value);
    }
    if (value) digest += PairDigest(key, *value);
    if (!versions.empty() && versions.back().commit == commit) versions.pop_back();
    versions.push_back({commit, value});
  }
  digests_.push_back(digest);
  last_sequences_.push_back((last_sequences_.empty() ? 0 : last_sequences_.back()) +
                            changes.size());
}

uint32_t StoreModel::CommitsBefore(uint64_t sequence) const {
  return static_cast<uint32_t>(
      std::lower_bound(last_sequences_.begin(), last_sequences_.end(), sequence) -
      last_sequences_.begin());
}

const std::string* StoreModel::At(uint32_t prefix, const std::string& key) const {
  const auto it = keys_.find(key);
  if (it == keys_.end()) return nullptr;
  const auto after = std::upper_bound(it->second.begin(), it->second.end(), prefix,
                                      [](uint32_t p, const Version& v) { return p < v.commit; });
  if (after == it->second.begin()) return nullptr;
  const Version& v = *(after - 1);
  return v.value ? &*v.value : nullptr;
}

std::vector<std::string> StoreModel::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, versions] : keys_) keys.push_back(key);
  return keys;
}

std::map<std::string, const std::string*> StoreModel::State(uint32_t prefix) const {
  std::map<std::string, const std::string*> state;
  for (const auto& [key, versions] : keys_) {
    if (const std::string* const value = At(prefix, key); value != nullptr) state[key] = value;
  }
  return state;
}

absl::StatusOr<uint32_t> StoreModel::Match(
    DB* db, uint32_t least, uint32_t most, uint64_t salt,
    const std::vector<std::pair<std::string, std::string>>& extra) const {
  uint64_t digest = 0, pairs = 0;
  {
    const auto it = db->NewIterator(ReadOptions());
    std::string last;
    for (it->SeekToFirst(); it->Valid(); it->Next(), ++pairs) {
      if (pairs > 0 && it->key() <= last) {
        return absl::DataLossError(absl::StrCat("key ", absl::CHexEscape(std::string(it->key())),
                                                " after ", absl::CHexEscape(last)));
      }
      last.assign(it->key());
      digest += PairDigest(it->key(), it->value());
    }
    RETURN_IF_ERROR(it->status());
  }
  for (const auto& [key, value] : extra) digest -= PairDigest(key, value);
  uint32_t prefix = most + 1;
  while (prefix > least && digests_[prefix - 1] != digest) --prefix;
  if (prefix == least) {
    std::string elsewhere = "no prefix at all";
    for (uint32_t p = 0; p <= commits(); ++p) {
      if (digests_[p] == digest) elsewhere = absl::StrCat("the state after ", p);
    }
    return absl::DataLossError(absl::StrCat("a state of ", pairs, " pairs, which is ", elsewhere,
                                            "; wanted one after ", least, " to ", most,
                                            " commits"));
  }
  --prefix;

  Value value;
  for (int i = 0; i < kGets; ++i) {
    const uint64_t pick = Checksum(&i, sizeof i, salt);
    std::string key;
    if (!keys_.empty()) {
      auto it = keys_.begin();
      std::advance(it, static_cast<ptrdiff_t>(pick % keys_.size()));
      key = it->first;
    }
    if (i == 0) key.push_back('!');  // beside a key that may be there
    if (key.empty()) continue;
    const std::string* const want = At(prefix, key);
    const absl::Status s = db->Get(ReadOptions(), key, &value);
    if (want == nullptr ? !absl::IsNotFound(s) : !s.ok() || value.view() != *want) {
      return absl::DataLossError(absl::StrCat(
          "Get of ", absl::CHexEscape(key), " after ", prefix,
          " commits: ", s.ok() ? absl::StrCat("a value of ", value.size(), " bytes") : s.ToString(),
          " instead of ",
          want == nullptr ? "nothing" : absl::StrCat("one of ", want->size(), " bytes")));
    }
  }
  return prefix;
}

}  // namespace ashlar
