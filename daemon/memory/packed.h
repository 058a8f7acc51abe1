/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks in packed regions: where the small objects of one namespace lie. A good-fit allocator with constant time
 * (two-level bins, neighbours merge), in units of 64 bytes; its books are private memory, so that nothing in the
 * region itself can mislead it, and a region can be full of user bytes to the last. Not thread-safe: the loop's.
 *
 * It never makes a region: it says that it needs one, and is given one, so that slow work stays with its caller.
 */
#ifndef DAEMON_MEMORY_PACKED_H
#define DAEMON_MEMORY_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/memory/region.h"

typedef struct Packed Packed;
typedef struct PackedRegion PackedRegion;

/* Read-only for the caller. */
typedef struct Chunk {
        PackedRegion *home;
        Region *region;              /* borrowed from home */
        uint64_t offset_bytes;       /* in the region; a multiple of 64 */
        uint64_t size_bytes;         /* reserved; a multiple of 64 */
        struct Chunk *previous;      /* neighbours in the region, by offset */
        struct Chunk *next;
        List bin;                    /* of a free chunk; of old ones that are taken: of their region */
        bool is_free;
        uint32_t slot;               /* of an old one: as it was told */
} Chunk;

enum { PACKED_E_NO_ROOM = 1 }; /* no free chunk is large enough: add a region */

int packed_new(Packed **ret);
void packed_free(Packed *packed); /* every chunk has been given back */

/* At least @n_bytes (1 or more). 0, PACKED_E_NO_ROOM, or a negative errno. */
int packed_take_chunk(Packed *packed, uint64_t n_bytes, Chunk **ret);

/*
 * Gives a chunk back. When its region is empty now, and not @keep, the region is handed out in *@ret_empty and is not
 * packed's any more (the reference goes with it). Otherwise *@ret_empty is NULL.
 */
void packed_give_chunk(Packed *packed, Chunk *chunk, bool keep, Region **ret_empty);

/*
 * An *old* region, which an earlier daemon has filled and nobody can write to any more: no chunk of it is ever given
 * out, what is taken in it is told one by one, by whoever has made sure that it does not overlap, and it is handed out
 * in *@ret_empty with the last of them, whatever @keep says. @consume_region: not mapped; taken over, also where this
 * fails. It stays until packed_settle_old_region(), once, which hands it out if it is empty, with its reference.
 */
int packed_add_old_region(Packed *packed, Region *consume_region, PackedRegion **ret);
int packed_take_old_chunk(Packed *packed, PackedRegion *home, uint64_t offset_bytes, uint64_t n_bytes, uint32_t slot,
                          Chunk **ret);
Region *packed_settle_old_region(Packed *packed, PackedRegion *home);

/*
 * The old region of which least is used, if that is less than three quarters, or in any case with @is_short; NULL. And its
 * chunks, one after the other and again from the beginning; there is one at least.
 */
PackedRegion *packed_pick_old_region(Packed *packed, bool is_short);
uint64_t packed_count_old_chunks(const PackedRegion *home);
const Chunk *packed_next_old_chunk(PackedRegion *home);
Region *packed_region(PackedRegion *home); /* borrowed */

static inline bool packed_is_old(const Chunk *chunk)
{
        return !chunk->region->is_writable;
}

/*
 * When no chunk is taken any more: a region that was added and has not been used, handed out in the same way. NULL: none.
 */
Region *packed_take_unused(Packed *packed);

/*
 * @consume_region: mapped writable by the daemon; taken over, also where this fails. Its whole size becomes one free
 * chunk. 0, or a negative errno.
 */
int packed_add_region(Packed *packed, Region *consume_region);

/* How large the next region should be: 2 MiB, then a share of what there is, at most 64 MiB; at least @n_bytes. */
uint64_t packed_next_region_bytes(const Packed *packed, uint64_t n_bytes);

/* Is so little free that a region should be got ready now? Then of how much, at least. */
bool packed_is_low(const Packed *packed, uint64_t *ret_n_bytes);

/*
 * A region that was asked for has come: had somebody to wait for it? If so, the next is asked for earlier; if it has
 * come long before it was needed, later. Before it is added.
 */
void packed_tune(Packed *packed, bool was_late);

typedef struct PackedUsage {
        uint64_t n_regions;
        uint64_t region_bytes;
        uint64_t used_bytes;         /* in chunks that are taken */
        uint64_t largest_free_bytes; /* or a chunk within a 32nd of it */
        uint64_t n_chunks;
} PackedUsage;

void packed_get_usage(const Packed *packed, PackedUsage *ret);

#endif
