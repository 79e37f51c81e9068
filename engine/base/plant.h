// PLANT("area.mistake") is the constant false, but in the build that tests the tests: there it is
// true for the one mistake that the environment variable ASHLAR_PLANT names, and
// tests/plants/run_plants.sh shows that some test fails.
#pragma once

namespace ashlar {

#ifdef ASHLAR_PLANTS
bool PlantActive(const char* name);
#define PLANT(name) ::ashlar::PlantActive(name)
#else
#define PLANT(name) false
#endif

}  // namespace ashlar
