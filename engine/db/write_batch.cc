#include "ashlar/write_batch.h"

#include <algorithm>

#include "engine/format/entry.h"
#include "engine/memtable/memtable.h"

namespace ashlar {

static_assert(WriteBatch::kEntryOverhead == Memtable::kEntryOverhead);

void WriteBatch::Put(std::string_view key, std::string_view value) {
  AppendEntry(&rep_, EntryKind::kValue, key, value);
  ++count_;
  ++puts_;
  max_key_ = std::max(max_key_, key.size());
  max_value_ = std::max(max_value_, value.size());
  empty_key_ |= key.empty();
}

void WriteBatch::Delete(std::string_view key) {
  AppendEntry(&rep_, EntryKind::kDelete, key, {});
  ++count_;
  max_key_ = std::max(max_key_, key.size());
  empty_key_ |= key.empty();
}

void WriteBatch::Clear() { *this = WriteBatch(); }

}  // namespace ashlar
