#include "engine/base/plant.h"

#ifdef ASHLAR_PLANTS
#include <cstdlib>
#include <cstring>

namespace ashlar {

bool PlantActive(const char* name) {
  static const char* const active = std::getenv("ASHLAR_PLANT");
  return active != nullptr && std::strcmp(active, name) == 0;
}

}  // namespace ashlar
#endif
