#!/bin/bash
# A process that writes is killed at random moments; the store keeps its promises each time. Root, for a loop device.
# usage: kill_test.sh BUILD_DIR
# shellcheck disable=SC2317
set -u
BIN=$(realpath "$1")/bin
HERE=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cases.sh
. "$HERE/../cases.sh"
# shellcheck source=tests/kill/loop.sh
. "$HERE/loop.sh"
exec 8>&1 # the counts of a case, beside its verdict
ROUNDS=${ASHLAR_KILL_ROUNDS:-200}
SEED=${ASHLAR_KILL_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

killed() { # DEVICE ROUNDS
  expect 0 "$BIN/kill_driver" "$BIN/kill_writer" "$BIN/ashlarctl" "$1" "$2" "$SEED"
  sed 's/^/  /' out >&8
}

test_killed_writer_on_a_loop_device_loses_nothing() {
  need_loop
  truncate -s 256M "$IMAGE"
  attach "$IMAGE" --direct-io=on
  expect 0 "$BIN/ashlarctl" format "$LOOP"
  killed "$LOOP" "$ROUNDS"
}

test_killed_writer_on_a_file_loses_nothing() {
  expect 0 "$BIN/ashlarctl" format "$IMAGE" --size=256M
  killed "$IMAGE" $((ROUNDS / 4))
}

run_cases
