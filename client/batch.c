/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many puts, stats, deletes in one call. Items are taken namespace by namespace, as a message is about one, and packed
 * as many into a message as it holds. An item's error is PENDING, which no caller sees, until it is known.
 */
#include "folio/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/bundle.h"
#include "client/create.h"
#include "client/get.h"
#include "client/put.h"
#include "client/stat.h"
#include "proto/status.h"

enum {
        BATCH_PENDING = 1,
        BATCH_LARGE = 2,             /* pending, and not through staging */
        BATCH_LARGE_AT_ONCE = 32,    /* each of them is a descriptor */
};

/* Of all the items that failed, the sentence of the last one found stays. */
static int count_failed(const int *first_error, size_t stride, size_t n_items)
{
        size_t n = 0;

        for (size_t i = 0; i < n_items; i++)
                n += *(const int *)(const void *)((const char *)first_error + i * stride) != 0;
        return n > INT32_MAX ? INT32_MAX : (int)n;
}

/* --- putting ------------------------------------------------------------------------------------------------------------------------ */

typedef struct PutBatch {
        Client *client;
        struct folio_put_item *items;
        size_t n_items;
        Bundles bundles;
        Bundle *open;                /* being filled */
} PutBatch;

static void put_answered(PutBatch *batch, Bundle *bundle)
{
        for (size_t i = 0; i < bundle->n_items; i++)
                batch->items[bundle->index[i]].error = bundle_get_error(bundle, i);
        bundle_give(bundle);
}

static void put_flush(PutBatch *batch)
{
        if (batch->open)
                bundle_send(steal_ptr(&batch->open));
}

/* 0, or the error of this item. */
static int put_add(PutBatch *batch, Space *space, const ProtoItem *item, size_t index, void *staged)
{
        for (;;) {
                if (!batch->open) {
                        if (batch->bundles.n_under_way >= BUNDLES_UNDER_WAY_MAX)
                                put_answered(batch, bundles_take(&batch->bundles));
                        batch->open = bundle_new(&batch->bundles, space, VERB_PUT);
                }
                if (!batch->open)
                        return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
                if (bundle_add(batch->open, item, index, staged))
                        return 0;
                if (batch->open->n_items == 0)
                        return error_set(FOLIO_E_INVALID, "the item does not fit into a message");
                put_flush(batch);
        }
}

/* Room in staging; what is under way of this batch gives some back. NULL: there is none to be had. */
static void *put_take_room(PutBatch *batch, size_t n_bytes)
{
        for (;;) {
                void *staged = staging_take(batch->client->staging, n_bytes);
                Bundle *bundle;

                if (staged)
                        return staged;
                put_flush(batch);
                bundle = bundles_take(&batch->bundles);
                if (!bundle)
                        return NULL;
                put_answered(batch, bundle);
        }
}

static int put_one(PutBatch *batch, Space *space, size_t index, ProtoItem *item)
{
        struct folio_put_item *put = &batch->items[index];
        void *staged = NULL;
        int r;

        if (!put_is_small(batch->client, item))
                return BATCH_LARGE;
        if (item->size_bytes > 0) {
                staged = put_take_room(batch, (size_t)item->size_bytes);
                if (!staged)
                        return BATCH_LARGE;
                memcpy(staged, put->data, (size_t)item->size_bytes);
                item->staging_offset = staging_offset(batch->client->staging, staged);
        }
        r = put_add(batch, space, item, index, staged);
        if (r < 0 && staged)
                staging_give(batch->client->staging, staged);
        /* The answer will say. */
        return r < 0 ? r : BATCH_PENDING;
}

/* What a put item asks for. 0 or its error. */
static int put_read(const struct folio_put_item *put, Key *ret_namespace, ProtoItem *ret)
{
        Key key;
        int r = get_split_name(put->name, ret_namespace, &key);

        if (r == 0 && !put->data && put->size_bytes > 0)
                r = error_set(FOLIO_E_INVALID, "the data are NULL");
        if (r == 0 && put->size_bytes > SIZE_MAX)
                r = error_set(FOLIO_E_TOO_LARGE, "%llu bytes do not fit in memory", (unsigned long long)put->size_bytes);
        if (r == 0)
                r = create_read_options(put->options, put->size_bytes, FOLIO_REPLACE | FOLIO_OWN_REGION, ret);
        ret->key = key;
        return r;
}

/* Makes, fills and seals what one bundle of CREATE holds; gives it back. */
static void put_large_made(PutBatch *batch, Bundle *made)
{
        Bundle *seal = bundle_new(&batch->bundles, made->space, VERB_SEAL);

        for (size_t i = 0; i < made->n_items; i++) {
                struct folio_put_item *put = &batch->items[made->index[i]];
                const ProtoItemReply *reply = &made->replies[i];
                ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = reply->slot, .generation = reply->generation };

                put->error = bundle_get_error(made, i);
                if (put->error)
                        continue;
                put->error = put_fill(reply, bundle_take_fd(made, i), put->data, put->size_bytes);
                if (put->error == 0 && !(seal && bundle_add(seal, &item, made->index[i], NULL)))
                        put->error = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
                if (put->error)
                        create_tell_abort(batch->client, made->space->id, reply->slot, reply->generation);
        }
        bundle_give(made);
        if (!seal)
                return;
        if (seal->n_items == 0) {
                bundle_give(seal);
                return;
        }
        bundle_send(seal);
        seal = bundles_take(&batch->bundles);
        for (size_t i = 0; i < seal->n_items; i++) {
                int error = bundle_get_error(seal, i);

                batch->items[seal->index[i]].error = error;
                if (error && error != FOLIO_E_TIMEOUT)
                        create_tell_abort(batch->client, seal->space->id, seal->items[i].slot, seal->items[i].generation);
        }
        bundle_give(seal);
}

/* Those of the namespace that staging is not for; nothing else of the batch is under way. */
static void put_large(PutBatch *batch, Space *space, size_t first)
{
        for (size_t i = first; i < batch->n_items;) {
                Bundle *make = bundle_new(&batch->bundles, space, VERB_CREATE);
                bool is_full = false;

                for (; i < batch->n_items && !is_full; i++) {
                        Key namespace;
                        ProtoItem item;

                        if (batch->items[i].error != BATCH_LARGE)
                                continue;
                        /* It has been read once already: this cannot fail. */
                        (void)put_read(&batch->items[i], &namespace, &item);
                        item.flags |= FOLIO_OWN_REGION;
                        if (!make)
                                batch->items[i].error = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
                        else if (!bundle_add(make, &item, i, NULL))
                                break;
                        else
                                is_full = make->n_items == BATCH_LARGE_AT_ONCE;
                }
                if (!make)
                        continue;
                if (make->n_items == 0) {
                        bundle_give(make);
                        continue;
                }
                bundle_send(make);
                put_large_made(batch, bundles_take(&batch->bundles));
        }
}

/* All items of the namespace that item @first is in. */
static void put_namespace(PutBatch *batch, size_t first, Key namespace)
{
        Bundle *bundle;
        Space *space;
        int failed = names_open_wait(batch->client, namespace, &space);

        for (size_t i = first; i < batch->n_items; i++) {
                struct folio_put_item *put = &batch->items[i];
                ProtoItem item;
                Key here;
                int r;

                if (put->error != BATCH_PENDING)
                        continue;
                r = put_read(put, &here, &item);
                if (r == 0 && (here.n_bytes != namespace.n_bytes || memcmp(here.bytes, namespace.bytes, here.n_bytes) != 0))
                        continue;
                if (r == 0)
                        r = failed ? failed : put_one(batch, space, i, &item);
                /* Pending ones must not be found again. */
                put->error = r == BATCH_PENDING ? 0 : r;
        }
        put_flush(batch);
        while ((bundle = bundles_take(&batch->bundles)))
                put_answered(batch, bundle);
        if (!failed)
                put_large(batch, space, first);
}

_public_ int folio_put_many(struct folio_client *client, struct folio_put_item *items, size_t n_items)
{
        PutBatch batch = { .client = client, .items = items, .n_items = n_items };
        int r = client_check(client);

        if (r == 0 && !items && n_items > 0)
                r = error_set(FOLIO_E_INVALID, "the items are NULL");
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_items; i++)
                items[i].error = BATCH_PENDING;
        bundles_init(&batch.bundles, client);
        for (size_t i = 0; i < n_items; i++) {
                Key namespace;
                ProtoItem item;

                if (items[i].error != BATCH_PENDING)
                        continue;
                items[i].error = put_read(&items[i], &namespace, &item);
                if (items[i].error)
                        continue;
                items[i].error = BATCH_PENDING;
                put_namespace(&batch, i, namespace);
        }
        bundles_deinit(&batch.bundles);
        return n_items == 0 ? 0 : count_failed(&items->error, sizeof(*items), n_items);
}

/* --- deleting ----------------------------------------------------------------------------------------------------------------------- */

static void delete_answered(struct folio_delete_item *items, Bundle *bundle)
{
        for (size_t i = 0; i < bundle->n_items; i++)
                items[bundle->index[i]].error = bundle_get_error(bundle, i);
        bundle_give(bundle);
}

static int delete_read(const struct folio_delete_item *item, Key *ret_namespace, ProtoItem *ret)
{
        *ret = (ProtoItem){ .flags = item->flags & FOLIO_IF_EXISTS ? PROTO_ITEM_IF_EXISTS : 0 };
        if (item->flags & ~FOLIO_IF_EXISTS)
                return error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a delete", item->flags & ~FOLIO_IF_EXISTS);
        return get_split_name(item->name, ret_namespace, &ret->key);
}

/* 0: in a bundle; an error. */
static int delete_add(Bundles *bundles, Bundle **open, Space *space, const ProtoItem *item, size_t index,
                      struct folio_delete_item *items)
{
        while (!*open || !bundle_add(*open, item, index, NULL)) {
                if (*open)
                        bundle_send(steal_ptr(open));
                if (bundles->n_under_way >= BUNDLES_UNDER_WAY_MAX)
                        delete_answered(items, bundles_take(bundles));
                *open = bundle_new(bundles, space, VERB_DELETE);
                if (!*open)
                        return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
        }
        return 0;
}

static void delete_namespace(Client *client, Bundles *bundles, struct folio_delete_item *items, size_t first, size_t n_items,
                             Key namespace)
{
        Bundle *open = NULL, *bundle;
        Space *space;
        int failed = names_open_wait(client, namespace, &space);

        for (size_t i = first; i < n_items; i++) {
                ProtoItem item;
                Key here;
                int r;

                if (items[i].error != BATCH_PENDING)
                        continue;
                r = delete_read(&items[i], &here, &item);
                if (r == 0 && (here.n_bytes != namespace.n_bytes || memcmp(here.bytes, namespace.bytes, here.n_bytes) != 0))
                        continue;
                if (r == 0)
                        r = failed ? failed : delete_add(bundles, &open, space, &item, i, items);
                items[i].error = r;
        }
        if (open)
                bundle_send(open);
        while ((bundle = bundles_take(bundles)))
                delete_answered(items, bundle);
}

_public_ int folio_delete_many(struct folio_client *client, struct folio_delete_item *items, size_t n_items)
{
        Bundles bundles;
        int r = client_check(client);

        if (r == 0 && !items && n_items > 0)
                r = error_set(FOLIO_E_INVALID, "the items are NULL");
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_items; i++)
                items[i].error = BATCH_PENDING;
        bundles_init(&bundles, client);
        for (size_t i = 0; i < n_items; i++) {
                Key namespace;
                ProtoItem item;

                if (items[i].error != BATCH_PENDING)
                        continue;
                items[i].error = delete_read(&items[i], &namespace, &item);
                if (items[i].error)
                        continue;
                items[i].error = BATCH_PENDING;
                delete_namespace(client, &bundles, items, i, n_items, namespace);
        }
        bundles_deinit(&bundles);
        return n_items == 0 ? 0 : count_failed(&items->error, sizeof(*items), n_items);
}

/* --- asking ------------------------------------------------------------------------------------------------------------------------- */

static int stat_one(Client *client, struct folio_stat_item *item)
{
        Key namespace, key;
        Space *space;
        int r = get_split_name(item->name, &namespace, &key);

        if (r == 0 && (!item->stat || item->stat->struct_bytes == 0))
                r = error_set(FOLIO_E_INVALID, "folio_stat.struct_bytes is not set");
        if (r == 0)
                r = names_open_readable(client, namespace, &space);
        return r < 0 ? r : stat_look(space, key, item->name, item->stat, item->stat->struct_bytes);
}

_public_ int folio_stat_many(struct folio_client *client, struct folio_stat_item *items, size_t n_items)
{
        int r = client_check(client);

        if (r == 0 && !items && n_items > 0)
                r = error_set(FOLIO_E_INVALID, "the items are NULL");
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_items; i++)
                items[i].error = stat_one(client, &items[i]);
        return n_items == 0 ? 0 : count_failed(&items->error, sizeof(*items), n_items);
}
