#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The packages for Debian: they are built, lintian has nothing to say, and in a small clean system with a systemd of its own
# they are installed, upgraded with objects alive, removed and purged; what autopkgtest would run is run there. The second
# version is the same source with another entry in its changelog. TAP. Takes some minutes, root, and what building and
# mmdebstrap need; FOLIO_PACKAGES=FOLDER keeps what was built.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"

for command in dpkg-buildpackage dh lintian mmdebstrap; do
        command -v "$command" >/dev/null || { echo "1..0 # SKIP $command is not installed"; exit 0; }
done
if ! reason=$("$here/box" can); then
        echo "1..0 # SKIP no box for a systemd here: $reason"
        exit 0
fi

packages=${FOLIO_PACKAGES:-$(mktemp -d "${TMPDIR:-/tmp}/folio-packages.XXXXXX")}
log=$packages/log
mkdir -p "$packages/first" "$packages/second" "$packages/tree"
remove_packages()
{
        [ -n "${FOLIO_PACKAGES:-}" ] || rm -rf --one-file-system -- "$packages"
}
trap remove_packages EXIT
status=0
DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" "$root/packaging/build-deb" "$packages" >"$log" 2>&1 || status=$?
[ "$status" = 0 ] || sed -i -n '1h;1!H;${g;s/.*\n\(\(.*\n\)\{40\}\)/\1/;p}' "$log"
check "dpkg-buildpackage" "$status" "$log"
[ "$status" = 0 ] || { finish; exit 1; }
status=0
lintian --allow-root --fail-on error,warning "$packages"/folio_*.changes >"$log" 2>&1 || status=$?
check "lintian has nothing to say" "$status" "$log"
mv "$packages"/*.deb "$packages/first/"
built=$(cd "$packages/first" && ls ./*.deb | sed 's|^\./||; s/_.*//' | sort | tr '\n' ' ')
is "the packages" "folioctl folioctl-dbgsym foliod foliod-dbgsym libfolio-dev libfolio0 libfolio0-dbgsym " "$built"

source=$(find "$packages" -mindepth 1 -maxdepth 1 -type d -name 'folio-*')
{
        sed "s/^\(folio ([^)]*\)).*/\1+next) unstable; urgency=medium/;q" "$source/debian/changelog"
        printf '\n  * The next one.\n\n -- Folio maintainers <maintainers@folio.invalid>  %s\n\n' "$(date -R)"
        cat "$source/debian/changelog"
} >"$packages/changelog"
mv "$packages/changelog" "$source/debian/changelog"
status=0
(cd "$source" && DEB_BUILD_OPTIONS=nocheck fakeroot debian/rules binary) >"$log" 2>&1 || status=$?
mv "$packages"/*.deb "$packages/second/" 2>/dev/null || status=1
check "and the next version" "$status" "$log"

# --- a clean system ---
FOLIO_TREE=$("$here/tree" packages 2>"$log") || { check "a clean system" 1 "$log"; finish; exit 1; }
export FOLIO_TREE BOX_FOLDER=$packages/boxes BOX_BIND=$packages BOX_OWNER=$$
box_name=packages-$$
end_all()
{
        "$here/box" stop "$box_name" >&2 || true
        remove_packages
}
trap end_all EXIT
trap 'exit 1' INT TERM HUP
cd "$packages"
start_box
passes "install" sh -c "dpkg -i $packages/first/*.deb"
is "the socket listens" active "$(show ActiveState foliod.socket)"
is "foliod runs" active "$(show ActiveState)"
is "both will at the next start" "enabled enabled" "$(in_box systemctl is-enabled foliod.socket foliod.service | tr '\n' ' ' | sed 's/ $//')"
is "no user's store is enabled" "" "$(in_box sh -c 'find /etc/systemd/user -name "foliod*"')"
passes "a user can put" setpriv --reuid 12345 --regid 12345 --clear-groups folioctl put /bin/true small
in_box sh -c 'head -c 30000000 /dev/urandom >/var/tmp/large && folioctl put /var/tmp/large large'
in_box folioctl stat small large >before

pid=$(show MainPID)
socket=$(in_box stat -c %i /run/folio/folio.sock)
n_restarts=$(in_box journalctl -u foliod.service -o cat --no-pager | grep -c '^Starting foliod')
passes "upgrade" sh -c "dpkg -i $packages/second/*.deb"
is "another foliod runs" yes "$([ "$(show MainPID)" != "$pid" ] && echo yes)"
is "after one restart" $((n_restarts + 1)) "$(in_box journalctl -u foliod.service -o cat --no-pager | grep -c '^Starting foliod')"
is "at the same socket" "$socket" "$(in_box stat -c %i /run/folio/folio.sock)"
passes "every byte is there" sh -c 'folioctl cat small | cmp - /bin/true && folioctl cat large | cmp - /var/tmp/large'
in_box folioctl stat small large >after || true
is "with the same generations" "$(grep -i generation before)" "$(grep -i generation after)"
passes "downgrade" sh -c "dpkg -i $packages/first/*.deb"
passes "every byte is there still" sh -c 'folioctl cat small | cmp - /bin/true && folioctl cat large | cmp - /var/tmp/large'

for test in crash-restore upgrade-keeps-objects hardening-score; do
        passes "autopkgtest: $test" env AUTOPKGTEST_TMP=/var/tmp sh "$source/debian/tests/$test"
done
# Where the compiler is: on what the packages contain.
mkdir -p unpacked
for package in first/libfolio*_*.deb first/folio*_*.deb; do dpkg-deb -x "$package" unpacked; done
libraries=$(dirname "$(find "$PWD/unpacked" -name libfolio.so)")
status=0
env PATH="$PWD/unpacked/usr/bin:$PATH" LD_LIBRARY_PATH="$libraries" FOLIO_DAEMON="$PWD/unpacked/usr/sbin/foliod" \
        PKG_CONFIG_PATH="$libraries/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$PWD/unpacked" \
        sh "$source/debian/tests/build-client" >"$log" 2>&1 || status=$?
check "autopkgtest: build-client" "$status" "$log"

passes "remove" sh -c 'dpkg -r foliod foliod-dbgsym'
is "foliod is gone" "inactive inactive" "$(show ActiveState) $(show ActiveState foliod.socket)"
is "and its socket" "" "$(in_box sh -c 'ls -d /run/folio 2>/dev/null')"
is "nothing is kept" "0" "$(show NFileDescriptorStore | sed 's/^$/0/')"
passes "install again" sh -c "dpkg -i $packages/second/foliod_*.deb"
passes "the store is a new one" sh -c '[ -z "$(folioctl ls)" ]'
passes "purge" sh -c 'dpkg -P foliod folioctl libfolio-dev libfolio0 folioctl-dbgsym libfolio0-dbgsym'
is "nothing is left" "" "$(in_box sh -c 'find / -xdev \( -name "*folio*" \) -not -path "/proc/*" -not -path "/sys/*" -not -path "'"$packages"'*" -not -path "/var/log/*" -not -path "/run/log/*" | grep -v folio-box || true')"
finish
