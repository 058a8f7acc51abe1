/* SPDX-License-Identifier: Apache-2.0 */
/* Truncating and deleting: one request each, and none where the index shows that nothing is to be done. */
#include <stdlib.h>
#include <string.h>

#include "client/get.h"
#include "client/loop.h"

typedef struct ChangeOp {
        Op op;
        ProtoVerb verb;
        ProtoItem item;
} ChangeOp;

static void change_send(Op *op)
{
        ChangeOp *change = CONTAINER_OF(op, ChangeOp, op);
        Lookup look;

        if (op->error) {
                op_complete(op);
                return;
        }
        change->item.key = op->key;
        /* The size it has already: nothing to do, and nobody to ask. All other refusals are the daemon's. */
        if (change->verb == VERB_TRUNCATE && op->space->shared && (op->space->rights & FOLIO_RIGHT_WRITE) &&
            get_look(op->space, op->key, op->name, &look) == 0 && look.copy.state == LAYOUT_SLOT_MUTABLE &&
            look.copy.size_bytes == change->item.size_bytes) {
                op_complete(op);
                return;
        }
        op_send_item(op, change->verb, &change->item, op_complete);
}

static void change_begin(Op *op)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, false, &namespace, &op->key))
                op_complete(op);
        else
                names_open(op, namespace, change_send);
}

static int change_wait(Client *client, const char *name, ProtoVerb verb, ProtoItem item)
{
        ChangeOp change = { .verb = verb, .item = item };
        int r;

        op_init(&change.op, client);
        (void)op_set_name(&change.op, name);
        r = op_run(&change.op, change_begin);
        op_deinit(&change.op);
        idle_sweep(&client->idle, client->maps);
        return r;
}

static void change_op_free(Op *op)
{
        op_deinit(op);
        free(CONTAINER_OF(op, ChangeOp, op));
}

static int change_async(Client *client, const char *name, ProtoVerb verb, ProtoItem item, folio_done_fn done, void *userdata)
{
        ChangeOp *change;
        int r;

        if (!done)
                return error_set(FOLIO_E_INVALID, "there is no callback");
        change = calloc(1, sizeof(*change));
        if (!change)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        change->verb = verb;
        change->item = item;
        op_init(&change->op, client);
        op_set_async(&change->op, done, userdata, change_op_free);
        if (!op_set_name(&change->op, name)) {
                r = error_set_sentence(change->op.error, change->op.sentence);
                change_op_free(&change->op);
                return r;
        }
        op_begin(&change->op, change_begin);
        loop_update(client);
        return 0;
}

static int check_size(Client *client, uint64_t size_bytes)
{
        int r = client_check(client);

        if (r == 0 && size_bytes > FOLIO_OBJECT_BYTES_MAX)
                r = error_set(FOLIO_E_TOO_LARGE, "%llu bytes: no object is larger than %llu", (unsigned long long)size_bytes,
                              (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        return r;
}

_public_ int folio_truncate(struct folio_client *client, const char *name, uint64_t size_bytes)
{
        int r = check_size(client, size_bytes);

        return r < 0 ? r : change_wait(client, name, VERB_TRUNCATE, (ProtoItem){ .size_bytes = size_bytes });
}

_public_ int folio_truncate_async(struct folio_client *client, const char *name, uint64_t size_bytes, folio_done_fn done,
                                  void *userdata)
{
        int r = check_size(client, size_bytes);

        return r < 0 ? r : change_async(client, name, VERB_TRUNCATE, (ProtoItem){ .size_bytes = size_bytes }, done, userdata);
}

_public_ int folio_object_truncate(struct folio_object *handle, uint64_t size_bytes)
{
        int r;
        Object *object = object_find(handle, &r);
        ProtoItem item;
        Op op;

        if (!object)
                return r;
        r = check_size(object->client, size_bytes);
        if (r < 0)
                return r;
        if (!object->is_mutable)
                return error_set(FOLIO_E_STATE, "only a mutable object can be truncated");
        if (object->space->shared && (object->space->rights & FOLIO_RIGHT_WRITE) && object_size(object) == size_bytes)
                return 0;
        item = object_slot_item(object);
        item.size_bytes = size_bytes;
        op_init(&op, object->client);
        op.space = object->space;
        op_send_item(&op, VERB_TRUNCATE, &item, op_complete);
        r = op_wait(&op);
        op_deinit(&op);
        return r;
}

static int delete_item(Client *client, uint32_t flags, ProtoItem *ret)
{
        int r = client_check(client);

        if (r == 0 && (flags & ~FOLIO_IF_EXISTS))
                r = error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a delete", flags & ~FOLIO_IF_EXISTS);
        *ret = (ProtoItem){ .flags = flags & FOLIO_IF_EXISTS ? PROTO_ITEM_IF_EXISTS : 0 };
        return r;
}

_public_ int folio_delete(struct folio_client *client, const char *name, uint32_t flags)
{
        ProtoItem item;
        int r = delete_item(client, flags, &item);

        return r < 0 ? r : change_wait(client, name, VERB_DELETE, item);
}

_public_ int folio_delete_async(struct folio_client *client, const char *name, uint32_t flags, folio_done_fn done,
                                void *userdata)
{
        ProtoItem item;
        int r = delete_item(client, flags, &item);

        return r < 0 ? r : change_async(client, name, VERB_DELETE, item, done, userdata);
}
