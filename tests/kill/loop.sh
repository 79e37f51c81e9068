# Sourced by the scripts beside it, after cases.sh: loop devices over images in the directory of the case. A case
# runs in a shell of its own; what it attached and mounted goes when it ends, however it ends.
# shellcheck shell=bash

need_loop() {
  [ "$(id -u)" = 0 ] || skip "needs root for loop devices"
  [ -e /dev/loop-control ] || skip "no loop devices here"
}

# attach IMAGE [LOSETUP_ARGS...]: its loop device in $LOOP.
attach() {
  local image=$1
  shift
  LOOP=$(losetup --show -f "$@" "$image") || skip "losetup does not work here"
  ATTACHED+=("$LOOP")
  trap detach_all EXIT
}

mount_at() { # DEVICE DIRECTORY
  mkdir -p "$2"
  mount "$1" "$2"
  MOUNTED+=("$2")
}

ATTACHED=()
MOUNTED=()
detach_all() {
  local each
  set +e
  for each in "${MOUNTED[@]}"; do umount "$each"; done
  for each in "${ATTACHED[@]}"; do losetup -d "$each"; done
}
