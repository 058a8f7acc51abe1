/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the index share: what it is made of, and how a record is stored. A record goes in whole with its
 * checksum, under its slot's sequence; one that others know besides through the journal, so that whatever moment the
 * daemon ends at, the next one finds the record as it was, or as it was to be.
 */
#ifndef DAEMON_STORE_INDEX_PRIVATE_H
#define DAEMON_STORE_INDEX_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "daemon/store/index-events.h"
#include "daemon/store/index-graves.h"
#include "daemon/store/index-heap.h"
#include "daemon/store/index-pieces.h"
#include "daemon/store/index-table.h"
#include "daemon/store/index-wakes.h"
#include "daemon/store/index.h"
#include "proto/seqlock.h"

#define INDEX_HEAD_WORDS (offsetof(LayoutSlot, region_id) / sizeof(uint64_t))
#define INDEX_KEY_WORDS_MAX (ALIGN_UP(FOLIO_KEY_BYTES_MAX, 8) / 8)

enum { AREA_BUCKETS, AREA_OVERFLOW, AREA_SLOTS, AREA_GRAVES, AREA_EVENTS, AREA_HEAP, _AREA_MAX };

struct Index {
        Region *region;
        LayoutIndexHeader *header;   /* and what it describes: */
        IndexTable table;
        LayoutSlot *slots;
        IndexGraves graves;
        IndexEvents events;
        IndexHeap heap;
        size_t n_slot_links;
        uint32_t *slot_links;        /* of free slots: the next + 1 */
        uint32_t first_free_slot;    /* + 1 */
        IndexPieces pieces[_AREA_MAX];
        IndexWakes wakes;
};

/* What most questions are about, which is less than the whole record: up to @size_bytes. */
static inline LayoutSlot index_get_head(const Index *index, uint32_t slot)
{
        LayoutSlot head;

        seqlock_copy_out(&head, &index->slots[slot], INDEX_HEAD_WORDS);
        return head;
}

/* Of a key of @n_key bytes, in whole words. */
void index_copy_key_words(const Index *index, uint32_t slot, size_t n_key, uint64_t ret[INDEX_KEY_WORDS_MAX]);

/* The whole record, with its checksum; a reader has the old one, the new one, or sees that it changes. */
void index_store_record(Index *index, uint32_t slot, const LayoutSlot *record);

void index_give_slot(Index *index, uint32_t slot);
void index_count_named(Index *index, int64_t change);

#endif
