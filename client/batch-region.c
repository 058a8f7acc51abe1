/* SPDX-License-Identifier: Apache-2.0 */
/* See batch-region.h. */
#include "client/batch-region.h"

#include <stdlib.h>

#include "base/cleanup.h"

static void region_came(RegionBatch *regions, size_t index, const ProtoItemReply *reply, int consume_fd)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        Object *object = steal_ptr(&regions->held[index]);
        bool is_mapped = regions->is_again;
        int r = 0;

        if (is_mapped)
                r = object_map_region(object, reply, fd, regions->flags & FOLIO_GET_WRITABLE, regions->flags & FOLIO_GET_POPULATE);
        /* What cannot be mapped may still be read, one by one. */
        if (r == FOLIO_E_LIMIT || r == FOLIO_E_NO_MEMORY) {
                is_mapped = false;
                r = 0;
        }
        if (r < 0)
                object_unref(object);
        else
                r = regions->finish(regions, index, object, is_mapped ? NULL : reply, is_mapped ? -1 : steal_fd(&fd));
        batch_set_error(&regions->batch, index, r);
}

void regions_answered(Batch *batch, Bundle *bundle)
{
        RegionBatch *regions = region_batch(batch);
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
                        object_unref(steal_ptr(&regions->held[index]));
                        batch_set_error(batch, index, error);
                } else if (fd >= 0 || bundle->n_fds == 0) {
                        region_came(regions, index, &bundle->replies[i], fd);
                }
                /* Else another item has had the descriptor: it is done at the end, with the region mapped. */
        }
        bundle_give(bundle);
}

static bool is_asked_for(RegionBatch *regions, const Object *object)
{
        const Bundle *bundle = bundles_peek(&regions->batch.bundles, object->space, VERB_REGION);

        for (size_t i = 0; bundle && i < bundle->n_items; i++)
                if (regions->held[bundle->index[i]]->region_id == object->region_id)
                        return true;
        return false;
}

/* 0: on its way, or left for the end; BUNDLES_BUSY; an error. */
static int region_ask(RegionBatch *regions, size_t index, Object *object)
{
        ProtoItem item = object_region_item(object, regions->flags & FOLIO_GET_WRITABLE);

        if (is_asked_for(regions, object))
                return 0;
        return bundles_add(&regions->batch.bundles, object->space, VERB_REGION, &item, index, NULL);
}

/* False: no memory. */
static bool region_make_room(RegionBatch *regions)
{
        if (!regions->held)
                regions->held = calloc(regions->batch.n_items, sizeof(Object *));
        return regions->held;
}

int region_open(Batch *batch, const char *name, Object **ret, Key *ret_key)
{
        Space *space;
        int r = batch_open_readable(batch, name, &space, ret_key);

        if (r != 0)
                return r;
        *ret = object_new(batch->op.client, space);
        return *ret ? 0 : error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch");
}

BatchTurn region_want(RegionBatch *regions, size_t index, Object *consume_object)
{
        int r = 0;

        if (!region_make_room(regions))
                r = error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a batch of %zu items", regions->batch.n_items);
        if (r == 0)
                r = region_ask(regions, index, consume_object);
        if (r == 0) {
                regions->held[index] = consume_object;
                return BATCH_ON;
        }
        object_unref(consume_object);
        if (r == BUNDLES_BUSY)
                return BATCH_BUSY;
        batch_set_error(&regions->batch, index, r);
        return BATCH_ON;
}

/* True: what was left is done, or has been asked for again. */
static bool region_left(RegionBatch *regions, size_t index)
{
        Object *object = regions->held[index];
        int r = object_attach_mapped(object, regions->flags & FOLIO_GET_WRITABLE);

        if (r == 0) {
                regions->is_again = true;
                r = region_ask(regions, index, object);
                if (r >= 0)
                        return r == 0;
        }
        regions->held[index] = NULL;
        if (r > 0)
                r = regions->finish(regions, index, object, NULL, -1);
        else
                object_unref(object);
        batch_set_error(&regions->batch, index, r);
        return true;
}

/* ON: everything that has been asked for is done. */
BatchTurn regions_settle(Batch *batch)
{
        RegionBatch *regions = region_batch(batch);

        if (bundles_flush(&batch->bundles))
                return BATCH_BUSY;
        for (size_t i = 0; regions->held && i < batch->n_items; i++)
                if (regions->held[i] && !region_left(regions, i))
                        break;
        if (bundles_flush(&batch->bundles))
                return BATCH_BUSY;
        regions->is_again = false;
        return BATCH_ON;
}

void regions_end(RegionBatch *regions)
{
        /* Where the client is being closed some may be left. */
        for (size_t i = 0; regions->held && i < regions->batch.n_items; i++)
                object_unref(regions->held[i]);
        free(regions->held);
}
