/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots, their records and texts, and graves; the buckets are index-table's, events index-events'. Invariants:
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
#include "daemon/store/index-events.h"
#include "daemon/store/index-graves.h"
#include "daemon/store/index-heap.h"
#include "daemon/store/index-pieces.h"
#include "daemon/store/index-table.h"
#include "daemon/store/index-wakes.h"
#include "proto/seqlock.h"

#define HEAP_BYTES_PER_SLOT 512
#define HEAP_BYTES_MIN (UINT64_C(16) << 20)
#define CLOSE_WAKES_MAX 1024u /* a piece of a millisecond */
#define SLOT_HEAD_WORDS (offsetof(LayoutSlot, region_id) / sizeof(uint64_t))
#define KEY_WORDS_MAX (ALIGN_UP(FOLIO_KEY_BYTES_MAX, 8) / 8)

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

/* What most questions are about, which is less than the whole record: up to @size_bytes. */
static LayoutSlot get_head(const Index *index, uint32_t slot)
{
        LayoutSlot head;

        seqlock_copy_out(&head, &index->slots[slot], SLOT_HEAD_WORDS);
        return head;
}

/*
 * The first @n_words of the record under its sequence: a reader has the old one, the new one, or sees that it changes.
 */
static void store_words(Index *index, uint32_t slot, const LayoutSlot *record, size_t n_words)
{
        LayoutSlot *shared = &index->slots[slot];
        LayoutSlot first;

        memcpy(&first, record, sizeof(uint64_t));
        seqlock_write_begin(&shared->sequence);
        /* The first word holds the sequence: it goes in as it stands, odd. */
        first.sequence = atomic_load_explicit((_Atomic uint32_t *)&shared->sequence, memory_order_relaxed);
        seqlock_copy_in(shared, &first, 1);
        seqlock_copy_in((uint64_t *)(void *)shared + 1, (const uint64_t *)(const void *)record + 1, n_words - 1);
        seqlock_write_end(&shared->sequence);
}

static void store_record(Index *index, uint32_t slot, const LayoutSlot *record)
{
        store_words(index, slot, record, LAYOUT_SLOT_WORDS);
}

static size_t key_tail_bytes(size_t n_key)
{
        return n_key > LAYOUT_SLOT_KEY_BYTES ? n_key - LAYOUT_SLOT_KEY_BYTES : 0;
}

/* Of a key of @n_key bytes, in whole words. */
static void copy_key_words(const Index *index, uint32_t slot, size_t n_key, uint64_t ret[KEY_WORDS_MAX])
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
        size_t n_key = get_head(index, slot).key_bytes;
        uint64_t words[KEY_WORDS_MAX];

        copy_key_words(index, slot, n_key, words);
        memcpy(ret, words, n_key);
        return n_key;
}

static bool has_key(const Index *index, uint32_t slot, Key key, uint64_t hash)
{
        uint64_t words[KEY_WORDS_MAX];
        LayoutSlot head = get_head(index, slot);

        if (head.hash != hash || head.key_bytes != key.n_bytes)
                return false;
        copy_key_words(index, slot, key.n_bytes, words);
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

static void give_slot(Index *index, uint32_t slot)
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
                        give_slot(index, slot);
                        return INDEX_E_HEAP;
                }
                index_heap_store_texts(&index->heap, record->heap_block, key, content_type, metadata);
                /* Still FREE; but the daemon must find the block again if the object never comes to be. */
                store_record(index, slot, record);
        }
        *ret_slot = slot;
        return 0;
}

int index_reserve_slot(Index *index, Key key, Key content_type, Key metadata, uint32_t *ret_slot,
                       LayoutSlot *ret_record)
{
        int r = index_begin_slot(index, index_hash(index, key), key, content_type, metadata, ret_slot, ret_record);

        if (r == 0)
                store_record(index, *ret_slot, ret_record);
        return r;
}

void index_free_slot(Index *index, uint32_t slot)
{
        LayoutSlot record = { 0 }, empty;

        index_get(index, slot, &record);
        assert(record.state == LAYOUT_SLOT_FREE || record.state == LAYOUT_SLOT_RETRACTED);
        memset(&empty, 0, 2 * sizeof(uint64_t));
        /*
         * Before its block can be another's: a reader that copies texts by the old record sees that it is over. State
         * and generation are enough; the rest of a free slot is of no meaning.
         */
        store_words(index, slot, &empty, 2);
        if (record.key_bytes == 0)
                record.heap_block = record.flags = 0; /* begun and never written: what stands there is older */
        if (record.heap_block)
                index_heap_give(&index->heap, record.heap_block, layout_heap_bytes(&record));
        if (record.flags & LAYOUT_FLAG_ZEROS)
                index_heap_give_extents(&index->heap, record.extents_block);
        give_slot(index, slot);
}

void index_write(Index *index, uint32_t slot, const LayoutSlot *record)
{
        store_record(index, slot, record);
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

/* --- waking ------------------------------------------------------------------------------------------------------- */

static void change_begin(Index *index, uint32_t bucket)
{
        seqlock_write_begin((uint32_t *)&index->table.buckets[bucket].sequence);
}

/* For readers, and for sleepers, whose word has another value from now on; the wake-up itself can wait a little. */
static void change_end(Index *index, uint32_t bucket)
{
        seqlock_write_end((uint32_t *)&index->table.buckets[bucket].sequence);
        index_wakes_mark(&index->wakes, bucket);
}

bool index_flush(Index *index)
{
        return index_wakes_flush(&index->wakes);
}

void index_close(Index *index)
{
        uint32_t n = MIN(atomic_load_explicit(&index->header->n_buckets, memory_order_relaxed), CLOSE_WAKES_MAX);

        atomic_store_explicit(&index->header->is_closed, 1, memory_order_release);
        /*
         * The value changes too, so that who is about to sleep does not. In larger tables some find out by their time
         * slice.
         */
        for (uint32_t i = 0; i < n; i++) {
                change_begin(index, i);
                seqlock_write_end((uint32_t *)&index->table.buckets[i].sequence);
        }
        atomic_fetch_add_explicit(&index->header->event_futex, 1, memory_order_release);
        index_wakes_all(&index->wakes, n);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void count_named(Index *index, int64_t change)
{
        atomic_store_explicit(&index->header->n_objects, index_n_named(index) + (uint64_t)change,
                              memory_order_relaxed);
}

void index_insert(Index *index, uint32_t slot)
{
        uint64_t hash = index_table_hash_of(&index->table, slot);
        uint32_t bucket = index_table_bucket_of(&index->table, hash);

        change_begin(index, bucket);
        index_table_append(&index->table, bucket, slot, layout_tag(hash));
        /* For readers and sleepers: the record has been written before, so the name leads to a whole object. */
        change_end(index, bucket);
        count_named(index, 1);
        if (index_table_is_split_due(&index->table, &bucket)) {
                change_begin(index, bucket);
                index_table_split(&index->table);
                change_end(index, bucket);
                index_table_prefetch_splits(&index->table);
        }
}

static void store_state(Index *index, uint32_t slot, uint8_t state)
{
        LayoutSlot head = get_head(index, slot);

        head.state = state;
        store_words(index, slot, &head, 1);
}

void index_update(Index *index, uint32_t slot, const LayoutSlot *record)
{
        uint32_t bucket = index_table_bucket_of(&index->table, record->hash);
        IndexPlace place;

        if (get_head(index, slot).state == record->state || !index_table_find(&index->table, bucket, slot, &place)) {
                store_record(index, slot, record);
                return;
        }
        /* The bucket changes as well, though no entry does: that is what a waiting get sleeps on. */
        change_begin(index, bucket);
        store_record(index, slot, record);
        change_end(index, bucket);
}

void index_update_extents(Index *index, uint32_t slot, LayoutSlot *record, const LayoutExtents *extents)
{
        LayoutSlot before = { 0 };

        index_get(index, slot, &before);
        record->flags &= (uint8_t)~LAYOUT_FLAG_ZEROS;
        record->extents_block = 0;
        if (extents->n_extents > 0 && index_heap_take_extents(&index->heap, extents, &record->extents_block))
                record->flags |= LAYOUT_FLAG_ZEROS;
        index_update(index, slot, record);
        /* After the record that named it is gone, as in index_free_slot(). */
        if (before.flags & LAYOUT_FLAG_ZEROS)
                index_heap_give_extents(&index->heap, before.extents_block);
}

void index_replace(Index *index, uint32_t old_slot, uint32_t new_slot)
{
        uint64_t hash = index_table_hash_of(&index->table, old_slot);
        uint32_t bucket = index_table_bucket_of(&index->table, hash);
        IndexPlace place;
        bool is_there = index_table_find(&index->table, bucket, old_slot, &place);

        assert(is_there && index_table_hash_of(&index->table, new_slot) == hash);
        change_begin(index, bucket);
        /* A reader that has the old entry already still finds a good object behind it; then, that it is RETRACTED. */
        index_table_store(place, new_slot + 1, layout_tag(hash));
        store_state(index, old_slot, LAYOUT_SLOT_RETRACTED);
        change_end(index, bucket);
}

void index_retract(Index *index, uint32_t slot, uint8_t reason)
{
        uint64_t hash = index_table_hash_of(&index->table, slot);
        uint32_t bucket = index_table_bucket_of(&index->table, hash);
        IndexPlace place;

        if (!index_table_find(&index->table, bucket, slot, &place)) {
                store_state(index, slot, LAYOUT_SLOT_RETRACTED);
                return;
        }
        change_begin(index, bucket);
        /* For those who pin: from here on, who looks at the slot after its pin takes the pin away again. */
        store_state(index, slot, LAYOUT_SLOT_RETRACTED);
        /* Before the entry goes: a reader that finds no entry finds the grave. */
        if (reason)
                index_graves_write(&index->graves, hash, reason);
        index_table_remove(&index->table, bucket, place);
        change_end(index, bucket);
        count_named(index, -1);
}

uint8_t index_grave_reason(const Index *index, uint64_t hash)
{
        return index_graves_read(&index->graves, hash);
}

void index_event_of(Index *index, enum folio_event_type type, uint32_t slot, const LayoutSlot *record, uint64_t now_ns)
{
        uint64_t words[KEY_WORDS_MAX];
        const void *key = record->key;

        if (record->key_bytes > LAYOUT_SLOT_KEY_BYTES) {
                copy_key_words(index, slot, record->key_bytes, words);
                key = words;
        }
        index_events_add(&index->events, type, slot, record, key, now_ns);
        index->wakes.has_events = true;
}

void index_event(Index *index, enum folio_event_type type, uint32_t slot, uint64_t now_ns)
{
        LayoutSlot record = get_head(index, slot);

        seqlock_copy_out(record.key, index->slots[slot].key, LAYOUT_SLOT_KEY_BYTES / 8);
        index_event_of(index, type, slot, &record, now_ns);
}
