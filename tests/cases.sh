# Sourced by the tests that are shell scripts. A case is a function test_NAME; it runs under `set -e` in a
# directory of its own and passes when it returns 0. `run_cases` prints one line a case, which run.sh
# counts: "ok NAME", "not ok NAME" or "skip NAME: why". Files that stand for devices are named
# ashlar-test.PID.*, so that a later run knows what a killed one left behind.
# shellcheck shell=bash

WORK=$(mktemp -d "${ASHLAR_TEST_DIR:-/var/tmp}/ashlar-test.$$.XXXXXX") || exit 1
trap 'rm -rf "$WORK"' EXIT
# shellcheck disable=SC2034
IMAGE=ashlar-test.$$.image # a name in the directory of the case

# expect EXIT COMMAND...: runs it, keeps standard output in ./out and standard error in ./err.
expect() {
  local want=$1 got=0
  shift
  "$@" >out 2>err || got=$?
  [ "$got" = "$want" ] && return 0
  echo "exit $got, expected $want: $*" | cut -c1-300
  head -c 2000 out err
  return 1
}

# same FILE TEXT: the file holds exactly these bytes (printf notation).
same() {
  # shellcheck disable=SC2059
  printf "$2" | cmp "$1" - && return 0
  od -c "$1" | head -20
  return 1
}

# has FILE TEXT: some line of the file contains the text.
has() {
  grep -qF -e "$2" "$1" && return 0
  echo "$1 lacks: $2"
  cat "$1"
  return 1
}

# hasnt FILE TEXT
hasnt() {
  ! grep -qF -e "$2" "$1" && return 0
  echo "$1 has: $2"
  return 1
}

# Ends the case as skipped.
skip() {
  echo "$1"
  exit 77
}

run_cases() {
  local name log failed=0
  for name in $(declare -F | awk '$3 ~ /^test_/ { print $3 }'); do
    log=$WORK/$name.log
    mkdir "$WORK/$name"
    (
      exec 9>&1
      BASH_XTRACEFD=9 # commands write to ./err, the trace does not
      set -euxo pipefail
      cd "$WORK/$name"
      "$name"
    ) >"$log" 2>&1 </dev/null
    case $? in
      0) echo "ok ${name#test_}" ;;
      77) echo "skip ${name#test_}: $(grep -v '^+' "$log" | tail -1)" ;;
      *)
        echo "not ok ${name#test_}"
        tail -n 40 "$log" | cut -c1-300 | sed 's/^/    /'
        failed=1
        ;;
    esac
    rm -rf "${WORK:?}/$name"
  done
  exit $failed
}
