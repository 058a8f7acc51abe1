/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of a peer's ring (proto/ring.h): takes records out, one at a time and in order, copies each once,
 * checks the copy, and hands it to the store as an operation; one that does not end at once stops the ring until it
 * does. Belongs to the peer's session: after a hang-up what was published is still carried out, then no more.
 *
 * A client that breaks the ring's rules (a tail that runs backwards or too far, an unknown verb) is disconnected,
 * like one that breaks a rule of the socket.
 */
#ifndef DAEMON_SERVER_RING_H
#define DAEMON_SERVER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/peer.h"
#include "daemon/server/poller.h"
#include "daemon/store/store.h"

struct event_base;

typedef struct DaemonRing DaemonRing;

typedef struct RingHost {
        struct event_base *base;
        Store *store;
        Poller *poller;
        uint64_t packed_bytes_max;   /* larger objects have a region of their own */
        /* CLOCK_MONOTONIC; what turns go by; NULL: the clock. */
        uint64_t (*now_ns)(void);
} RingHost;

#define RING_TURN_RECORDS 64u
#define RING_TURN_NS UINT64_C(100000)

/*
 * Of @peer, which has a session and no ring yet; it has the ring from then on, and ends it. *@ret: borrowed from it.
 * STATUS_OK; STATUS_LIMIT, STATUS_INTERNAL with *@ret_detail to be freed. @host is copied, its parts outlive the
 * peer.
 */
Status daemon_ring_new(const RingHost *host, Peer *peer, DaemonRing **ret, char **ret_detail);

/*
 * Of a ghost whose ring was restored: what an earlier foliod was in the middle of is settled. The session's is taken
 * over, with success or not; a negative errno.
 */
int daemon_ring_restore(const RingHost *host, Session *session, DaemonRing **ret);

/* What has been published is carried out from now on, with nobody at the other end yet. */
void daemon_ring_start(DaemonRing *ring);

/* The client is there again: @peer has the ghost's session, and has the ring from now on, as with daemon_ring_new(). */
void daemon_ring_attach(DaemonRing *consume_ring, Peer *peer);

/* Or it is gone: as a peer ends it, before its session is closed, and after. */
void daemon_ring_close(DaemonRing *ring);
void daemon_ring_leave(DaemonRing *ring); /* we end, and another foliod comes: nothing more is carried out */
void daemon_ring_release(DaemonRing *consume_ring);

bool daemon_ring_is_broken(const DaemonRing *ring);
bool daemon_ring_is_restored(const DaemonRing *ring);

int daemon_ring_fd(const DaemonRing *ring);      /* borrowed */
int daemon_ring_bell_fd(const DaemonRing *ring); /* borrowed */

/*
 * Carries out what has been published up to now, so that a message that came after it is not before it. True: all of
 * it is done. False: it takes longer; @rest is called, on the loop, when all of what was there is done. It may be
 * called from inside the store, so it only remembers that it was. One @rest at a time: another takes its place.
 */
bool daemon_ring_drain(DaemonRing *ring, void (*rest)(void *userdata), void *userdata);

/* Of all rings of this process. */
typedef struct RingFacts {
        uint64_t n_rings;            /* that are open */
        uint64_t n_records;          /* carried out so far */
        uint64_t n_bells;            /* how often one had to be rung for */
} RingFacts;

void daemon_ring_get_facts(RingFacts *ret);

#endif
