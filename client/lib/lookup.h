/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the index without asking anybody: no system call, no lock, no write. Every value is copied under its
 * seqlock, then checked against the geometry of the space, then used; a hostile or half-written index gives a wrong
 * answer or LOOKUP_UNSURE, never a wild access or an endless loop.
 */
#ifndef CLIENT_LIB_LOOKUP_H
#define CLIENT_LIB_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/space.h"

typedef enum LookupOutcome {
        LOOKUP_FOUND,                /* state WRITING, SEALED or MUTABLE */
        LOOKUP_MISSING,
        LOOKUP_UNSURE,               /* too many retries: ask the daemon, or try again later */
} LookupOutcome;

typedef struct Lookup {
        uint32_t slot;
        LayoutSlot copy;
        uint8_t reason;              /* MISSING: why it is gone: an enum folio_event_type, LAYOUT_GRAVE_WRITER_DIED; 0: never known */
        uint32_t bucket;             /* for lookup_wait() */
        uint32_t bucket_sequence;
} Lookup;

/* @now_ns: CLOCK_REALTIME; an object whose time has passed is MISSING with reason EXPIRED. */
LookupOutcome lookup_find(const Space *space, Key key, uint64_t now_ns, Lookup *ret);

/* The same, and the counter that pins_hold() raises is on its way when it is needed. */
LookupOutcome lookup_find_to_pin(const Space *space, Key key, uint64_t now_ns, Lookup *ret);

/*
 * The same in pieces, for many names at once: in a large store each step of a name's way is a cache miss, and those of
 * different names can be under way together. A hash, its bucket on the way; the slot that the bucket names, with
 * @is_to_pin its counter too; then lookup_find_hashed(), which alone decides. The first two want a space that may be
 * read.
 */
uint64_t lookup_hash_ahead(const Space *space, Key key);
void lookup_slot_ahead(const Space *space, uint64_t hash, bool is_to_pin);
LookupOutcome lookup_find_hashed(const Space *space, Key key, uint64_t hash, uint64_t now_ns, Lookup *ret);

/* The same for who does not ask why it is not there: MISSING has no reason, and a time that has passed is not looked at. */
LookupOutcome lookup_find_only(const Space *space, Key key, uint64_t hash, Lookup *ret);

/* True: what was copied is still the slot's, so that all that was read meanwhile was its object's. */
bool lookup_is_still(const Space *space, uint32_t slot, const LayoutSlot *copy);

/* A slot by number, whatever its state. False: no such slot, or UNSURE. */
bool lookup_read_slot(const Space *space, uint32_t slot, LayoutSlot *ret);

/* Key, content type and metadata of the object in @copy, as read before: room for 255 / 255 / 4096 bytes; each may be NULL. False: it has changed since. */
bool lookup_read_texts(const Space *space, uint32_t slot, const LayoutSlot *copy, char *key, char *content_type,
                       void *metadata);

/*
 * The ranges that read as zeros of the object in @copy, as read before: a copy, of which only the count has been
 * checked, against the heap and against the most there can be. MISSING: it has none, or what should be a list is not
 * one; UNSURE: it has changed since.
 */
LookupOutcome lookup_read_extents(const Space *space, uint32_t slot, const LayoutSlot *copy, LayoutExtents *ret);

/* Sleeps until the bucket has changed since @found, at most @timeout_ns (and never over 250 ms). False: the time has passed. */
bool lookup_wait(const Space *space, const Lookup *found, uint64_t timeout_ns);

/*
 * For who was UNSURE: sleeps until the bucket, or the slot, has changed, or @sleep_ns are over, as a rule the latter:
 * nobody is told that somebody sleeps here, so nobody wakes him.
 */
void lookup_pause_bucket(const Space *space, uint32_t bucket, uint64_t sleep_ns);
void lookup_pause_slot(const Space *space, uint32_t slot, uint64_t sleep_ns);

/*
 * lookup_wait() without sleeping: looks again and again, and lets others have the processor where it is not free, as the one who
 * would change it may be waiting for it.
 */
bool lookup_poll(const Space *space, const Lookup *found, uint64_t timeout_ns);

/* Slots are 0 .. lookup_n_slots() - 1. */
uint32_t lookup_n_slots(const Space *space);

typedef enum LookupEventOutcome {
        LOOKUP_EVENT,
        LOOKUP_EVENT_NONE,           /* not written yet */
        LOOKUP_EVENT_LAPPED,         /* gone: *@ret_oldest is the oldest that may still be there */
} LookupEventOutcome;

/* Event number @sequence (from 1) as a private copy. */
LookupEventOutcome lookup_read_event(const Space *space, uint64_t sequence, LayoutEvent *ret, uint64_t *ret_oldest);
uint64_t lookup_newest_event(const Space *space);

/* Sleeps until an event newer than @sequence is there, at most @timeout_ns (and never over 250 ms). */
bool lookup_wait_event(const Space *space, uint64_t sequence, uint64_t timeout_ns);

#endif
