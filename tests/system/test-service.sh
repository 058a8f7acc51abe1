#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The service as an administrator and its clients meet it: started by the first client, reloaded, watched, limited. TAP.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"

world service

# --- the first client starts it ---
passes "the socket starts alone" systemctl start foliod.socket
is "no foliod runs" inactive "$(show ActiveState)"
passes "anybody can put" setpriv --reuid 12345 --regid 12345 --clear-groups folioctl put /etc/hostname greeting
is "which has started it" active "$(show ActiveState)"
is "another user reads the same" folio-box "$(in_box setpriv --reuid 12346 --regid 12346 --clear-groups folioctl cat greeting)"
is "the socket is open to all" "srw-rw-rw- root" "$(in_box stat -c '%A %U' /run/folio/folio.sock)"
is "its directory is not" "drwxr-xr-x root" "$(in_box stat -c '%A %U' /run/folio)"

# --- memory: a tmpfs of its own, huge at allocation ---
in_box folioctl status >status
says "small objects are protected by a file mode" '^packed.protection *mode' status
says "on the tmpfs of the unit" '^backend.tmpfs *read-only-by-mode punchable rewritable' status
if [ -e /sys/kernel/mm/transparent_hugepage/enabled ] && ! grep -q '\[never\]' /sys/kernel/mm/transparent_hugepage/enabled; then
        says "whose pages are huge at allocation" '^backend.tmpfs .*huge-at-allocation' status
else
        skip "whose pages are huge at allocation" "the kernel has no huge pages"
fi
is "which nobody else sees" "not mounted, empty" \
        "$(in_box mountpoint -q /run/folio-memory || printf 'not mounted, '; [ -n "$(in_box ls -A /run/folio-memory)" ] || echo empty)"

# --- reload ---
pid=$(show MainPID)
in_box mkdir -p /etc/folio/foliod.conf.d
printf '[memory]\nbudget = 512M\n' | in_box tee /etc/folio/foliod.conf >/dev/null
passes "systemctl reload" systemctl reload foliod.service
is "it is the same process" "$pid" "$(show MainPID)"
in_box folioctl status >status
says "with the new settings when systemctl returns" '^memory.budget_bytes *512M' status
printf '[memory]\nbudget = lots\n' | in_box tee /etc/folio/foliod.conf.d/wrong.conf >/dev/null
in_box systemctl reload foliod.service >out 2>&1 || true
in_box folioctl status >status
says "wrong settings change nothing" '^memory.budget_bytes *512M' status
in_box rm /etc/folio/foliod.conf.d/wrong.conf

# --- a rule is broken, the journal tells ---
dropped=$(sed -n 's/^ *X(CLIENT_DROPPED, "\([0-9a-f]*\)").*/\1/p' "$root/daemon/service/log.h")
in_box journalctl --sync
is "nobody was disconnected so far" "" "$(in_box journalctl -u foliod -q "MESSAGE_ID=$dropped")"
passes "somebody speaks out of turn" setpriv --reuid 12345 --regid 12345 --clear-groups /usr/lib/folio-tests/survivor unruly
in_box journalctl --sync
in_box journalctl -u foliod "MESSAGE_ID=$dropped" -o json --no-pager >json
says "who was disconnected is in the journal, with a field" '"FOLIO_CLIENT_UID":"12345"' json
says "and the rule" '"FOLIO_RULE":"[^"]' json
in_box journalctl --update-catalog
in_box journalctl -x -u foliod "MESSAGE_ID=$dropped" --no-pager >explained
says "and is explained" 'disconnected because it broke a rule' explained

# --- the watchdog: a foliod that answers nobody is replaced ---
in_box mkdir -p /run/systemd/system/foliod.service.d
printf '[Service]\nWatchdogSec=2s\n' | in_box tee /run/systemd/system/foliod.service.d/watchdog.conf >/dev/null
passes "daemon-reload" systemctl daemon-reload
passes "restart" systemctl restart foliod.service
pid=$(show MainPID)
before=$(show NRestarts)
fed_after() { [ "$(show WatchdogTimestampMonotonic)" -gt "$1" ]; }
status=0
for _ in 1 2 3 4; do
        until_true fed_after "$(show WatchdogTimestampMonotonic)" || status=1
done
check "it feeds the watchdog" "$status"
is "and is left alone" "$pid $before" "$(show MainPID) $(show NRestarts)"
in_box kill -STOP "$pid" || true
status=0
until_true is_new_main "$pid" || status=1
check "one that hangs is ended, and another one runs" "$status"
says "for that reason" 'watchdog' <(in_box journalctl -u foliod.service --no-pager | tail -n 40)
passes "which answers" folioctl status

# --- a foliod that cannot start does not take the socket with it ---
before=$(show NRestarts)
printf '[memory]\nbudget = lots\n' | in_box tee /etc/folio/foliod.conf.d/wrong.conf >/dev/null
in_box kill -KILL "$(show MainPID)" || true
restarts_many() { [ "$(show NRestarts)" -ge "$1" ]; }
status=0
until_true restarts_many $((before + 3)) || status=1
check "it is tried again and again" "$status"
is "the socket listens all the time" active "$(show ActiveState foliod.socket)"
in_box folioctl status >answer 2>&1 &
waiting=$!
in_box rm /etc/folio/foliod.conf.d/wrong.conf
status=0
wait "$waiting" || status=$?
check "who asked meanwhile has an answer when the settings are right" "$status" answer

# --- the end ---
passes "it stops" systemctl stop foliod.socket foliod.service
is "in order" success "$(show Result)"
is "the socket is gone" "" "$(in_box ls /run/folio)"
finish
