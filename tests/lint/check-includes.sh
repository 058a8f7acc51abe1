#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check-includes.sh [ROOT [ROOMS]]
#
# Reads every #include of the sources below include, proto, daemon and client, and prints each that breaks a rule, as
# `file:line: what`. Exit status 1 when there is one, or when there is nothing to read.
#
# The ranks are in the file `rooms`. Besides them: daemon and client never meet; public headers see only each other and
# the C library; the tool sees only those and its own; generated code, libevent, systemd and threads each have their rooms.
set -eu
root=${1:-$(cd -- "$(dirname -- "$0")/../.." && pwd)}
rooms=${2:-$root/tests/lint/rooms}
cd -- "$root"

# Every file that an include could mean, then every include: "H path", "I file line target".
{
        find include proto daemon client -name '*.h' | sed 's/^/H /'
        find include proto daemon client -name '*.[ch]' | sort | while read -r file; do
                awk -v file="$file" '
                        BEGIN { print "F " file }
                        /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
                                target = $0
                                sub(/^[^<"]*[<"]/, "", target)
                                sub(/[>"].*$/, "", target)
                                print "I " file " " FNR " " target
                        }' "$file"
        done
} | awk -v rooms="$rooms" '
        function module(path) { sub(/\.[ch]$/, "", path); return path }
        function starts(text, with) { return substr(text, 1, length(with)) == with }

        # The rank of a module; -1 for one that no line of rooms names.
        function rank(name,    i, best, best_length) {
                if (name in exact)
                        return exact[name]
                best = -1
                best_length = -1
                for (i = 1; i <= n_patterns; i++)
                        if (starts(name, stem[i]) && length(stem[i]) > best_length &&
                            (starts(stem[i], "include/") || index(substr(name, length(stem[i]) + 1), "/") == 0)) {
                                best = pattern_rank[i]
                                best_length = length(stem[i])
                        }
                return best
        }

        # What a name in an include means in this project; "" for a header from elsewhere.
        function resolve(file, target,    folder) {
                if (target in header)
                        return target
                if (("include/" target) in header)
                        return "include/" target
                folder = file
                sub(/[^\/]*$/, "", folder)
                if ((folder target) in header)
                        return folder target
                return ""
        }

        function complain(what) {
                print $2 ":" $3 ": " what
                bad = 1
        }

        function check_foreign(file, name, target) {
                if (target ~ /\.pb-c\.h$/ && name != "proto/codec")
                        complain("generated code belongs to proto/codec.c alone: " target)
                else if ((starts(target, "event2/") || target == "event.h") &&
                         name !~ /^daemon\/(service\/|server\/|daemon$|keeping$|main$)/)
                        complain("libevent belongs to the service, the server, daemon.c and main.c: " target)
                else if (starts(target, "systemd/") && name !~ /^daemon\/(service\/|daemon$|keeping$|main$)/)
                        complain("systemd belongs to the service, daemon.c and main.c: " target)
                else if ((target == "pthread.h" || target == "threads.h") && name != "daemon/service/worker" &&
                         !starts(name, "daemon/service/keeper") &&
                         name != "client/ctl/bench-crowd" && (!starts(name, "client/") || starts(name, "client/ctl/")))
                        complain("threads belong to worker.c, the keeper, the client library and bench-crowd.c: " target)
                else if (starts(target, "protobuf-c/") && name != "proto/codec")
                        complain("protobuf belongs to proto/codec.c: " target)
                else if (target ~ /^(folio|base|proto|daemon|client|include)\//)
                        complain("no such header: " target)
        }

        function check_own(file, name, target, path,    other, mine, theirs) {
                other = module(path)
                if (other == name)
                        return
                if (starts(name, "include/folio/")) {
                        if (!starts(other, "include/folio/"))
                                complain("a public header includes public headers only: " target)
                        return
                }
                if (starts(name, "include/base/")) {
                        if (!starts(other, "include/base/"))
                                complain("base knows nothing of Folio: " target)
                        return
                }
                if (starts(name, "daemon/") && starts(other, "client/"))
                        complain("the daemon does not know the library: " target)
                else if (starts(name, "client/") && starts(other, "daemon/"))
                        complain("the library does not know the daemon: " target)
                else if (starts(name, "client/ctl/") && !starts(other, "include/") && !starts(other, "client/ctl/"))
                        complain("the tool uses public headers and its own only: " target)
                else if (!starts(name, "client/ctl/") && starts(other, "client/ctl/"))
                        complain("the tool is nobody'"'"'s library: " target)
                else {
                        mine = (file in exact) ? exact[file] : rank(name)
                        theirs = rank(other)
                        if (mine >= 0 && theirs >= mine)
                                complain(name " (rank " mine ") includes " target " (rank " theirs \
                                         "): only lower ranks may be included")
                }
        }

        BEGIN {
                while ((getline line < rooms) > 0) {
                        sub(/#.*/, "", line)
                        n = split(line, word, " ")
                        for (i = 2; i <= n; i++)
                                if (word[i] ~ /\*$/) {
                                        n_patterns++
                                        stem[n_patterns] = substr(word[i], 1, length(word[i]) - 1)
                                        pattern_rank[n_patterns] = word[1] + 0
                                } else
                                        exact[word[i]] = word[1] + 0
                }
                close(rooms)
                if (n_patterns == 0) {
                        print "no rooms in " rooms
                        bad = 1
                }
        }
        $1 == "H" { header[$2] = 1 }
        $1 == "F" {
                n_files++
                $3 = 1
                if (!($2 in exact) && rank(module($2)) < 0)
                        complain("has no room: name it in tests/lint/rooms")
        }
        $1 == "I" {
                path = resolve($2, $4)
                if (path == "")
                        check_foreign($2, module($2), $4)
                else
                        check_own($2, module($2), $4, path)
        }
        END {
                if (n_files == 0) {
                        print "nothing to check"
                        bad = 1
                }
                exit bad
        }'
