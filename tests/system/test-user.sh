#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The pair of units of a user: under a manager of the user's own the socket is where libfolio looks first, the first client
# starts the service, and what it keeps survives a kill. TAP.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$root/tests/lint/tap.sh"
# shellcheck source=world.sh
. "$here/world.sh"
world user
survivor=/usr/lib/folio-tests/survivor

# Without logind nobody makes the directory, and PAM has nothing to do with it here.
printf 'u someone 4321 "A user" /tmp/someone\n' | in_box tee /etc/sysusers.d/someone.conf >/dev/null 2>&1 ||
        { in_box mkdir -p /etc/sysusers.d; printf 'u someone 4321 "A user" /tmp/someone\n' | in_box tee /etc/sysusers.d/someone.conf >/dev/null; }
in_box systemd-sysusers
in_box install -d -o someone -m 700 /run/user/4321 /tmp/someone
in_box sh -c 'mkdir -p /run/systemd/system && cat >/run/systemd/system/someone.service' <<'UNIT'
[Unit]
Description=The manager of a user
[Service]
Type=notify
User=someone
Delegate=yes
Environment=XDG_RUNTIME_DIR=/run/user/4321 HOME=/tmp/someone
ExecStart=/lib/systemd/systemd --user
LimitNOFILE=infinity
UNIT
passes "the user's manager starts" systemctl start someone.service
as_user()
{
        in_box setpriv --reuid 4321 --regid "$(in_box id -g someone)" --clear-groups \
                env XDG_RUNTIME_DIR=/run/user/4321 HOME=/tmp/someone "$@"
}
passes_for_user()
{
        local name=$1 status=0
        shift
        as_user "$@" >out 2>&1 </dev/null || status=$?
        check "$name" "$status" out
}
passes_for_user "the socket starts" systemctl --user start foliod.socket
is "in a directory that only the user enters" "drwx------ someone" "$(in_box stat -c '%A %U' /run/user/4321/folio)"
passes_for_user "a client starts the service" "$survivor" fill 300
is "which is active" active "$(as_user systemctl --user show -P ActiveState foliod.service)"
is "and answers for the user" /run/user/4321/folio/folio.sock "$(as_user folioctl status | sed -n 's/^daemon.socket *//p')"
pid=$(as_user systemctl --user show -P MainPID foliod.service)
in_box kill -KILL "$pid" || true
passes_for_user "killed: every object is there" "$survivor" check 300
is "with another process" yes "$([ "$(as_user systemctl --user show -P MainPID foliod.service)" != "$pid" ] && echo yes)"
passes_for_user "reload" systemctl --user reload foliod.service
passes_for_user "restart" systemctl --user restart foliod.service
passes_for_user "restarted: every object is there" "$survivor" check 300
passes_for_user "stop" systemctl --user stop foliod.socket foliod.service
finish
