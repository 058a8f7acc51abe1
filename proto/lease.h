/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The book of a leased region, version 1: which of its units of 64 bytes are taken. This file is a protocol.
 *
 * A lease lets one client (the *holder*) place objects in a region itself: it alone writes there. The book belongs to
 * the daemon, which writes it; the holder maps it read-only. A unit is taken from when the daemon has carried out the
 * record (ring.h) that placed an object there, until the object is gone and nobody holds it. So the book says nothing
 * of what the holder has placed and not published yet, or published and the daemon has not looked at yet: that is the
 * holder's to remember. A record that names units that are taken, or are not of the region, is refused.
 *
 * What comes free is also written to a small log, newest over oldest, for a holder that wants to use warm memory first:
 * the entry, the number of entries, and then the bits, in this order. So who sees a bit cleared, and looks at the number
 * afterwards, sees that its entry is among them.
 *
 * Epoch. A lease lasts as long as the book's epoch is the one that the holder was given. The holder, before it places:
 * raises lease_use[] of its ring, fences, and looks at the epoch; it lowers it when the record of what it placed is
 * published, or when nothing came of it. The daemon, to end the lease: raises the epoch, fences, looks at lease_use[]; where that is
 * not 0 it looks again later; then carries out what is in the ring, and the region is its own, to be given to another
 * holder with the new epoch, or back to the kernel. A holder that has gone away needs no asking.
 */
#ifndef PROTO_LEASE_H
#define PROTO_LEASE_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LEASE_MAGIC UINT64_C(0x3145534c4c4f4621) /* "!FOLLSE1" */
#define LEASE_VERSION 1
#define LEASE_UNIT_BYTES 64u
#define LEASE_FREED_MAX 256u         /* entries of the log; a power of two */
#define LEASE_REGION_BYTES_MAX (UINT64_C(1) << 37)

typedef struct LeaseBook {
        /* Written once, but for is_fresh. */
        uint64_t magic;
        uint32_t version;
        uint32_t n_freed_max;
        uint64_t region_id;
        uint64_t region_bytes;
        uint64_t book_bytes;
        uint64_t bitmap_offset;      /* of 64-bit words; unit u is bit u % 64 of word u / 64; set: taken */
        /*
         * For the holder, when it is given the lease: not 0: nobody has ever written in the region, and all of it is
         * zeros. What others wrote there and never published is not known to the daemon.
         */
        uint32_t is_fresh;
        uint8_t reserved_0[64 - 52];
        _Atomic uint32_t epoch;
        /* For the next daemon: who holds the lease, and its number among the session's; 0: nobody. */
        uint32_t holder_session;
        uint32_t holder_number;
        uint8_t reserved_1[64 - 12];
        _Atomic uint64_t n_freed;    /* entries ever written to the log */
        uint8_t reserved_2[64 - 8];
        _Atomic uint64_t freed[LEASE_FREED_MAX]; /* number n at n % n_freed_max: lease_freed() */
        uint8_t reserved_3[4096 - 192 - LEASE_FREED_MAX * 8];
} LeaseBook;

static_assert(sizeof(LeaseBook) == 4096, "book");
static_assert(offsetof(LeaseBook, is_fresh) == 48, "book");
static_assert(offsetof(LeaseBook, epoch) == 64, "book");
static_assert(offsetof(LeaseBook, holder_session) == 68, "book");
static_assert(offsetof(LeaseBook, n_freed) == 128, "book");
static_assert(offsetof(LeaseBook, freed) == 192, "book");

static inline uint64_t lease_freed(uint32_t first_unit, uint32_t n_units)
{
        return (uint64_t)first_unit << 32 | n_units;
}

/* What an object of so many bytes takes. @size_bytes is at most LEASE_REGION_BYTES_MAX. */
static inline uint64_t lease_units(uint64_t size_bytes)
{
        return size_bytes == 0 ? 1 : (size_bytes + LEASE_UNIT_BYTES - 1) / LEASE_UNIT_BYTES;
}

#endif
