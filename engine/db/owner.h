// Which process has a store open, as its superblock remembers it.
#pragma once

#include <string>

#include "engine/format/superblock.h"

namespace ashlar {

Owner CurrentProcess();

// A text naming the process, when it is of this boot and still alive; else empty.
std::string LiveOwner(const Owner& owner);

}  // namespace ashlar
