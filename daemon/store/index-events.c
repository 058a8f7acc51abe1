/* SPDX-License-Identifier: Apache-2.0 */
/* See index-events.h. Of a record only the words that are used are stored: that is a fifth of it for most keys. */
#include "daemon/store/index-events.h"

#include <stddef.h>
#include <string.h>

#include "proto/seqlock.h"

#define LINE_BYTES 64u
#define EVENTS_AHEAD 2u              /* whose places are fetched */

static void prefetch(const IndexEvents *events, uint64_t sequence, size_t n_bytes)
{
        const LayoutEvent *event = &events->events[layout_event_place(sequence, events->header->n_events)];

        __builtin_prefetch(event, 1);
        if (n_bytes > LINE_BYTES)
                __builtin_prefetch((const uint8_t *)event + LINE_BYTES, 1);
}

void index_events_write(IndexEvents *events, enum folio_event_type type, uint32_t slot, const LayoutSlot *record,
                        const void *key, uint64_t now_ns, uint64_t origin)
{
        LayoutIndexHeader *h = events->header;
        uint64_t sequence = atomic_load_explicit(&h->event_sequence, memory_order_relaxed) + 1;
        LayoutEvent *shared = &events->events[layout_event_place(sequence, h->n_events)];
        size_t n_bytes = offsetof(LayoutEvent, key) + record->key_bytes;
        LayoutEvent event;

        /* The last word to its end: what is behind the key means nothing, but shall not be what was on our stack. */
        memset((uint8_t *)&event + (n_bytes & ~(size_t)7), 0, sizeof(uint64_t));
        event.generation = record->generation;
        event.size_bytes = record->size_bytes;
        event.time_ns = now_ns;
        event.type = type;
        event.slot = slot;
        event.origin = origin;
        event.key_bytes = record->key_bytes;
        memcpy(event.key, key, record->key_bytes);

        /* 0 first: a watcher that copies the record this one overwrites sees that it has been lapped. */
        atomic_store_explicit(&shared->sequence, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        seqlock_copy_in((uint64_t *)(void *)shared + 1, (uint64_t *)(void *)&event + 1, (n_bytes + 7) / 8 - 1);
        /* For watchers: who sees the number sees the record. And for the next daemon, before what it tells of is done. */
        atomic_store_explicit(&shared->sequence, sequence, memory_order_release);
        atomic_thread_fence(memory_order_release);
        /* The log may be larger than the caches: the next places are on their way while other things are done. */
        prefetch(events, sequence + EVENTS_AHEAD, n_bytes);
}

void index_events_publish(IndexEvents *events)
{
        LayoutIndexHeader *h = events->header;
        uint64_t sequence = atomic_load_explicit(&h->event_sequence, memory_order_relaxed) + 1;

        atomic_store_explicit(&h->event_sequence, sequence, memory_order_release);
        atomic_store_explicit(&h->event_futex, (uint32_t)sequence, memory_order_release);
}
