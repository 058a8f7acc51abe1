#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every man page of packaging/man becomes one without a warning, and each program and file of settings that is installed has
# one. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
if ! command -v rst2man >/dev/null 2>&1; then
        echo "1..0 # SKIP rst2man is not installed"
        exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

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
