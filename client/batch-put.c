/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many puts in one call. Small ones go through staging memory, as many in a message as it holds. The others, and those
 * for which there is no room in staging, come after them, without waiting for their answers: some regions made, filled
 * and sealed, then the next ones, as each is a descriptor while it is being filled.
 */
#include "folio/batch.h"

#include <string.h>

#include "client/batch.h"
#include "client/create.h"
#include "client/get.h"
#include "client/put.h"

enum { PUT_LARGE = BATCH_PENDING_MORE, PUT_LARGE_AT_ONCE = 32 };

typedef struct PutBatch {
        Batch batch;
        size_t next_large;
        unsigned n_making;           /* requests for regions, or for their seals, that are under way */
        bool is_full;                /* no region more can be asked for now */
} PutBatch;

/* What a put item asks for, but for its key. 0 or its error. */
static int put_read(const struct folio_put_item *put, ProtoItem *ret)
{
        int r = 0;

        if (!put->data && put->size_bytes > 0)
                r = error_set(FOLIO_E_INVALID, "the data are NULL");
        if (r == 0 && put->size_bytes > SIZE_MAX)
                r = error_set(FOLIO_E_TOO_LARGE, "%llu bytes do not fit in memory", (unsigned long long)put->size_bytes);
        return r < 0 ? r : create_read_options(put->options, put->size_bytes, FOLIO_REPLACE | FOLIO_OWN_REGION, ret);
}

/* --- through staging ------------------------------------------------------------------------------------------------------------------- */

static BatchTurn put_small(Batch *batch, Space *space, size_t index, ProtoItem *item)
{
        const struct folio_put_item *put = batch_item(batch, index);
        Staging *staging = batch->op.client->staging;
        void *staged = NULL;
        int r;

        if (item->size_bytes > 0) {
                staged = staging_take(staging, (size_t)item->size_bytes);
                if (!staged) {
                        /* What is under way of this batch gives some room back. */
                        if (bundles_flush(&batch->bundles))
                                return BATCH_BUSY;
                        batch_set_error(batch, index, PUT_LARGE);
                        return BATCH_ON;
                }
                memcpy(staged, put->data, (size_t)item->size_bytes);
                item->staging_offset = staging_offset(staging, staged);
        }
        r = bundles_add(&batch->bundles, space, VERB_PUT, item, index, staged);
        if (r != BUNDLES_ADDED && staged)
                staging_give(staging, staged);
        if (r < 0)
                batch_set_error(batch, index, r);
        return r == BUNDLES_BUSY ? BATCH_BUSY : BATCH_ON;
}

static BatchTurn put_one(Batch *batch, size_t index)
{
        const struct folio_put_item *put = batch_item(batch, index);
        ProtoItem item;
        Space *space = NULL;
        int r = put_read(put, &item);

        if (r == 0)
                r = batch_open(batch, put->name, &space, &item.key);
        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r == 0 && put_is_small(batch->op.client, &item))
                return put_small(batch, space, index, &item);
        batch_set_error(batch, index, r < 0 ? r : PUT_LARGE);
        return BATCH_ON;
}

/* --- by regions of their own ----------------------------------------------------------------------------------------------------------- */

/* Fills what has been made, and asks for the seals. False: there is nothing to be sealed. */
static bool put_made(Batch *batch, Bundle *made)
{
        bool is_sealing = false;

        for (size_t i = 0; i < made->n_items; i++) {
                size_t index = made->index[i];
                const struct folio_put_item *put = batch_item(batch, index);
                const ProtoItemReply *reply = &made->replies[i];
                ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = reply->slot, .generation = reply->generation };
                int r = bundle_get_error(made, i);

                if (r < 0) {
                        batch_set_error(batch, index, r);
                        continue;
                }
                create_note(batch->op.client, reply->generation);
                r = put_fill(made->space, reply, bundle_take_fd(made, i), put->data, put->size_bytes);
                if (r == 0)
                        r = bundles_add(&batch->bundles, made->space, VERB_SEAL, &item, index, NULL);
                if (r == BUNDLES_BUSY)
                        r = error_set(FOLIO_E_NO_MEMORY, "too much of the batch is under way");
                if (r < 0) {
                        batch_set_error(batch, index, r);
                        create_tell_abort(batch->op.client, made->space->id, reply->slot, reply->generation);
                } else {
                        is_sealing = true;
                }
        }
        (void)bundles_flush(&batch->bundles);
        return is_sealing;
}

/* Made, but the descriptors were too many for this process: given up, and made again, fewer at once. */
static void put_lost(Batch *batch, Bundle *made)
{
        for (size_t i = 0; i < made->n_items; i++) {
                const ProtoItemReply *reply = &made->replies[i];

                if (reply->status == 0)
                        create_tell_abort(batch->op.client, made->space->id, reply->slot, reply->generation);
                if (made->n_items > 1)
                        batch_set_error(batch, made->index[i], PUT_LARGE);
                else
                        batch_set_error(batch, made->index[i], bundle_get_error(made, i));
        }
        batch->bundles.n_fds_max = MAX(made->n_items / 2, (size_t)1);
        CONTAINER_OF(batch, PutBatch, batch)->next_large = 0;
}

static void put_sealed(Batch *batch, Bundle *seal)
{
        for (size_t i = 0; i < seal->n_items; i++) {
                int r = bundle_get_error(seal, i);

                batch_set_error(batch, seal->index[i], r);
                if (r < 0 && r != FOLIO_E_TIMEOUT)
                        create_tell_abort(batch->op.client, seal->space->id, seal->items[i].slot, seal->items[i].generation);
        }
}

static void put_answered(Batch *batch, Bundle *bundle)
{
        PutBatch *puts = CONTAINER_OF(batch, PutBatch, batch);

        if (bundle->verb == VERB_CREATE && bundle->is_lost) {
                put_lost(batch, bundle);
                puts->n_making--;
        } else if (bundle->verb == VERB_CREATE) {
                /* The seals, which are one request again, come in its place. */
                if (!put_made(batch, bundle))
                        puts->n_making--;
        } else if (bundle->verb == VERB_SEAL) {
                put_sealed(batch, bundle);
                puts->n_making--;
        } else {
                for (size_t i = 0; i < bundle->n_items; i++)
                        batch_set_error(batch, bundle->index[i], bundle_get_error(bundle, i));
        }
        bundle_give(bundle);
}

/* Into one bundle, of one namespace, as many as may be made at once. False: the item is for a later one. */
static bool put_large(Batch *batch, size_t index, Space **space)
{
        const struct folio_put_item *put = batch_item(batch, index);
        PutBatch *puts = CONTAINER_OF(batch, PutBatch, batch);
        ProtoItem item;
        Space *here;
        int r;

        r = put_read(put, &item);
        if (r == 0)
                r = batch_open(batch, put->name, &here, &item.key);
        if (r == BATCH_OPENING)
                r = error_set(FOLIO_E_NOT_FOUND, "the namespace of %s has been removed meanwhile", put->name);
        if (r == 0 && *space && here != *space)
                return false;
        if (r == 0) {
                Bundle *made = bundles_peek(&batch->bundles, here, VERB_CREATE);

                puts->is_full = made && made->n_items == made->n_items_max;
                if (puts->is_full)
                        return false;
                item.flags |= FOLIO_OWN_REGION;
                *space = here;
                r = bundles_add(&batch->bundles, here, VERB_CREATE, &item, index, NULL);
                /* It was full of bytes, and has been sent; or there is too much under way. */
                puts->is_full = r == BUNDLES_BUSY || (made && bundles_peek(&batch->bundles, here, VERB_CREATE) != made);
                puts->n_making += puts->is_full && made;
                if (r == BUNDLES_BUSY)
                        return false;
        }
        batch_set_error(batch, index, r < 0 ? r : BATCH_PENDING);
        return true;
}

static BatchTurn put_rest(Batch *batch)
{
        PutBatch *puts = CONTAINER_OF(batch, PutBatch, batch);
        Space *space = NULL;
        bool is_first = true;

        /* The small ones are on their way first: of two items of one name the small one is the earlier. */
        (void)bundles_flush(&batch->bundles);
        if (puts->n_making > 0)
                return BATCH_BUSY;
        puts->is_full = false;
        for (size_t i = puts->next_large; i < batch->n_items; i++) {
                if (batch_get_error(batch, i) != PUT_LARGE || (!puts->is_full && put_large(batch, i, &space)))
                        continue;
                if (is_first)
                        puts->next_large = i;
                is_first = false;
                /* Of this namespace no more fit in; those of others wait. */
                if (puts->is_full)
                        break;
        }
        if (is_first)
                puts->next_large = batch->n_items;
        if (space && bundles_peek(&batch->bundles, space, VERB_CREATE))
                puts->n_making++;
        return bundles_flush(&batch->bundles) ? BATCH_BUSY : BATCH_ON;
}

static bool put_begin(Batch *batch)
{
        batch->bundles.n_fds_max = PUT_LARGE_AT_ONCE;
        return true;
}

static const BatchKind put_kind = {
        .item_bytes = sizeof(struct folio_put_item),
        .error_offset = offsetof(struct folio_put_item, error),
        .name_offset = offsetof(struct folio_put_item, name),
        .begin = put_begin,
        .one = put_one,
        .answered = put_answered,
        .rest = put_rest,
};

_public_ int folio_put_many(struct folio_client *client, struct folio_put_item *items, size_t n_items)
{
        PutBatch puts = { .next_large = 0 };
        int r = batch_init(&puts.batch, client, &put_kind, items, n_items);

        return r < 0 ? r : call_wait(&puts.batch.op, batch_begin);
}

_public_ int folio_put_many_async(struct folio_client *client, struct folio_put_item *items, size_t n_items,
                                  folio_done_fn done, void *userdata)
{
        PutBatch puts = { .next_large = 0 };
        int r = batch_init(&puts.batch, client, &put_kind, items, n_items);

        puts.batch.op.is_changing = true;
        return r < 0 ? r : call_async(&puts.batch.op, sizeof(puts), batch_begin, done, userdata);
}
