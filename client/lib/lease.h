/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region that this client holds the lease of (proto/lease.h), and where in it the next object goes. Not locked:
 * its user has a lock around place and publish.
 *
 * Three sources, in this order. What came free lately and is of just the size, newest first: its memory is warm.
 * The *windows*: runs of free units that nobody else can place anything in, used without a look at the book; at
 * first one, the whole region. Small objects go to the beginning of one until it is used up, then of the one that fits
 * best; large ones to the end of the one that fits best. And when none has room, the runs that the book has then;
 * for that everything placed so far must have been carried out, or the book would call free what is not. Opening
 * windows forgets what came free before, as it may lie inside.
 */
#ifndef CLIENT_LIB_LEASE_H
#define CLIENT_LIB_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/beacon.h"
#include "proto/lease.h"

typedef struct Lease Lease;

typedef struct LeaseConfig {
        uint64_t region_id;
        uint64_t region_bytes;
        uint32_t number;             /* of lease_use[] */
        uint32_t epoch;
        _Atomic uint32_t *use;       /* lease_use[number] of the ring, which outlives the lease */
        const Beacon *beacon;        /* of the daemon whose book it is; outlives the lease. NULL: not known */
} LeaseConfig;

enum { LEASE_E_LAYOUT = 1 };         /* not a book of that region */

/*
 * Both descriptors are taken over whatever happens. 0, LEASE_E_LAYOUT, or a negative errno. Not inherited over
 * fork().
 */
int lease_new(const LeaseConfig *config, int consume_region_fd, int consume_book_fd, Lease **ret);
void lease_free(Lease *lease);       /* nothing is pointed to any more */

/* Counted: the holder's list, and every pointer into it that is given out. The last one unmaps. */
Lease *lease_ref(Lease *lease);
void lease_unref(Lease *lease);

/* From here to lease_end() the daemon cannot take it away. False: it has already; nothing has begun. Any thread. */
bool lease_begin(Lease *lease);
void lease_end(Lease *lease);

enum {
        LEASE_PLACE_OK = 0,
        LEASE_PLACE_FULL = 1,        /* no room for so much, as far as the book says */
        LEASE_PLACE_BEHIND = 2,      /* wait until the daemon has carried out lease_last(), and try again */
};

/*
 * Room for @n_bytes. @head: records that the daemon has carried out. The caller publishes a record for it and says
 * its number by lease_placed(), or gives it back by lease_unplace(). Who does other things in between says which
 * one it is, by lease_placed_at(): what is placed and not published is in the way of the next window, up to some
 * 30 of them, and with more there is no next one.
 */
int lease_place(Lease *lease, uint64_t n_bytes, uint64_t head, uint64_t *ret_offset, void **ret);
/* What lease_place() gave last reads as zeros, as nobody has written there yet. */
bool lease_is_placed_fresh(const Lease *lease);

void lease_placed(Lease *lease, uint64_t sequence);
void lease_placed_at(Lease *lease, uint64_t offset_bytes, uint64_t sequence);
void lease_unplace(Lease *lease, uint64_t offset_bytes, uint64_t n_bytes);

/*
 * Something may have come free since nothing was found: the next try looks for it. Else it waits until that is worth it.
 * Before another lease is asked for.
 */
void lease_insist(Lease *lease);

/*
 * So much has come free since the last search that it may fit better there: searches. OK, also where there is nothing to do, or
 * BEHIND, as lease_place(). For large objects, whose places are worth it.
 */
int lease_refresh(Lease *lease, uint64_t n_bytes, uint64_t head);

/*
 * How large a piece would be cut for so much, as far as that is known without a search: 0 where one of just the size came free.
 * UINT64_MAX: none is known. For who has several leases.
 */
uint64_t lease_fit_bytes(const Lease *lease, uint64_t n_bytes);

/* Records below this number have placed something here: that many must have been carried out before a new window. */
uint64_t lease_last(const Lease *lease);

uint64_t lease_region_id(const Lease *lease);
uint64_t lease_region_bytes(const Lease *lease);
uint8_t *lease_data(const Lease *lease);

/*
 * Until lease_unguard() nothing is placed in these bytes, whoever deletes the object that lies there: a handle of
 * this client still shows them and has no pin on them yet. The lease is not taken away meanwhile, if it was not
 * when this was called: before lease_end(). False: no memory.
 */
bool lease_guard(Lease *lease, uint64_t offset_bytes, uint64_t n_bytes);
void lease_unguard(Lease *lease, uint64_t offset_bytes, uint64_t n_bytes);

#endif
