/* SPDX-License-Identifier: Apache-2.0 */
/* REGION, RELEASE, HOLDERS, WATCH: the verbs of those who read. */
#include "daemon/store/session-kept.h"
#include "daemon/store/store-private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/timerfd.h>

#include "base/cleanup.h"
#include "proto/key.h"

#define REGION_FLAGS (PROTO_ITEM_BY_SLOT | PROTO_ITEM_WRITABLE)

/* --- REGION ------------------------------------------------------------------------------------------------------- */

static Status check_region(StoreOp *op, const Object *object)
{
        bool is_writable = op->item->flags & PROTO_ITEM_WRITABLE;

        switch ((ObjectState)object->state) {
        case OBJECT_WRITING:
                return store_refuse(&op->detail, STATUS_WRITING, "the object is still being written");
        case OBJECT_SEALED:
                if (is_writable)
                        return store_refuse(&op->detail, STATUS_STATE, "the object is sealed: nobody can write to it");
                return STATUS_OK;
        case OBJECT_MUTABLE:
                return STATUS_OK;
        case OBJECT_RETRACTED:
                if (is_writable)
                        return store_refuse(&op->detail, STATUS_DELETED, "the object was deleted, or its name has "
                                                                         "moved on");
                return STATUS_OK;
        case OBJECT_DRAFT:
        case _OBJECT_STATE_MAX:
                break;
        }
        return store_refuse(&op->detail, STATUS_INTERNAL, "an object in no state");
}

static Status answer_region(const Store *store, StoreOp *op, const Object *object)
{
        bool is_writable = op->item->flags & PROTO_ITEM_WRITABLE;
        Region *region = object_region(object);
        int r, fd;

        r = region_open_read_only(region);
        if (r < 0)
                return store_refuse_errno(&op->detail, r, "a read-only descriptor of the region");
        fd = fcntl(is_writable ? region->fd : region->fd_read_only, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return store_refuse_errno(&op->detail, -errno, "a descriptor of the region");
        /* Where descriptors are short, one is not kept for the next who asks. */
        if (object->region && region->fd_read_only >= store->object_fds_max)
                region->fd_read_only = close_fd(region->fd_read_only);
        store_fill_op(op, object);
        op->fd = fd;
        return STATUS_OK;
}

static void region_finish(Work *work)
{
        Status status;

        store_end_refreshing(work);
        status = check_region(work->op, work->object);
        if (status == STATUS_OK)
                status = answer_region(work->store, work->op, work->object);
        store_end_work(work, status);
}

int store_verb_region(Store *store, StoreOp *op)
{
        bool is_writable = op->item->flags & PROTO_ITEM_WRITABLE;
        Target target;
        Status status;
        int r;

        if (op->item->flags & ~REGION_FLAGS || !(op->item->flags & PROTO_ITEM_BY_SLOT))
                return store_refuse(&op->detail, STATUS_INVALID, "a region is asked for by slot, with no flag but "
                                                                 "writable");
        r = store_resolve(store, op, is_writable ? FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE : FOLIO_RIGHT_READ, &target);
        if (r != STATUS_OK)
                return r;
        status = check_region(op, target.object);
        if (status != STATUS_OK)
                return status;
        if (!is_writable) {
                r = store_refresh_zeros(store, &target, op, region_finish);
                if (r != STATUS_OK)
                        return r;
        }
        return answer_region(store, op, target.object);
}

/* --- RELEASE ------------------------------------------------------------------------------------------------------ */

/* A hint, and nothing else: what is not there, or not for this session, is no error. Waits for nobody. */
int store_verb_release(Store *store, StoreOp *op)
{
        const ProtoItem *item = op->item;
        Space *space = store_find_space_by_id(store, op->namespace_id);
        Object *object;

        if (!space || item->slot >= index_n_slots(space->index))
                return STATUS_OK;
        object = space->objects[item->slot];
        if (object && object->generation == item->generation)
                store_settle_object(store, object);
        return STATUS_OK;
}

/* --- HOLDERS ------------------------------------------------------------------------------------------------------ */

static Status find_for_holders(Store *store, Session *session, uint32_t namespace_id, const ProtoItem *item,
                               Target *ret,
                               char **ret_detail)
{
        StoreOp op = { .session = session, .item = item, .namespace_id = namespace_id };
        Space *space = store_find_space_by_id(store, namespace_id);
        uint32_t slot;
        Status status;

        if (!space)
                return store_refuse(ret_detail, STATUS_NOT_FOUND, "there is no namespace %u any more", namespace_id);
        if (!(store_rights(store, space, session) & FOLIO_RIGHT_READ))
                return store_refuse(ret_detail, STATUS_ACCESS, "uid %u has no right to read in namespace %s",
                                    session->cred.uid, space->ns.name);
        *ret = (Target){ .space = space };
        if (item->flags & PROTO_ITEM_BY_SLOT) {
                if (item->slot < index_n_slots(space->index))
                        ret->object = space->objects[item->slot];
                if (ret->object && ret->object->generation == item->generation && ret->object->state != OBJECT_DRAFT)
                        return STATUS_OK;
                return store_refuse(ret_detail, STATUS_DELETED, "the object in slot %u of namespace %s is not there "
                                                                "any more",
                                    item->slot, space->ns.name);
        }
        if (!key_is_valid(item->key.bytes, item->key.n_bytes))
                return store_refuse(ret_detail, STATUS_INVALID, "a key is 1 to %d bytes without NUL",
                                    FOLIO_KEY_BYTES_MAX);
        ret->hash = index_hash(space->index, item->key);
        if (index_find(space->index, item->key, ret->hash, &slot)) {
                ret->object = space->objects[slot];
                return STATUS_OK;
        }
        status = store_refuse_missing(ret, &op);
        *ret_detail = op.detail;
        return status;
}

Status store_holders(Store *store, Session *session, uint32_t namespace_id, const ProtoItem *item,
                     StoreHolder *holders, size_t n_max, size_t *ret_n_holders, char **ret_detail)
{
        Target target;
        Status status;
        size_t n = 0;

        *ret_detail = NULL;
        status = find_for_holders(store, session, namespace_id, item, &target, ret_detail);
        if (status != STATUS_OK)
                return status;
        LIST_FOREACH(node, &target.space->tables)
        {
                const SessionTable *table = LIST_ENTRY(node, SessionTable, space_link);
                uint32_t n_pins = table->pins ? pins_count(table->pins, target.object->slot) : 0;

                if (n_pins == 0)
                        continue;
                if (n < n_max)
                        holders[n] = (StoreHolder){ .session = table->session, .n_pins = n_pins };
                n++;
        }
        *ret_n_holders = n;
        return STATUS_OK;
}

/* --- WATCH -------------------------------------------------------------------------------------------------------- */

Status store_watch(Store *store, Session *session, uint32_t namespace_id, int *ret_fd, char **ret_detail)
{
        Space *space = store_find_space_by_id(store, namespace_id);
        SessionTable *table = space ? session_find_table(session, space) : NULL;

        *ret_detail = NULL;
        if (!space)
                return store_refuse(ret_detail, STATUS_NOT_FOUND, "there is no namespace %u any more", namespace_id);
        if (!(store_rights(store, space, session) & FOLIO_RIGHT_READ))
                return store_refuse(ret_detail, STATUS_ACCESS, "uid %u has no right to read in namespace %s",
                                    session->cred.uid, space->ns.name);
        if (!table)
                return store_refuse(ret_detail, STATUS_STATE, "namespace %s has not been opened", space->ns.name);
        if (table->event_fd < 0) {
                table->event_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
                if (table->event_fd < 0)
                        return store_refuse_errno(ret_detail, -errno, "a timerfd");
                session_keep_event(table);
        }
        *ret_fd = table->event_fd;
        return STATUS_OK;
}
