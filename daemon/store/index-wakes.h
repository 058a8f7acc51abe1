/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups of those who sleep on words of an index, put off until they are flushed: which buckets have changed, and
 * whether there were events. Before anybody is woken it is asked whether anybody can be asleep at all, since a wake-up
 * for nothing costs a system call on every put. Knows nothing of what has changed.
 */
#ifndef DAEMON_STORE_INDEX_WAKES_H
#define DAEMON_STORE_INDEX_WAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/layout.h"

#define INDEX_WAKES_MAX 256u

typedef struct IndexWakes {
        LayoutIndexHeader *header;
        LayoutBucket *buckets;
        bool (*has_sleepers)(void *userdata); /* NULL: always */
        void *userdata;
        bool has_events;             /* since the last flush */
        uint32_t n_dirty;
        uint32_t dirty[INDEX_WAKES_MAX];
} IndexWakes;

/* The bucket's word has another value now. */
void index_wakes_mark(IndexWakes *wakes, uint32_t bucket);

/* True: there were events. */
bool index_wakes_flush(IndexWakes *wakes);

/* The index is closed: every word has changed. Wakes those on the first @n_buckets, and who waits for events. */
void index_wakes_all(IndexWakes *wakes, uint32_t n_buckets);

#endif
