#!/bin/bash
# Tests the tests: each planted mistake (PLANT in engine/) must make some test fail. Prints, for each, the binary that
# caught it; "not ok" is a mistake that nothing caught.
# usage: run_plants.sh BUILD_DIR   (a build of the preset `plants`)
set -u
BIN=$(realpath "$1")/bin
SOURCE=$(realpath "$(dirname "$0")/../..")
# From cheap to dear; what has caught a mistake is enough.
LAYERS="format engine sim db damage crash"

export ASHLAR_TEST_SCALE=1.6

passes() { # LAYER: with no mistake planted, or the one in ASHLAR_PLANT
  timeout -k 5 300 "$BIN/ashlar_$1_test" --seed=1 >/dev/null 2>&1
}

failed=0
for layer in $LAYERS; do
  if passes "$layer"; then
    echo "ok no_plant_$layer"
  else
    echo "not ok no_plant_$layer: fails without a planted mistake"
    failed=1
  fi
done

plants=$(grep -rhoE 'PLANT\("[a-z_.]+"\)' "$SOURCE"/engine --include=*.cc | cut -d'"' -f2 | sort -u)
for plant in $plants; do
  caught=
  for layer in $LAYERS; do
    ASHLAR_PLANT=$plant passes "$layer" || { caught=$layer && break; }
  done
  if [ -n "$caught" ]; then
    echo "ok $plant: caught by $caught"
  else
    echo "not ok $plant: nothing caught it"
    failed=1
  fi
done
exit $failed
