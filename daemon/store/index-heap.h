/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap of an index: blocks for the texts of objects that do not fit into their slot, and for the lists of ranges
 * that read as zeros. Units of 64 bytes, blocks of a power of two of them, up to what the longest texts need; unit 0 is
 * never given out, so that block 0 means none. An object without its texts cannot be, one without its list can: so the
 * lists together have no more than a quarter of the heap, and no new one is begun in its second half.
 *
 * A free block links to the next of its class by its first word: only the daemon can write there, and a reader that
 * still looks at it finds the sequence of its slot changed. Who may read a block, and when it may be used again, is
 * index's to know.
 */
#ifndef DAEMON_STORE_INDEX_HEAP_H
#define DAEMON_STORE_INDEX_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "folio/types.h"
#include "proto/key.h"
#include "proto/layout.h"

#define INDEX_HEAP_CLASSES 8 /* 1, 2, 4 .. 128 units: 8 KiB */

/* What the texts of one object take at most. */
#define INDEX_HEAP_TEXT_BYTES_MAX                                                                                      \
        (FOLIO_KEY_BYTES_MAX - LAYOUT_SLOT_KEY_BYTES + FOLIO_CONTENT_TYPE_BYTES_MAX + FOLIO_METADATA_BYTES_MAX)

typedef struct IndexHeap {
        uint8_t *base;
        uint32_t n_units;
        uint32_t n_units_touched;    /* every block ever given out is below this */
        uint32_t n_units_extents;    /* of the lists */
        uint32_t first_free[INDEX_HEAP_CLASSES];
} IndexHeap;

void index_heap_init(IndexHeap *heap, uint8_t *base, uint64_t n_bytes);

/* False: no room. @n_bytes is 1 .. INDEX_HEAP_TEXT_BYTES_MAX. */
bool index_heap_take(IndexHeap *heap, size_t n_bytes, uint32_t *ret_block);

/* @n_bytes as it was taken with. */
void index_heap_give(IndexHeap *heap, uint32_t block, size_t n_bytes);

/* Fills a block that is nobody's. A reader may still be copying it for the object that had it before. */
void index_heap_store_texts(IndexHeap *heap, uint32_t block, Key key, Key content_type, Key metadata);

/* A block with @extents, of which there is one at least. False: no room to spare. */
bool index_heap_take_extents(IndexHeap *heap, const LayoutExtents *extents, uint32_t *ret_block);
void index_heap_give_extents(IndexHeap *heap, uint32_t block);

static inline uint8_t *index_heap_at(const IndexHeap *heap, uint32_t block)
{
        return heap->base + (uint64_t)block * LAYOUT_HEAP_UNIT_BYTES;
}

#endif
