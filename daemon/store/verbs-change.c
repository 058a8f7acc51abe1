/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRUNCATE and DELETE. The size of a mutable object is a number in its slot; its file keeps the size of the capacity,
 * so that who maps it never meets its end. Growing first makes zeros of what lies beyond the old end, and reserves it;
 * the slot changes when all is done. Shrinking changes the slot first, and then gives the pages back: should the daemon
 * end in between, the object is never longer than what is there of it.
 */
#include "daemon/store/store-private.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/store/fault.h"

#define TRUNCATE_FLAGS PROTO_ITEM_BY_SLOT
#define DELETE_FLAGS (PROTO_ITEM_BY_SLOT | PROTO_ITEM_IF_EXISTS)

/* --- TRUNCATE ----------------------------------------------------------------------------------------------------- */

static Status commit(Store *store, StoreOp *op, Object *object, uint64_t size_bytes, const LayoutExtents *zeros)
{
        const Space *space = object->space;
        uint64_t allocated;
        LayoutSlot record;

        FAULT("truncate.pages");
        index_get(space->index, object->slot, &record);
        record.size_bytes = size_bytes;
        record.changed_ns = store_now_ns(store);
        if (region_get_allocated(object->region, &allocated) == 0) {
                record.allocated_pages = (uint32_t)MIN(allocated / PAGE_BYTES, UINT32_MAX);
                record.huge_folios = (uint32_t)MIN(record.huge_folios, allocated / HUGE_BYTES);
        }
        if (zeros)
                index_update_extents(space->index, object->slot, &record, zeros);
        else
                index_update(space->index, object->slot, &record);
        FAULT("truncate.written");
        store_fill_op(op, object);
        return STATUS_OK;
}

/* What a reader is told; what it takes is told at the end. */
static void set_size(Store *store, const Object *object, uint64_t size_bytes)
{
        const Space *space = object->space;
        LayoutSlot record;

        index_get(space->index, object->slot, &record);
        record.size_bytes = size_bytes;
        record.changed_ns = store_now_ns(store);
        index_update(space->index, object->slot, &record);
}

static int change_pages(Work *work)
{
        const atomic_bool *cancelled = &work->job.is_cancelled;
        bool is_sparse = work->object->is_sparse;
        Region *region = work->region;
        uint64_t allocated;
        int r;

        r = region_get_allocated(region, &allocated);
        if (r < 0)
                return r;
        if (work->n_bytes < work->old_bytes)
                /* Also what somebody may have stored beyond the old end. */
                return allocated == 0 ? 0 :
                                        region_punch(region, work->n_bytes, region->size_bytes - work->n_bytes,
                                                     cancelled);
        if (allocated > 0) {
                r = region_zero(region, work->old_bytes, work->n_bytes - work->old_bytes, cancelled);
                if (r < 0)
                        return r;
        }
        return is_sparse ? 0 : region_reserve(region, work->old_bytes, work->n_bytes - work->old_bytes, cancelled);
}

/* In a worker thread, or on the loop. */
static int change_memory(Work *work)
{
        int r = change_pages(work);

        if (r == 0)
                store_find_zeros(work);
        return r;
}

static void truncate_run(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);

        work->result = change_memory(work);
}

static void truncate_finish(Work *work)
{
        StoreOp *op = work->op;
        Status status;

        if (work->result < 0 && work->n_bytes < work->old_bytes && work->object->state == OBJECT_MUTABLE)
                set_size(work->store, work->object, work->old_bytes);
        if (work->result < 0)
                status = store_refuse_errno(&op->detail, work->result, "the object's pages");
        else if (work->object->state != OBJECT_MUTABLE)
                status = store_refuse(&op->detail, STATUS_DELETED, "the object was deleted meanwhile");
        else
                status = commit(work->store, op, work->object, work->n_bytes, work->zeros);
        free(steal_ptr(&work->zeros));
        store_end_work(work, status);
}

static Status check_mutable(StoreOp *op, const Target *target)
{
        if (!target->object)
                return store_refuse_missing(target, op);
        switch ((ObjectState)target->object->state) {
        case OBJECT_MUTABLE:
                return STATUS_OK;
        case OBJECT_WRITING:
                return store_refuse(&op->detail, STATUS_WRITING, "the object is still being written");
        case OBJECT_RETRACTED:
                return store_refuse(&op->detail, STATUS_DELETED, "the object was deleted, or its name has moved on");
        case OBJECT_SEALED:
        case OBJECT_DRAFT:
        case _OBJECT_STATE_MAX:
                break;
        }
        return store_refuse(&op->detail, STATUS_STATE, "the object is sealed: its size cannot change");
}

static bool is_truncation_slow(const Work *work)
{
        /* Shrinking works on all that is behind the new end. */
        uint64_t n_bytes = work->n_bytes > work->old_bytes ? work->n_bytes - work->old_bytes :
                                                             work->region->size_bytes - work->n_bytes;

        return n_bytes > STORE_SLOW_TRUNCATE_BYTES || (work->zeros && store_is_search_slow(work->region));
}

int store_verb_truncate(Store *store, StoreOp *op)
{
        const ProtoItem *item = op->item;
        LayoutSlot record;
        Target target;
        Status status;
        Work *work;
        int r;

        if (item->flags & ~TRUNCATE_FLAGS)
                return store_refuse(&op->detail, STATUS_INVALID, "flags %#x are not known here",
                                    item->flags & ~TRUNCATE_FLAGS);
        r = store_resolve(store, op, FOLIO_RIGHT_WRITE, &target);
        if (r != STATUS_OK)
                return r;
        status = check_mutable(op, &target);
        if (status != STATUS_OK)
                return status;
        index_get(target.space->index, target.object->slot, &record);
        if (item->size_bytes > record.capacity_bytes)
                return store_refuse(&op->detail, STATUS_TOO_LARGE, "%llu bytes are more than the object's capacity of "
                                                                   "%llu",
                                    (unsigned long long)item->size_bytes, (unsigned long long)record.capacity_bytes);
        if (item->size_bytes == record.size_bytes) {
                store_fill_op(op, target.object);
                return STATUS_OK;
        }
        work = store_begin_work(store, &target, op, target.object);
        if (!work)
                return store_refuse_errno(&op->detail, -ENOMEM, "a truncation");
        work->region = target.object->region;
        work->n_bytes = item->size_bytes;
        work->old_bytes = record.size_bytes;
        if (store_has_changing_zeros(target.object))
                work->zeros = calloc(1, sizeof(*work->zeros)); /* without it what was found last stays */
        if (work->n_bytes < work->old_bytes)
                set_size(store, target.object, work->n_bytes);
        FAULT("truncate.begun");
        if (is_truncation_slow(work)) {
                store_submit_work(work, WORKER_URGENT, truncate_run, truncate_finish);
                return STORE_OP_PENDING;
        }
        work->result = change_memory(work);
        truncate_finish(work); /* ends the operation */
        return STORE_OP_PENDING;
}

/* --- DELETE ------------------------------------------------------------------------------------------------------- */

int store_verb_delete(Store *store, StoreOp *op)
{
        Target target;
        int r;

        if (op->item->flags & ~DELETE_FLAGS)
                return store_refuse(&op->detail, STATUS_INVALID, "flags %#x are not known here",
                                    op->item->flags & ~DELETE_FLAGS);
        r = store_resolve(store, op, FOLIO_RIGHT_WRITE, &target);
        if (r != STATUS_OK)
                return r;
        if (!target.object || target.object->state == OBJECT_RETRACTED) {
                if (op->item->flags & PROTO_ITEM_IF_EXISTS)
                        return STATUS_OK;
                if (target.object)
                        return store_refuse(&op->detail, STATUS_DELETED, "the object was deleted already");
                return store_refuse_missing(&target, op);
        }
        if (target.object->state == OBJECT_WRITING && target.object->creator != op->session)
                return store_refuse(&op->detail, STATUS_WRITING, "another connection is still writing the object");
        store_retire_object(store, target.object, FOLIO_EVENT_DELETED, FOLIO_EVENT_DELETED, op->origin);
        return STATUS_OK;
}
