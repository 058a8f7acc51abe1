/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: finding, adding, taking out, splitting. Comments at stores call client/lib/lookup.c "a reader". */
#include "daemon/store/index-table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macro.h"
#include "daemon/memory/array.h"
#include "proto/seqlock.h"

uint32_t index_table_plan_buckets(uint32_t n_slots_max)
{
        return n_slots_max / INDEX_TABLE_ENTRIES_PER_BUCKET + 1;
}

/* Dense chains need an eighth of the entries; a chain that is being split needs its own length once more. */
uint32_t index_table_plan_overflow(uint32_t n_slots_max)
{
        return n_slots_max / LAYOUT_BUCKET_ENTRIES * 2 + 16;
}

int index_table_init(IndexTable *table, uint32_t n_overflow_max)
{
        table->n_overflow_links = n_overflow_max;
        table->overflow_links = array_new(n_overflow_max, sizeof(*table->overflow_links));
        return table->overflow_links ? 0 : -ENOMEM;
}

void index_table_deinit(IndexTable *table)
{
        array_free(table->overflow_links, table->n_overflow_links, sizeof(*table->overflow_links));
        table->overflow_links = NULL;
}

uint32_t index_table_bucket_of(const IndexTable *table, uint64_t hash)
{
        return layout_bucket(hash, atomic_load_explicit(&table->header->n_buckets, memory_order_relaxed));
}

uint64_t index_table_hash_of(const IndexTable *table, uint32_t slot)
{
        uint64_t hash;

        seqlock_copy_out(&hash, &table->slots[slot].hash, 1);
        return hash;
}

LayoutBucket *index_table_next(const IndexTable *table, const LayoutBucket *bucket)
{
        uint32_t next = atomic_load_explicit(&bucket->next, memory_order_relaxed);

        return next ? &table->overflow[next - 1] : NULL;
}

bool index_table_prefetch_slot(const IndexTable *table, uint64_t hash, uint32_t *ret_slot)
{
        const LayoutBucket *bucket = &table->buckets[index_table_bucket_of(table, hash)];
        uint16_t tag = layout_tag(hash);

        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                uint32_t entry = atomic_load_explicit(&bucket->slot[i], memory_order_relaxed);

                if (!entry)
                        return false;
                if (atomic_load_explicit(&bucket->tag[i], memory_order_relaxed) != tag)
                        continue;
                __builtin_prefetch(&table->slots[entry - 1], 1);
                __builtin_prefetch(table->slots[entry - 1].key, 1);
                *ret_slot = entry - 1;
                return true;
        }
        return false;
}

static uint32_t entry_at(IndexPlace place)
{
        return atomic_load_explicit(&place.bucket->slot[place.entry], memory_order_relaxed);
}

/* Under the sequence of the chain, which is what a reader goes by: order among these does not matter. */
void index_table_store(IndexPlace place, uint32_t entry, uint16_t tag)
{
        atomic_store_explicit(&place.bucket->tag[place.entry], tag, memory_order_relaxed);
        atomic_store_explicit(&place.bucket->slot[place.entry], entry, memory_order_relaxed);
}

bool index_table_find(const IndexTable *table, uint32_t bucket, uint32_t slot, IndexPlace *ret)
{
        for (LayoutBucket *b = &table->buckets[bucket]; b; b = index_table_next(table, b))
                for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++)
                        if (atomic_load_explicit(&b->slot[i], memory_order_relaxed) == slot + 1) {
                                *ret = (IndexPlace){ b, i };
                                return true;
                        }
        return false;
}

/* Empty, and linked to nothing. Cannot fail: see index_plan(). */
static uint32_t take_overflow(IndexTable *table)
{
        uint32_t n;

        if (table->first_free_overflow) {
                n = table->first_free_overflow - 1;
                table->first_free_overflow = table->overflow_links[n];
        } else {
                n = table->n_overflow_touched++;
        }
        assert(n < table->header->n_overflow_max);
        return n;
}

static void give_overflow(IndexTable *table, uint32_t n)
{
        table->overflow_links[n] = table->first_free_overflow;
        table->first_free_overflow = n + 1;
}

/* At the end of a chain whose sequence is odd, or that no reader knows of. */
static void append_entry(IndexTable *table, LayoutBucket *head, uint32_t slot, uint16_t tag)
{
        LayoutBucket *last = head, *next;
        uint32_t n;

        while ((next = index_table_next(table, last)))
                last = next;
        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++)
                if (!entry_at((IndexPlace){ last, i })) {
                        index_table_store((IndexPlace){ last, i }, slot + 1, tag);
                        return;
                }
        n = take_overflow(table);
        index_table_store((IndexPlace){ &table->overflow[n], 0 }, slot + 1, tag);
        /* For a reader under way in this chain: the bucket is whole before it can be reached. */
        atomic_store_explicit(&last->next, n + 1, memory_order_release);
}

/*
 * Ends a chain before @end, the place of the first entry that is no more: clears what is behind it, gives overflow
 * buckets without entries back. @before is the bucket before the one of @end, if any.
 */
static void cut_chain(IndexTable *table, LayoutBucket *before, IndexPlace end)
{
        LayoutBucket *bucket = end.bucket;
        unsigned from = end.entry;
        uint32_t next;

        if (before && from == 0)
                atomic_store_explicit(&before->next, 0, memory_order_relaxed);
        while (bucket) {
                next = atomic_load_explicit(&bucket->next, memory_order_relaxed);
                for (unsigned i = from; i < LAYOUT_BUCKET_ENTRIES; i++)
                        index_table_store((IndexPlace){ bucket, i }, 0, 0);
                atomic_store_explicit(&bucket->next, 0, memory_order_relaxed);
                /* A reader still in here finds nothing, and then its chain's sequence changed. */
                if (before && from == 0)
                        give_overflow(table, (uint32_t)(bucket - table->overflow));
                before = bucket;
                from = 0;
                bucket = next ? &table->overflow[next - 1] : NULL;
        }
}

/* Fills the gap with the chain's last entry, so that the chain stays dense. */
void index_table_remove(IndexTable *table, uint32_t bucket, IndexPlace gap)
{
        LayoutBucket *before = NULL, *last = &table->buckets[bucket], *next;
        unsigned n = LAYOUT_BUCKET_ENTRIES;
        IndexPlace end;

        while ((next = index_table_next(table, last))) {
                before = last;
                last = next;
        }
        while (n > 0 && !entry_at((IndexPlace){ last, n - 1 }))
                n--;
        assert(n > 0);
        end = (IndexPlace){ last, n - 1 };
        index_table_store(gap, entry_at(end), atomic_load_explicit(&last->tag[end.entry], memory_order_relaxed));
        cut_chain(table, before, end);
}

void index_table_append(IndexTable *table, uint32_t bucket, uint32_t slot, uint16_t tag)
{
        append_entry(table, &table->buckets[bucket], slot, tag);
}

/* The number of the new bucket without its highest bit. */
static uint32_t split_source(uint32_t new)
{
        return new & ~(UINT32_C(1) << (31 - __builtin_clz(new)));
}

bool index_table_is_split_due(const IndexTable *table, uint32_t *ret_bucket)
{
        const LayoutIndexHeader *h = table->header;
        uint32_t n = atomic_load_explicit(&h->n_buckets, memory_order_relaxed);
        uint64_t n_objects = atomic_load_explicit(&h->n_objects, memory_order_relaxed);

        if (n >= h->n_buckets_max || n_objects <= (uint64_t)n * INDEX_TABLE_ENTRIES_PER_BUCKET)
                return false;
        *ret_bucket = split_source(n);
        return true;
}

void index_table_prefetch_splits(const IndexTable *table)
{
        uint32_t n = atomic_load_explicit(&table->header->n_buckets, memory_order_relaxed);
        const LayoutBucket *bucket = &table->buckets[split_source(n)];

        if (n + 1 >= table->header->n_buckets_max)
                return;
        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                uint32_t entry = atomic_load_explicit(&bucket->slot[i], memory_order_relaxed);

                if (!entry)
                        break;
                __builtin_prefetch(&table->slots[entry - 1], 0);
        }
        __builtin_prefetch(&table->buckets[split_source(n + 1)], 1);
}

/*
 * One bucket more. The entries that belong to it leave the bucket it splits from, whose sequence is odd all the time.
 * A reader that goes by the old number of buckets comes to the old bucket: it sees it change, or finds afterwards that
 * the number has changed. One that goes by the new number finds the new bucket whole.
 */
void index_table_split(IndexTable *table)
{
        uint32_t new = atomic_load_explicit(&table->header->n_buckets, memory_order_relaxed);
        uint32_t old = split_source(new);
        LayoutBucket *before = NULL;
        IndexPlace to = { &table->buckets[old], 0 };

        for (LayoutBucket *b = &table->buckets[old]; b; b = index_table_next(table, b))
                for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                        uint32_t entry = entry_at((IndexPlace){ b, i });
                        uint16_t tag = atomic_load_explicit(&b->tag[i], memory_order_relaxed);

                        if (!entry)
                                break;
                        if (layout_bucket(index_table_hash_of(table, entry - 1), new + 1) == new) {
                                append_entry(table, &table->buckets[new], entry - 1, tag);
                                continue;
                        }
                        if (to.entry == LAYOUT_BUCKET_ENTRIES) {
                                before = to.bucket;
                                to = (IndexPlace){ index_table_next(table, to.bucket), 0 };
                        }
                        /* Never past the entry that is being read. */
                        index_table_store(to, entry, tag);
                        to.entry++;
                }
        if (to.entry < LAYOUT_BUCKET_ENTRIES) {
                cut_chain(table, before, to);
        } else if (index_table_next(table, to.bucket)) {
                cut_chain(table, to.bucket, (IndexPlace){ index_table_next(table, to.bucket), 0 });
        }
        /* For readers: who sees the number sees what the new bucket holds. */
        atomic_store_explicit(&table->header->n_buckets, new + 1, memory_order_release);
}
