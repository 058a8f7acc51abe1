# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completion of folioctl for bash: verbs, options, their words, and the names that are in the store.
#
# Names are asked of the store with --no-spawn and a short bound, and whatever goes wrong is silent: pressing TAB starts
# no daemon and writes nothing between prompt and command. No more than a thousand are listed. Nothing that was typed or
# that a store holds is ever evaluated. It needs nothing of the package bash-completion, but has
# it complete what `run` runs.
# Names may have spaces and colons; readline takes a colon for the end of a word, so words are put together here again,
# and what is offered is what belongs behind the last colon.
#
# Every verb and option is compared with what the tool says of itself by tests/lint/test-completion.sh.

_folioctl_verbs='put replace get cat ls stat holders rm truncate wait watch ns status check run bench help'
_folioctl_suites='read map batch write put create get stat handoff truncate delete beside shapes'

# The options of a verb, or of every verb where it is empty; `=`: takes a value.
_folioctl_options()
{
        case $1 in
        '') echo '--socket= --no-spawn --json --timeout= -h --help --version' ;;
        put) echo "-r --replace $(_folioctl_options replace)" ;;
        replace)
                echo '-t= --content-type= -m= --metadata= --lifetime= -e= --expires-in=' \
                        '--mutable --capacity= --sparse --own-region'
                ;;
        get | cat) echo '-w= --wait= --offset= --length=' ;;
        ls) echo '-l --long -a --all --sort= --holders' ;;
        stat) echo '-m --metadata' ;;
        rm) echo '-f --force --prefix' ;;
        wait) echo '-w= --wait=' ;;
        watch) echo '--since= -n= --count= -w= --wait=' ;;
        ns) echo '--owner= --group= --mode= --quota= --quota-objects= --objects-max= --backing= --huge= --writers=' ;;
        run) echo '--budget=' ;;
        bench) echo '--size= --rounds= --case= --backing=' ;;
        esac
}

# The words that an option takes; nothing for sizes, times and what else only the user knows.
_folioctl_option_words()
{
        case $1 in
        --lifetime) echo 'until-deleted with-creator until-time' ;;
        --sort) echo 'name size time' ;;
        --backing) echo 'memfd tmpfs' ;;
        --huge) echo 'auto always never' ;;
        --writers) echo 'trusted untrusted' ;;
        -w | --wait | --timeout) echo 'forever' ;;
        esac
}

# Sets words to the words of the line up to the cursor, as a shell would cut them and as they were typed, and starts to
# the number that the first piece of each has for readline.
_folioctl_split()
{
        local line=${COMP_LINE:0:COMP_POINT} part gap i

        words=() starts=()
        for ((i = 0; i <= COMP_CWORD; i++)); do
                gap=${line%%[![:blank:]]*}
                line=${line#"$gap"}
                part=${COMP_WORDS[i]}
                ((i < COMP_CWORD)) || part=$line
                line=${line#"$part"}
                if [[ $gap || $i == 0 ]]; then
                        words+=("$part")
                        starts+=("$i")
                else
                        words[${#words[@]} - 1]+=$part
                fi
        done
}

# Sets word to what $1 means without its quoting, quote to the quote that is still open at its end, and head to the part
# of word that readline will leave as it is.
_folioctl_unquote()
{
        local raw=$1 before='' c i

        word='' quote='' head=''
        for ((i = 0; i < ${#raw}; i++)); do
                c=${raw:i:1}
                if [[ $quote && $c == "$quote" ]]; then
                        quote='' head=$before
                elif [[ $quote == "'" || ($quote && $c != \\) ]]; then
                        word+=$c
                elif [[ $quote && ${raw:i+1:1} != [\"\$\`\\] ]]; then
                        word+=$c
                elif [[ $c == \\ ]]; then
                        i=$((i + 1))
                        word+=${raw:i:1}
                elif [[ $c == [\"\'] ]]; then
                        quote=$c before=$head head=$word
                else
                        # An @ begins what is replaced, other breaks stand before it.
                        [[ $c != @ || $COMP_WORDBREAKS != *@* ]] || head=$word
                        word+=$c
                        [[ $c == @ || $COMP_WORDBREAKS != *"$c"* ]] || head=$word
                fi
        done
}

# Offers those of the arguments that begin with word, quoted as the word is that they take the place of.
_folioctl_offer()
{
        local candidate tail

        for candidate; do
                [[ $candidate == "$word"* ]] || continue
                tail=${candidate#"$head"}
                case $quote in
                "'") tail=${tail//\'/\'\\\'\'} ;;
                '"')
                        tail=${tail//\\/\\\\}
                        tail=${tail//\"/\\\"}
                        tail=${tail//\$/\\\$}
                        tail=${tail//\`/\\\`}
                        ;;
                *) [[ ! $tail ]] || printf -v tail %q "$tail" ;;
                esac
                COMPREPLY+=("$tail")
        done
        # A namespace or a folder is where a name goes on.
        [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[:/] ]] || compopt -o nospace 2>/dev/null
}

_folioctl_files()
{
        compopt -o default 2>/dev/null
}

_folioctl_call()
{
        "$program" --no-spawn --timeout 2s ${socket:+--socket "$socket"} "$@" 2>/dev/null </dev/null
}

# Adds the namespaces to names, with $1 behind each.
_folioctl_find_namespaces()
{
        local line is_heading=1

        while IFS= read -r line; do
                [[ $is_heading ]] || names+=("${line##*  }$1")
                is_heading=''
        done < <(_folioctl_call ns ls)
}

# Adds the names to names that begin with word.
_folioctl_find_objects()
{
        local name n=0

        while IFS= read -r name; do
                # More than are listed: word itself is among them, lest what these have in common be taken for typed.
                if ((++n > 1000)); then
                        names+=("$word")
                        break
                fi
                [[ $word == *:* ]] || name=${name#default:}
                # What a terminal would not show as it is was made visible, and is no longer its name.
                [[ ${name//\\\\/} != *\\* && $name != -* ]] || continue
                names+=("${name//\\\\/\\}")
        done < <(_folioctl_call ls -- "$word")
}

_folioctl_objects()
{
        local names=()

        _folioctl_find_objects
        [[ $word == *:* ]] || _folioctl_find_namespaces :
        _folioctl_offer "${names[@]}"
}

_folioctl_namespaces()
{
        local names=()

        _folioctl_find_namespaces ''
        _folioctl_offer "${names[@]}"
}

# What foliod says of itself, and the beginnings of that.
_folioctl_facts()
{
        local name rest names=()

        while read -r name rest; do
                [[ " ${names[*]} " == *" ${name%%.*} "* ]] || names+=("${name%%.*}")
                names+=("$name")
        done < <(_folioctl_call status)
        _folioctl_offer "${names[@]}"
}

# The value of option $1.
_folioctl_option_value()
{
        local -a list

        case $1 in
        --socket) _folioctl_files ;;
        --owner | --group)
                [[ $1 == --owner ]] && list=(-A user) || list=(-A group)
                mapfile -t list < <(compgen "${list[@]}")
                _folioctl_offer "${list[@]}"
                ;;
        -m | --metadata)
                [[ $word == *@* ]] || return 0
                mapfile -t list < <(compgen -f -- "${word#*@}")
                local i
                for i in "${!list[@]}"; do
                        [[ ! -d ${list[i]} ]] || list[i]+=/
                done
                _folioctl_offer "${list[@]/#/"${word%%@*}@"}"
                ;;
        *)
                read -ra list < <(_folioctl_option_words "$1")
                _folioctl_offer "${list[@]}"
                ;;
        esac
}

# Argument number $2, from 0, of verb $1; $3 is the first.
_folioctl_argument()
{
        local -a list

        case $1:$2 in
        put:0 | replace:0 | get:1) _folioctl_files ;;
        put:1 | replace:1 | get:0 | ls:0 | watch:0 | holders:0 | truncate:0) _folioctl_objects ;;
        cat:* | stat:* | rm:* | wait:*) _folioctl_objects ;;
        status:0) _folioctl_facts ;;
        help:0)
                read -ra list <<<"$_folioctl_verbs"
                _folioctl_offer "${list[@]}"
                ;;
        bench:*)
                read -ra list <<<"$_folioctl_suites"
                _folioctl_offer "${list[@]}"
                ;;
        ns:0) _folioctl_offer ls add set rm ;;
        ns:1) [[ $3 != set && $3 != rm ]] || _folioctl_namespaces ;;
        esac
}

# The command of `run`, whose first word is number $1 of words.
_folioctl_command()
{
        local list

        if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset "${starts[$1]}"
        elif declare -F _command_offset >/dev/null; then
                _command_offset "${starts[$1]}"
        elif ((${#words[@]} - 1 > $1)); then
                _folioctl_files
        else
                mapfile -t list < <(compgen -c -- "$word" | sort -u)
                _folioctl_offer "${list[@]}"
                ((${#COMPREPLY[@]})) || _folioctl_files
        fi
}

_folioctl()
{
        local -a words starts
        local word quote head program=$1 socket='' verb='' first='' value_of=''
        local options n_arguments=0 is_over='' lead='' i

        COMPREPLY=()
        _folioctl_split
        type -P -- "$program" >/dev/null || program=folioctl
        options=" $(_folioctl_options '') "
        for ((i = 1; i < ${#words[@]} - 1; i++)); do
                _folioctl_unquote "${words[i]}"
                if [[ $value_of ]]; then
                        [[ $value_of != --socket ]] || socket=$word
                        value_of=''
                elif [[ ! $is_over && $word == -- ]]; then
                        is_over=1
                elif [[ ! $is_over && $word == --socket=* ]]; then
                        socket=${word#*=}
                elif [[ ! $is_over && $word == -?* ]]; then
                        [[ $options != *" $word= "* ]] || value_of=$word
                elif [[ ! $verb ]]; then
                        verb=$word is_over=''
                        options=" $(_folioctl_options "$verb") $(_folioctl_options '') "
                elif [[ $verb == run ]]; then
                        break
                else
                        ((n_arguments++)) || first=$word
                fi
        done
        _folioctl_unquote "${words[i]}"
        if ((i < ${#words[@]} - 1)); then
                _folioctl_unquote "${words[${#words[@]} - 1]}"
                _folioctl_command "$i"
        elif [[ ${words[i]} =~ ^[0-9]*[\<\>] || ${words[i - 1]} =~ ^[0-9]*[\<\>]+[\&\|]?$ ]]; then
                _folioctl_files
        elif [[ $value_of ]]; then
                _folioctl_option_value "$value_of"
        elif [[ ! $is_over && $word == --*=* ]]; then
                value_of=${word%%=*}
                if [[ $head == "$value_of="* ]]; then
                        head=${head#"$value_of="}
                else
                        head='' lead=$value_of=
                fi
                word=${word#*=}
                [[ $options != *" $value_of= "* ]] || _folioctl_option_value "$value_of"
                [[ ! $lead ]] || COMPREPLY=("${COMPREPLY[@]/#/"$lead"}")
        elif [[ ! $is_over && $word == -* ]]; then
                read -ra words <<<"${options//= / }"
                _folioctl_offer "${words[@]}"
        elif [[ ! $verb ]]; then
                read -ra words <<<"$_folioctl_verbs"
                _folioctl_offer "${words[@]}"
        elif [[ $verb == run ]]; then
                _folioctl_command "$i"
        else
                _folioctl_argument "$verb" "$n_arguments" "$first"
        fi
}

complete -F _folioctl folioctl
