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
done
finish
