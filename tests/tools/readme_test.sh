#!/bin/bash
# The first program of README.md, compiled as it stands there, does what README.md says.
# usage: readme_test.sh BUILD_DIR
# shellcheck disable=SC2317
set -u
BUILD=$(realpath "$1")
# shellcheck source=tests/cases.sh
. "$(realpath "$(dirname "$0")")/../cases.sh"

test_readme_program_prints_its_value() {
  expect 0 "$BUILD/bin/readme_program"
  same out 'world\n'
  expect 0 "$BUILD/bin/readme_program" # again, on the store it made
  same out 'world\n'
}

run_cases
