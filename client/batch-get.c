/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many gets in one call. What the index and the mappings we have answer is done at once, many names beside each other;
 * the other objects wait for their regions, and those that are not there yet are waited for one after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ahead.h"
#include "client/batch-region.h"
#include "client/get.h"
#include "client/sealed.h"
#include "folio/batch.h"

typedef struct GetBatch {
        RegionBatch regions;
        GetUntil until;
} GetBatch;

static GetBatch *get_batch(Batch *batch)
{
        return CONTAINER_OF(region_batch(batch), GetBatch, regions);
}

static int get_finish(RegionBatch *regions, size_t index, Object *object, const ProtoItemReply *reply, int consume_fd)
{
        struct folio_get_item *item = batch_item(&regions->batch, index);
        int r = 0;

        if (reply)
                r = object_add_region(object, reply, consume_fd, regions->flags & FOLIO_GET_WRITABLE,
                                      regions->flags & FOLIO_GET_POPULATE);
        if (r == 0 && regions->flags & FOLIO_GET_SEALED)
                r = sealed_make(object);
        if (r == 0) {
                item->object = object_give(object);
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
        Batch *batch = &get->regions.batch;

        ((struct folio_get_item *)batch_item(batch, batch->next))->object = object;
        batch_set_error(batch, batch->next++, error);
        op_schedule(&batch->op, batch_go);
}

/* The daemon is asked for what is held already before anybody sleeps: those who want it to go on may be waiting for us. */
static BatchTurn get_sleep(GetBatch *get, size_t index)
{
        struct folio_get_item *item = batch_item(&get->regions.batch, index);
        Client *client = get->regions.batch.op.client;
        Object *object;
        int r;

        if (regions_settle(&get->regions.batch) == BATCH_BUSY)
                return BATCH_BUSY;
        if (get->regions.batch.op.is_waited) {
                r = get_wait(client, item->name, get->regions.flags, get->until, &object);
                if (r == 0)
                        r = get_finish(&get->regions, index, object, NULL, -1);
        } else {
                r = get_start(client, item->name, get->regions.flags, get->until, get_waited, get);
                if (r == 0)
                        return BATCH_AWAY;
        }
        batch_set_error(&get->regions.batch, index, r);
        return BATCH_ON;
}

static BatchTurn get_one(Batch *batch, size_t index)
{
        GetBatch *get = get_batch(batch);
        struct folio_get_item *item = batch_item(batch, index);
        Object *object;
        Lookup look;
        Key key;
        int r;

        item->object = NULL;
        r = region_open(batch, item->name, &object, &key);
        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r < 0) {
                batch_set_error(batch, index, r);
                return BATCH_ON;
        }
        switch (get_try(object, key, get->regions.flags, batch->op.is_waited, &look, &r)) {
        case GET_DONE:
                batch_set_error(batch, index, get_finish(&get->regions, index, object, NULL, -1));
                return BATCH_ON;
        case GET_REGION:
                return region_want(&get->regions, index, object);
        case GET_MISSING:
                r = get->until.deadline_ns ? 1 : get_explain_missing(item->name, &look);
                break;
        case GET_WRITING:
                r = get->until.deadline_ns ? 1 : get_explain_writing(item->name);
                break;
        case GET_UNSURE:
                object_unref(object);
                return BATCH_UNSURE;
        case GET_FAILED:
                break;
        }
        object_unref(object);
        if (r == 1)
                return get_sleep(get, index);
        batch_set_error(batch, index, r);
        return BATCH_ON;
}

static const char *get_name(void *userdata, size_t index)
{
        return ((const struct folio_get_item *)batch_item(userdata, index))->name;
}

static void get_use(void *userdata, size_t index, const AheadName *found)
{
        RegionBatch *regions = region_batch(userdata);
        Object *object = found ? get_found(regions->batch.op.client, found->space, &found->look, regions->flags) : NULL;

        /* Held in a table that may have been replaced: once more, alone. */
        if (object && !resume_is_lit(found->beacon)) {
                object_unref(object);
                object = NULL;
        }
        if (object)
                batch_set_error(userdata, index, get_finish(regions, index, object, NULL, -1));
}

static void get_ahead(Batch *batch, size_t begin, size_t end)
{
        static const AheadUse use = { .is_to_pin = true, .name = get_name, .use = get_use };

        ahead_run(batch->op.client, &use, batch, begin, end);
}

static void get_end(Batch *batch)
{
        regions_end(region_batch(batch));
}

static const BatchKind get_kind = {
        .item_bytes = sizeof(struct folio_get_item),
        .error_offset = offsetof(struct folio_get_item, error),
        .ahead = get_ahead,
        .one = get_one,
        .answered = regions_answered,
        .rest = regions_settle,
        .end = get_end,
};

static int get_init(GetBatch *get, Client *client, struct folio_get_item *items, size_t n_items, uint32_t flags, int timeout_ms)
{
        int r;

        *get = (GetBatch){ .regions = { .flags = get_real_flags(flags), .finish = get_finish } };
        r = batch_init(&get->regions.batch, client, &get_kind, items, n_items);
        if (r == 0 && ((flags & ~GET_FLAGS) || timeout_ms < FOLIO_TIMEOUT_FOREVER))
                r = error_set(FOLIO_E_INVALID, "flags 0x%x, or a timeout of %d ms, for a get", flags, timeout_ms);
        get->until = get_until(timeout_ms);
        return r;
}

_public_ int folio_get_many(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                            int timeout_ms)
{
        GetBatch get;
        int r = get_init(&get, client, items, n_items, flags, timeout_ms);

        return r < 0 ? r : call_wait(&get.regions.batch.op, batch_begin);
}

_public_ int folio_get_many_async(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                                  int timeout_ms, folio_done_fn done, void *userdata)
{
        GetBatch get;
        int r = get_init(&get, client, items, n_items, flags, timeout_ms);

        return r < 0 ? r : call_async(&get.regions.batch.op, sizeof(get), batch_begin, done, userdata);
}
