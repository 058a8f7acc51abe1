# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For the tests that need a real systemd: read with `.` after tap.sh, then `world NAME` and the story. What a build would
# install is laid into a box (see box); where there can be none, the test says so and ends.
#
# From the environment: FOLIO_BUILD, a build folder that is built; FOLIO_INSTALL, what was installed of it, where that has
# been done; FOLIO_TREE, another system to boot than this machine's, as tests/system/tree makes it.
system_tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
box=$system_tests/box
box_name=

# world NAME [OPTION-FOR-BOX=VALUE...]: makes a folder for the story and goes there, and boots a box.
world()
{
        local reason
        box_name=$1-$$
        shift
        if ! reason=$("$box" can); then
                echo "1..0 # SKIP no box for a systemd here: $reason"
                exit 0
        fi
        scratch=$(mktemp -d "${TMPDIR:-/tmp}/folio-world.XXXXXX")
        export BOX_FOLDER=$scratch/boxes BOX_INSTALL=$scratch/install BOX_OWNER=$$
        # shellcheck disable=SC2163 # each is NAME=VALUE
        [ $# = 0 ] || export "$@"
        trap end_world EXIT
        trap 'exit 1' INT TERM HUP
        cd "$scratch" || exit 1
        install_build "$BOX_INSTALL"
        start_box
}

end_world()
{
        # A systemd that has ended says why on its console.
        [ ! -s "$BOX_FOLDER/$box_name/console" ] || tail -n 5 "$BOX_FOLDER/$box_name/console" >&2
        "$box" stop "$box_name" >&2 || true
        cd /
        rm -rf --one-file-system -- "$scratch"
}

start_box()
{
        "$box" start "$box_name" ${FOLIO_TREE:+"$FOLIO_TREE"} >boot-log 2>&1 || {
                check "the box boots" 1 boot-log
                finish
                exit 1
        }
        # shellcheck disable=SC2034 # of whoever reads this
        systemd_version=$(in_box systemctl --version | sed -n 's/^systemd \([0-9]*\).*/\1/p')
}

# What `meson install` gives, and the programs that only the tests have.
install_build()
{
        local into=$1 service unit
        : "${FOLIO_BUILD:?a build folder that is built}"
        mkdir -p "$into"
        if [ -n "${FOLIO_INSTALL:-}" ]; then
                cp -a "$FOLIO_INSTALL/." "$into/"
        else
                meson install -C "$FOLIO_BUILD" --no-rebuild --quiet --destdir "$into" >install-log 2>&1
        fi || {
                check "the build can be installed" 1 install-log
                finish
                exit 1
        }
        mkdir -p "$into/usr/lib/folio-tests"
        for program in survivor storer; do
                [ ! -e "$FOLIO_BUILD/tests/system/$program" ] ||
                        cp "$FOLIO_BUILD/tests/system/$program" "$into/usr/lib/folio-tests/"
        done
        # Built for this machine's systemd; for another one as it would be built there.
        if [ -n "${FOLIO_TREE:-}" ]; then
                find "$into" -path '*/systemd/*/foliod.service' | while read -r service; do
                        case $service in
                        */user/*) unit=foliod-user ;;
                        *) unit=foliod ;;
                        esac
                        cp "$FOLIO_BUILD/packaging/systemd/$unit-latest.service" "$service"
                done
        fi
}

in_box()
{
        "$box" run "$box_name" "$@"
}

# passes NAME COMMAND...: in the box, with status 0; what it says is in `out`.
passes()
{
        local name=$1 status=0
        shift
        in_box "$@" >out 2>&1 </dev/null || status=$?
        check "$name" "$status" out
}

# is NAME WANTED GOT
is()
{
        local status=0
        [ "$2" = "$3" ] || status=1
        printf 'wanted: %s\ngot: %s\n' "$2" "$3" >why
        check "$1" "$status" why
}

# says NAME PATTERN FILE
says()
{
        local status=0
        grep -q -- "$2" "$3" || status=1
        { echo "nothing like '$2' in:"; tail -n 30 "$3"; } >why
        check "$1" "$status" why
}

# show PROPERTY [UNIT]
show()
{
        in_box systemctl show -P "$1" "${2:-foliod.service}"
}

# until_true COMMAND...: bounded, for what another process does.
until_true()
{
        local end=$((SECONDS + 90))
        until "$@" >/dev/null 2>&1; do
                [ "$SECONDS" -lt "$end" ] || return 1
                sleep 0.05
        done
}

# Another process than PID is the service's main one, and ready.
is_new_main()
{
        local pid
        pid=$(show MainPID)
        [ "$pid" != 0 ] && [ "$pid" != "$1" ] && [ "$(show ActiveState)" = active ]
}
