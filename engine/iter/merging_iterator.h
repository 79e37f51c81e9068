// Several streams as one. Children that come first win ties, but no two entries of one store are
// equal in key and sequence number. A failed child fails the whole at once: what it would have
// given is unknown.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/internal_iterator.h"

namespace ashlar {

std::unique_ptr<InternalIterator> NewMergingIterator(
    std::vector<std::unique_ptr<InternalIterator>> children);

}  // namespace ashlar
