#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each public header compiles alone, twice in a row, as strict C99, C++98 and C++11, without a warning, by every compiler
# that is here. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

n_headers=0
for header in "$root"/include/folio/*.h; do
        name=folio/${header##*/}
        n_headers=$((n_headers + 1))
        printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" >"$scratch/alone.c"
        for compiler in "gcc -std=c99" "clang -std=c99" "g++ -std=c++98 -x c++" "g++ -std=c++11 -x c++" "clang++ -std=c++11 -x c++"; do
                if ! command -v "${compiler%% *}" >/dev/null 2>&1; then
                        skip "$name: $compiler" "no ${compiler%% *} here"
                        continue
                fi
                status=0
                # shellcheck disable=SC2086 # $compiler is words
                $compiler -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -I"$root/include" "$scratch/alone.c" \
                        >"$scratch/output" 2>&1 || status=$?
                check "$name: ${compiler% -x*}" "$status" "$scratch/output"
        done
done
status=0
[ "$n_headers" -ge 7 ] || status=1
check "all public headers were found" "$status"
finish
