/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A leased region: one in which a client places objects, and the book of it (proto/lease.h), which the daemon keeps.
 * Knows which units are taken; whose lease it is, and what lies in it, is the store's to know.
 *
 * The book is the daemon's own: what a client says is checked against it, and nothing in the region itself is looked
 * at.
 */
#ifndef DAEMON_MEMORY_LEASED_H
#define DAEMON_MEMORY_LEASED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/region.h"
#include "proto/lease.h"

typedef struct Leased {
        Region *region;              /* size sealed for good, of mode 0600; the daemon does not map it */
        Region *book_region;         /* sealed to the daemon */
        LeaseBook *book;
        uint64_t used_units;
        uint64_t n_taken;            /* ranges */
        void *lease;                 /* the store's; leased does not look at it */
} Leased;

enum {
        LEASED_E_RANGE = 1,          /* not whole units of the region */
        LEASED_E_TAKEN = 2,          /* some of them are taken */
};

/* What the book of a region of @region_bytes takes. */
uint64_t leased_book_bytes(uint64_t region_bytes);

/*
 * @consume_region: not mapped, sealed against resizing for good, of at most LEASE_REGION_BYTES_MAX; taken over where
 * this succeeds. @backend can seal. 0 or a negative errno. Both descriptors for clients are there afterwards:
 * region->fd to write, fd_read_only of both. Slow: in a worker thread.
 */
int leased_new(Backend *backend, Region *consume_region, Leased **ret);

/*
 * The same for a region that an earlier daemon had, with a new book, in which nothing is taken: it has been used, and
 * the lease there was in @epoch of it is over.
 */
int leased_restore(Backend *backend, Region *consume_region, uint32_t epoch, Leased **ret);

/* What the book that an earlier daemon had of a region says; false: it is none. @fd is borrowed. */
typedef struct LeasedOld {
        uint64_t region_id;
        uint32_t epoch;
        uint32_t holder_session;     /* 0: nobody */
        uint32_t holder_number;
} LeasedOld;
bool leased_read_old(int book_fd, LeasedOld *ret);

/* Who has the lease, for the next daemon; 0: nobody. */
void leased_note_holder(Leased *leased, uint32_t session, uint32_t number);

/* We end, and another daemon goes on with it: what is taken stays taken in the book, which goes. */
Region *leased_leave(Leased *leased);

/* Nothing is taken any more. The book goes; the region is handed back, with its reference. */
Region *leased_free(Leased *leased);

/* Takes the units of [@offset_bytes, + @n_bytes). 0 or LEASED_E_*; @offset_bytes and @n_bytes are anybody's numbers. */
int leased_take(Leased *leased, uint64_t offset_bytes, uint64_t n_bytes);

/* Gives them back, as they were taken. */
void leased_give(Leased *leased, uint64_t offset_bytes, uint64_t n_bytes);

/* The lease that there is ends: the number of the next. Then: a fence, and the look at lease_use[]. */
uint32_t leased_raise_epoch(Leased *leased);
uint32_t leased_epoch(const Leased *leased);

/* It has had a holder, who may have written anywhere: before it has the next one. */
void leased_note_used(Leased *leased);

/*
 * Of the largest run of free units, as far as a bounded search finds it, which ends where one has @enough_bytes: at
 * least this many bytes can be placed at once.
 */
uint64_t leased_find_free_bytes(const Leased *leased, uint64_t enough_bytes);

static inline uint64_t leased_used_bytes(const Leased *leased)
{
        return leased->used_units * LEASE_UNIT_BYTES;
}

#endif
