/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many gets, many reads in one call. What the index and the mappings we have answer is done at once. The other objects
 * are held (pinned) and their regions asked for, in bundles; an object whose region is in the bundle already is left
 * for the end, when that region is mapped. So are those whose descriptors this process had no room for: they are asked
 * for again, fewer at once, until one at a time is too many.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/batch.h"
#include "client/get.h"
#include "client/lib/connection.h"
#include "client/lib/handle.h"
#include "client/loop.h"
#include "folio/batch.h"

typedef struct GetBatch GetBatch;

struct GetBatch {
        Batch batch;
        uint32_t flags;
        uint64_t deadline_ns;
        /* What is done with an object that is mapped, or whose region has come: 0 or the item's error. The reference is taken over. */
        int (*finish)(GetBatch *get, size_t index, Object *consume_object, const ProtoItemReply *item, int consume_fd);
        Object **held;               /* for each item: waits for its region */
        bool is_again;               /* regions are asked for that others wait for: they are mapped */
};

static GetBatch *get_batch(Batch *batch)
{
        return CONTAINER_OF(batch, GetBatch, batch);
}

/* --- regions ---------------------------------------------------------------------------------------------------------------------------- */

static void region_came(GetBatch *get, size_t index, const ProtoItemReply *reply, int consume_fd)
{
        Object *object = steal_ptr(&get->held[index]);
        int r = 0;

        if (get->is_again) {
                r = object_add_region(object, reply, consume_fd, get->flags & FOLIO_GET_WRITABLE, get->flags & FOLIO_GET_POPULATE);
                if (r < 0)
                        object_unref(object);
                else
                        r = get->finish(get, index, object, NULL, -1);
        } else {
                r = get->finish(get, index, object, reply, consume_fd);
        }
        batch_set_error(&get->batch, index, r);
}

static void regions_answered(Batch *batch, Bundle *bundle)
{
        GetBatch *get = get_batch(batch);
        bool is_worth_another = bundle->is_lost && (bundle->n_items > 1 || !bundle->is_alone);

        if (is_worth_another) {
                batch->bundles.n_fds_max = MIN(batch->bundles.n_fds_max, MAX(bundle->n_items / 2, (size_t)1));
                batch->bundles.n_max = 1;
        }
        for (size_t i = 0; !is_worth_another && i < bundle->n_items; i++) {
                size_t index = bundle->index[i];
                int error = bundle_get_error(bundle, i), fd;

                fd = error ? -1 : bundle_take_fd(bundle, i);
                if (error) {
                        object_unref(steal_ptr(&get->held[index]));
                        batch_set_error(batch, index, error);
                } else if (fd >= 0 || bundle->n_fds == 0) {
                        region_came(get, index, &bundle->replies[i], fd);
                }
                /* Else another item has had the descriptor: it is done at the end, with the region mapped. */
        }
        bundle_give(bundle);
}

static bool is_asked_for(GetBatch *get, const Object *object)
{
        const Bundle *bundle = bundles_peek(&get->batch.bundles, object->space, VERB_REGION);

        for (size_t i = 0; bundle && i < bundle->n_items; i++)
                if (get->held[bundle->index[i]]->region_id == object->region_id)
                        return true;
        return false;
}

/* 0: on its way, or left for the end; BUNDLES_BUSY; an error. */
static int region_ask(GetBatch *get, size_t index, Object *object)
{
        ProtoItem item = object_region_item(object, get->flags & FOLIO_GET_WRITABLE);

        if (is_asked_for(get, object))
                return 0;
        return bundles_add(&get->batch.bundles, object->space, VERB_REGION, &item, index, NULL);
}

/* The reference is taken over. */
static BatchTurn region_want(GetBatch *get, size_t index, Object *consume_object)
{
        int r = region_ask(get, index, consume_object);

        if (r == 0) {
                get->held[index] = consume_object;
                return BATCH_ON;
        }
        object_unref(consume_object);
        if (r == BUNDLES_BUSY)
                return BATCH_BUSY;
        batch_set_error(&get->batch, index, r);
        return BATCH_ON;
}

/* True: what was left is done, or has been asked for again. */
static bool region_left(GetBatch *get, size_t index)
{
        Object *object = get->held[index];
        int r = object_attach_mapped(object, get->flags & FOLIO_GET_WRITABLE);

        if (r == 0) {
                get->is_again = true;
                r = region_ask(get, index, object);
                if (r >= 0)
                        return r == 0;
        }
        get->held[index] = NULL;
        if (r > 0)
                r = get->finish(get, index, object, NULL, -1);
        else
                object_unref(object);
        batch_set_error(&get->batch, index, r);
        return true;
}

/* ON: everything that has been asked for is done. */
static BatchTurn regions_settle(Batch *batch)
{
        GetBatch *get = get_batch(batch);

        if (bundles_flush(&batch->bundles))
                return BATCH_BUSY;
        for (size_t i = 0; i < batch->n_items; i++)
                if (get->held[i] && !region_left(get, i))
                        break;
        if (bundles_flush(&batch->bundles))
                return BATCH_BUSY;
        get->is_again = false;
        return BATCH_ON;
}

static bool get_begin_batch(Batch *batch)
{
        get_batch(batch)->held = calloc(batch->n_items ? batch->n_items : 1, sizeof(Object *));
        return get_batch(batch)->held;
}

static void get_end_batch(Batch *batch)
{
        GetBatch *get = get_batch(batch);

        /* Where the client is being closed some may be left. */
        for (size_t i = 0; get->held && i < batch->n_items; i++)
                object_unref(get->held[i]);
        free(get->held);
}

/* --- getting ------------------------------------------------------------------------------------------------------------------------------ */

static int get_finish(GetBatch *get, size_t index, Object *object, const ProtoItemReply *reply, int consume_fd)
{
        struct folio_get_item *item = batch_item(&get->batch, index);
        int r = 0;

        if (reply)
                r = object_add_region(object, reply, consume_fd, get->flags & FOLIO_GET_WRITABLE,
                                      get->flags & FOLIO_GET_POPULATE);
        if (r == 0) {
                item->object = handle_new(object);
                if (item->object)
                        return 0;
                r = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for another handle");
        }
        object_unref(object);
        return r;
}

static void get_waited(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        GetBatch *get = userdata;
        Batch *batch = &get->batch;

        ((struct folio_get_item *)batch_item(batch, batch->next))->object = object;
        batch_set_error(batch, batch->next++, error);
        op_schedule(&batch->op, batch_go);
}

/* The daemon is asked for what is held already before anybody sleeps: those who want it to go on may be waiting for us. */
static BatchTurn get_sleep(GetBatch *get, size_t index)
{
        struct folio_get_item *item = batch_item(&get->batch, index);
        Client *client = get->batch.op.client;
        Object *object;
        int r;

        if (regions_settle(&get->batch) == BATCH_BUSY)
                return BATCH_BUSY;
        if (get->batch.op.is_waited) {
                r = get_wait(client, item->name, get->flags, get->deadline_ns, &object);
                if (r == 0)
                        r = get_finish(get, index, object, NULL, -1);
        } else {
                r = get_start(client, item->name, get->flags, get->deadline_ns, get_waited, get);
                if (r == 0)
                        return BATCH_AWAY;
        }
        batch_set_error(&get->batch, index, r);
        return BATCH_ON;
}

static BatchTurn get_one(Batch *batch, size_t index)
{
        GetBatch *get = get_batch(batch);
        struct folio_get_item *item = batch_item(batch, index);
        Object *object = NULL;
        Space *space;
        Lookup look;
        Key key;
        int r;

        item->object = NULL;
        r = batch_open_readable(batch, item->name, &space, &key);
        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r == 0) {
                object = object_new(batch->op.client, space);
                if (!object)
                        r = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
        }
        if (r < 0) {
                batch_set_error(batch, index, r);
                return BATCH_ON;
        }
        switch (get_try(object, key, get->flags, &look, &r)) {
        case GET_DONE:
                batch_set_error(batch, index, get_finish(get, index, object, NULL, -1));
                return BATCH_ON;
        case GET_REGION:
                return region_want(get, index, object);
        case GET_MISSING:
                r = get->deadline_ns ? 1 : get_explain_missing(item->name, &look);
                break;
        case GET_WRITING:
                r = get->deadline_ns ? 1 : get_explain_writing(item->name);
                break;
        case GET_FAILED:
                break;
        }
        object_unref(object);
        if (r == 1)
                return get_sleep(get, index);
        batch_set_error(batch, index, r);
        return BATCH_ON;
}

static const BatchKind get_kind = {
        .item_bytes = sizeof(struct folio_get_item),
        .error_offset = offsetof(struct folio_get_item, error),
        .begin = get_begin_batch,
        .one = get_one,
        .answered = regions_answered,
        .rest = regions_settle,
        .end = get_end_batch,
};

static int get_init(GetBatch *get, Client *client, struct folio_get_item *items, size_t n_items, uint32_t flags, int timeout_ms)
{
        int r;

        *get = (GetBatch){ .flags = flags, .finish = get_finish };
        r = batch_init(&get->batch, client, &get_kind, items, n_items);
        if (r == 0 && ((flags & ~(FOLIO_GET_UNMAPPED | FOLIO_GET_WRITABLE | FOLIO_GET_POPULATE)) || timeout_ms < FOLIO_TIMEOUT_FOREVER))
                r = error_set(FOLIO_E_INVALID, "flags 0x%x, or a timeout of %d ms, for a get", flags, timeout_ms);
        get->deadline_ns = get_deadline_ns(timeout_ms);
        return r;
}

_public_ int folio_get_many(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                            int timeout_ms)
{
        GetBatch get;
        int r = get_init(&get, client, items, n_items, flags, timeout_ms);

        return r < 0 ? r : call_wait(&get.batch.op, batch_begin);
}

_public_ int folio_get_many_async(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                                  int timeout_ms, folio_done_fn done, void *userdata)
{
        GetBatch get;
        int r = get_init(&get, client, items, n_items, flags, timeout_ms);

        return r < 0 ? r : call_async(&get.batch.op, sizeof(get), batch_begin, done, userdata);
}

/* --- reading ------------------------------------------------------------------------------------------------------------------------------ */

static int read_finish(GetBatch *get, size_t index, Object *object, const ProtoItemReply *reply, int consume_fd)
{
        const struct folio_read_item *item = batch_item(&get->batch, index);
        int r;

        if (reply)
                r = object_read_region(object, reply, consume_fd, item->offset_bytes, item->buffer, item->n_bytes);
        else
                r = object_read_now(object, item->offset_bytes, item->buffer, item->n_bytes);
        object_unref(object);
        return r < 0 ? r : 0;
}

static BatchTurn read_handle(Batch *batch, size_t index)
{
        const struct folio_read_item *item = batch_item(batch, index);
        int r;
        Object *object = object_find(item->object, &r);

        if (object) {
                r = object_check_readable(object, item->offset_bytes, item->n_bytes);
                if (r == 0)
                        r = object_read_now(object, item->offset_bytes, item->buffer, item->n_bytes);
                if (r == 0 && object->client == batch->op.client)
                        return region_want(get_batch(batch), index, object_ref(object));
                /* The connection that holds it is another. */
                if (r == 0)
                        r = batch->op.is_waited ? folio_object_read(item->object, item->offset_bytes, item->buffer, item->n_bytes) :
                                                  error_set(FOLIO_E_INVALID, "the object was got through another client");
        }
        batch_set_error(batch, index, r < 0 ? r : 0);
        return BATCH_ON;
}

static BatchTurn read_name(Batch *batch, size_t index)
{
        const struct folio_read_item *item = batch_item(batch, index);
        GetBatch *get = get_batch(batch);
        Object *object = NULL;
        Space *space;
        Lookup look;
        Key key;
        int r = batch_open_readable(batch, item->name, &space, &key);

        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r == 0) {
                object = object_new(batch->op.client, space);
                if (!object)
                        r = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
        }
        if (r < 0) {
                batch_set_error(batch, index, r);
                return BATCH_ON;
        }
        switch (get_try(object, key, 0, &look, &r)) {
        case GET_DONE:
                r = object_check_range(object, item->offset_bytes, item->n_bytes);
                if (r == 0)
                        r = read_finish(get, index, object_ref(object), NULL, -1);
                break;
        case GET_REGION:
                r = object_check_range(object, item->offset_bytes, item->n_bytes);
                if (r == 0 && item->n_bytes > 0)
                        return region_want(get, index, object);
                break;
        case GET_MISSING:
                r = get_explain_missing(item->name, &look);
                break;
        case GET_WRITING:
                r = get_explain_writing(item->name);
                break;
        case GET_FAILED:
                break;
        }
        object_unref(object);
        batch_set_error(batch, index, r);
        return BATCH_ON;
}

static BatchTurn read_one(Batch *batch, size_t index)
{
        const struct folio_read_item *item = batch_item(batch, index);

        if (!item->buffer && item->n_bytes > 0)
                batch_set_error(batch, index, error_set(FOLIO_E_INVALID, "the buffer is NULL"));
        else if (!item->name == !item->object)
                batch_set_error(batch, index, error_set(FOLIO_E_INVALID, "an item has either a name or an object"));
        else
                return item->name ? read_name(batch, index) : read_handle(batch, index);
        return BATCH_ON;
}

static const BatchKind read_kind = {
        .item_bytes = sizeof(struct folio_read_item),
        .error_offset = offsetof(struct folio_read_item, error),
        .begin = get_begin_batch,
        .one = read_one,
        .answered = regions_answered,
        .rest = regions_settle,
        .end = get_end_batch,
};

_public_ int folio_read_many(struct folio_client *client, struct folio_read_item *items, size_t n_items)
{
        GetBatch read = { .finish = read_finish };
        int r = batch_init(&read.batch, client, &read_kind, items, n_items);

        return r < 0 ? r : call_wait(&read.batch.op, batch_begin);
}

_public_ int folio_read_many_async(struct folio_client *client, struct folio_read_item *items, size_t n_items,
                                   folio_done_fn done, void *userdata)
{
        GetBatch read = { .finish = read_finish };
        int r = batch_init(&read.batch, client, &read_kind, items, n_items);

        return r < 0 ? r : call_async(&read.batch.op, sizeof(read), batch_begin, done, userdata);
}
