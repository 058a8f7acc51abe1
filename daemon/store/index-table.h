/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buckets of an index, and the chains of overflow buckets on them. Knows entries, a slot's number and its tag,
 * and looks at nothing of a slot but its hash.
 *
 * Every function that changes a chain expects its head's sequence to be odd: that is the caller's, and the caller's
 * are the wake-ups. Invariants: a chain is dense, its entries fill bucket after bucket without a gap and no overflow
 * bucket is empty; so a share of the entries is all that overflow ever needs, and taking one cannot fail.
 */
#ifndef DAEMON_STORE_INDEX_TABLE_H
#define DAEMON_STORE_INDEX_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/layout.h"

#define INDEX_TABLE_ENTRIES_PER_BUCKET 3 /* on average, before the next bucket is split */

typedef struct IndexTable {
        LayoutIndexHeader *header;
        LayoutBucket *buckets;
        LayoutBucket *overflow;
        const LayoutSlot *slots;
        size_t n_overflow_links;
        uint32_t *overflow_links;    /* of free overflow buckets: the next + 1; private memory */
        uint32_t first_free_overflow; /* + 1 */
        uint32_t n_overflow_touched;
} IndexTable;

typedef struct IndexPlace {
        LayoutBucket *bucket;
        unsigned entry;
} IndexPlace;

/* Of a table for @n_slots_max objects. */
uint32_t index_table_plan_buckets(uint32_t n_slots_max);
uint32_t index_table_plan_overflow(uint32_t n_slots_max);

/* The pointers are set by the caller. -ENOMEM. */
int index_table_init(IndexTable *table, uint32_t n_overflow_max);
void index_table_deinit(IndexTable *table);

uint32_t index_table_bucket_of(const IndexTable *table, uint64_t hash);
uint64_t index_table_hash_of(const IndexTable *table, uint32_t slot);
/* The slot that the hash most probably leads to is fetched; the bucket should be there. False: none. */
bool index_table_prefetch_slot(const IndexTable *table, uint64_t hash, uint32_t *ret_slot);
LayoutBucket *index_table_next(const IndexTable *table, const LayoutBucket *bucket); /* NULL: the chain ends */

bool index_table_find(const IndexTable *table, uint32_t bucket, uint32_t slot, IndexPlace *ret);
void index_table_store(IndexPlace place, uint32_t entry, uint16_t tag);
void index_table_append(IndexTable *table, uint32_t bucket, uint32_t slot, uint16_t tag);
void index_table_remove(IndexTable *table, uint32_t bucket, IndexPlace gap);

/* The bucket that the next split takes from; is it time for one? */
bool index_table_is_split_due(const IndexTable *table, uint32_t *ret_bucket);

/* One bucket more: its entries leave the bucket said before, whose sequence is odd. */
void index_table_split(IndexTable *table);

/*
 * The next splits are known beforehand, and look at slots all over the index: those of the next one are fetched now,
 * and the bucket of the one after that.
 */
void index_table_prefetch_splits(const IndexTable *table);

#endif
