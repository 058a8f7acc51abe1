/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a new index is filled with what an earlier one held: each object at the slot it had, so that what clients have
 * counted of pins, and know of slots and generations, is still true. Before anybody else has it.
 */
#include "daemon/store/index-private.h"

#include <assert.h>
#include <string.h>

void index_adopt_begin(Index *index, uint64_t n_objects)
{
        LayoutIndexHeader *h = index->header;
        uint64_t n_buckets = n_objects / INDEX_TABLE_ENTRIES_PER_BUCKET + 1;

        assert(index_n_slots(index) == 0);
        /* As many as splitting would have made by then: all of them are empty. */
        atomic_store_explicit(&h->n_buckets, (uint32_t)MIN(n_buckets, (uint64_t)h->n_buckets_max), memory_order_release);
}

int index_adopt(Index *index, uint32_t slot, const LayoutSlot *record, Key key, Key content_type, Key metadata,
                const LayoutExtents *extents, bool is_named)
{
        uint64_t n_heap = layout_heap_bytes(record);
        LayoutSlot copy = *record;

        assert(slot < index->header->n_slots_max && index_get_head(index, slot).state == LAYOUT_SLOT_FREE);
        copy.heap_block = 0;
        if (n_heap > 0) {
                if (!index_heap_take(&index->heap, n_heap, &copy.heap_block))
                        return INDEX_E_HEAP;
                index_heap_store_texts(&index->heap, copy.heap_block, key, content_type, metadata);
        }
        if (copy.flags & LAYOUT_FLAG_ZEROS) {
                copy.flags &= (uint8_t)~LAYOUT_FLAG_ZEROS;
                copy.extents_block = 0;
                if (extents && index_heap_take_extents(&index->heap, extents, &copy.extents_block))
                        copy.flags |= LAYOUT_FLAG_ZEROS;
        }
        if (slot >= index_n_slots(index))
                atomic_store_explicit(&index->header->n_slots, slot + 1, memory_order_release);
        index_store_record(index, slot, &copy);
        if (is_named)
                index_insert(index, slot);
        return 0;
}

void index_adopt_end(Index *index)
{
        /* The lowest will be taken first. One whose object has lost its name to another since it was adopted is among them. */
        index->first_free_slot = 0;
        for (uint32_t slot = index_n_slots(index); slot > 0; slot--)
                if (index_get_head(index, slot - 1).state == LAYOUT_SLOT_FREE)
                        index_give_slot(index, slot - 1);
}

void index_adopt_grave(Index *index, uint64_t grave)
{
        index_graves_write(&index->graves, grave & ~LAYOUT_GRAVE_REASON_MASK, (uint8_t)(grave & LAYOUT_GRAVE_REASON_MASK));
}

void index_adopt_event(Index *index, uint64_t sequence, const LayoutEvent *event)
{
        LayoutEvent *shared = &index->events.events[layout_event_place(sequence, index->header->n_events)];
        size_t n_bytes = offsetof(LayoutEvent, key) + event->key_bytes;

        memcpy((uint8_t *)shared + sizeof(uint64_t), (const uint8_t *)event + sizeof(uint64_t),
               ALIGN_UP(n_bytes, 8) - sizeof(uint64_t));
        atomic_store_explicit(&shared->sequence, sequence, memory_order_release);
}

void index_adopt_event_sequence(Index *index, uint64_t sequence)
{
        LayoutIndexHeader *h = index->header;

        atomic_store_explicit(&h->event_sequence, sequence, memory_order_release);
        atomic_store_explicit(&h->event_futex, (uint32_t)sequence, memory_order_release);
}
