#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench-put-file.sh BUILD-FOLDER [MIB [ROUNDS]]
#
# `folioctl put` of a file against `cp` of it into a tmpfs of the same pages: a sealed memfd against a tmpfs with 4 KiB
# pages, and a namespace with backing=tmpfs against a tmpfs with huge=always. In pairs whose order alternates, and
# between any two nothing is left to do: memory given back or made huge in the background would be the next one's
# time. Prints for each the minimum and the median of the wall clock and of the CPU (of the daemon too), and the median
# of the pairs' ratios: on a machine that others use, the minima and the CPU are what can be trusted. Needs root, or a
# user namespace, for the second part.
set -euo pipefail
export LC_ALL=C

build=$(realpath -- "${1:?usage: bench-put-file.sh BUILD-FOLDER [MIB [ROUNDS]]}")
mib=${2:-1024}
n_rounds=${3:-15}
work=$(mktemp -d "${TMPDIR:-/tmp}/folio-bench.XXXXXX")
foliod_pid=
TIMEFORMAT='%R %U %S'
export PATH=$build/client/ctl:$PATH

# The tmpfs are mounts of our own, gone with us.
if [ "${FOLIO_BENCH_INSIDE:-}" != 1 ]; then
        rmdir "$work"
        unshare=(unshare -m)
        [ "$(id -u)" = 0 ] || unshare=(unshare -Urm)
        FOLIO_BENCH_INSIDE=1 exec "${unshare[@]}" "$0" "$@"
fi

finish()
{
        if [ -n "$foliod_pid" ]; then
                kill "$foliod_pid" 2>/dev/null || true
                wait "$foliod_pid" 2>/dev/null || true
        fi
        umount "$work/small" "$work/huge" 2>/dev/null || true
        rm -rf -- "$work"
}
trap finish EXIT

# Ticks of the CPU that the daemon has used, in milliseconds.
daemon_ms()
{
        local fields
        read -r -a fields < <(sed 's/.*) //' "/proc/$foliod_pid/stat")
        echo $(((fields[11] + fields[12]) * 1000 / ticks))
}

# Until the daemon has done nothing for a while.
settle()
{
        local before now i
        before=$(daemon_ms)
        for ((i = 0; i < 200; i++)); do
                sleep 0.1
                now=$(daemon_ms)
                [ "$now" != "$before" ] || return 0
                before=$now
        done
}

# measure FILE COMMAND...: appends "wall cpu", in milliseconds.
measure()
{
        local file=$1 before
        shift
        before=$(daemon_ms)
        { time "$@" 2>"$work/complaints"; } 2>"$work/time" || { cat "$work/complaints" "$work/time" >&2; exit 1; }
        awk -v daemon=$(($(daemon_ms) - before)) '{ printf "%.0f %.0f\n", $1 * 1000, ($2 + $3) * 1000 + daemon }' \
                "$work/time" >>"$file"
}

# summary FIELD FILE: minimum and median.
summary()
{
        awk -v field="$1" '{ print $field }' "$2" | sort -n |
                awk '{ a[NR] = $1 } END { print a[1], (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'
}

one_put()
{
        measure "$1" folioctl put "$work/file" "$2"
        folioctl rm "$2"
        settle
}

one_cp()
{
        measure "$1" cp -- "$work/file" "$2"
        rm -f -- "$2"
}

# against TITLE OBJECT TARGET-FILE
against()
{
        local ours=$work/ours theirs=$work/theirs i
        # One round more than counts: the first warms up.
        for ((i = 0; i <= n_rounds; i++)); do
                if [ $((i % 2)) = 0 ]; then
                        one_put "$ours" "$2"
                        one_cp "$theirs" "$3"
                else
                        one_cp "$theirs" "$3"
                        one_put "$ours" "$2"
                fi
                if [ "$i" = 0 ]; then
                        : >"$ours"
                        : >"$theirs"
                fi
        done
        paste -d ' ' "$ours" "$theirs" | awk '{ printf "%.4f %.4f\n", $3 / $1, $4 / $2 }' >"$work/ratios"
        echo "$1: $mib MiB, $n_rounds pairs, milliseconds: minimum, median"
        echo "  put wall $(summary 1 "$ours")   cpu $(summary 2 "$ours")"
        echo "  cp  wall $(summary 1 "$theirs")   cpu $(summary 2 "$theirs")"
        awk -v a="$(summary 1 "$ours")" -v b="$(summary 1 "$theirs")" -v r="$(summary 1 "$work/ratios")" \
                -v c="$(summary 2 "$ours")" -v d="$(summary 2 "$theirs")" -v s="$(summary 2 "$work/ratios")" 'BEGIN {
                        split(a, A); split(b, B); split(r, R); split(c, C); split(d, D); split(s, S)
                        printf "  cp/put wall %.2f (minima) %.2f (pairs)   cpu %.2f (minima) %.2f (pairs)\n",
                                B[1] / A[1], R[2], D[1] / C[1], S[2] }'
        rm -f "$ours" "$theirs"
}

ticks=$(getconf CLK_TCK)
mkdir "$work/small" "$work/huge"
mount -t tmpfs -o huge=never,size=$((mib + 64))m folio-bench "$work/small"
# What has come into the page cache by large reads is in large folios, as a file that is used is.
head -c "${mib}M" /dev/urandom >"$work/file"
cat "$work/file" >/dev/null
export FOLIO_SOCKET=$work/sock
"$build/daemon/foliod" --socket "$FOLIO_SOCKET" --budget $((mib * 2 + 256))M 2>"$work/foliod.log" &
foliod_pid=$!
for ((i = 0; i < 200; i++)); do
        ! folioctl --no-spawn status >/dev/null 2>&1 || break
        kill -0 "$foliod_pid" 2>/dev/null || { cat "$work/foliod.log" >&2; exit 1; }
        sleep 0.05
done
settle
against "memfd, sealed / tmpfs of 4 KiB pages" bench "$work/small/file"
if folioctl ns add quick --backing tmpfs 2>"$work/complaints" &&
        mount -t tmpfs -o huge=always,size=$((mib + 64))m folio-bench "$work/huge"; then
        against "backing=tmpfs / tmpfs of 2 MiB pages" quick:bench "$work/huge/file"
else
        echo "no namespace with backing=tmpfs here, or no tmpfs of 2 MiB pages: $(cat "$work/complaints")"
fi
