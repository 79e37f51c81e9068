#!/bin/bash
# What must not be opened or formatted is refused, with what was found in the text, and stays as it was byte for byte.
# usage: refusal_test.sh BUILD_DIR
# shellcheck disable=SC2317
set -u
BIN=$(realpath "$1")/bin
HERE=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cases.sh
. "$HERE/../cases.sh"
# shellcheck source=tests/kill/loop.sh
. "$HERE/loop.sh"
CTL=$BIN/ashlarctl

sum() { sha256sum "$1" | cut -d' ' -f1; }

# refused PATH TEXT...: every command that opens refuses it, says each text, and leaves it alone.
refused() {
  local path=$1 before command
  shift
  before=$(sum "$path")
  for command in "get $path k" "put $path k v" "delete $path k" "scan $path" "load $path /dev/null" \
    "dump $path" "check $path" "info $path"; do
    # shellcheck disable=SC2086
    expect 3 "$CTL" $command
    for text in "$@"; do has err "$text"; done
  done
  [ "$before" = "$(sum "$path")" ]
}

# format_refused PATH TEXT [FORMAT_ARGS...]
format_refused() {
  local path=$1 text=$2 before
  shift 2
  before=$(sum "$path")
  expect 3 "$CTL" format "$path" "$@"
  has err "$text"
  [ "$before" = "$(sum "$path")" ]
}

a_store() { # FILE: with a record in it
  expect 0 "$CTL" format "$1" --size=64M
  expect 0 "$CTL" put "$1" k v
}

test_random_data() {
  head -c 64M /dev/urandom >"$IMAGE"
  refused "$IMAGE" "not an Ashlar store"
  format_refused "$IMAGE" "--wipe-foreign"
}

test_zeros_are_no_store() {
  truncate -s 64M "$IMAGE"
  refused "$IMAGE" "not an Ashlar store"
}

test_file_systems_and_partition_tables_are_named() {
  truncate -s 64M "$IMAGE"
  mkfs.ext4 -q -F "$IMAGE"
  refused "$IMAGE" "not an Ashlar store"
  format_refused "$IMAGE" ext4
  truncate -s 0 "$IMAGE" && truncate -s 64M "$IMAGE"
  mkswap "$IMAGE" >/dev/null
  format_refused "$IMAGE" swap
  truncate -s 0 "$IMAGE" && truncate -s 64M "$IMAGE"
  echo 'label: gpt
    ,' | sfdisk -q "$IMAGE"
  format_refused "$IMAGE" gpt
}

test_a_byte_in_the_last_mib_is_content() {
  truncate -s 64M "$IMAGE"
  printf x | dd of="$IMAGE" bs=1 seek=$((64 * 1024 * 1024 - 1)) conv=notrunc status=none
  format_refused "$IMAGE" "--wipe-foreign"
}

test_a_mounted_device() {
  need_loop
  truncate -s 64M "$IMAGE"
  mkfs.ext4 -q -F "$IMAGE"
  attach "$IMAGE"
  mount_at "$LOOP" mnt
  format_refused "$IMAGE" mnt --wipe-foreign || format_refused "$LOOP" mnt --wipe-foreign
  expect 3 "$CTL" format "$LOOP" --wipe-foreign
  has err mounted
  expect 3 "$CTL" put "$LOOP" k v
}

test_a_store_of_a_newer_format() {
  a_store "$IMAGE"
  expect 0 "$BIN/edit_superblock" "$IMAGE" version
  refused "$IMAGE" newer "version 2"
  format_refused "$IMAGE" newer
}

test_a_store_with_an_unknown_feature() {
  a_store "$IMAGE"
  expect 0 "$BIN/edit_superblock" "$IMAGE" feature
  refused "$IMAGE" "features 8"
}

test_a_truncated_file() {
  a_store "$IMAGE"
  truncate -s 63M "$IMAGE"
  refused "$IMAGE" 66060288 67108864
  truncate -s 1M "$IMAGE"
  refused "$IMAGE" 1048576 67108864
  truncate -s 0 "$IMAGE"
  local before
  before=$(sum "$IMAGE")
  for command in get put; do
    "$CTL" $command "$IMAGE" k v >out 2>err && return 1
    [ -s err ]
  done
  [ "$before" = "$(sum "$IMAGE")" ]
}

test_a_device_smaller_than_its_store() {
  need_loop
  a_store "$IMAGE"
  attach "$IMAGE" --sizelimit=$((48 * 1024 * 1024))
  local before
  before=$(sum "$IMAGE")
  expect 3 "$CTL" put "$LOOP" k v
  has err 67108864
  expect 3 "$CTL" get "$LOOP" k
  has err 50331648
  [ "$before" = "$(sum "$IMAGE")" ]
}

test_a_device_too_small_for_a_store() {
  truncate -s 63M "$IMAGE"
  local before
  before=$(sum "$IMAGE")
  expect 2 "$CTL" format "$IMAGE"
  has err 67108864
  [ "$before" = "$(sum "$IMAGE")" ]
}

test_an_own_store_is_not_formatted_over() {
  a_store "$IMAGE"
  format_refused "$IMAGE" "--wipe-store="
  format_refused "$IMAGE" "--wipe-store=" --wipe-foreign
  format_refused "$IMAGE" "0000" --wipe-store=0000
}

test_a_store_that_a_live_process_has_open() {
  a_store "$IMAGE"
  mkfifo input
  "$CTL" load "$IMAGE" input >/dev/null 2>&1 &
  local holder=$!
  exec 7>input # the load has its input, and so the store, open
  local tries=0
  until "$CTL" put "$IMAGE" a b >out 2>err; [ $? = 3 ]; do
    tries=$((tries + 1))
    [ $tries -lt 200 ]
  done
  has err "process $holder"
  expect 3 "$CTL" format "$IMAGE" --wipe-foreign
  exec 7>&-
  wait "$holder"
  expect 0 "$CTL" put "$IMAGE" a b
}

test_what_is_no_device_at_all() {
  mkdir directory
  expect 3 "$CTL" get directory k
  has err directory
  expect 3 "$CTL" get /dev/null k
  expect 3 "$CTL" format /dev/null
  mkfifo pipe
  expect 3 "$CTL" get pipe k
  expect 4 "$CTL" get nowhere k
  has err nowhere
}

test_a_read_only_loop_device() {
  need_loop
  a_store "$IMAGE"
  attach "$IMAGE" --read-only
  local before
  before=$(sum "$IMAGE")
  expect 0 "$CTL" get "$LOOP" k
  "$CTL" put "$LOOP" k w >out 2>err && return 1
  [ -s err ]
  [ "$before" = "$(sum "$IMAGE")" ]
}

# Made where an LBA has 4,096 bytes, used where it has 512, and back.
test_a_store_moves_to_smaller_blocks() {
  need_loop
  a_store "$IMAGE"
  attach "$IMAGE"
  expect 0 "$CTL" get "$LOOP" k
  same out v
  for i in 1 2 3; do expect 0 "$CTL" put "$LOOP" "key$i" "value$i"; done
  expect 0 "$CTL" check "$LOOP"
  losetup -d "$LOOP"
  ATTACHED=()
  expect 0 "$CTL" get "$IMAGE" key3
  same out value3
  expect 0 "$CTL" put "$IMAGE" key4 value4
  expect 0 "$CTL" check "$IMAGE"
}

test_reading_changes_nothing() {
  a_store "$IMAGE"
  local before
  before=$(sum "$IMAGE")
  expect 0 "$CTL" get "$IMAGE" k
  expect 0 "$CTL" scan "$IMAGE"
  expect 0 "$CTL" dump "$IMAGE"
  expect 0 "$CTL" check "$IMAGE"
  expect 0 "$CTL" info "$IMAGE"
  [ "$before" = "$(sum "$IMAGE")" ]
}

run_cases
