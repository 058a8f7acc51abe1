/* SPDX-License-Identifier: Apache-2.0 */
/* Power-of-two blocks, one free list a class; what has been given out once is never merged or split. */
#include "daemon/store/index-heap.h"

#include <assert.h>

#include "base/macro.h"
#include "proto/seqlock.h"

static_assert(INDEX_HEAP_TEXT_BYTES_MAX <= (LAYOUT_HEAP_UNIT_BYTES << (INDEX_HEAP_CLASSES - 1)), "largest class");

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
        /* Relaxed words, as all that a reader may be copying at this moment. */
        seqlock_copy_in(index_heap_at(heap, block), &link, 1);
        heap->first_free[class] = block;
}
