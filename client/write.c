/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling an object by copies, and sealing it. Before the seal is asked for, all that could write the region from this process
 * is gone, and the pin that makes the handle a reader is on; what the daemon then refuses leaves a handle that can be sealed again, or aborted.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "client/create.h"
#include "client/fill.h"
#include "client/lib/copy.h"
#include "client/loop.h"
#include "client/made.h"
#include "client/stream.h"

/* --- writing ------------------------------------------------------------------------------------------------------------------------ */

/* Of one that is never sealed pieces may have been given back meanwhile. */
static bool is_huge(const Object *object)
{
        return !object->is_mutable &&
               fill_is_huge(object->space, object->slot, atomic_load_explicit(&object->generation, memory_order_relaxed),
                            object->capacity_bytes);
}

static int write_mapping(const Object *object, const Mapping *mapping, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        copy_bytes(mapping->data + object->offset_bytes + offset_bytes, data, n_bytes);
        return 0;
}

/* With the object's lock. Maps it; a process that can map no more writes by the descriptor. */
static int write_unmapped(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        _cleanup_(cleanup_fd) int fd = -1;
        ProtoItemReply item;
        int r = object_attach_mapped(object, true);

        if (r == 0) {
                r = object_ask_region(object, true, &item, &fd);
                if (r == 0)
                        r = object_map_region(object, &item, fd, true, false);
                if (r == FOLIO_E_LIMIT && fd >= 0)
                        return fill_region(fd, item.region_bytes, false, item.offset_bytes + offset_bytes, data, n_bytes);
        }
        return r < 0 ? r : write_mapping(object, atomic_load(&object->writing), offset_bytes, data, n_bytes);
}

static int write_mutable(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        const Mapping *mapping = atomic_load(&object->writing);
        int r;

        if (mapping)
                return write_mapping(object, mapping, offset_bytes, data, n_bytes);
        if (object->fd >= 0)
                return fill_region(object->fd, object->region_bytes, n_bytes >= FILL_MAPPED_BYTES_MIN && is_huge(object),
                                   object->offset_bytes + offset_bytes, data, n_bytes);
        (void)pthread_mutex_lock(&object->lock);
        r = write_unmapped(object, offset_bytes, data, n_bytes);
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

_public_ int folio_object_write(struct folio_object *handle, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        int r;
        Object *object = object_find(handle, &r);
        ObjectKind kind;

        if (!object)
                return r;
        if (!data && n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the data are NULL");
        r = object_check_writable(object, &kind);
        if (r < 0)
                return r;
        if (kind == OBJECT_STREAM) {
                return stream_write(object, offset_bytes, data, n_bytes);
        }
        r = object_check_range(object, offset_bytes, n_bytes);
        if (r < 0 || n_bytes == 0)
                return r;
        if (kind == OBJECT_LEASED)
                made_prepare(object, offset_bytes, n_bytes);
        if (kind == OBJECT_STAGED || kind == OBJECT_LEASED) {
                copy_bytes((uint8_t *)object->staged + offset_bytes, data, n_bytes);
                return 0;
        }
        return write_mutable(object, offset_bytes, data, n_bytes);
}

/* --- sealing ------------------------------------------------------------------------------------------------------------------------ */

typedef struct SealOp {
        Op op;
        Object *object;
} SealOp;

static void seal_settle(Op *op, int error)
{
        Object *object = CONTAINER_OF(op, SealOp, op)->object;

        if (!object->was_staged)
                return;
        /* What the daemon has refused may be sealed again, from where it is. */
        if (error == FOLIO_E_TIMEOUT) {
                operations_staged_orphan(op->client, &object->staged, 1, op->request.id);
                object->staged = NULL;
        } else {
                operations_staged_end(op->client, op->error == 0 ? steal_ptr(&object->staged) : NULL);
        }
}

static void seal_answered(Op *op)
{
        Object *object = CONTAINER_OF(op, SealOp, op)->object;

        if (op->error == 0)
                op_fail_as_thread(op, object_place(object, &op->item));
        if (op->error) {
                object_unpin(object);
        } else {
                /* One that replaces has another generation from now on: see PROTOCOL.md. */
                atomic_store_explicit(&object->generation, op->item.generation, memory_order_relaxed);
                if (op->item.placement != 0)
                        object->placement = op->item.placement;
                /* Of a stream alone; others may be looking. */
                if (object->capacity_bytes != object->size_bytes)
                        object->capacity_bytes = object->size_bytes;
                /* What was never written is listed from now on. */
                atomic_store_explicit(&object->zeros, OBJECT_ZEROS_UNKNOWN, memory_order_relaxed);
                atomic_store_explicit(&object->kind, OBJECT_READER, memory_order_release);
        }
        op_complete(op);
}

/* Takes away what this process could still write by. False: not in this state. */
static bool seal_prepare(Op *op, Object *object)
{
        Mapping *writing;
        ObjectKind kind;

        (void)pthread_mutex_lock(&object->lock);
        kind = (ObjectKind)atomic_load(&object->kind);
        if (object->is_streaming) {
                op_fail(op, FOLIO_E_STATE, "a write of the stream is under way");
        } else if (object_is_unsealed(object)) {
                object->was_staged = object->was_staged || kind == OBJECT_STAGED;
                atomic_store_explicit(&object->kind, OBJECT_ENDED, memory_order_release);
                object->fd = close_fd(object->fd);
                writing = atomic_exchange(&object->writing, NULL);
                if (writing)
                        maps_unref(object->client->maps, writing, true);
        }
        (void)pthread_mutex_unlock(&object->lock);
        if (kind == OBJECT_READER)
                op_fail(op, FOLIO_E_STATE, "the object is sealed already, or was not made through this handle");
        else if (kind == OBJECT_MUTABLE)
                op_fail(op, FOLIO_E_STATE, "a mutable object is complete as it is, and is never sealed");
        else if (object->is_broken)
                op_fail(op, FOLIO_E_STATE, "a write of the stream has failed: abort it");
        else if (object->was_staged && object->size_bytes > 0 && !object->staged)
                op_fail(op, FOLIO_E_STATE, "an earlier seal was not answered in time; abort the object");
        return op->error == 0;
}

static void seal_made_answered(Op *op)
{
        op_fail_as_thread(op, made_seal_end(CONTAINER_OF(op, SealOp, op)->object));
        op_complete(op);
}

/* Asynchronous, of an object made through the ring: what is sent after the record is answered after it. */
static void seal_made(Op *op)
{
        ProtoRequest message = { .verb = VERB_PING };
        int r = made_seal_begin(CONTAINER_OF(op, SealOp, op)->object);

        if (r < 0) {
                op_fail_as_thread(op, r);
                op_complete(op);
                return;
        }
        op_send(op, &message, NULL, seal_made_answered);
}

static void seal_begin(Op *op)
{
        Object *object = CONTAINER_OF(op, SealOp, op)->object;
        ProtoItem item = object_slot_item(object);

        op->space = object->space;
        if (!seal_prepare(op, object)) {
                op_complete(op);
                return;
        }
        /* Before it can be deleted by anybody; where the namespace may not be read there is no pin, and the handle holds nothing. */
        (void)object_pin(object);
        if (object->was_staged) {
                item.flags |= PROTO_ITEM_STAGED;
                if (object->staged)
                        item.staging_offset = staging_offset(op->client->staging, object->staged);
                operations_staged_begin(op->client);
        }
        op->settle = seal_settle;
        op_send_item(op, VERB_SEAL, &item, seal_answered);
}

_public_ int folio_object_seal(struct folio_object *handle)
{
        int r;
        SealOp seal;

        seal.object = object_find_piped(handle, &r);
        if (!seal.object)
                return r;
        if (seal.object->made)
                return made_seal(seal.object);
        op_init(&seal.op, seal.object->client);
        r = op_run(&seal.op, seal_begin);
        op_deinit(&seal.op);
        return r;
}

static void seal_op_free(Op *op)
{
        object_unref(CONTAINER_OF(op, SealOp, op)->object);
        op_deinit(op);
        free(CONTAINER_OF(op, SealOp, op));
}

_public_ int folio_object_seal_async(struct folio_object *handle, folio_done_fn done, void *userdata)
{
        int r;
        Object *object = object_find_piped(handle, &r);
        Client *client;
        SealOp *seal;

        if (!object)
                return r;
        if (!done)
                return error_set(FOLIO_E_INVALID, "there is no callback");
        client = object->client;
        seal = calloc(1, sizeof(*seal));
        if (!seal)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        seal->object = object_ref(object);
        op_init(&seal->op, client);
        seal->op.is_changing = true;
        op_set_async(&seal->op, done, userdata, seal_op_free);
        op_begin(&seal->op, object->made ? seal_made : seal_begin);
        loop_update(client);
        return 0;
}
