/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object as the daemon has it besides its slot in the shared index: what state it is in, where its bytes are, what
 * is paid for it, who will take it away. There can be a million of them, so it is small.
 *
 *      DRAFT -> WRITING, SEALED or MUTABLE; WRITING -> SEALED; each of these three -> RETRACTED -> freed
 *
 * RETRACTED: it has lost its name, and lives only for those who hold it or for a worker that is not done with it.
 * What name it had, and where in the index it stands, is the index's; why it changes state is store's.
 */
#ifndef DAEMON_STORE_OBJECT_H
#define DAEMON_STORE_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/memory/leased.h"
#include "daemon/memory/packed.h"
#include "daemon/memory/region.h"
#include "daemon/memory/slab.h"
#include "daemon/store/account.h"
#include "folio/types.h"

#define OBJECT_NOT_PLACED UINT32_MAX

typedef enum ObjectState {
        OBJECT_DRAFT,                /* not yet known to anybody */
        OBJECT_WRITING,
        OBJECT_SEALED,
        OBJECT_MUTABLE,
        OBJECT_RETRACTED,
        _OBJECT_STATE_MAX
} ObjectState;

typedef struct Object {
        List link;                   /* of its creator's objects (unsealed, or with-creator), or of the held ones */
        void *space;                 /* store's */
        void *creator;               /* the session it dies with; NULL: none */
        List waiters;                /* operations behind the one under way */
        Charge charge;               /* on the namespace's quota */
        Chunk *chunk;                /* of a packed object, */
        Leased *leased;              /* or of one that a client has placed itself, */
        Region *region;              /* or of one with a region of its own */
        uint64_t generation;
        uint32_t slot;
        uint32_t leased_unit;        /* the first; there are as many as it is charged for */
        uint32_t expiry_place;       /* expiry's */
        uint8_t state;               /* ObjectState */
        uint8_t lifetime;            /* enum folio_lifetime */
        bool is_busy : 1;            /* an operation is under way on it */
        bool is_collapsing : 1;
        bool is_held : 1;            /* in the list of held ones */
        bool is_sparse : 1;
        bool is_stream : 1;
        bool is_replacing : 1;       /* takes its name when it is sealed, also from another */
        bool has_expiry : 1;         /* a place is reserved, or taken */
} Object;

/* From @slabs, of sizeof(Object). NULL: no memory. */
Object *object_new(Slabs *slabs, void *space, enum folio_lifetime lifetime);
void object_free(Object *object);   /* in no list, nothing charged, no memory of its own any more */

/* Only along the arrows above. */
void object_set_state(Object *object, ObjectState state);

/* Where its bytes are; NULL: nowhere yet. */
Region *object_region(const Object *object);
uint64_t object_offset_bytes(const Object *object);

#endif
