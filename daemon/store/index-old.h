/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a namespace as an earlier daemon has left it, at whatever moment that ended: which of its records count,
 * and their texts. Nobody writes it any more. The slots are the truth; buckets are not looked at. What a record says of
 * memory is not checked here, nor are two records compared.
 */
#ifndef DAEMON_STORE_INDEX_OLD_H
#define DAEMON_STORE_INDEX_OLD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/key.h"
#include "proto/layout.h"

typedef struct IndexOld {
        const uint8_t *base;         /* NULL: closed */
        uint64_t size_bytes;
        int fd;                      /* borrowed */
        LayoutIndexHeader header;    /* a copy, checked */
        const LayoutSlot *slots;
        const LayoutGrave *graves;
        const LayoutEvent *events;
        const uint8_t *heap;
} IndexOld;

enum {
        INDEX_OLD_E_VERSION = 1,     /* made by a daemon that is newer than this one */
        INDEX_OLD_E_BROKEN = 2,      /* no index, or damaged */
};

/* @fd: of @size_bytes, which do not change any more. 0, INDEX_OLD_E_*, or a negative errno. */
int index_old_open(int fd, uint64_t size_bytes, IndexOld *ret);
void index_old_close(IndexOld *old); /* a closed one is legal */

/* The settings in force; false: neither copy is whole. */
bool index_old_settings(const IndexOld *old, LayoutSettings *ret);

typedef enum IndexVerdict {
        INDEX_FREE,
        INDEX_WHOLE,                 /* as it stands: WRITING, SEALED, MUTABLE or RETRACTED */
        INDEX_TORN,                  /* it was being written, and nobody has been told of it */
        INDEX_BAD,                   /* it is not what was written there */
} IndexVerdict;

/*
 * The record of a slot below n_slots, as it counts. One that was being retracted is RETRACTED; one that was being
 * changed is what it was to be.
 */
IndexVerdict index_old_judge(const IndexOld *old, uint32_t slot, LayoutSlot *ret);

/* Of a record that is whole; they borrow from the index, but for the key, which is put together in @buffer. */
void index_old_texts(const IndexOld *old, const LayoutSlot *record, char buffer[FOLIO_KEY_BYTES_MAX], Key *ret_key,
                     Key *ret_content_type, Key *ret_metadata);
const LayoutExtents *index_old_extents(const IndexOld *old, const LayoutSlot *record); /* NULL: none */

/*
 * The event that was written and not added yet, whatever came of it; NULL: none. Its number is one more than the
 * header's event_sequence.
 */
const LayoutEvent *index_old_pending_event(const IndexOld *old);

/* Has it come to what the event tells of? */
bool index_old_has_happened(const IndexOld *old, const LayoutEvent *event);

/* One of the events that are there, by its number; NULL: overwritten. */
const LayoutEvent *index_old_event(const IndexOld *old, uint64_t sequence);

#endif
