/* SPDX-License-Identifier: Apache-2.0 */
/* See index-events.h. Of a record only the words that are used are stored: that is a fifth of it for most keys. */
#include "daemon/store/index-events.h"

#include <stddef.h>
#include <string.h>

#include "proto/seqlock.h"

#define HEAD_WORDS (offsetof(LayoutEvent, reserved) / sizeof(uint64_t) + 1)
#define KEY_WORD (offsetof(LayoutEvent, key) / sizeof(uint64_t))

static void prefetch(const LayoutEvent *event)
{
        __builtin_prefetch(event, 1);
        __builtin_prefetch(event->key, 1);
}

void index_events_add(IndexEvents *events, enum folio_event_type type, uint32_t slot, const LayoutSlot *record,
                      const uint64_t *key, uint64_t now_ns)
{
        LayoutIndexHeader *h = events->header;
        uint64_t sequence = atomic_load_explicit(&h->event_sequence, memory_order_relaxed) + 1;
        LayoutEvent *shared = &events->events[layout_event_place(sequence, h->n_events)];
        LayoutEvent event;

        memset(&event, 0, HEAD_WORDS * sizeof(uint64_t));
        event.generation = record->generation;
        event.size_bytes = record->size_bytes;
        event.time_ns = now_ns;
        event.type = type;
        event.slot = slot;
        event.key_bytes = record->key_bytes;

        /* 0 first: a watcher that copies the record this one overwrites sees that it has been lapped. */
        atomic_store_explicit(&shared->sequence, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        seqlock_copy_in((uint64_t *)(void *)shared + 1, (uint64_t *)(void *)&event + 1, HEAD_WORDS - 1);
        seqlock_copy_in((uint64_t *)(void *)shared + KEY_WORD, key, (record->key_bytes + 7u) / 8);
        /* For watchers: who sees the number sees the record. */
        atomic_store_explicit(&shared->sequence, sequence, memory_order_release);
        atomic_store_explicit(&h->event_sequence, sequence, memory_order_release);
        atomic_store_explicit(&h->event_futex, (uint32_t)sequence, memory_order_release);
        /* The ring is larger than the caches: the next one's place is on its way while other things are done. */
        prefetch(&events->events[layout_event_place(sequence + 1, h->n_events)]);
}
