/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the keeper share. One lock guards all of it but the manager, who has his own. It is held for some
 * system calls at a time and never while the manager is waited for.
 *
 * Every message of every segment has a Kept, in the order of the queue: what is taken from the front of the one goes
 * from the front of the other.
 */
#ifndef DAEMON_SERVICE_KEEPER_PRIVATE_H
#define DAEMON_SERVICE_KEEPER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "daemon/service/keeper-manager.h"
#include "daemon/service/keeper-segment.h"
#include "daemon/service/keeper.h"

typedef struct Segment {
        List link;
        List kept;                   /* in the order of the queue */
        KeeperSegment queue;
        uint64_t serial;             /* its name */
        unsigned n_messages;
        unsigned n_dropped;          /* of these: to be taken out */
        bool is_draining;            /* all others move elsewhere */
} Segment;

struct Kept {
        List link;                   /* of its segment, or of the direct ones, or of those to be removed */
        Segment *segment;            /* NULL: direct */
        char *name;                  /* of a direct one */
        bool is_dropped;
};

/* What a predecessor has left and nobody has been told of yet. */
typedef struct Inherited {
        List link;
        KeptRecord record;           /* of a direct one */
        char *name;
        int fd;
        uint64_t serial;             /* of a segment */
        bool is_segment;
        bool is_bad;
} Inherited;

typedef enum KeeperFull {
        KEEPER_FULL_STORED,          /* the manager has what it was promised to get */
        KEEPER_FULL_IN_FLIGHT,       /* the kernel's limit */
} KeeperFull;

struct Keeper {
        KeeperManager *manager;
        pthread_t thread;
        bool has_thread;
        pthread_mutex_t lock;
        pthread_cond_t work;         /* for the thread */
        pthread_cond_t change;       /* for who waits for the thread */
        atomic_uint n_waiting;       /* for the lock, of those whom somebody waits for */

        List segments;
        Segment *open;               /* where the next one goes; NULL: to be chosen */
        Segment *spare;              /* stored and empty; NULL: being made */
        List direct;
        List removals;               /* direct ones that were dropped */
        uint64_t serial;             /* the last that was given out; a random number is in the upper half */
        uint64_t n_stored_max;
        uint64_t n_reserved;         /* of these, for the next start */
        bool is_unproved;            /* it is not known whether the manager takes so many */
        bool is_probing;             /* nothing may be stored meanwhile */
        bool is_starting;            /* until keeper_reserve(): what is reserved is for us */
        uint64_t n_direct_max;
        uint64_t n_segments_aim;
        uint64_t n_in_flight_max;
        uint64_t n_stored;           /* direct, segments, the spare, and what is being stored or removed */
        uint64_t n_direct;
        uint64_t n_segments;
        uint64_t n_parked;           /* without those that were dropped */
        uint64_t n_dropped;          /* in segments, still there */
        uint64_t n_moved;
        uint64_t n_failed;
        KeeperFull full;             /* what it was that was full, last time */

        uint64_t n_settle_asked;
        uint64_t n_settled;
        uint64_t retry_ns;           /* what did not succeed is tried again then; 0: no reason */
        unsigned n_removing;         /* the manager is being told */
        bool is_spare_wanted;
        bool is_making;              /* a spare one; it is among those stored */
        bool is_gone;
        bool is_lost;                /* for good */
        bool is_frozen;
        bool is_stopping;

        List inherited;
        bool has_newer;
        int *sockets;
        size_t n_sockets;
        size_t sockets_taken;
};

uint64_t keeper_clock_ns(void);

/* All with the lock held. */

/* How many messages a segment is to have: few, where there are few, as that many may have to be moved for one. */
unsigned keeper_segment_target(const Keeper *keeper);

/* One with room that is not @except; may be beyond its target while there is no spare. NULL: none now. */
Segment *keeper_find_room(Keeper *keeper, const Segment *except);
bool keeper_has_room(Keeper *keeper);

/* How many may be stored. Of what is reserved a start takes what it cannot do without: it may be killed, too. */
uint64_t keeper_places(const Keeper *keeper, bool is_needed);
void keeper_set_places(Keeper *keeper, uint64_t n_stored_max);
void keeper_add_segment(Keeper *keeper, Segment *segment);
void keeper_mark_gone(Keeper *keeper, int error);

Segment *keeper_segment_new(uint64_t serial);
void keeper_segment_free(Segment *segment); /* and every Kept in it */
void keeper_kept_free(Kept *kept);

/* keeper-take.c: what a predecessor has left. */
int keeper_alloc(const KeeperConfig *config, const char *address, Keeper **ret); /* keeper.c */
void keeper_forget_inherited(Keeper *keeper);

/* keeper-places.c: with the lock held, which is given up meanwhile. */
void keeper_prove_places(Keeper *keeper);

/* keeper-thread.c: makes segments, takes out what was dropped. */
int keeper_start_thread(Keeper *keeper);
void keeper_stop_thread(Keeper *keeper);

#endif
