/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting bytes in one call. Small ones go to staging memory and are one request; larger ones, and small ones for
 * which there is no room in staging and none to be waited for, are a region made, filled (fill.h) and sealed.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "client/create.h"
#include "client/fill.h"
#include "client/lib/copy.h"
#include "client/loop.h"
#include "client/put-now.h"
#include "client/put.h"

typedef struct PutOp {
        Op op;
        ProtoItem item;
        const void *data;
        void *staged;
        void *texts;
} PutOp;

bool put_is_small(const Client *client, const ProtoItem *item)
{
        return item->size_bytes == 0 || (item->size_bytes <= client->packed_bytes_max && !(item->flags & FOLIO_OWN_REGION));
}

static void put_settle(Op *op, int error)
{
        void *staged = steal_ptr(&CONTAINER_OF(op, PutOp, op)->staged);

        if (error == FOLIO_E_TIMEOUT)
                operations_staged_orphan(op->client, &staged, 1, op->request.id);
        else
                operations_staged_end(op->client, staged);
}

static void put_filled(Op *op)
{
        if (op->error && op->error != FOLIO_E_TIMEOUT)
                create_tell_abort(op->client, op->space->id, op->item.slot, op->item.generation);
        op_complete(op);
}

int put_fill(const Space *space, const ProtoItemReply *item, int consume_fd, const void *data, uint64_t size_bytes)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;

        if (fd < 0)
                return error_set(FOLIO_E_PROTOCOL, "foliod's answer lacks the region's descriptor");
        return fill_region(fd, item->region_bytes, fill_is_huge(space, item->slot, item->generation, size_bytes),
                           item->offset_bytes, data, (size_t)size_bytes);
}

static void put_made(Op *op)
{
        PutOp *put = CONTAINER_OF(op, PutOp, op);
        ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = op->item.slot, .generation = op->item.generation };
        int r;

        if (op->error) {
                op_complete(op);
                return;
        }
        create_note(op->client, op->item.generation);
        r = put_fill(op->space, &op->item, steal_fd(&op->fd), put->data, put->item.size_bytes);
        if (r < 0) {
                op_fail(op, r, "%s", error_get_sentence());
                put_filled(op);
                return;
        }
        op_send_item(op, VERB_SEAL, &item, put_filled);
}

static void put_large(Op *op)
{
        PutOp *put = CONTAINER_OF(op, PutOp, op);
        ProtoItem item = put->item;

        item.flags |= FOLIO_OWN_REGION;
        op->settle = create_settle;
        op_send_item(op, VERB_CREATE, &item, put_made);
}

static void put_send(Op *op)
{
        PutOp *put = CONTAINER_OF(op, PutOp, op);
        Staging *staging = op->client->staging;

        if (op->error) {
                op_complete(op);
                return;
        }
        put->item.key = op->key;
        if (!put_is_small(op->client, &put->item)) {
                put_large(op);
                return;
        }
        if (put->item.size_bytes > 0) {
                size_t n_bytes = (size_t)put->item.size_bytes;

                put->staged = staging_take(staging, n_bytes);
                if (!put->staged) {
                        if (op_wait_staging(op, put_send))
                                return;
                        /* What was under way may have ended just before we asked. */
                        put->staged = staging_take(staging, n_bytes);
                }
                if (!put->staged) {
                        put_large(op);
                        return;
                }
                copy_bytes(put->staged, put->data, n_bytes);
                put->item.staging_offset = staging_offset(staging, put->staged);
        }
        op->settle = put_settle;
        operations_staged_begin(op->client);
        op_send_item(op, VERB_PUT, &put->item, op_complete);
}

static void put_begin(Op *op)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, false, &namespace, &op->key))
                op_complete(op);
        else
                names_open(op, namespace, put_send);
}

static int read_arguments(Client *client, const void *data, uint64_t size_bytes, const struct folio_create_options *options,
                          ProtoItem *item)
{
        int r = client_check(client);

        if (r == 0 && !data && size_bytes > 0)
                r = error_set(FOLIO_E_INVALID, "the data are NULL");
        if (r == 0)
                r = create_read_options(options, size_bytes, FOLIO_REPLACE | FOLIO_OWN_REGION, item);
        if (r == 0 && size_bytes > SIZE_MAX)
                r = error_set(FOLIO_E_TOO_LARGE, "%llu bytes do not fit in memory", (unsigned long long)size_bytes);
        return r;
}

static __attribute__((noinline)) int put_wait(Client *client, const char *name, const void *data, const ProtoItem *item)
{
        PutOp put;
        int r;

        put.item = *item;
        put.data = data;
        put.staged = put.texts = NULL;
        op_init(&put.op, client);
        (void)op_set_name(&put.op, name);
        r = op_run(&put.op, put_begin);
        op_deinit(&put.op);
        pipe_note_result(client, r);
        return r;
}

_public_ int folio_put(struct folio_client *client, const char *name, const void *data, uint64_t size_bytes,
                       const struct folio_create_options *options)
{
        ProtoItem item;
        int r = read_arguments(client, data, size_bytes, options, &item);

        if (LIKELY(r == 0))
                r = put_now(client, name, data, &item, create_is_visible(client, options));
        return r == DIRECT_NOT ? put_wait(client, name, data, &item) : r;
}

static void put_op_free(Op *op)
{
        PutOp *put = CONTAINER_OF(op, PutOp, op);

        free(put->texts);
        op_deinit(op);
        free(put);
}

_public_ int folio_put_async(struct folio_client *client, const char *name, const void *data, uint64_t size_bytes,
                             const struct folio_create_options *options, folio_done_fn done, void *userdata)
{
        ProtoItem item;
        PutOp *put;
        int r;

        r = read_arguments(client, data, size_bytes, options, &item);
        if (r == 0 && !done)
                r = error_set(FOLIO_E_INVALID, "there is no callback");
        if (r < 0)
                return r;
        put = calloc(1, sizeof(*put));
        if (!put || !create_keep_texts(&item, &put->texts)) {
                free(put);
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        }
        put->item = item;
        put->data = data;
        op_init(&put->op, client);
        put->op.is_changing = true;
        op_set_async(&put->op, done, userdata, put_op_free);
        if (!op_set_name(&put->op, name)) {
                r = error_set_sentence(put->op.error, put->op.sentence);
                put_op_free(&put->op);
                return r;
        }
        op_begin(&put->op, put_begin);
        loop_update(client);
        return 0;
}
