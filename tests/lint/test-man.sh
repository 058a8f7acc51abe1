#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every man page of packaging/man becomes one without a warning, each program and file of settings that is installed has
# one, and the pages have every setting, fact, option and public function that the sources have. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# documented WHAT PAGE: each line of the input is in the page as a word of its own.
documented()
{
        n=0
        : >"$scratch/output"
        while read -r word; do
                n=$((n + 1))
                # In bold, a literal, or first in an entry of a list: prose that happens to use the word does not count.
                grep -qE -- "(^|, |\\*\\*|\`\`)$word(\\*\\*|\`\`|,|\$)" "$root/packaging/man/$2.rst" ||
                        echo "$2 does not have $word" >>"$scratch/output"
        done
        status=0
        [ $n -gt 0 ] && [ ! -s "$scratch/output" ] || status=1
        check "$2 has every $1" "$status" "$scratch/output"
}

grep -hoE '\{ ("daemon"|"memory"|NAMESPACE), "[a-z-]+"' "$root/daemon/service/config.c" | sed 's/.*, "\(.*\)"/\1/' >"$scratch/words"
documented setting foliod.conf.5 <"$scratch/words"
# hostmem.c has names of files of a cgroup, which look the same.
grep -rhoE '"(daemon|clients|sessions|requests|loop|pressure|memory|held|unsealed|pool|packed|index|pins|objects|namespaces|huge|collapse|backend|ring|poller|leases)\.[a-z_0-9]+"' \
        --exclude=hostmem.c "$root/daemon" | tr -d '"' | sort -u >"$scratch/words"
documented fact foliod.8 <"$scratch/words"
grep -hoE "\{ [A-Z_]+, ('.'|0), \"[a-z-]+\", (NULL|\"[A-Z=|@]+\")," "$root"/client/ctl/*.c | sed 's/[^"]*"\([a-z-]*\)".*/--\1/' | sort -u >"$scratch/words"
documented option folioctl.1 <"$scratch/words"
sed -n 's/^ *\(folio_[a-z_]*\);$/\1/p' "$root/client/libfolio.map" >"$scratch/words"
documented "public function" libfolio.3 <"$scratch/words"

if ! command -v rst2man >/dev/null 2>&1; then
        skip "pages" "rst2man is not installed"
        finish
        exit
fi

for page in foliod.8 folioctl.1 foliod.conf.5; do
        status=0
        [ -e "$root/packaging/man/$page.rst" ] || status=1
        check "there is a page $page" "$status"
done
for page in "$root"/packaging/man/*.rst; do
        [ -e "$page" ] || continue
        name=${page##*/}
        status=0
        rst2man --halt=2 "$page" >"$scratch/page" 2>"$scratch/output" || status=$?
        [ "$status" != 0 ] || grep -q '^\.TH' "$scratch/page" || status=1
        check "$name" "$status" "$scratch/output"
        if ! command -v groff >/dev/null 2>&1; then
                skip "$name on a terminal" "groff is not installed"
                continue
        fi
        status=0
        groff -man -t -Tutf8 -ww -rLL=80n "$scratch/page" 2>"$scratch/output" | col -bx >"$scratch/text" || status=$?
        [ ! -s "$scratch/output" ] || status=1
        # A bar alone is markup that was taken for text.
        if grep -n '^ *|' "$scratch/text" >>"$scratch/output"; then
                status=1
        fi
        check "$name renders on 80 columns" "$status" "$scratch/output"
done
finish
