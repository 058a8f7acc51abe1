/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of requests at log level debug: those that were refused, with the sentence that the client got, and
 * changes of namespaces. Below that level it costs a comparison; only that there is no room is said always, once a minute.
 * It knows nothing of connections.
 */
#ifndef DAEMON_SERVER_TRACE_H
#define DAEMON_SERVER_TRACE_H

#include "daemon/store/cred.h"
#include "proto/codec.h"
#include "proto/status.h"

/* @subject: the key, or the namespace; can be empty. @detail can be NULL. */
void trace_refusal(const char *comm, const Cred *cred, ProtoVerb verb, Key subject, Status status, const char *detail);

/* @ns was added, changed or removed. */
void trace_namespace(const char *comm, const Cred *cred, ProtoVerb verb, const ProtoNamespace *ns);

/* "PUT"; "?" where there is no such verb. */
const char *trace_verb_name(ProtoVerb verb);

#endif
