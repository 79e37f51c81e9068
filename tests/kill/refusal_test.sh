#!/bin/bash
# Never the wrong disk: whatever is not provably meant is refused with an error that names what was found, and stays as it
# is, byte for byte. Root for loop devices; the cases on files run without.
# usage: refusal_test.sh BUILD_DIR
# shellcheck disable=SC2317
set -u
BIN=$(realpath "$1")/bin
HERE=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cases.sh
. "$HERE/../cases.sh"
# shellcheck source=tests/kill/loop.sh
. "$HERE/loop.sh"

ctl() { "$BIN/ashlarctl" "$@"; }
sum() { sha256sum <"$1"; }

# unchanged PATH EXIT TEXT COMMAND...: the command ends so, says so, and leaves every byte alone.
unchanged() {
  local path=$1 code=$2 text=$3 before
  shift 3
  before=$(sum "$path")
  expect "$code" "$@"
  [ -z "$text" ] || has err "$text"
  [ "$(sum "$path")" = "$before" ] || {
    echo "changed by: $*"
    return 1
  }
}
# Every way to open what is at PATH: all are refused with 3 and TEXT.
open_refused() { # PATH TEXT
  local how
  for how in 'put X k v' 'delete X k' 'get X k' 'scan X' 'load X /dev/null' 'dump X' 'info X' 'check X'; do
    # shellcheck disable=SC2086
    unchanged "$1" 3 "$2" ctl ${how/X/$1}
  done
}
open_for_writing_refused() { # PATH TEXT
  unchanged "$1" 3 "$2" ctl put "$1" k v
  unchanged "$1" 3 "$2" ctl delete "$1" k
}

store() { # PATH
  expect 0 ctl format "$1"
  expect 0 ctl put "$1" key value
}

test_random_data() {
  head -c 64M /dev/urandom >"$IMAGE"
  open_refused "$IMAGE" 'not an Ashlar store'
  unchanged "$IMAGE" 3 'not recognised' ctl format "$IMAGE"
  unchanged "$IMAGE" 3 'not recognised' ctl format "$IMAGE" --wipe-store=00000000000000000000000000000000
}

test_zeros() {
  truncate -s 64M "$IMAGE"
  open_refused "$IMAGE" 'not an Ashlar store'
}

test_reading_changes_nothing() {
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  for how in 'get X key' 'scan X' 'dump X' 'info X' 'check X'; do
    # shellcheck disable=SC2086
    unchanged "$IMAGE" 0 '' ctl ${how/X/$IMAGE}
  done
}

test_one_byte_at_either_end_is_content() {
  for at in 0 511 1048575 66060288 67108863; do
    truncate -s 0 "$IMAGE"
    truncate -s 64M "$IMAGE"
    printf x | dd of="$IMAGE" bs=1 seek="$at" conv=notrunc status=none
    unchanged "$IMAGE" 3 'would be lost' ctl format "$IMAGE"
  done
}

test_ext4_is_named() {
  command -v mkfs.ext4 >/dev/null || skip "no mkfs.ext4"
  need_loop
  truncate -s 128M "$IMAGE"
  attach "$IMAGE"
  mkfs.ext4 -q "$LOOP"
  open_refused "$LOOP" 'not an Ashlar store'
  unchanged "$LOOP" 3 'ext4 file system' ctl format "$LOOP"
}

test_swap_is_named() {
  command -v mkswap >/dev/null || skip "no mkswap"
  truncate -s 64M "$IMAGE"
  mkswap -q "$IMAGE" 2>/dev/null || mkswap "$IMAGE" >/dev/null
  open_refused "$IMAGE" 'not an Ashlar store'
  unchanged "$IMAGE" 3 'swap' ctl format "$IMAGE"
}

test_partition_table_is_named() {
  command -v sfdisk >/dev/null || skip "no sfdisk"
  truncate -s 128M "$IMAGE"
  printf 'label: gpt\n,64M\n' | sfdisk -q "$IMAGE"
  open_refused "$IMAGE" 'not an Ashlar store'
  unchanged "$IMAGE" 3 'gpt partition table' ctl format "$IMAGE"
  # Its copy at the end alone, too.
  dd if=/dev/zero of="$IMAGE" bs=1M count=1 conv=notrunc status=none
  unchanged "$IMAGE" 3 'would be lost' ctl format "$IMAGE"
}

test_mounted_device() {
  command -v mkfs.ext4 >/dev/null || skip "no mkfs.ext4"
  need_loop
  truncate -s 128M "$IMAGE"
  attach "$IMAGE"
  mkfs.ext4 -q "$LOOP"
  mount_at "$LOOP" mnt
  echo kept >mnt/file
  sync -f mnt/file
  # Mounted, it changes by itself: its file is what counts.
  expect 3 ctl format "$LOOP"
  has err mounted
  expect 3 ctl format "$LOOP" --wipe-foreign
  has err mounted
  expect 3 ctl put "$LOOP" k v
  has err mounted
  [ "$(cat mnt/file)" = kept ]
  umount mnt
  MOUNTED=()
  e2fsck -fn "$LOOP" >/dev/null 2>&1
}

test_store_on_a_smaller_device() {
  need_loop
  truncate -s 128M "$IMAGE"
  store "$IMAGE"
  head -c 96M "$IMAGE" >smaller.img
  mv smaller.img "$IMAGE.smaller"
  attach "$IMAGE.smaller"
  open_refused "$LOOP" 'cut short'
  has err 134217728
  unchanged "$LOOP" 3 'Ashlar store' ctl format "$LOOP"
}

test_truncated_file() {
  truncate -s 128M "$IMAGE"
  store "$IMAGE"
  truncate -s $(((128 << 20) - 4096)) "$IMAGE"
  open_refused "$IMAGE" 'cut short'
  truncate -s 80M "$IMAGE"
  open_refused "$IMAGE" 'cut short'
}

test_newer_format() {
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  "$BIN/edit_superblock" "$IMAGE" version
  open_refused "$IMAGE" newer
  unchanged "$IMAGE" 3 newer ctl format "$IMAGE"
}

test_unknown_incompatible_feature() {
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  "$BIN/edit_superblock" "$IMAGE" incompatible
  open_refused "$IMAGE" feature
  unchanged "$IMAGE" 3 newer ctl format "$IMAGE"
}

test_unknown_read_only_feature_can_be_read() {
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  "$BIN/edit_superblock" "$IMAGE" read-only
  open_for_writing_refused "$IMAGE" read-only
  expect 0 ctl get "$IMAGE" key
  same out value
  expect 0 ctl check "$IMAGE"
}

test_unknown_compatible_feature_is_no_obstacle() {
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  "$BIN/edit_superblock" "$IMAGE" compatible
  expect 0 ctl put "$IMAGE" more value
  expect 0 ctl get "$IMAGE" key
}

# in_use PATH: refused naming the process, by every command that writes, while a reader may look.
in_use() {
  local path=$1 pid seconds=$SECONDS
  coproc WRITER { exec "$BIN/kill_writer" "$path"; }
  pid=$WRITER_PID
  read -r line <&"${WRITER[0]}"
  [ "$line" = open ]
  # It must not go on, or what is compared would change.
  kill -STOP "$pid"
  expect 3 ctl put "$path" k v
  has err "process $pid (kill_writer)"
  expect 3 ctl format "$path"
  expect 3 ctl format "$path" --wipe-foreign
  expect 0 ctl info "$path"
  [ $((SECONDS - seconds)) -lt 5 ] # at once: it does not wait for an owner that lives
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
  expect 0 ctl put "$path" k v # and then it is free
  expect 0 ctl check "$path"
}
test_file_in_use() {
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  in_use "$IMAGE"
}
test_device_in_use() {
  need_loop
  truncate -s 64M "$IMAGE"
  attach "$IMAGE"
  store "$LOOP"
  in_use "$LOOP"
}

test_directory() {
  mkdir directory
  expect 3 ctl put directory k v
  has err 'is a directory'
  expect 3 ctl info directory
  expect 3 ctl format directory
  has err 'is a directory'
  expect 3 ctl format directory --wipe-foreign
  rmdir directory
}

test_character_device() {
  for each in /dev/null /dev/zero; do
    expect 3 ctl put $each k v
    has err 'character device'
    expect 3 ctl get $each k
    expect 3 ctl format $each
    has err 'character device'
    expect 3 ctl format $each --wipe-foreign
  done
}

test_fifo_does_not_hang() {
  mkfifo fifo
  expect 3 timeout 10 "$BIN/ashlarctl" get fifo k
  has err FIFO
  expect 3 timeout 10 "$BIN/ashlarctl" format fifo
}

test_missing_path() {
  for how in 'put X k v' 'get X k' 'info X' 'check X' 'dump X' 'format X'; do
    # shellcheck disable=SC2086
    expect 4 ctl ${how/X/$IMAGE}
    has err "$IMAGE"
    [ ! -e "$IMAGE" ]
  done
  expect 4 ctl format "no/such/directory/$IMAGE" --size=64M
}

test_no_permission() {
  [ "$(id -u)" = 0 ] || skip "needs root to become another user"
  command -v setpriv >/dev/null || skip "no setpriv"
  dir=$(mktemp -d "/tmp/ashlar-test.$$.XXXXXX")
  trap 'rm -rf "$dir"' EXIT
  chmod 755 "$dir"
  cp "$BIN/ashlarctl" "$dir/ctl"
  truncate -s 64M "$dir/$IMAGE"
  store "$dir/$IMAGE"
  chmod 400 "$dir/$IMAGE"
  as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$dir/ctl" "$@"; }
  unchanged "$dir/$IMAGE" 3 'Permission denied' as put "$dir/$IMAGE" k v
  unchanged "$dir/$IMAGE" 3 'Permission denied' as get "$dir/$IMAGE" k
  unchanged "$dir/$IMAGE" 3 'Permission denied' as format "$dir/$IMAGE"
  chmod 444 "$dir/$IMAGE"
  expect 0 as get "$dir/$IMAGE" key
  unchanged "$dir/$IMAGE" 3 'Permission denied' as put "$dir/$IMAGE" k v
}

# Made where an LBA has 4,096 bytes, used where it has 512, and back.
test_a_store_moves_to_smaller_blocks() {
  need_loop
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  attach "$IMAGE" --sector-size=512
  expect 0 ctl get "$LOOP" key
  for i in 1 2 3; do expect 0 ctl put "$LOOP" "key$i" "value$i"; done
  expect 0 ctl check "$LOOP"
  losetup -d "$LOOP"
  ATTACHED=()
  expect 0 ctl get "$IMAGE" key3
  same out value3
  expect 0 ctl put "$IMAGE" key4 value4
  expect 0 ctl check "$IMAGE"
}

test_read_only_device() {
  need_loop
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  attach "$IMAGE" --read-only
  open_for_writing_refused "$LOOP" 'read-only'
  unchanged "$LOOP" 3 'read-only' ctl format "$LOOP"
  expect 0 ctl get "$LOOP" key
  same out value
  expect 0 ctl check "$LOOP"
}

test_too_small_a_device() {
  need_loop
  truncate -s 63M "$IMAGE"
  attach "$IMAGE"
  unchanged "$LOOP" 2 'at least 67108864' ctl format "$LOOP"
  unchanged "$LOOP" 2 'at least 67108864' ctl format "$LOOP" --wipe-foreign
  expect 3 ctl get "$LOOP" k
}

test_too_small_a_file() {
  expect 2 ctl format "$IMAGE" --size=63M
  [ ! -e "$IMAGE" ]
  truncate -s 63M "$IMAGE"
  unchanged "$IMAGE" 2 'at least 67108864' ctl format "$IMAGE"
  truncate -s 0 "$IMAGE"
  expect 3 ctl get "$IMAGE" k
  truncate -s 511 "$IMAGE"
  expect 3 ctl get "$IMAGE" k
}

test_a_store_is_not_formatted_away() {
  need_loop
  truncate -s 64M "$IMAGE"
  attach "$IMAGE"
  store "$LOOP"
  unchanged "$LOOP" 3 '--wipe-store=' ctl format "$LOOP"
  unchanged "$LOOP" 3 'Ashlar store' ctl format "$LOOP" --wipe-foreign
  unchanged "$LOOP" 3 'it is not' ctl format "$LOOP" --wipe-store=00000000000000000000000000000001
  expect 0 ctl get "$LOOP" key
}

# A loop device and the file under it are one store: who has the one keeps the other out.
test_loop_device_and_its_file_exclude_each_other() {
  need_loop
  truncate -s 64M "$IMAGE"
  store "$IMAGE"
  attach "$IMAGE"
  unchanged "$IMAGE" 3 "$LOOP" ctl put "$IMAGE" a b
  unchanged "$IMAGE" 3 "$LOOP" ctl format "$IMAGE" --wipe-foreign
  expect 0 ctl get "$IMAGE" key
  losetup -d "$LOOP"
  ATTACHED=()
  mkfifo input
  ctl load "$IMAGE" input >/dev/null 2>&1 &
  local holder=$! tries=0
  exec 7>input
  until
    ctl put "$IMAGE" a b >out 2>err
    [ $? = 3 ]
  do
    tries=$((tries + 1))
    [ $tries -lt 200 ]
  done
  attach "$IMAGE"
  expect 3 ctl put "$LOOP" a b
  exec 7>&-
  wait "$holder"
}

run_cases
