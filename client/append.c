/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing that does not wait. Only a stream asks the daemon for anything, a block at a time, some under way at once,
 * as room in staging memory allows; everything else is a copy. One of them at a time is under way in a stream, as the next
 * begins where it ends.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "client/bundle.h"
#include "client/call.h"
#include "client/lib/copy.h"
#include "client/object.h"

enum { APPEND_BLOCKS_MAX = 4 };
#define APPEND_BLOCK_BYTES_MAX MIB
#define APPEND_BLOCK_BYTES_MIN (4 * KIB)

typedef struct AppendOp {
        Op op;
        struct folio_object *handle;
        Object *object;
        uint64_t offset_bytes;
        const uint8_t *data;
        size_t n_bytes;              /* that are left */
        Bundles bundles;
} AppendOp;

static void append_end(AppendOp *append)
{
        Object *object = append->object;

        (void)pthread_mutex_lock(&object->lock);
        object->is_streaming = false;
        (void)pthread_mutex_unlock(&object->lock);
        bundles_deinit(&append->bundles);
        object_unref(object);
        op_complete(&append->op);
}

static void append_take(AppendOp *append)
{
        Bundle *bundle;

        while ((bundle = bundles_take(&append->bundles))) {
                int r = bundle_get_error(bundle, 0);

                if (r < 0) {
                        append->object->is_broken = true;
                        op_fail_as_thread(&append->op, r);
                }
                bundle_give(bundle);
        }
}

/* As much room as there is, up to @n_bytes. NULL: none now. */
static void *take_room(Staging *staging, size_t *n_bytes)
{
        for (size_t n = *n_bytes;; n = MAX(n / 2, (size_t)APPEND_BLOCK_BYTES_MIN)) {
                void *staged = staging_take(staging, n);

                if (staged) {
                        *n_bytes = n;
                        return staged;
                }
                if (n <= APPEND_BLOCK_BYTES_MIN)
                        return NULL;
        }
}

/* 0: one block more is under way; 1: there is no room; an error. */
static int append_block(AppendOp *append)
{
        Client *client = append->op.client;
        Object *object = append->object;
        ProtoItem item = object_slot_item(object);
        uint64_t block_bytes = MIN((uint64_t)APPEND_BLOCK_BYTES_MAX, MAX(client->staging_bytes / 8, (uint64_t)64));
        size_t n = (size_t)MIN((uint64_t)append->n_bytes, block_bytes);
        void *staged = take_room(client->staging, &n);
        int r;

        if (!staged)
                return 1;
        copy_bytes(staged, append->data, n);
        item.offset_bytes = object->size_bytes;
        item.size_bytes = n;
        item.staging_offset = staging_offset(client->staging, staged);
        r = bundles_add(&append->bundles, object->space, VERB_WRITE, &item, 0, staged);
        if (r != BUNDLES_ADDED) {
                staging_give(client->staging, staged);
                return r < 0 ? r : error_set(FOLIO_E_NO_MEMORY, "too much of the stream is under way");
        }
        (void)bundles_flush(&append->bundles);
        append->data += n;
        append->n_bytes -= n;
        object->size_bytes += n;
        return 0;
}

static void append_go(Op *op)
{
        AppendOp *append = CONTAINER_OF(op, AppendOp, op);
        bool is_full = false;

        append_take(append);
        while (op->error == 0 && append->n_bytes > 0 && append->bundles.n_under_way < APPEND_BLOCKS_MAX) {
                int r = append_block(append);

                op_fail_as_thread(op, r);
                is_full = r > 0;
                if (is_full)
                        break;
        }
        if (append->bundles.n_under_way > 0) {
                bundles_wait(&append->bundles, append_go);
                return;
        }
        if (is_full && op->error == 0) {
                if (op_wait_staging(op, append_go))
                        return;
                op_fail(op, FOLIO_E_LIMIT, "all %llu bytes of this client's staging memory are held by unsealed objects",
                        (unsigned long long)op->client->staging_bytes);
        }
        append_end(append);
}

/* Makes the stream ours. 0 or an error, with the sentence. */
static int append_claim(AppendOp *append)
{
        Object *object = append->object;
        int r = 0;

        /* Who has the lock may be waiting for the daemon. */
        if (pthread_mutex_trylock(&object->lock) != 0)
                return error_set(FOLIO_E_STATE, "another write of the stream is under way");
        if (object->is_streaming)
                r = error_set(FOLIO_E_STATE, "another write of the stream is under way");
        else if (object->is_broken)
                r = error_set(FOLIO_E_STATE, "an earlier write of the stream has failed: abort it");
        else if (append->offset_bytes != object->size_bytes)
                r = error_set(FOLIO_E_RANGE, "a stream continues at its end, %llu, not at %llu",
                              (unsigned long long)object->size_bytes, (unsigned long long)append->offset_bytes);
        else
                object->is_streaming = true;
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

static void append_begin(Op *op)
{
        AppendOp *append = CONTAINER_OF(op, AppendOp, op);
        uint64_t end;
        int r = 0;

        if (!checked_add(append->offset_bytes, append->n_bytes, &end) || end > FOLIO_OBJECT_BYTES_MAX)
                r = error_set(FOLIO_E_TOO_LARGE, "no object is larger than %llu bytes",
                              (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        if (r == 0)
                r = append_claim(append);
        if (r < 0) {
                op_fail_as_thread(op, r);
                op_complete(op);
                return;
        }
        (void)object_ref(append->object);
        bundles_init(&append->bundles, op);
        append_go(op);
}

/* --- what is not a stream ---------------------------------------------------------------------------------------------------------------- */

static void store_came(Op *op)
{
        AppendOp *store = CONTAINER_OF(op, AppendOp, op);
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
        AppendOp *store = CONTAINER_OF(op, AppendOp, op);
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
        AppendOp append = {
                .handle = handle,
                .object = object_find(handle, &r),
                .offset_bytes = offset_bytes,
                .data = data,
                .n_bytes = n_bytes,
        };
        ObjectKind kind;

        if (!append.object)
                return r;
        if (!data && n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the data are NULL");
        r = object_check_writable(append.object, &kind);
        if (r < 0)
                return r;
        op_init(&append.op, append.object->client);
        return call_async(&append.op, sizeof(append), kind == OBJECT_STREAM ? append_begin : store_begin, done, userdata);
}
