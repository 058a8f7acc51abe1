/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the index says of the parts of mutable objects that read as zeros: only of sparse ones, since of others every
 * page is paid for and there already. It is a hint, which is given when such an object is made, after each truncation,
 * and when somebody asks for its region to read it. What is true for ever is found at the seal (verbs-seal), and in
 * idle time after it (store-huge).
 */
#include "daemon/store/store-private.h"

#include <stdlib.h>

#include "base/cleanup.h"

bool store_has_changing_zeros(const Object *object)
{
        return object->is_sparse && object->state == OBJECT_MUTABLE;
}

bool store_is_search_slow(Region *region)
{
        uint64_t allocated_bytes;

        /* Who cannot even ask will not find anything either. */
        return region_get_allocated(region, &allocated_bytes) == 0 && allocated_bytes > STORE_SLOW_SEARCH_BYTES;
}

void store_find_zeros(Work *work)
{
        if (work->zeros && region_find_zeros(work->region, work->region->size_bytes, STORE_HOLES_MAX,
                                             &work->job.is_cancelled, work->zeros) < 0)
                *work->zeros = ZEROS_NULL; /* data is what may be anything */
}

void store_publish_empty(const Object *object, LayoutSlot *record)
{
        const Space *space = object->space;
        LayoutExtents zeros = ZEROS_NULL;

        zeros_add(&zeros, 0, object->region->size_bytes / PAGE_BYTES);
        index_update_extents(space->index, object->slot, record, &zeros);
}

void store_publish_zeros(const Object *object, const LayoutExtents *zeros)
{
        const Space *space = object->space;
        LayoutSlot record;

        index_get(space->index, object->slot, &record);
        index_update_extents(space->index, object->slot, &record, zeros);
}

/* --- when somebody is going to read ------------------------------------------------------------------------------- */

static void refresh_run(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);

        store_find_zeros(work);
        work->result = 0;
}

static int begin_refreshing(Store *store, const Target *target, StoreOp *op, void (*finish)(Work *work))
{
        _cleanup_(cleanup_free) LayoutExtents *zeros = calloc(1, sizeof(*zeros));
        Work *work = zeros ? store_begin_work(store, target, op, target->object) : NULL;

        if (!work)
                return STATUS_OK; /* then what is known must do */
        work->region = target->object->region;
        work->zeros = steal_ptr(&zeros);
        store_submit_work(work, WORKER_URGENT, refresh_run, finish);
        return STORE_OP_PENDING;
}

int store_refresh_zeros(Store *store, const Target *target, StoreOp *op, void (*finish)(Work *work))
{
        const Object *object = target->object;
        LayoutExtents zeros = ZEROS_NULL;

        if (!store_has_changing_zeros(object))
                return STATUS_OK;
        if (store_is_search_slow(object->region))
                return begin_refreshing(store, target, op, finish);
        if (region_find_zeros(object->region, object->region->size_bytes, STORE_HOLES_MAX, NULL, &zeros) == 0)
                store_publish_zeros(object, &zeros);
        return STATUS_OK;
}

void store_end_refreshing(Work *work)
{
        if (work->result == 0 && store_has_changing_zeros(work->object))
                store_publish_zeros(work->object, work->zeros);
        free(steal_ptr(&work->zeros));
}
