# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For tests of folioctl, after tap.sh and in a folder of their own: runs commands and looks at what came. Sourced.

# expect STATUS NAME COMMAND...: its output is in `out`, what it says in `err`.
expect()
{
        local wanted=$1 name=$2 status=0
        shift 2
        "$@" >out 2>err </dev/null || status=$?
        if [ "$status" = "$wanted" ]; then
                check "$name" 0
        else
                { echo "status $status instead of $wanted of: $*"; head -20 err; head -20 out; } >why
                check "$name" 1 why
        fi
}
# same NAME WANTED GOT
same()
{
        local status=0
        [ "$2" = "$3" ] || status=1
        printf 'wanted: %s\ngot: %s\n' "$2" "$3" >why
        check "$1" "$status" why
}
# says NAME FILE PATTERN; silent NAME FILE; equal NAME FILE FILE
says()
{
        local status=0
        grep -q -- "$3" "$2" || status=1
        { echo "nothing like '$3' in:"; head -20 "$2"; } >why
        check "$1" "$status" why
}
silent()
{
        local status=0
        [ ! -s "$2" ] || status=1
        check "$1" "$status" "$2"
}
equal()
{
        local status=0
        cmp "$2" "$3" >why 2>&1 || status=1
        check "$1" "$status" why
}
json()
{
        "$JSON_GET" "$@"
}
# until_true COMMAND...: bounded, for what another process does.
until_true()
{
        # By time, not by tries: a builtin is tried 3,000 times before a program has started.
        local end=$((SECONDS + 60))
        until "$@" >/dev/null 2>&1; do
                [ "$SECONDS" -lt "$end" ] || return 1
        done
}
