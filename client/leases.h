/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leases that this client has in one namespace: when to take one, how large, and in which of them the next object
 * goes. The first is taken when the client has put some objects there by the other way, or one that is large: a thousand
 * clients with an object each do without. Each one more is twice as large as the last, up to a bound. One that the daemon
 * has taken back is dropped where that is noticed; what cannot be had is not asked for again for a while.
 */
#ifndef CLIENT_LEASES_H
#define CLIENT_LEASES_H

#include "client/lib/lease.h"
#include "client/names.h"

typedef struct Leases Leases;

/* Those of a namespace; NULL: objects are not placed there by clients, or there is no memory. */
Leases *leases_of(Name *name);

/* At the client's end, before its namespaces go. */
void leases_free_all(Client *client);

/* Of an object put by the other way. */
void leases_count_other(Leases *leases, uint64_t n_bytes);

/* Something there was deleted: what was refused may be to be had now. */
void leases_note_freed(Name *name);

typedef struct Placed {
        Leases *leases;
        Lease *lease;                /* begun, so that it is not taken away; a reference, but where is_locked */
        bool is_locked;
        bool is_zero;                /* what is there reads as zeros */
        uint64_t offset_bytes;
        uint64_t n_bytes;
        uint8_t *data;
} Placed;

/*
 * Room for an object, in a lease that may be asked for; blocking. With @is_to_lock the lock is held when this returns true,
 * until leases_published() or leases_give(): for who publishes at once. False: the other way is to be taken.
 */
bool leases_place(Client *client, Ring *ring, Leases *leases, Space *space, uint64_t n_bytes, bool is_to_lock, Placed *ret);

/* For who has not locked: around the record, and nothing else. */
void leases_lock(Leases *leases);
void leases_unlock(Leases *leases);

/* With the lock: between begin and submit of the record, its number. */
static inline void leases_placed(const Placed *placed, uint64_t sequence)
{
        lease_placed_at(placed->lease, placed->offset_bytes, sequence);
}

/* With the lock, which is given up: the record has been submitted. The lease may be taken away from now on, unless it is guarded. */
void leases_published(Placed *placed);

/* With the lock, which is given up: nothing came of it. */
void leases_give(Placed *placed);

#endif
