#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Every verb of folioctl against a real foliod: what it does, what it says, and with which status it ends. FOLIOCTL,
# FOLIO_DAEMON and JSON_GET are the programs. TAP.
#
# Nothing here depends on how long something takes: background programs are waited for by what they do.
set -u
: "${FOLIOCTL:?}" "${FOLIO_DAEMON:?}" "${JSON_GET:?}"
export FOLIO_DAEMON
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../lint/tap.sh
. "$here/../lint/tap.sh"
# shellcheck source=checks.sh
. "$here/checks.sh"

scratch=$(mktemp -d /tmp/folioctl-test-XXXXXX)
daemon_pid=
# Pids we must not leave behind: the daemons that were started on our behalf.
spawned_pids()
{
        local directory
        for directory in /proc/[0-9]*; do
                [ "$(readlink "$directory/exe" 2>/dev/null)" = "$(readlink -f "$FOLIO_DAEMON")" ] || continue
                tr '\0' '\n' <"$directory/environ" 2>/dev/null | grep -qxF "XDG_RUNTIME_DIR=$scratch/runtime" &&
                        echo "${directory#/proc/}"
        done
}
clean_up()
{
        local pid
        [ -z "$daemon_pid" ] || kill "$daemon_pid" 2>/dev/null
        for pid in $(spawned_pids); do
                kill "$pid"
        done
        wait
        rm -rf -- "$scratch"
}
trap clean_up EXIT
cd -- "$scratch" || exit 1
mkdir -m 0700 runtime empty
export XDG_RUNTIME_DIR=$scratch/empty
unset FOLIO_SOCKET NO_COLOR


# --- without a daemon -------------------------------------------------------------------------------------------------
expect 2 "no verb is a usage error" "$FOLIOCTL"
says "that shows the verbs" err "^verbs: put replace get .* help$"
silent "on standard error" out
expect 2 "an unknown verb is a usage error" "$FOLIOCTL" fetch
says "and says where help is" err "folioctl help"
expect 2 "an unknown option is a usage error" "$FOLIOCTL" ls --bogus
expect 2 "a bad size is a usage error" "$FOLIOCTL" truncate x 5Q
expect 2 "too few arguments are a usage error" "$FOLIOCTL" put x
expect 2 "too many arguments are a usage error" "$FOLIOCTL" stat
expect 0 "--help" "$FOLIOCTL" --help
says "names every verb" out "truncate NAME SIZE"
same "has no blank at the end of a line" "" "$(grep ' $' out)"
expect 0 "--version" "$FOLIOCTL" --version
for verb in put replace get cat ls stat holders rm truncate wait watch ns status check run bench help; do
        expect 0 "help $verb" "$FOLIOCTL" help "$verb"
        expect 0 "$verb --help" "$FOLIOCTL" "$verb" --help
        same "without a blank at the end of a line" "" "$(grep ' $' out)"
        same "or what no foliod has" "" "$(grep hugetlb out)"
done
for arguments in "ls" "put /etc/hostname x" "get x" "cat x" "stat x" "rm x" "truncate x 1" "wait x" "watch" "ns ls" "status" \
        "check" "holders x" "replace /etc/hostname x"; do
        # shellcheck disable=SC2086 # words are wanted
        expect 3 "without a daemon: $arguments" "$FOLIOCTL" --no-spawn --socket "$scratch/nobody" $arguments
done
says "says what to do" err "start foliod"
says "and where it looked" err "$scratch/nobody"
expect 3 "without a daemon and an address" "$FOLIOCTL" --no-spawn ls
says "names both places" err "$scratch/empty/folio/folio.sock or /run/folio/folio.sock"
says "and what folioctl can do" err "starts one itself where --no-spawn"
FOLIO_DAEMON=/nope expect 3 "a FOLIO_DAEMON that is none" "$FOLIOCTL" ls
says "is named" err "FOLIO_DAEMON names /nope"
XDG_RUNTIME_DIR=$scratch/gone expect 3 "a runtime directory that is not there" "$FOLIOCTL" ls
says "is named" err "XDG_RUNTIME_DIR names $scratch/gone: No such file"
mkdir -m 0755 empty/folio
expect 3 "a directory that lets others in" "$FOLIOCTL" ls
says "is named with its mode" err "$scratch/empty/folio has mode 0755"
rmdir empty/folio
expect 2 "help of what is no verb" "$FOLIOCTL" help fetch
says "names the help there is" err '; `folioctl help` lists the verbs$'
expect 2 "put with no time to expire in" "$FOLIOCTL" put -e 0 /etc/hostname x
FOLIO_DAEMON=/nonexistent expect 3 "run without a foliod" "$FOLIOCTL" run -- true
FOLIO_DAEMON=/bin/false expect 3 "run with a foliod that does not start" "$FOLIOCTL" run -- true
same "run leaves no directory" "" "$(ls empty)"

# --- a daemon of ours -------------------------------------------------------------------------------------------------
mkfifo ready
"$FOLIO_DAEMON" --user --config /dev/null --socket "$scratch/sock" --budget 512M --log-level warning --ready-fd 3 3>ready &
daemon_pid=$!
head -c 1 ready >/dev/null
export FOLIO_SOCKET=$scratch/sock

head -c 100 /dev/urandom >small
head -c 20000000 /dev/urandom >large
: >nothing
expect 0 "put a small file" "$FOLIOCTL" put small small
silent "says nothing" err
expect 0 "put a large file" "$FOLIOCTL" put large large
silent "has no progress line where there is no terminal" err
expect 0 "put an empty file" "$FOLIOCTL" put nothing nothing
expect 1 "put what is there already" "$FOLIOCTL" put small small
says "says how it would work" err "--replace"
says "in one sentence that begins with its name" err "^folioctl: cannot put small: the name is taken"
same "of one line" 1 "$(wc -l <err)"
for name in small large nothing; do
        expect 0 "get $name" "$FOLIOCTL" get "$name" "got-$name"
        equal "the same bytes" "$name" "got-$name"
        expect 0 "cat $name" "$FOLIOCTL" cat "$name"
        equal "the same bytes" "$name" out
done
same "no file of another name is left" "" "$(find . -name 'got-*.folio-*')"
expect 0 "get to standard output" "$FOLIOCTL" get large -
equal "the same bytes" large out
expect 0 "cat several" "$FOLIOCTL" cat small large small
cat small large small >together
equal "one behind the other" together out
expect 1 "cat goes on behind one that is not there" "$FOLIOCTL" cat small nobody large
cat small large >together
equal "and writes the others" together out
expect 0 "get a part" "$FOLIOCTL" get large --offset 1M --length 4K
tail -c +1048577 large | head -c 4096 >part
equal "that part" part out
expect 1 "get beyond the end" "$FOLIOCTL" get small --offset 50 --length 51
says "says how far" err "has 100 bytes, and not 51 of them from 50 on"
expect 0 "get the rest" "$FOLIOCTL" get small --offset 100
silent "which is empty" out

# --- names and what goes wrong ------------------------------------------------------------------------------------------
expect 1 "get what is not there" "$FOLIOCTL" get nobody got-nobody
expect 1 "get from a namespace that is not there" "$FOLIOCTL" get nowhere:x
says "says how to make it" err "folioctl ns add"
expect 1 "rm of a name that is not there" "$FOLIOCTL" rm nobody
says "says how to see what is" err "folioctl ls"
same "and not how to wait for it" "" "$(grep 'folioctl wait' err)"
same "makes no file" "" "$(ls got-nobody 2>/dev/null)"
expect 2 "a bad namespace" "$FOLIOCTL" get 'Bad Space:x'
says "says what is wrong in it" err "\"Bad Space\" holds 'B'"
expect 2 "an empty key" "$FOLIOCTL" get 'default:'
says "says so" err "the key behind the colon is missing"
expect 2 "an empty name" "$FOLIOCTL" put small ''
says "is shown as one" err "^folioctl: cannot put '': the name is empty"
expect 2 "a key that is too long" "$FOLIOCTL" get "$(printf '%0300d' 0)"
says "says how long it is" err '000\.\.\." has 300 bytes, and 255 is the most'
expect 1 "put what cannot be read" "$FOLIOCTL" put /nonexistent x
expect 1 "put a directory" "$FOLIOCTL" put / x
expect 1 "get into a directory that is not there" "$FOLIOCTL" get small nowhere/file
chmod 0640 got-small
expect 0 "get over a file" "$FOLIOCTL" get small got-small
same "keeps its mode" 640 "$(stat -c %a got-small)"
ln -s got-small link
expect 0 "get over a link" "$FOLIOCTL" get large link
same "keeps the link" got-small "$(readlink link)"
equal "and changes what it points at" large got-small
expect 0 "get into a device" "$FOLIOCTL" get large /dev/null
if [ -w /dev/full ]; then
        expect 1 "a full disk is told" "$FOLIOCTL" get small /dev/full
        says "as what it is" err "No space left"
        status=0
        "$FOLIOCTL" ls >/dev/full 2>err || status=$?
        same "so it is where a table is written" 1 "$status"
fi
odd=$'odd\n\x1b[31m\\\xff'
expect 0 "a name with everything in it" "$FOLIOCTL" put small "$odd"
expect 0 "ls" "$FOLIOCTL" ls
says "shows it harmlessly" out 'default:odd\\n\\x1b\[31m\\\\\\xff'
expect 0 "stat --json" "$FOLIOCTL" stat --json "$odd"
same "has its bytes" "$(printf 'default:%s' "$odd" | od -An -v -tx1 | tr -d ' \n')" "$(json name_hex <out)"
expect 0 "rm" "$FOLIOCTL" rm "$odd"
{ (ulimit -f 1000; exec "$FOLIOCTL" get large too-large); } >out 2>err
same "a get that is ended leaves no file" "" "$(ls -d too-large* 2>/dev/null)"

# --- streams ------------------------------------------------------------------------------------------------------------
"$FOLIOCTL" put - streamed <large
check "put standard input that is a file" $?
cat large | "$FOLIOCTL" put - piped
check "put a pipe" $?
printf tiny | "$FOLIOCTL" put - tiny
check "put a short pipe" $?
: | "$FOLIOCTL" put - empty
check "put an empty pipe" $?
"$FOLIOCTL" cat streamed | cmp - large >why 2>&1; check "a file comes back" $? why
"$FOLIOCTL" cat piped | cmp - large >why 2>&1; check "a pipe comes back" $? why
same "a short pipe comes back" tiny "$("$FOLIOCTL" cat tiny)"
same "an empty pipe comes back" "" "$("$FOLIOCTL" cat empty)"
(head -c 1000 >/dev/null; "$FOLIOCTL" put - rest) <small
same "from where standard input stands" "$("$FOLIOCTL" stat --json rest | json size_bytes)" "$(tail -c +1001 small | wc -c)"
expect 0 "put a file whose size is not known" "$FOLIOCTL" put /proc/self/mounts mounts
same "is not empty" 1 "$([ "$("$FOLIOCTL" stat --json mounts | json size_bytes)" -gt 0 ] && echo 1)"
"$FOLIOCTL" cat large | head -c 10 >out 2>err
same "a reader that goes away is nothing to talk about" "" "$(cat err)"
head -c 1048576 large >exact
expect 0 "put at the limit of small" "$FOLIOCTL" put exact exact
head -c 1048577 large >over
cat over | "$FOLIOCTL" put - over
check "a pipe one byte over it" $?
"$FOLIOCTL" cat exact | cmp - exact >why 2>&1; check "come back" $? why
"$FOLIOCTL" cat over | cmp - over >why 2>&1; check "both" $? why

# --- an interrupted put leaves nothing -------------------------------------------------------------------------------------
mkfifo slow
"$FOLIOCTL" put - interrupted <slow 2>err &
put_pid=$!
exec 8>slow
cat large >&8
is_writing() { [ "$("$FOLIOCTL" stat --json interrupted | json state)" = writing ]; }
until_true is_writing
check "while it is put it is there, being written" $?
expect 1 "and cannot be got" "$FOLIOCTL" get interrupted
kill -TERM "$put_pid"
wait "$put_pid" 2>/dev/null
is_gone() { ! "$FOLIOCTL" stat interrupted; }
until_true is_gone
check "and is gone when that is ended" $?
exec 8>&-

# --- stat, ls, json -----------------------------------------------------------------------------------------------------------
expect 0 "stat" "$FOLIOCTL" stat large
says "has the size in words and bytes" out "^size  *19M (20000000 bytes)"
expect 0 "stat --json" "$FOLIOCTL" --json stat large
for field in name:default:large size_bytes:20000000 capacity_bytes:20000000 state:sealed protection:kernel-sealed backing:memfd \
        placement:own lifetime:until-deleted content_type:null metadata_bytes:0 has_holes:false expires:null "owner_uid:$(id -u)"; do
        same "stat: ${field%%:*}" "${field#*:}" "$(json "${field%%:*}" <out)"
done
for field in allocated_bytes huge_bytes generation created changed seals holders; do
        json "$field" <out >why 2>&1
        check "stat has $field" $? why
done
same "stat: seals" '["write","shrink","grow","seal"]' "$(json seals <out)"
expect 0 "stat of a small one" "$FOLIOCTL" stat --json small
same "is packed" packed "$(json placement <out)"
same "takes its chunk" 128 "$(json allocated_bytes <out)"
same "and no huge page of its own" 0 "$(json huge_bytes <out)"
expect 0 "stat of two" "$FOLIOCTL" stat --json small large
same "is an array" 2 "$(json length <out)"
expect 1 "stat of one and nobody" "$FOLIOCTL" stat --json small nobody
same "has the one" 1 "$(json length <out)"
expect 0 "ls" "$FOLIOCTL" ls
same "is sorted" "$(LC_ALL=C sort out)" "$(cat out)"
expect 0 "ls of a prefix" "$FOLIOCTL" ls sm
same "has only that" default:small "$(cat out)"
expect 0 "ls of a prefix with its namespace" "$FOLIOCTL" ls default:sm
same "has the same" default:small "$(cat out)"
expect 0 "ls of a prefix of nothing" "$FOLIOCTL" ls zz
silent "is empty" out
expect 1 "ls of no namespace" "$FOLIOCTL" ls nowhere:
says "has one colon" err "^folioctl: cannot list nowhere: there"
expect 0 "ls -l" "$FOLIOCTL" ls -l
same "lines up" 1 "$(awk '{ print index($0, NR == 1 ? "NAME" : "default:") }' out | sort -u | wc -l)"
says "has no colours where there is no terminal" out "^ *SIZE  *ALLOCATED .* PROTECTION"
expect 0 "ls --sort size" "$FOLIOCTL" ls --json --sort size
same "has the largest first" 20000000 "$(json 0 size_bytes <out)"
expect 2 "ls --sort colour" "$FOLIOCTL" ls --sort colour
expect 0 "ls --json" "$FOLIOCTL" ls --json
same "has all of them" "$("$FOLIOCTL" ls | wc -l)" "$(json length <out)"
expect 0 "ls --json of nothing" "$FOLIOCTL" ls --json zz
same "is an empty array" 0 "$(json length <out)"

# --- options of put -----------------------------------------------------------------------------------------------------------
expect 0 "put with everything" "$FOLIOCTL" put -t text/plain -m a=1 --metadata 'b=two words' --expires-in 1h --own-region small dressed
expect 0 "stat --json" "$FOLIOCTL" stat --json dressed
same "content type" text/plain "$(json content_type <out)"
same "metadata_bytes" 15 "$(json metadata_bytes <out)"
same "lifetime" until-time "$(json lifetime <out)"
same "placement" own "$(json placement <out)"
same "metadata" $'a=1\nb=two words' "$("$FOLIOCTL" stat -m dressed)"
expect 0 "put with metadata from a file" "$FOLIOCTL" put --metadata small small dressed-2
"$FOLIOCTL" stat --metadata dressed-2 | cmp - small >why 2>&1; check "byte for byte" $? why
expect 2 "too much metadata" "$FOLIOCTL" put --metadata large small dressed-3
expect 2 "a lifetime that is none" "$FOLIOCTL" put --lifetime eternal small dressed-3
expect 2 "until-time without a time" "$FOLIOCTL" put --lifetime until-time small dressed-3
expect 2 "a capacity of what is not mutable" "$FOLIOCTL" put --capacity 1M small dressed-3
expect 0 "put --lifetime with-creator" "$FOLIOCTL" put --lifetime with-creator small fleeting
is_gone() { ! "$FOLIOCTL" stat fleeting; }
until_true is_gone
check "ends with folioctl" $?
expect 0 "put what expires at once" "$FOLIOCTL" put --expires-in 1ms small brief
is_gone() { ! "$FOLIOCTL" stat brief; }
until_true is_gone
check "expires" $?
truncate -s 32M holes
printf x | dd of=holes bs=1 seek=20000000 conv=notrunc status=none
expect 0 "put --sparse" "$FOLIOCTL" put --sparse holes holes
expect 0 "stat" "$FOLIOCTL" stat --json holes
same "has holes" true "$(json has_holes <out)"
same "takes less memory than its size" 1 "$([ "$(json allocated_bytes <out)" -lt 33554432 ] && echo 1)"
"$FOLIOCTL" cat holes | cmp - holes >why 2>&1; check "comes back" $? why

# --- replace, truncate, rm ------------------------------------------------------------------------------------------------------
generation=$("$FOLIOCTL" stat --json small | json generation)
expect 0 "replace" "$FOLIOCTL" replace exact small
"$FOLIOCTL" cat small | cmp - exact >why 2>&1; check "has the new bytes" $? why
same "has another generation" 1 "$([ "$("$FOLIOCTL" stat --json small | json generation)" != "$generation" ] && echo 1)"
expect 0 "put --replace" "$FOLIOCTL" put --replace small small
expect 0 "replace of what is not there" "$FOLIOCTL" replace small fresh
printf 'something new' | "$FOLIOCTL" replace - fresh
same "replace from a pipe" "something new" "$("$FOLIOCTL" cat fresh)"
expect 1 "truncate of a sealed object" "$FOLIOCTL" truncate small 1
expect 0 "put --mutable" "$FOLIOCTL" put --mutable --capacity 8M exact changing
expect 0 "truncate" "$FOLIOCTL" truncate changing 1000
expect 0 "stat" "$FOLIOCTL" stat --json changing
same "state" mutable "$(json state <out)"
same "size" 1000 "$(json size_bytes <out)"
same "capacity" 8388608 "$(json capacity_bytes <out)"
expect 0 "truncate to more" "$FOLIOCTL" truncate changing 2M
{ head -c 1000 exact; head -c 2096152 /dev/zero; } >grown
"$FOLIOCTL" cat changing | cmp - grown >why 2>&1; check "what grew is zeros" $? why
expect 1 "truncate beyond the capacity" "$FOLIOCTL" truncate changing 9M
says "says where that is seen" err "folioctl stat. shows its capacity"
cat large | "$FOLIOCTL" put --mutable --capacity 32M - changing-2
check "a mutable one from a pipe" $?
"$FOLIOCTL" cat changing-2 | cmp - large >why 2>&1; check "comes back" $? why
cat large | "$FOLIOCTL" put --mutable - changing-3 2>err
same "wants a capacity" 2 "${PIPESTATUS[1]}"
cat large | "$FOLIOCTL" put --mutable --capacity 2M - changing-3 2>err
same "that is large enough" 1 "${PIPESTATUS[1]}"
expect 1 "and nothing is left of it" "$FOLIOCTL" stat changing-3
expect 0 "rm" "$FOLIOCTL" rm changing changing-2
expect 1 "rm of what is not there" "$FOLIOCTL" rm changing
expect 0 "rm -f of what is not there" "$FOLIOCTL" rm -f changing
expect 1 "rm of one that is there and one that is not" "$FOLIOCTL" rm nobody tiny
expect 1 "removes the one" "$FOLIOCTL" stat tiny
for i in 1 2 3; do
        "$FOLIOCTL" put small "many/$i"
done
expect 2 "rm --prefix of everything" "$FOLIOCTL" rm --prefix default:
expect 2 "rm --prefix of nothing" "$FOLIOCTL" rm --prefix ''
expect 0 "rm --prefix" "$FOLIOCTL" rm --prefix many/
expect 0 "ls" "$FOLIOCTL" ls many
silent "they are gone" out

# --- too large, full ----------------------------------------------------------------------------------------------------------------
truncate -s 600M too-large
expect 1 "put what is larger than the store" "$FOLIOCTL" put too-large x
expect 1 "leaves nothing" "$FOLIOCTL" stat x
truncate -s 300M half
expect 0 "put the half" "$FOLIOCTL" put half half
expect 1 "put another half" "$FOLIOCTL" put half half-2
says "says who may use it" err "folioctl ns ls"
says "and what is being written" err "by 0 objects being written"
head -c 629145600 /dev/zero | "$FOLIOCTL" put - x 2>err
same "a pipe larger than the store" 1 "${PIPESTATUS[1]}"
expect 0 "rm" "$FOLIOCTL" rm half
rm -f too-large half

# --- holders --------------------------------------------------------------------------------------------------------------------------
mkfifo held
"$FOLIOCTL" get large - >held 2>err &
holder_pid=$!
exec 7<held
dd bs=1 count=1 <&7 >first 2>/dev/null
expect 0 "holders" "$FOLIOCTL" holders --json large
same "has the pid" "$holder_pid" "$(json 0 pid <out)"
same "has the uid" "$(id -u)" "$(json 0 uid <out)"
same "has the program" "$(basename "$FOLIOCTL")" "$(json 0 comm <out)"
expect 0 "holders as a table" "$FOLIOCTL" holders large
says "has the pid" out "^ *$holder_pid "
expect 0 "A20: ls --holders" "$FOLIOCTL" ls --holders
says "has the pid and the name" out "$holder_pid .*default:large$"
same "and nothing that nobody holds" 2 "$(wc -l <out)"
expect 0 "ls --holders --json" "$FOLIOCTL" ls --holders --json
same "has the pid" "$holder_pid" "$(json 0 holders 0 pid <out)"
same "stat has the holder" "$holder_pid" "$("$FOLIOCTL" stat --json large | json holders 0 pid)"
expect 0 "rm of what is held" "$FOLIOCTL" rm large
expect 1 "the name is free" "$FOLIOCTL" stat large
same "its bytes are counted as held" 20000000 "$("$FOLIOCTL" ns ls --json | json 0 held_bytes | awk '{ print ($1 >= 20000000) ? 20000000 : $1 }')"
{ cat first; cat <&7; } | cmp - large >why 2>&1; check "who holds it reads on" $? why
exec 7<&-
wait "$holder_pid"
check "and ends well" $?
nothing_is_held() { [ "$("$FOLIOCTL" ns ls --json | json 0 held_bytes)" = 0 ]; }
until_true nothing_is_held
check "then nothing is held" $?

# --- wait and watch ---------------------------------------------------------------------------------------------------------------------
expect 1 "wait for what does not come" "$FOLIOCTL" wait --wait 10ms never
expect 0 "wait for what is there" "$FOLIOCTL" wait small exact
"$FOLIOCTL" wait --wait 60 late later &
wait_pid=$!
"$FOLIOCTL" get --wait 60s late >late-got 2>err &
get_pid=$!
"$FOLIOCTL" put small later
"$FOLIOCTL" put exact late
wait "$wait_pid"
check "wait" $?
wait "$get_pid"
check "get --wait" $?
equal "has the bytes" exact late-got
"$FOLIOCTL" ns add events
"$FOLIOCTL" put small events:a
"$FOLIOCTL" put small events:b
"$FOLIOCTL" replace exact events:a
"$FOLIOCTL" rm events:a
expect 0 "watch --since --count" "$FOLIOCTL" watch --since 1 --count 3 events:
same "the events in order" "sealed events:b replaced events:a deleted events:a" "$(awk '{ print $4, $6 }' out | xargs)"
expect 0 "watch --json" "$FOLIOCTL" --json watch --since 1 -n 3 events:
same "one a line" 3 "$(wc -l <out)"
same "event" replaced "$(sed -n 2p out | json event)"
same "sequence" 3 "$(sed -n 2p out | json sequence)"
same "size" 1048576 "$(sed -n 2p out | json size_bytes)"
expect 0 "watch of a prefix" "$FOLIOCTL" watch --since 1 -n 1 events:a
says "has that only" out "replaced .*events:a$"
expect 1 "watch for more than comes" "$FOLIOCTL" watch --wait 10ms -n 1 events:
expect 0 "watch for a time" "$FOLIOCTL" watch --wait 10ms events:
silent "is silent when nothing happens" out

# --- namespaces ---------------------------------------------------------------------------------------------------------------------------
expect 0 "ns add" "$FOLIOCTL" ns add model --mode 0740 --quota 64M --quota-objects 2 --objects-max 1000
expect 1 "ns add again" "$FOLIOCTL" ns add model
says "says how to change it" err "folioctl ns set"
expect 0 "ns ls" "$FOLIOCTL" ns ls
says "shows it" out "^0740 .*0 of 2 .*0 of 64M .*model$"
expect 0 "ns ls --json" "$FOLIOCTL" ns ls --json
same "has three" "default events model" "$(json 0 name <out) $(json 1 name <out) $(json 2 name <out)"
same "mode" 0740 "$(json 2 mode <out)"
same "quota" 67108864 "$(json 2 quota_bytes <out)"
expect 0 "put into it" "$FOLIOCTL" put small model:a
expect 0 "and again" "$FOLIOCTL" put small model:b
expect 1 "and beyond its quota" "$FOLIOCTL" put small model:c
says "says which it is" err "ns set NAMESPACE --quota-objects N"
truncate -s 65M wide
expect 1 "a file larger than its quota" "$FOLIOCTL" put wide model:d
says "says which it is" err "ns set NAMESPACE --quota SIZE"
rm -f wide
expect 0 "ns set" "$FOLIOCTL" ns set model --quota-objects 3
expect 0 "then it fits" "$FOLIOCTL" put small model:c
expect 0 "ls -a" "$FOLIOCTL" ls -a
says "has more than one namespace" out "^model:c$"
expect 1 "ns set of what is fixed" "$FOLIOCTL" ns set nowhere --mode 0700
expect 0 "ns rm" "$FOLIOCTL" ns rm model
expect 1 "takes what was in it" "$FOLIOCTL" stat model:a
expect 2 "ns of a bad mode" "$FOLIOCTL" ns add x --mode 0999
expect 2 "ns rm without a name" "$FOLIOCTL" ns rm

# --- status and check ---------------------------------------------------------------------------------------------------------------------
expect 0 "status" "$FOLIOCTL" status
says "has the budget in words" out "^memory.budget_bytes  *512M"
expect 0 "status --json" "$FOLIOCTL" status --json
same "has it in bytes" 536870912 "$(json memory.budget_bytes <out)"
expect 0 "status of a prefix" "$FOLIOCTL" status memory
same "has only that" "" "$(grep -v '^memory' out)"
expect 1 "status of what there is not" "$FOLIOCTL" status nosuch
says "says so" err "no fact begins with 'nosuch'"
expect 0 "status of a time" "$FOLIOCTL" status daemon.uptime_s
says "is a number of seconds" out "^daemon.uptime_s  *[0-9]*$"
expect 0 "check" "$FOLIOCTL" check
says "finds no problem" out "no problem"
expect 0 "check --json" "$FOLIOCTL" check --json
same "no problem" 0 "$(json problems length <out)"

# --- colours and the progress line, on a terminal --------------------------------------------------------------------------------------------
if command -v script >/dev/null 2>&1; then
        TERM=xterm script -qec "'$FOLIOCTL' ls -l" /dev/null >out 2>&1 </dev/null
        says "colours on a terminal" out $'\033\[1m'
        TERM=xterm NO_COLOR=1 script -qec "'$FOLIOCTL' ls -l" /dev/null >out 2>&1 </dev/null
        same "none with NO_COLOR" "" "$(grep $'\033' out)"
        # That the source takes over a second is what it is about.
        TERM=xterm script -qec "(cat over; sleep 1.1; cat exact) | '$FOLIOCTL' put - slowly" /dev/null >out 2>&1 </dev/null
        says "a progress line on a terminal" out "default:slowly\|slowly  *2M"
        "$FOLIOCTL" cat slowly | cmp - <(cat over exact) >why 2>&1; check "what was put so comes back" $? why
else
        skip "colours" "there is no script(1)"
fi

# --- run --------------------------------------------------------------------------------------------------------------------------------------
unset FOLIO_SOCKET
expect 0 "run" "$FOLIOCTL" run --budget 64M -- sh -c "'$FOLIOCTL' put small x && '$FOLIOCTL' cat x && '$FOLIOCTL' status --json >status"
equal "the command has a store" small out
same "of that budget" 67108864 "$(json memory.budget_bytes <status)"
expect 7 "run has the status of its command" "$FOLIOCTL" run -- sh -c 'exit 7'
expect 143 "run: a signal is 128 and its number" "$FOLIOCTL" run -- sh -c 'kill -TERM $$'
expect 127 "run: no such command" "$FOLIOCTL" run -- /nonexistent
expect 126 "run: what cannot be run" "$FOLIOCTL" run -- /etc
expect 0 "run: options behind the command are its own" "$FOLIOCTL" run echo --json -l
same "all of them" "--json -l" "$(cat out)"
expect 2 "run: --socket" "$FOLIOCTL" --socket x run -- true
expect 2 "run: a budget that is none" "$FOLIOCTL" run --budget 1K -- true
says "says so in the words of foliod" err "^foliod: error: budget: .* is outside"
mkfifo up
# shellcheck disable=SC2016 # for the inner shell
"$FOLIOCTL" run -- bash -c 'trap "exit 42" TERM; echo up >up; while :; do read -t 60 <>/dev/null || :; done' 2>err &
run_pid=$!
# The command says that it is ready for the signal; before that, being ended by it is right.
read -r _ <up
kill -TERM "$run_pid"
wait "$run_pid"
same "run passes SIGTERM on" 42 "$?"
same "run leaves no directory" "" "$(ls empty)"

expect 1 "A12: check of a budget that no machine has" "$FOLIOCTL" run --budget 64T -- "$FOLIOCTL" check
says "says what cuts it down" out "^problem: .*budget"
expect 1 "as JSON" "$FOLIOCTL" run --budget 64T -- "$FOLIOCTL" check --json
same "one problem" 1 "$(json problems length <out)"

# --- what foliod says -------------------------------------------------------------------------------------------------------------------------
expect 0 "foliod --help" "$FOLIO_DAEMON" --help
same "begins with its usage" "usage: foliod [OPTION...]" "$(head -1 out)"
says "has defaults" out "clients-max N  .*\[4096\]"
says "and an example" out "^Example:"
expect 0 "A12: --check-config of a budget that no machine has" "$FOLIO_DAEMON" --config /dev/null --budget 64T --check-config
says "warns as a start would" err "^foliod: warning: budget: 67108864 MiB is more than there is"
printf 'budget = 1G\n' >wrong.conf
expect 1 "--check-config of a key without a section" "$FOLIO_DAEMON" --config wrong.conf --check-config
says "says where, and what" err "^foliod: error: wrong.conf:1: key 'budget' outside a section"
mkfifo ready-2
"$FOLIO_DAEMON" --user --config /dev/null --socket "$scratch/loud" --budget 64M --log-level debug --ready-fd 3 3>ready-2 2>log &
loud_pid=$!
head -c 1 ready-2 >/dev/null
export FOLIO_SOCKET=$scratch/loud
expect 0 "put" "$FOLIOCTL" put small x
expect 1 "put again" "$FOLIOCTL" put small x
expect 0 "ns add" "$FOLIOCTL" ns add model
expect 1 "ns add again" "$FOLIOCTL" ns add model
expect 0 "ns rm" "$FOLIOCTL" ns rm model
unset FOLIO_SOCKET
kill -TERM "$loud_pid"
wait "$loud_pid"
check "foliod ends" $?
client="client $(basename "$FOLIOCTL"), pid [0-9]*, uid $(id -u)"
says "it was ready, in a line of its own" log "^foliod: notice: foliod [^ ]* is ready: socket $scratch/loud, budget 64 MiB$"
says "then its memory" log "^foliod: info: memory: "
says "who connects" log "^foliod: debug: $client, has connected; 1 are$"
says "who goes, and why" log "^foliod: debug: $client, is gone: it has hung up$"
says "what is refused" log "^foliod: debug: $client: PUT x refused: the name is taken: "
says "also of a namespace" log "^foliod: debug: $client: NAMESPACE_ADD model refused: the name is taken: there is a namespace"
says "namespaces that are made" log "^foliod: debug: $client: namespace model added: owner $(id -u), .*mode 0700"
says "and removed" log "^foliod: debug: $client: namespace model removed$"

# --- twenty at once -----------------------------------------------------------------------------------------------------------------------------
export XDG_RUNTIME_DIR=$scratch/runtime
pids=
for i in $(seq 20); do
        "$FOLIOCTL" ls >"ls-$i" 2>&1 &
        pids="$pids $!"
done
failed=
for pid in $pids; do
        wait "$pid" || failed="$failed $pid"
done
cat ls-* >why
same "twenty at once are all served" "" "$failed$(cat why)"
# The process that keeps, and the one that serves.
same "by one daemon and its keeper" 2 "$(spawned_pids | wc -l)"
expect 0 "put into it" "$FOLIOCTL" put small x
expect 0 "it is the same daemon" "$FOLIOCTL" --no-spawn cat x
equal "for the next" small out
finish
