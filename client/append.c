/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing that does not wait. A stream asks the daemon for each block, see stream.h; everything else is a copy, for which
 * the region has to be asked for at most.
 */
#include "base/cleanup.h"
#include "client/call.h"
#include "client/lib/copy.h"
#include "client/object.h"
#include "client/stream.h"

typedef struct StoreOp {
        Op op;
        struct folio_object *handle;
        Object *object;
        uint64_t offset_bytes;
        const uint8_t *data;
        size_t n_bytes;
} StoreOp;

static void store_came(Op *op)
{
        StoreOp *store = CONTAINER_OF(op, StoreOp, op);
        Object *object = store->object;

        if (op->error == 0)
                op_fail_as_thread(op, object_add_region(object, &op->item, steal_fd(&op->fd), true, false));
        if (op->error == 0)
                copy_bytes(atomic_load(&object->writing)->data + object->offset_bytes + store->offset_bytes, store->data,
                           store->n_bytes);
        object_unref(object);
        op_complete(op);
}

/* A copy, of what is mapped or has a descriptor; for one that has neither the region is asked for. */
static void store_begin(Op *op)
{
        StoreOp *store = CONTAINER_OF(op, StoreOp, op);
        Object *object = store->object;
        ProtoItem item;
        int r = object_check_range(object, store->offset_bytes, store->n_bytes);

        if (r == 0 && store->n_bytes > 0 && atomic_load(&object->kind) == OBJECT_MUTABLE && object->fd < 0)
                r = object_attach_mapped(object, true);
        else if (r == 0)
                r = 1;
        if (r == 0) {
                item = object_region_item(object, true);
                (void)object_ref(object);
                op->space = object->space;
                op_send_item(op, VERB_REGION, &item, store_came);
                return;
        }
        if (r > 0)
                r = folio_object_write(store->handle, store->offset_bytes, store->data, store->n_bytes);
        op_fail_as_thread(op, r);
        op_complete(op);
}

_public_ int folio_object_write_async(struct folio_object *handle, uint64_t offset_bytes, const void *data, size_t n_bytes,
                                      folio_done_fn done, void *userdata)
{
        int r;
        StoreOp store = {
                .handle = handle,
                .object = object_find(handle, &r),
                .offset_bytes = offset_bytes,
                .data = data,
                .n_bytes = n_bytes,
        };
        ObjectKind kind;

        if (!store.object)
                return r;
        if (!data && n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the data are NULL");
        r = object_check_writable(store.object, &kind);
        if (r < 0)
                return r;
        if (kind == OBJECT_STREAM)
                return stream_write_async(store.object, offset_bytes, data, n_bytes, done, userdata);
        op_init(&store.op, store.object->client);
        return call_async(&store.op, sizeof(store), store_begin, done, userdata);
}
