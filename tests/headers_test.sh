#!/bin/bash
# Every header compiles alone; the public ones with nothing but their own folder in sight.
# usage: headers_test.sh BUILD_DIR (of which nothing is needed)
set -u
cd "$(dirname "$0")/.." || exit 1

compiles_alone() {
  local header=$1 folders=(-Iengine/include)
  case $header in
    engine/include/*) ;;
    *) folders+=(-I. -Itools -Ibench) ;;
  esac
  if g++ -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers -fsyntax-only "${folders[@]}" \
    -x c++ -include "$header" /dev/null 2>"$LOGS/${header//\//.}"; then
    echo "ok $header compiles alone"
  else
    echo "not ok $header compiles alone"
    head -20 "$LOGS/${header//\//.}"
  fi
}
export -f compiles_alone

LOGS=$(mktemp -d)
export LOGS
trap 'rm -rf "$LOGS"' EXIT
find engine io tools tests bench -name '*.h' | sort |
  xargs -P "$(nproc)" -I{} bash -c 'compiles_alone {}' | tee "$LOGS/all"
! grep -q '^not ok' "$LOGS/all"
