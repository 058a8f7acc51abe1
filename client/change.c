/* SPDX-License-Identifier: Apache-2.0 */
/* Truncating and deleting: one request each, and none where the index shows that nothing is to be done. */
#include "client/call.h"
#include "client/get.h"

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
        r = call_wait(&change.op, change_begin);
        idle_sweep(client->maps);
        return r;
}

static int change_async(Client *client, const char *name, ProtoVerb verb, ProtoItem item, folio_done_fn done, void *userdata)
{
        ChangeOp change = { .verb = verb, .item = item };

        op_init(&change.op, client);
        (void)op_set_name(&change.op, name);
        return call_async(&change.op, sizeof(change), change_begin, done, userdata);
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

static void truncate_begin(Op *op)
{
        ChangeOp *change = CONTAINER_OF(op, ChangeOp, op);

        op_send_item(op, VERB_TRUNCATE, &change->item, op_complete);
}

static void truncate_nothing(Op *op)
{
        op_complete(op);
}

/* *@ret_first: the step to begin with. 0 or an error. */
static int truncate_init(ChangeOp *change, struct folio_object *handle, uint64_t size_bytes, OpStep *ret_first)
{
        int r;
        Object *object = object_find(handle, &r);

        if (!object)
                return r;
        r = check_size(object->client, size_bytes);
        if (r < 0)
                return r;
        if (!object->is_mutable)
                return error_set(FOLIO_E_STATE, "only a mutable object can be truncated");
        op_init(&change->op, object->client);
        change->op.space = object->space;
        change->item = object_slot_item(object);
        change->item.size_bytes = size_bytes;
        *ret_first = truncate_begin;
        if (object->space->shared && (object->space->rights & FOLIO_RIGHT_WRITE) && object_size(object) == size_bytes)
                *ret_first = truncate_nothing;
        return 0;
}

_public_ int folio_object_truncate(struct folio_object *handle, uint64_t size_bytes)
{
        ChangeOp change;
        OpStep first = NULL;
        int r = truncate_init(&change, handle, size_bytes, &first);

        return r < 0 ? r : call_wait(&change.op, first);
}

_public_ int folio_object_truncate_async(struct folio_object *handle, uint64_t size_bytes, folio_done_fn done, void *userdata)
{
        ChangeOp change;
        OpStep first = NULL;
        int r = truncate_init(&change, handle, size_bytes, &first);

        return r < 0 ? r : call_async(&change.op, sizeof(change), first, done, userdata);
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
