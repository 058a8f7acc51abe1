/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of one namespace: each record that counts becomes an object again, at its slot. What one is not sure of
 * is dropped and told, never served: its record, its name, its memory.
 */
#include "daemon/store/restore.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/memory/array.h"
#include "daemon/memory/pages.h"
#include "daemon/store/session-kept.h"
#include "proto/key.h"

#define FETCHED_AHEAD 8u

/* A record with its texts, on its way. */
typedef struct Item {
        uint32_t slot;
        LayoutSlot record;
        char buffer[FOLIO_KEY_BYTES_MAX];
        Key key, content_type, metadata;
        Session *session;            /* whose it is; NULL: nobody's */
} Item;

static int drop_object(Restore *restore, const RestoredSpace *restored, uint32_t slot, const char *why)
{
        restore->facts->n_dropped++;
        restore_say(restore, "the object in slot %u of namespace %s is lost: %s", slot, restored->space->ns.name, why);
        return 0;
}

/* --- one object --------------------------------------------------------------------------------------------------- */

static enum folio_lifetime lifetime_of(const LayoutSlot *record)
{
        if (record->flags & LAYOUT_FLAG_WITH_CREATOR)
                return FOLIO_WITH_CREATOR;
        return record->expires_ns ? FOLIO_UNTIL_TIME : FOLIO_UNTIL_DELETED;
}

static const char *find_fault(const RestoredSpace *restored, const Item *item)
{
        const LayoutSlot *record = &item->record;
        uint64_t hash = index_hash(restored->space->index, item->key);

        if (hash != record->hash || !key_is_valid(item->key.bytes, item->key.n_bytes))
                return "its key is not what its hash says";
        if (record->generation == 0 || record->size_bytes > record->capacity_bytes)
                return "its numbers cannot be";
        if (record->flags & LAYOUT_FLAG_WITH_CREATOR && record->expires_ns)
                return "it has two lifetimes";
        return NULL;
}

static bool is_named(const LayoutSlot *record)
{
        return record->state != LAYOUT_SLOT_RETRACTED &&
               !(record->state == LAYOUT_SLOT_WRITING && record->flags & LAYOUT_FLAG_REPLACING);
}

/* Everything it took goes back; it was in no index yet. */
static void forget(Store *store, Object *object)
{
        if (object->has_expiry) {
                if (object->expiry_place == OBJECT_NOT_PLACED)
                        expiry_cancel_reservation(&store->expiry);
                else
                        expiry_remove(&store->expiry, object);
                object->has_expiry = false;
        }
        store_give_bytes(store, object);
        object_free(object);
}

static ObjectState state_of(const LayoutSlot *record)
{
        switch (record->state) {
        case LAYOUT_SLOT_WRITING:
                return OBJECT_WRITING;
        case LAYOUT_SLOT_MUTABLE:
                return OBJECT_MUTABLE;
        default:
                return OBJECT_SEALED;
        }
}

/* It is there from here on. */
static void begin_life(Restore *restore, RestoredSpace *restored, const Item *item, Object *object)
{
        const LayoutSlot *record = &item->record;
        Store *store = restore->store;
        Space *space = restored->space;

        space->objects[item->slot] = object;
        space->n_objects++;
        store->n_objects++;
        restore->facts->n_objects++;
        restore->facts->object_bytes += record->size_bytes;
        object_set_state(object, state_of(record));
        if (record->state == LAYOUT_SLOT_RETRACTED) {
                object_set_state(object, OBJECT_RETRACTED);
                store_hold_object(store, object);
                restore->facts->n_held++;
                return;
        }
        if (object->has_expiry)
                expiry_add(&store->expiry, object, record->expires_ns);
        if (item->session) {
                object->creator = item->session;
                list_push_back(&item->session->objects, &object->link);
        }
        if (record->state != LAYOUT_SLOT_WRITING)
                return;
        restore->facts->n_writing++;
        space->n_unsealed++;
        space->unsealed_bytes += object->charge.n_bytes;
        if (object->leased)
                store_count_writing(object->leased, 1);
        if (object->chunk || object->leased)
                (void)session_restore_made(item->session, record->allocated_pages, space->ns.id, item->slot,
                                           object->generation, object->leased ? object->leased->region->id : 0);
}

static int make_object(Restore *restore, RestoredSpace *restored, const Item *item, Object **ret, const char **ret_why)
{
        const LayoutSlot *record = &item->record;
        Store *store = restore->store;
        Object *object = object_new(&store->objects, restored->space, lifetime_of(record));
        int r;

        if (!object)
                return -ENOMEM;
        object->generation = record->generation;
        object->slot = item->slot;
        object->is_sparse = record->flags & LAYOUT_FLAG_SPARSE;
        object->is_stream = record->flags & LAYOUT_FLAG_STREAM;
        object->is_replacing = record->state == LAYOUT_SLOT_WRITING && record->flags & LAYOUT_FLAG_REPLACING;
        account_charge_anyway(&restored->space->ns.quota, 0, 1, &object->charge);
        if (record->state != LAYOUT_SLOT_RETRACTED && lifetime_of(record) == FOLIO_UNTIL_TIME) {
                r = expiry_reserve(&store->expiry);
                if (r < 0) {
                        forget(store, object);
                        return r;
                }
                object->has_expiry = true;
        }
        r = restore_memory(restore, restored, record, object, ret_why);
        if (r != 0)
                forget(store, object);
        else
                *ret = object;
        return r;
}

/* Its name is another's already: the greater generation has it. True: this one is as good as retracted. */
static bool yield_name(Restore *restore, RestoredSpace *restored, const Item *item)
{
        Space *space = restored->space;
        uint32_t slot;

        if (!index_find(space->index, item->key, item->record.hash, &slot))
                return false;
        if (space->objects[slot]->generation > item->record.generation)
                return true;
        store_retire_object(restore->store, space->objects[slot], 0, 0, 0);
        return false;
}

static int adopt(Restore *restore, RestoredSpace *restored, Item *item)
{
        const LayoutExtents *extents = index_old_extents(&restored->old, &item->record);
        Space *space = restored->space;
        const char *why = NULL;
        Object *object;
        int r;

        r = make_object(restore, restored, item, &object, &why);
        if (r != 0)
                return r < 0 ? r : drop_object(restore, restored, item->slot, why);
        if (is_named(&item->record) && yield_name(restore, restored, item)) {
                if (store_count_pins(space, item->slot) == 0) {
                        forget(restore->store, object);
                        return 0;
                }
                item->record.state = LAYOUT_SLOT_RETRACTED;
                if (object->has_expiry) {
                        expiry_cancel_reservation(&restore->store->expiry);
                        object->has_expiry = false;
                }
        }
        /* Where it lies is what it was; a chunk that cannot be written any more is still the one. */
        r = index_adopt(space->index, item->slot, &item->record, item->key, item->content_type, item->metadata, extents,
                        is_named(&item->record));
        if (r != 0) {
                forget(restore->store, object);
                return drop_object(restore, restored, item->slot, "the index has no room for its texts");
        }
        begin_life(restore, restored, item, object);
        return 0;
}

/* --- slot after slot ---------------------------------------------------------------------------------------------- */

static int note_slot(RestoredSlots *slots, uint32_t slot)
{
        if (slots->n == slots->n_room) {
                size_t n_room = MAX(2 * slots->n_room, 64u);
                uint32_t *more = reallocarray(slots->slots, n_room, sizeof(*more));

                if (!more)
                        return -ENOMEM;
                slots->slots = more;
                slots->n_room = n_room;
        }
        slots->slots[slots->n++] = slot;
        return 0;
}

/* Whose it is. 1: it ends here. */
static int find_owner(Restore *restore, RestoredSpace *restored, Item *item)
{
        const LayoutSlot *record = &item->record;

        item->session = NULL;
        if (record->state == LAYOUT_SLOT_RETRACTED ||
            (record->state != LAYOUT_SLOT_WRITING && !(record->flags & LAYOUT_FLAG_WITH_CREATOR)))
                return 0;
        item->session = store_find_session(restore->store, record->session);
        if (item->session)
                return 0;
        if (record->state == LAYOUT_SLOT_WRITING) {
                restore->facts->n_ended++;
                index_adopt_grave(restored->space->index, layout_grave(record->hash, LAYOUT_GRAVE_WRITER_DIED));
                return 1;
        }
        /* As if its connection had ended just now, when this daemon takes over: watchers are told. */
        return note_slot(&restored->orphans, item->slot);
}

static int restore_record(Restore *restore, RestoredSpace *restored, Item *item)
{
        const char *fault;
        int r;

        index_old_texts(&restored->old, &item->record, item->buffer, &item->key, &item->content_type, &item->metadata);
        fault = find_fault(restored, item);
        if (fault)
                return drop_object(restore, restored, item->slot, fault);
        r = find_owner(restore, restored, item);
        if (r != 0)
                return r < 0 ? r : 0;
        return adopt(restore, restored, item);
}

static int restore_slot(Restore *restore, RestoredSpace *restored, uint32_t slot)
{
        Item item;

        item.slot = slot;
        switch (index_old_judge(&restored->old, slot, &item.record)) {
        case INDEX_FREE:
        case INDEX_TORN:
                return 0;
        case INDEX_BAD:
                return drop_object(restore, restored, slot, "its record is damaged");
        case INDEX_WHOLE:
                break;
        }
        restore->last_generation = MAX(restore->last_generation, item.record.generation);
        if (item.record.state == LAYOUT_SLOT_RETRACTED)
                return note_slot(&restored->retracted, slot);
        return restore_record(restore, restored, &item);
}

static int restore_retracted(Restore *restore, RestoredSpace *restored, uint32_t slot)
{
        Item item;

        /* Nobody holds it: it was on its way out. */
        if (store_count_pins(restored->space, slot) == 0)
                return 0;
        item.slot = slot;
        return index_old_judge(&restored->old, slot, &item.record) == INDEX_WHOLE ?
                       restore_record(restore, restored, &item) : 0;
}

/* --- events and graves -------------------------------------------------------------------------------------------- */

static void take_event(Restore *restore, RestoredSpace *restored, uint64_t sequence, const LayoutEvent *event)
{
        index_adopt_event(restored->space->index, sequence, event);
        restore->last_generation = MAX(restore->last_generation, event->generation);
        store_note_origin(restore->store, event->origin, event->slot, event->generation);
}

static void restore_events(Restore *restore, RestoredSpace *restored)
{
        const LayoutIndexHeader *h = &restored->old.header;
        uint64_t newest = atomic_load(&h->event_sequence);
        uint64_t n = MIN(newest, (uint64_t)h->n_events);
        const LayoutEvent *event;
        uint32_t type;

        for (uint64_t sequence = newest - n + 1; n > 0 && sequence <= newest; sequence++) {
                event = index_old_event(&restored->old, sequence);
                if (event)
                        take_event(restore, restored, sequence, event);
        }
        event = index_old_pending_event(&restored->old);
        if (event && index_old_has_happened(&restored->old, event)) {
                take_event(restore, restored, ++newest, event);
                type = event->type;
                if (type != FOLIO_EVENT_SEALED && type != FOLIO_EVENT_REPLACED)
                        index_adopt_grave(restored->space->index,
                                          layout_grave(index_hash(restored->space->index,
                                                                  (Key){ (const char *)event->key, event->key_bytes }),
                                                       (uint8_t)type));
        }
        index_adopt_event_sequence(restored->space->index, newest);
}

/* Most of the table may be a hole, and stays one. */
static int restore_graves(RestoredSpace *restored)
{
        const LayoutIndexHeader *h = &restored->old.header;
        uint64_t at = h->graves_offset, end = at + (uint64_t)h->n_graves * sizeof(LayoutGrave), data, data_end;

        while (at < end) {
                int r = pages_find_data(restored->find->fd, at, end, &data, &data_end);

                if (r < 0)
                        return r;
                for (uint64_t offset = ALIGN_UP(data, sizeof(LayoutGrave)); offset < MIN(data_end, end);
                     offset += sizeof(LayoutGrave)) {
                        uint64_t grave = atomic_load_explicit((const LayoutGrave *)(const void *)(restored->old.base + offset),
                                                              memory_order_relaxed);

                        if (grave)
                                index_adopt_grave(restored->space->index, grave);
                }
                at = data_end > at ? data_end : end;
        }
        return 0;
}

int restore_objects(Restore *restore, RestoredSpace *restored)
{
        uint32_t n_slots = atomic_load(&restored->old.header.n_slots);
        int r;

        index_adopt_begin(restored->space->index, atomic_load(&restored->old.header.n_objects));
        r = restore_graves(restored);
        for (uint32_t slot = 0; slot < n_slots && r == 0; slot++) {
                /* Its bucket is anywhere in the new table. Whatever stands there as a hash: it is only fetched. */
                if (slot + FETCHED_AHEAD < n_slots)
                        index_prefetch(restored->space->index, restored->old.slots[slot + FETCHED_AHEAD].hash);
                r = restore_slot(restore, restored, slot);
        }
        /* Those with names first: if two claimed the same memory, it would be theirs. */
        for (size_t i = 0; i < restored->retracted.n && r == 0; i++)
                r = restore_retracted(restore, restored, restored->retracted.slots[i]);
        index_adopt_end(restored->space->index);
        restore_events(restore, restored);
        return r;
}
