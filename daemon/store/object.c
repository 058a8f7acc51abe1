/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an object and its state machine. */
#include "daemon/store/object.h"

#include <assert.h>

Object *object_new(Slabs *slabs, void *space, enum folio_lifetime lifetime)
{
        Object *object = slabs_take(slabs);

        if (!object)
                return NULL;
        list_init(&object->link);
        list_init(&object->waiters);
        object->space = space;
        object->lifetime = (uint8_t)lifetime;
        object->expiry_place = OBJECT_NOT_PLACED;
        object->state = OBJECT_DRAFT;
        return object;
}

void object_free(Object *object)
{
        if (!object)
                return;
        assert(!list_is_linked(&object->link) && list_is_empty(&object->waiters));
        assert(!object->charge.account && !object->chunk && !object->leased && !object->region);
        assert(!object->is_busy && !object->is_collapsing && object->expiry_place == OBJECT_NOT_PLACED);
        slabs_give(object);
}

void object_set_state(Object *object, ObjectState state)
{
        static const bool is_arrow[_OBJECT_STATE_MAX][_OBJECT_STATE_MAX] = {
                [OBJECT_DRAFT] = { [OBJECT_WRITING] = true, [OBJECT_SEALED] = true, [OBJECT_MUTABLE] = true },
                [OBJECT_WRITING] = { [OBJECT_SEALED] = true, [OBJECT_RETRACTED] = true },
                [OBJECT_SEALED] = { [OBJECT_RETRACTED] = true },
                [OBJECT_MUTABLE] = { [OBJECT_RETRACTED] = true },
        };

        assert(is_arrow[object->state][state]);
        object->state = (uint8_t)state;
}

Region *object_region(const Object *object)
{
        if (object->leased)
                return object->leased->region;
        return object->chunk ? object->chunk->region : object->region;
}

uint64_t object_offset_bytes(const Object *object)
{
        if (object->leased)
                return (uint64_t)object->leased_unit * LEASE_UNIT_BYTES;
        return object->chunk ? object->chunk->offset_bytes : 0;
}
