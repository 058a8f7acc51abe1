/* SPDX-License-Identifier: Apache-2.0 */
/* See trace.h. */
#include "daemon/server/trace.h"

#include <time.h>

#include "base/macro.h"
#include "daemon/service/log.h"

#define FULL_QUIET_S 60

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

/* Who meets a full store tries again, and others do as well: one line a minute says it. */
static void log_full(const char *comm, const Cred *cred, const char *detail)
{
        static LogLimit limit;
        const LogField fields[] = {
                LOG_FIELD_TEXT("FOLIO_CLIENT", comm),
                LOG_FIELD_NUMBER("FOLIO_CLIENT_PID", (uint64_t)cred->pid),
                LOG_FIELD_NUMBER("FOLIO_CLIENT_UID", cred->uid),
                LOG_FIELD_TEXT("FOLIO_REASON", detail ? detail : ""),
        };
        struct timespec now = { 0 };
        uint64_t n_dropped;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for a clock there is */
        if (!log_limit_pass(&limit, 1, (uint64_t)now.tv_sec / FULL_QUIET_S * UINT64_C(1000000000), &n_dropped))
                return;
        log_event(LOG_EVENT_STORE_FULL, LOG_LEVEL_WARNING, fields, ARRAY_SIZE(fields),
                  "no room: client %s, pid %d, uid %u, was refused%s%s", comm, (int)cred->pid,
                  (unsigned)cred->uid, detail ? ": " : "", detail ? detail : "");
}

void trace_refusal(const char *comm, const Cred *cred, ProtoVerb verb, Key subject, Status status, const char *detail)
{
        const char *phrase = status_to_text(status);

        if (status == STATUS_FULL)
                log_full(comm, cred, detail);
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
