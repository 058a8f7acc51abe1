#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check-symbols.sh LIBRARY MAP INCLUDE-FOLDER
#
# What libfolio.so exports, what libfolio.map lists and what the public headers declare are the same set of functions;
# each is exported in the version node that lists it; everything needed is declared as a dependency; nothing is
# writable and executable; a program that is running can load it. TAP.
set -eu
library=$1
map=$2
include=$3
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../lint/tap.sh
. "$here/../lint/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
export LC_ALL=C

# same NAME FILE FILE
same()
{
        status=0
        diff -u "$2" "$3" >"$scratch/diff" || status=$?
        check "$1" "$status" "$scratch/diff"
}

# "name version" of every function of the map; comments taken out first.
sed 's,/\*.*\*/,,; s,#.*,,' "$map" | awk '
        /^[A-Za-z0-9_.]+ *\{/ { node = $1; sub(/\{.*/, "", node); next }
        /^ *folio_[a-z0-9_]+;/ { name = $1; sub(/;.*/, "", name); print name, node }
' | sort >"$scratch/map"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sed 's/@@*/ /' | sort >"$scratch/exported"
# Declarations only: comments, macros and typedefs are taken out.
cat "$include"/folio/*.h | awk '
        /^[ \t]*\/\*/ { in_comment = 1 }
        in_comment { if (/\*\//) in_comment = 0; next }
        /^[ \t]*#/ || /^typedef/ { next }
        { print }' | grep -o 'folio_[a-z0-9_]*(' | tr -d '(' | sort -u >"$scratch/declared"
awk '{ print $1 }' "$scratch/map" | sort >"$scratch/mapped"

status=0
[ -s "$scratch/map" ] && [ -s "$scratch/declared" ] && [ -s "$scratch/exported" ] || status=1
check "there are functions to compare" "$status"
same "what is declared is mapped" "$scratch/declared" "$scratch/mapped"
same "what is mapped is exported, in its version, and nothing else" "$scratch/map" "$scratch/exported"
uniq -d "$scratch/mapped" >"$scratch/twice"
status=0
[ ! -s "$scratch/twice" ] || status=1
check "no function is in two versions" "$status" "$scratch/twice"

# A library that pulls in an event loop, or the daemon's libraries, would be felt by every program that uses it.
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort >"$scratch/needed"
status=0
if grep -Ev '^(libc\.so|libprotobuf-c\.so|libpthread\.so|libm\.so|ld-linux|libgcc_s\.so)' "$scratch/needed" >"$scratch/strange"; then
        status=1
fi
check "it needs the C library and protobuf-c only" "$status" "$scratch/strange"
status=0
readelf -d "$library" | grep -q 'SONAME.*\[libfolio\.so\.0\]' || status=1
check "its name is libfolio.so.0" "$status"
status=0
readelf -lW "$library" >"$scratch/segments"
if grep -E 'GNU_STACK.*RWE|LOAD.*RWE' "$scratch/segments" >/dev/null; then
        status=1
fi
check "nothing is writable and executable" "$status" "$scratch/segments"
# Part of each thread's static block, of which a running program has a few hundred bytes left for all that it loads.
status=0
awk '$1 == "TLS" { n = $6 } END { print n + 0 == 0 ? "0x0" : n }' "$scratch/segments" >"$scratch/tls"
[ "$(($(cat "$scratch/tls")))" -lt 128 ] || status=1
check "less than 128 bytes of it are in a thread's own block" "$status" "$scratch/tls"
finish
