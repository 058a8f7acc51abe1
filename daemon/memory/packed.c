/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See packed.h. The chunks of a region are a list in the order of offsets, without gaps; two neighbours are never both
 * free. Free chunks are also in bins by size. Up to 63 units there is a bin for every size; above, 32 bins for each
 * power of two. A request goes to the first bin in which every chunk is large enough (good fit), found by two bitmaps;
 * only if there is none, a few chunks of the bin of its own size are tried, so that a region made to measure is used.
 *
 * Chunk records come from slabs, since there are as many as objects.
 */
#include "daemon/memory/packed.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/slab.h"

#define UNIT_BYTES UINT64_C(64)
#define SECOND_LEVEL_BITS 5
#define N_SECOND (1u << SECOND_LEVEL_BITS)
#define N_FIRST 32u                        /* chunks of up to 2^36 units: 4 TiB, more than any region */
#define UNITS_MAX (UINT64_C(1) << 35)
#define OWN_BIN_TRIES 8

#define REGION_BYTES_MAX (64 * MIB)

/*
 * A store that grows gets regions of a sixteenth of what it has: what is not used yet stays a small part, and who
 * catches up with a region that is being made does not wait for a large one.
 */
#define GROWTH_SHARE 16

/*
 * How much must be free, or a region is made: as much as is used up while one is. That depends on the rate of both,
 * and nobody measures either: it doubles when somebody had to wait, and shrinks when half of it would have done. It is
 * never more than a quarter of what there is already.
 */
#define LEAD_BYTES_MIN (512 * KIB)
#define LEAD_BYTES_MAX (32 * MIB)
#define LEAD_SHARE 4

struct PackedRegion {
        List link;
        Region *region;
        uint64_t n_taken;
        bool is_old;                 /* its chunks have no neighbours: */
        List taken;                  /* they are in this list */
        uint64_t taken_bytes;
};

struct Packed {
        List regions;
        Slabs chunks;                /* the records of all of them */
        PackedUsage usage;           /* largest_free_bytes is found when asked */
        uint64_t lead_bytes;
        uint32_t first_bitmap;
        uint32_t second_bitmap[N_FIRST];
        List bins[N_FIRST][N_SECOND];
};

/* --- records of chunks -------------------------------------------------------------------------------------------- */

static Chunk *new_chunk(Packed *packed)
{
        Chunk *chunk = slabs_take(&packed->chunks);

        if (chunk)
                list_init(&chunk->bin);
        return chunk;
}

/* --- bins --------------------------------------------------------------------------------------------------------- */

static void find_bin(uint64_t n_units, unsigned *ret_first, unsigned *ret_second)
{
        unsigned top;

        if (n_units < N_SECOND) {
                *ret_first = 0;
                *ret_second = (unsigned)n_units;
                return;
        }
        top = 63 - (unsigned)__builtin_clzll(n_units);
        *ret_first = top - SECOND_LEVEL_BITS + 1;
        *ret_second = (unsigned)(n_units >> (top - SECOND_LEVEL_BITS)) - N_SECOND;
}

static void bin_chunk(Packed *packed, Chunk *chunk)
{
        unsigned first, second;

        find_bin(chunk->size_bytes / UNIT_BYTES, &first, &second);
        chunk->is_free = true;
        list_push_front(&packed->bins[first][second], &chunk->bin);
        packed->second_bitmap[first] |= 1u << second;
        packed->first_bitmap |= 1u << first;
}

static void unbin_chunk(Packed *packed, Chunk *chunk)
{
        unsigned first, second;

        find_bin(chunk->size_bytes / UNIT_BYTES, &first, &second);
        chunk->is_free = false;
        list_unlink(&chunk->bin);
        if (!list_is_empty(&packed->bins[first][second]))
                return;
        packed->second_bitmap[first] &= ~(1u << second);
        if (packed->second_bitmap[first] == 0)
                packed->first_bitmap &= ~(1u << first);
}

/* The smallest bin that is not empty, from (@first, @second) on. */
static Chunk *peek_bin_from(Packed *packed, unsigned first, unsigned second)
{
        uint32_t bitmap;

        bitmap = packed->second_bitmap[first] & (~UINT32_C(0) << second);
        if (bitmap == 0) {
                bitmap = first + 1 < N_FIRST ? packed->first_bitmap & (~UINT32_C(0) << (first + 1)) : 0;
                if (bitmap == 0)
                        return NULL;
                first = (unsigned)__builtin_ctz(bitmap);
                bitmap = packed->second_bitmap[first];
        }
        second = (unsigned)__builtin_ctz(bitmap);
        return LIST_ENTRY(list_peek_front(&packed->bins[first][second]), Chunk, bin);
}

static Chunk *find_free_chunk(Packed *packed, uint64_t n_units)
{
        unsigned first, second, tries = 0, top;
        uint64_t rounded = n_units;
        Chunk *chunk;

        /* Rounded up to the next bin's lower end, so that whatever lies there fits. */
        if (n_units >= N_SECOND) {
                top = 63 - (unsigned)__builtin_clzll(n_units);
                rounded = ALIGN_UP(n_units, UINT64_C(1) << (top - SECOND_LEVEL_BITS));
        }
        find_bin(rounded, &first, &second);
        chunk = peek_bin_from(packed, first, second);
        if (chunk || rounded == n_units)
                return chunk;

        find_bin(n_units, &first, &second);
        LIST_FOREACH(node, &packed->bins[first][second])
        {
                chunk = LIST_ENTRY(node, Chunk, bin);
                if (chunk->size_bytes >= n_units * UNIT_BYTES)
                        return chunk;
                if (++tries == OWN_BIN_TRIES)
                        break;
        }
        return NULL;
}

/* --- packed ------------------------------------------------------------------------------------------------------- */

int packed_new(Packed **ret)
{
        Packed *packed = calloc(1, sizeof(*packed));

        if (!packed)
                return -ENOMEM;
        packed->lead_bytes = LEAD_BYTES_MIN;
        list_init(&packed->regions);
        slabs_init(&packed->chunks, sizeof(Chunk));
        for (unsigned i = 0; i < N_FIRST; i++)
                for (unsigned j = 0; j < N_SECOND; j++)
                        list_init(&packed->bins[i][j]);
        *ret = packed;
        return 0;
}

/* An empty region's one chunk is taken out of the books; the reference to the region goes to the caller. */
static Region *remove_region(Packed *packed, PackedRegion *home, Chunk *whole)
{
        Region *region = home->region;

        assert(home->n_taken == 0 && whole->is_free && !whole->previous && !whole->next);
        unbin_chunk(packed, whole);
        slabs_give(whole);
        packed->usage.n_regions--;
        packed->usage.region_bytes -= region->size_bytes;
        list_unlink(&home->link);
        free(home);
        return region;
}

void packed_free(Packed *packed)
{
        if (!packed)
                return;
        assert(packed->usage.n_chunks == 0 && packed->usage.used_bytes == 0);
        /* Every region is one free chunk now, so the bins name them all. */
        for (Chunk *chunk; (chunk = peek_bin_from(packed, 0, 0));)
                region_unref(remove_region(packed, chunk->home, chunk));
        assert(list_is_empty(&packed->regions));
        slabs_deinit(&packed->chunks);
        free(packed);
}

int packed_add_region(Packed *packed, Region *consume_region)
{
        _cleanup_(cleanup_free) PackedRegion *home = NULL;
        Chunk *chunk;

        if (consume_region->size_bytes / UNIT_BYTES > UNITS_MAX) {
                region_unref(consume_region);
                return -EFBIG;
        }
        home = calloc(1, sizeof(*home));
        chunk = home ? new_chunk(packed) : NULL;
        if (!chunk) {
                region_unref(consume_region);
                return -ENOMEM;
        }
        home->region = consume_region;
        chunk->home = home;
        chunk->region = consume_region;
        chunk->size_bytes = ALIGN_DOWN(consume_region->size_bytes, UNIT_BYTES);
        bin_chunk(packed, chunk);
        list_init(&home->link);
        list_push_back(&packed->regions, &home->link);
        packed->usage.n_regions++;
        packed->usage.region_bytes += consume_region->size_bytes;
        (void)steal_ptr(&home); /* it lives in the list and in its chunks now */
        return 0;
}

int packed_add_old_region(Packed *packed, Region *consume_region, PackedRegion **ret)
{
        PackedRegion *home = calloc(1, sizeof(*home));

        assert(!consume_region->is_writable);
        if (!home) {
                region_unref(consume_region);
                return -ENOMEM;
        }
        home->region = consume_region;
        home->is_old = true;
        home->n_taken = 1; /* until it is settled */
        list_init(&home->taken);
        list_init(&home->link);
        list_push_back(&packed->regions, &home->link);
        packed->usage.n_regions++;
        packed->usage.region_bytes += consume_region->size_bytes;
        *ret = home;
        return 0;
}

static Region *remove_old_region(Packed *packed, PackedRegion *home)
{
        Region *region = home->region;

        packed->usage.n_regions--;
        packed->usage.region_bytes -= region->size_bytes;
        list_unlink(&home->link);
        free(home);
        return region;
}

Region *packed_settle_old_region(Packed *packed, PackedRegion *home)
{
        assert(home->is_old && home->n_taken > 0);
        return --home->n_taken == 0 ? remove_old_region(packed, home) : NULL;
}

PackedRegion *packed_pick_old_region(Packed *packed, bool is_short)
{
        PackedRegion *best = NULL;

        LIST_FOREACH(node, &packed->regions)
        {
                PackedRegion *home = LIST_ENTRY(node, PackedRegion, link);

                if (!home->is_old || list_is_empty(&home->taken) ||
                    (!is_short && home->taken_bytes >= home->region->size_bytes / 4 * 3))
                        continue;
                if (!best || home->taken_bytes < best->taken_bytes)
                        best = home;
        }
        return best;
}

uint64_t packed_count_old_chunks(const PackedRegion *home)
{
        return home->n_taken;
}

const Chunk *packed_next_old_chunk(PackedRegion *home)
{
        List *node = list_take_front(&home->taken);

        list_push_back(&home->taken, node);
        return LIST_ENTRY(node, Chunk, bin);
}

Region *packed_region(PackedRegion *home)
{
        return home->region;
}

int packed_take_old_chunk(Packed *packed, PackedRegion *home, uint64_t offset_bytes, uint64_t n_bytes, uint32_t slot,
                          Chunk **ret)
{
        Chunk *chunk = new_chunk(packed);

        assert(home->is_old && IS_ALIGNED(offset_bytes, UNIT_BYTES) && IS_ALIGNED(n_bytes, UNIT_BYTES) && n_bytes > 0);
        if (!chunk)
                return -ENOMEM;
        chunk->home = home;
        chunk->region = home->region;
        chunk->offset_bytes = offset_bytes;
        chunk->size_bytes = n_bytes;
        chunk->slot = slot;
        list_push_back(&home->taken, &chunk->bin);
        home->taken_bytes += n_bytes;
        home->n_taken++;
        packed->usage.n_chunks++;
        packed->usage.used_bytes += n_bytes;
        *ret = chunk;
        return 0;
}

int packed_take_chunk(Packed *packed, uint64_t n_bytes, Chunk **ret)
{
        uint64_t taken_bytes;
        Chunk *chunk, *rest;

        assert(n_bytes > 0);
        if (!checked_align_up(n_bytes, UNIT_BYTES, &taken_bytes) || taken_bytes / UNIT_BYTES > UNITS_MAX)
                return PACKED_E_NO_ROOM;
        chunk = find_free_chunk(packed, taken_bytes / UNIT_BYTES);
        if (!chunk)
                return PACKED_E_NO_ROOM;
        assert(chunk->size_bytes >= taken_bytes);
        rest = NULL;
        if (chunk->size_bytes > taken_bytes) {
                rest = new_chunk(packed);
                if (!rest)
                        return -ENOMEM;
        }

        unbin_chunk(packed, chunk);
        if (rest) {
                rest->home = chunk->home;
                rest->region = chunk->region;
                rest->offset_bytes = chunk->offset_bytes + taken_bytes;
                rest->size_bytes = chunk->size_bytes - taken_bytes;
                rest->previous = chunk;
                rest->next = chunk->next;
                if (rest->next)
                        rest->next->previous = rest;
                chunk->next = rest;
                chunk->size_bytes = taken_bytes;
                bin_chunk(packed, rest);
        }
        chunk->home->n_taken++;
        packed->usage.n_chunks++;
        packed->usage.used_bytes += taken_bytes;
        *ret = chunk;
        return 0;
}

/* @chunk takes over its right neighbour. */
static void merge_next(Packed *packed, Chunk *chunk)
{
        Chunk *next = chunk->next;

        chunk->size_bytes += next->size_bytes;
        chunk->next = next->next;
        if (chunk->next)
                chunk->next->previous = chunk;
        slabs_give(next);
}

void packed_give_chunk(Packed *packed, Chunk *chunk, bool keep, Region **ret_empty)
{
        PackedRegion *home = chunk->home;

        assert(!chunk->is_free && home->n_taken > 0);
        home->n_taken--;
        packed->usage.n_chunks--;
        packed->usage.used_bytes -= chunk->size_bytes;
        if (home->is_old) {
                list_unlink(&chunk->bin);
                home->taken_bytes -= chunk->size_bytes;
                slabs_give(chunk);
                *ret_empty = home->n_taken == 0 ? remove_old_region(packed, home) : NULL;
                return;
        }
        if (chunk->next && chunk->next->is_free) {
                unbin_chunk(packed, chunk->next);
                merge_next(packed, chunk);
        }
        if (chunk->previous && chunk->previous->is_free) {
                chunk = chunk->previous;
                unbin_chunk(packed, chunk);
                merge_next(packed, chunk);
        }
        bin_chunk(packed, chunk);
        *ret_empty = home->n_taken == 0 && !keep ? remove_region(packed, home, chunk) : NULL;
}

Region *packed_take_unused(Packed *packed)
{
        /* Every region is one free chunk then. */
        Chunk *chunk = packed->usage.n_chunks == 0 ? peek_bin_from(packed, 0, 0) : NULL;

        return chunk ? remove_region(packed, chunk->home, chunk) : NULL;
}

uint64_t packed_next_region_bytes(const Packed *packed, uint64_t n_bytes)
{
        uint64_t share, least;

        share = ALIGN_DOWN(packed->usage.region_bytes / GROWTH_SHARE, HUGE_BYTES);
        share = CLAMP(share, HUGE_BYTES, REGION_BYTES_MAX);
        /* What cannot be rounded cannot be allocated either: passed on as it is, the next check refuses it. */
        if (!checked_align_up(n_bytes, HUGE_BYTES, &least))
                return n_bytes;
        return MAX(share, least);
}

/* Of the highest bin that is not empty: within a 32nd of the largest, if it is not the only one there. */
static uint64_t largest_free_bytes(const Packed *packed)
{
        unsigned first, second;

        if (packed->first_bitmap == 0)
                return 0;
        first = 31 - (unsigned)__builtin_clz(packed->first_bitmap);
        second = 31 - (unsigned)__builtin_clz(packed->second_bitmap[first]);
        return LIST_ENTRY(packed->bins[first][second].next, Chunk, bin)->size_bytes;
}

bool packed_is_low(const Packed *packed, uint64_t *ret_n_bytes)
{
        uint64_t most = MAX(packed->usage.region_bytes / LEAD_SHARE, HUGE_BYTES);
        uint64_t enough = MAX(MIN(packed->lead_bytes, most), MIN(packed->usage.region_bytes / 64, 4 * MIB));

        /* Nothing has been asked for yet: a namespace that is never used takes no region. */
        if (packed->usage.n_regions == 0 || largest_free_bytes(packed) >= enough)
                return false;
        /* A region of that size ends the want, whatever else it is: nobody asks again and again. */
        *ret_n_bytes = enough;
        return true;
}

void packed_tune(Packed *packed, bool was_late)
{
        if (was_late)
                packed->lead_bytes = MIN(packed->lead_bytes * 2, LEAD_BYTES_MAX);
        else if (largest_free_bytes(packed) > packed->lead_bytes / 2)
                packed->lead_bytes = MAX(packed->lead_bytes - packed->lead_bytes / 8, LEAD_BYTES_MIN);
}

void packed_get_usage(const Packed *packed, PackedUsage *ret)
{
        *ret = packed->usage;
        ret->largest_free_bytes = largest_free_bytes(packed);
}
