#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A service manager that keeps fewer descriptors than foliod was told, or none (case E16): before systemd 254 it says so to
# nobody, and drops what is too much. foliod finds it out: puts beyond it are refused, and none that was acknowledged is lost;
# where nothing is kept, that is said. TAP.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"
world places

# keep_at_most N: from a start with nothing on.
keep_at_most()
{
        in_box systemctl stop foliod.service foliod.socket
        in_box mkdir -p /run/systemd/system/foliod.service.d /etc/folio/foliod.conf.d
        printf '[Service]\nFileDescriptorStoreMax=%s\nFileDescriptorStorePreserve=restart\n' "$1" |
                in_box tee /run/systemd/system/foliod.service.d/places.conf >/dev/null
        printf '[memory]\npacked-max = 4K\nbudget = 256M\n' | in_box tee /etc/folio/foliod.conf.d/places.conf >/dev/null
        in_box systemctl daemon-reload
        in_box systemctl start foliod.socket
}
fact() { in_box folioctl status | sed -n "s/^$1 *//p"; }
# put_all: names of what was acknowledged, 70,000 bytes each, in the file acknowledged.
put_all()
{
        # shellcheck disable=SC2016 # for the shell in the box
        in_box sh -c 'head -c 70000 /dev/zero >/run/zeros
                i=0
                while [ $i -lt 600 ]; do
                        folioctl put /run/zeros "own-$i" 2>/dev/null && echo "own-$i"
                        i=$((i + 1))
                done' | sort >acknowledged
}

keep_at_most 8
is "8 are found out" 8 "$(fact keeper.slots)"
put_all
n=$(wc -l <acknowledged)
status=0
[ "$n" -gt 100 ] || status=1
check "objects are put where there is room: $n" "$status" acknowledged
pid=$(show MainPID)
in_box kill -KILL "$pid"
until_true is_new_main "$pid"
is "none that was acknowledged is lost" "$(cat acknowledged)" "$(in_box folioctl ls | sed 's,^default:,,' | sort)"
is "nor is any said to be" 0 "$(fact keeper.volatile)"

keep_at_most 0
is "that nothing is kept is known" gone "$(fact keeper.kind)"
passes "and a store works without" folioctl put /etc/hostname name
in_box journalctl -u foliod.service -p warning -o cat --no-pager >journal
says "and the journal says why" 'FileDescriptorStoreMax=0' journal
finish
