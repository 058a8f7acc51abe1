# SPDX-License-Identifier: Apache-2.0
#
# Completion of foliod for fish: options, settings, and their words. It runs nothing.
#
# Every option and word is compared with what foliod says of itself by tests/lint/test-completion.sh, which reads this
# file as text: an option stands in a line of its own.

# NAME:KEY=VALUE,...: the keys, or the words of the last key, behind what is there.
function __foliod_namespace
    set -l word (commandline -ct | string replace -r -- '^--namespace=' '')
    string match -q '*:*' -- $word; or return
    set -l before (string replace -r '[^:,]*$' '' -- $word)
    set -l key (string replace -r '^.*[:,]' '' -- $word)
    if not string match -q '*=*' -- $key
        printf '%s=\n' $before{owner,group,mode,quota,quota-objects,objects-max,backing,huge,writers}
        return
    end
    set key (string replace -r '=.*' '' -- $key)
    switch $key
        case owner
            printf '%s\n' $before$key=(__fish_complete_users | string replace -r '\t.*' '')
        case group
            printf '%s\n' $before$key=(__fish_complete_groups | string replace -r '\t.*' '')
        case quota quota-objects
            printf '%s\n' $before$key=none
        case backing
            printf '%s\n' $before$key={memfd,tmpfs}
        case huge
            printf '%s\n' $before$key={auto,always,never}
        case writers
            printf '%s\n' $before$key={trusted,untrusted}
    end
end

complete -c foliod -f

complete -c foliod -l user -d 'The daemon of this user'
complete -c foliod -l system -d 'The daemon of the machine'
complete -c foliod -l config -r -F -d 'The file of settings'
complete -c foliod -l check-config -d 'Print the settings in force, or what is wrong with them, and end'
complete -c foliod -l ready-fd -x -d 'Write a byte there when clients can connect'
complete -c foliod -l namespace -x -a '(__foliod_namespace)' -d 'A namespace and its settings'
complete -c foliod -l help -d 'Say how it is used, and end'
complete -c foliod -l version -d 'Say which version this is, and end'

complete -c foliod -l socket -r -F -d 'Where clients connect'
complete -c foliod -l socket-mode -x -a 'auto' -d 'Its mode'
complete -c foliod -l workers -x -a 'auto' -d 'Threads for memory work'
complete -c foliod -l idle-exit -x -a 'never' -d 'End when empty and unused for so long'
complete -c foliod -l clients-max -x -d 'Connections'
complete -c foliod -l clients-per-uid-max -x -a 'auto' -d 'Connections of one uid'
complete -c foliod -l log-level -x -a 'error warning notice info debug' -d 'How much is said'
complete -c foliod -l log-target -x -a 'auto stderr journal' -d 'Where it is said'
complete -c foliod -l keeper -x -a 'auto systemd process none' -d 'Who keeps the memory of objects for the next foliod'
complete -c foliod -l keeper-slots -x -d 'Descriptors that the keeper may store'
complete -c foliod -l budget -x -a 'auto' -d 'What the store may take'
complete -c foliod -l packed-max -x -d 'Larger objects have a region of their own'
complete -c foliod -l pool -x -a 'auto' -d 'Blank memory kept ready'
complete -c foliod -l staging -x -d 'Memory of each client to bring small objects in'
complete -c foliod -l session-max -x -a 'auto' -d 'Staging and pin tables of one uid'
complete -c foliod -l objects-max -x -d 'Objects of a namespace that does not say'
complete -c foliod -l events -x -d 'Events remembered for watchers'
complete -c foliod -l namespaces-max -x -d 'Namespaces'
complete -c foliod -l huge -x -a 'auto always never' -d 'Huge pages'
complete -c foliod -l packed-protection -x -a 'auto seals mode' -d 'What keeps clients from writing to small objects'
complete -c foliod -l tmpfs-directory -x -a 'auto (__fish_complete_directories)' -d 'A tmpfs mounted for foliod alone'
