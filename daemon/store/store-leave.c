/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a store that another daemon goes on with: work under way ends, and then our own memory of it all goes.
 * Nothing that is shared is written any more from then on, and nothing that is kept is dropped.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/memory/array.h"

static void release_payment(Region *region)
{
        Charge *charge = steal_ptr(&region->charge);

        if (charge)
                charge_release(charge);
        free(charge);
}

static void leave_region(Region *consume_region)
{
        release_payment(consume_region);
        store_leave_region(consume_region);
        region_unref(consume_region);
}

static void leave_object(Store *store, Space *space, Object *object)
{
        Region *empty = NULL;

        assert(!object->is_busy && !object->is_collapsing && list_is_empty(&object->waiters));
        if (object->has_expiry && object->expiry_place == OBJECT_NOT_PLACED)
                expiry_cancel_reservation(&store->expiry);
        else
                expiry_remove(&store->expiry, object);
        list_unlink(&object->link);
        if (object->chunk) {
                packed_give_chunk(space->packed, steal_ptr(&object->chunk), false, &empty);
                if (empty)
                        leave_region(empty);
        }
        object->leased = NULL; /* what it takes there stays taken */
        if (object->region)
                leave_region(steal_ptr(&object->region));
        charge_release(&object->charge);
        object_free(object);
}

static void leave_lease(Lease *lease)
{
        Region *region;

        list_unlink(&lease->link);
        store_leave_region(lease->leased->book_region);
        region = leased_leave(lease->leased);
        leave_region(region);
        free(lease);
}

static void leave_space(Store *store, Space *space)
{
        uint32_t n_slots = index_n_slots(space->index);
        Region *unused;
        List *node;

        assert(list_is_empty(&space->tables) && space->n_works == 0);
        for (uint32_t slot = 0; slot < n_slots; slot++)
                if (space->objects[slot])
                        leave_object(store, space, space->objects[slot]);
        while ((node = list_peek_front(&space->leases)) || (node = list_peek_front(&space->orphans)))
                leave_lease(LIST_ENTRY(node, Lease, link));
        while ((unused = packed_take_unused(space->packed)))
                leave_region(unused);
        list_unlink(&space->link);
        list_unlink(&space->dirty_link);
        store_leave_region(index_region(space->index));
        index_free(space->index);
        packed_free(space->packed);
        array_free(space->objects, space->ns.objects_max, sizeof(*space->objects));
        namespace_deinit(&space->ns);
        free(space);
}

void store_leave(Store *store)
{
        List *node;

        if (!store)
                return;
        /* Ghosts that a start has found, and that came to nothing. */
        LIST_FOREACH_SAFE(s, &store->sessions)
                session_leave(LIST_ENTRY(s, Session, link));
        assert(store->n_sessions == 0);
        store->is_leaving = true;
        store->is_stopping = true;
        store_cancel_collapses(store);
        store_cancel_preparing(store, NULL);
        LIST_FOREACH(s, &store->spaces)
                store_cancel_index_collapse(LIST_ENTRY(s, Space, link));
        /* They find that their connections have gone. */
        store_wake_memory_waiters(store);
        worker_pool_drain(store->config.workers);
        store_flush(store);
        while ((node = list_peek_front(&store->spaces)) || (node = list_peek_front(&store->removed_spaces)))
                leave_space(store, LIST_ENTRY(node, Space, link));
        store->n_objects = store->n_held = 0;
        assert(list_is_empty(&store->collapses) && list_is_empty(&store->memory_waiters));
        store_memory_deinit(store);
        account_deinit(&store->budget);
        expiry_deinit(&store->expiry);
        slabs_deinit(&store->objects);
        free(store);
}
