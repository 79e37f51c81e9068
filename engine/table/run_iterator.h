// Tables that ascend and do not overlap, as one stream. Opens one at a time.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/internal_iterator.h"
#include "engine/table/table_reader.h"

namespace ashlar {

// `reader` outlives it.
std::unique_ptr<InternalIterator> NewRunIterator(
    const TableReader* reader, std::vector<std::shared_ptr<const TableMeta>> tables,
    DamageSink damage = nullptr);

}  // namespace ashlar
