#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The man pages. Those of the library are made of its headers: every function and type has one, nothing that the headers
# say is left out, and from-headers refuses what it does not understand. The others have every verb, option, setting and
# fact that there is, and no setting that there is not. All of them become pages without a warning of rst2man,
# groff or mandoc. $FOLIOCTL and $FOLIO_DAEMON are the programs, which are asked what they have; without them the
# sources alone are. $INSTALL_PLAN is what meson will install. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
man=$root/packaging/man
headers=$(ls "$root"/include/folio/*.h)
export LC_ALL=C.UTF-8

# documented WHAT PAGE: each line of the input is in the page as a word of its own.
documented()
{
        n=0
        : >"$scratch/output"
        while read -r word; do
                n=$((n + 1))
                # In bold, a literal, or first in an entry of a list: prose that happens to use the word does not count.
                grep -qE -- "(^|, |\\*\\*|\`\`)$word(\\*\\*|\`\`|,|\$)" "$man/$2.rst" ||
                        echo "$2 does not have $word" >>"$scratch/output"
        done
        status=0
        [ $n -gt 0 ] && [ ! -s "$scratch/output" ] || status=1
        check "$2 has every $1" "$status" "$scratch/output"
}

# --- of the headers ---------------------------------------------------------------------------------------------------
# shellcheck disable=SC2086 # $headers is words
{
        status=0
        "$man/from-headers" --pages "$scratch/man3" 0 $headers >"$scratch/output" 2>&1 || status=$?
        check "the headers become pages" "$status" "$scratch/output"
        status=0
        "$man/from-headers" --list $headers >"$scratch/all" || status=$?
        ls "$scratch/man3" | diff - "$scratch/all" >"$scratch/output" || status=1
        check "those that were said" "$status" "$scratch/output"
        status=0
        "$man/from-headers" --fill "$man/libfolio.3.rst" $headers "$scratch/libfolio.3.rst" 2>"$scratch/output" || status=$?
        check "libfolio.3 has its lists" "$status" "$scratch/output"
}

# names_of PAGE: what stands before the dashes of its section NAME.
names_of()
{
        sed -n '/^\.SH NAME/,/^\.SH [^N]/s/ \\- .*//p' "$1" | tr -d ','
}

: >"$scratch/output"
n=0
{
        sed -n 's/^ *\(folio_[a-z_]*\);$/\1/p' "$root/client/libfolio.map"
        # shellcheck disable=SC2086
        sed -nE 's/^(struct|enum) (folio_[a-z_]+).*/\2/p' $headers
} | sort -u >"$scratch/words"
while read -r name; do
        n=$((n + 1))
        page=$scratch/man3/$name.3
        is_alias=
        if grep -q '^\.so ' "$page" 2>/dev/null; then
                is_alias=1
                page=$scratch/$(sed -n 's/^\.so //p' "$page")
        fi
        # A type may be on the page of a header, a function is always named.
        if [ ! -s "$page" ]; then
                echo "there is no page of $name"
        elif ! names_of "$page" | tr ' ' '\n' | grep -qx "$name" && ! grep -q "^\.SS .*$name" "$page"; then
                echo "${page##*/} does not have $name${is_alias:+, which refers to it}"
        fi >>"$scratch/output"
done <"$scratch/words"
status=0
[ $n -ge 90 ] && [ ! -s "$scratch/output" ] || status=1
check "every function and type can be found" "$status" "$scratch/output"

# Each word of a comment in the headers, wherever it went.
words()
{
        tr -c 'A-Za-z0-9_\n' ' ' | tr ' ' '\n' | grep . | sort -u
}
# shellcheck disable=SC2086
awk '/^\/\*/ { on = 1 } on || /\/\* .* \*\// { if (!on) sub(/.*\/\*/, ""); print } /\*\// { on = 0 }' $headers |
        grep -v 'SPDX\|^/\* ---' | sed -E 's/^ *\* (Lifetime|Blocking|Threads|Return|Since): */ /; s/^ *\* (Lifetime):  -//' |
        words >"$scratch/said"
cat "$scratch"/man3/* | sed 's/\\f[BIRP]/ /g; s/\\(aq/ /g; s/\\[e&]/ /g; s/\\(../ /g; s/\\-/ /g' |
        words >"$scratch/written"
# folio.h only includes; its sentence is on no page. A sentence begins with a capital there.
tr 'A-Z' 'a-z' <"$scratch/written" | sort -u >"$scratch/written-small"
tr 'A-Z' 'a-z' <"$scratch/said" | sort -u | comm -23 - "$scratch/written-small" |
        grep -vx 'everything\|include' >"$scratch/output" || true
status=0
[ "$(wc -l <"$scratch/said")" -gt 500 ] && [ ! -s "$scratch/output" ] || status=1
check "nothing that the headers say is left out" "$status" "$scratch/output"

# refuses WHAT SED-SCRIPT: on object.h
refuses()
{
        mkdir -p "$scratch/seeded"
        sed "$2" "$root/include/folio/object.h" >"$scratch/seeded/object.h"
        status=0
        if cmp -s "$scratch/seeded/object.h" "$root/include/folio/object.h" ||
                "$man/from-headers" --list "$scratch/seeded/object.h" >/dev/null 2>"$scratch/output"; then
                status=1
        fi
        check "from-headers refuses $1" "$status" "$scratch/output"
}
refuses "a function without documentation" '$i int folio_object_forgotten(struct folio_object *object);'
refuses "a block without a field" '/^ \* Blocking: /d'
refuses "a type without a word" '/^\/\* A list: /d'
sed 's/folio_put()/folio_new()/; s/int folio_put(/int folio_new(/' "$root/include/folio/object.h" >"$scratch/seeded/object.h"
status=0
"$man/from-headers" --list "$scratch/seeded/object.h" >"$scratch/listed"
grep -qx folio_new.3 "$scratch/listed" || status=1
check "a new function gets a page" "$status"

if [ -r "${INSTALL_PLAN:-}" ] && grep -q 'man3/libfolio.3' "$INSTALL_PLAN"; then
        : >"$scratch/output"
        for place in $(sed 's,^,man3/,' "$scratch/all") man3/libfolio.3 man1/folioctl.1 man5/foliod.conf.5 man7/folio.7 man8/foliod.8; do
                grep -qF "/$place\"" "$INSTALL_PLAN" || echo "$place is not installed"
        done >>"$scratch/output"
        status=0
        [ ! -s "$scratch/output" ] || status=1
        check "every page is installed" "$status" "$scratch/output"
fi

# --- of the programs --------------------------------------------------------------------------------------------------
grep -hoE '\{ ("daemon"|"memory"|NAMESPACE), "[a-z-]+"' "$root/daemon/service/config.c" | sed 's/.*, "\(.*\)"/\1/' >"$scratch/words"
documented setting foliod.conf.5 <"$scratch/words"
# hostmem.c has names of files of a cgroup, which look the same, and so do those of fault points.
grep -rh --include='*.[ch]' --exclude=hostmem.c '"[a-z]*\.[a-z]' "$root/daemon" | grep -v 'FAULT(' | grep -oE '"(daemon|clients|sessions|requests|loop|pressure|memory|held|unsealed|pool|packed|index|pins|objects|namespaces|huge|collapse|backend|ring|poller|leases|keeper|kept|parked|restore|restored|ghosts|segments|evacuated)(\.[a-z_0-9]+)+"' |
        tr -d '"' | sort -u >"$scratch/words"
documented fact foliod.8 <"$scratch/words"
grep -hoE "\{ [A-Z_]+, ('.'|0), \"[a-z-]+\", (NULL|\"[A-Z=|@]+\")," "$root"/client/ctl/*.c | sed 's/[^"]*"\([a-z-]*\)".*/--\1/' | sort -u >"$scratch/words"
documented option folioctl.1 <"$scratch/words"

# The options that --help has, from the input.
options()
{
        grep -oE '^  (-., |    |)--[a-z-]+(, --[a-z-]+)*' | grep -oE -e '--[a-z-]+' | sort -u
}

# entry FILE WORD: the entry of a list at the left edge that begins with the word, in bold or not.
entry()
{
        awk -v word="$2" '
                /^[^ ]/ { line = $0; gsub(/[*]/, "", line); split(line, parts, " "); on = parts[1] == word }
                on { print }' "$1"
}

if [ -n "${FOLIOCTL:-}" ]; then
        "$FOLIOCTL" help | sed '1,/^Verbs:/d; /^$/,$d' | sed -nE 's/^  ([a-z]+).*/\1/p' >"$scratch/verbs"
        sed -n '/^VERBS$/,/^BENCH$/p' "$man/folioctl.1.rst" >"$scratch/page"
        : >"$scratch/output"
        n=0
        while read -r verb; do
                n=$((n + 1))
                entry "$scratch/page" "$verb" >"$scratch/entry"
                [ -s "$scratch/entry" ] || echo "folioctl.1 does not have the verb $verb" >>"$scratch/output"
                # "Options of **get**": those count as its own.
                other=$(sed -nE 's/.*[Oo]ptions of \*\*([a-z]+)\*\*.*/\1/p' "$scratch/entry" | head -n 1)
                [ -z "$other" ] || entry "$scratch/page" "$other" >>"$scratch/entry"
                "$FOLIOCTL" "$verb" --help | sed '/^Options of every verb:/,$d' | options >"$scratch/words"
                while read -r option; do
                        grep -qE -e "^ *.*\*\*$option\*\*" "$scratch/entry" ||
                                echo "folioctl.1 does not have $option of $verb" >>"$scratch/output"
                done <"$scratch/words"
        done <"$scratch/verbs"
        status=0
        [ $n -gt 10 ] && [ ! -s "$scratch/output" ] || status=1
        check "folioctl.1 has every verb, and its options" "$status" "$scratch/output"
        "$FOLIOCTL" --help | sed '/^Verbs:/,$d' | options >"$scratch/words"
        documented "option of every verb" folioctl.1 <"$scratch/words"
fi

# settings PAGE: section, key and default, where there is one, as the page has them.
settings_of_page()
{
        awk '
                /^In (the|a) section ``\[/ { match($0, /\[[a-z]+/); section = substr($0, RSTART + 1, RLENGTH - 1) }
                /^\*\*[a-z, *-]+\*\*/ && section != "" {
                        line = $0
                        value = ""
                        # One default, or the words that there are, between bars.
                        if (match(line, / = .*/)) { value = substr(line, RSTART + 3); line = substr(line, 1, RSTART - 1) }
                        gsub(/[*,]/, "", value); gsub(/[*,]/, "", line)
                        if (section == "namespace") value = ""
                        n = split(line, keys, " ")
                        for (i = 1; i <= n; i++) print section, keys[i], value
                }
                /^EXAMPLE$/ { section = "" }' "$1" | sed 's/ *$//' | sort
}

if [ -n "${FOLIO_DAEMON:-}" ]; then
        "$FOLIO_DAEMON" --help | sed '/^Settings/,$d' | options >"$scratch/words"
        documented "option of foliod" foliod.8 <"$scratch/words"
        # A path follows from the user: it has no default to be told.
        "$FOLIO_DAEMON" --help | sed -n '/^Settings/,$p' | awk '
                /^\[/ { gsub(/[][]/, ""); section = $1 }
                /^  [a-z]/ && section != "" {
                        value = ""
                        if (section != "namespace" && $1 != "socket" && match($0, /\[[^[]*\]$/))
                                value = substr($0, RSTART + 1, RLENGTH - 2)
                        print section, $1, value
                }
                /^Example/ { section = "" }' | sed 's/ *$//' | sort >"$scratch/has"
        settings_of_page "$man/foliod.conf.5.rst" >"$scratch/says"
        status=0
        [ "$(wc -l <"$scratch/has")" -gt 20 ] || status=1
        diff -u --label foliod --label foliod.conf.5 "$scratch/has" "$scratch/says" >"$scratch/output" || status=1
        check "foliod.conf.5 has the settings and defaults of foliod, and no others" "$status" "$scratch/output"
        : >"$scratch/empty.conf"
        "$FOLIO_DAEMON" --config "$scratch/empty.conf" --check-config 2>/dev/null |
                sed -nE 's/^([a-z-]+) = .*/\1/p' >"$scratch/words"
        documented "setting that --check-config prints" foliod.conf.5 <"$scratch/words"
        # What would not be there is found.
        sed '/^\*\*staging\*\*/d; s/^\(\*\*events\*\* = \)\*\*[0-9]*/\1**1/; s/^\(\*\*huge\)\(\*\* = \)/\1st\2/' "$man/foliod.conf.5.rst" >"$scratch/seeded/page"
        settings_of_page "$scratch/seeded/page" >"$scratch/says"
        status=0
        diff "$scratch/has" "$scratch/says" >"$scratch/output" || true
        for line in '< memory staging 4M' '< memory events 8192' '> memory events 1' '> memory hugest auto'; do
                grep -qx "$line" "$scratch/output" || status=1
        done
        check "a setting that is missing, invented, or has another default is found" "$status" "$scratch/output"
fi

if [ -n "${FOLIOCTL:-}" ] && [ -n "${FOLIO_DAEMON:-}" ]; then
        export FOLIO_DAEMON
        env -u FOLIO_SOCKET "$FOLIOCTL" run --budget 256M -- "$FOLIOCTL" status | sed 's/ .*//' >"$scratch/words"
        documented "fact that folioctl status prints" foliod.8 <"$scratch/words"
fi

# --- they are pages ---------------------------------------------------------------------------------------------------
# clean NAME FILE: on 80 columns, and for mandoc. Pages have no date, as no two builds should differ.
clean()
{
        if command -v groff >/dev/null 2>&1; then
                status=0
                groff -man -t -Tutf8 -ww -rLL=80n "$2" 2>"$scratch/output" | col -bx >"$scratch/text" || status=$?
                [ ! -s "$scratch/output" ] || status=1
                # A bar alone is markup that was taken for text, and so are stars and quotes in pairs.
                if grep -nE '^ *\||\*\*|``' "$scratch/text" >>"$scratch/output"; then
                        status=1
                fi
                check "$1 renders on 80 columns" "$status" "$scratch/output"
        else
                skip "$1 on a terminal" "groff is not installed"
        fi
        if command -v mandoc >/dev/null 2>&1; then
                # rst2man has empty lines where a heading has made one, and a font that mandoc does not have.
                mandoc -T lint -W warning "$2" 2>&1 |
                        grep -v 'missing date\|paragraph macro: sp after S\|unknown font, .*: ft C' >"$scratch/output" || true
                status=0
                [ ! -s "$scratch/output" ] || status=1
                check "$1: mandoc has nothing against it" "$status" "$scratch/output"
        fi
}

# All in one file for each program that looks at them: there are more than fifty.
status=0
: >"$scratch/output"
for page in "$scratch"/man3/*.3; do
        grep -q '^\.so ' "$page" || echo "$page"
done >"$scratch/pages"
if command -v groff >/dev/null 2>&1; then
        # shellcheck disable=SC2046 # names of our own
        groff -man -Tutf8 -ww -rLL=80n $(cat "$scratch/pages") 2>"$scratch/output" | col -bx >"$scratch/text" || status=$?
        [ ! -s "$scratch/output" ] || status=1
        # What is marked in the headers is not marked on a page.
        if grep -nE '`|(^|[^A-Za-z_])@[a-z]|\(aq|\\f' "$scratch/text" >>"$scratch/output"; then
                status=1
        fi
        check "the pages of the library render on 80 columns" $status "$scratch/output"
else
        skip "the pages of the library on a terminal" "groff is not installed"
fi
if command -v mandoc >/dev/null 2>&1; then
        # shellcheck disable=SC2046
        mandoc -T lint -W warning $(cat "$scratch/pages") 2>&1 | grep -v 'missing date' >"$scratch/output" || true
        status=0
        [ ! -s "$scratch/output" ] || status=1
        check "the pages of the library: mandoc has nothing against them" $status "$scratch/output"
fi
# As a user asks; the page's own name would do for lexgrog too. Some containers have another man, which shows nothing.
if command -v man >/dev/null 2>&1 && man --version 2>/dev/null | grep -q '^man [0-9]'; then
        for name in folio_put_async folio_client folio_namespace_set folio_event folio_state; do
                status=0
                MANPATH=$scratch MANWIDTH=80 man --warnings 3 $name >"$scratch/text" 2>"$scratch/output" || status=$?
                grep -q "$name" "$scratch/text" && [ ! -s "$scratch/output" ] || status=1
                check "man $name" $status "$scratch/output"
        done
fi

if ! command -v rst2man >/dev/null 2>&1; then
        skip "pages" "rst2man is not installed"
        finish
        exit
fi

for page in foliod.8 folioctl.1 foliod.conf.5 folio.7 libfolio.3; do
        status=0
        [ -e "$man/$page.rst" ] || status=1
        check "there is a page $page" "$status"
done
# mandoc goes by the name of the file.
mkdir "$scratch/rendered"
for page in "$man"/*.rst; do
        [ -e "$page" ] || continue
        name=${page##*/}
        [ "$name" != libfolio.3.rst ] || page=$scratch/libfolio.3.rst
        status=0
        rst2man --halt=2 "$page" >"$scratch/rendered/${name%.rst}" 2>"$scratch/output" || status=$?
        [ "$status" != 0 ] || grep -q '^\.TH' "$scratch/rendered/${name%.rst}" || status=1
        check "$name" "$status" "$scratch/output"
        clean "$name" "$scratch/rendered/${name%.rst}"
done
finish
