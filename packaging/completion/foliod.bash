# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completion of foliod for bash: options, settings, and their words. It needs nothing of the package bash-completion, and
# runs nothing.
# Values may have `=` and `:` in them, which readline takes for the end of a word: the word is put together here again,
# and what is offered is what belongs behind the last of them.
#
# Every option and word is compared with what foliod says of itself by tests/lint/test-completion.sh.

# `=`: takes a value.
_foliod_options='--user --system --config= --check-config --ready-fd= --namespace= --help --version'
# The settings of [daemon] and [memory], which are options too, and those of a namespace.
_foliod_settings='--socket= --socket-mode= --workers= --idle-exit= --clients-max= --clients-per-uid-max= --log-level= --log-target= --keeper= --keeper-slots= --budget= --packed-max= --pool= --staging= --session-max= --objects-max= --events= --namespaces-max= --huge= --packed-protection= --tmpfs-directory='
_foliod_namespace_settings='owner group mode quota quota-objects objects-max backing huge writers'

# The words that a setting takes; nothing for sizes, times and what else only the user knows.
_foliod_words()
{
        case $1 in
        socket-mode | workers | clients-per-uid-max | budget | pool | session-max | tmpfs-directory) echo auto ;;
        idle-exit) echo never ;;
        log-level) echo 'error warning notice info debug' ;;
        log-target) echo 'auto stderr journal' ;;
        keeper) echo 'auto systemd process none' ;;
        huge) echo 'auto always never' ;;
        packed-protection) echo 'auto seals mode' ;;
        quota | quota-objects) echo none ;;
        backing) echo 'memfd tmpfs' ;;
        writers) echo 'trusted untrusted' ;;
        esac
}

# Offers those of the arguments that begin with word, without the part of it that readline leaves as it is.
_foliod_offer()
{
        local candidate head=$word

        while [[ $head && $COMP_WORDBREAKS != *"${head: -1}"* ]]; do
                head=${head%?}
        done
        for candidate; do
                [[ $candidate != "$word"* ]] || COMPREPLY+=("${candidate#"$head"}")
        done
        [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

# The value of option $1, behind $2, which is part of word.
_foliod_value()
{
        local key=${1#--} before=$2 value=${word#"$2"} list

        case $key in
        config | socket | tmpfs-directory) compopt -o default 2>/dev/null ;;
        namespace)
                [[ $value == *:* ]] || return 0
                before+=${value%"${value##*[:,]}"}
                value=${value##*[:,]}
                if [[ $value != *=* ]]; then
                        read -ra list <<<"${_foliod_namespace_settings// /= }="
                        _foliod_offer "${list[@]/#/"$before"}"
                        compopt -o nospace 2>/dev/null
                        return 0
                fi
                key=${value%%=*}
                before+=$key=
                case $key in
                owner) mapfile -t list < <(compgen -A user) ;;
                group) mapfile -t list < <(compgen -A group) ;;
                esac
                ;;
        esac
        [[ ${list+is} ]] || read -ra list < <(_foliod_words "$key")
        _foliod_offer "${list[@]/#/"$before"}"
}

_foliod()
{
        local line=${COMP_LINE:0:COMP_POINT} word previous options list

        COMPREPLY=()
        word=${line##*[[:blank:]]}
        previous=${line%"$word"}
        previous=${previous%"${previous##*[![:blank:]]}"}
        previous=${previous##*[[:blank:]]}
        options=" $_foliod_options $_foliod_settings "
        if [[ $previous == --* && $options == *" $previous= "* ]]; then
                _foliod_value "$previous" ''
        elif [[ $word == --*=* ]]; then
                [[ $options != *" ${word%%=*}= "* ]] || _foliod_value "${word%%=*}" "${word%%=*}="
        else
                read -ra list <<<"${options//= / }"
                _foliod_offer "${list[@]}"
        fi
}

complete -F _foliod foliod
