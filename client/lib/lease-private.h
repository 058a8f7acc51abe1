/* SPDX-License-Identifier: Apache-2.0 */
/* What a lease is made of: for lease.c, which places in it, and lease-new.c, which makes it. */
#ifndef CLIENT_LIB_LEASE_PRIVATE_H
#define CLIENT_LIB_LEASE_PRIVATE_H

#include "client/lib/lease.h"
#include "client/lib/ranges.h"

#define LEASE_WORD_UNITS 64u
#define LEASE_CLASSES 256u           /* sizes that entries are remembered of at one time; a power of two */
#define LEASE_CLASS_ENTRIES 16u      /* a power of two */
#define LEASE_WINDOWS_MAX 512u       /* looked through for a large object, or when one is used up: 0.2 us */
#define LEASE_PENDING_MAX 32u

/* Of one size; the newest of its entries at n - 1, the oldest gives way. */
typedef struct LeaseClass {
        uint32_t n_units;
        uint32_t n_pushed;
        uint32_t n_entries;
        uint32_t first[LEASE_CLASS_ENTRIES];
} LeaseClass;

typedef struct LeaseWindow {
        uint32_t at;
        uint32_t end;
} LeaseWindow;

struct Lease {
        LeaseConfig config;
        uint8_t *data;
        LeaseBook *book;
        const _Atomic uint64_t *words;
        uint64_t book_bytes;
        uint32_t n_units;
        uint32_t n_freed_max;
        bool is_placed_fresh;        /* what was placed last lies where nothing was ever written */
        uint32_t fresh_from, fresh_to; /* nothing was ever placed here, nor written: from the middle of the region */

        uint64_t last;               /* the newest record that placed something, + 1 */
        uint64_t n_freed;            /* entries of the log that we have taken in, or passed over */
        LeaseWindow windows[LEASE_WINDOWS_MAX];
        uint32_t n_windows;
        uint32_t current[2];         /* windows: for small objects, for large ones */
        uint32_t search_from;
        uint32_t full_units;         /* so much was not found in all of the region; 0: no search failed */
        uint64_t freed_units;        /* that came free since */
        /* Placed and not published, as far as is known: all that a search has to step around. */
        Range pending[LEASE_PENDING_MAX];
        uint32_t n_listed;
        uint32_t n_unlisted;         /* that the list had no room for */
        uint32_t n_pending;
        Ranges guards;
        LeaseClass classes[LEASE_CLASSES];
        atomic_uint n_references;    /* far from the rest: any thread changes it at any time */
};

#endif
