/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many gets, many reads in one call. What the index and the mappings we have answer is done at once. The other objects
 * are held (pinned) and their regions asked for, in bundles; an object whose region is in the bundle already is left
 * for the end, when that region is mapped. One cursor goes over the items, and stops only where a get has to wait.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/bundle.h"
#include "client/get.h"
#include "client/lib/connection.h"
#include "client/lib/copy.h"
#include "client/lib/handle.h"
#include "folio/batch.h"

typedef struct GetBatch GetBatch;

struct GetBatch {
        Client *client;
        uint32_t flags;
        /* What is done with an object that is mapped, or whose region has come: 0 or the item's error. The reference is taken over. */
        int (*finish)(GetBatch *batch, size_t index, Object *consume_object, const ProtoItemReply *item, int consume_fd);
        void (*set_error)(GetBatch *batch, size_t index, int error);
        void *items;
        size_t n_items;
        Object **held;               /* for each item: waits for its region */
        Bundles bundles;
        Bundle *open;
        int failed;                  /* namespace `failed_namespace` cannot be read */
        Key failed_namespace;
};

/* --- regions ---------------------------------------------------------------------------------------------------------------------------- */

static void regions_answered(GetBatch *batch, Bundle *bundle)
{
        for (size_t i = 0; i < bundle->n_items; i++) {
                size_t index = bundle->index[i];
                int error = bundle_get_error(bundle, i), fd;

                fd = error ? -1 : bundle_take_fd(bundle, i);
                if (error) {
                        object_unref(batch->held[index]);
                        batch->held[index] = NULL;
                        batch->set_error(batch, index, error);
                } else if (fd >= 0) {
                        Object *object = batch->held[index];

                        batch->held[index] = NULL;
                        batch->set_error(batch, index, batch->finish(batch, index, object, &bundle->replies[i], fd));
                }
                /* Else another item has had the descriptor: it is done at the end, with the region mapped. */
        }
        bundle_give(bundle);
}

static bool is_asked_for(const GetBatch *batch, uint64_t region_id)
{
        for (size_t i = 0; batch->open && i < batch->open->n_items; i++)
                if (batch->held[batch->open->index[i]]->region_id == region_id)
                        return true;
        return false;
}

/* The reference is taken over. 0, or the item's error. */
static int regions_want(GetBatch *batch, size_t index, Object *consume_object)
{
        ProtoItem item = object_region_item(consume_object, batch->flags & FOLIO_GET_WRITABLE);
        Space *space = consume_object->space;

        batch->held[index] = consume_object;
        if (batch->open && batch->open->space == space && is_asked_for(batch, consume_object->region_id))
                return 0;
        while (!batch->open || batch->open->space != space || !bundle_add(batch->open, &item, index, NULL)) {
                if (batch->open)
                        bundle_send(steal_ptr(&batch->open));
                if (batch->bundles.n_under_way >= BUNDLES_UNDER_WAY_MAX)
                        regions_answered(batch, bundles_take(&batch->bundles));
                batch->open = bundle_new(&batch->bundles, space, VERB_REGION);
                if (!batch->open) {
                        batch->held[index] = NULL;
                        object_unref(consume_object);
                        return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
                }
        }
        return 0;
}

/* Everything that has been asked for is done when this returns. */
static void regions_finish(GetBatch *batch, size_t n_seen)
{
        bool had_any = batch->open || batch->bundles.n_under_way > 0;
        Bundle *bundle;

        if (batch->open)
                bundle_send(steal_ptr(&batch->open));
        while ((bundle = bundles_take(&batch->bundles)))
                regions_answered(batch, bundle);
        for (size_t i = 0; had_any && i < n_seen; i++) {
                Object *object = batch->held[i];
                int r;

                if (!object)
                        continue;
                batch->held[i] = NULL;
                r = object_map(object, batch->flags & FOLIO_GET_WRITABLE, batch->flags & FOLIO_GET_POPULATE);
                if (r < 0)
                        object_unref(object);
                batch->set_error(batch, i, r < 0 ? r : batch->finish(batch, i, object, NULL, -1));
        }
}

/* --- names ------------------------------------------------------------------------------------------------------------------------------ */

/* A namespace that cannot be had is asked for once, not once for each item. */
static int open_for(GetBatch *batch, const char *name, Space **ret_space, Key *ret_key)
{
        Key namespace;
        int r = get_split_name(name, &namespace, ret_key);

        if (r < 0)
                return r;
        if (batch->failed && namespace.n_bytes == batch->failed_namespace.n_bytes &&
            memcmp(namespace.bytes, batch->failed_namespace.bytes, namespace.n_bytes) == 0)
                return batch->failed;
        r = names_open_readable(batch->client, namespace, ret_space);
        if (r < 0) {
                batch->failed = r;
                batch->failed_namespace = namespace;
        }
        return r;
}

static int init(GetBatch *batch, Client *client, void *items, size_t n_items)
{
        int r = client_check(client);

        if (r == 0 && !items && n_items > 0)
                r = error_set(FOLIO_E_INVALID, "the items are NULL");
        if (r < 0)
                return r;
        batch->client = client;
        batch->items = items;
        batch->n_items = n_items;
        batch->held = calloc(n_items ? n_items : 1, sizeof(*batch->held));
        if (!batch->held)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch of %zu items", n_items);
        bundles_init(&batch->bundles, client);
        return 0;
}

static void deinit(GetBatch *batch)
{
        bundles_deinit(&batch->bundles);
        free(batch->held);
}

/* --- getting ------------------------------------------------------------------------------------------------------------------------------ */

static void get_set_error(GetBatch *batch, size_t index, int error)
{
        ((struct folio_get_item *)batch->items)[index].error = error;
}

static int get_finish(GetBatch *batch, size_t index, Object *object, const ProtoItemReply *item, int consume_fd)
{
        struct folio_get_item *get = (struct folio_get_item *)batch->items + index;
        int r = 0;

        if (item)
                r = object_add_region(object, item, consume_fd, batch->flags & FOLIO_GET_WRITABLE,
                                      batch->flags & FOLIO_GET_POPULATE);
        if (r == 0) {
                get->object = handle_new(object);
                if (get->object)
                        return 0;
                r = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for another handle");
        }
        object_unref(object);
        return r;
}

/* 0: done, or its region is on its way; an error. 1: to be waited for. */
static int get_one(GetBatch *batch, size_t index, bool may_wait)
{
        const char *name = ((struct folio_get_item *)batch->items)[index].name;
        Object *object;
        Space *space;
        Lookup look;
        Key key;
        int r = open_for(batch, name, &space, &key);

        if (r < 0)
                return r;
        object = object_new(batch->client, space);
        if (!object)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
        switch (get_try(object, key, batch->flags, &look, &r)) {
        case GET_DONE:
                return get_finish(batch, index, object, NULL, -1);
        case GET_REGION:
                return regions_want(batch, index, object);
        case GET_MISSING:
                r = may_wait ? 1 : get_explain_missing(name, &look);
                break;
        case GET_WRITING:
                r = may_wait ? 1 : get_explain_writing(name);
                break;
        case GET_FAILED:
                break;
        }
        object_unref(object);
        return r;
}

/* The daemon is asked for what is held already before anybody sleeps: those who want it to go on may be waiting for us. */
static int get_one_waiting(GetBatch *batch, size_t index, uint64_t deadline_ns)
{
        struct folio_get_item *item = (struct folio_get_item *)batch->items + index;
        Object *object;
        int r = get_one(batch, index, deadline_ns != 0);

        if (r != 1)
                return r;
        regions_finish(batch, index);
        r = get_wait(batch->client, item->name, batch->flags, deadline_ns, &object);
        return r < 0 ? r : get_finish(batch, index, object, NULL, -1);
}

_public_ int folio_get_many(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                            int timeout_ms)
{
        GetBatch batch = { .flags = flags, .finish = get_finish, .set_error = get_set_error };
        uint64_t deadline_ns;
        int n_failed = 0, r;

        if ((flags & ~(FOLIO_GET_UNMAPPED | FOLIO_GET_WRITABLE | FOLIO_GET_POPULATE)) || timeout_ms < FOLIO_TIMEOUT_FOREVER)
                return error_set(FOLIO_E_INVALID, "flags 0x%x, or a timeout of %d ms, for a get", flags, timeout_ms);
        r = init(&batch, client, items, n_items);
        if (r < 0)
                return r;
        deadline_ns = get_deadline_ns(timeout_ms);
        for (size_t i = 0; i < n_items; i++) {
                items[i].object = NULL;
                r = get_one_waiting(&batch, i, deadline_ns);
                /* A region that is on its way brings its own error. */
                items[i].error = r;
        }
        regions_finish(&batch, n_items);
        deinit(&batch);
        for (size_t i = 0; i < n_items; i++)
                n_failed += items[i].error != 0;
        return n_failed;
}

/* --- reading ------------------------------------------------------------------------------------------------------------------------------ */

static void read_set_error(GetBatch *batch, size_t index, int error)
{
        ((struct folio_read_item *)batch->items)[index].error = error;
}

static int read_finish(GetBatch *batch, size_t index, Object *object, const ProtoItemReply *item, int consume_fd)
{
        const struct folio_read_item *read = (struct folio_read_item *)batch->items + index;
        int r;

        if (item)
                r = object_read_region(object, item, consume_fd, read->offset_bytes, read->buffer, read->n_bytes);
        else
                r = object_read(object, read->offset_bytes, read->buffer, read->n_bytes);
        object_unref(object);
        return r;
}

static int read_handle(GetBatch *batch, size_t index)
{
        const struct folio_read_item *item = (struct folio_read_item *)batch->items + index;
        int r;
        Object *object = object_find(item->object, &r);

        if (!object)
                return r;
        /* What needs no region, or is of another client, or has errors of its own, goes the usual way. */
        if (object->client != batch->client || object_is_unsealed(object) || object_peek(object) || !object->is_pinned)
                return folio_object_read(item->object, item->offset_bytes, item->buffer, item->n_bytes);
        r = object_check_range(object, item->offset_bytes, item->n_bytes);
        if (r < 0)
                return r;
        r = object_attach_mapped(object, false);
        if (r < 0)
                return r;
        if (r > 0 || item->n_bytes == 0)
                return object_read(object, item->offset_bytes, item->buffer, item->n_bytes);
        return regions_want(batch, index, object_ref(object));
}

static int read_name(GetBatch *batch, size_t index)
{
        const struct folio_read_item *item = (struct folio_read_item *)batch->items + index;
        Object *object;
        Space *space;
        Lookup look;
        Key key;
        int r = open_for(batch, item->name, &space, &key);

        if (r < 0)
                return r;
        object = object_new(batch->client, space);
        if (!object)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
        switch (get_try(object, key, 0, &look, &r)) {
        case GET_DONE:
                r = object_check_range(object, item->offset_bytes, item->n_bytes);
                if (r == 0)
                        return read_finish(batch, index, object, NULL, -1);
                break;
        case GET_REGION:
                r = object_check_range(object, item->offset_bytes, item->n_bytes);
                if (r == 0)
                        return regions_want(batch, index, object);
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
        return r;
}

static int read_one(GetBatch *batch, size_t index)
{
        const struct folio_read_item *item = (struct folio_read_item *)batch->items + index;

        if (!item->buffer && item->n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the buffer is NULL");
        if (!item->name == !item->object)
                return error_set(FOLIO_E_INVALID, "an item has either a name or an object");
        return item->name ? read_name(batch, index) : read_handle(batch, index);
}

_public_ int folio_read_many(struct folio_client *client, struct folio_read_item *items, size_t n_items)
{
        GetBatch batch = { .finish = read_finish, .set_error = read_set_error };
        int n_failed = 0, r;

        r = init(&batch, client, items, n_items);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_items; i++) {
                r = read_one(&batch, i);
                items[i].error = r;
        }
        regions_finish(&batch, n_items);
        deinit(&batch);
        for (size_t i = 0; i < n_items; i++)
                n_failed += items[i].error != 0;
        return n_failed;
}
