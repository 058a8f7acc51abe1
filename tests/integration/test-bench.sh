#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# folioctl bench against a real foliod, at tiny sizes: what it prints, with which status it ends, and that nothing of it
# stays. FOLIOCTL, FOLIO_DAEMON and JSON_GET are the programs. TAP.
#
# How long anything takes is never looked at; what is counted (system calls, round trips) is.
set -u
: "${FOLIOCTL:?}" "${FOLIO_DAEMON:?}" "${JSON_GET:?}"
export FOLIO_DAEMON
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../lint/tap.sh
. "$here/../lint/tap.sh"
# shellcheck source=checks.sh
. "$here/checks.sh"

scratch=$(mktemp -d /tmp/folioctl-bench-XXXXXX)
daemon_pid=
bench_pid=
clean_up()
{
        [ -z "$bench_pid" ] || kill "$bench_pid" 2>/dev/null
        [ -z "$daemon_pid" ] || kill "$daemon_pid" 2>/dev/null
        wait
        rm -rf -- "$scratch"
}
trap clean_up EXIT
cd -- "$scratch" || exit 1

fact()
{
        "$FOLIOCTL" status --json | "$JSON_GET" "$1"
}
fact_is()
{
        [ "$(fact "$1")" = "$2" ]
}
namespaces()
{
        "$FOLIOCTL" ns ls --json | "$JSON_GET" length
}
# nothing_left NAME: no namespace, object, hold or memory but what the daemon keeps blank.
nothing_left()
{
        until_true fact_is memory.freeing_bytes 0
        same "$1: no namespace is left" "1" "$(namespaces)"
        same "$1: no object" "0 0 0 0" \
                "$(fact objects.count) $(fact unsealed.count) $(fact held.count) $(fact memory.held_bytes)"
        same "$1: no byte of one" "0" "$(fact packed.used_bytes)"
}

# --- asked wrongly ----------------------------------------------------------------------------------------------------
unset FOLIO_SOCKET NO_COLOR
expect 2 "without a suite" "$FOLIOCTL" bench
expect 2 "an unknown suite" "$FOLIOCTL" bench reed
says "and says which there are" err "none of read, map, batch, write, put, create, get, stat, handoff, truncate, delete, beside, shapes"
for arguments in "--size 5Q" "--size 1M" "--size 2T" "--rounds 0" "--rounds 1001" "--rounds x" "--case nosuch" \
        "--backing hugetlb"; do
        # shellcheck disable=SC2086 # words are wanted
        expect 2 "read $arguments" "$FOLIOCTL" bench read $arguments
done
expect 2 "a case that not every suite has" "$FOLIOCTL" bench read map --case first
expect 3 "without a daemon" "$FOLIOCTL" --no-spawn --socket "$scratch/nobody" bench read

# --- what it prints ---------------------------------------------------------------------------------------------------
mkfifo ready
"$FOLIO_DAEMON" --user --config /dev/null --socket "$scratch/sock" --budget 384M --log-level warning --keeper none --ready-fd 3 3>ready &
daemon_pid=$!
head -c 1 ready >/dev/null
export FOLIO_SOCKET=$scratch/sock

# fields LINE FIELD...: their values, each in angle brackets; nothing for one that is not there.
fields()
{
        local line=$1 name
        shift
        for name; do
                printf '<%s>' "$("$JSON_GET" "$name" <<<"$line" 2>/dev/null)"
        done
}
# A figure is a number above 0.
is_figure()
{
        [[ $1 =~ ^[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$ ]] && [[ $1 =~ [1-9] ]]
}
check_lines()
{
        local suite=$1 line status=0 name
        while IFS= read -r line; do
                [ "$("$JSON_GET" suite <<<"$line")" = "$suite" ] || status=1
                for name in ours theirs ratio rounds; do
                        is_figure "$("$JSON_GET" "$name" <<<"$line")" || status=1
                done
                for name in case writers size block unit spread what pages theirs_pages faults theirs_faults; do
                        [ -n "$("$JSON_GET" "$name" <<<"$line")" ] || status=1
                done
                # Of what is handed on the calls are not counted: most of them are the waiting for the waiters.
                [ "$suite" = handoff ] || [ -n "$("$JSON_GET" theirs_calls <<<"$line")" ] || status=1
                [ "$status" = 0 ] || break
        done <out
        [ "$status" = 0 ] || echo "$line" >why
        check "$suite: every line has every field" "$status" why
}
# run_suite NAME LINES
run_suite()
{
        local n
        expect 0 "bench $1" "$FOLIOCTL" bench "$1" --json --size 4M --rounds 3
        n=$(wc -l <out)
        if [ -s err ]; then
                # Not every machine lets one mount a tmpfs, or has huge pages: that is said, and the rest is measured.
                says "$1: what is left out is said" err "are left out: "
                [ "$n" -gt 0 ] && [ "$n" -lt "$2" ]
                check "$1: and the rest is there" $?
        else
                same "$1: a line for each case" "$2" "$n"
        fi
        check_lines "$1"
        nothing_left "$1"
}

run_suite read 24
# A quarter of 4 MiB in blocks of 64 KiB.
line=$(grep '"case":"normal"' out | grep '"block":65536' | head -n 1)
same "the plain side reads block by block" "<16>" "$(fields "$line" theirs_calls)"
same "what is mapped is read without asking anybody" "<0>" "$(fields "$line" round_trips)"
line=$(grep '"case":"random"' out | head -n 1)
same "random reads are counted" "<4194304><4096><us><10000>" "$(fields "$line" size block unit theirs_calls)"

run_suite map 12
line=$(grep '"case":"write"' out | head -n 1)
same "a byte every 16 KiB of 2 MiB" "<2097152><16384><ms>" "$(fields "$line" size block unit)"

run_suite batch 6
status=0
while IFS= read -r n; do
        [ "$n" -le 2 ] || status=1
done < <(grep '"case":"\(first\|again\)"' out | sed 's/.*"round_trips":\([0-9]*\).*/\1/')
grep '"case":"first"' out >why
check "a batch takes two round trips at most" "$status" why

run_suite write 22

# --- small objects ----------------------------------------------------------------------------------------------------
# check_laps SUITE LINES: so many of them have a median and a 99th percentile, and none has one without the other.
check_laps()
{
        local line status=0 n=0 name
        while IFS= read -r line; do
                [ -n "$("$JSON_GET" p50_ours <<<"$line" 2>/dev/null)" ] || continue
                n=$((n + 1))
                for name in p50_ours p99_ours p50_theirs p99_theirs; do
                        is_figure "$("$JSON_GET" "$name" <<<"$line")" || status=1
                done
                awk -v a="$("$JSON_GET" p50_ours <<<"$line")" -v b="$("$JSON_GET" p99_ours <<<"$line")" \
                        'BEGIN { exit !(a <= b) }' || status=1
                [ "$status" = 0 ] || break
        done <out
        [ "$status" = 0 ] || echo "$line" >why
        check "$1: both percentiles of both sides, in their order" "$status" why
        [ "$2" = some ] || same "$1: of so many cases" "$2" "$n"
}
# lines PATTERN...: those of `out` with all of them.
lines()
{
        local pattern text
        text=$(cat out)
        for pattern; do
                text=$(grep -- "$pattern" <<<"$text")
        done
        printf '%s\n' "$text"
}

# of CASE WRITERS SIZE: the line of `out`.
of()
{
        lines "\"case\":\"$1\"" "\"writers\":\"$2\"" "\"size\":$3,"
}

# asks WANTED SUITE CASE WRITERS SIZE FIELD...: what is counted there; SIZE may be empty. Trusted writers ask by one message for
# another lease where foliod has taken theirs back, as it does when they have stood still for some seconds, or memory is
# short. That is no message for each of what they do: so what is not WANTED is counted again, three times in all.
asks()
{
        local wanted=$1 suite=$2 name=$3 writers=$4 size=$5 got n_left=3
        shift 5
        cp out first
        while [ "$n_left" -gt 0 ]; do
                n_left=$((n_left - 1))
                got=$(fields "$(lines "\"case\":\"$name\"" "\"writers\":\"$writers\"" ${size:+"\"size\":$size,"})" "$@")
                [ "$got" != "$wanted" ] || break
                [ "$n_left" -eq 0 ] ||
                        "$FOLIOCTL" bench "$suite" --case "$name" --json --size 4M --rounds 3 >out 2>err
        done
        mv first out
        echo "$got"
}

run_suite put 46
check_laps put 28
for writers in untrusted trusted; do
        line=$(of visible "$writers" 64)
        same "put, $writers: a thousand files of three calls" "<us><3000><0>" \
                "$(fields "$line" unit theirs_calls theirs_faults)"
        same "put, $writers: one by one each is a record" "<0><1000>" \
                "$(asks "<0><1000>" put visible "$writers" 64 round_trips records)"
        same "put, $writers: and so it is where nobody waits" "<0><1000>" \
                "$(asks "<0><1000>" put pipelined "$writers" 64 round_trips records)"
done
line=$(of many untrusted 64)
same "put: many of them are one request" "<1>" "$(fields "$line" round_trips)"
line=$(of async untrusted 64)
same "put: under way at once, each is one" "<256>" "$(fields "$line" round_trips)"

run_suite create 44
check_laps create 38
same "create: two calls for each file, new" "<2000>" "$(fields "$(of creat-clo untrusted 0)" theirs_calls)"
same "create: and of a name that is taken" "<2000>" "$(fields "$(of creat-clo-again untrusted 0)" theirs_calls)"
for writers in untrusted trusted; do
        same "create, $writers: nothing, made and sealed, asks by no message" "<0>" \
                "$(asks "<0>" create creat-clo-pipelined "$writers" 0 round_trips)"
        same "create, $writers: nor does what is written where it stays" "<0>" \
                "$(asks "<0>" create place-pipelined "$writers" 64 round_trips)"
done

run_suite get 10
check_laps get 10
for name in hot any read exists exists-any; do
        same "get: $name asks nobody" "<0><0>" "$(fields "$(of "$name" untrusted 4096)" calls round_trips)"
done
for name in hot any read; do
        same "get: $name of trusted writers asks nobody" "<0><0>" "$(fields "$(of "$name" trusted 4096)" calls round_trips)"
done
same "get: four calls for each file" "<4000>" "$(fields "$(of hot untrusted 4096)" theirs_calls)"

run_suite stat 6
check_laps stat 6
same "stat: asks nobody" "<0><0>" "$(fields "$(lines '"case":"stat"')" calls round_trips)"
for name in 1 2 8 1000; do
        same "stat: $name threads, as many calls in all" "<20000><0>" \
                "$(fields "$(lines "\"case\":\"threads-$name\"")" theirs_calls round_trips)"
done

run_suite handoff 28
check_laps handoff 28
status=0
while IFS= read -r line; do
        for name in waiter_cpu_ours waiter_cpu_theirs; do
                is_figure "$("$JSON_GET" "$name" <<<"$line")" || status=1
        done
done <out
check "handoff: what those use that wait is counted" "$status" out
# Of a waiter a question now and then, where it maps what it has not mapped yet.
n=$(fields "$(of eight-file untrusted 64)" round_trips | tr -d '<>')
[ "${n:-1000}" -lt 100 ]
check "handoff: nobody asks in order to wait" $?

run_suite truncate 4
check_laps truncate 4
same "truncate: the same size is no call" "<0><0><10000>" \
        "$(fields "$(lines '"case":"same"')" calls round_trips theirs_calls)"

run_suite delete 10
check_laps delete 4
same "delete: one call for each file" "<1000>" "$(fields "$(of single untrusted 64)" theirs_calls)"
for writers in untrusted trusted; do
        same "delete, $writers: each is a record" "<0><1000>" \
                "$(asks "<0><1000>" delete pipelined "$writers" 64 round_trips records)"
done

run_suite beside 14
check_laps beside 8
same "beside: three calls for each file, whoever makes it" "<12000>" \
        "$(fields "$(of writers-4 trusted 64)" theirs_calls)"

run_suite shapes 6
check_laps shapes 2
same "shapes: seven calls for each file of a batch" "<798><798>" \
        "$(fields "$(lines '"case":"loader"' '"writers":"untrusted"')" theirs_calls)$(fields "$(lines '"case":"loader"' '"writers":"trusted"')" theirs_calls)"
same "shapes: results of tasks of trusted writers ask by no message" "<0>" \
        "$(asks "<0>" shapes tasks trusted "" round_trips)"
same "shapes: a ring of records is memory" "<0><0>" \
        "$(fields "$(lines '"case":"market"' '"pages":"4K"')" calls round_trips)"

expect 0 "small objects as a table" "$FOLIOCTL" bench truncate --case same --size 4M --rounds 1
same "has columns of its own" 1 "$(grep -c '^CASE .* P50 US .* P99 US .* PLAIN IS$' out)"
same "and a row for each case" 2 "$(grep -c '^same' out)"
nothing_left "small objects"

expect 0 "two suites, one case of each, as tables" "$FOLIOCTL" bench read batch --case first --size 4M --rounds 1 \
        --backing tmpfs
says "the machine comes first" out '^machine  .* CPUs, '
says "then the store" out "^store    foliod .*namespace bench-4k-[0-9]* .* and bench-2m-"
says "then how to read it" out "^rounds   1 of each.*ratios are what counts"
same "columns have titles" 2 "$(grep -c '^CASE .* FOLIO .* RATIO .* PLAIN IS$' out)"
same "only that case" "first" "$(awk '/^CASE/ { inside = 1; next } /^$/ { inside = 0 } inside { print $1 }' out | sort -u)"
same "no blank at the end of a line" "" "$(grep ' $' out)"
same "no colours in a file" "" "$(grep "$(printf '\033')" out)"
nothing_left "tables"

# --- the world says no ------------------------------------------------------------------------------------------------
expect 1 "more than the store has" "$FOLIOCTL" bench read
says "is told with numbers, and what fits" err "takes 1G of the store, which has .* left; --size 256M would fit"
says "and where there is more" err "folioctl run --budget 3G -- folioctl bench read"
nothing_left "refused"

# --- interrupted ------------------------------------------------------------------------------------------------------
is_measuring()
{
        "$FOLIOCTL" ns ls --json | grep -q '"n_unsealed": *[1-9]\|"n_objects": *[1-9]'
}
begin_endless()
{
        "$FOLIOCTL" bench write --size 16M --rounds 1000 >out 2>err </dev/null &
        bench_pid=$!
        until_true is_measuring
        check "$1: measuring has begun" $?
}
end_endless()
{
        local status=0
        wait "$bench_pid" 2>/dev/null || status=$?
        bench_pid=
        same "$1" "$2" "$status"
}
for signal in TERM HUP; do
        begin_endless "SIG$signal"
        kill -s "$signal" "$bench_pid"
        end_endless "SIG$signal ends it as it ends any program" $((128 + $(kill -l "$signal")))
        nothing_left "SIG$signal"
done
begin_endless "SIGKILL"
kill -s KILL "$bench_pid"
end_endless "SIGKILL ends it at once" 137
until_true fact_is objects.count 0
check "and its objects end with its connection" $?
for name in $("$FOLIOCTL" ns ls | grep -o 'bench-.*'); do
        "$FOLIOCTL" ns rm "$name"
done
nothing_left "SIGKILL"

begin_endless "no daemon"
kill -s KILL "$daemon_pid"
wait "$daemon_pid" 2>/dev/null
daemon_pid=
end_endless "a daemon that dies ends it" 3
says "and is named" err "foliod"
finish
