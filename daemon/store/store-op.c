/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an operation: it is submitted, finds what it is about, perhaps waits its turn or for a worker, and ends
 * with its callback. Waiting is always the same: the operation holds its object, or a claim on its key, so that nobody
 * overtakes it; when what it waits for has come it lets go, and runs again from the beginning or ends.
 */
#include "daemon/store/store-private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/key.h"

/* --- begin and end ------------------------------------------------------------------------------------------------ */

static void finish_op(StoreOp *op, Status status)
{
        Session *session = op->session;

        op->status = status;
        op->done(op); /* may free it, and may close the session */
        session->n_ops--;
        session_try_free(session);
}

static int run_verb(Store *store, StoreOp *op)
{
        switch (op->verb) {
        case VERB_PUT:
                return store_verb_put(store, op);
        case VERB_CREATE:
                return store_verb_create(store, op);
        case VERB_WRITE:
                return store_verb_write(store, op);
        case VERB_SEAL:
                return store_verb_seal(store, op);
        case VERB_ABORT:
                return store_verb_abort(store, op);
        case VERB_REGION:
                return store_verb_region(store, op);
        case VERB_RELEASE:
                return store_verb_release(store, op);
        case VERB_TRUNCATE:
                return store_verb_truncate(store, op);
        case VERB_DELETE:
                return store_verb_delete(store, op);
        case VERB_LEASE:
                return store_verb_lease(store, op);
        case VERB_NONE:
        case VERB_HELLO:
        case VERB_NAMESPACE_OPEN:
        case VERB_HOLDERS:
        case VERB_WATCH:
        case VERB_NAMESPACE_ADD:
        case VERB_NAMESPACE_SET:
        case VERB_NAMESPACE_REMOVE:
        case VERB_NAMESPACE_LIST:
        case VERB_STATUS:
        case VERB_PING:
        case VERB_RING:
        case _VERB_MAX:
                break;
        }
        return store_refuse(&op->detail, STATUS_INVALID, "verb %d is not about an object", (int)op->verb);
}

static void run_op(Store *store, StoreOp *op)
{
        int r;

        if (op->session->is_closed) {
                finish_op(op, store_refuse(&op->detail, STATUS_CANCELLED, "the connection has ended"));
                return;
        }
        r = run_verb(store, op);
        if (r != STORE_OP_PENDING)
                finish_op(op, (Status)r);
}

void store_submit(Store *store, StoreOp *op)
{
        assert(!op->session->is_closed);
        op->status = STATUS_OK;
        op->detail = NULL;
        op->slot = 0;
        op->generation = op->region_id = op->region_bytes = op->offset_bytes = 0;
        op->placement = 0;
        op->fd = op->book_fd = -1;
        op->object = op->work = NULL;
        list_init(&op->link);
        op->session->n_ops++;
        run_op(store, op);
}

uint64_t store_expect(Store *store, uint32_t namespace_id, Key key)
{
        const Space *space = store_find_space_by_id(store, namespace_id);
        uint64_t hash;

        if (!space || key.n_bytes > FOLIO_KEY_BYTES_MAX)
                return 0;
        hash = index_hash(space->index, key);
        index_prefetch(space->index, hash);
        return hash;
}

void store_expect_object(Store *store, uint32_t namespace_id, uint64_t hash)
{
        const Space *space = store_find_space_by_id(store, namespace_id);
        uint32_t slot;

        if (space && index_prefetch_slot(space->index, hash, &slot))
                __builtin_prefetch(&space->objects[slot]);
}

void store_run_queue(Store *store, List *consume_queue)
{
        List *node;

        /* One that has to wait again is in another list by then. */
        while ((node = list_take_front(consume_queue)))
                run_op(store, LIST_ENTRY(node, StoreOp, link));
}

/* --- what it is about --------------------------------------------------------------------------------------------- */

static int resolve_slot(StoreOp *op, Target *target)
{
        const ProtoItem *item = op->item;
        Space *space = target->space;
        Object *object = item->slot < index_n_slots(space->index) ? space->objects[item->slot] : NULL;
        const SessionTable *table;

        if (object && object->generation == item->generation && object->state != OBJECT_DRAFT) {
                table = session_find_table(op->session, space);
                if (object->state != OBJECT_RETRACTED ||
                    (table && table->pins && pins_count(table->pins, item->slot) > 0)) {
                        target->object = object;
                        return STATUS_OK;
                }
        }
        return store_refuse(&op->detail, STATUS_DELETED, "the object in slot %u of namespace %s is not there any more",
                            item->slot, space->ns.name);
}

static Work *find_claim(const Space *space, uint64_t hash)
{
        LIST_FOREACH(node, &space->claims[hash % STORE_CLAIM_LISTS])
                if (LIST_ENTRY(node, Work, claim)->hash == hash)
                        return LIST_ENTRY(node, Work, claim);
        return NULL;
}

/* Those that bring an object in have looked at all its texts before (store_check_options). */
static bool is_key_checked(const StoreOp *op)
{
        return op->verb == VERB_PUT || op->verb == VERB_CREATE;
}

static int resolve_key(Store *store, StoreOp *op, Target *target)
{
        const Key key = op->item->key;
        Space *space = target->space;
        uint32_t slot;
        Work *claim;

        if (!is_key_checked(op) && !key_is_valid(key.bytes, key.n_bytes))
                return store_refuse(&op->detail, STATUS_INVALID, "a key is 1 to %d bytes without NUL",
                                    FOLIO_KEY_BYTES_MAX);
        target->hash = op->hash ? op->hash : index_hash(space->index, key);
        for (unsigned i = 0;; i++) {
                claim = find_claim(space, target->hash);
                if (claim) {
                        list_push_back(&claim->waiters, &op->link);
                        return STORE_OP_PENDING;
                }
                target->object = NULL;
                if (index_find(space->index, key, target->hash, &slot))
                        target->object = space->objects[slot];
                if (LIKELY(!target->object || !target->object->has_expiry) || target->object->is_busy || i > 0)
                        return STATUS_OK;
                /* For clients its time has passed when the clock says so: the name is free, whenever our timer comes. */
                store_expire(store);
        }
}

Status store_check_rights(const Store *store, StoreOp *op, const Space *space, uint32_t rights)
{
        if ((store_rights(store, space, op->session) & rights) == rights)
                return STATUS_OK;
        return store_refuse(&op->detail, STATUS_ACCESS, "uid %u has no right to %s in namespace %s (mode %04o, owner "
                                                        "%u)",
                            op->session->cred.uid, rights & FOLIO_RIGHT_WRITE ? "write" : "read", space->ns.name,
                            space->ns.mode, space->ns.owner_uid);
}

int store_resolve(Store *store, StoreOp *op, uint32_t rights, Target *ret)
{
        Target target = { .space = store_find_space_by_id(store, op->namespace_id) };
        int r;

        if (!target.space)
                return store_refuse(&op->detail, STATUS_NOT_FOUND, "there is no namespace %u any more",
                                    op->namespace_id);
        r = store_check_rights(store, op, target.space, rights);
        if (r != STATUS_OK)
                return r;
        r = op->item->flags & PROTO_ITEM_BY_SLOT ? resolve_slot(op, &target) : resolve_key(store, op, &target);
        if (r != STATUS_OK)
                return r;
        if (target.object && target.object->is_busy) {
                list_push_back(&target.object->waiters, &op->link);
                return STORE_OP_PENDING;
        }
        *ret = target;
        return STATUS_OK;
}

Status store_refuse_missing(const Target *target, const StoreOp *op)
{
        char **detail = &((StoreOp *)op)->detail;

        switch (index_grave_reason(target->space->index, target->hash)) {
        case FOLIO_EVENT_DELETED:
                return store_refuse(detail, STATUS_DELETED, "the object was deleted from namespace %s",
                                    target->space->ns.name);
        case FOLIO_EVENT_EVICTED:
                return store_refuse(detail, STATUS_EVICTED, "the object was evicted from namespace %s",
                                    target->space->ns.name);
        case FOLIO_EVENT_EXPIRED:
                return store_refuse(detail, STATUS_EXPIRED, "the object has expired");
        case LAYOUT_GRAVE_WRITER_DIED:
                return store_refuse(detail, STATUS_WRITER_DIED,
                                    "the connection that was writing the object ended before it was sealed");
        default:
                return store_refuse(detail, STATUS_NOT_FOUND, "no object of that name in namespace %s",
                                    target->space->ns.name);
        }
}

/* --- works -------------------------------------------------------------------------------------------------------- */

Work *store_begin_work(Store *store, const Target *target, StoreOp *op, Object *object)
{
        Work *work = calloc(1, sizeof(*work));

        if (!work)
                return NULL;
        work->store = store;
        work->space = target->space;
        work->op = op;
        work->object = object;
        work->hash = target->hash;
        work->result = -ECANCELED;
        list_init(&work->claim);
        list_init(&work->waiters);
        list_init(&work->link);
        if (object) {
                assert(!object->is_busy);
                object->is_busy = work->is_busy = true;
        } else {
                work->has_claim = true;
                list_push_back(&target->space->claims[target->hash % STORE_CLAIM_LISTS], &work->claim);
        }
        target->space->n_works++;
        return work;
}

static void work_done(WorkerJob *job)
{
        Work *work = CONTAINER_OF(job, Work, job);
        Store *store = work->store;

        work->finish(work); /* frees it */
        store_flush(store);
}

void store_submit_work(Work *work, WorkerQueue queue, void (*run)(WorkerJob *job), void (*finish)(Work *work))
{
        work->job.run = run;
        work->job.done = work_done;
        work->finish = finish;
        worker_pool_submit(work->store->config.workers, queue, &work->job);
}

void store_cancel_preparing(Store *store, const Session *session)
{
        LIST_FOREACH(node, &store->preparing)
        {
                Work *work = LIST_ENTRY(node, Work, link);

                if (!session || work->op->session == session)
                        prepare_cancel(work->prepare);
        }
}

/* Who waited behind it comes into @ret_queue. A busy object may be gone after this. */
static void release_work(Work *work, List *ret_queue)
{
        list_splice_back(ret_queue, &work->waiters);
        if (work->has_claim)
                list_unlink(&work->claim);
        if (work->is_busy) {
                Object *object = work->object;

                list_splice_back(ret_queue, &object->waiters);
                object->is_busy = false;
                store_settle_object(work->store, object);
        }
}

static void leave_space(Store *store, Space *space)
{
        space->n_works--;
        store_try_free_space(store, space);
}

void store_end_work(Work *work, Status status)
{
        Store *store = work->store;
        Space *space = work->space;
        StoreOp *op = work->op;
        List queue = LIST_INIT(queue);

        release_work(work, &queue);
        free(work);
        finish_op(op, status);
        store_run_queue(store, &queue);
        leave_space(store, space);
}

void store_retry_work(Work *work)
{
        Store *store = work->store;
        Space *space = work->space;
        StoreOp *op = work->op;
        List queue = LIST_INIT(queue);

        release_work(work, &queue);
        free(work);
        run_op(store, op);
        store_run_queue(store, &queue);
        leave_space(store, space);
}

int store_wait(Store *store, const Target *target, StoreOp *op, Object *object, List *queue)
{
        Work *work = store_begin_work(store, target, op, object);

        if (!work)
                return store_refuse_errno(&op->detail, -ENOMEM, "an operation that has to wait");
        list_push_back(queue, &work->link);
        return STORE_OP_PENDING;
}

void store_fill_op(StoreOp *op, const Object *object)
{
        const Region *region = object_region(object);

        op->slot = object->slot;
        op->generation = object->generation;
        op->placement = object->chunk || object->leased ? FOLIO_PLACEMENT_PACKED : FOLIO_PLACEMENT_OWN;
        op->offset_bytes = object_offset_bytes(object);
        if (!region)
                return;
        op->region_id = region->id;
        op->region_bytes = region->size_bytes;
}
