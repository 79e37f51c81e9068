#!/bin/bash
# Tests the tests: each planted mistake (PLANT in engine/) must make some test fail. Prints, for each, the binary that
# caught it; "not ok" is a mistake that nothing caught.
# usage: run_plants.sh BUILD_DIR   (a build of the preset `plants`)
set -u
BIN=$(realpath "$1")/bin
SOURCE=$(realpath "$(dirname "$0")/../..")
# From cheap to dear; what has caught a mistake is enough.
LAYERS="format engine fault sim damage crash db"

passes() { # LAYER: with no mistake planted, or the one in ASHLAR_PLANT
  local scale=0.4
  [ "$1" != crash ] || scale=1.6
  # A failing seed need not be made small here.
  ASHLAR_TEST_SCALE=$scale ASHLAR_SIM_SEEDS=24 ASHLAR_SIM_TRIALS=0 \
    timeout -k 5 300 "$BIN/ashlar_$1_test" --seed=1 >/dev/null 2>&1
}

try_layer() {
  if passes "$1"; then
    echo "ok no_plant_$1"
  else
    echo "not ok no_plant_$1: fails without a planted mistake"
  fi
}

try_plant() {
  local layer code
  export ASHLAR_PLANT=$1
  for layer in $LAYERS; do
    code=0
    passes "$layer" || code=$?
    case $code in
      0) ;;
      124 | 137) echo "ok $1: hangs in $layer" && return ;;
      *) echo "ok $1: caught by $layer" && return ;;
    esac
  done
  echo "not ok $1: nothing caught it"
}

RESULTS=$(mktemp)
trap 'rm -f "$RESULTS"' EXIT
await_core() { while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done; }
for layer in db crash damage sim fault engine format; do
  await_core
  try_layer "$layer" >>"$RESULTS" &
done
for plant in $(grep -rhoE 'PLANT\("[a-z_.]+"\)' "$SOURCE"/engine --include=*.cc | cut -d'"' -f2 | sort -u); do
  await_core
  try_plant "$plant" >>"$RESULTS" &
done
wait
sort "$RESULTS"
! grep -q '^not ok ' "$RESULTS"
