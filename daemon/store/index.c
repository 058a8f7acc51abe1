/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an index is made of, and how a name leads to a slot; how it changes is index-change's, the buckets are
 * index-table's, events index-events'. Invariants:
 *
 * - Entries and `next` of a chain change only while its head's sequence is odd.
 * - A record, and the heap blocks it names, change only while the slot's sequence is odd; a block is written before
 *   the first record that names it, and used again only after a record that does not has been written.
 * - The free list of slots is private memory.
 *
 * What a comment at a store calls "a reader" is client/lib/lookup.c.
 */
#include "daemon/store/index.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/array.h"
#include "daemon/store/index-private.h"

#define HEAP_BYTES_PER_SLOT 512
#define HEAP_BYTES_MIN (UINT64_C(16) << 20)

DEFINE_CLEANUP(Index *, cleanup_index, index_free)

/* --- geometry ----------------------------------------------------------------------------------------------------- */

static bool plan_area(uint64_t *end, uint64_t n, uint64_t each_bytes, uint64_t *ret_offset)
{
        uint64_t n_bytes;

        return checked_align_up(*end, HUGE_BYTES, ret_offset) && checked_mul(n, each_bytes, &n_bytes) &&
               checked_add(*ret_offset, n_bytes, end);
}

bool index_plan(uint32_t n_slots_max, uint32_t n_events, LayoutIndexHeader *ret)
{
        LayoutIndexHeader *h = ret;
        uint64_t end = sizeof(*h), n_heap;

        if (n_slots_max == 0 || n_slots_max == UINT32_MAX || !IS_POWER_OF_TWO(n_events))
                return false;
        h->n_slots_max = n_slots_max;
        h->n_events = n_events;
        h->n_buckets_max = index_table_plan_buckets(n_slots_max);
        h->n_overflow_max = index_table_plan_overflow(n_slots_max);
        h->n_graves = index_graves_plan(n_slots_max);
        n_heap = MAX((uint64_t)n_slots_max * HEAP_BYTES_PER_SLOT, HEAP_BYTES_MIN);
        if (!plan_area(&end, h->n_buckets_max, sizeof(LayoutBucket), &h->buckets_offset) ||
            !plan_area(&end, h->n_overflow_max, sizeof(LayoutBucket), &h->overflow_offset) ||
            !plan_area(&end, h->n_slots_max, sizeof(LayoutSlot), &h->slots_offset) ||
            !plan_area(&end, h->n_graves, sizeof(LayoutGrave), &h->graves_offset) ||
            !plan_area(&end, h->n_events, sizeof(LayoutEvent), &h->events_offset) ||
            !plan_area(&end, n_heap, 1, &h->heap_offset) || !checked_align_up(end, HUGE_BYTES, &end))
                return false;
        h->heap_bytes = n_heap;
        h->region_bytes = end;
        return true;
}

static int make_region(Index *index, const IndexConfig *config, const LayoutIndexHeader *plan)
{
        int r;

        r = region_new(config->backend, "folio-index", plan->region_bytes, &index->region);
        if (r < 0)
                return r;
        r = region_map(index->region, true);
        if (r < 0)
                return r;
        /* After this only the mapping above can write, and only as long as this process lives. */
        r = region_seal_to_daemon(index->region);
        if (r < 0)
                return r;
        return region_open_read_only(index->region);
}

static void fill_header(Index *index, const IndexConfig *config, const LayoutIndexHeader *plan)
{
        LayoutIndexHeader *h = index->header;

        /* Nobody has the region yet: plain stores. */
        *h = *plan;
        h->magic = LAYOUT_INDEX_MAGIC;
        h->layout_version = LAYOUT_VERSION;
        h->header_bytes = sizeof(*h);
        h->region_bytes = index->region->size_bytes;
        h->instance = config->instance;
        h->index_generation = config->generation;
        h->hash_seed = config->hash_seed;
        h->namespace_id = config->namespace_id;
        memcpy(h->namespace_name, config->name, strnlen(config->name, sizeof(h->namespace_name) - 1));
        atomic_store_explicit(&h->n_buckets, 1, memory_order_release);
}

static void init_pieces(Index *index, const LayoutIndexHeader *h)
{
        const uint64_t ends[_AREA_MAX] = { h->overflow_offset, h->slots_offset, h->graves_offset,
                                           h->events_offset, h->heap_offset, h->heap_offset + h->heap_bytes };
        uint64_t begin = h->buckets_offset;

        for (int i = 0; i < _AREA_MAX; i++) {
                index_pieces_init(&index->pieces[i], begin, ends[i] - begin);
                begin = ends[i];
        }
}

bool index_take_pieces(Index *index, uint64_t n_bytes_max, uint64_t *ret_offset_bytes, uint64_t *ret_n_bytes)
{
        const LayoutIndexHeader *h = index->header;
        uint64_t n_events = atomic_load_explicit(&h->event_sequence, memory_order_relaxed);
        const uint64_t used_bytes[_AREA_MAX] = {
                [AREA_BUCKETS] = (uint64_t)atomic_load_explicit(&h->n_buckets, memory_order_relaxed) *
                                 sizeof(LayoutBucket),
                [AREA_OVERFLOW] = (uint64_t)index->table.n_overflow_touched * sizeof(LayoutBucket),
                [AREA_SLOTS] = (uint64_t)index_n_slots(index) * sizeof(LayoutSlot),
                [AREA_GRAVES] = index_graves_used_bytes(&index->graves),
                [AREA_EVENTS] = MIN(n_events, (uint64_t)h->n_events) * sizeof(LayoutEvent),
                [AREA_HEAP] = (uint64_t)index->heap.n_units_touched * LAYOUT_HEAP_UNIT_BYTES,
        };

        for (int i = 0; i < _AREA_MAX; i++)
                if (index_pieces_take(&index->pieces[i], used_bytes[i], n_bytes_max, ret_offset_bytes, ret_n_bytes))
                        return true;
        return false;
}

int index_new(const IndexConfig *config, Index **ret)
{
        _cleanup_(cleanup_index) Index *index = NULL;
        LayoutIndexHeader plan;
        uint8_t *base;
        int r;

        memset(&plan, 0, sizeof(plan));
        if (!index_plan(config->n_slots_max, config->n_events, &plan))
                return -EOVERFLOW;
        index = calloc(1, sizeof(*index));
        if (!index)
                return -ENOMEM;
        index->n_slot_links = plan.n_slots_max;
        index->slot_links = array_new(index->n_slot_links, sizeof(*index->slot_links));
        if (!index->slot_links)
                return -ENOMEM;
        r = index_table_init(&index->table, plan.n_overflow_max);
        if (r < 0)
                return r;
        r = make_region(index, config, &plan);
        if (r < 0)
                return r;
        base = index->region->data;
        index->header = (LayoutIndexHeader *)(void *)base;
        index->slots = (LayoutSlot *)(void *)(base + plan.slots_offset);
        index->table.header = index->header;
        index->table.buckets = (LayoutBucket *)(void *)(base + plan.buckets_offset);
        index->table.overflow = (LayoutBucket *)(void *)(base + plan.overflow_offset);
        index->table.slots = index->slots;
        index->graves = (IndexGraves){ (LayoutGrave *)(void *)(base + plan.graves_offset), plan.n_graves, 0 };
        index->events = (IndexEvents){ index->header, (LayoutEvent *)(void *)(base + plan.events_offset) };
        index_heap_init(&index->heap, base + plan.heap_offset, plan.heap_bytes);
        init_pieces(index, &plan);
        fill_header(index, config, &plan);
        index->wakes.header = index->header;
        index->wakes.buckets = index->table.buckets;
        index->wakes.has_sleepers = config->has_sleepers;
        index->wakes.userdata = config->userdata;
        *ret = steal_ptr(&index);
        return 0;
}

void index_free(Index *index)
{
        if (!index)
                return;
        if (index->region)
                region_unref(index->region);
        index_table_deinit(&index->table);
        array_free(index->slot_links, index->n_slot_links, sizeof(*index->slot_links));
        free(index);
}

Region *index_region(Index *index)
{
        return index->region;
}

uint32_t index_n_slots(const Index *index)
{
        return atomic_load_explicit(&index->header->n_slots, memory_order_relaxed);
}

uint64_t index_n_named(const Index *index)
{
        return atomic_load_explicit(&index->header->n_objects, memory_order_relaxed);
}

uint64_t index_hash(const Index *index, Key key)
{
        return key_hash(key.bytes, key.n_bytes, index->header->hash_seed);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

void index_get(const Index *index, uint32_t slot, LayoutSlot *ret)
{
        assert(slot < index->header->n_slots_max);
        seqlock_copy_out(ret, &index->slots[slot], LAYOUT_SLOT_WORDS);
}

static size_t key_tail_bytes(size_t n_key)
{
        return n_key > LAYOUT_SLOT_KEY_BYTES ? n_key - LAYOUT_SLOT_KEY_BYTES : 0;
}

void index_copy_key_words(const Index *index, uint32_t slot, size_t n_key, uint64_t ret[INDEX_KEY_WORDS_MAX])
{
        size_t n_tail = key_tail_bytes(n_key);
        LayoutSlot record;

        seqlock_copy_out(ret, index->slots[slot].key, (n_key - n_tail + 7) / 8);
        if (n_tail == 0)
                return;
        index_get(index, slot, &record);
        seqlock_copy_out(ret + LAYOUT_SLOT_KEY_BYTES / 8, index_heap_at(&index->heap, record.heap_block),
                         (n_tail + 7) / 8);
}

size_t index_copy_key(const Index *index, uint32_t slot, char ret[FOLIO_KEY_BYTES_MAX])
{
        size_t n_key = index_get_head(index, slot).key_bytes;
        uint64_t words[INDEX_KEY_WORDS_MAX];

        index_copy_key_words(index, slot, n_key, words);
        memcpy(ret, words, n_key);
        return n_key;
}

static bool has_key(const Index *index, uint32_t slot, Key key, uint64_t hash)
{
        uint64_t words[INDEX_KEY_WORDS_MAX];
        LayoutSlot head = index_get_head(index, slot);

        if (head.hash != hash || head.key_bytes != key.n_bytes)
                return false;
        index_copy_key_words(index, slot, key.n_bytes, words);
        return memcmp(words, key.bytes, key.n_bytes) == 0;
}

static uint32_t take_slot(Index *index)
{
        uint32_t n = index_n_slots(index), slot;

        if (index->first_free_slot) {
                slot = index->first_free_slot - 1;
                index->first_free_slot = index->slot_links[slot];
                return slot;
        }
        if (n >= index->header->n_slots_max)
                return UINT32_MAX;
        /* For readers that go through all slots: what is below is zero, which is FREE. */
        atomic_store_explicit(&index->header->n_slots, n + 1, memory_order_release);
        return n;
}

void index_give_slot(Index *index, uint32_t slot)
{
        index->slot_links[slot] = index->first_free_slot;
        index->first_free_slot = slot + 1;
}

int index_begin_slot(Index *index, uint64_t hash, Key key, Key content_type, Key metadata, uint32_t *ret_slot,
                     LayoutSlot *ret_record)
{
        LayoutSlot *record = ret_record;
        uint32_t slot = take_slot(index);
        uint64_t n_heap;

        assert(key.n_bytes > 0 && key.n_bytes <= FOLIO_KEY_BYTES_MAX);
        assert(content_type.n_bytes <= FOLIO_CONTENT_TYPE_BYTES_MAX && metadata.n_bytes <= FOLIO_METADATA_BYTES_MAX);
        if (slot == UINT32_MAX)
                return INDEX_E_SLOTS;
        memset(record, 0, sizeof(*record));
        record->hash = hash;
        record->key_bytes = (uint8_t)key.n_bytes;
        record->content_type_bytes = (uint8_t)content_type.n_bytes;
        record->metadata_bytes = (uint16_t)metadata.n_bytes;
        memcpy(record->key, key.bytes, MIN(key.n_bytes, LAYOUT_SLOT_KEY_BYTES));
        n_heap = layout_heap_bytes(record);
        if (n_heap > 0) {
                if (!index_heap_take(&index->heap, n_heap, &record->heap_block)) {
                        index_give_slot(index, slot);
                        return INDEX_E_HEAP;
                }
                index_heap_store_texts(&index->heap, record->heap_block, key, content_type, metadata);
                /* Still FREE; but the daemon must find the block again if the object never comes to be. */
                index_store_record(index, slot, record);
        }
        *ret_slot = slot;
        return 0;
}

int index_reserve_slot(Index *index, Key key, Key content_type, Key metadata, uint32_t *ret_slot,
                       LayoutSlot *ret_record)
{
        int r = index_begin_slot(index, index_hash(index, key), key, content_type, metadata, ret_slot, ret_record);

        if (r == 0)
                index_store_record(index, *ret_slot, ret_record);
        return r;
}

void index_prefetch(const Index *index, uint64_t hash)
{
        __builtin_prefetch(&index->table.buckets[index_table_bucket_of(&index->table, hash)], 1);
}

bool index_prefetch_slot(const Index *index, uint64_t hash, uint32_t *ret_slot)
{
        return index_table_prefetch_slot(&index->table, hash, ret_slot);
}

bool index_find(const Index *index, Key key, uint64_t hash, uint32_t *ret_slot)
{
        uint16_t tag = layout_tag(hash);

        for (LayoutBucket *b = &index->table.buckets[index_table_bucket_of(&index->table, hash)]; b;
             b = index_table_next(&index->table, b))
                for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                        uint32_t entry = atomic_load_explicit(&b->slot[i], memory_order_relaxed);

                        if (!entry)
                                return false; /* chains are dense */
                        if (atomic_load_explicit(&b->tag[i], memory_order_relaxed) == tag &&
                            has_key(index, entry - 1, key, hash)) {
                                *ret_slot = entry - 1;
                                return true;
                        }
                }
        return false;
}
