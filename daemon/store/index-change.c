/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an index changes: records, names, events. See index.h and index-private.h.
 *
 * What the next daemon finds (index-old.h), should this one end in between: of a record that nobody knows yet an odd
 * sequence, or all of it; of one that is known the journal's, or all of it; of one that is being retracted all of it
 * but for the state and the checksum's part of that, and an odd sequence.
 */
#include "daemon/store/index-private.h"

#include <assert.h>
#include <string.h>

#include "daemon/store/index-checksum.h"

#define CLOSE_WAKES_MAX 1024u /* a piece of a millisecond */

/* --- records ------------------------------------------------------------------------------------------------------ */

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

static uint32_t checksum_of(const Index *index, uint32_t slot, const LayoutSlot *record)
{
        const void *texts = record->heap_block ? index_heap_at(&index->heap, record->heap_block) : NULL;
        const void *extents = record->flags & LAYOUT_FLAG_ZEROS ? index_heap_at(&index->heap, record->extents_block) :
                                                                  NULL;

        return index_checksum(slot, record, texts, extents);
}

void index_store_record(Index *index, uint32_t slot, const LayoutSlot *record)
{
        LayoutSlot copy = *record;

        /* Nobody will look at a free one. */
        copy.checksum = record->state == LAYOUT_SLOT_FREE ? 0 : checksum_of(index, slot, record);
        store_words(index, slot, &copy, LAYOUT_SLOT_WORDS);
}

/* Others know it: it goes through the journal. */
static void store_known_record(Index *index, uint32_t slot, const LayoutSlot *record)
{
        LayoutIndexHeader *h = index->header;
        LayoutSlot copy = *record;

        copy.sequence = 0;
        copy.checksum = checksum_of(index, slot, record);
        seqlock_copy_in(&h->journal, &copy, LAYOUT_SLOT_WORDS);
        /* For the next daemon: each of these is in memory before what comes after it. */
        atomic_store_explicit(&h->journal_slot, slot + 1, memory_order_release);
        atomic_thread_fence(memory_order_release);
        store_words(index, slot, &copy, LAYOUT_SLOT_WORDS);
        atomic_store_explicit(&h->journal_slot, 0, memory_order_release);
}

/*
 * Until the end the journal says that it is as it was, whatever is written under the sequence: what it was is not
 * given away before.
 */
bool index_move(Index *index, uint32_t slot, const LayoutSlot *record, bool (*is_pinned)(void *userdata),
                void *userdata)
{
        LayoutIndexHeader *h = index->header;
        LayoutSlot *shared = &index->slots[slot];
        LayoutSlot old, copy = *record;
        bool is_moved;

        seqlock_copy_out(&old, shared, LAYOUT_SLOT_WORDS);
        seqlock_copy_in(&h->journal, &old, LAYOUT_SLOT_WORDS);
        atomic_store_explicit(&h->journal_slot, slot + 1, memory_order_release);
        atomic_thread_fence(memory_order_release);
        copy.checksum = checksum_of(index, slot, record);
        seqlock_write_begin(&shared->sequence);
        copy.sequence = atomic_load_explicit((_Atomic uint32_t *)&shared->sequence, memory_order_relaxed);
        /* Who pins: either their pin is seen below, or they see, when they look after it, that the slot changes. */
        atomic_thread_fence(memory_order_seq_cst);
        is_moved = !is_pinned(userdata);
        if (is_moved)
                seqlock_copy_in(shared, &copy, LAYOUT_SLOT_WORDS);
        seqlock_write_end(&shared->sequence);
        atomic_store_explicit(&h->journal_slot, 0, memory_order_release);
        return is_moved;
}

/*
 * Without the journal, which would cost each delete: the record stays, and what of it changes tells the next daemon all
 * there is to know.
 */
static void retract_slot(Index *index, uint32_t slot)
{
        LayoutSlot *shared = &index->slots[slot];
        LayoutSlot head, tail;

        seqlock_copy_out(&head, shared, 1);
        seqlock_copy_out(&tail.checksum, &shared->checksum, 1);
        tail.checksum = index_checksum_change_state(tail.checksum, head.state, LAYOUT_SLOT_RETRACTED);
        head.state = LAYOUT_SLOT_RETRACTED;
        seqlock_write_begin(&shared->sequence);
        head.sequence = atomic_load_explicit((_Atomic uint32_t *)&shared->sequence, memory_order_relaxed);
        seqlock_copy_in(shared, &head, 1);
        seqlock_copy_in(&shared->checksum, &tail.checksum, 1);
        seqlock_write_end(&shared->sequence);
}

void index_write(Index *index, uint32_t slot, const LayoutSlot *record)
{
        index_store_record(index, slot, record);
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
        index_give_slot(index, slot);
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

void index_count_named(Index *index, int64_t change)
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
        index_count_named(index, 1);
        if (index_table_is_split_due(&index->table, &bucket)) {
                change_begin(index, bucket);
                index_table_split(&index->table);
                change_end(index, bucket);
                index_table_prefetch_splits(&index->table);
        }
}

void index_update(Index *index, uint32_t slot, const LayoutSlot *record)
{
        uint32_t bucket = index_table_bucket_of(&index->table, record->hash);
        IndexPlace place;

        if (index_get_head(index, slot).state == record->state || !index_table_find(&index->table, bucket, slot, &place)) {
                store_known_record(index, slot, record);
                return;
        }
        /* The bucket changes as well, though no entry does: that is what a waiting get sleeps on. */
        change_begin(index, bucket);
        store_known_record(index, slot, record);
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
        retract_slot(index, old_slot);
        change_end(index, bucket);
}

void index_retract(Index *index, uint32_t slot, uint8_t reason)
{
        uint64_t hash = index_table_hash_of(&index->table, slot);
        uint32_t bucket = index_table_bucket_of(&index->table, hash);
        IndexPlace place;

        if (!index_table_find(&index->table, bucket, slot, &place)) {
                retract_slot(index, slot);
                return;
        }
        change_begin(index, bucket);
        /* For those who pin: from here on, who looks at the slot after its pin takes the pin away again. */
        retract_slot(index, slot);
        /* Before the entry goes: a reader that finds no entry finds the grave. */
        if (reason)
                index_graves_write(&index->graves, hash, reason);
        index_table_remove(&index->table, bucket, place);
        change_end(index, bucket);
        index_count_named(index, -1);
}

uint8_t index_grave_reason(const Index *index, uint64_t hash)
{
        return index_graves_read(&index->graves, hash);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

void index_event_begin_of(Index *index, enum folio_event_type type, uint32_t slot, const LayoutSlot *record,
                          uint64_t now_ns, uint64_t origin)
{
        uint64_t words[INDEX_KEY_WORDS_MAX];
        const void *key = record->key;

        if (record->key_bytes > LAYOUT_SLOT_KEY_BYTES) {
                memcpy(words, record->key, LAYOUT_SLOT_KEY_BYTES);
                seqlock_copy_out(words + LAYOUT_SLOT_KEY_BYTES / 8, index_heap_at(&index->heap, record->heap_block),
                                 (record->key_bytes - LAYOUT_SLOT_KEY_BYTES + 7u) / 8);
                key = words;
        }
        index_events_write(&index->events, type, slot, record, key, now_ns, origin);
}

void index_event_begin(Index *index, enum folio_event_type type, uint32_t slot, uint64_t now_ns, uint64_t origin)
{
        LayoutSlot record;

        index_get(index, slot, &record);
        index_event_begin_of(index, type, slot, &record, now_ns, origin);
}

void index_event_end(Index *index)
{
        index_events_publish(&index->events);
        index->wakes.has_events = true;
}

void index_event(Index *index, enum folio_event_type type, uint32_t slot, uint64_t now_ns)
{
        index_event_begin(index, type, slot, now_ns, 0);
        index_event_end(index);
}

/* --- for the next daemon ------------------------------------------------------------------------------------------ */

void index_set_settings(Index *index, const LayoutSettings *settings)
{
        LayoutIndexHeader *h = index->header;
        uint32_t next = atomic_load_explicit(&h->settings_current, memory_order_relaxed) ^ 1;

        h->settings[next] = *settings;
        h->settings[next].checksum = index_checksum_settings(settings);
        atomic_store_explicit(&h->settings_current, next, memory_order_release);
}

void index_set_complete(Index *index)
{
        atomic_store_explicit(&index->header->is_complete, 1, memory_order_release);
}
