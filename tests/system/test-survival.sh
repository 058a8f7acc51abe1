#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What survives foliod: programs read and write while it is killed at moments nobody chose, restarted, hung, and while
# systemd itself is reloaded and replaced. No reader may see an error or a wrong byte, and nothing that was acknowledged
# may be missing. Times are told and not judged. TAP.
#
# From the environment: FOLIO_TEST_LONG=1: 10,000 objects, one of 4 GiB, 100 kills, instead of few of each; FOLIO_KILLS.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"

if [ -n "${FOLIO_TEST_LONG:-}" ]; then
        n_objects=10000 large_bytes=$((4 << 30)) n_kills=${FOLIO_KILLS:-100}
else
        n_objects=2000 large_bytes=$((256 << 20)) n_kills=${FOLIO_KILLS:-8}
fi
n_readers=4
survivor=/usr/lib/folio-tests/survivor
world survival
systemd_version=${systemd_version:?}

# The median of the numbers in a file.
median()
{
        sort -n "$1" | awk '{ a[NR] = $1 } END { if (NR) print a[int((NR + 1) / 2)] }'
}

# stays NAME: all that was put is there, to the last byte, and what was written while that happened as it must be.
stays()
{
        passes "$1: every object is there, to the last byte" "$survivor" check "$n_objects" "$large_bytes"
        passes "$1: what was written is what was acknowledged" "$survivor" written /run/survivor/ledger
}

readers_are_well()
{
        local i status=0 states=
        for ((i = 1; i <= n_readers; i++)); do
                states+="$(in_box systemctl show -P ActiveState "survivor-read@$i.service") "
        done
        [ "$states" = "$(printf 'active %.0s' $(seq "$n_readers"))" ] || status=1
        in_box journalctl -u 'survivor-*' --no-pager >out 2>&1 || true
        check "$1: the readers go on" "$status" out
}

new_main_after()
{
        local status=0
        until_true is_new_main "$2" || status=1
        in_box systemctl status foliod.service --no-pager >out 2>&1 || true
        check "$1" "$status" out
}

# --- an empty start, to compare with: with the processors idle, and with as many who want them as later ---
passes "the socket starts" systemctl start foliod.socket
in_box sh -c 'cat >/run/systemd/system/busy@.service' <<'UNIT'
[Service]
Type=exec
User=nobody
ExecStart=/bin/sh -c 'while :; do :; done'
UNIT
empty_starts()
{
        for _ in 1 2 3 4 5; do
                in_box systemctl stop foliod.service >/dev/null 2>&1
                in_box "$survivor" answer
        done
}
empty_starts >empty
for ((i = 0; i <= n_readers; i++)); do in_box systemctl start "busy@$i.service"; done
empty_starts >empty-busy
for ((i = 0; i <= n_readers; i++)); do in_box systemctl stop "busy@$i.service"; done

# --- the world ---
passes "$n_objects objects and one of $((large_bytes >> 20)) MiB are put" "$survivor" fill "$n_objects" "$large_bytes"
in_box sh -c 'mkdir -m 1777 /run/survivor && cat >/run/systemd/system/survivor-read@.service' <<UNIT
[Service]
Type=exec
User=nobody
ExecStart=$survivor read $n_objects /run/survivor/reads-%i
UNIT
in_box sh -c 'cat >/run/systemd/system/survivor-write.service' <<UNIT
[Service]
Type=exec
User=nobody
ExecStart=$survivor write /run/survivor/ledger
UNIT
passes "daemon-reload" systemctl daemon-reload
for ((i = 1; i <= n_readers; i++)); do
        in_box systemctl start "survivor-read@$i.service"
        until_true in_box test -e "/run/survivor/reads-$i"
done
in_box systemctl start survivor-write.service
until_true in_box test -s /run/survivor/ledger

# --- killed ---
: >killed
n_fds_first=
n_dead=0
for ((i = 0; i < n_kills; i++)); do
        sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
        pid=$(show MainPID)
        [ "$pid" != 0 ] || continue
        in_box kill -KILL "$pid" 2>/dev/null && n_dead=$((n_dead + 1))
        in_box "$survivor" answer >>killed 2>>killed-log || echo "kill $i: no answer" >>killed-log
        if [ -z "$n_fds_first" ]; then
                until_true is_new_main "$pid"
                n_fds_first=$(in_box sh -c 'ls /proc/$(systemctl show -P MainPID foliod)/fd | wc -l')
                used_first=$(in_box folioctl status | sed -n 's/^memory.used_bytes *//p')
        fi
done
is "killed $n_kills times" "$n_kills" "$n_dead"
is "each time there was an answer" "" "$(cat killed-log)"
echo "# microseconds to an answer, medians: empty start $(median empty), with busy processors $(median empty-busy), after kill -9 $(median killed)"
echo "# each after a kill: $(tr "\n" " " <killed)"
readers_are_well "killed"
stays "killed"
n_fds=$(in_box sh -c 'ls /proc/$(systemctl show -P MainPID foliod)/fd | wc -l')
echo "# descriptors after the first kill and now: $n_fds_first $n_fds; memory $used_first $(in_box folioctl status | sed -n 's/^memory.used_bytes *//p')"
status=0
[ "$n_fds" -le $((n_fds_first + n_fds_first / 10 + 32)) ] || status=1
check "descriptors do not become more" "$status"

# --- what an administrator and systemd do ---
pid=$(show MainPID)
passes "systemctl restart" systemctl restart foliod.service
new_main_after "another one runs" "$pid"
readers_are_well restart
stays restart

passes "daemon-reload" systemctl daemon-reload
pid=$(show MainPID)
in_box kill -KILL "$pid" || true
new_main_after "killed after a daemon-reload, another one runs" "$pid"
stays "daemon-reload"

passes "daemon-reexec" systemctl daemon-reexec
is "it is the same foliod" active "$(show ActiveState)"
pid=$(show MainPID)
in_box kill -KILL "$pid" || true
new_main_after "killed after a daemon-reexec, another one runs" "$pid"
stays "daemon-reexec"

in_box mkdir -p /run/systemd/system/foliod.service.d
printf '[Service]\nWatchdogSec=2s\n' | in_box tee /run/systemd/system/foliod.service.d/watchdog.conf >/dev/null
in_box systemctl daemon-reload
in_box systemctl restart foliod.service
pid=$(show MainPID)
in_box kill -STOP "$pid" || true
new_main_after "one that hangs is ended by the watchdog, and another one runs" "$pid"
in_box rm /run/systemd/system/foliod.service.d/watchdog.conf
in_box systemctl daemon-reload
readers_are_well watchdog
stays watchdog

# --- a crowd that comes during a restart ---
in_box "$survivor" crowd 100 >crowd-log 2>&1 &
crowd=$!
until_true grep -q ready crowd-log
in_box systemctl restart foliod.service
status=0
wait "$crowd" || status=$?
check "100 clients that come during a restart have what they asked for" "$status" crowd-log

# --- the end of the programs ---
for unit in $(seq -f 'survivor-read@%g.service' "$n_readers") survivor-write.service; do
        in_box systemctl stop "$unit"
        in_box journalctl -u "$unit" -o cat --no-pager >out 2>&1 || true
        status=0
        [ "$(in_box systemctl show -P Result "$unit")" = success ] || status=1
        check "$unit has seen nothing wrong" "$status" out
        sed -n 's/^\([0-9].* \(wrong\|not\)\)$/# \1/p' out
done
stays "in the end"
in_box journalctl -u foliod.service -p warning -o cat --no-pager >out 2>&1 || true
sort out | uniq -c | sort -rn | head -n 10 | sed 's/^/# journal: /'

# --- stop, start: by the version of systemd ---
in_box systemctl enable foliod.service >/dev/null 2>&1 || true
passes "stop" systemctl stop foliod.service
passes "start" systemctl start foliod.service
if [ "$systemd_version" -ge 254 ]; then
        stays "stop and start under systemd $systemd_version"
else
        is "stop and start under systemd $systemd_version: the store is empty, as the manual says" 0 \
                "$(in_box folioctl status | sed -n 's/^objects.count *//p')"
fi
if [ "$systemd_version" -lt 254 ]; then
        in_box journalctl -u foliod.service -o cat --no-pager >out
        says "and it was said" 'a stop ends them' out
fi
passes "and serves" folioctl put /etc/hostname after
finish
