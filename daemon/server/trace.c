/* SPDX-License-Identifier: Apache-2.0 */
/* See trace.h. */
#include "daemon/server/trace.h"

#include "daemon/service/log.h"

static const char *const verb_names[_VERB_MAX] = {
        [VERB_HELLO] = "HELLO",
        [VERB_NAMESPACE_OPEN] = "NAMESPACE_OPEN",
        [VERB_PUT] = "PUT",
        [VERB_CREATE] = "CREATE",
        [VERB_WRITE] = "WRITE",
        [VERB_SEAL] = "SEAL",
        [VERB_ABORT] = "ABORT",
        [VERB_REGION] = "REGION",
        [VERB_RELEASE] = "RELEASE",
        [VERB_TRUNCATE] = "TRUNCATE",
        [VERB_DELETE] = "DELETE",
        [VERB_HOLDERS] = "HOLDERS",
        [VERB_WATCH] = "WATCH",
        [VERB_NAMESPACE_ADD] = "NAMESPACE_ADD",
        [VERB_NAMESPACE_SET] = "NAMESPACE_SET",
        [VERB_NAMESPACE_REMOVE] = "NAMESPACE_REMOVE",
        [VERB_NAMESPACE_LIST] = "NAMESPACE_LIST",
        [VERB_STATUS] = "STATUS",
        [VERB_PING] = "PING",
        [VERB_RING] = "RING",
        [VERB_LEASE] = "LEASE",
};

const char *trace_verb_name(ProtoVerb verb)
{
        const char *name = (unsigned)verb < _VERB_MAX ? verb_names[verb] : NULL;

        return name ? name : "?";
}

void trace_refusal(const char *comm, const Cred *cred, ProtoVerb verb, Key subject, Status status, const char *detail)
{
        const char *phrase = status_to_text(status);

        log_debug("client %s, pid %d, uid %u: %s%s%.*s refused: %s%s%s", comm, (int)cred->pid, (unsigned)cred->uid,
                  trace_verb_name(verb), subject.n_bytes > 0 ? " " : "", (int)subject.n_bytes,
                  subject.n_bytes > 0 ? subject.bytes : "", phrase, detail ? ": " : "", detail ? detail : "");
}

void trace_namespace(const char *comm, const Cred *cred, ProtoVerb verb, const ProtoNamespace *ns)
{
        const char *what = verb == VERB_NAMESPACE_ADD   ? "added"
                           : verb == VERB_NAMESPACE_SET ? "changed"
                                                        : "removed";

        if (verb == VERB_NAMESPACE_REMOVE)
                log_debug("client %s, pid %d, uid %u: namespace %s %s", comm, (int)cred->pid, (unsigned)cred->uid,
                          ns->name, what);
        else
                log_debug("client %s, pid %d, uid %u: namespace %s %s: owner %u, group %u, mode %04o, quota %llu "
                          "bytes and %llu objects",
                          comm, (int)cred->pid, (unsigned)cred->uid, ns->name, what, ns->owner_uid, ns->owner_gid,
                          ns->mode, (unsigned long long)ns->quota_bytes, (unsigned long long)ns->quota_objects);
}
