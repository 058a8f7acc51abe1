/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How objects come and go: drafts, publishing, retiring, holding, forgetting. A draft has everything that could be
 * refused; publishing it cannot fail but for the name. Retiring takes an object from everybody at once; forgetting
 * gives back what it had, when nobody holds it any more.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/store/fault.h"

/* --- drafts ------------------------------------------------------------------------------------------------------- */

static Status refuse_quota(const Namespace *ns, int outcome, uint64_t n_bytes, char **ret_detail)
{
        switch (outcome) {
        case ACCOUNT_E_COUNT:
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "namespace %s has %llu objects, deleted ones that are held too, and its quota is "
                                    "%llu; delete some, "
                                    "or raise its quota-objects",
                                    ns->name, (unsigned long long)ns->quota.count_used,
                                    (unsigned long long)ns->quota.count_max);
        case ACCOUNT_E_NEVER:
                if (n_bytes > ns->quota.bytes_max)
                        return store_refuse(ret_detail, STATUS_TOO_LARGE,
                                            "%llu bytes are more than the quota of namespace %s, %llu bytes; raise "
                                            "that",
                                            (unsigned long long)n_bytes, ns->name,
                                            (unsigned long long)ns->quota.bytes_max);
                return store_refuse(ret_detail, STATUS_LIMIT, "namespace %s may have no object; raise its quota-objects",
                                    ns->name);
        default:
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "no room for %llu bytes in namespace %s: %llu bytes of its quota of %llu are in "
                                    "use; delete something, "
                                    "or raise its quota",
                                    (unsigned long long)n_bytes, ns->name, (unsigned long long)ns->quota.bytes_used,
                                    (unsigned long long)ns->quota.bytes_max);
        }
}

Status store_charge_object(Object *object, uint64_t n_bytes, char **ret_detail)
{
        Space *space = object->space;
        uint64_t before = object->charge.n_bytes;
        const Account *ignored;
        int r = charge_resize(&object->charge, n_bytes, &ignored);

        if (r)
                return refuse_quota(&space->ns, r, n_bytes, ret_detail);
        /* Whoever counts it counts what it is now; where it shrinks, the sum wraps to the right number. */
        if (object->state == OBJECT_WRITING)
                space->unsealed_bytes += n_bytes - before;
        return STATUS_OK;
}

/* @ret_record: it is written at once, and this, which has the hash, is what it begins with; NULL: later. */
static Status reserve_slot(Space *space, const ProtoItem *item, Object *object, LayoutSlot *ret_record,
                           char **ret_detail)
{
        LayoutSlot ignored;
        int r;

        if (ret_record)
                r = index_begin_slot(space->index, ret_record->hash, item->key, item->content_type, item->metadata,
                                     &object->slot, ret_record);
        else
                r = index_reserve_slot(space->index, item->key, item->content_type, item->metadata, &object->slot,
                                       &ignored);
        if (r == INDEX_E_SLOTS)
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "the index of namespace %s has room for %u objects and all of it is taken "
                                    "(deleted objects that are held "
                                    "count); a namespace with a larger objects-max has more",
                                    space->ns.name, space->ns.objects_max);
        if (r == INDEX_E_HEAP)
                return store_refuse(ret_detail, STATUS_LIMIT,
                                    "the index of namespace %s has no room left for keys and metadata; a namespace "
                                    "with a larger objects-max "
                                    "has more",
                                    space->ns.name);
        space->objects[object->slot] = object;
        return STATUS_OK;
}

Status store_draft_object(Store *store, Space *space, const StoreOp *op, uint64_t n_bytes, Object **ret,
                          LayoutSlot *ret_record, char **ret_detail)
{
        const ProtoItem *item = op->item;
        const Account *ignored;
        Object *object;
        Status status;
        int r;

        object = object_new(&store->objects, space, item->lifetime);
        if (!object)
                return store_refuse_errno(ret_detail, -ENOMEM, "an object's record");
        r = account_charge(&space->ns.quota, n_bytes, 1, &object->charge, &ignored);
        if (r) {
                object_free(object);
                return refuse_quota(&space->ns, r, n_bytes, ret_detail);
        }
        if (item->lifetime == FOLIO_UNTIL_TIME) {
                r = expiry_reserve(&store->expiry);
                if (r < 0) {
                        charge_release(&object->charge);
                        object_free(object);
                        return store_refuse_errno(ret_detail, r, "a place to expire at");
                }
                object->has_expiry = true;
        }
        status = reserve_slot(space, item, object, ret_record, ret_detail);
        if (status != STATUS_OK) {
                if (object->has_expiry)
                        expiry_cancel_reservation(&store->expiry);
                charge_release(&object->charge);
                object_free(object);
                return status;
        }
        object->generation = ++store->last_generation;
        object->is_replacing = item->flags & FOLIO_REPLACE;
        object->is_sparse = item->flags & FOLIO_SPARSE;
        object->is_stream = item->flags & FOLIO_STREAM;
        space->n_objects++;
        store->n_objects++;
        *ret = object;
        return STATUS_OK;
}

void store_describe_object(const Object *object, LayoutSlot *record)
{
        const Region *region = object_region(object);

        record->generation = object->generation;
        record->placement = object->chunk || object->leased ? FOLIO_PLACEMENT_PACKED : FOLIO_PLACEMENT_OWN;
        record->backing = region ? region->backend->ops->backing : FOLIO_BACKING_MEMFD;
        record->region_id = region ? region->id : 0;
        record->offset_units = (uint32_t)(object_offset_bytes(object) / LAYOUT_CHUNK_UNIT_BYTES);
        record->flags = (object->is_sparse ? LAYOUT_FLAG_SPARSE : 0) |
                        (object->lifetime == FOLIO_WITH_CREATOR ? LAYOUT_FLAG_WITH_CREATOR : 0) |
                        (object->is_replacing ? LAYOUT_FLAG_REPLACING : 0) |
                        (object->is_stream ? LAYOUT_FLAG_STREAM : 0) |
                        (record->flags & LAYOUT_FLAG_HOLES);
}

/* --- publishing --------------------------------------------------------------------------------------------------- */

static void begin_life(Store *store, Object *object, Session *session, const LayoutSlot *record)
{
        if (object->has_expiry && object->expiry_place == OBJECT_NOT_PLACED)
                expiry_add(&store->expiry, object, record->expires_ns);
        if (object->lifetime == FOLIO_WITH_CREATOR && session && !list_is_linked(&object->link)) {
                object->creator = session;
                list_push_back(&session->objects, &object->link);
        }
}

void store_publish_writing(Store *store, Object *object, Session *session, LayoutSlot *record)
{
        Space *space = object->space;

        object_set_state(object, OBJECT_WRITING);
        record->state = LAYOUT_SLOT_WRITING;
        record->protection = FOLIO_PROTECTION_NONE;
        record->session = session->number;
        index_write(space->index, object->slot, record);
        FAULT("writing.written");
        /* One that replaces has no name until it is sealed. */
        if (!object->is_replacing)
                index_insert(space->index, object->slot);
        object->creator = session;
        list_push_back(&session->objects, &object->link);
        space->n_unsealed++;
        space->unsealed_bytes += object->charge.n_bytes;
        if (object->leased)
                store_count_writing(object->leased, 1);
        begin_life(store, object, session, record);
        store_mark_dirty(store, space);
}

/* No longer being written: it is nobody's but for its lifetime. */
static void end_writing(Object *object)
{
        Space *space = object->space;

        space->n_unsealed--;
        space->unsealed_bytes -= object->charge.n_bytes;
        if (object->leased)
                store_count_writing(object->leased, -1);
        if (object->lifetime != FOLIO_WITH_CREATOR) {
                list_unlink(&object->link);
                object->creator = NULL;
        }
}

static void let_go(Store *store, Object *object);

/* The name, as it stands in the object's own slot, is another's already. */
static Status find_rival(const Object *object, Object **ret, char **ret_detail)
{
        const Space *space = object->space;
        char bytes[FOLIO_KEY_BYTES_MAX];
        Key key = { bytes, index_copy_key(space->index, object->slot, bytes) };
        uint32_t slot;

        *ret = NULL;
        if (!index_find(space->index, key, index_hash(space->index, key), &slot) || slot == object->slot)
                return STATUS_OK;
        *ret = space->objects[slot];
        if (!object->is_replacing)
                return store_refuse(ret_detail, STATUS_EXISTS, "the name is taken in namespace %s", space->ns.name);
        if ((*ret)->state == OBJECT_WRITING)
                return store_refuse(ret_detail, STATUS_WRITING,
                                    "the object to be replaced is still being written by another client");
        return STATUS_OK;
}

void store_publish_over(Store *store, Object *object, Session *session, ObjectState state, LayoutSlot *record,
                        Object *rival, uint64_t origin)
{
        bool was_writing = object->state == OBJECT_WRITING, is_named = was_writing && !object->is_replacing;
        Space *space = object->space;
        uint64_t now_ns = store_now_ns(store);

        object_set_state(object, state);
        if (was_writing)
                end_writing(object);
        record->state = state == OBJECT_MUTABLE ? LAYOUT_SLOT_MUTABLE : LAYOUT_SLOT_SEALED;
        record->flags &= (uint8_t)~(LAYOUT_FLAG_REPLACING | LAYOUT_FLAG_STREAM);
        record->session = object->lifetime == FOLIO_WITH_CREATOR ? session->number : 0;
        record->changed_ns = now_ns;
        /* Another may have had the name since this one was begun: what is got under one name only ever grows newer. */
        if (was_writing && object->is_replacing)
                record->generation = object->generation = ++store->last_generation;
        index_event_begin_of(space->index, rival ? FOLIO_EVENT_REPLACED : FOLIO_EVENT_SEALED, object->slot, record, now_ns,
                             origin);
        FAULT("publish.begun");
        /* The record first: when the name leads to it, it is whole. */
        if (is_named)
                index_update(space->index, object->slot, record);
        else
                index_write(space->index, object->slot, record);
        FAULT("publish.written");
        if (rival)
                index_replace(space->index, rival->slot, object->slot);
        else if (!is_named)
                index_insert(space->index, object->slot);
        FAULT("publish.named");
        index_event_end(space->index);
        FAULT("publish.counted");
        begin_life(store, object, session, record);
        store_mark_dirty(store, space);
        if (rival)
                let_go(store, rival);
}

Status store_publish(Store *store, Object *object, Session *session, ObjectState state, LayoutSlot *record,
                     uint64_t origin, char **ret_detail)
{
        Object *rival;
        Status status = find_rival(object, &rival, ret_detail);

        if (status == STATUS_OK)
                store_publish_over(store, object, session, state, record, rival, origin);
        return status;
}

/* --- going -------------------------------------------------------------------------------------------------------- */

void store_give_bytes(Store *store, Object *object)
{
        if (object->chunk)
                store_give_chunk(store, object->space, steal_ptr(&object->chunk));
        if (object->leased)
                store_give_units(store, steal_ptr(&object->leased), (uint64_t)object->leased_unit * LEASE_UNIT_BYTES,
                                 object->charge.n_bytes);
        if (object->region)
                store_drop_region(store, steal_ptr(&object->region));
        charge_release(&object->charge);
}

void store_forget_object(Store *store, Object *object)
{
        Space *space = object->space;

        assert(object->state == OBJECT_DRAFT || object->state == OBJECT_RETRACTED);
        if (object->is_held) {
                space->n_held--;
                space->held_bytes -= object->charge.n_bytes;
                store->n_held--;
                store->held_bytes -= object->charge.n_bytes;
                object->is_held = false;
        }
        if (object->has_expiry && object->expiry_place == OBJECT_NOT_PLACED)
                expiry_cancel_reservation(&store->expiry);
        else
                expiry_remove(&store->expiry, object);
        object->has_expiry = false;
        list_unlink(&object->link);
        if (object->is_collapsing)
                store_orphan_collapse(store, object);
        store_give_bytes(store, object);
        space->objects[object->slot] = NULL;
        FAULT("forget.given");
        index_free_slot(space->index, object->slot);
        space->n_objects--;
        store->n_objects--;
        object_free(object);
        store_try_free_space(store, space);
}

/* Retracted, but somebody holds it, or a worker is at it. */
void store_hold_object(Store *store, Object *object)
{
        Space *space = object->space;

        object->is_held = true;
        list_push_back(&store->held, &object->link);
        space->n_held++;
        space->held_bytes += object->charge.n_bytes;
        store->n_held++;
        store->held_bytes += object->charge.n_bytes;
}

/* Its slot is RETRACTED, and in no bucket. */
static void let_go(Store *store, Object *object)
{
        const Space *space = object->space;

        if (object->state == OBJECT_WRITING)
                end_writing(object);
        object_set_state(object, OBJECT_RETRACTED);
        list_unlink(&object->link);
        object->creator = NULL;
        if (object->has_expiry) {
                expiry_remove(&store->expiry, object);
                object->has_expiry = false;
        }
        /*
         * For those who pin at this moment: either their pin is seen below, or they see, when they look at the slot
         * after it, that it is retracted.
         */
        atomic_thread_fence(memory_order_seq_cst);
        if (object->is_busy || store->is_leaving || store_count_pins(space, object->slot) > 0)
                store_hold_object(store, object);
        else
                store_forget_object(store, object);
}

void store_retire_object(Store *store, Object *object, uint8_t grave, enum folio_event_type event, uint64_t origin)
{
        Space *space = object->space;
        bool was_seen = object->state != OBJECT_WRITING;

        /* Not at its own writer's wish: that one may be in the middle of it. */
        if (grave && !was_seen && object->leased)
                store_spoil_lease(object->leased);
        /* Nobody was told of one that was never sealed. */
        if (event && was_seen)
                index_event_begin(space->index, event, object->slot, store_now_ns(store), origin);
        FAULT("retire.begun");
        index_retract(space->index, object->slot, grave);
        FAULT("retire.retracted");
        if (event && was_seen)
                index_event_end(space->index);
        FAULT("retire.counted");
        store_mark_dirty(store, space);
        let_go(store, object);
}

void store_settle_object(Store *store, Object *object)
{
        if (object->state != OBJECT_RETRACTED || object->is_busy || store->is_leaving)
                return;
        if (store_count_pins(object->space, object->slot) == 0)
                store_forget_object(store, object);
}

/* Each object of the list is looked at once in a round, however many turns that takes. */
void store_sweep_some(Store *store, Slice *slice)
{
        while (store->n_sweep_left > 0 && store_take_slice(slice)) {
                List *node = list_take_front(&store->held);
                Object *object;

                if (!node) {
                        store->n_sweep_left = 0;
                        return;
                }
                store->n_sweep_left--;
                object = LIST_ENTRY(node, Object, link);
                list_push_back(&store->held, &object->link);
                store_settle_object(store, object);
        }
}

/* --- expiry and sweeps: the public face --------------------------------------------------------------------------- */

uint64_t store_next_expiry_ns(const Store *store)
{
        return expiry_next_ns(&store->expiry);
}

void store_expire(Store *store)
{
        uint64_t now_ns;
        Slice slice = store_begin_slice();

        store->turn_ns = 0; /* who comes because it is time has looked at the clock just now */
        now_ns = store_now_ns(store);
        /* When the slice is over the next expiry is in the past: the caller comes again at once. */
        while (expiry_next_ns(&store->expiry) <= now_ns && store_take_slice(&slice))
                store_retire_object(store, expiry_peek(&store->expiry), FOLIO_EVENT_EXPIRED, FOLIO_EVENT_EXPIRED,
                                    0);
}

void store_sweep_held(Store *store)
{
        Slice slice = store_begin_slice();

        store->n_sweep_left = store->n_held;
        store_sweep_some(store, &slice);
        if (store->n_sweep_left > 0)
                store_schedule_chore(store);
        store_wake_memory_waiters(store);
}
