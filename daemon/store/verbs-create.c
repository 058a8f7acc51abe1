/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CREATE, and what PUT shares with it. An object that is created has its memory before the answer goes out: a chunk
 * of a packed region, or a region of its own with every page reserved, unless it was asked to be sparse or a stream.
 */
#include "daemon/store/store-private.h"

#include <errno.h>
#include <fcntl.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "daemon/store/fault.h"
#include "proto/key.h"

#define CREATE_FLAGS                                                                                                   \
        (FOLIO_REPLACE | FOLIO_MUTABLE | FOLIO_SPARSE | FOLIO_OWN_REGION | FOLIO_STREAM | PROTO_ITEM_STAGED)
#define NEEDS_OWN_REGION (FOLIO_OWN_REGION | FOLIO_MUTABLE | FOLIO_SPARSE | FOLIO_STREAM)

/* --- shape -------------------------------------------------------------------------------------------------------- */

static Status check_texts(const ProtoItem *item, char **ret_detail)
{
        if (!key_is_valid(item->key.bytes, item->key.n_bytes))
                return store_refuse(ret_detail, STATUS_INVALID, "a key is 1 to %d bytes without NUL",
                                    FOLIO_KEY_BYTES_MAX);
        if (item->metadata.n_bytes > FOLIO_METADATA_BYTES_MAX)
                return store_refuse(ret_detail, STATUS_TOO_LARGE, "%zu bytes of metadata are more than %d",
                                    item->metadata.n_bytes, FOLIO_METADATA_BYTES_MAX);
        if (item->content_type.n_bytes > FOLIO_CONTENT_TYPE_BYTES_MAX)
                return store_refuse(ret_detail, STATUS_TOO_LARGE, "a content type of %zu bytes is longer than %d",
                                    item->content_type.n_bytes, FOLIO_CONTENT_TYPE_BYTES_MAX);
        return STATUS_OK;
}

Status store_check_options(const StoreOp *op, uint32_t flags_known, char **ret_detail)
{
        const ProtoItem *item = op->item;
        Status status = check_texts(item, ret_detail);

        if (status != STATUS_OK)
                return status;
        if (item->flags & ~flags_known)
                return store_refuse(ret_detail, STATUS_INVALID, "flags %#x are not known here",
                                    item->flags & ~flags_known);
        if (item->lifetime > FOLIO_UNTIL_TIME)
                return store_refuse(ret_detail, STATUS_INVALID, "lifetime %u is none of until-deleted (0), "
                                                                "with-creator (1), until-time (2)",
                                    item->lifetime);
        if ((item->lifetime == FOLIO_UNTIL_TIME) != (item->expires_ns != 0))
                return store_refuse(ret_detail, STATUS_INVALID,
                                    "a time to expire at goes with the lifetime until-time, and with no other");
        if (item->flags & FOLIO_STREAM && (item->flags & FOLIO_MUTABLE || item->size_bytes != 0))
                return store_refuse(ret_detail, STATUS_INVALID,
                                    "the size of a stream is what is written to it: it has none before, and is not "
                                    "mutable");
        if (item->capacity_bytes != 0 && !(item->flags & FOLIO_MUTABLE) && item->capacity_bytes != item->size_bytes)
                return store_refuse(ret_detail, STATUS_INVALID, "only mutable objects have a capacity");
        if (item->capacity_bytes != 0 && item->capacity_bytes < item->size_bytes)
                return store_refuse(ret_detail, STATUS_INVALID, "a capacity of %llu bytes is less than the size, %llu",
                                    (unsigned long long)item->capacity_bytes, (unsigned long long)item->size_bytes);
        return STATUS_OK;
}

/* Before anything is allocated: what can never fit is refused for that, however much is free. */
Status store_check_size(const Store *store, const Space *space, uint64_t n_bytes, char **ret_detail)
{
        uint64_t file_bytes;

        if (n_bytes > FOLIO_OBJECT_BYTES_MAX || !store_own_file_bytes(n_bytes, &file_bytes))
                return store_refuse(ret_detail, STATUS_TOO_LARGE, "%llu bytes are more than an object can have, %llu",
                                    (unsigned long long)n_bytes, (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        if (n_bytes > store->budget.bytes_max)
                return store_refuse_payment(store, STORE_PAY_NEVER, n_bytes, ret_detail);
        if (n_bytes > space->ns.quota.bytes_max)
                return store_refuse(ret_detail, STATUS_TOO_LARGE,
                                    "%llu bytes are more than the quota of namespace %s, %llu bytes; raise that",
                                    (unsigned long long)n_bytes, space->ns.name,
                                    (unsigned long long)space->ns.quota.bytes_max);
        return STATUS_OK;
}

/* What was known of the region when it was made: all of it is there, and huge where every piece was. */
static void measure_leased(const Object *object, LayoutSlot *ret)
{
        const Region *region = object->leased->region;
        uint64_t begin = object_offset_bytes(object), end = begin + object->charge.n_bytes;

        begin = ALIGN_UP(begin, HUGE_BYTES);
        end = ALIGN_DOWN(end, HUGE_BYTES);
        if (begin < end && region->n_huge * HUGE_BYTES >= region->size_bytes)
                ret->huge_folios = (uint32_t)((end - begin) / HUGE_BYTES);
}

void store_measure_object(const Object *object, LayoutSlot *record)
{
        if (object->chunk || object->leased)
                record->allocated_pages = store_packed_pages(object);
        if (object->leased)
                measure_leased(object, record);
}

uint32_t store_packed_pages(const Object *object)
{
        return (uint32_t)((object->charge.n_bytes + PAGE_BYTES - 1) / PAGE_BYTES);
}

void store_fill_record(Store *store, const StoreOp *op, const Object *object, LayoutSlot *record)
{
        const ProtoItem *item = op->item;

        store_describe_object(object, record);
        record->size_bytes = item->size_bytes;
        record->capacity_bytes = MAX(item->size_bytes, item->capacity_bytes);
        record->created_ns = record->changed_ns = store_now_ns(store);
        record->expires_ns = item->expires_ns;
        record->owner_uid = op->session->cred.uid;
        store_measure_object(object, record);
}

void store_begin_record(Store *store, const StoreOp *op, const Object *object, LayoutSlot *ret)
{
        index_get(((Space *)object->space)->index, object->slot, ret);
        store_fill_record(store, op, object, ret);
}

Status store_draft_leased(Store *store, const Target *target, StoreOp *op, Object **ret, LayoutSlot *ret_record)
{
        uint64_t n_bytes = lease_units(op->item->size_bytes) * LEASE_UNIT_BYTES;
        Leased *leased;
        Object *object;
        Status status;

        status = store_take_units(op, target->space, &leased);
        if (status != STATUS_OK)
                return status;
        ret_record->hash = target->hash;
        status = store_draft_object(store, target->space, op, n_bytes, &object, ret_record, &op->detail);
        if (status != STATUS_OK) {
                store_give_units(store, leased, op->item->offset_bytes, op->item->size_bytes);
                return status;
        }
        object->leased = leased;
        object->leased_unit = (uint32_t)(op->item->offset_bytes / LEASE_UNIT_BYTES);
        *ret = object;
        return STATUS_OK;
}

int store_draft_packed(Store *store, const Target *target, StoreOp *op, Object **ret)
{
        uint64_t n_bytes = ALIGN_UP(MAX(op->item->size_bytes, 1), LAYOUT_CHUNK_UNIT_BYTES);
        Space *space = target->space;
        Object *object;
        Status status;
        int r;

        status = store_draft_object(store, space, op, n_bytes, &object, NULL, &op->detail);
        if (status != STATUS_OK)
                return status;
        r = store_take_chunk(store, space, n_bytes, &object->chunk);
        if (r == 0) {
                /* It can be a little larger, where the rest would have been of no use to anybody. */
                status = store_charge_object(object, object->chunk->size_bytes, &op->detail);
                if (status == STATUS_OK) {
                        *ret = object;
                        return STATUS_OK;
                }
                store_forget_object(store, object);
                return status;
        }
        object->chunk = NULL;
        store_forget_object(store, object);
        switch (r) {
        case STORE_CHUNK_GROWING:
                return store_wait(store, target, op, NULL, &space->packed_waiters);
        case STORE_PAY_WAIT:
                return store_wait(store, target, op, NULL, &store->memory_waiters);
        case STORE_PAY_FULL:
        case STORE_PAY_NEVER:
                return store_refuse_payment(store, r, n_bytes, &op->detail);
        default:
                return store_refuse_errno(&op->detail, r, "a packed region");
        }
}

/* --- a region of its own ------------------------------------------------------------------------------------------ */

/* All is there; nothing can be refused any more but the name of a mutable object, and a descriptor. */
static Status commit_own(Store *store, StoreOp *op, Object *object)
{
        _cleanup_(cleanup_fd) int fd = -1;
        uint64_t allocated = 0;
        LayoutSlot record;
        Status status;
        int r;

        if (!object->is_stream) {
                fd = fcntl(object->region->fd, F_DUPFD_CLOEXEC, 3);
                if (fd < 0)
                        return store_refuse_errno(&op->detail, -errno, "the region of the object");
        }
        FAULT("create.made");
        r = store_keep_region(store, object->region, KEPT_OWN, ((Space *)object->space)->ns.id, object->region->id,
                              object->is_stream);
        if (r != 0)
                return store_refuse_kept(store, r, &op->detail);
        FAULT("create.kept");
        store_begin_record(store, op, object, &record);
        if (region_get_allocated(object->region, &allocated) == 0)
                record.allocated_pages = (uint32_t)(allocated / PAGE_BYTES);
        /* Who fills it may want to know: into huge pages a copy through a mapping is the fastest. */
        record.huge_folios = (uint32_t)object->region->n_huge;
        if (op->item->flags & FOLIO_MUTABLE) {
                record.protection = FOLIO_PROTECTION_NONE;
                if (object->is_sparse)
                        store_publish_empty(object, &record);
                status = store_publish(store, object, op->session, OBJECT_MUTABLE, &record, op->origin, &op->detail);
                if (status != STATUS_OK)
                        return status;
        } else {
                store_publish_writing(store, object, op->session, &record);
        }
        store_fill_op(op, object);
        op->fd = steal_fd(&fd);
        return STATUS_OK;
}

static void own_prepared(void *userdata, int result, uint64_t n_huge, uint64_t n_failed)
{
        Work *work = userdata;
        Store *store = work->store;
        Object *object = work->object;
        StoreOp *op = work->op;
        Status status;

        list_unlink(&work->link);
        object->region->n_huge = n_huge;
        store->n_collapsed += n_huge;
        store->n_collapse_failed += n_failed;
        if (op->session->is_closed || work->space->is_removed)
                status = store_refuse(&op->detail, STATUS_CANCELLED, "the connection or the namespace has gone "
                                                                     "meanwhile");
        else if (result < 0)
                status = store_refuse_errno(&op->detail, result, "the object's pages");
        else
                status = commit_own(store, op, object);
        if (status != STATUS_OK)
                store_forget_object(store, object);
        store_end_work(work, status);
        store_flush(store);
}

/*
 * Those who may write to a mutable object have its file for as long as it lives: it must be one whose size can be
 * sealed, or the first to cut it off would end everybody else who maps it by SIGBUS.
 */
static Backend *choose_backend(const Store *store, const Space *space, const ProtoItem *item)
{
        return item->flags & FOLIO_MUTABLE ? store->memfd : space->own_backend;
}

static int seal_new(Region *region, const ProtoItem *item)
{
        if (item->flags & FOLIO_STREAM)
                return 0;
        return item->flags & FOLIO_MUTABLE ? region_seal_size_for_good(region) : region_seal_size(region);
}

/* A new region, paid for, its size sealed; no page of it is there. 0, STORE_PAY_*, or a negative errno. */
static int make_own_region(Store *store, Space *space, const ProtoItem *item, uint64_t file_bytes, Region **ret)
{
        Charge charge = CHARGE_NULL;
        Region *region;
        int r;

        r = store_pay(store, file_bytes, &charge);
        if (r)
                return r;
        r = region_new(choose_backend(store, space, item), "folio-object", file_bytes, &region);
        if (r < 0) {
                charge_release(&charge);
                return r;
        }
        /* The kernel gives out the lowest number that is free: it tells how many are taken. */
        if (region->fd >= store->object_fds_max) {
                charge_release(&charge);
                region_unref(region);
                return -EMFILE;
        }
        if (!store_attach_charge(region, &charge)) {
                charge_release(&charge);
                region_unref(region);
                return -ENOMEM;
        }
        r = seal_new(region, item);
        if (r < 0) {
                store_drop_region(store, region);
                return r;
        }
        *ret = region;
        return 0;
}

/* How much of the file must be there before the answer. */
static uint64_t bytes_to_reserve(const ProtoItem *item, uint64_t file_bytes)
{
        if (item->flags & (FOLIO_SPARSE | FOLIO_STREAM))
                return 0;
        return item->flags & FOLIO_MUTABLE ? item->size_bytes : file_bytes;
}

static int refuse_region(Store *store, const Target *target, StoreOp *op, Object *object, int r, uint64_t file_bytes)
{
        store_forget_object(store, object);
        if (r == STORE_PAY_WAIT)
                return store_wait(store, target, op, NULL, &store->memory_waiters);
        if (r > 0)
                return store_refuse_payment(store, r, file_bytes, &op->detail);
        return store_refuse_errno(&op->detail, r, "the region of the object");
}

/*
 * Huge from the start, where that is allowed: filling it then is faster by as much as this takes longer, and nobody has
 * to copy it into huge folios afterwards (measured: half of the processor time in all).
 */
static int begin_preparing(Store *store, const Target *target, StoreOp *op, Object *object, uint64_t n_bytes)
{
        PrepareConfig config = {
                .workers = store->config.workers,
                .region = object->region,
                .n_bytes = n_bytes,
                .want_huge = target->space->ns.huge != FOLIO_HUGE_NEVER,
                .piece_ns_max = STORE_CHEAP_PIECE_NS,
                .done = own_prepared,
        };
        Work *work = store_begin_work(store, target, op, NULL);
        int r;

        if (!work)
                return refuse_region(store, target, op, object, -ENOMEM, n_bytes);
        work->object = object;
        config.userdata = work;
        r = prepare_begin(&config, &work->prepare);
        if (r < 0) {
                store_forget_object(store, object);
                store_end_work(work, store_refuse_errno(&op->detail, r, "the region of the object"));
                return STORE_OP_PENDING;
        }
        list_push_back(&store->preparing, &work->link);
        return STORE_OP_PENDING;
}

static int reserve_and_commit(Store *store, const Target *target, StoreOp *op, Object *object, uint64_t n_bytes)
{
        Status status;
        int r = 0;

        if (n_bytes > STORE_SLOW_RESERVE_BYTES)
                return begin_preparing(store, target, op, object, n_bytes);
        if (n_bytes > 0)
                r = region_reserve(object->region, 0, n_bytes, NULL);
        if (r < 0)
                return refuse_region(store, target, op, object, r, n_bytes);
        status = commit_own(store, op, object);
        if (status != STATUS_OK)
                store_forget_object(store, object);
        return status;
}

/*
 * A warm blank is there whole: nothing to wait for. It may be huge, which not everybody wants, and somewhat larger,
 * which the quota may not have room for.
 */
static bool take_blank(Store *store, Space *space, Object *object, uint64_t file_bytes)
{
        _cleanup_(cleanup_free) char *ignored = NULL;

        if (space->ns.huge == FOLIO_HUGE_NEVER && store->config.huge != FOLIO_HUGE_NEVER)
                return false;
        if (space->own_backend == store->memfd)
                store_note_demand(store, file_bytes);
        object->region = store_take_blank(store, space->own_backend, file_bytes, false, 0);
        if (!object->region)
                return false;
        if (object->region->fd < store->object_fds_max &&
            store_charge_object(object, object->region->size_bytes, &ignored) == STATUS_OK)
                return true;
        store_drop_region(store, steal_ptr(&object->region));
        return false;
}

static int create_own(Store *store, const Target *target, StoreOp *op)
{
        const ProtoItem *item = op->item;
        Space *space = target->space;
        uint64_t n_bytes = MAX(item->size_bytes, item->capacity_bytes), file_bytes, n_reserve;
        bool is_whole = !(item->flags & (FOLIO_SPARSE | FOLIO_STREAM | FOLIO_MUTABLE));
        Object *object;
        Status status;
        int r;

        if (!store_own_file_bytes(n_bytes, &file_bytes))
                return store_check_size(store, space, UINT64_MAX, &op->detail);
        status = store_draft_object(store, space, op, file_bytes, &object, NULL, &op->detail);
        if (status != STATUS_OK)
                return status;
        n_reserve = bytes_to_reserve(item, file_bytes);
        if (is_whole && take_blank(store, space, object, file_bytes)) {
                n_reserve = 0;
        } else {
                r = make_own_region(store, space, item, file_bytes, &object->region);
                if (r) {
                        object->region = NULL;
                        return refuse_region(store, target, op, object, r, file_bytes);
                }
        }
        return reserve_and_commit(store, target, op, object, n_reserve);
}

/* --- the verb ----------------------------------------------------------------------------------------------------- */

static int create_leased(Store *store, const Target *target, StoreOp *op)
{
        LayoutSlot record;
        Object *object;
        Status status;

        status = store_draft_leased(store, target, op, &object, &record);
        if (status != STATUS_OK)
                return status;
        store_fill_record(store, op, object, &record);
        record.allocated_pages = op->made;
        store_publish_writing(store, object, op->session, &record);
        store_fill_op(op, object);
        return STATUS_OK;
}

static int create_packed(Store *store, const Target *target, StoreOp *op)
{
        LayoutSlot record;
        Object *object;
        int r;

        r = store_draft_packed(store, target, op, &object);
        if (r != STATUS_OK)
                return r;
        store_begin_record(store, op, object, &record);
        record.allocated_pages = op->made;
        store_publish_writing(store, object, op->session, &record);
        store_fill_op(op, object);
        return STATUS_OK;
}

Status store_check_name(const Target *target, const StoreOp *op, bool is_at_once, char **ret_detail)
{
        const Object *object = target->object;

        if (!object)
                return STATUS_OK;
        if (!(op->item->flags & FOLIO_REPLACE))
                return store_refuse(ret_detail, STATUS_EXISTS, "the name is taken in namespace %s%s",
                                    target->space->ns.name,
                                    object->state == OBJECT_WRITING ? " by an object that is still being written" : "");
        /* Later, when this one is sealed, the other may be too. */
        if (is_at_once && object->state == OBJECT_WRITING)
                return store_refuse(ret_detail, STATUS_WRITING, "the object to be replaced is still being written");
        return STATUS_OK;
}

int store_verb_create(Store *store, StoreOp *op)
{
        const ProtoItem *item = op->item;
        Target target;
        Status status;
        bool is_packed;
        int r;

        status = store_check_options(op, op->leased_region_id ? FOLIO_REPLACE : CREATE_FLAGS, &op->detail);
        if (status != STATUS_OK)
                return status;
        r = store_resolve(store, op, FOLIO_RIGHT_WRITE, &target);
        if (r != STATUS_OK)
                return r;
        status = store_check_size(store, target.space, MAX(item->size_bytes, item->capacity_bytes), &op->detail);
        if (status != STATUS_OK)
                return status;
        status = store_check_name(&target, op, item->flags & FOLIO_MUTABLE, &op->detail);
        if (status != STATUS_OK)
                return status;
        if (op->leased_region_id)
                return create_leased(store, &target, op);
        is_packed = item->flags & PROTO_ITEM_STAGED && !(item->flags & NEEDS_OWN_REGION) &&
                    item->size_bytes <= store->config.packed_bytes_max;
        return is_packed ? create_packed(store, &target, op) : create_own(store, &target, op);
}
