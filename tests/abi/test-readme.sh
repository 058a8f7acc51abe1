#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: test-readme.sh COMPILER... LIBRARY FOLIOCTL
#
# The program in README.md, taken out of it, compiled as strict C99 against the public headers and the real library, and
# run on a private foliod, prints what README.md says it prints; and every command README.md tells the reader to type is
# there. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$here/../lint/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# The last two arguments; what comes before them is the compiler.
: >"$scratch/compile"
while [ $# -gt 2 ]; do
        printf '%s\n' "$1" >>"$scratch/compile"
        shift
done
library=$1
folioctl=$2
compiler=$(tr '\n' ' ' <"$scratch/compile")

# block LANGUAGE: the first fenced block of that language.
block()
{
        awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ && inside { exit } inside { print }' "$root/README.md"
}

block c >"$scratch/example.c"
block text >"$scratch/expected"
n_lines=$(grep -c . "$scratch/example.c" || true)
status=0
[ "$n_lines" -ge 10 ] && [ "$n_lines" -le 35 ] || status=1
echo "$n_lines lines" >"$scratch/output"
check "README.md has a short program" "$status" "$scratch/output"

status=0
# shellcheck disable=SC2086 # the compiler can be several words
$compiler -std=c99 -pedantic-errors -Wall -Wextra -Werror -I"$root/include" "$scratch/example.c" -o "$scratch/example" \
        "$library" -Wl,-rpath,"$(dirname -- "$library")" >"$scratch/output" 2>&1 || status=$?
check "it compiles" "$status" "$scratch/output"
if [ "$status" = 0 ]; then
        "$folioctl" run -- "$scratch/example" >"$scratch/output" 2>&1 || status=$?
        check "it runs under folioctl run" "$status" "$scratch/output"
        status=0
        diff -u "$scratch/expected" "$scratch/output" >"$scratch/diff" || status=$?
        check "it prints what README.md says" "$status" "$scratch/diff"
else
        check "it runs under folioctl run" 1
        check "it prints what README.md says" 1
fi

for command in packaging/demo tests/run; do
        status=0
        grep -q "^ *$command\$" "$root/README.md" && [ -x "$root/$command" ] || status=1
        check "README.md tells of $command, and it is there" "$status"
done
finish
