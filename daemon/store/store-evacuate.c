/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Old packed regions, which an earlier daemon has filled, give nothing back before the last object in them is gone, and
 * take nothing new. So that restarts do not strand memory, idle work moves what is left of those that are poorly used
 * into regions of our own: a worker copies some objects, the loop changes their records, and the old bytes stay
 * until the region is empty. An object that somebody has pinned is left where it is: who has its record goes by that.
 */
#include "daemon/store/store-private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/store/fault.h"

#define BATCH_OBJECTS 64u
#define BATCH_BYTES (4 * MIB)

typedef struct Evacuee {
        uint32_t slot;
        uint64_t generation;
        uint64_t from_bytes;         /* where in the region */
        Chunk *to;
} Evacuee;

typedef struct Evacuation {
        WorkerJob job;
        Store *store;
        Space *space;
        Region *from;                /* a reference: the objects may go meanwhile */
        unsigned n;
        Evacuee items[BATCH_OBJECTS];
        int result;
} Evacuation;

static int copy(const Region *from, const Evacuee *item)
{
        uint8_t *to = item->to->region->data + item->to->offset_bytes;
        uint64_t n_done = 0;

        /* The chunk it was in was no larger. */
        while (n_done < item->to->size_bytes && item->from_bytes + n_done < from->size_bytes) {
                ssize_t n = pread(from->fd, to + n_done, (size_t)(item->to->size_bytes - n_done),
                                  (off_t)(item->from_bytes + n_done));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                n_done += (uint64_t)n;
        }
        return 0;
}

static void evacuation_run(WorkerJob *job)
{
        Evacuation *e = CONTAINER_OF(job, Evacuation, job);

        e->result = 0;
        for (unsigned i = 0; i < e->n && e->result == 0; i++)
                e->result = atomic_load_explicit(&job->is_cancelled, memory_order_relaxed) ? -ECANCELED :
                                                                                             copy(e->from, &e->items[i]);
}

typedef struct Pinned {
        const Space *space;
        uint32_t slot;
} Pinned;

static bool is_pinned(void *userdata)
{
        const Pinned *pinned = userdata;

        return store_count_pins(pinned->space, pinned->slot) > 0;
}

/* True: it is there from now on, and the chunk is its. */
static bool move(Evacuation *e, const Evacuee *item)
{
        Space *space = e->space;
        Object *object = space->objects[item->slot];
        Pinned pinned = { space, item->slot };
        char *ignored = NULL;
        LayoutSlot record;
        Chunk *old;

        if (!object || object->generation != item->generation || object->state != OBJECT_SEALED || object->is_busy ||
            store_charge_object(object, item->to->size_bytes, &ignored) != STATUS_OK) {
                free(ignored);
                return false;
        }
        old = object->chunk;
        object->chunk = item->to;
        index_get(space->index, item->slot, &record);
        store_describe_object(object, &record);
        record.protection = store_packed_protection(e->store);
        FAULT("evacuate.copied");
        if (!index_move(space->index, item->slot, &record, is_pinned, &pinned)) {
                object->chunk = old;
                charge_set(&object->charge, old->size_bytes);
                return false;
        }
        FAULT("evacuate.moved");
        e->store->n_evacuated++;
        e->store->evacuated_bytes += old->size_bytes;
        store_give_chunk(e->store, space, old);
        return true;
}

static void evacuation_done(WorkerJob *job)
{
        Evacuation *e = CONTAINER_OF(job, Evacuation, job);
        Store *store = e->store;
        Space *space = e->space;
        unsigned n_moved = 0;

        for (unsigned i = 0; i < e->n; i++) {
                if (e->result == 0 && !space->is_removed && !store->is_leaving && move(e, &e->items[i]))
                        n_moved++;
                else
                        store_give_chunk(store, space, e->items[i].to);
        }
        region_unref(e->from);
        free(e);
        space->is_evacuating = false;
        space->n_works--;
        /* On with it, in the next turn; where nothing could be moved, in a while. */
        if (n_moved > 0 && !store->is_stopping)
                store_evacuate_some(store, space);
        store_try_free_space(store, space);
}

/* Chunks of @home that may be moved now, as far as there is room for them. */
static void choose(Evacuation *e, PackedRegion *home)
{
        Store *store = e->store;
        Space *space = e->space;
        uint64_t n_bytes = 0, n_looked_at = packed_count_old_chunks(home);

        while (e->n < BATCH_OBJECTS && n_bytes < BATCH_BYTES && n_looked_at-- > 0) {
                const Chunk *chunk = packed_next_old_chunk(home);
                const Object *object = space->objects[chunk->slot];
                Chunk *to;

                if (!object || object->chunk != chunk || object->state != OBJECT_SEALED || object->is_busy ||
                    store_count_pins(space, chunk->slot) > 0)
                        continue;
                if (store_take_chunk(store, space, chunk->size_bytes, &to) != 0)
                        return;
                e->items[e->n++] = (Evacuee){ chunk->slot, object->generation, chunk->offset_bytes, to };
                n_bytes += chunk->size_bytes;
        }
}

void store_evacuate_some(Store *store, Space *space)
{
        bool is_short = account_free_bytes(&store->budget) < store->budget.bytes_max / 8;
        PackedRegion *home;
        Evacuation *e;

        if (space->is_evacuating || space->is_removed || space->is_growing || store->is_stopping ||
            !list_is_empty(&store->memory_waiters))
                return;
        home = packed_pick_old_region(space->packed, is_short);
        e = home ? calloc(1, sizeof(*e)) : NULL;
        if (!e)
                return;
        e->store = store;
        e->space = space;
        e->result = -ECANCELED;
        choose(e, home);
        if (e->n == 0) {
                free(e);
                return;
        }
        e->from = region_ref(packed_region(home));
        e->job.run = evacuation_run;
        e->job.done = evacuation_done;
        space->is_evacuating = true;
        space->n_works++;
        worker_pool_submit(store->config.workers, WORKER_IDLE, &e->job);
}

void store_tick_evacuation(Store *store)
{
        LIST_FOREACH(node, &store->spaces)
                store_evacuate_some(store, LIST_ENTRY(node, Space, link));
}
