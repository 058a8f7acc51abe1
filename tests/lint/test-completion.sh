#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Completion of folioctl: the three files know the verbs, the options, their letters and values, the suites and the
# sub-verbs that the tool prints, and no others; and bash offers what it should, from a private store too. Completion of
# foliod: the three files know the options, settings and words that foliod takes, and no others. $FOLIOCTL is the tool and
# $FOLIO_DAEMON the daemon; $INSTALL_PLAN is what meson will install. With the word `store` it is the part that runs within that store. What the shells do when
# somebody presses TAB is in tests/integration/test-shells.sh. TAP.
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
files=$root/packaging/completion
: "${FOLIOCTL:?}" "${FOLIO_DAEMON:?}"
export FOLIOCTL FOLIO_DAEMON LC_ALL=C.UTF-8
# shellcheck source=../../packaging/completion/folioctl.bash
. "$files/folioctl.bash"
# shellcheck source=../../packaging/completion/foliod.bash
. "$files/foliod.bash"

# --- in the store -------------------------------------------------------------------------------------------------

# Cuts a line into COMP_WORDS as readline does, where quotes and backslashes keep what they quote together.
cut_line()
{
        local line=$1 quote='' word='' c i

        COMP_WORDS=()
        for ((i = 0; i < ${#line}; i++)); do
                c=${line:i:1}
                if [[ $c == \\ && $quote != "'" ]]; then
                        word+=${line:i:2}
                        i=$((i + 1))
                elif [[ $quote ]]; then
                        [[ $c != "$quote" ]] || quote=''
                        word+=$c
                elif [[ $c == [\"\'] ]]; then
                        quote=$c
                        word+=$c
                elif [[ $c == ' ' || $COMP_WORDBREAKS == *"$c"* ]]; then
                        [[ ! $word ]] || COMP_WORDS+=("$word")
                        [[ $c == ' ' ]] || COMP_WORDS+=("$c")
                        word=''
                else
                        word+=$c
                fi
        done
        # Behind a blank a new word begins, behind a break the break is the last.
        [[ ! $word && $line != *' ' ]] || COMP_WORDS+=("$word")
}

# Stands for bash's, which works only while somebody presses TAB.
compopt()
{
        asked_for+=" $2"
}

# offers LINE EXPECTED: what is offered, sorted, with a bar between, and what compopt was asked for.
offers()
{
        local asked_for='' given

        cut_line "$1"
        COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        COMPREPLY=()
        _folioctl "$FOLIOCTL" >"$scratch/output" 2>&1
        given=$({ ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"; } | sort | paste -sd '|')$asked_for
        status=0
        [[ $given == "$2" && ! -s $scratch/output ]] || status=1
        echo "'$given' instead of '$2'" >>"$scratch/output"
        check "bash: $1: $2" $status "$scratch/output"
}

run_in_store()
{
        local i

        scratch=$(mktemp -d)
        trap 'rm -rf -- "$scratch"' EXIT
        echo bytes >"$scratch/file"
        "$FOLIOCTL" ns add model
        "$FOLIOCTL" ns add maps
        for name in 'model:my weights: first' 'model:my weights: last' plain "it's" 'money$' 'back\slash' $'bell\a' \
                'maps:a:b' a@host=1 'default:with:colon'; do
                "$FOLIOCTL" put "$scratch/file" "$name"
        done

        COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
        offers 'folioctl p' 'put'
        offers 'folioctl --socket /nowhere w' 'wait|watch'
        offers 'folioctl put --m' '--metadata|--mutable'
        offers 'folioctl ls --huge' ''
        offers 'folioctl ns add x --huge ' 'always|auto|never'
        offers 'folioctl ns add x --huge=al' 'always'
        offers 'folioctl bench read ha' 'handoff'
        offers 'folioctl ns s' 'set'
        offers 'folioctl ns set m' 'maps|model'
        offers 'folioctl ns add m' ''
        offers 'folioctl ns --quota 1G rm d' 'default'
        offers 'folioctl help tr' 'truncate'
        offers 'folioctl get plain ' ' default'
        offers 'folioctl put ' ' default'
        offers 'folioctl put file p' 'plain'
        offers 'folioctl get mo' 'model:|money\$'
        offers 'folioctl get mod' 'model: nospace'
        offers 'folioctl get default:p' 'plain'
        offers 'folioctl get default:with:' 'colon'
        offers 'folioctl get model:' 'my\ weights:\ first|my\ weights:\ last'
        offers 'folioctl get model:my\ weights:\ f' '\ first'
        offers 'folioctl get model:my\ weights\:\ f' 'my\ weights:\ first'
        offers 'folioctl get "model:my weights: f' 'model:my weights: first'
        offers "folioctl get 'it" "it'\\''s"
        offers 'folioctl get it' "it\\'s"
        offers 'folioctl get "mon' 'money\$'
        offers 'folioctl cat plain b' 'back\\slash'
        offers 'folioctl -- stat -- pl' 'plain'
        offers 'folioctl rm -f maps:a' 'a:b'
        offers 'folioctl get --wait 10s pl' 'plain'
        offers 'folioctl get -w ' 'forever'
        offers 'folioctl stat -m pl' 'plain'
        offers 'folioctl put -m pl' ''
        mkdir "$scratch/folder"
        offers "folioctl put -m @$scratch/fi" "@$scratch/file"
        offers "folioctl put --metadata=@$scratch/fo" "@$scratch/folder/ nospace"
        offers 'folioctl cat a@h' '@host=1'
        offers 'folioctl cat a@host=' '1'
        offers 'folioctl status memory.b' 'memory.budget_bytes'
        offers 'folioctl cat nix:' ''
        # shellcheck disable=SC2016 # it is to stay as it is
        offers 'folioctl cat $(touch${IFS}'"$scratch/evil)" ''
        offers 'folioctl --socket /nowhere cat pl' ''
        offers 'folioctl cat plain > ' ' default'
        offers 'folioctl cat plain 2>fi' ' default'
        offers 'folioctl run --budget 1G -- folioctl-no-such' ' default'
        COMP_WORDBREAKS=$' \t\n"\'@><;|&('
        offers 'folioctl get model:my\ weights:\ f' 'model:my\ weights:\ first'
        offers 'folioctl ns add x --huge=al' '--huge=always'
        status=0
        [ ! -e "$scratch/evil" ] || status=1
        check 'bash: nothing of the line is run' $status

        # More than are listed: what is typed is among them.
        COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
        for ((i = 0; i < 1010; i++)); do
                echo "many-$i"
        done >"$scratch/names"
        while read -r name; do
                "$FOLIOCTL" put "$scratch/file" "maps:$name"
        done <"$scratch/names"
        COMP_LINE='folioctl get maps:many' COMP_WORDS=(folioctl get maps : many) COMP_CWORD=4 COMP_POINT=22 COMPREPLY=()
        _folioctl "$FOLIOCTL"
        status=1
        [[ ${#COMPREPLY[@]} != 1001 || ${COMPREPLY[1000]} != many ]] || status=0
        check 'bash: of many names, a thousand and what is typed' $status

        # Where no daemon is, none is started; but the tool by itself would start this one.
        printf '#!/bin/sh\ntouch "%s"\n' "$scratch/started" >"$scratch/daemon"
        chmod +x "$scratch/daemon"
        mkdir -m 0700 "$scratch/runtime"
        unset FOLIO_SOCKET
        export FOLIO_DAEMON=$scratch/daemon XDG_RUNTIME_DIR=$scratch/runtime
        offers 'folioctl get no-such-name' ''
        offers 'folioctl ns rm no-such-name' ''
        offers 'folioctl status no-such-name' ''
        status=0
        [ ! -e "$scratch/started" ] || status=1
        check 'bash: no daemon is started' $status
        if ! timeout 20 "$FOLIOCTL" --timeout 2s ls >/dev/null 2>&1; then
                status=0
                [ -e "$scratch/started" ] || status=1
                check 'though it could be' $status
        fi
        # Of the caller's count.
        echo "$n_tests $n_failed" >&3
}

if [ "${1:-}" = store ]; then
        run_in_store
        exit
fi

# --- what the tool says, and what the files say ---------------------------------------------------------------------

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
"$FOLIOCTL" help | sed '1,/^Verbs:/d; /^$/,$d; /^   /d' | sed -E 's/^  ([a-z]+).*/\1/' >"$scratch/verbs"

# What --help prints, for verb $1 or `every`, as lines: the verb, and `--name` or `-x`, with `=` where it takes a value.
options_of_tool()
{
        awk -v verb="$1" '/^  (-., |    )--/ {
                letter = substr($0, 3, 1) == "-" ? substr($0, 3, 2) : ""
                text = substr($0, 7)
                match(text, /^--[a-z-]+/)
                name = substr(text, 1, RLENGTH)
                mark = substr(text, RLENGTH + 1) ~ /^ [^ ]/ ? "=" : ""
                if (letter != "") print verb, letter mark
                print verb, name mark
        }'
}

{
        "$FOLIOCTL" --help | sed '/^Verbs:/,$d' | options_of_tool every
        while read -r verb; do
                "$FOLIOCTL" "$verb" --help | sed '/^Options of every verb:/,$d' | options_of_tool "$verb"
        done <"$scratch/verbs"
} | sort >"$scratch/options"

# same WHAT FILE-WITH-EXPECTED: the input has the same lines.
same()
{
        sort >"$scratch/given"
        status=0
        [ -s "$2" ] || status=1
        sort "$2" | diff -u --label folioctl --label completion - "$scratch/given" >"$scratch/output" || status=1
        check "$1" $status "$scratch/output"
}

bash_options()
{
        local verb option
        for verb in every $(cat "$scratch/verbs"); do
                # shellcheck disable=SC2046 # words are wanted
                printf "$verb %s\n" $(_folioctl_options "${verb#every}")
        done | grep ' -'
}

zsh_options()
{
        awk '
        function give(text, n, verbs, i) {
                n = split(where, verbs, "|")
                sub(/\+$/, "=", text)
                for (i = 1; i <= n; i++) print verbs[i], text
        }
        /^        local -a every=\($/ { where = "every" }
        /^        \)$/ { where = "" }
        /^        [a-z|]+\)$/ { where = $1; sub(/\)$/, "", where) }
        /^                ;[;|]$/ { where = "" }
        where != "" && match($0, /\{-[a-z]\+?,--[a-z-]+=?\}/) {
                split(substr($0, RSTART + 1, RLENGTH - 2), both, ",")
                give(both[1]); give(both[2]); next
        }
        where != "" && match($0, /(\x27|\))--[a-z-]+=?\[/) { give(substr($0, RSTART + 1, RLENGTH - 2)) }
        ' "$1"
}

fish_options()
{
        awk '/^complete -c folioctl / && / -l / {
                n = 0
                if (match($0, /__folioctl_verb [a-z ]+/)) n = split(substr($0, RSTART + 16, RLENGTH - 16), verbs, " ")
                else verbs[n = 1] = "every"
                sub(/ -d .*/, "")
                mark = / -[rx]( |$)/ ? "=" : ""
                letter = match($0, / -s [a-z]/) ? "-" substr($0, RSTART + 4, 1) : ""
                match($0, / -l [a-z-]+/)
                for (i = 1; i <= n; i++) {
                        if (letter != "") print verbs[i], letter mark
                        print verbs[i], "--" substr($0, RSTART + 4, RLENGTH - 4) mark
                }
        }' "$1"
}

same "bash has every option" "$scratch/options" < <(bash_options)
same "zsh has every option" "$scratch/options" < <(zsh_options "$files/_folioctl")
same "fish has every option" "$scratch/options" < <(fish_options "$files/folioctl.fish")
# One that is missing, and one that takes no value any more, would be found.
for seed in '/--huge=\|-l huge/d' 's/--huge=/--huge/; s/-l huge -x/-l huge/'; do
        sed "$seed" "$files/_folioctl" >"$scratch/zsh"
        sed "$seed" "$files/folioctl.fish" >"$scratch/fish"
        for shell in zsh fish; do
                "${shell}_options" "$scratch/$shell" | sort >"$scratch/given"
                status=0
                diff "$scratch/options" "$scratch/given" | grep -q 'ns --huge=$' || status=1
                [ "$(diff "$scratch/options" "$scratch/given" | grep -c '^[<>]')" -le 2 ] || status=1
                check "what $shell does not have is found: $seed" $status
        done
done
same "bash has every verb" "$scratch/verbs" <<<"${_folioctl_verbs// /$'\n'}"
same "zsh has every verb" "$scratch/verbs" \
        < <(sed -n "/^_folioctl_verbs()/,/^}/s/^ *'\([a-z]*\):.*/\1/p" "$files/_folioctl")
same "fish has every verb" "$scratch/verbs" \
        < <(sed -n 's/^complete .*__folioctl_no_verb -a \([a-z]*\) .*/\1/p' "$files/folioctl.fish")
same "fish has every verb behind help" "$scratch/verbs" \
        < <(sed -n "s/^complete .*'__folioctl_argument 1 help' -a '\(.*\)'/\1/p" "$files/folioctl.fish" | tr ' ' '\n')

# Options whose value fish has to step over. -m is a case of its own there.
sed -n 's/^.* --\?\([a-z-]*\)=$/\1/p' "$scratch/options" | grep -vx 'm\|metadata' | sort -u >"$scratch/valued"
sed -n "s/^.*string match -qr -- '^(--(\(.*\))|-\[\([a-z]*\)\])\\$' .*/\1 \2/p" "$files/folioctl.fish" >"$scratch/line"
read -r names letters <"$scratch/line" || true
same "fish steps over every value" "$scratch/valued" < <(
        tr '|' '\n' <<<"${names:-}"
        fold -w 1 <<<"${letters:-}"
)

# What an argument or a value may be, from the usage or the summary.
alternatives()
{
        "$FOLIOCTL" help "$1" | sed -n '1s/.* \([a-z|]*|[a-z|]*\).*/\1/p' | tr '|' ' '
}

choices=$(alternatives ns)
status=0
[ -n "$choices" ] && grep -q "_folioctl_offer $choices ;;" "$files/folioctl.bash" &&
        grep -q ":($choices)'" "$files/_folioctl" &&
        grep -q "'__folioctl_argument 1 ns' -a '$choices'" "$files/folioctl.fish" || status=1
check "all have what ns does: $choices" $status
choices=$(alternatives bench)
status=0
[ -n "$choices" ] && [ "$choices" = "$_folioctl_suites" ] && grep -q ":suite:($choices)'" "$files/_folioctl" &&
        grep -q "any bench' -a '$choices'" "$files/folioctl.fish" || status=1
check "all have the suites of bench: $choices" $status

while read -r verb option; do
        choices=$(_folioctl_option_words "$option")
        "$FOLIOCTL" "$verb" --help | grep -e "$option WORD" >"$scratch/output"
        status=0
        [ -n "$choices" ] || status=1
        for word in $choices; do
                grep -qwe "$word" "$scratch/output" || status=1
        done
        grep -qe "'$option=.*:($choices)'" "$files/_folioctl" || status=1
        grep -qe "-l ${option#--} .*-a '$choices'" "$files/folioctl.fish" || status=1
        check "all have the words of $verb $option: $choices" $status "$scratch/output"
done < <(while read -r verb; do
        "$FOLIOCTL" "$verb" --help | sed -n "s/^ .*\(--[a-z-]*\) WORD .*/$verb \1/p"
done <"$scratch/verbs")

# --- foliod ---------------------------------------------------------------------------------------------------------
"$FOLIO_DAEMON" --help >"$scratch/help"
sed -n '/^Settings/,$p' "$scratch/help" | awk '
        /^\[/ { gsub(/[][]/, ""); section = $1 == "namespace" ? "namespace" : "option" }
        /^  [a-z]/ && section != "" { print section, $1 }
        /^Example/ { section = "" }' >"$scratch/settings"
{
        sed '/^Settings/,$d' "$scratch/help" | grep '^  --' | grep -oE -e '--[a-z-]+( [A-Z])?' | sed 's/ .*/=/'
        sed -n 's/^option \(.*\)/--\1=/p' "$scratch/settings"
} >"$scratch/options"
same "bash has every option of foliod" "$scratch/options" \
        < <(tr ' ' '\n' <<<"$_foliod_options $_foliod_settings")
same "zsh has every option of foliod" "$scratch/options" \
        < <(sed -nE "s/^        '(\*|\([^)]*\))?(--[a-z-]+=?)\[.*/\2/p" "$files/_foliod")
same "fish has every option of foliod" "$scratch/options" \
        < <(sed -nE 's/^complete -c foliod -l ([a-z-]+)( -[rx])? .*/--\1\2/p' "$files/foliod.fish" | sed 's/ -[rx]$/=/')
sed -n 's/^namespace //p' "$scratch/settings" >"$scratch/keys"
same "bash has every setting of a namespace" "$scratch/keys" < <(tr ' ' '\n' <<<"$_foliod_namespace_settings")
same "zsh has every setting of a namespace" "$scratch/keys" \
        < <(sed -n 's/^ *compadd -S = -- //p' "$files/_foliod" | tr ' ' '\n')
same "fish has every setting of a namespace" "$scratch/keys" \
        < <(sed -n "s/^.*printf '%s=.n' .before{\(.*\)}\$/\1/p" "$files/foliod.fish" | tr ',' '\n')

# Every word that any setting takes, and all that look like one in the help, is tried with each: it is offered where it is
# taken, and nowhere else.
{
        while read -r _ key; do
                _foliod_words "$key" | tr ' ' '\n'
        done <"$scratch/settings"
        grep -E '^  [a-z-]+ WORD' "$scratch/help" | grep -oE '[a-z]+' | sort -u
} | sort -u >"$scratch/pool"
: >"$scratch/taken"
: >"$scratch/offered"
: >"$scratch/zsh-offers"
: >"$scratch/fish-offers"
while read -r section key; do
        # An owner is a name, and every user could be called so.
        [[ $key != owner && $key != group ]] || continue
        while read -r word; do
                if [ "$section" = namespace ]; then
                        set -- --namespace "n:$key=$word"
                else
                        set -- "--$key=$word"
                fi
                ! "$FOLIO_DAEMON" --config /dev/null "$@" --check-config >/dev/null 2>&1 ||
                        echo "$section $key $word" >>"$scratch/taken"
        done <"$scratch/pool"
        for word in $(_foliod_words "$key"); do
                echo "$section $key $word"
        done >>"$scratch/offered"
        if [ "$section" = namespace ]; then
                sed -nE "s/^                $key '?([a-z ]+)'?\$/\1/p" "$files/_foliod" >"$scratch/zsh"
                awk -v key="$key" '$1 == "case" { on = 0; for (i = 2; i <= NF; i++) if ($i == key) on = 1 }
                        on && /key=/ { sub(/.*key=/, ""); gsub(/[{}]/, ""); gsub(/,/, " "); print }' \
                        "$files/foliod.fish" >"$scratch/fish"
        else
                sed -nE "s/^        '--$key=.*:\(([a-z ]+)\)'.*/\1/p" "$files/_foliod" >"$scratch/zsh"
                sed -nE "s/^complete -c foliod -l $key -x -a '([a-z ]+)' .*/\1/p" "$files/foliod.fish" >"$scratch/fish"
        fi
        for shell in zsh fish; do
                # shellcheck disable=SC2013 # words are wanted
                for word in $(cat "$scratch/$shell"); do
                        echo "$section $key $word"
                done >>"$scratch/$shell-offers"
        done
done <"$scratch/settings"
same "bash offers the words that foliod takes" "$scratch/taken" <"$scratch/offered"
# These offer directories there.
grep -v ' tmpfs-directory auto' "$scratch/taken" >"$scratch/expected" || true
same "zsh offers the words that foliod takes" "$scratch/expected" <"$scratch/zsh-offers"
same "fish offers the words that foliod takes" "$scratch/expected" <"$scratch/fish-offers"

# --- they are where shells look -------------------------------------------------------------------------------------
if [ -r "${INSTALL_PLAN:-}" ]; then
        for place in bash-completion/completions/folioctl bash-completion/completions/foliod \
                'zsh/[a-z-]*/_folioctl' 'zsh/[a-z-]*/_foliod' fish/vendor_completions.d/folioctl.fish \
                fish/vendor_completions.d/foliod.fish; do
                status=0
                grep -qE "\"destination\": \"[^\"]*/$place\"" "$INSTALL_PLAN" || status=1
                check "installed as $place" $status
        done
fi

# --- they parse -----------------------------------------------------------------------------------------------------

for shell in bash:folioctl.bash zsh:_folioctl fish:folioctl.fish bash:foliod.bash zsh:_foliod fish:foliod.fish; do
        file=$files/${shell#*:}
        shell=${shell%%:*}
        if command -v "$shell" >/dev/null 2>&1; then
                status=0
                "$shell" -n "$file" >"$scratch/output" 2>&1 || status=$?
                check "$shell parses ${file##*/}" $status "$scratch/output"
        elif [ "${CI:-}" != true ]; then
                # What it says is compared above; a shell for this alone is not asked for.
                skip "$shell parses ${file##*/}" "$shell is not installed"
        fi
done
if command -v shellcheck >/dev/null 2>&1; then
        status=0
        shellcheck -x -P "$here" -S warning -s bash "$files/folioctl.bash" "$files/foliod.bash" "${BASH_SOURCE[0]}" \
                >"$scratch/output" 2>&1 || status=$?
        check "shellcheck" $status "$scratch/output"
fi

# --- and they work --------------------------------------------------------------------------------------------------

status=0
env -u FOLIO_SOCKET "$FOLIOCTL" run --budget 256M -- "${BASH_SOURCE[0]}" store \
        3>"$scratch/counts" >"$scratch/store" || status=$?
# Its numbers go on where ours end.
awk -v n="$n_tests" '/^(not )?ok / { sub(/ok [0-9]+/, "ok " ++n) } { print }' "$scratch/store"
read -r n_store n_store_failed <"$scratch/counts" || { n_store=0 n_store_failed=0 status=1; }
n_tests=$((n_tests + n_store))
n_failed=$((n_failed + n_store_failed))
check "the store ran" $status
finish
