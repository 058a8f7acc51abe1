/* SPDX-License-Identifier: Apache-2.0 */
/* Many stats, and many deletes, in one call: the first are answered by the index, the second by a word of the daemon each. */
#include "folio/batch.h"

#include "client/ahead.h"
#include "client/batch.h"
#include "client/get.h"
#include "client/stat.h"

/* --- deleting ----------------------------------------------------------------------------------------------------------------------- */

static void delete_answered(Batch *batch, Bundle *bundle)
{
        for (size_t i = 0; i < bundle->n_items; i++)
                batch_set_error(batch, bundle->index[i], bundle_get_error(bundle, i));
        bundle_give(bundle);
}

static BatchTurn delete_one(Batch *batch, size_t index)
{
        const struct folio_delete_item *item = batch_item(batch, index);
        ProtoItem wanted = { .flags = item->flags & FOLIO_IF_EXISTS ? PROTO_ITEM_IF_EXISTS : 0 };
        Space *space = NULL;
        int r;

        if (item->flags & ~FOLIO_IF_EXISTS)
                r = error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a delete", item->flags & ~FOLIO_IF_EXISTS);
        else
                r = batch_open(batch, item->name, &space, &wanted.key);
        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r == 0)
                r = bundles_add(&batch->bundles, space, VERB_DELETE, &wanted, index, NULL);
        if (r == BUNDLES_BUSY)
                return BATCH_BUSY;
        if (r < 0)
                batch_set_error(batch, index, r);
        return BATCH_ON;
}

static BatchTurn delete_rest(Batch *batch)
{
        return bundles_flush(&batch->bundles) ? BATCH_BUSY : BATCH_ON;
}

static const BatchKind delete_kind = {
        .item_bytes = sizeof(struct folio_delete_item),
        .error_offset = offsetof(struct folio_delete_item, error),
        .name_offset = offsetof(struct folio_delete_item, name),
        .one = delete_one,
        .answered = delete_answered,
        .rest = delete_rest,
};

_public_ int folio_delete_many(struct folio_client *client, struct folio_delete_item *items, size_t n_items)
{
        Batch batch;
        int r = batch_init(&batch, client, &delete_kind, items, n_items);

        return r < 0 ? r : call_wait(&batch.op, batch_begin);
}

_public_ int folio_delete_many_async(struct folio_client *client, struct folio_delete_item *items, size_t n_items,
                                     folio_done_fn done, void *userdata)
{
        Batch batch;
        int r = batch_init(&batch, client, &delete_kind, items, n_items);

        batch.op.is_changing = true;
        return r < 0 ? r : call_async(&batch.op, sizeof(batch), batch_begin, done, userdata);
}

/* --- asking ------------------------------------------------------------------------------------------------------------------------- */

static BatchTurn stat_one(Batch *batch, size_t index)
{
        const struct folio_stat_item *item = batch_item(batch, index);
        Space *space = NULL;
        Key key = { 0 };
        int r;

        if (!item->stat || item->stat->struct_bytes == 0)
                r = error_set(FOLIO_E_INVALID, "folio_stat.struct_bytes is not set");
        else
                r = batch_open_readable(batch, item->name, &space, &key);
        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r == 0)
                r = stat_look(batch->op.client, space, key, item->name, batch->op.is_waited, item->stat,
                              item->stat->struct_bytes);
        if (r == SETTLE_ASK)
                return BATCH_UNSURE;
        batch_set_error(batch, index, r);
        return BATCH_ON;
}

static const char *stat_name(void *userdata, size_t index)
{
        const struct folio_stat_item *item = batch_item(userdata, index);

        return item->stat && item->stat->struct_bytes > 0 ? item->name : NULL;
}

static void stat_found(void *userdata, size_t index, const AheadName *found)
{
        const struct folio_stat_item *item = batch_item(userdata, index);

        if (found && stat_fill(found->space, found->look.slot, &found->look.copy, item->stat, item->stat->struct_bytes) &&
            resume_is_lit(found->beacon))
                batch_set_error(userdata, index, 0);
}

static void stat_ahead(Batch *batch, size_t begin, size_t end)
{
        static const AheadUse use = { .name = stat_name, .use = stat_found };

        ahead_run(batch->op.client, &use, batch, begin, end);
}

static const BatchKind stat_kind = {
        .item_bytes = sizeof(struct folio_stat_item),
        .error_offset = offsetof(struct folio_stat_item, error),
        .name_offset = offsetof(struct folio_stat_item, name),
        .ahead = stat_ahead,
        .one = stat_one,
};

_public_ int folio_stat_many(struct folio_client *client, struct folio_stat_item *items, size_t n_items)
{
        Batch batch;
        int r = batch_init(&batch, client, &stat_kind, items, n_items);

        return r < 0 ? r : call_wait(&batch.op, batch_begin);
}

_public_ int folio_stat_many_async(struct folio_client *client, struct folio_stat_item *items, size_t n_items,
                                   folio_done_fn done, void *userdata)
{
        Batch batch;
        int r = batch_init(&batch, client, &stat_kind, items, n_items);

        return r < 0 ? r : call_async(&batch.op, sizeof(batch), batch_begin, done, userdata);
}
