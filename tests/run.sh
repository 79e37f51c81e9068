#!/bin/bash
# Installs what is missing, builds, and runs the tests. Without an argument every layer runs.
#
#   tests/run.sh [LAYER...]
#
#   fast     all gtest binaries, Release, and the command line: under a minute
#   cli      ashlarctl alone
#   headers  every header compiles alone
#   kill     stores that are killed in the middle, devices that must be refused
#   sim      all that can be enumerated or simulated, at full size: some ten minutes
#   asan     all gtest binaries under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan     the tests of several threads under ThreadSanitizer
#   clang    libraries and tools under clang with -Wthread-safety
#   plants   mistakes planted in the engine: each must make some test fail
#   long     the layer sim over and over with new seeds, 60 minutes, or long=MINUTES; each round is a line in
#            tests/ledger.txt; only when it is named
#
# The last line is "N passed, N failed", with ", N skipped" when there are any; it counts test cases, and a
# build that fails as one. What the machine can't offer is skipped with the reason. Logs: build/test-logs.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tools/packages.sh
. tools/packages.sh

ALL_LAYERS="fast headers kill sim plants asan tsan clang"
# What the layer sim runs, each case of them alone.
SIM_BINARIES="ashlar_crash_test ashlar_damage_test ashlar_fault_test ashlar_sim_test"
# Tests whose subject is several threads carry one of these in their name.
TSAN_FILTER='*Concurrent*:*Concurrency*:*Thread*:*Parallel*:*Race*'
# A guard against hanging, not a limit on speed.
HANG_SECONDS=1800

ROOT=$PWD
LOGS=$ROOT/build/test-logs
passed=0 failed=0 skipped=0

note() { printf '%s\n' "$*"; }

skip_layer() { # LAYER REASON
  note "skip $1: $2"
  skipped=$((skipped + 1))
}

# Adds one log of test cases to the sums. NAME PASSED FAILED SKIPPED LOG
tally() {
  note "$1: $2 passed, $3 failed$([ "$4" = 0 ] || echo ", $4 skipped")" | sed 's/^/  /'
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
}

# What an earlier run left behind when it was killed: loop devices and files that carry its PID.
detach_stale() {
  local loop file
  if [ "$(id -u)" = 0 ] && command -v losetup >/dev/null; then
    losetup -ln -O NAME,BACK-FILE 2>/dev/null | while read -r loop file; do
      [[ $file =~ ashlar-test\.([0-9]+)\. ]] && [ ! -d "/proc/${BASH_REMATCH[1]}" ] || continue
      note "detaching $loop of a run that is gone"
      losetup -d "$loop"
    done
  fi
  for file in "$ASHLAR_TEST_DIR"/ashlar-test.* /dev/shm/ashlar-test.*; do
    [[ $file =~ /ashlar-test\.([0-9]+)\.[^/]*$ ]] && [ ! -d "/proc/${BASH_REMATCH[1]}" ] || continue
    rm -rf "$file"
  done
}

# Tests run in process groups of their own: whoever ends this script ends them too.
end_children() { # PID
  local child
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
    end_children "$child"
    kill "$child" 2>/dev/null
  done
}

# build PRESET [CMAKE_ARGS...]: false, and one failure counted, when it fails.
build() {
  local preset=$1 log=$LOGS/build.$1.log start=$SECONDS
  shift
  if cmake --preset "$preset" "$@" >"$log" 2>&1 && cmake --build --preset "$preset" >>"$log" 2>&1; then
    note "  built $preset in $((SECONDS - start)) s"
    return 0
  fi
  grep -nE 'error|Error|FAILED' "$log" | head -20
  tail -n 20 "$log"
  note "  the build of $preset failed: $log"
  failed=$((failed + 1))
  return 1
}

# The verdict over one gtest binary. A case that began and did not end crashed; a binary that fails without
# a failed case counts as one failure. NAME LOG EXIT
tally_gtest() {
  local name=$1 log=$2 code=$3 began ok bad none
  began=$(grep -ac '^\[ RUN      \]' "$log")
  ok=$(grep -acE '\[       OK \] .*\([0-9]+ ms\)$' "$log")
  bad=$(grep -acE '\[  FAILED  \] .*\([0-9]+ ms\)$' "$log")
  none=$(grep -acE '\[  SKIPPED \] .*\([0-9]+ ms\)$' "$log")
  bad=$((bad + began - ok - bad - none))
  [ "$bad" -le 0 ] && [ "$code" != 0 ] && bad=1
  tally "$name" "$ok" "$bad" "$none"
  [ "$bad" = 0 ] && return
  grep -aE '\[  FAILED  \] .*\([0-9]+ ms\)$' "$log" | sed 's/^/    /'
  [ "$code" -gt 1 ] && note "    exit $code after $(grep -a '^\[ RUN      \]' "$log" | tail -1)"
  note "    $log ends:"
  tail -n 40 "$log" | cut -c1-300 | sed 's/^/    /'
}

# Waits until fewer jobs run than there are cores.
await_core() { while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done; }

# Starts a gtest binary as a job. LOG FILTER COMMAND...
start_gtest() {
  local log=$1 filter=$2
  shift 2
  (
    cd "$ASHLAR_TEST_DIR" || exit 1
    timeout -k 10 "$HANG_SECONDS" "$@" --gtest_color=no --gtest_filter="$filter" >"$log" 2>&1 </dev/null
    echo $? >"$log.exit"
  ) &
}

# gtests LAYER PRESET FILTER [RUNNER...]: all gtest binaries of a build, one for each core at a time.
gtests() {
  local layer=$1 dir=$ROOT/build/$2 filter=$3 bin log
  shift 3
  for bin in "$dir"/bin/*_test; do
    [ -x "$bin" ] || continue
    "$@" "$bin" --gtest_list_tests --gtest_filter="$filter" | grep -q '^  ' || continue
    await_core
    start_gtest "$LOGS/$layer.$(basename "$bin").log" "$filter" "$@" "$bin"
  done
  wait
  for bin in "$dir"/bin/*_test; do
    log=$LOGS/$layer.$(basename "$bin").log
    [ -f "$log" ] && tally_gtest "$(basename "$bin")" "$log" "$(cat "$log.exit")"
  done
}

# shell_cases LAYER SCRIPT...: scripts that print "ok NAME", "not ok NAME" and "skip NAME: why".
shell_cases() {
  local layer=$1 script name log ok bad none code
  shift
  for script in "$@"; do
    name=$(basename "$script") log=$LOGS/$layer.$(basename "$script").log code=0
    timeout -k 10 "$HANG_SECONDS" "$script" "$ROOT/build/release" >"$log" 2>&1 </dev/null || code=$?
    ok=$(grep -ac '^ok ' "$log") bad=$(grep -ac '^not ok ' "$log") none=$(grep -ac '^skip ' "$log")
    # It fell over, or tested nothing.
    [ "$bad" = 0 ] && { [ "$code" != 0 ] || [ $((ok + none)) = 0 ]; } && bad=1
    tally "$name" "$ok" "$bad" "$none"
    [ "$none" = 0 ] || grep -a '^skip ' "$log" | sed 's/^/    /'
    [ "$bad" = 0 ] && continue
    # A trace may hold bytes of any kind.
    grep -a -A 40 '^not ok ' "$log" | grep -av '^ok ' | head -n 120 | cat -v | sed 's/^/    /'
    note "    exit $code, $log"
  done
}

layer_fast() {
  build release -DASHLAR_TESTS=ON -DASHLAR_TOOLS=ON || return
  HANG_SECONDS=600 gtests fast release '*'
  shell_cases fast tests/tools/*_test.sh
}

layer_cli() {
  build release -DASHLAR_TESTS=ON -DASHLAR_TOOLS=ON || return
  shell_cases cli tests/tools/*_test.sh
}

layer_headers() { shell_cases headers tests/headers_test.sh; }

layer_kill() {
  local scripts=(tests/kill/*_test.sh)
  [ -x "${scripts[0]}" ] || {
    skip_layer kill "there are no such tests yet"
    return
  }
  build release -DASHLAR_TESTS=ON -DASHLAR_TOOLS=ON || return
  shell_cases kill "${scripts[@]}"
}

# NAME SUM for the "count: NAME N" lines of the logs.
counts() { # LOG...
  cat "$@" | awk '/^count: / { n[$2] += $3 } END { for (c in n) printf "%s %d\n", c, n[c] }' | sort
}

# SUITE.CASE of a gtest binary, a line each.
list_cases() {
  "$1" --gtest_list_tests | awk '/^[^ ].*\.$/ { suite = $1 } /^  / { print suite $1 }'
}

# Each case of SIM_BINARIES at full size, as many at once as there are cores. No case begins after the
# given second of the script. LAYER UNTIL
enumerate() {
  local layer=$1 until=$2 dir=$ROOT/build/release/bin bin case log
  rm -f "$LOGS/$layer".*
  for bin in $SIM_BINARIES; do
    while read -r case; do
      await_core
      [ "$SECONDS" -lt "$until" ] || continue
      start_gtest "$LOGS/$layer.${case//\//.}.log" "$case" env ASHLAR_TEST_SCALE=100 "$dir/$bin"
    done < <(list_cases "$dir/$bin")
  done
  wait
  for log in "$LOGS/$layer".*.log; do
    case=${log##*"/$layer."}
    tally_gtest "${case%.log}" "$log" "$(cat "$log.exit")"
  done
  counts "$LOGS/$layer".*.log | sed 's/^/  /'
}

# What the layer sim must come to: PATTERN of counts, least sum.
SIM_LEAST="crash_images$ 200000
crash_images_in_recovery$ 20000
damage_whole_store_cases_of_live_bytes$ 200000
simulated_operations$ 5000000
simulated_seeds$ 1000
failed_commands$ 50000"

layer_sim() {
  build release -DASHLAR_TESTS=ON || return
  enumerate sim 1000000
  local pattern least sum
  while read -r pattern least; do
    sum=$(counts "$LOGS"/sim.*.log | awk -v p="^$pattern" '$1 ~ p { n += $2 } END { print n + 0 }')
    tally "at least $least of ${pattern%$}" $((sum >= least)) $((sum < least)) 0
  done <<<"$SIM_LEAST"
}

# Rounds of the layer sim with a new seed each, for LONG_MINUTES; a line in the ledger for each.
layer_long() {
  build release -DASHLAR_TESTS=ON || return
  local until=$((SECONDS + LONG_MINUTES * 60)) commit bad
  commit=$(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo unknown)
  while [ "$SECONDS" -lt "$until" ]; do
    ASHLAR_TEST_SEED=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    export ASHLAR_TEST_SEED
    note "  seed $ASHLAR_TEST_SEED"
    bad=$failed
    enumerate long "$until"
    printf '%s %s seed=%s cases=%s failed=%s%s\n' "$(date -u +%F)" "$commit" "$ASHLAR_TEST_SEED" \
      "$(find "$LOGS" -name 'long.*.exit' | wc -l)" $((failed - bad)) "$(counts "$LOGS"/long.*.log | awk '{ printf " %s=%s", $1, $2 }')" \
      >>"$ROOT/tests/ledger.txt"
  done
  unset ASHLAR_TEST_SEED
}

layer_asan() {
  build asan || return
  export UBSAN_OPTIONS=print_stacktrace=1
  ASHLAR_TEST_SCALE=2 gtests asan asan '*'
}

layer_tsan() {
  build tsan || return
  local before=$((passed + failed))
  export TSAN_OPTIONS=halt_on_error=1
  # ThreadSanitizer of g++ 12 does not start under the address layout of newer kernels.
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    gtests tsan tsan "$TSAN_FILTER" setarch "$(uname -m)" -R
  else
    gtests tsan tsan "$TSAN_FILTER" env
  fi
  [ $((passed + failed)) -gt $before ] || skip_layer tsan "no test has such a name: $TSAN_FILTER"
}

layer_clang() {
  if ! command -v clang++ >/dev/null; then
    skip_layer clang "no clang++"
  elif build clang; then
    tally "clang build" 1 0 0
  fi
}

# Planted mistakes; the seven lines beside them are the binaries without one.
PLANTS_LEAST=45

layer_plants() {
  build plants || return
  local log=$LOGS/plants.log ok bad code=0
  tests/plants/run_plants.sh build/plants >"$log" 2>&1 || code=$?
  ok=$(grep -c '^ok ' "$log") bad=$(grep -c '^not ok ' "$log")
  # It fell over, or has lost plants.
  [ "$bad" = 0 ] && { [ "$code" != 0 ] || [ "$ok" -lt $((PLANTS_LEAST + 7)) ]; } && bad=1
  tally plants "$ok" "$bad" 0
  sed 's/^/    /' "$log"
}

main() {
  local layer
  # shellcheck disable=SC2086
  [ $# -gt 0 ] || set -- $ALL_LAYERS
  for layer in "$@"; do
    if ! declare -F "layer_${layer%%=*}" >/dev/null; then
      note "no layer $layer; there are: cli $ALL_LAYERS long"
      exit 2
    fi
    if [[ $layer = *=* && ! $layer =~ ^long=[1-9][0-9]{0,4}$ ]]; then
      note "$layer: only long has a number, of minutes"
      exit 2
    fi
  done
  trap 'end_children $$; exit 130' INT TERM

  export ASHLAR_TEST_DIR=$ROOT/build/test-files
  export TEST_TMPDIR=$ASHLAR_TEST_DIR/
  rm -rf "$LOGS"
  mkdir -p "$LOGS" "$ASHLAR_TEST_DIR"
  use_ccache "$ROOT"
  # Where a run decides over a change it depends on nothing but the change; elsewhere each run tries new seeds.
  if [ "${CI:-}" = true ]; then export ASHLAR_TEST_SEED=${ASHLAR_TEST_SEED:-20261130}; fi
  detach_stale
  # shellcheck disable=SC2086
  install_packages $PACKAGES_BUILD $PACKAGES_TESTS || note "some packages could not be installed"
  # shellcheck disable=SC2086
  install_packages $PACKAGES_BENCH || note "not installed: $PACKAGES_BENCH; kv_bench is built and tested without"

  for layer in "$@"; do
    local start=$SECONDS
    note "== $layer"
    LONG_MINUTES=60
    [[ $layer != long=* ]] || LONG_MINUTES=${layer#*=}
    "layer_${layer%%=*}"
    note "  $layer took $((SECONDS - start)) s"
  done
  echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
  [ $failed = 0 ] && [ $passed -gt 0 ]
}

main "$@"
