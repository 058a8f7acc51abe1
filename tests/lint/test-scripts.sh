#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The scripts that a new user meets first: they parse, they can be run, they say what is wrong. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
output=$scratch/output

for script in packaging/demo packaging/install-deps packaging/build-deb packaging/build-rpm packaging/list-files tests/run tests/sum-results \
        tests/bench/peers tests/bench/bench-systemd tests/system/box tests/system/tree .ci/run; do
        status=0
        [ -x "$root/$script" ] || status=1
        check "$script can be run" "$status"
done
for script in packaging/demo packaging/install-deps packaging/configure packaging/build-deb packaging/build-rpm packaging/list-files tests/run \
        tests/bench/peers tests/bench/bench-systemd tests/system/box tests/system/tree tests/system/world.sh tests/system/test-units.sh \
        tests/system/test-service.sh tests/system/test-memory.sh tests/system/test-user.sh tests/system/test-survival.sh tests/system/test-packages.sh tests/system/test-rpm.sh .ci/run; do
        status=0
        bash -n "$root/$script" >"$output" 2>&1 || status=$?
        check "$script parses" "$status" "$output"
        if command -v shellcheck >/dev/null 2>&1; then
                status=0
                shellcheck -S warning -s bash "$root/$script" >"$output" 2>&1 || status=$?
                check "$script: shellcheck" "$status" "$output"
        fi
done

# A machine with nothing on it: no compiler, no apt, no sudo.
mkdir "$scratch/bin"
for tool in bash env mktemp rm cut tr id cat; do
        ln -s "$(command -v $tool)" "$scratch/bin/$tool"
done
for purpose in build test; do
        status=0
        PATH=$scratch/bin "$root/packaging/install-deps" $purpose >"$output" 2>&1 </dev/null || status=$?
        good=1
        if [ "$status" = 1 ] && grep -q '^missing: gcc libc6-dev meson ninja-build' "$output" &&
                grep -q 'sudo apt-get install --no-install-recommends gcc libc6-dev' "$output"; then
                good=0
        fi
        check "install-deps $purpose names what is missing and the command that installs it" $good "$output"
done
status=0
env -u CI PATH=$scratch/bin "$root/packaging/install-deps" test >"$output" 2>&1 </dev/null || status=$?
good=0
grep -q 'libcmocka-dev' "$output" || good=1
grep '^missing: ' "$output" | grep -q clang && good=1
check "clang is no condition" $good "$output"
CI=true PATH=$scratch/bin "$root/packaging/install-deps" test >"$output" 2>&1 </dev/null || status=$?
good=0
grep '^missing: ' "$output" | grep -q clang || good=1
check "but where CI=true it is" $good "$output"

# With an apt that notes what it is asked for, as root. It installs nothing, so all stays missing.
if [ "$(id -u)" = 0 ]; then
        printf '#!%s\necho "$@" >>"%s/asked"\n' "$(command -v sh)" "$scratch" >"$scratch/bin/apt-get"
        chmod +x "$scratch/bin/apt-get"
        status=0
        PATH=$scratch/bin "$root/packaging/install-deps" build >"$output" 2>&1 </dev/null || status=$?
        cat "$scratch/asked" >>"$output"
        good=1
        if [ "$status" = 1 ] && [ "$(grep -c ' update$' "$scratch/asked")" = 1 ] &&
                head -n 1 "$scratch/asked" | grep -q ' update$' &&
                grep -q 'install --yes --no-install-recommends gcc .*libjansson-dev$' "$scratch/asked" &&
                grep -q 'install --yes --no-install-recommends python3-docutils$' "$scratch/asked"; then
                good=0
        fi
        check "as root it installs: one update, what is required, then what is optional" $good "$output"
else
        skip "as root it installs" "not root"
fi

status=0
"$root/packaging/install-deps" everything >"$output" 2>&1 || status=$?
[ "$status" = 2 ] && status=0 || status=1
check "install-deps: a wrong argument is told" "$status" "$output"
status=0
"$root/tests/run" --fast >"$output" 2>&1 || status=$?
[ "$status" = 2 ] && status=0 || status=1
check "tests/run: a wrong argument is told" "$status" "$output"
# It needs what is not installed for the tests: only that it asks for what it is to measure.
for arguments in "" "--fast" "$root --only nosuch" "$root --rounds 0" "$root more"; do
        status=0
        # shellcheck disable=SC2086 # words are wanted
        "$root/tests/bench/peers" $arguments >"$output" 2>&1 </dev/null || status=$?
        [ "$status" = 2 ] && status=0 || status=1
        check "tests/bench/peers: '${arguments#"$root"}' is told" "$status" "$output"
done
finish
