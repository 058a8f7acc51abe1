#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Completion where people meet it: bash, zsh and fish themselves, with a running store, and what they make of a line when
# TAB is pressed. The files are laid out as they are installed, so that each shell finds and loads them by itself.
# FOLIOCTL and FOLIO_DAEMON are the programs. With the word `store` it is the part that runs within that store. TAP.
#
# What the files know is compared with the programs by tests/lint/test-completion.sh.
set -u
: "${FOLIOCTL:?}" "${FOLIO_DAEMON:?}"
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=../lint/tap.sh
. "$here/../lint/tap.sh"
export FOLIOCTL FOLIO_DAEMON

if [ "${1:-}" != store ]; then
        exec env -u FOLIO_SOCKET "$FOLIOCTL" run --budget 256M -- "${BASH_SOURCE[0]}" store
fi

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
share=$scratch/share
mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d" \
        "$scratch/bin" "$scratch/home" "$scratch/empty"
for program in folioctl foliod; do
        ln -s "$root/packaging/completion/$program.bash" "$share/bash-completion/completions/$program"
        ln -s "$root/packaging/completion/_$program" "$share/zsh/site-functions/_$program"
        ln -s "$root/packaging/completion/$program.fish" "$share/fish/vendor_completions.d/$program.fish"
done
ln -s "$FOLIOCTL" "$scratch/bin/folioctl"
ln -s "$FOLIO_DAEMON" "$scratch/bin/foliod"
export PATH=$scratch/bin:$PATH HOME=$scratch/home XDG_DATA_DIRS=$share:/usr/share LC_ALL=C.UTF-8 TERM=xterm
export XDG_CONFIG_HOME=$scratch/home/.config XDG_DATA_HOME=$scratch/home/.local
cd "$scratch/empty" || exit 1

folioctl ns add model
folioctl ns add maps
echo bytes >"$scratch/file"
for name in 'model:weights of 2024' model:bias plain; do
        folioctl put "$scratch/file" "$name"
done

# --- what is asked -----------------------------------------------------------------------------------------------------
# What is typed, and how it goes on when TAB is pressed, or, where a star stands, with all that can be there. Each shell quotes
# in its own way, and knows whether a blank is to follow; what they do alike is here. A bar ends what is wanted.
ask_all()
{
        cat <<'ASKED'
folioctl trun|folioctl truncate |
folioctl --no-s|folioctl --no-spawn |
folioctl put --own|folioctl put --own-region |
folioctl ns set mo|folioctl ns set model |
folioctl ls pl|folioctl ls plain |
folioctl stat model:b|folioctl stat model:bias |
folioctl cat model:w|folioctl cat model:weights\ of\ 2024 |
folioctl ns add x --huge=al|folioctl ns add x --huge=always |
folioctl ns add x --writers un|folioctl ns add x --writers untrusted |
folioctl status memory.budget_b|folioctl status memory.budget_bytes |
folioctl run --budget 1G folioctl trun|folioctl run --budget 1G folioctl truncate |
folioctl run -- foliod --check|folioctl run -- foliod --check-config |
foliod --log-level deb|foliod --log-level debug |
foliod --packed-protection=se|foliod --packed-protection=seals |
ASKED
}

# asks SHELL COMMAND...: TAB, or where there is a star the key for all, and the key for telling; then compares.
asks()
{
        local shell=$1 typed wanted got line status=0 tell='\x18\x10' all='\x18\x01'
        shift
        while IFS='|' read -r typed wanted _; do
                if [[ $typed == *'*' ]]; then
                        typed=${typed%'*'}$all
                else
                        typed+='\t'
                fi
                printf '%s\n' "$typed$tell"
        done <"$scratch/asked" >"$scratch/keys"
        "$here/press-keys" "$scratch/dump" "$@" <"$scratch/keys" >"$scratch/got" 2>"$scratch/output" || status=$?
        check "$shell answers" $status "$scratch/output"
        line=0
        while IFS='|' read -r typed wanted _; do
                line=$((line + 1))
                got=$(sed -n "${line}p" "$scratch/got"; echo .)
                got=${got%??}
                status=0
                [ "$got" = "$wanted" ] || status=1
                echo "'$got' instead of '$wanted'" >"$scratch/output"
                check "$shell: $typed" $status "$scratch/output"
        done <"$scratch/asked"
}

# --- bash --------------------------------------------------------------------------------------------------------------
loader=$(pkg-config --variable=datadir bash-completion 2>/dev/null)/bash-completion/bash_completion
if [ -r "$loader" ]; then
        cat >"$scratch/bashrc" <<END
. "$loader"
tell()
{
        printf '%s\n' "\$READLINE_LINE" >"\$DUMP.new" && mv "\$DUMP.new" "\$DUMP"
        READLINE_LINE='' READLINE_POINT=0
}
bind -x '"\C-x\C-p": tell'
bind '"\C-x\C-a": insert-completions'
bind 'set bell-style none'
PROMPT_COMMAND='[ "\$told" ] || { told=1; tell; }'
END
        {
                ask_all
                cat <<'ASKED'
folioctl ls mod|folioctl ls model:|
folioctl ns *|folioctl ns add ls rm set |
folioctl ls model:*|folioctl ls model:bias weights\ of\ 2024 |
foliod --budg|foliod --budget |
foliod --namespace m:wri|foliod --namespace m:writers=|
foliod --namespace m:writers=unt|foliod --namespace m:writers=untrusted |
foliod --keeper *|foliod --keeper auto none process systemd |
ASKED
        } >"$scratch/asked"
        asks bash bash --noprofile --rcfile "$scratch/bashrc" -i
else
        skip "bash" "bash-completion is not installed"
fi

# --- zsh ---------------------------------------------------------------------------------------------------------------
if command -v zsh >/dev/null 2>&1; then
        mkdir "$scratch/zsh"
        cat >"$scratch/zsh/.zshrc" <<END
fpath=("$share/zsh/site-functions" \$fpath)
autoload -Uz compinit
compinit -u -D
tell()
{
        print -r -- "\$BUFFER" >"\$DUMP.new" && mv "\$DUMP.new" "\$DUMP"
        BUFFER=''
}
zle -N tell
bindkey '^X^P' tell
zle -C all-matches complete-word _generic
bindkey '^X^A' all-matches
zstyle ':completion:all-matches:*' completer _all_matches _complete
zstyle ':completion:all-matches:*' insert yes
setopt no_beep
precmd()
{
        (( told )) || { told=1; print ready >"\$DUMP.new" && mv "\$DUMP.new" "\$DUMP" }
}
END
        {
                ask_all
                cat <<'ASKED'
folioctl ls mod|folioctl ls model:|
folioctl ns *|folioctl ns add ls rm set |
folioctl ls model:*|folioctl ls model:bias model:weights\ of\ 2024 |
foliod --budg|foliod --budget=|
foliod --namespace m:wri|foliod --namespace m:writers=|
foliod --namespace m:writers=unt|foliod --namespace m:writers=untrusted |
foliod --keeper *|foliod --keeper auto none process systemd |
ASKED
        } >"$scratch/asked"
        ZDOTDIR=$scratch/zsh asks zsh zsh -d -i
else
        skip "zsh" "zsh is not installed"
fi

# --- fish --------------------------------------------------------------------------------------------------------------
# It says itself what TAB would offer: candidates, and behind a tab what they are.
if command -v fish >/dev/null 2>&1; then
        while IFS='|' read -r typed wanted _; do
                fish -c 'complete -C $argv[1]' "$typed" 2>"$scratch/output" | cut -f 1 | sort | paste -sd '|' >"$scratch/got"
                got=$(cat "$scratch/got")
                status=0
                [ "$got" = "$(tr ' ' '|' <<<"$wanted" | tr + ' ')" ] && [ ! -s "$scratch/output" ] || status=1
                echo "'$got' instead of '$wanted'" >>"$scratch/output"
                check "fish: $typed" $status "$scratch/output"
        done <<'ASKED'
folioctl trun|truncate|
folioctl --no-s|--no-spawn|
folioctl put --own|--own-region|
folioctl ns |add ls rm set|
folioctl ns set m|maps model|
folioctl ls pl|plain|
folioctl ls mod|model:|
folioctl ls model:|model:bias model:weights+of+2024|
folioctl stat model:b|model:bias|
folioctl ns add x --huge=al|--huge=always|
folioctl ns add x --writers |trusted untrusted|
folioctl status memory.budget_b|memory.budget_bytes|
folioctl run -- folioctl trun|truncate|
folioctl run --budget 1G foliod --check|--check-config|
foliod --budg|--budget|
foliod --log-level |debug error info notice warning|
foliod --packed-protection=se|--packed-protection=seals|
foliod --namespace m:wri|m:writers=|
foliod --namespace m:writers=|m:writers=trusted m:writers=untrusted|
foliod --keeper |auto none process systemd|
ASKED
else
        skip "fish" "fish is not installed"
fi

# --- where nobody answers ---------------------------------------------------------------------------------------------
# The same shells in a world without a foliod: nothing is offered, nothing is said, and none is started, though the tool by
# itself would start this one.
printf '#!/bin/sh\ntouch "%s"\n' "$scratch/started" >"$scratch/daemon"
chmod +x "$scratch/daemon"
mkdir -m 0700 "$scratch/runtime"
unset FOLIO_SOCKET
export FOLIO_DAEMON=$scratch/daemon XDG_RUNTIME_DIR=$scratch/runtime
cat >"$scratch/asked" <<'ASKED'
folioctl ls mod|folioctl ls mod|
folioctl ns set mo|folioctl ns set mo|
folioctl status memory.budget_b|folioctl status memory.budget_b|
folioctl trun|folioctl truncate |
ASKED
[ ! -e "$scratch/bashrc" ] || asks "bash, no foliod" bash --noprofile --rcfile "$scratch/bashrc" -i
[ ! -e "$scratch/zsh" ] || ZDOTDIR=$scratch/zsh asks "zsh, no foliod" zsh -d -i
if command -v fish >/dev/null 2>&1; then
        status=0
        for typed in 'folioctl ls mod' 'folioctl ns set mo' 'folioctl status memory.budget_b'; do
                fish -c 'complete -C $argv[1]' "$typed"
        done >"$scratch/output" 2>&1
        [ ! -s "$scratch/output" ] || status=1
        check "fish, no foliod" $status "$scratch/output"
fi
status=0
[ ! -e "$scratch/started" ] || status=1
check "none is started" $status
finish
