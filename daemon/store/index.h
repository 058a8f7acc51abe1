/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer of the shared index of a namespace (proto/layout.h), and at the same time the daemon's own way from a
 * name to a slot: nobody else can write the region, so the daemon reads it as its own.
 *
 * Whatever moment a reader looks at, it finds the old state, the new one, or a sequence that tells it to look again.
 * Publish last, retract first. What an object is, and why it comes and goes, is not known here.
 *
 * Wake-ups are put off: changes mark what has changed, index_flush() wakes.
 */
#ifndef DAEMON_STORE_INDEX_H
#define DAEMON_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/memory/region.h"
#include "proto/key.h"
#include "proto/layout.h"

typedef struct Index Index;

typedef struct IndexConfig {
        Backend *backend;            /* sealable, or read-only by mode */
        const char *name;
        uint32_t namespace_id;
        uint64_t instance;
        uint64_t generation;
        uint64_t hash_seed;
        uint32_t n_slots_max;        /* at least 1 */
        uint32_t n_events;           /* a power of two */
        /* Asked after changes, and a fence: can anybody be asleep on a word of it? NULL: always. */
        bool (*has_sleepers)(void *userdata);
        void *userdata;
} IndexConfig;

enum {
        INDEX_E_SLOTS = 1,           /* no slot is left */
        INDEX_E_HEAP = 2,            /* no room for the texts */
};

/* Fills the numbers of @ret that describe where things lie; false: they do not fit. */
bool index_plan(uint32_t n_slots_max, uint32_t n_events, LayoutIndexHeader *ret);

/* 0 or a negative errno. The region is sparse and sealed to the daemon when this returns. */
int index_new(const IndexConfig *config, Index **ret);
void index_free(Index *index);

Region *index_region(Index *index);    /* borrowed; with fd_read_only for clients */
uint32_t index_n_slots(const Index *index); /* every slot ever used is below this */
uint64_t index_n_named(const Index *index);
uint64_t index_hash(const Index *index, Key key);

/* That hash will be asked for soon: its place in the table, which is hardly ever in a cache, is fetched meanwhile. */
void index_prefetch(const Index *index, uint64_t hash);

/* When that is there: the slot that the hash most probably leads to. False: none. */
bool index_prefetch_slot(const Index *index, uint64_t hash, uint32_t *ret_slot);

bool index_find(const Index *index, Key key, uint64_t hash, uint32_t *ret_slot);

/* Why a name is not there: an enum folio_event_type or LAYOUT_GRAVE_WRITER_DIED; 0: not known. */
uint8_t index_grave_reason(const Index *index, uint64_t hash);

/* The record of a slot, as a copy; its texts. */
void index_get(const Index *index, uint32_t slot, LayoutSlot *ret);
size_t index_copy_key(const Index *index, uint32_t slot, char ret[FOLIO_KEY_BYTES_MAX]);

/*
 * Takes a slot and the heap block for its texts: all that can fail of bringing an object in. 0 or INDEX_E_*. Readers
 * see a free slot still. @ret_record is begun: hash, key, lengths and heap block are filled in; the caller fills the
 * rest for index_write().
 */
int index_reserve_slot(Index *index, Key key, Key content_type, Key metadata, uint32_t *ret_slot,
                       LayoutSlot *ret_record);

/*
 * The same for who knows the hash, and writes the record at once, or frees the slot: the record is only in @ret_record
 * as yet, and index_get() and index_copy_key() know nothing of it.
 */
int index_begin_slot(Index *index, uint64_t hash, Key key, Key content_type, Key metadata, uint32_t *ret_slot,
                     LayoutSlot *ret_record);

/* Writes the record of a slot that is in no bucket, and that nobody knows. */
void index_write(Index *index, uint32_t slot, const LayoutSlot *record);

/* Writes the record of a slot, in a bucket or not. Where the state changes, those who wait for it are woken. */
void index_update(Index *index, uint32_t slot, const LayoutSlot *record);

/*
 * Writes the record of a slot that has a name, unless @is_pinned says so while nobody can read it: who has pinned the slot
 * before may go by the old one for as long as the pin is there, who pins it later finds the new. False: it is as it was.
 */
bool index_move(Index *index, uint32_t slot, const LayoutSlot *record, bool (*is_pinned)(void *userdata),
                void *userdata);

/*
 * The same for an object with a region of its own, with @extents (n_extents 0: none) in place of those that the slot
 * has. They are a help and no more: where the heap has no room to spare, the record has none. @record is the slot's as
 * it stands but for what the caller has changed; afterwards it is what was written.
 */
void index_update_extents(Index *index, uint32_t slot, LayoutSlot *record, const LayoutExtents *extents);

/* Puts a written slot into its bucket: its name is there from now on, and must not have been. */
void index_insert(Index *index, uint32_t slot);

/* One step: the name of @old_slot means @new_slot (written, in no bucket) from now on; the old is RETRACTED. */
void index_replace(Index *index, uint32_t old_slot, uint32_t new_slot);

/* The slot is RETRACTED and out of its bucket, if it was in one; @reason (0: none) is left as a grave. */
void index_retract(Index *index, uint32_t slot, uint8_t reason);

/* A retracted slot, or one that was only reserved, may be taken again. Nobody has a pin on it. */
void index_free_slot(Index *index, uint32_t slot);

/*
 * An event, of the slot's key, generation and size, or of @record, for who has it at hand: first it is written where the
 * next one goes, then the index is changed as it tells, then it is there for watchers. Should the daemon end in
 * between, the next one finds out whether it came to that, and adds it (index-old.h). @origin: layout_origin_*(); 0.
 */
void index_event_begin(Index *index, enum folio_event_type type, uint32_t slot, uint64_t now_ns, uint64_t origin);
void index_event_begin_of(Index *index, enum folio_event_type type, uint32_t slot, const LayoutSlot *record,
                          uint64_t now_ns, uint64_t origin);
void index_event_end(Index *index);

/* Both at once, of nobody's request. */
void index_event(Index *index, enum folio_event_type type, uint32_t slot, uint64_t now_ns);

/* Wakes who waits for what has changed since the last time. True: there were events. */
bool index_flush(Index *index);

/*
 * The next part of the region that is in use, or soon will be, and was not handed out before: whole pieces of 2 MiB of
 * an area that has outgrown one, at most @n_bytes_max. For whoever makes it huge; false: none.
 */
bool index_take_pieces(Index *index, uint64_t n_bytes_max, uint64_t *ret_offset_bytes, uint64_t *ret_n_bytes);

/*
 * Filling a new index with what an earlier one held, before anybody has it. index_adopt_begin(): about so many names.
 * index_adopt(): @record, as it was, at the same slot; its texts and its list of zeros, if it has one, get places of
 * their own. @is_named: it is got by its name, which must not have been there; false: it is retracted, or replaces
 * when it is sealed. 0 or INDEX_E_*: a list of zeros that finds no room is left out. index_adopt_end(): the slots between are free.
 */
void index_adopt_begin(Index *index, uint64_t n_objects);
int index_adopt(Index *index, uint32_t slot, const LayoutSlot *record, Key key, Key content_type, Key metadata,
                const LayoutExtents *extents, bool is_named);
void index_adopt_end(Index *index);

/* Graves are put where they belong here; of events the one with the newest number comes last, and each only once. */
void index_adopt_grave(Index *index, uint64_t grave);
void index_adopt_event(Index *index, uint64_t sequence, const LayoutEvent *event);
void index_adopt_event_sequence(Index *index, uint64_t sequence);

/* What the namespace is: for the next daemon. */
void index_set_settings(Index *index, const LayoutSettings *settings);

/* It holds all that it was made to hold, and stands for those of the same namespace that were before it. */
void index_set_complete(Index *index);

/* Marks it closed for ever and wakes everybody. */
void index_close(Index *index);

#endif
