#!/bin/bash
# From a bare Debian 12 to a store that holds real data: installs what is missing, builds Ashlar, loads the
# package index, reads it back and verifies it, and runs a short benchmark. On a sparse file in build/, or on
# the device you name (the benchmark would replace what was loaded there: it stays out):
#
#   tools/quickstart.sh [--device=PATH [--serial=S] [--wipe-store=ID] [--wipe-foreign]]
#
# The device is formatted; what `ashlarctl format` refuses without these flags is refused here too.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

device=build/quickstart.ashlar
format_flags=(--size=2G)
for arg in "$@"; do
  case $arg in
    --device=?*) device=${arg#*=} format_flags=() ;;
    --serial=* | --wipe-store=* | --wipe-foreign) wipe_flags+=("$arg") ;;
    *)
      sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
      exit 2
      ;;
  esac
done
format_flags+=("${wipe_flags[@]+"${wipe_flags[@]}"}")

exec 3>&1
say() { printf '\n== %s\n' "$*" >&3; }
# show COMMAND...: says the command, then runs it; what is said stays out of the command's output.
show() {
  printf '$ %s\n' "$*" >&3
  "$@"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
use_ccache "$PWD"

say "Packages that are missing"
# shellcheck disable=SC2086
install_packages $PACKAGES_BUILD
# shellcheck disable=SC2086
install_packages $PACKAGES_BENCH || echo "not installed: $PACKAGES_BENCH; kv_bench is built without"

say "Build: Release, into build/release"
show cmake --preset release -DASHLAR_TESTS=OFF >"$work/log" || {
  cat "$work/log"
  exit 1
}
show cmake --build --preset release --target ashlarctl kv_bench
ctl=build/release/bin/ashlarctl

say "Data: Debian's package index"
index=$work/packages.txt
apt-cache dumpavail >"$index"
if [ ! -s "$index" ]; then
  as_root apt-get update -q >/dev/null
  apt-cache dumpavail >"$index"
fi
echo "$(grep -c '^Package:' "$index") packages, $(stat -c %s "$index") bytes"

say "A new store on $device"
# Only the file of an earlier quickstart is replaced; devices are protected by format itself.
[ "$device" = build/quickstart.ashlar ] && rm -f "$device"
show "$ctl" format "$device" "${format_flags[@]}"

say "Load: each package is a record, its name the key"
show "$ctl" load "$device" "$index" --format=stanza

say "One package read back"
show "$ctl" get "$device" bash | head -n 5

say "Keys that begin with libstdc++"
show "$ctl" scan "$device" --prefix=libstdc++ --limit=5 | cut -c1-100

say "Everything read back in key order and compared with the index, byte for byte"
show "$ctl" dump "$device" --format=stanza >"$work/dumped"
perl tools/sort_stanzas.pl <"$index" >"$work/sorted"
cmp "$work/dumped" "$work/sorted"
echo "the same $(stat -c %s "$work/dumped") bytes"

say "Every live byte verified"
show "$ctl" check "$device"

say "What the store is made of"
show "$ctl" info "$device" --tables

if [ "$device" = build/quickstart.ashlar ]; then
  say "A short benchmark on a file of its own (bench/README.md says what the figures mean)"
  rm -f build/quickstart.bench
  show build/release/bin/kv_bench --device=build/quickstart.bench --num=200000 --reads=50000 \
    --benchmarks=fillrandom,readrandom,readmissing,readseq
  rm -f build/quickstart.bench
fi

say "Done. Try: $ctl --help"
