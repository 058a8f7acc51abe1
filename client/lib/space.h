/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A space is a namespace as this client has it: its id and rights, the index mapped read-only, and the pin table
 * mapped for writing (and not inherited over fork()). Counted: handles, lists and watches keep it. What the daemon wrote
 * into the header is checked once, here, and kept as a private copy: later code never reads geometry from shared memory.
 */
#ifndef CLIENT_LIB_SPACE_H
#define CLIENT_LIB_SPACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"
#include "proto/layout.h"

typedef struct Space {
        atomic_uint n_references;
        char name[FOLIO_NAMESPACE_BYTES_MAX + 1];
        uint32_t id;
        uint32_t rights;
        uint64_t connection;         /* number of the connection it belongs to: after a reconnect there is a new space */
        /* All NULL or 0 without the read right. */
        LayoutIndexHeader header;    /* private copy of the constant part */
        LayoutIndexHeader *shared;   /* for n_buckets, n_slots, event_sequence, is_closed */
        const LayoutBucket *buckets;
        const LayoutBucket *overflow;
        const LayoutSlot *slots;
        LayoutGrave *graves;
        const LayoutEvent *events;
        const uint8_t *heap;
        size_t index_bytes;
        LayoutPinsHeader *pins;
        _Atomic uint8_t *pin_summary;
        _Atomic uint32_t *pin_counters;
        size_t pins_bytes;
} Space;

enum { SPACE_E_LAYOUT = 1 }; /* not an index we can read: wrong magic, version, flags or geometry */

/* The descriptors are taken over whatever happens; -1 for both without the read right. */
int space_new(const ProtoNamespace *ns, uint64_t connection, int consume_index_fd, int consume_pins_fd, Space **ret);
Space *space_ref(Space *space);
void space_unref(Space *space);

#endif
