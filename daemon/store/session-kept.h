/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session outlives the process: each descriptor that its client shares with us is kept (daemon/service/keeper.h),
 * with a record that says whose it is. The next foliod makes a ghost of what it finds of each session, whole or not: a
 * ghost that lacks its staging memory, or a part of its ring, protects what its client holds, but that client cannot
 * have it back.
 *
 * Keeping is best effort: what cannot be kept is counted (Store.n_sessions_unkept), and the client begins anew after a
 * restart. Each part is dropped with what it is of.
 *
 * Restoring, in this order:
 *
 *      store_take_session_record()     for each record of a session, in any order
 *      store_make_ghosts()             once
 *      store_restore_tables()          for each namespace, when its id and its objects_max are known, before any pin counts
 *      store_find_session()            for the objects that have a session, and leases; then session_restore_*()
 *      store_finish_ghosts()           once, when all namespaces are there
 */
#ifndef DAEMON_STORE_SESSION_KEPT_H
#define DAEMON_STORE_SESSION_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/service/keeper.h"
#include "daemon/store/session.h"

struct Store;
struct Space;

/* --- keeping ------------------------------------------------------------------------------------------------------ */

/* A new session, by its staging memory. The rest of the public face is in store.h. */
void session_keep(Session *session);

/* The pin table; and later the timerfd of its watch. */
void session_keep_pins(SessionTable *table);
void session_keep_event(SessionTable *table);

/* What is kept of it is dropped: it has ended. */
void session_drop_kept(Session *session);
void session_drop_kept_table(SessionTable *table);

/* --- restoring ---------------------------------------------------------------------------------------------------- */

/* KEPT_STAGING, _PROCESS, _RING, _BELL, _PINS, _WATCH. What cannot be used is dropped, and counted. */
bool session_is_record(const KeptRecord *record);
void store_take_session_record(struct Store *store, const KeptRecord *record, int consume_fd, Kept *consume_kept);

/* What is not whole is made what it can be. */
void store_make_ghosts(struct Store *store);

/* What the ghosts have opened of it. Their pins count from now on. */
void store_restore_tables(struct Store *store, struct Space *space);

/* NULL: no such session is there: its objects that are being written, or die with it, are nobody's. */
Session *store_find_session(const struct Store *store, uint32_t number);

/*
 * An event's origin, of any session, there or not: the request has been carried out, and this came of it. In any
 * order.
 */
void store_note_origin(struct Store *store, uint64_t origin, uint32_t slot, uint64_t generation);

/*
 * An object that is being written, packed or in a lease, whose slot has allocated_pages @made: 1 + the client's number
 * for it; 0: it was created by a message. @region_id: of the lease; 0: packed. False: the session does not have it
 * under that number, and it can only be aborted when the session ends.
 */
bool session_restore_made(Session *session, uint32_t made, uint32_t namespace_id, uint32_t slot, uint64_t generation,
                          uint64_t region_id);

/*
 * The session held it: it does again, *recalled*: nothing is placed in it any more but what its client has under way.
 * @lease has its space and is in its list of leases; @number and all else of the holder's is set here. The caller
 * counts it. False: it is not free, and the lease is an orphan, and spoiled.
 */
bool session_restore_lease(Session *session, uint32_t number, Lease *lease);

typedef struct GhostFacts {
        uint64_t n_ghosts;
        uint64_t n_bad;              /* descriptors of sessions that could not be used, and were dropped */
} GhostFacts;

/*
 * Tables of namespaces that did not come are dropped. Numbers of sessions that are given out from now on are beyond all
 * those seen by 2^16.
 */
void store_finish_ghosts(struct Store *store, GhostFacts *ret);

#endif
