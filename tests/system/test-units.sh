#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The units as systemd sees them, who foliod runs as, and what the journal says of it. TAP.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"

# --- what needs no systemd: every id is explained, and every explanation has an id ---
events=$(sed -n 's/^ *X(\([A-Z_]*\), "\([0-9a-f]*\)").*/\2 \1/p' "$root/daemon/service/log.h" | sort)
explained=$(sed -n 's/^-- \([0-9a-f]*\)$/\1/p' "$root/packaging/systemd/folio.catalog" | sort)
status=0
[ -n "$events" ] && [ "$(echo "$events" | cut -d' ' -f1)" = "$explained" ] || status=1
check "each message id in the code is in the catalog, and the other way round" "$status"
status=0
[ -z "$(echo "$events" | cut -d' ' -f1 | grep -v '^[0-9a-f]\{32\}$')" ] &&
        [ -z "$(echo "$events" | cut -d' ' -f1 | uniq -d)" ] || status=1
check "they are 128 bits each, and differ" "$status"
status=0
for event in $(echo "$events" | cut -d' ' -f2); do
        grep -rqE "LOG_EVENT_$event\b" --include='*.c' "$root/daemon" ||
                { echo "# nobody sends $event"; status=1; }
done
check "each is sent by somebody" "$status"
status=0
for field in $(grep -o '@FOLIO_[A-Z_]*@' "$root/packaging/systemd/folio.catalog" | tr -d @ | sort -u); do
        grep -rq "(\"$field\"" --include='*.c' "$root/daemon" ||
                { echo "# nobody sends the field $field"; status=1; }
done
check "each field that the catalog shows is sent" "$status"

# --- systemd ---
world units
passes "systemd-analyze verify" systemd-analyze verify --man=no foliod.socket foliod.service foliod.slice
is "verify says nothing" "" "$(cat out)"
in_box mkdir -p -m 700 /run/user/0
passes "systemd-analyze verify, of the user's" env XDG_RUNTIME_DIR=/run/user/0 systemd-analyze verify --user --man=no foliod.socket foliod.service
is "verify says nothing of the user's" "" "$(cat out)"
unit=$(show FragmentPath)
passes "systemd-analyze security is at most 0.5" systemd-analyze security --offline=yes --threshold=5 "$unit"
passes "sysusers has made the user" getent passwd foliod
says "who cannot log in" ':/usr/sbin/nologin$\|:/sbin/nologin$\|:/bin/false$' out

passes "the socket starts" systemctl start foliod.socket
passes "a client has an answer" folioctl status
pid=$(show MainPID)
is "it runs as foliod" foliod "$(in_box ps -o user= -p "$pid" 2>/dev/null || in_box stat -c %U "/proc/$pid")"
in_box cat "/proc/$pid/status" >process
says "it has no capability" '^CapEff:[[:space:]]*0000000000000000$' process
says "and can get none" '^CapBnd:[[:space:]]*0000000000000000$' process
says "with a filter of system calls" '^Seccomp:[[:space:]]*2$' process
is "in the slice" foliod.slice "$(show Slice)"

# --- the journal ---
passes "journalctl --update-catalog" journalctl --update-catalog
started=$(echo "$events" | sed -n 's/ STARTED$//p')
in_box journalctl --sync
in_box journalctl -x "MESSAGE_ID=$started" -o cat --no-pager >explained 2>&1 || true
in_box journalctl -x "MESSAGE_ID=$started" --no-pager >explained 2>&1 || true
says "an event is found by its id" 'foliod .* is ready' explained
says "and explained" 'Subject: foliod is ready' explained
says "with what it was about filled in" '/run/folio/folio.sock' explained
in_box journalctl "MESSAGE_ID=$started" -o json --no-pager >json
says "and has fields" '"FOLIO_BUDGET_BYTES":"[0-9]*"' json
says "and a level" '"PRIORITY":"5"' json
finish
