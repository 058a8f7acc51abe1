/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEAL and ABORT: how an object that is being written ends. Nothing is called immutable before it is: the kernel's
 * seal, or for a file that cannot have one the proof that nobody can write to it any more, comes first; and only then
 * the name
 * leads to it.
 */
#include "daemon/store/store-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "daemon/store/fault.h"

#define SEAL_FLAGS (PROTO_ITEM_BY_SLOT | PROTO_ITEM_STAGED)

/* The object, if it is one that @op's session is writing. */
int store_resolve_writing(Store *store, StoreOp *op, const char *verb, Target *ret)
{
        int r;

        if (!(op->item->flags & PROTO_ITEM_BY_SLOT))
                return store_refuse(&op->detail, STATUS_INVALID, "what is being written is named by its slot");
        r = store_resolve(store, op, 0, ret);
        if (r != STATUS_OK)
                return r;
        if (ret->object->state == OBJECT_RETRACTED)
                return store_refuse(&op->detail, STATUS_DELETED, "the object was deleted, or has expired");
        if (ret->object->state != OBJECT_WRITING)
                return store_refuse(&op->detail, STATUS_STATE, "cannot %s an object that is not being written", verb);
        if (ret->object->creator != op->session)
                return store_refuse(&op->detail, STATUS_ACCESS, "only who created an object can %s it", verb);
        return STATUS_OK;
}

/* --- packed ------------------------------------------------------------------------------------------------------- */

static Status commit_packed(Store *store, StoreOp *op, Object *object)
{
        const Space *space = object->space;
        LayoutSlot record;
        Status status;

        index_get(space->index, object->slot, &record);
        record.protection = object->leased ? FOLIO_PROTECTION_TRUSTED : store_packed_protection(store);
        record.allocated_pages = store_packed_pages(object); /* until now it had the client's number there */
        store_measure_object(object, &record);
        if (record.region_id != object_region(object)->id)
                store_describe_object(object, &record); /* renew_chunk() */
        status = store_publish(store, object, op->session, OBJECT_SEALED, &record, op->origin, &op->detail);
        if (status == STATUS_OK)
                store_fill_op(op, object);
        return status;
}

/* Its connection has ended, or the namespace; else it has expired, or its own creator has deleted it. */
static Status refuse_gone(const Work *work)
{
        StoreOp *op = work->op;

        if (op->session->is_closed || work->space->is_removed || work->result < 0)
                return store_refuse(&op->detail, STATUS_CANCELLED, "the connection or the namespace has gone "
                                                                   "meanwhile");
        return store_refuse(&op->detail, STATUS_DELETED, "the object was deleted, or has expired, while it was being "
                                                         "sealed");
}

static void copy_finish(Work *work)
{
        StoreOp *op = work->op;
        Object *object = work->object;
        Status status;

        if (work->result < 0 || object->state != OBJECT_WRITING)
                status = refuse_gone(work);
        else
                status = commit_packed(work->store, op, object);
        store_end_work(work, status);
}

/* The bytes are there: nothing is copied. */
static Status seal_leased(Store *store, const Target *target, StoreOp *op)
{
        if (op->item->flags & PROTO_ITEM_STAGED)
                return store_refuse(&op->detail, STATUS_INVALID, "the bytes of the object lie in a leased region, and do "
                                                                 "not come through staging memory");
        return commit_packed(store, op, target->object);
}

/* An earlier daemon's region, which we cannot write to: there is nothing in the chunk yet, so another does as well. */
static int renew_chunk(Store *store, const Target *target, StoreOp *op)
{
        Object *object = target->object;
        uint64_t n_bytes = object->chunk->size_bytes;
        Space *space = target->space;
        Chunk *chunk = NULL;
        Status status;
        int r;

        if (!packed_is_old(object->chunk))
                return STATUS_OK;
        r = store_take_chunk(store, space, n_bytes, &chunk);
        switch (r) {
        case 0:
                status = store_charge_object(object, chunk->size_bytes, &op->detail);
                if (status != STATUS_OK) {
                        store_give_chunk(store, space, chunk);
                        return status;
                }
                store_give_chunk(store, space, object->chunk);
                object->chunk = chunk;
                return STATUS_OK;
        case STORE_CHUNK_GROWING:
                return store_wait(store, target, op, object, &space->packed_waiters);
        case STORE_PAY_WAIT:
                return store_wait(store, target, op, object, &store->memory_waiters);
        case STORE_PAY_FULL:
        case STORE_PAY_NEVER:
                return store_refuse_payment(store, r, n_bytes, &op->detail);
        default:
                return store_refuse_errno(&op->detail, r, "a packed region");
        }
}

static int seal_packed(Store *store, const Target *target, StoreOp *op)
{
        Object *object = target->object;
        const uint8_t *from;
        LayoutSlot record;
        Status status;
        uint8_t *to;
        Work *work;
        int r;

        if (!(op->item->flags & PROTO_ITEM_STAGED))
                return store_refuse(&op->detail, STATUS_INVALID, "the bytes of a packed object come through staging "
                                                                 "memory");
        index_get(target->space->index, object->slot, &record);
        status = store_check_staging(op, record.size_bytes, &from);
        if (status != STATUS_OK)
                return status;
        r = renew_chunk(store, target, op);
        if (r != STATUS_OK)
                return r;
        to = object->chunk->region->data + object->chunk->offset_bytes;
        if (record.size_bytes <= STORE_SLOW_COPY_BYTES) {
                memcpy(to, from, record.size_bytes);
                FAULT("seal.copied");
                return commit_packed(store, op, object);
        }
        work = store_begin_work(store, target, op, object);
        if (!work)
                return store_refuse_errno(&op->detail, -ENOMEM, "a copy");
        work->from = from;
        work->to = to;
        work->n_bytes = record.size_bytes;
        store_submit_work(work, WORKER_URGENT, store_copy_run, copy_finish);
        return STORE_OP_PENDING;
}

/* --- a region of its own ------------------------------------------------------------------------------------------ */

/* What holds from now on, and for whom. */
static enum folio_protection own_protection(const Store *store, const Work *work, const LayoutSlot *record)
{
        uint32_t capabilities = work->region->backend->capabilities;

        if (capabilities & BACKEND_SEALABLE)
                return FOLIO_PROTECTION_KERNEL;
        /* A mode says nothing to those who have the daemon's own uid, so not to such a creator either. */
        if (work->is_closed_by_mode && capabilities & BACKEND_READONLY_BY_MODE && record->owner_uid != store->uid)
                return FOLIO_PROTECTION_MODE;
        return FOLIO_PROTECTION_NONE;
}

/* The file of a stream is as long as it needs to be now: what was paid for more goes back. */
static void trim_charges(Object *object)
{
        Charge *charge = object->region->charge;
        char *ignored = NULL;
        const Account *culprit;

        /* Shrinking cannot fail. */
        (void)store_charge_object(object, object->region->size_bytes, &ignored);
        (void)charge_resize(charge, object->region->size_bytes, &culprit);
        /* Nothing can be added any more, also where the name turns out to be somebody else's. */
        object->is_stream = false;
}

static Status commit_own(Work *work)
{
        Store *store = work->store;
        StoreOp *op = work->op;
        Object *object = work->object;
        LayoutSlot record;
        Status status;

        if (object->is_stream)
                trim_charges(object);
        index_get(work->space->index, object->slot, &record);
        /* Before the rest, which nobody may see if it cannot be published: this is true from now on in any case. */
        if (work->zeros && work->zeros->n_extents > 0)
                index_update_extents(work->space->index, object->slot, &record, work->zeros);
        record.capacity_bytes = record.size_bytes;
        record.allocated_pages = (uint32_t)MIN(work->allocated_bytes / PAGE_BYTES, UINT32_MAX);
        record.huge_folios = (uint32_t)(work->huge_bytes / HUGE_BYTES);
        if (work->has_holes)
                record.flags |= LAYOUT_FLAG_HOLES;
        record.protection = own_protection(store, work, &record);
        status = store_publish(store, object, op->session, OBJECT_SEALED, &record, op->origin, &op->detail);
        if (status != STATUS_OK)
                return status;
        store_fill_op(op, object);
        store_begin_idle_work(store, object, steal_ptr(&work->zeros), work->huge_bytes < work->allocated_bytes);
        return STATUS_OK;
}

/* What somebody may still change is not told of. */
static void find_final_zeros(Work *work, bool is_sealed)
{
        if (!work->zeros)
                return;
        if (!is_sealed && !work->is_closed_by_mode)
                free(steal_ptr(&work->zeros));
        else if (region_find_zeros(work->region, work->n_bytes, STORE_HOLES_MAX, &work->job.is_cancelled,
                                   work->zeros) < 0)
                *work->zeros = ZEROS_NULL;
}

/* In a worker thread, or on the loop for small ones. */
static int seal_region(Work *work)
{
        Region *region = work->region;
        bool is_sealable = region->backend->capabilities & BACKEND_SEALABLE;
        uint64_t file_bytes;
        int r = 0;

        /* Only a stream's file is longer than it has to be, and its size is not sealed yet. */
        if (work->is_stream && store_own_file_bytes(work->n_bytes, &file_bytes) && file_bytes != region->size_bytes)
                r = region_resize(region, file_bytes);
        if (r == 0)
                r = is_sealable ? region_seal_finally(region) : region_end_writing(region);
        if (r > 0)
                return r;
        FAULT("seal.kernel");
        work->is_closed_by_mode = r == 0 && !is_sealable;
        /* A kernel that gives no leases leaves the question open; then nothing is claimed. */
        if (r < 0 && is_sealable)
                return r;
        r = region_measure(region, &work->allocated_bytes, &work->huge_bytes);
        if (r < 0)
                return r;
        /* Pages that are there and were never written are no holes in this sense: they take memory. */
        work->has_holes = work->allocated_bytes < ALIGN_UP(work->n_bytes, PAGE_BYTES);
        find_final_zeros(work, is_sealable);
        return 0;
}

static void seal_run(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);

        work->result = seal_region(work);
}

static void seal_finish(Work *work)
{
        StoreOp *op = work->op;
        Status status;

        if (work->object->state != OBJECT_WRITING)
                status = refuse_gone(work);
        else if (work->result == REGION_E_MAPPED)
                status = store_refuse(&op->detail, STATUS_MAPPED,
                                      "somebody still maps the object's memory writable, or has it open for writing; "
                                      "unmap and close it, "
                                      "and seal again");
        else if (work->result == REGION_E_SPOILED)
                status = store_refuse(&op->detail, STATUS_STATE,
                                      "the object's file was resized, or sealed by somebody else: it can never be "
                                      "sealed now, only aborted");
        else if (work->result < 0)
                status = store_refuse_errno(&op->detail, work->result, "sealing the object");
        else
                status = commit_own(work);
        free(steal_ptr(&work->zeros));
        store_end_work(work, status);
}

static int seal_own(Store *store, const Target *target, StoreOp *op)
{
        Object *object = target->object;
        LayoutSlot record;
        Work *work;

        index_get(target->space->index, object->slot, &record);
        work = store_begin_work(store, target, op, object);
        if (!work)
                return store_refuse_errno(&op->detail, -ENOMEM, "a seal");
        work->region = object->region;
        work->n_bytes = record.size_bytes;
        work->is_stream = object->is_stream;
        work->zeros = calloc(1, sizeof(*work->zeros)); /* without it nothing is found */
        if (object->region->size_bytes > STORE_SLOW_SEAL_BYTES) {
                store_submit_work(work, WORKER_URGENT, seal_run, seal_finish);
                return STORE_OP_PENDING;
        }
        work->result = seal_region(work);
        seal_finish(work); /* ends the operation */
        return STORE_OP_PENDING;
}

int store_verb_seal(Store *store, StoreOp *op)
{
        Target target;
        int r;

        if (op->item->flags & ~SEAL_FLAGS)
                return store_refuse(&op->detail, STATUS_INVALID, "flags %#x are not known here",
                                    op->item->flags & ~SEAL_FLAGS);
        r = store_resolve_writing(store, op, "seal", &target);
        if (r != STATUS_OK)
                return r;
        if (target.object->leased)
                return seal_leased(store, &target, op);
        return target.object->chunk ? seal_packed(store, &target, op) : seal_own(store, &target, op);
}

int store_verb_abort(Store *store, StoreOp *op)
{
        Target target;
        int r = store_resolve_writing(store, op, "abort", &target);

        if (r != STATUS_OK)
                return r;
        store_retire_object(store, target.object, 0, 0, op->origin);
        return STATUS_OK;
}
