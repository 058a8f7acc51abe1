#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# tests/sum-results counts what ran, not what was meant to: by table. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# counts NAME EXPECTED [JSON]: passed, failed and skipped of a log with this one test.
counts()
{
        if [ $# -gt 2 ]; then
                printf '%s\n' "$3" >"$scratch/log"
        else
                : >"$scratch/log"
        fi
        rm -f "$scratch/counts"
        "$here/../sum-results" "$scratch/log" "$scratch/counts" >"$scratch/output" 2>&1 || true
        got=$(cat "$scratch/counts" 2>/dev/null || true)
        echo "got: $got, expected: $2" >>"$scratch/output"
        status=0
        [ "$got" = "$2" ] || status=1
        check "$1" "$status" "$scratch/output"
}

counts "subtests count for themselves" "2 0 0" '{"name":"x","result":"OK","returncode":0,"stdout":"1..2\nok 1 - a\nok 2 - b\n"}'
counts "a failed subtest" "1 1 0" '{"name":"x","result":"FAIL","returncode":1,"stdout":"1..2\nok 1 - a\nnot ok 2 - b\n"}'
counts "a skipped one" "1 0 1" '{"name":"x","result":"OK","returncode":0,"stdout":"1..2\nok 1 - a\nok 2 # SKIP b\n"}'
counts "a skipped one as cmocka says it" "1 0 1" '{"name":"x","result":"FAIL","returncode":0,"stdout":"1..2\nok 1 - a\nnot ok 2 # SKIP b\n"}'
counts "all skipped" "0 0 1" '{"name":"x","result":"SKIP","returncode":0,"stdout":"1..0 # SKIP no clang\n"}'
counts "fewer than planned" "1 1 0" '{"name":"x","result":"ERROR","returncode":0,"stdout":"1..2\nok 1 - a\n"}'
counts "ended by a signal after all passed" "1 1 0" '{"name":"x","result":"ERROR","returncode":-11,"stdout":"1..1\nok 1 - a\n"}'
counts "exit status 1 after all passed" "1 1 0" '{"name":"x","result":"ERROR","returncode":1,"stdout":"1..1\nok 1 - a\n"}'
counts "a plan of nothing" "0 1 0" '{"name":"x","result":"SKIP","returncode":0,"stdout":"1..0\n"}'
counts "bails out" "1 1 0" '{"name":"x","result":"ERROR","returncode":1,"stdout":"1..2\nok 1 - a\nBail out! no\n"}'
counts "too slow" "1 1 0" '{"name":"x","result":"TIMEOUT","returncode":-15,"stdout":"1..2\nok 1 - a\n"}'
counts "prints nothing, and meson calls it skipped" "0 1 0" '{"name":"x","result":"SKIP","returncode":0,"stdout":""}'
counts "skipped by exit status" "0 0 1" '{"name":"x","result":"SKIP","returncode":77,"stdout":""}'
counts "no TAP, passed" "1 0 0" '{"name":"x","result":"OK","returncode":0,"stdout":"hello\n"}'
counts "no TAP, failed" "0 1 0" '{"name":"x","result":"FAIL","returncode":1,"stdout":"hello\n"}'
counts "a log without a test" "0 1 0"
rm -f "$scratch/log"
status=0
"$here/../sum-results" "$scratch/none" "$scratch/counts" >"$scratch/output" 2>&1 || status=$?
[ "$(cat "$scratch/counts")" = "0 1 0" ] || status=1
check "no log" "$status" "$scratch/output"
finish
