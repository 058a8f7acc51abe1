/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghosts: the sessions of an earlier foliod, until their clients come back for them or are gone for good. What a ghost
 * holds is held, what has been published in its ring is carried out. It ends, as a session does when its connection
 * is hung up, when its client's process has ended, or says that it does not come back (proto/staging.h); where nobody
 * knows that process, after a while.
 *
 * Who a client is shows by a token of 63 random bits and by its uid; a process number says nothing.
 */
#ifndef DAEMON_SERVER_GHOSTS_H
#define DAEMON_SERVER_GHOSTS_H

#include <stdint.h>

#include "daemon/server/ring.h"
#include "daemon/store/store.h"

typedef struct Ghosts Ghosts;

#define GHOSTS_WAIT_MS 30000u        /* for a client whose process nobody knows */

typedef struct GhostsConfig {
        RingHost host;               /* base and poller NULL: rings are not carried out, and no client can come back */
        unsigned wait_ms;            /* 0: GHOSTS_WAIT_MS */
} GhostsConfig;

/* Of all that the store has restored. 0 or a negative errno, which takes nothing from anybody. */
int ghosts_new(const GhostsConfig *config, Ghosts **ret);

/* We end: what is still a ghost stays kept (session_leave()). */
void ghosts_free(Ghosts *ghosts);

/*
 * The session with that token, if it is a ghost of that uid, and all of it is there: it is the connection's now, as
 * one that session_new() made. *@ret_ring: its ring, to be attached; NULL: it has none. NULL: there is no such session.
 */
Session *ghosts_resume(Ghosts *ghosts, uint64_t token, const SessionConfig *config, DaemonRing **ret_ring);

typedef struct GhostsFacts {
        uint64_t n_ghosts;           /* now */
        uint64_t n_resumed;
        uint64_t n_ended;            /* their clients did not come back */
} GhostsFacts;

void ghosts_get_facts(const Ghosts *ghosts, GhostsFacts *ret);

#endif
