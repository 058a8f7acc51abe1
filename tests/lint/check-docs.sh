#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check-docs.sh [ROOT]
#
# Every function in include/folio is documented: a block that begins with `name() - what it does`, names each parameter
# of the function it stands above, and has the fields Lifetime, Blocking, Threads, Return and Since. Declarations that
# follow without an empty line (the asynchronous form, the same for a handle) share the block. Prints each breach as
# `file:line: what`; exit status 1 when there is one, or when no function was found.
set -eu
root=${1:-$(cd -- "$(dirname -- "$0")/../.." && pwd)}
cd -- "$root"

awk '
        function complain(line, what) {
                print FILENAME ":" line ": " what
                bad = 1
        }
        function start_block() {
                in_block = 1
                block = ""
                is_primary = 1
                has_block = 0
        }
        # The parameters of a declaration, checked against the block above it.
        function check_parameters(text, line,    n, i, list, word, m) {
                sub(/^[^(]*\(/, "", text)
                sub(/\)[^)]*$/, "", text)
                n = split(text, list, ",")
                for (i = 1; i <= n; i++) {
                        m = split(list[i], word, /[^A-Za-z0-9_]+/)
                        while (m > 0 && word[m] == "")
                                m--
                        if (m > 1 && index(block, "@" word[m] ":") == 0)
                                complain(line, name "(): parameter " word[m] " is not documented")
                }
        }
        function check_declaration(text, line,    i, field) {
                name = text
                sub(/\(.*/, "", name)
                sub(/.*[^A-Za-z0-9_]/, "", name)
                n_functions++
                if (!has_block) {
                        complain(line, name "() has no documentation")
                        return
                }
                if (!is_primary)
                        return
                is_primary = 0
                if (index(block, " * " name "() - ") == 0)
                        complain(line, name "(): its block does not begin with \"" name "() - \"")
                for (i = 1; i <= n_fields; i++)
                        if (block !~ ("\n \\* " fields[i] ": +[^ \n]"))
                                complain(line, name "(): no field " fields[i])
                check_parameters(text, line)
        }
        BEGIN { n_fields = split("Lifetime Blocking Threads Return Since", fields, " ") }
        FNR == 1 { in_block = in_comment = has_block = depth = 0; declaration = "" }
        /^\/\*\*$/ { start_block(); next }
        in_block {
                if (/\*\//) {
                        in_block = 0
                        has_block = 1
                } else
                        block = block "\n" $0
                next
        }
        /^[ \t]*\/\*/ && !/\*\// { in_comment = 1 }
        in_comment { if (/\*\//) in_comment = 0; next }
        /^[ \t]*#/ || /^[ \t]*\/\*.*\*\/[ \t]*$/ || /^extern "C"/ { next }
        # An empty line ends what a block is about, once something has used it.
        /^$/ { if (!is_primary) has_block = 0; next }
        /\{/ { depth++ }
        /\}/ { depth--; declaration = ""; next }
        depth > 0 { next }
        {
                if (declaration == "")
                        begun = FNR
                declaration = declaration " " $0
                if (/;/) {
                        if (declaration !~ /^ typedef/ && declaration ~ /folio_[a-z0-9_]+\(/)
                                check_declaration(declaration, begun)
                        declaration = ""
                }
        }
        END {
                if (n_functions == 0) {
                        print "no function found"
                        bad = 1
                }
                exit bad
        }' include/folio/*.h
