# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# TAP for shell tests: read with `.`, then check NAME STATUS [FILE-WITH-OUTPUT] for each test, skip NAME REASON, and
# at the end finish.
n_tests=0
n_failed=0

check()
{
        n_tests=$((n_tests + 1))
        if [ "$2" = 0 ]; then
                echo "ok $n_tests - $1"
        else
                n_failed=$((n_failed + 1))
                echo "not ok $n_tests - $1"
                [ -z "${3:-}" ] || sed 's/^/# /' "$3"
        fi
}

skip()
{
        n_tests=$((n_tests + 1))
        echo "ok $n_tests - $1 # SKIP $2"
}

finish()
{
        echo "1..$n_tests"
        [ "$n_failed" = 0 ]
}
