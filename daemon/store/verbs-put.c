/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUT: a small object in one step, from staging memory into a chunk that only the daemon can write. Up to 64 KiB are
 * copied here and now; a worker copies more, while the key is claimed.
 */
#include "daemon/store/store-private.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "daemon/store/fault.h"

/* In the turn in which the name was checked. @record is begun. */
static void commit_at_once(Store *store, const Target *target, StoreOp *op, Object *object, LayoutSlot *record)
{
        store_fill_record(store, op, object, record);
        record->protection = object->leased ? FOLIO_PROTECTION_TRUSTED : store_packed_protection(store);
        store_publish_over(store, object, op->session, OBJECT_SEALED, record, target->object, op->origin);
        store_fill_op(op, object);
}

static Status commit_later(Store *store, StoreOp *op, Object *object)
{
        LayoutSlot record;
        Status status;

        store_begin_record(store, op, object, &record);
        record.protection = store_packed_protection(store);
        status = store_publish(store, object, op->session, OBJECT_SEALED, &record, op->origin, &op->detail);
        if (status == STATUS_OK)
                store_fill_op(op, object);
        return status;
}

void store_copy_run(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);

        memcpy(work->to, work->from, work->n_bytes);
        work->result = 0;
}

static void copy_finish(Work *work)
{
        StoreOp *op = work->op;
        Object *object = work->object;
        Status status;

        if (work->result < 0 || op->session->is_closed || work->space->is_removed)
                status = store_refuse(&op->detail, STATUS_CANCELLED, "the connection or the namespace has gone "
                                                                     "meanwhile");
        else
                status = commit_later(work->store, op, object);
        if (status != STATUS_OK)
                store_forget_object(work->store, object);
        store_end_work(work, status);
}

static int copy_slowly(Store *store, const Target *target, StoreOp *op, Object *object, const uint8_t *from)
{
        Work *work = store_begin_work(store, target, op, NULL);

        if (!work) {
                store_forget_object(store, object);
                return store_refuse_errno(&op->detail, -ENOMEM, "a copy");
        }
        work->object = object;
        work->from = from;
        work->to = object->chunk->region->data + object->chunk->offset_bytes;
        work->n_bytes = op->item->size_bytes;
        store_submit_work(work, WORKER_URGENT, store_copy_run, copy_finish);
        return STORE_OP_PENDING;
}

Status store_check_staging(const StoreOp *op, uint64_t n_bytes, const uint8_t **ret_from)
{
        const Region *staging = op->session->staging;

        if (!checked_range(op->item->staging_offset, n_bytes, session_staging_bytes(op->session)))
                return store_refuse(&((StoreOp *)op)->detail, STATUS_RANGE,
                                    "%llu bytes at %llu are outside the staging memory of %llu bytes",
                                    (unsigned long long)n_bytes, (unsigned long long)op->item->staging_offset,
                                    (unsigned long long)session_staging_bytes(op->session));
        /* Until it is looked at: up to here it is there, for all that is known. */
        if (op->item->staging_offset + n_bytes > op->session->staging_charge.n_bytes)
                charge_set(&op->session->staging_charge, op->item->staging_offset + n_bytes);
        *ret_from = staging->data + op->item->staging_offset;
        return STATUS_OK;
}

/* Its bytes are where they belong, and nobody but who asks has ever been able to write there. */
static Status put_leased(Store *store, const Target *target, StoreOp *op)
{
        LayoutSlot record;
        Object *object;
        Status status;

        status = store_check_name(target, op, true, &op->detail);
        if (status != STATUS_OK)
                return status;
        status = store_draft_leased(store, target, op, &object, &record);
        if (status == STATUS_OK)
                commit_at_once(store, target, op, object, &record);
        return status;
}

int store_verb_put(Store *store, StoreOp *op)
{
        const ProtoItem *item = op->item;
        const uint8_t *from = NULL;
        LayoutSlot record;
        Target target;
        Object *object;
        Status status;
        int r;

        status = store_check_options(op, FOLIO_REPLACE | (op->leased_region_id ? 0 : PROTO_ITEM_STAGED), &op->detail);
        if (status != STATUS_OK)
                return status;
        r = store_resolve(store, op, FOLIO_RIGHT_WRITE, &target);
        if (r != STATUS_OK)
                return r;
        status = store_check_size(store, target.space, item->size_bytes, &op->detail);
        if (status != STATUS_OK)
                return status;
        if (op->leased_region_id)
                return put_leased(store, &target, op);
        if (item->size_bytes > store->config.packed_bytes_max)
                return store_refuse(&op->detail, STATUS_TOO_LARGE, "%llu bytes are more than can be put in one step, "
                                                                   "%llu; create it",
                                    (unsigned long long)item->size_bytes,
                                    (unsigned long long)store->config.packed_bytes_max);
        status = store_check_staging(op, item->size_bytes, &from);
        if (status != STATUS_OK)
                return status;
        status = store_check_name(&target, op, true, &op->detail);
        if (status != STATUS_OK)
                return status;
        r = store_draft_packed(store, &target, op, &object);
        if (r != STATUS_OK)
                return r;
        if (item->size_bytes > STORE_SLOW_COPY_BYTES)
                return copy_slowly(store, &target, op, object, from);
        memcpy(object->chunk->region->data + object->chunk->offset_bytes, from, item->size_bytes);
        FAULT("put.copied");
        index_get(target.space->index, object->slot, &record);
        commit_at_once(store, &target, op, object, &record);
        return STATUS_OK;
}
