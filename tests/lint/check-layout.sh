#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check-layout.sh [ROOT]
#
# What a reader of the sources may count on, each breach as `file:line: what`; exit status 1 when there is one.
#
#   - a .c of more than 600 lines says in its first comment why ("600 lines" must be in the sentence);
#   - no function is longer than 70 lines, but for those that parse argv;
#   - every source, script and build file has an SPDX line near its top;
#   - no argument of MIN, MAX or CLAMP changes anything, as it is evaluated twice;
#   - no notes to self, no tabs in C, no white space at the end of a line, a newline at the end of a file;
#   - no path and no host of the machine it was written on.
set -eu
root=${1:-$(cd -- "$(dirname -- "$0")/../.." && pwd)}
cd -- "$root"

files=$(find . -name .git -prune -o -path './build*' -prune -o -type d -name corpus -prune -o -type f \
        ! -name LICENSE ! -name '*.bin' -print | sed 's,^\./,,' | sort)
[ -n "$files" ] || { echo "nothing to check"; exit 1; }

# shellcheck disable=SC2086 # no file of this project has a space in its name; the folder it lies in may
awk '
        function is_c(name) { return name ~ /\.[ch]$/ }
        function wants_spdx(name) {
                return is_c(name) || name ~ /\.(sh|py|proto|map|awk)$/ || name ~ /(^|\/)meson(\.build|_options\.txt)$/ || is_script
        }
        function complain(line, what) {
                print name ":" line ": " what
                bad = 1
        }
        # All that can only be said when the end of a file is known.
        function finish() {
                if (name == "")
                        return
                if (wants_spdx(name) && !has_spdx)
                        complain(1, "no SPDX line in the first five lines")
                if (name ~ /\.c$/ && n_lines > 600 && first_comment !~ /600 lines/)
                        complain(n_lines, n_lines " lines: more than 600 lines need a reason in the first comment")
        }

        FNR == 1 {
                finish()
                name = FILENAME
                n_lines = 0
                has_spdx = is_script = in_function = 0
                comment_state = 0
                first_comment = signature = ""
                is_script = /^#!/
        }
        { n_lines = FNR }
        FNR <= 5 && /SPDX-License-Identifier: Apache-2\.0/ { has_spdx = 1 }

        /[ \t\r]$/ && name !~ /\.patch$/ { complain(FNR, "white space at the end of the line") }
        is_c(name) && /\t/ { complain(FNR, "a tab") }
        is_c(name) && /(^|[^A-Z_])(MIN|MAX|CLAMP)\([^;]*(\+\+|--)/ { complain(FNR, "an argument of MIN, MAX or CLAMP is evaluated twice") }
        /(^|[^A-Za-z])(TO[D]O|FIXM[E]|XX[X]|HAC[K])([^A-Za-z]|$)/ { complain(FNR, "a note to self: do it, or open an issue") }
        /\/wor[k]\/|\/hom[e]\/[a-z]|\/roo[t]\/[a-z]/ { complain(FNR, "a path of some machine") }
        /pyp[i]\.org|npmj[s]\.|deb\.debia[n]\.org|crate[s]\.io|proxy\.golan[g]/ { complain(FNR, "a host of a package registry") }

        # The first comment that is more than the SPDX line.
        is_c(name) && comment_state == 0 && /^\/\*/ && !/SPDX/ { comment_state = 1 }
        comment_state == 1 {
                first_comment = first_comment " " $0
                if (/\*\//)
                        comment_state = 2
        }

        # Functions: the brace in the first column opens and closes them.
        is_c(name) && /^[A-Za-z_].*\(/ { signature = $0; signature_line = FNR }
        is_c(name) && !/^[A-Za-z_{}]/ && signature_line && !in_function { signature = signature " " $0 }
        is_c(name) && /^\{/ { in_function = FNR }
        is_c(name) && /^\}/ {
                if (in_function && FNR - in_function + 1 > 70 && signature !~ /char \*\*argv|char \*argv\[\]/)
                        complain(in_function, "a function of " FNR - in_function + 1 " lines: more than 70")
                in_function = signature_line = 0
                signature = ""
        }
        END {
                finish()
                exit bad
        }' $files || bad=1

for file in $files; do
        if [ -s "$file" ] && [ "$(tail -c 1 -- "$file" | od -An -tx1 | tr -d ' ')" != 0a ]; then
                echo "$file:1: no newline at the end of the file"
                bad=1
        fi
done
exit "${bad:-0}"
