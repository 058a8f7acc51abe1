/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that the program fills itself. A small one is written in staging memory and copied by the daemon at the
 * seal; a large one, or one that asks for it, in a region of its own; a stream through the daemon. Which of the three it is shows
 * in its kind, and in nothing that the program sees.
 */
#include "client/create.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "client/lib/handle.h"
#include "client/loop.h"
#include "client/made.h"
#include "proto/status.h"

#define CREATE_FLAGS (FOLIO_REPLACE | FOLIO_MUTABLE | FOLIO_SPARSE | FOLIO_OWN_REGION | FOLIO_STREAM | FOLIO_PUT_VISIBLE)

typedef struct CreateOp {
        Op op;
        ProtoItem item;
        Object *object;
        void *texts;
} CreateOp;

/* --- options ---------------------------------------------------------------------------------------------------------------------- */

static int check_flags(const struct folio_create_options *options, uint64_t size_bytes, uint32_t flags_allowed)
{
        if (options->flags & ~CREATE_FLAGS)
                return error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a new object", options->flags & ~CREATE_FLAGS);
        if (options->flags & ~(flags_allowed | FOLIO_PUT_VISIBLE))
                return error_set(FOLIO_E_INVALID, "FOLIO_MUTABLE, FOLIO_SPARSE and FOLIO_STREAM are for folio_create()");
        if ((options->flags & FOLIO_STREAM) && (options->flags & FOLIO_MUTABLE))
                return error_set(FOLIO_E_INVALID, "an object is either streamed or mutable");
        if ((options->flags & FOLIO_STREAM) && size_bytes != 0)
                return error_set(FOLIO_E_INVALID, "the size of a streamed object is what comes: create it with 0");
        if (options->capacity_bytes != 0 && !(options->flags & FOLIO_MUTABLE))
                return error_set(FOLIO_E_INVALID, "only a mutable object has a capacity");
        if (options->capacity_bytes != 0 && options->capacity_bytes < size_bytes)
                return error_set(FOLIO_E_INVALID, "a capacity of %llu bytes is less than the size, %llu bytes",
                                 (unsigned long long)options->capacity_bytes, (unsigned long long)size_bytes);
        return 0;
}

int create_read_options(const struct folio_create_options *given, uint64_t size_bytes, uint32_t flags_allowed, ProtoItem *item)
{
        struct folio_create_options options = { 0 };
        int r;

        if (given && given->struct_bytes == 0)
                return error_set(FOLIO_E_INVALID, "folio_create_options.struct_bytes is not set");
        if (given)
                memcpy(&options, given, MIN(given->struct_bytes, sizeof(options)));
        r = check_flags(&options, size_bytes, flags_allowed);
        if (r < 0)
                return r;
        if (MAX(size_bytes, options.capacity_bytes) > FOLIO_OBJECT_BYTES_MAX)
                return error_set(FOLIO_E_TOO_LARGE, "%llu bytes: no object is larger than %llu",
                                 (unsigned long long)MAX(size_bytes, options.capacity_bytes),
                                 (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        if (options.lifetime > FOLIO_UNTIL_TIME || (options.lifetime == FOLIO_UNTIL_TIME) != (options.expires_ns != 0))
                return options.lifetime > FOLIO_UNTIL_TIME ?
                       error_set(FOLIO_E_INVALID, "%u is no lifetime: there are until-deleted, with-creator, until-time",
                                 options.lifetime) :
                       error_set(FOLIO_E_INVALID, options.expires_ns ? "a time to expire at goes with the lifetime until-time only" :
                                                                       "the lifetime until-time needs a time to expire at");
        if (options.metadata_bytes > FOLIO_METADATA_BYTES_MAX || (options.metadata_bytes > 0 && !options.metadata))
                return error_set(FOLIO_E_INVALID, "%zu bytes of metadata: it takes at most %d", options.metadata_bytes,
                                 FOLIO_METADATA_BYTES_MAX);
        /* An object of nothing has no memory to be anywhere. */
        if (size_bytes == 0 && !(options.flags & (FOLIO_MUTABLE | FOLIO_STREAM)))
                options.flags &= ~(FOLIO_OWN_REGION | FOLIO_SPARSE);
        *item = (ProtoItem){
                .size_bytes = size_bytes,
                /* That it is to be visible is for us to see to. */
                .flags = options.flags & ~FOLIO_PUT_VISIBLE,
                .lifetime = options.lifetime,
                .expires_ns = options.expires_ns,
                .capacity_bytes = options.capacity_bytes,
                .metadata = { options.metadata, options.metadata_bytes },
        };
        if (options.content_type)
                item->content_type = (Key){ options.content_type,
                                            strnlen(options.content_type, FOLIO_CONTENT_TYPE_BYTES_MAX + 1) };
        if (item->content_type.n_bytes > FOLIO_CONTENT_TYPE_BYTES_MAX)
                return error_set(FOLIO_E_INVALID, "a content type takes at most %d bytes", FOLIO_CONTENT_TYPE_BYTES_MAX);
        return 0;
}

bool create_is_visible(const Client *client, const struct folio_create_options *given)
{
        const size_t n_bytes = offsetof(struct folio_create_options, flags) + sizeof(given->flags);

        return client->is_visible || (given && given->struct_bytes >= n_bytes && given->flags & FOLIO_PUT_VISIBLE);
}

bool create_keep_texts(ProtoItem *item, void **ret_texts)
{
        char *texts = malloc(item->metadata.n_bytes + item->content_type.n_bytes + 1);

        if (!texts)
                return false;
        if (item->metadata.n_bytes > 0)
                memcpy(texts, item->metadata.bytes, item->metadata.n_bytes);
        if (item->content_type.n_bytes > 0)
                memcpy(texts + item->metadata.n_bytes, item->content_type.bytes, item->content_type.n_bytes);
        item->metadata.bytes = texts;
        item->content_type.bytes = texts + item->metadata.n_bytes;
        *ret_texts = texts;
        return true;
}

/* --- an answer that comes too late ---------------------------------------------------------------------------------------------------- */

void create_tell_abort(Client *client, uint32_t namespace_id, uint32_t slot, uint64_t generation)
{
        ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = slot, .generation = generation };
        ProtoRequest message = { .verb = VERB_ABORT, .namespace_id = namespace_id, .n_items = 1, .items = &item };

        requests_tell(client->requests, &message, false);
        order_told(client);
}

typedef struct LateCreate {
        Request request;
        Client *client;
        uint32_t namespace_id;
} LateCreate;

static void on_late_create(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        LateCreate *late = CONTAINER_OF(request, LateCreate, request);

        if (reply && reply->n_items == 1 && reply->items[0].status == STATUS_OK)
                create_tell_abort(late->client, late->namespace_id, reply->items[0].slot, reply->items[0].generation);
        free(late);
}

void create_settle(Op *op, int error)
{
        LateCreate *late;

        if (op->has_late_item)
                create_tell_abort(op->client, op->space->id, op->item.slot, op->item.generation);
        if (error != FOLIO_E_TIMEOUT)
                return;
        /* Without memory for the record the object stays unsealed until the client is closed. */
        late = malloc(sizeof(*late));
        if (!late)
                return;
        *late = (LateCreate){ .request.done = on_late_create, .client = op->client, .namespace_id = op->space->id };
        requests_expect(op->client->requests, op->request.id, &late->request);
}

/* --- creating -------------------------------------------------------------------------------------------------------------------------- */

static void create_end(CreateOp *create)
{
        Op *op = &create->op;

        if (op->error == 0) {
                op->object = handle_new(create->object);
                if (op->object)
                        create->object = NULL;
                else
                        op_fail_connection(op, FOLIO_E_NO_MEMORY);
        }
        /* One that came to be is aborted by this. */
        object_unref(create->object);
        create->object = NULL;
        op_complete(op);
}

static void create_answered(Op *op)
{
        CreateOp *create = CONTAINER_OF(op, CreateOp, op);
        Object *object = create->object;
        ObjectKind kind = OBJECT_FILLED;

        if (op->error) {
                create_end(create);
                return;
        }
        create_note(op->client, op->item.generation);
        object->slot = op->item.slot;
        atomic_store_explicit(&object->generation, op->item.generation, memory_order_relaxed);
        object->placement = op->item.placement;
        object->region_id = op->item.region_id;
        object->region_bytes = op->item.region_bytes;
        object->offset_bytes = op->item.offset_bytes;
        object->fd = steal_fd(&op->fd);
        object->size_bytes = create->item.size_bytes;
        object->capacity_bytes = MAX(create->item.capacity_bytes, object->size_bytes);
        object->is_sparse = create->item.flags & FOLIO_SPARSE;
        if (create->item.flags & FOLIO_MUTABLE) {
                kind = OBJECT_MUTABLE;
                atomic_store_explicit(&object->zeros, object->is_sparse ? OBJECT_ZEROS_HINTS : OBJECT_ZEROS_NONE,
                                      memory_order_relaxed);
                object->is_mutable = true;
                /* Whoever may not read here has no pin, and needs none: the descriptor is a hold on the bytes. */
                (void)object_pin(object);
        } else if (create->item.flags & FOLIO_STREAM) {
                kind = OBJECT_STREAM;
        } else if (create->item.flags & PROTO_ITEM_STAGED) {
                kind = OBJECT_STAGED;
        }
        atomic_store_explicit(&object->kind, kind, memory_order_release);
        if ((kind == OBJECT_FILLED || kind == OBJECT_MUTABLE) && object->fd < 0)
                op_fail(op, FOLIO_E_PROTOCOL, "foliod's answer lacks the region's descriptor");
        create_end(create);
}

static void create_send(Op *op)
{
        CreateOp *create = CONTAINER_OF(op, CreateOp, op);
        ProtoItem *item = &create->item;
        Client *client = op->client;
        Object *object;

        if (op->error == 0) {
                create->object = object_new(client, op->space);
                if (!create->object)
                        op_fail_connection(op, FOLIO_E_NO_MEMORY);
        }
        if (op->error) {
                create_end(create);
                return;
        }
        object = create->object;
        if (item->size_bytes <= client->packed_bytes_max &&
            !(item->flags & (FOLIO_OWN_REGION | FOLIO_MUTABLE | FOLIO_SPARSE | FOLIO_STREAM))) {
                if (item->size_bytes > 0)
                        object->staged = staging_take(client->staging, (size_t)item->size_bytes);
                /* Where there is no room it is a region of its own: whoever holds the room may hold it for long. */
                if (object->staged || item->size_bytes == 0)
                        item->flags |= PROTO_ITEM_STAGED;
                /* What the program does not write must not be what was there before. */
                if (object->staged)
                        memset(object->staged, 0, (size_t)item->size_bytes);
        }
        item->key = op->key;
        op->settle = create_settle;
        op_send_item(op, VERB_CREATE, item, create_answered);
}

static void create_begin(Op *op)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, false, &namespace, &op->key))
                create_end(CONTAINER_OF(op, CreateOp, op));
        else
                names_open(op, namespace, create_send);
}

/* Through the ring. 0, an error, or DIRECT_NOT. */
static int create_now(Client *client, const char *name, const ProtoItem *item, bool is_visible, struct folio_object **ret)
{
        Object *object;
        struct folio_object *handle;
        int r = made_create(client, name, item, is_visible, &object);

        if (r != 0)
                return r;
        handle = handle_new(object);
        if (!handle) {
                object_unref(object);
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for another handle");
        }
        *ret = handle;
        return 0;
}

_public_ int folio_create(struct folio_client *client, const char *name, uint64_t size_bytes,
                          const struct folio_create_options *options, struct folio_object **ret)
{
        CreateOp create = { 0 };
        int r = client_check(client);

        if (r == 0 && !ret)
                r = error_set(FOLIO_E_INVALID, "there is no place for the handle");
        if (r == 0)
                r = create_read_options(options, size_bytes, CREATE_FLAGS, &create.item);
        if (r == 0)
                r = create_now(client, name, &create.item, create_is_visible(client, options), ret);
        if (r != DIRECT_NOT)
                return r;
        op_init(&create.op, client);
        (void)op_set_name(&create.op, name);
        r = op_run(&create.op, create_begin);
        op_deinit(&create.op);
        if (r == 0)
                *ret = create.op.object;
        return r;
}

static void create_op_free(Op *op)
{
        CreateOp *create = CONTAINER_OF(op, CreateOp, op);

        free(create->texts);
        op_deinit(op);
        free(create);
}

_public_ int folio_create_async(struct folio_client *client, const char *name, uint64_t size_bytes,
                                const struct folio_create_options *options, folio_done_fn done, void *userdata)
{
        CreateOp *create;
        ProtoItem item;
        int r = client_check(client);

        if (r == 0 && !done)
                r = error_set(FOLIO_E_INVALID, "there is no callback");
        if (r == 0)
                r = create_read_options(options, size_bytes, CREATE_FLAGS, &item);
        if (r < 0)
                return r;
        create = calloc(1, sizeof(*create));
        if (!create || !create_keep_texts(&item, &create->texts)) {
                free(create);
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        }
        create->item = item;
        op_init(&create->op, client);
        create->op.is_changing = true;
        op_set_async(&create->op, done, userdata, create_op_free);
        if (!op_set_name(&create->op, name)) {
                r = error_set_sentence(create->op.error, create->op.sentence);
                create_op_free(&create->op);
                return r;
        }
        op_begin(&create->op, create_begin);
        loop_update(client);
        return 0;
}

_public_ int folio_object_abort(struct folio_object *handle)
{
        int r;
        bool was_unsealed;
        Object *object = object_find_piped(handle, &r);

        if (!object)
                return r;
        object = handle_take(handle);
        if (!object)
                return error_set(FOLIO_E_INVALID, "%p was released already", (void *)handle);
        /* A seal under way goes on to its end, and then the object is only let go. */
        was_unsealed = object_is_unsealed(object);
        object_unref(object);
        return was_unsealed ? 0 : error_set(FOLIO_E_STATE, "the object is complete: it stays; folio_delete() takes it away");
}
