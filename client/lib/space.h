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
        uint64_t instance;           /* of the store: its numbers mean nothing to another one */
        atomic_bool is_gone;         /* without the read right: it is not to be used any more */
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
int space_new(const ProtoNamespace *ns, uint64_t instance, int consume_index_fd, int consume_pins_fd, Space **ret);
Space *space_ref(Space *space);
void space_unref(Space *space);

/*
 * The next daemon of the same store has made its index anew, with the same objects in the same slots: it takes the place
 * of the old one, where that is mapped. So does the pin table, with what is counted in the old one; -1: the table is the
 * same as before. Readers may be at work, but nobody who changes a pin. 0; SPACE_E_LAYOUT: it is laid out in another
 * way, and the space is as it was; a negative errno.
 */
int space_replace(Space *space, const ProtoNamespace *ns, int consume_index_fd, int consume_pins_fd);

/* From now on the space reads as closed, whatever its daemon did. What is held through it can still be read. */
void space_close(Space *space);

#endif
