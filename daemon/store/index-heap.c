/* SPDX-License-Identifier: Apache-2.0 */
/* Power-of-two blocks, one free list a class; what has been given out once is never merged or split. */
#include "daemon/store/index-heap.h"

#include <assert.h>
#include <string.h>

#include "base/macro.h"
#include "proto/seqlock.h"

static_assert(INDEX_HEAP_TEXT_BYTES_MAX <= (LAYOUT_HEAP_UNIT_BYTES << (INDEX_HEAP_CLASSES - 1)), "largest class");
static_assert(sizeof(LayoutExtents) <= INDEX_HEAP_TEXT_BYTES_MAX, "a list is no larger than the longest texts");

static unsigned class_of(size_t n_bytes)
{
        size_t n_units = (n_bytes + LAYOUT_HEAP_UNIT_BYTES - 1) / LAYOUT_HEAP_UNIT_BYTES;
        unsigned class = 0;

        assert(n_bytes > 0 && n_bytes <= INDEX_HEAP_TEXT_BYTES_MAX);
        while ((size_t)1 << class < n_units)
                class++;
        return class;
}

void index_heap_init(IndexHeap *heap, uint8_t *base, uint64_t n_bytes)
{
        uint64_t n_units = n_bytes / LAYOUT_HEAP_UNIT_BYTES;

        *heap = (IndexHeap){ .base = base, .n_units = (uint32_t)MIN(n_units, UINT32_MAX), .n_units_touched = 1 };
}

bool index_heap_take(IndexHeap *heap, size_t n_bytes, uint32_t *ret_block)
{
        unsigned class = class_of(n_bytes);
        uint32_t n_units = 1u << class;
        uint32_t block = heap->first_free[class];
        uint64_t link;

        if (block) {
                seqlock_copy_out(&link, index_heap_at(heap, block), 1);
                heap->first_free[class] = (uint32_t)link;
                *ret_block = block;
                return true;
        }
        if (n_units > heap->n_units - heap->n_units_touched)
                return false;
        *ret_block = heap->n_units_touched;
        heap->n_units_touched += n_units;
        return true;
}

void index_heap_give(IndexHeap *heap, uint32_t block, size_t n_bytes)
{
        unsigned class = class_of(n_bytes);
        uint64_t link = heap->first_free[class];

        assert(block > 0 && block < heap->n_units_touched);
        /*
         * For readers: the record that does not name the block any more was stored before whatever is stored in it from
         * now on. The end of a sequence lets later stores pass it.
         */
        atomic_thread_fence(memory_order_release);
        /* Relaxed words, as all that a reader may be copying at this moment. */
        seqlock_copy_in(index_heap_at(heap, block), &link, 1);
        heap->first_free[class] = block;
}

void index_heap_store_texts(IndexHeap *heap, uint32_t block, Key key, Key content_type, Key metadata)
{
        uint64_t words[ALIGN_UP(INDEX_HEAP_TEXT_BYTES_MAX, 8) / 8];
        uint8_t *bytes = (uint8_t *)words;
        size_t n_tail = key.n_bytes > LAYOUT_SLOT_KEY_BYTES ? key.n_bytes - LAYOUT_SLOT_KEY_BYTES : 0;
        size_t n_bytes = n_tail + content_type.n_bytes + metadata.n_bytes;

        words[(n_bytes - 1) / 8] = 0;
        if (n_tail > 0)
                memcpy(bytes, key.bytes + LAYOUT_SLOT_KEY_BYTES, n_tail);
        if (content_type.n_bytes > 0)
                memcpy(bytes + n_tail, content_type.bytes, content_type.n_bytes);
        if (metadata.n_bytes > 0)
                memcpy(bytes + n_tail + content_type.n_bytes, metadata.bytes, metadata.n_bytes);
        /*
         * The record that named the block for another has been overwritten, and that store is ordered before these: who
         * copies the block by it finds its sequence changed.
         */
        seqlock_copy_in(index_heap_at(heap, block), words, (n_bytes + 7) / 8);
}

/* --- lists of zeros ----------------------------------------------------------------------------------------------- */

bool index_heap_take_extents(IndexHeap *heap, const LayoutExtents *extents, uint32_t *ret_block)
{
        size_t n_bytes = layout_extents_bytes(extents->n_extents);
        unsigned class = class_of(n_bytes);
        uint32_t n_units = 1u << class;

        assert(extents->n_extents > 0 && extents->n_extents <= LAYOUT_EXTENTS_MAX);
        if (heap->n_units_extents + n_units > heap->n_units / 4)
                return false;
        if (!heap->first_free[class] && (uint64_t)heap->n_units_touched + n_units > heap->n_units / 2)
                return false;
        if (!index_heap_take(heap, n_bytes, ret_block))
                return false;
        heap->n_units_extents += n_units;
        /* As of texts: whoever copies it for the object that had it before finds out. */
        seqlock_copy_in(index_heap_at(heap, *ret_block), extents, n_bytes / 8);
        return true;
}

void index_heap_give_extents(IndexHeap *heap, uint32_t block)
{
        LayoutExtents head;
        size_t n_bytes;

        /* Nobody else can write there: it is as large as it says. */
        seqlock_copy_out(&head, index_heap_at(heap, block), 1);
        n_bytes = layout_extents_bytes(head.n_extents);
        heap->n_units_extents -= 1u << class_of(n_bytes);
        index_heap_give(heap, block, n_bytes);
}
