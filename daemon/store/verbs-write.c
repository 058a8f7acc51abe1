/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WRITE: the next bytes of a stream, from staging memory to the end of its file. The file grows in steps ahead of the
 * bytes, and is paid for before it grows; nobody but the daemon has it before it is sealed.
 */
#include "daemon/store/store-private.h"

#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"

static Status commit(Store *store, StoreOp *op, Object *object, uint64_t size_bytes)
{
        const Space *space = object->space;
        uint64_t allocated;
        LayoutSlot record;

        index_get(space->index, object->slot, &record);
        record.size_bytes = record.capacity_bytes = size_bytes;
        record.changed_ns = store_now_ns(store);
        if (region_get_allocated(object->region, &allocated) == 0)
                record.allocated_pages = (uint32_t)MIN(allocated / PAGE_BYTES, UINT32_MAX);
        index_update(space->index, object->slot, &record);
        store_fill_op(op, object);
        return STATUS_OK;
}

static void write_run(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);

        work->result = region_write(work->region, work->offset_bytes, work->from, work->n_bytes);
}

static void write_finish(Work *work)
{
        StoreOp *op = work->op;
        Status status;

        if (work->object->state != OBJECT_WRITING)
                status = store_refuse(&op->detail, STATUS_CANCELLED, "the object was taken away while it was being "
                                                                     "written");
        else if (work->result < 0)
                status = store_refuse_errno(&op->detail, work->result, "the bytes of the stream");
        else
                status = commit(work->store, op, work->object, work->offset_bytes + work->n_bytes);
        store_end_work(work, status);
}

/* The file is @file_bytes long, and paid for, or nothing has changed: 0, STORE_PAY_*,
        a negative errno; or *@ret_status. */
static int grow_to(Store *store, Object *object, uint64_t file_bytes, Status *ret_status, char **ret_detail)
{
        uint64_t before = object->region->size_bytes;
        Charge *charge = object->region->charge;
        const Account *culprit;
        char *ignored = NULL;
        int r;

        *ret_status = store_charge_object(object, file_bytes, ret_detail);
        if (*ret_status != STATUS_OK)
                return 0;
        r = store_pay_more(store, charge, file_bytes);
        if (r == 0) {
                r = region_resize(object->region, file_bytes);
                if (r == 0)
                        return 0;
                (void)charge_resize(charge, before, &culprit); /* shrinking cannot fail */
        }
        (void)store_charge_object(object, before, &ignored);
        return r;
}

/* Twice as long, at most 64 MiB more; where that is refused, as much as is needed. */
static int make_room(Store *store, const Target *target, StoreOp *op, uint64_t size_bytes)
{
        Object *object = target->object;
        uint64_t now = object->region->size_bytes, least, step;
        Status status;
        int r;

        if (size_bytes <= now)
                return STATUS_OK;
        if (!store_own_file_bytes(size_bytes, &least) ||
            !store_own_file_bytes(now + MIN(now, 64 * MIB), &step))
                return store_check_size(store, target->space, UINT64_MAX, &op->detail);
        if (step > least) {
                char *ignored = NULL;

                r = grow_to(store, object, step, &status, &ignored);
                free(ignored);
                if (r == 0 && status == STATUS_OK)
                        return STATUS_OK;
        }
        r = grow_to(store, object, least, &status, &op->detail);
        if (status != STATUS_OK)
                return status;
        if (r == STORE_PAY_WAIT)
                return store_wait(store, target, op, object, &store->memory_waiters);
        if (r > 0)
                return store_refuse_payment(store, r, least, &op->detail);
        return r < 0 ? (int)store_refuse_errno(&op->detail, r, "the file of the stream") : STATUS_OK;
}

int store_verb_write(Store *store, StoreOp *op)
{
        const ProtoItem *item = op->item;
        const uint8_t *from;
        uint64_t size_bytes;
        LayoutSlot record;
        Target target;
        Status status;
        Work *work;
        int r;

        r = store_resolve_writing(store, op, "write to", &target);
        if (r != STATUS_OK)
                return r;
        if (!target.object->is_stream)
                return store_refuse(&op->detail, STATUS_STATE, "the object is no stream: its creator has its memory, "
                                                               "and writes there");
        status = store_check_staging(op, item->size_bytes, &from);
        if (status != STATUS_OK)
                return status;
        index_get(target.space->index, target.object->slot, &record);
        if (item->offset_bytes != record.size_bytes)
                return store_refuse(&op->detail, STATUS_RANGE, "a stream is written at its end, %llu, not at %llu",
                                    (unsigned long long)record.size_bytes, (unsigned long long)item->offset_bytes);
        if (!checked_add(record.size_bytes, item->size_bytes, &size_bytes))
                size_bytes = UINT64_MAX;
        status = store_check_size(store, target.space, size_bytes, &op->detail);
        if (status != STATUS_OK)
                return status;
        r = make_room(store, &target, op, size_bytes);
        if (r != STATUS_OK)
                return r;
        if (item->size_bytes <= STORE_SLOW_WRITE_BYTES) {
                r = region_write(target.object->region, item->offset_bytes, from, item->size_bytes);
                if (r < 0)
                        return store_refuse_errno(&op->detail, r, "the bytes of the stream");
                return commit(store, op, target.object, size_bytes);
        }
        work = store_begin_work(store, &target, op, target.object);
        if (!work)
                return store_refuse_errno(&op->detail, -ENOMEM, "a copy");
        work->region = target.object->region;
        work->from = from;
        work->offset_bytes = item->offset_bytes;
        work->n_bytes = item->size_bytes;
        store_submit_work(work, WORKER_URGENT, write_run, write_finish);
        return STORE_OP_PENDING;
}
