#!/bin/bash
# Every command of ashlarctl as a person or a script meets it: what is printed, where, and the exit code.
# usage: cli_test.sh BUILD_DIR
# shellcheck disable=SC2317
set -u
CTL=$(realpath "$1")/bin/ashlarctl
HERE=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cases.sh
. "$HERE/../cases.sh"

ctl() { "$CTL" "$@"; }
# A new store in the directory of the case.
fresh() { expect 0 ctl format "$IMAGE" --size=256M; }
# COMMAND as on a terminal, what it shows in ./shown; its exit code does not matter. `script` hands the words
# to $SHELL, and only bash reads what bash has quoted.
on_terminal() { SHELL=$BASH script -qc "$(printf '%q ' "$@")" /dev/null >shown 2>&1 </dev/null; }

test_help_names_every_command_and_no_other() {
  expect 0 ctl --help
  for name in format info get put delete scan load dump check compact; do has out "  $name "; done
  for name in list doctor stats top trim backup restore wipe; do hasnt out "  $name "; done
  for name in format info get put delete scan load dump check compact; do
    expect 0 ctl "$name" --help
    has out --json
  done
}

test_usage_errors_exit_2() {
  expect 2 ctl
  expect 2 ctl nonsense
  expect 2 ctl get
  expect 2 ctl get "$IMAGE"
  expect 2 ctl get "$IMAGE" key extra
  expect 2 ctl info --nonsense "$IMAGE"
  expect 2 ctl format "$IMAGE" --size=8X
  expect 2 ctl load "$IMAGE" --format=xml
  expect 2 ctl get --hex "$IMAGE" 0g
  [ ! -e "$IMAGE" ]
}

test_missing_path_exits_4() {
  expect 4 ctl info "$IMAGE"
  expect 4 ctl get "$IMAGE" key
  expect 4 ctl put "$IMAGE" key value
  expect 4 ctl check "$IMAGE"
  [ ! -e "$IMAGE" ]
}

test_format_makes_a_sparse_file() {
  expect 0 ctl format "$IMAGE" --size=8G
  [ "$(stat -c %s "$IMAGE")" = $((8 << 30)) ]
  [ "$(du -k "$IMAGE" | cut -f1)" -lt 65536 ]
  [ ! -s err ]
}

test_format_says_the_store_id_in_json() {
  expect 0 ctl format "$IMAGE" --size=256M --json
  id=$(sed -n 's/.*"store_id":"\([^"]*\)".*/\1/p' out)
  [ -n "$id" ]
  expect 0 ctl info "$IMAGE"
  has out "$id"
}

test_format_refuses_an_own_store_without_its_id() {
  fresh
  expect 0 ctl put "$IMAGE" key value
  expect 3 ctl format "$IMAGE"
  expect 3 ctl format "$IMAGE" --wipe-foreign
  expect 3 ctl format "$IMAGE" --wipe-store=00000000000000000000000000000000
  expect 0 ctl get "$IMAGE" key
  same out value
}

test_format_replaces_an_own_store_by_its_id() {
  expect 0 ctl format "$IMAGE" --size=256M --json
  id=$(sed -n 's/.*"store_id":"\([^"]*\)".*/\1/p' out)
  expect 0 ctl put "$IMAGE" key value
  expect 0 ctl format "$IMAGE" --wipe-store="$id"
  expect 1 ctl get "$IMAGE" key
}

test_format_refuses_foreign_content_and_names_it() {
  command -v mkfs.ext4 >/dev/null || skip "no mkfs.ext4"
  truncate -s 256M "$IMAGE"
  mkfs.ext4 -q "$IMAGE"
  cp --sparse=always "$IMAGE" before
  expect 3 ctl format "$IMAGE"
  has err ext4
  cmp "$IMAGE" before
  expect 0 ctl format "$IMAGE" --wipe-foreign
  expect 0 ctl check "$IMAGE"
}

test_foreign_content_is_refused_by_every_command() {
  head -c 128M /dev/zero | tr '\0' x >"$IMAGE"
  cp "$IMAGE" before
  expect 3 ctl get "$IMAGE" key
  expect 3 ctl put "$IMAGE" key value
  expect 3 ctl dump "$IMAGE"
  expect 3 ctl info "$IMAGE"
  expect 3 ctl check "$IMAGE"
  cmp "$IMAGE" before
}

test_get_writes_the_value_alone() {
  fresh
  expect 0 ctl put "$IMAGE" key 'a value'
  [ ! -s out ]
  expect 0 ctl get "$IMAGE" key
  same out 'a value'
  [ ! -s err ]
}

test_get_of_a_missing_key_exits_1_and_writes_nothing() {
  fresh
  expect 1 ctl get "$IMAGE" key
  [ ! -s out ]
  has err 'not found: "key"'
  expect 1 ctl get --json "$IMAGE" key
  same out '{"found":false}\n'
}

test_put_takes_any_bytes_from_standard_input() {
  fresh
  printf '\0\377\n\n' | expect 0 ctl put "$IMAGE" key -
  expect 0 ctl get "$IMAGE" key
  same out '\0\377\n\n'
  expect 0 ctl get --hex "$IMAGE" 6b6579
  same out 00ff0a0a
  expect 0 ctl get --json "$IMAGE" key
  same out '{"k":"key","v64":"AP8KCg=="}\n'
}

test_put_takes_hex_empty_values_and_dashes() {
  fresh
  expect 0 ctl put --hex "$IMAGE" 00ff 0a
  expect 0 ctl get --hex "$IMAGE" 00FF
  same out 0a
  expect 0 ctl put "$IMAGE" empty ''
  expect 0 ctl get "$IMAGE" empty
  same out ''
  expect 0 ctl put "$IMAGE" -- -k -v
  expect 0 ctl get "$IMAGE" -- -k
  same out '\055v'
}

test_limits_are_said() {
  fresh
  expect 2 ctl put "$IMAGE" '' value
  expect 2 ctl put "$IMAGE" "$(head -c 4097 /dev/zero | tr '\0' k)" value
  expect 0 ctl put "$IMAGE" "$(head -c 4096 /dev/zero | tr '\0' k)" value
  head -c 17M /dev/zero >value
  expect 2 ctl put "$IMAGE" key - <value
  expect 1 ctl get "$IMAGE" key
}

test_delete_removes_and_a_missing_key_is_no_error() {
  fresh
  expect 0 ctl put "$IMAGE" key value
  expect 0 ctl delete "$IMAGE" key --json
  same out '{"deleted":true}\n'
  expect 1 ctl get "$IMAGE" key
  expect 0 ctl delete "$IMAGE" key
  expect 0 ctl delete --hex "$IMAGE" 00
}

test_compact_gives_back_what_was_deleted() {
  fresh
  seq -f 'key%06g' 1 2000 | sed "s/$/\t$(printf '%0500d' 7)/" >in.tsv
  expect 0 ctl load "$IMAGE" in.tsv
  seq -f 'key%06g' 1 2000 | sed "s/$/\tlater/" | expect 0 ctl load "$IMAGE"
  expect 0 ctl compact "$IMAGE" --from=zz
  expect 0 ctl compact "$IMAGE" --json
  [ "$(sed 's/.*"bytes_in_use_before":\([0-9]*\).*/\1/' out)" -gt "$(sed 's/.*"bytes_in_use":\([0-9]*\).*/\1/' out)" ]
  expect 0 ctl compact "$IMAGE"
  has out 'compacted: '
  expect 2 ctl compact --hex "$IMAGE" --from=xy
  expect 0 ctl scan "$IMAGE" --from=key001999
  same out 'key001999\tlater\nkey002000\tlater\n'
  expect 0 ctl check "$IMAGE"
}

test_scan_takes_bounds_prefix_and_limit() {
  fresh
  for k in a ab abc abd b; do printf '%s\tv%s\n' "$k" "$k"; done | expect 0 ctl load "$IMAGE"
  expect 0 ctl scan "$IMAGE"
  same out 'a\tva\nab\tvab\nabc\tvabc\nabd\tvabd\nb\tvb\n'
  expect 0 ctl scan "$IMAGE" --prefix=ab
  same out 'ab\tvab\nabc\tvabc\nabd\tvabd\n'
  expect 0 ctl scan "$IMAGE" --from=ab --to=abd
  same out 'ab\tvab\nabc\tvabc\n'
  expect 0 ctl scan "$IMAGE" --prefix=ab --from=abc --limit=1
  same out 'abc\tvabc\n'
  expect 0 ctl scan "$IMAGE" --reverse
  same out 'b\tvb\nabd\tvabd\nabc\tvabc\nab\tvab\na\tva\n'
  expect 0 ctl scan "$IMAGE" --reverse --prefix=ab --to=abd
  same out 'abc\tvabc\nab\tvab\n'
  expect 0 ctl scan "$IMAGE" --reverse --from=ab --limit=2
  same out 'b\tvb\nabd\tvabd\n'
  expect 0 ctl scan "$IMAGE" --prefix=a --to=b
  same out 'a\tva\nab\tvab\nabc\tvabc\nabd\tvabd\n'
  expect 0 ctl scan --hex "$IMAGE" --prefix=ff
  same out ''
  expect 0 ctl scan "$IMAGE" --limit=0
  same out ''
  expect 0 ctl scan "$IMAGE" --prefix=zz
  same out ''
  expect 0 ctl scan --hex "$IMAGE" --prefix=6162 --limit=1
  same out '6162\t766162\n'
  expect 0 ctl scan --json "$IMAGE" --from=b
  same out '{"k":"b","v":"vb"}\n'
}

test_nothing_of_a_store_reaches_a_terminal_unescaped() {
  fresh
  printf '\\x1b]0;k\\x07\t\\x1b[31mred\\x9b\\xe2\\x80\\xae\\n\n' | expect 0 ctl load "$IMAGE"
  for words in "get --hex $IMAGE 1b5d303b6b07" scan dump "dump --format=jsonl" "scan --json" \
    "info --tables --extents --log" check; do
    case $words in *$IMAGE*) ;; *) words="$words $IMAGE" ;; esac
    # shellcheck disable=SC2086
    on_terminal "$CTL" $words
    [ -s shown ]
    # Progress may rewrite its own line: CR and ESC [ K are ours.
    sed 's/\r\x1b\[K//g' shown | LC_ALL=C grep -q $'[\x1b\x9b\x07\xe2]' && {
      echo "$words"
      od -c shown | head
      return 1
    }
  done
  on_terminal "$CTL" get "$IMAGE" $'\x1b]0;k\x07'
  has shown '\x1b[31mred\x9b\xe2\x80\xae'
  expect 1 ctl get "$IMAGE" $'\x1b[31m'
  has err '"\x1b[31m"'
  on_terminal "$CTL" dump --format=binary "$IMAGE"
  has shown 'not for a terminal'
}

test_get_ends_the_line_on_a_terminal_only() {
  fresh
  expect 0 ctl put "$IMAGE" key value
  on_terminal "$CTL" get "$IMAGE" key
  same shown 'value\r\n'
}

test_load_names_the_bad_line_and_keeps_what_came_before() {
  fresh
  printf 'a\t1\nb\t2\nbad\nc\t3\n' | expect 2 ctl load "$IMAGE"
  has err 'line 3 (byte 8): no tab between key and value, found "bad"; 2 records loaded before it'
  expect 0 ctl scan "$IMAGE"
  same out 'a\t1\nb\t2\n'
  printf '\1\0\0\0\1\0\0\0kv\1\0' | expect 2 ctl load --format=binary --json "$IMAGE"
  has err 'record 2 (byte 10): the input ends inside the record'
  has out '"exit":2'
  has out '1 record loaded before it'
}

test_load_reads_a_file_and_reports() {
  fresh
  printf 'a\t1\na\t2\n' >input
  expect 0 ctl load "$IMAGE" input --json
  same out '{"records":2,"bytes":4}\n'
  expect 0 ctl get "$IMAGE" a
  same out 2
  expect 4 ctl load "$IMAGE" missing
  has err missing
  expect 0 ctl load "$IMAGE" /dev/null
  has out 'loaded 0 records'
}

test_load_reports_what_is_durable() {
  fresh
  printf 'a\t1\nb\t2\nc\t3\n' | expect 0 ctl load "$IMAGE" --report-durable --batch-records=2
  head -2 out >durable
  same durable 'durable 2\ndurable 3\n'
}

test_load_into_a_full_store_says_how_many_got_in() {
  expect 0 ctl format "$IMAGE" --size=64M
  awk 'BEGIN { v = sprintf("%02000d", 0); for (i = 0; i < 60000; ++i) printf "%08d\t%s\n", i, v }' \
    >input
  expect 4 ctl load "$IMAGE" input
  n=$(sed -n 's/.*; \([0-9,]*\) records loaded before it.*/\1/p' err | tr -d ,)
  [ "$n" -gt 1000 ]
  expect 0 ctl dump "$IMAGE"
  [ "$(wc -l <out)" = "$n" ]
  expect 0 ctl delete "$IMAGE" 00000000
  expect 0 ctl check "$IMAGE"
}

test_dump_and_load_round_trip_in_every_format() {
  fresh
  {
    printf 'a\t\n\\x00\\xff\t\\t\\n\\\\\nm\xc3\xbc\tx\n'
    for i in $(seq 300); do printf 'key%03d\t%0*d\n' "$i" $((i * 13)) "$i"; done
  } | expect 0 ctl load "$IMAGE"
  expect 0 ctl dump "$IMAGE"
  cp out all.tsv
  [ "$(wc -l <all.tsv)" = 303 ]
  for format in tsv jsonl binary; do
    "$CTL" dump --format="$format" "$IMAGE" >all
    expect 0 ctl format "$IMAGE.$format" --size=256M
    expect 0 ctl load --format="$format" "$IMAGE.$format" all
    expect 0 ctl dump "$IMAGE.$format"
    cmp out all.tsv
  done
  expect 0 ctl dump --json "$IMAGE"
  "$CTL" dump --format=jsonl "$IMAGE" | cmp - out
}

test_dump_refuses_a_stanza_that_is_none() {
  fresh
  expect 0 ctl put "$IMAGE" key value
  expect 2 ctl dump --format=stanza "$IMAGE"
  has err 'is no stanza'
}

test_dump_to_a_full_disk_exits_4() {
  fresh
  expect 0 ctl put "$IMAGE" key value
  got=0
  "$CTL" dump "$IMAGE" >/dev/full 2>err || got=$?
  [ "$got" = 4 ]
  has err 'No space left'
  for words in "scan $IMAGE" "get $IMAGE key" "info $IMAGE" "check $IMAGE"; do
    got=0
    # shellcheck disable=SC2086
    "$CTL" $words >/dev/full 2>err || got=$?
    [ "$got" = 4 ]
  done
}

test_a_reader_that_goes_away_is_no_error() {
  fresh
  for i in $(seq 20000); do printf 'key%05d\tsome value\n' "$i"; done | expect 0 ctl load "$IMAGE"
  "$CTL" dump "$IMAGE" 2>err | head -1 >first
  [ "${PIPESTATUS[0]}" = 0 ]
  [ ! -s err ]
  same first 'key00001\tsome value\n'
}

test_info_and_check_describe_the_store() {
  fresh
  for i in $(seq 1000); do printf 'key%04d\tvalue\n' "$i"; done | expect 0 ctl load "$IMAGE"
  expect 0 ctl info "$IMAGE" --tables --extents --log
  has out '256.0 MiB'
  expect 0 ctl info "$IMAGE" --tables --json
  has out '"store_bytes": 268435456'
  has out '"tables"'
  expect 0 ctl check "$IMAGE"
  has out 'everything that is live verifies'
  expect 0 ctl check "$IMAGE" --json
  has out '"ok": true'
  has out '"entries": 1000'
  [ ! -s err ]
}

test_damage_is_found_named_and_skipped() {
  fresh
  for i in $(seq 20000); do printf 'key%05d\tvalue-%05d\n' "$i" "$i"; done | expect 0 ctl load "$IMAGE"
  expect 0 ctl info "$IMAGE" --json
  grep -q '"table": [1-9]' out
  # Every copy: a dead one may stand in what was the log.
  LC_ALL=C grep -obaF value-10000 "$IMAGE" | cut -d: -f1 | while read -r at; do
    printf X | dd of="$IMAGE" bs=1 seek="$at" conv=notrunc status=none
  done
  expect 1 ctl check "$IMAGE"
  has out DAMAGED
  has out extent
  expect 1 ctl check "$IMAGE" --json
  has out '"ok": false'
  expect 1 ctl get "$IMAGE" key10000
  [ ! -s out ]
  expect 0 ctl get "$IMAGE" key00001
  expect 1 ctl dump "$IMAGE"
  has err '--skip-damaged'
  expect 1 ctl dump "$IMAGE" --skip-damaged
  has err extent
  n=$(wc -l <out)
  [ "$n" -gt 19000 ] && [ "$n" -lt 20000 ]
  hasnt out Xalue
}

test_read_commands_write_nothing() {
  fresh
  printf 'a\tb\n' | expect 0 ctl load "$IMAGE"
  cp --sparse=always "$IMAGE" before
  expect 0 ctl get "$IMAGE" a
  expect 0 ctl scan "$IMAGE"
  expect 0 ctl dump "$IMAGE"
  expect 0 ctl info "$IMAGE"
  expect 0 ctl check "$IMAGE"
  cmp "$IMAGE" before
  chmod a-w "$IMAGE"
  expect 0 ctl get "$IMAGE" a
}

test_the_package_index_survives_a_round_trip() {
  command -v apt-cache >/dev/null || skip "no apt-cache"
  apt-cache dumpavail >index 2>/dev/null || skip "apt-cache dumpavail fails"
  [ -s index ] || skip "apt-cache dumpavail is empty"
  perl "$HERE/../../tools/sort_stanzas.pl" <index >sorted
  expect 0 ctl format "$IMAGE" --size=1G
  expect 0 ctl load --format=stanza "$IMAGE" index
  expect 0 ctl get "$IMAGE" bash
  awk '/^$/ { exit } { print }' out | cmp - out
  has out 'Package: bash'
  "$CTL" scan "$IMAGE" --prefix=bash >scanned
  [ "$(wc -l <scanned)" = "$(grep -c '^Package: bash' sorted)" ]
  "$CTL" dump --format=stanza "$IMAGE" >dumped
  cmp dumped sorted
  expect 0 ctl check "$IMAGE"
}

run_cases
