#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The RPMs: they are built from the spec file, and rpmlint finds no error. TAP. Debian's rpm does, which knows nothing of the
# packages that are installed.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
for command in rpmbuild rpmlint; do
        command -v "$command" >/dev/null || { echo "1..0 # SKIP $command is not installed"; exit 0; }
done
folder=$(mktemp -d "${TMPDIR:-/tmp}/folio-rpm.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
log=$folder/log

status=0
"$root/packaging/build-rpm" "$folder" --nodeps >"$log" 2>&1 || status=$?
tail -n 40 "$log" >"$folder/end"
check "rpmbuild" "$status" "$folder/end"
[ "$status" = 0 ] || { finish; exit 1; }
built=$(find "$folder/RPMS" -name '*.rpm' -printf '%f\n' | sed 's/-[0-9].*//' | sort | tr '\n' ' ')
status=0
[ "$built" = "folio libfolio libfolio-devel " ] || status=1
echo "$built" >"$log"
check "the packages" "$status" "$log"
rpmlint -r "$root/packaging/rpm/folio.rpmlintrc" "$root/packaging/rpm/folio.spec" "$folder"/RPMS/*/*.rpm >"$log" 2>&1 || true
status=0
grep -q ' 0 errors' "$log" || status=1
check "rpmlint has no error" "$status" "$log"
status=0
for package in "$folder"/RPMS/*/*.rpm; do
        rpm -qp --scripts "$package" >"$log" 2>&1 || status=1
        rpm -qpl "$package" >>"$log" 2>&1 || status=1
done
check "they can be read" "$status" "$log"
finish
