# SPDX-License-Identifier: Apache-2.0
#
# Completion of folioctl for fish: verbs, options, their words, and the names that are in the store.
#
# Names are asked of the store with --no-spawn and a short bound, and whatever goes wrong is silent: pressing TAB starts
# no daemon and writes nothing over the prompt. No more than a thousand are listed. Nothing that was typed or that a
# store holds is ever evaluated.
#
# Every verb and option is compared with what the tool says of itself by tests/lint/test-completion.sh, which reads this
# file as text: an option stands in a line of its own, with the verbs it belongs to in the condition.

# The socket that is given, the verb and its arguments before the cursor, one a line; of an option only that its value
# is none of these. A verb that is not there yet is an empty line.
function __folioctl_parse
    set -l socket ''
    set -l found
    set -l previous ''
    set -l is_over ''
    for word in (commandline -opc)[2..-1]
        if test -n "$previous"
            test "$previous" = --socket; and set socket $word
            set previous ''
        else if test -z "$is_over" -a "$word" = --
            set is_over 1
        else if test -z "$is_over"; and string match -qr '^--socket=' -- $word
            set socket (string replace -- --socket= '' $word)
        else if test -z "$is_over"; and string match -qr '^-.' -- $word
            # Those that take a value in the word behind them; -m does where an object is made.
            if string match -qr -- '^(--(socket|timeout|content-type|lifetime|expires-in|capacity|wait|offset|length|sort|since|count|owner|group|mode|quota|quota-objects|objects-max|backing|huge|writers|budget|size|rounds|case)|-[twen])$' $word
                set previous $word
            else if string match -qr -- '^(-m|--metadata)$' $word; and contains -- "$found[1]" put replace
                set previous $word
            end
        else
            # What is behind `--` before the verb are options again.
            set -q found[1]; or set is_over ''
            set -a found $word
        end
    end
    echo $socket
    set -q found[1]; or set found ''
    printf '%s\n' $found
end

# Is the verb one of the arguments?
function __folioctl_verb
    contains -- (__folioctl_parse)[2] $argv
end

function __folioctl_no_verb
    test -z (__folioctl_parse)[2]
end

# __folioctl_argument N VERB...: is it argument N of one of these verbs, from 1? `any`: whichever.
function __folioctl_argument
    set -l parsed (__folioctl_parse)
    contains -- "$parsed[2]" $argv[2..-1]; or return 1
    test "$argv[1]" = any; or test (count $parsed) = (math 1 + $argv[1])
end

function __folioctl_names_namespace
    set -l parsed (__folioctl_parse)
    test (count $parsed) = 3 -a "$parsed[2]" = ns; and contains -- $parsed[3] set rm
end

function __folioctl_call
    set -l program (commandline -opc)[1]
    set -l socket (__folioctl_parse)[1]
    type -fq -- $program; or set program folioctl
    test -n "$socket"; and set socket --socket $socket; or set socket
    command $program --no-spawn --timeout 2s $socket $argv 2>/dev/null </dev/null
end

function __folioctl_namespaces
    __folioctl_call ns ls | tail -n +2 | string replace -r '^.*  ' ''
end

# What a terminal would not show as it is was made visible, and is no longer its name.
function __folioctl_objects
    set -l word (commandline -ct | string unescape 2>/dev/null)
    test -n "$word"; or set word (commandline -ct)
    set -l default ''
    if not string match -q '*:*' -- $word
        set default '^default:'
        __folioctl_namespaces | string replace -r '$' ':'
    end
    __folioctl_call ls -- "$word" | head -n 1000 | string match -rv '(^|[^\\\\])(\\\\\\\\)*\\\\[^\\\\]' |
        string replace -a '\\\\' '\\' | string replace -r -- "$default" '' | string match -v -- '-*'
end

# What foliod says of itself, and the beginnings of that.
function __folioctl_facts
    set -l names (__folioctl_call status | string replace -r ' .*' '')
    printf '%s\n' $names (string replace -r '\..*' '' -- $names) | sort -u
end

function __folioctl_metadata
    set -l word (commandline -ct | string replace -r -- '^(--metadata=|-m)' '')
    string match -q '@*' -- $word; and printf '@%s\n' (__fish_complete_path (string sub -s 2 -- $word))
end

complete -c folioctl -f

complete -c folioctl -l socket -r -F -d 'The socket of foliod'
complete -c folioctl -l no-spawn -d 'Where no foliod answers, start none'
complete -c folioctl -l json -d 'Facts as JSON, with exact numbers'
complete -c folioctl -l timeout -x -a 'forever' -d 'Bound on every wait for foliod to answer'
complete -c folioctl -s h -l help -d 'Say how it is used, and end'
complete -c folioctl -l version -d 'Say which version this is, and end'

complete -c folioctl -n __folioctl_no_verb -a put -d 'Make an object of a file or a stream'
complete -c folioctl -n __folioctl_no_verb -a replace -d 'Put where the name may be taken'
complete -c folioctl -n __folioctl_no_verb -a get -d 'Write an object to a file or to standard output'
complete -c folioctl -n __folioctl_no_verb -a cat -d 'Write objects to standard output'
complete -c folioctl -n __folioctl_no_verb -a ls -d 'List objects'
complete -c folioctl -n __folioctl_no_verb -a stat -d 'What is known of objects'
complete -c folioctl -n __folioctl_no_verb -a holders -d 'Who holds an object'
complete -c folioctl -n __folioctl_no_verb -a rm -d 'Remove objects'
complete -c folioctl -n __folioctl_no_verb -a truncate -d 'Give a mutable object another size'
complete -c folioctl -n __folioctl_no_verb -a wait -d 'Sleep until objects are there and sealed'
complete -c folioctl -n __folioctl_no_verb -a watch -d 'Print what happens'
complete -c folioctl -n __folioctl_no_verb -a ns -d 'List, make, change and remove namespaces'
complete -c folioctl -n __folioctl_no_verb -a status -d 'What foliod knows of itself'
complete -c folioctl -n __folioctl_no_verb -a check -d 'Is the store set up well?'
complete -c folioctl -n __folioctl_no_verb -a run -d 'Run a command with a private store'
complete -c folioctl -n __folioctl_no_verb -a bench -d 'Measure this store beside plain files'
complete -c folioctl -n __folioctl_no_verb -a help -d 'Say how it, or a verb, is used'

complete -c folioctl -n '__folioctl_verb put' -s r -l replace -d 'Where the name is taken, move it to the new object'
complete -c folioctl -n '__folioctl_verb put replace' -s t -l content-type -x -d 'What the bytes are'
complete -c folioctl -n '__folioctl_verb put replace' -s m -l metadata -x -a '(__folioctl_metadata)' -d 'Up to 4 KiB of your own: KEY=VALUE or @FILE'
complete -c folioctl -n '__folioctl_verb put replace' -l lifetime -x -a 'until-deleted with-creator until-time' -d 'When it ends'
complete -c folioctl -n '__folioctl_verb put replace' -s e -l expires-in -x -d 'Lifetime until-time: so long from now'
complete -c folioctl -n '__folioctl_verb put replace' -l mutable -d 'Shared memory that can be written and truncated'
complete -c folioctl -n '__folioctl_verb put replace' -l capacity -x -d 'The largest size a mutable object can be given'
complete -c folioctl -n '__folioctl_verb put replace' -l sparse -d 'Holes of the file stay holes'
complete -c folioctl -n '__folioctl_verb put replace' -l own-region -d 'A region of its own, however small it is'
complete -c folioctl -n '__folioctl_argument 1 put replace' -F
complete -c folioctl -n '__folioctl_argument 2 put replace' -a '(__folioctl_objects)'

complete -c folioctl -n '__folioctl_verb get cat' -s w -l wait -x -a 'forever' -d 'Wait so long for it to be there and sealed'
complete -c folioctl -n '__folioctl_verb get cat' -l offset -x -d 'Begin there'
complete -c folioctl -n '__folioctl_verb get cat' -l length -x -d 'So many bytes'
complete -c folioctl -n '__folioctl_argument 2 get' -F

complete -c folioctl -n '__folioctl_verb ls' -s l -l long -d 'Size, memory, state, protection, owner and time of change too'
complete -c folioctl -n '__folioctl_verb ls' -s a -l all -d 'In every namespace that may be read'
complete -c folioctl -n '__folioctl_verb ls' -l sort -x -a 'name size time' -d 'Largest or newest first'
complete -c folioctl -n '__folioctl_verb ls' -l holders -d 'Only what somebody holds, and who'

complete -c folioctl -n '__folioctl_verb stat' -s m -l metadata -d 'Write the metadata given at creation, and nothing else'
complete -c folioctl -n '__folioctl_verb rm' -s f -l force -d 'A name that is not there is no error'
complete -c folioctl -n '__folioctl_verb rm' -l prefix -d 'Each NAME is a beginning of names'
complete -c folioctl -n '__folioctl_verb wait' -s w -l wait -x -a 'forever' -d 'So long for all of them together'
complete -c folioctl -n '__folioctl_verb watch' -l since -x -d 'What came behind the event of this number'
complete -c folioctl -n '__folioctl_verb watch' -s n -l count -x -d 'End after so many events'
complete -c folioctl -n '__folioctl_verb watch' -s w -l wait -x -a 'forever' -d 'End after so long'

complete -c folioctl -n '__folioctl_argument 1 get ls holders truncate watch' -a '(__folioctl_objects)'
complete -c folioctl -n '__folioctl_argument any cat stat rm wait' -a '(__folioctl_objects)'

complete -c folioctl -n '__folioctl_verb ns' -l owner -x -a '(__fish_complete_users)' -d 'By name or number'
complete -c folioctl -n '__folioctl_verb ns' -l group -x -a '(__fish_complete_groups)' -d 'By name or number'
complete -c folioctl -n '__folioctl_verb ns' -l mode -x -d '4 read, 2 write, 1 administer, for owner, group and others'
complete -c folioctl -n '__folioctl_verb ns' -l quota -x -d 'Bytes it may take'
complete -c folioctl -n '__folioctl_verb ns' -l quota-objects -x -d 'Objects it may have'
complete -c folioctl -n '__folioctl_verb ns' -l objects-max -x -d 'Room in its index'
complete -c folioctl -n '__folioctl_verb ns' -l backing -x -a 'memfd tmpfs' -d 'For large objects'
complete -c folioctl -n '__folioctl_verb ns' -l huge -x -a 'auto always never' -d 'Huge pages'
complete -c folioctl -n '__folioctl_verb ns' -l writers -x -a 'trusted untrusted' -d 'Who places objects'
complete -c folioctl -n '__folioctl_argument 1 ns' -a 'ls add set rm'
complete -c folioctl -n __folioctl_names_namespace -a '(__folioctl_namespaces)'

complete -c folioctl -n '__folioctl_argument 1 status' -a '(__folioctl_facts)'
complete -c folioctl -n '__folioctl_verb run' -l budget -x -d 'How much memory the private store may take'
# The options that take a value stand behind a word that is none, or it would take them for its own.
complete -c folioctl -n '__folioctl_argument any run' -a '(__fish_complete_subcommand --fcs-skip=2 - --budget --socket --timeout)'
complete -c folioctl -n '__folioctl_verb bench' -l size -x -d 'Of what is large'
complete -c folioctl -n '__folioctl_verb bench' -l rounds -x -d 'How often each case is measured'
complete -c folioctl -n '__folioctl_verb bench' -l case -x -d 'Only cases whose name begins so'
complete -c folioctl -n '__folioctl_verb bench' -l backing -x -a 'memfd tmpfs' -d 'For the objects'
complete -c folioctl -n '__folioctl_argument any bench' -a 'read map batch write put create get stat handoff truncate delete beside shapes'
complete -c folioctl -n '__folioctl_argument 1 help' -a 'put replace get cat ls stat holders rm truncate wait watch ns status check run bench help'
