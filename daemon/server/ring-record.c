/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape only, by a table as that of messages: which fields a verb takes. Rights, limits and states are the store's,
 * which does not care where an operation came from.
 */
#include "daemon/server/ring-record.h"

#include <assert.h>

#include "base/macro.h"

#define HAS_KEY (1u << 0)
#define HAS_SLOT (1u << 1)           /* slot and generation */
#define HAS_SIZE (1u << 2)
#define HAS_PLACE (1u << 3)          /* region_id and offset_bytes */
#define HAS_OPTIONS (1u << 4)        /* lifetime, expires_ns */

#define FLAGS_ALL (FOLIO_REPLACE | PROTO_ITEM_IF_EXISTS | RING_FLAG_RESULT)

typedef enum Naming {
        BY_KEY,
        BY_SLOT,
        BY_EITHER,
        BY_NUMBER,                   /* the client's, in `slot` */
        BY_KEY_AND_NUMBER,
} Naming;

typedef struct RecordShape {
        ProtoVerb verb;
        Naming naming;
        uint32_t fields;
        uint32_t flags;
} RecordShape;

static const RecordShape shapes[_RING_VERB_MAX] = {
        [RING_VERB_PUT] = { VERB_PUT, BY_KEY, HAS_SIZE | HAS_PLACE | HAS_OPTIONS, FOLIO_REPLACE },
        [RING_VERB_CREATE] = { VERB_CREATE, BY_KEY_AND_NUMBER, HAS_SIZE | HAS_PLACE | HAS_OPTIONS, FOLIO_REPLACE },
        [RING_VERB_SEAL] = { VERB_SEAL, BY_NUMBER, HAS_PLACE, 0 },
        [RING_VERB_ABORT] = { VERB_ABORT, BY_NUMBER, 0, 0 },
        [RING_VERB_DELETE] = { VERB_DELETE, BY_EITHER, 0, PROTO_ITEM_IF_EXISTS },
        [RING_VERB_RELEASE] = { VERB_RELEASE, BY_SLOT, 0, 0 },
        [RING_VERB_TRUNCATE] = { VERB_TRUNCATE, BY_EITHER, HAS_SIZE, 0 },
};

static const char *find_naming_fault(Naming naming, const RingRecord *record)
{
        const bool has_key = record->key_bytes > 0;

        if (has_key && (naming == BY_SLOT || naming == BY_NUMBER))
                return "it is not named by a key";
        if (!has_key && (naming == BY_KEY || naming == BY_KEY_AND_NUMBER))
                return "it is named by its key";
        if (naming == BY_NUMBER || naming == BY_KEY_AND_NUMBER) {
                if (record->slot >= RING_MADE_MAX)
                        return "a client's number for an object is below 256";
                if (record->generation != 0)
                        return "a generation with a client's number";
        } else if (has_key && (record->slot != 0 || record->generation != 0)) {
                return "it is named twice";
        }
        if (has_key && (record->key_bytes > RING_KEY_BYTES_MAX ||
                        !key_is_valid((const char *)record->key, record->key_bytes)))
                return "a key in a ring has at most 72 bytes and no NUL";
        return NULL;
}

static const char *find_fault(const RecordShape *shape, const RingRecord *record)
{
        uint32_t fields = 0;

        if (record->flags & ~(shape->flags | RING_FLAG_RESULT))
                return "a flag that the verb does not know";
        if (record->size_bytes)
                fields |= HAS_SIZE;
        if (record->region_id | record->offset_bytes)
                fields |= HAS_PLACE;
        if (record->lifetime | record->expires_ns)
                fields |= HAS_OPTIONS;
        if (fields & ~shape->fields)
                return "a field that the verb does not take";
        return find_naming_fault(shape->naming, record);
}

static const char *find_breach(const RingRecord *record)
{
        if (ring_record_verb(record) == VERB_NONE)
                return "a record in a ring has a verb";
        if (record->reserved != 0 || record->flags & ~FLAGS_ALL)
                return "what is reserved in a record is 0";
        return NULL;
}

ProtoVerb ring_record_verb(const RingRecord *record)
{
        return record->verb < _RING_VERB_MAX ? shapes[record->verb].verb : VERB_NONE;
}

/* Which of the client's objects it is. */
static RingFate find_made(const RingRecord *record, const RingMade *made, Status *ret_status, const char **ret_sentence)
{
        *ret_status = STATUS_STATE;
        switch (made->state) {
        case RING_MADE_NONE:
                *ret_sentence = "nothing was created under this number";
                return RING_FATE_REFUSED;
        case RING_MADE_FAILED:
                /* There is nothing to abort, which is as it should be. */
                *ret_status = record->verb == RING_VERB_ABORT ? STATUS_OK : made->status;
                *ret_sentence = "the object could not be created";
                return RING_FATE_REFUSED;
        case RING_MADE_OBJECT:
                if (record->namespace_id == made->namespace_id &&
                    (record->verb == RING_VERB_ABORT || record->region_id == made->region_id))
                        return RING_FATE_SUBMIT;
                *ret_status = STATUS_INVALID;
                *ret_sentence = "the object was created in another namespace or region";
                return RING_FATE_REFUSED;
        }
        assert(false);
        return RING_FATE_REFUSED;
}

/* PUT, CREATE, SEAL: where the bytes are. */
static void translate_place(const RingRecord *record, StoreOp *op, ProtoItem *item)
{
        if (record->region_id != 0) {
                if (record->verb != RING_VERB_SEAL) {
                        op->leased_region_id = record->region_id;
                        item->offset_bytes = record->offset_bytes;
                }
                return;
        }
        if (record->verb != RING_VERB_PUT)
                item->flags |= PROTO_ITEM_STAGED;
        if (record->verb != RING_VERB_CREATE)
                item->staging_offset = record->offset_bytes;
}

static RingFate translate_number(const RingRecord *record, const RingMade *made, uint64_t own_bytes_max,
                                 Status *ret_status, const char **ret_sentence)
{
        if (record->verb != RING_VERB_CREATE)
                return find_made(record, made, ret_status, ret_sentence);
        *ret_status = STATUS_STATE;
        if (made->state == RING_MADE_OBJECT) {
                *ret_sentence = "an object is being written under this number";
                return RING_FATE_REFUSED;
        }
        if (record->region_id == 0 && record->size_bytes > own_bytes_max) {
                *ret_sentence = "an object with a region of its own is created by a message";
                return RING_FATE_REFUSED;
        }
        return RING_FATE_SUBMIT;
}

RingFate ring_record_translate(const RingRecord *record, const RingMade *made, uint64_t own_bytes_max, StoreOp *op,
                               ProtoItem *item, Status *ret_status, const char **ret_sentence)
{
        const RecordShape *shape;
        const char *sentence = find_breach(record);

        if (UNLIKELY(sentence)) {
                *ret_sentence = sentence;
                return RING_FATE_BREACH;
        }
        shape = &shapes[record->verb];
        sentence = find_fault(shape, record);
        if (UNLIKELY(sentence)) {
                *ret_status = STATUS_INVALID;
                *ret_sentence = sentence;
                return RING_FATE_REFUSED;
        }
        op->verb = shape->verb;
        op->namespace_id = record->namespace_id;
        op->leased_region_id = 0;
        op->made = record->verb == RING_VERB_CREATE ? record->slot + 1 : 0;
        *item = (ProtoItem){
                .key = { (const char *)record->key, record->key_bytes },
                .slot = record->slot,
                .generation = record->generation,
                .flags = record->flags & ~RING_FLAG_RESULT,
                .size_bytes = record->size_bytes,
                .lifetime = record->lifetime,
                .expires_ns = record->expires_ns,
                .metadata = { "", 0 },
                .content_type = { "", 0 },
        };
        if (record->key_bytes == 0)
                item->flags |= PROTO_ITEM_BY_SLOT;
        if (shape->naming == BY_NUMBER || shape->naming == BY_KEY_AND_NUMBER) {
                RingFate fate;

                made += record->slot;
                fate = translate_number(record, made, own_bytes_max, ret_status, ret_sentence);
                if (fate != RING_FATE_SUBMIT)
                        return fate;
                item->slot = record->verb == RING_VERB_CREATE ? 0 : made->slot;
                item->generation = record->verb == RING_VERB_CREATE ? 0 : made->generation;
        }
        if (shape->fields & HAS_PLACE)
                translate_place(record, op, item);
        return RING_FATE_SUBMIT;
}

void ring_record_settle(const RingRecord *record, RingMade *made, Status status, uint32_t slot, uint64_t generation)
{
        if (record->slot >= RING_MADE_MAX)
                return;
        made += record->slot;
        switch ((RingVerb)record->verb) {
        case RING_VERB_CREATE:
                if (made->state == RING_MADE_OBJECT)
                        return; /* refused for that */
                *made = (RingMade){
                        .state = status == STATUS_OK ? RING_MADE_OBJECT : RING_MADE_FAILED,
                        .status = status,
                        .namespace_id = record->namespace_id,
                        .slot = slot,
                        .generation = generation,
                        .region_id = record->region_id,
                };
                break;
        case RING_VERB_SEAL:
                if (status == STATUS_OK)
                        made->state = RING_MADE_NONE;
                break;
        case RING_VERB_ABORT:
                /* Also of what has gone by itself. But not where the client only has named it wrong. */
                if (status != STATUS_INVALID)
                        made->state = RING_MADE_NONE;
                break;
        case RING_VERB_PUT:
        case RING_VERB_DELETE:
        case RING_VERB_RELEASE:
        case RING_VERB_TRUNCATE:
        case RING_VERB_NONE:
        case _RING_VERB_MAX:
                break;
        }
}
