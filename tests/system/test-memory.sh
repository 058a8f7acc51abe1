#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Who is charged for which page, and what a limit does: that of the slice cuts the budget down, so that the store refuses
# before the kernel kills; usage of the slice goes on over a restart, which the service's does not. TAP. Limits work in a box
# where the machine has the memory controller of cgroup version 1, and systemd knows that version.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"

if ! grep -q '^[^ ]* [^ ]* cgroup [^ ]*\bmemory\b' /proc/mounts; then
        echo "1..0 # SKIP no memory controller of cgroup version 1 here"
        exit 0
fi
world memory BOX_CONTROLLERS=memory
systemd_version=${systemd_version:?}
if [ "$systemd_version" -ge 256 ]; then
        echo "1..0 # SKIP systemd $systemd_version knows no cgroup version 1"
        exit 0
fi

# used CGROUP: bytes, its children included.
used() { in_box cat "/sys/fs/cgroup/memory/$1/memory.usage_in_bytes"; }
mib() { echo $(($1 >> 20)); }
between()
{
        local status=0
        [ "$3" -ge "$2" ] && [ "$3" -le "$4" ] || status=1
        echo "$3 is not from $2 to $4" >why
        check "$1" "$status" why
}
fact() { in_box folioctl status | sed -n "s/^$1 *//p"; }

in_box mkdir -p /run/systemd/system/foliod.slice.d
printf '[Slice]\nMemoryMax=500M\n' | in_box tee /run/systemd/system/foliod.slice.d/limit.conf >/dev/null
passes "daemon-reload" systemctl daemon-reload
passes "the service starts" systemctl start foliod.socket foliod.service
is "the budget is 80 % of the slice's limit" 400M "$(fact memory.budget_bytes)"

# --- who pays: the store, for what a client writes ---
before=$(used foliod.slice)
in_box sh -c 'head -c 104857600 /dev/urandom >/var/tmp/large; mkdir -p /run/systemd/system; cat >/run/systemd/system/putter.service' <<'UNIT'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'exec folioctl put /var/tmp/large large'
Environment=PATH=/usr/local/bin:/usr/bin
UNIT
others=$(used system.slice)
passes "a client in a cgroup of its own puts 100 MiB" systemctl start putter.service
between "which the slice is charged for, in MiB" 95 "$(mib $(($(used foliod.slice) - before)))" 140
between "and not the client's" -50 "$(mib $(($(used system.slice) - others)))" 30

# --- over a restart the slice goes on counting, the service begins anew ---
slice=$(used foliod.slice)
pid=$(show MainPID)
in_box kill -KILL "$pid" || true
until_true is_new_main "$pid"
passes "after a kill the object is there" sh -c 'folioctl cat large | cmp - /var/tmp/large'
between "the service's cgroup is a new one" 0 "$(mib "$(used foliod.slice/foliod.service)")" 80
between "the slice's counts what it did" "$(($(mib "$slice") - 40))" "$(mib "$(used foliod.slice)")" "$(($(mib "$slice") + 80))"

# --- full is a refusal, not a kill ---
restarts=$(show NRestarts)
status=0
for i in 1 2 3 4 5 6; do
        in_box folioctl put /var/tmp/large "more-$i" >out 2>&1 || { status=$?; break; }
done
is "a store that is full refuses" yes "$([ "$status" != 0 ] && echo yes)"
says "and says so" 'full\|budget\|room' out
is "foliod is not killed for it" "$restarts" "$(show NRestarts)"
is "nor has the kernel come to the limit" 0 "$(in_box cat /sys/fs/cgroup/memory/foliod.slice/memory.failcnt)"
full=$(sed -n 's/^ *X(STORE_FULL, "\([0-9a-f]*\)").*/\1/p' "$root/daemon/service/log.h")
in_box journalctl --sync
in_box journalctl -u foliod.service "MESSAGE_ID=$full" -o json --no-pager >json
says "the journal has it" '"FOLIO_REASON"' json
pid=$(show MainPID)
in_box kill -KILL "$pid" || true
until_true is_new_main "$pid"
passes "a full store is taken over" sh -c 'folioctl cat large | cmp - /var/tmp/large && folioctl cat more-1 | cmp - /var/tmp/large'
passes "a delete gives room" sh -c 'folioctl rm more-1 && folioctl put /var/tmp/large again'

# --- a limit that is changed while it runs ---
passes "the limit is raised" systemctl set-property --runtime foliod.slice MemoryMax=700M
is_budget() { [ "$(fact memory.budget_bytes)" = "$1" ]; }
status=0
until_true is_budget 560M || status=1
check "and the budget follows" "$status"
finish
