/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log of an index: a ring of numbered records, the newest over the oldest. Keeps nobody's place in it: who
 * watches finds out by the numbers whether it has been lapped. Why something happened, and who is to be woken, is not
 * known here.
 */
#ifndef DAEMON_STORE_INDEX_EVENTS_H
#define DAEMON_STORE_INDEX_EVENTS_H

#include <stdint.h>

#include "folio/types.h"
#include "proto/layout.h"

typedef struct IndexEvents {
        LayoutIndexHeader *header;   /* of the index; there is the newest number */
        LayoutEvent *events;
} IndexEvents;

/*
 * Writes the next event where it belongs: nobody looks there yet, but who is left far behind. Of the object in @slot: of
 * @record what comes before region_id is looked at; @key: record->key_bytes of its key.
 */
void index_events_write(IndexEvents *events, enum folio_event_type type, uint32_t slot, const LayoutSlot *record,
                        const void *key, uint64_t now_ns, uint64_t origin);

/* It is the newest now. */
void index_events_publish(IndexEvents *events);

#endif
