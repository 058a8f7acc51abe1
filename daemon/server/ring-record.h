/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one record of a ring asks for: the checks of a copy of it, and the operation of the store that it becomes. And
 * the client's own numbers for what it is writing, since a record can name an object that was still to be created
 * when it was written.
 *
 * Sees a copy of the record that nobody else can write; knows nothing of the ring it came from.
 */
#ifndef DAEMON_SERVER_RING_RECORD_H
#define DAEMON_SERVER_RING_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/store.h"
#include "proto/ring.h"

/* What stands behind one of the client's numbers. */
typedef enum RingMadeState {
        RING_MADE_NONE = 0,          /* nothing */
        RING_MADE_OBJECT,            /* an object that it is writing */
        RING_MADE_FAILED,            /* its creation failed, and the client may not know yet */
} RingMadeState;

typedef struct RingMade {
        RingMadeState state;
        Status status;               /* of a creation that failed */
        uint32_t namespace_id;
        uint32_t slot;
        uint64_t generation;
        uint64_t region_id;
} RingMade;

typedef enum RingFate {
        RING_FATE_SUBMIT,            /* it is an operation */
        RING_FATE_REFUSED,           /* the status and the sentence are the answer */
        RING_FATE_BREACH,            /* the sentence names the rule */
} RingFate;

/*
 * @made has RING_MADE_MAX. Fills in what of @op and @item (which @op->item is) a record says; all else is the
 * caller's. The item borrows the key from @record. @own_bytes_max: what is larger and not in a lease has a region of
 * its own, and so needs a message.
 */
RingFate ring_record_translate(const RingRecord *record, const RingMade *made, uint64_t own_bytes_max, StoreOp *op,
                               ProtoItem *item, Status *ret_status, const char **ret_sentence);

/* What came of a record that was not a breach; @slot and @generation: of what was created. */
void ring_record_settle(const RingRecord *record, RingMade *made, Status status, uint32_t slot, uint64_t generation);

/* The verb of the conversation that it is; VERB_NONE: none. */
ProtoVerb ring_record_verb(const RingRecord *record);

#endif
