/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many reads in one call. Items come by on a belt (see ahead.h): while one is copied the bytes of the next are on their
 * way.
 *
 * What is packed and mapped is read without being held: copied, and then the slot looked at again. While that is what
 * it was the object had its name, so nobody can have put anything else into its memory; where it has changed the copy
 * is worth nothing, and the item is done once more, alone, with a pin. No counter is written, and nothing locked, for
 * an item. Mappings are kept from one item to the next, until the batch ends.
 */
#include "base/checked.h"
#include "client/ahead.h"
#include "client/batch-region.h"
#include "client/get.h"
#include "client/lib/copy.h"
#include "client/read.h"
#include "folio/batch.h"

enum { READ_REGIONS_MAX = 64 };      /* a power of two */

/* Of each item to come: the rest comes by itself while it is copied, and more would only be in the way of what is copied now. */
#define READ_FETCH_BYTES 512

typedef struct ReadBatch {
        RegionBatch regions;
        Mapping *mappings[READ_REGIONS_MAX]; /* of packed regions, with a reference; NULL */
} ReadBatch;

static ReadBatch *read_batch(Batch *batch)
{
        return CONTAINER_OF(region_batch(batch), ReadBatch, regions);
}

/* --- one by one ------------------------------------------------------------------------------------------------- */

static int read_finish(RegionBatch *regions, size_t index, Object *object, const ProtoItemReply *reply, int consume_fd)
{
        const struct folio_read_item *item = batch_item(&regions->batch, index);
        int r;

        if (reply)
                r = object_read_region(object, reply, consume_fd, item->offset_bytes, item->buffer, item->n_bytes);
        else
                r = object_read_now(object, item->offset_bytes, item->buffer, item->n_bytes);
        /* The descriptor that it takes went to another item, of the same object. */
        if (!reply && r == 0)
                r = object_read_mapped(object, item->offset_bytes, item->buffer, item->n_bytes);
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
                        return region_want(region_batch(batch), index, object_ref(object));
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
        Object *object;
        Lookup look;
        Key key;
        int r = region_open(batch, item->name, &object, &key);

        if (r == BATCH_OPENING)
                return BATCH_OPENING;
        if (r < 0) {
                batch_set_error(batch, index, r);
                return BATCH_ON;
        }
        switch (get_try(object, key, FOLIO_GET_UNMAPPED, batch->op.is_waited, &look, &r)) {
        case GET_DONE:
                r = object_check_range(object, item->offset_bytes, item->n_bytes);
                if (r == 0)
                        r = object_read_now(object, item->offset_bytes, item->buffer, item->n_bytes);
                if (r == 0)
                        return region_want(region_batch(batch), index, object);
                break;
        case GET_REGION:
                r = object_check_range(object, item->offset_bytes, item->n_bytes);
                if (r == 0 && item->n_bytes > 0)
                        return region_want(region_batch(batch), index, object);
                break;
        case GET_MISSING:
                r = get_explain_missing(item->name, &look);
                break;
        case GET_WRITING:
                r = get_explain_writing(item->name);
                break;
        case GET_UNSURE:
                object_unref(object);
                return BATCH_UNSURE;
        case GET_FAILED:
                break;
        }
        object_unref(object);
        batch_set_error(batch, index, r < 0 ? r : 0);
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

/* --- on the belt ------------------------------------------------------------------------------------------------ */

/* Of a packed region, borrowed from the batch. NULL: not mapped. */
static const Mapping *find_mapping(ReadBatch *read, uint64_t region_id)
{
        Maps *maps = read->regions.batch.op.client->maps;
        Mapping **place = &read->mappings[region_id & (READ_REGIONS_MAX - 1)];

        if (LIKELY(*place && (*place)->region_id == region_id))
                return *place;
        if (*place)
                maps_unref(maps, *place, false);
        *place = maps_find(maps, region_id, false);
        return *place;
}

/* Where the bytes of what was found are; NULL: not mapped, not packed, or not all of them are inside. */
static const uint8_t *find_bytes(ReadBatch *read, const LayoutSlot *copy, const struct folio_read_item *item)
{
        uint64_t offset_bytes = (uint64_t)copy->offset_units * LAYOUT_CHUNK_UNIT_BYTES;
        const Mapping *mapping;

        if (copy->placement != FOLIO_PLACEMENT_PACKED || copy->state != LAYOUT_SLOT_SEALED ||
            !checked_range(item->offset_bytes, item->n_bytes, copy->size_bytes))
                return NULL;
        mapping = find_mapping(read, copy->region_id);
        if (!mapping || !checked_range(offset_bytes, copy->size_bytes, mapping->n_bytes))
                return NULL;
        return mapping->data + offset_bytes + item->offset_bytes;
}

/*
 * Its object, and from where its bytes are to be had, which is NULL where they are not mapped. NULL: something is in
 * the way.
 */
static Object *find_object(const struct folio_read_item *item, const uint8_t **ret_from)
{
        int r;
        Object *object = object_find(item->object, &r);
        const uint8_t *data;

        if (!object || object_check_readable(object, item->offset_bytes, item->n_bytes) < 0)
                return NULL;
        data = object_peek(object);
        *ret_from = data ? data + item->offset_bytes : NULL;
        return object;
}

/* An item that read_one() would find fault with has neither. */
static bool is_good(const struct folio_read_item *item)
{
        return (item->buffer || item->n_bytes == 0) && !item->name != !item->object;
}

static const char *read_name_of(void *userdata, size_t index)
{
        const struct folio_read_item *item = batch_item(userdata, index);

        return is_good(item) ? item->name : NULL;
}

static void read_fetch(void *userdata, size_t index, const AheadName *found)
{
        const struct folio_read_item *item = batch_item(userdata, index);
        const uint8_t *from = NULL;

        if (found)
                from = find_bytes(read_batch(userdata), &found->look.copy, item);
        else if (is_good(item) && item->object)
                (void)find_object(item, &from);
        if (from)
                copy_prefetch(from, MIN(item->n_bytes, (size_t)READ_FETCH_BYTES));
}

static void read_use(void *userdata, size_t index, const AheadName *found)
{
        const struct folio_read_item *item = batch_item(userdata, index);
        const uint8_t *from = NULL;
        bool is_done = false;

        if (found) {
                from = find_bytes(read_batch(userdata), &found->look.copy, item);
                is_done = from && copy_out(item->buffer, from, item->n_bytes, 0) == 0 &&
                          lookup_is_still(found->space, found->look.slot, &found->look.copy) && resume_is_lit(found->beacon);
        } else if (is_good(item) && item->object) {
                Object *object = find_object(item, &from);

                is_done = object && from && object_read_now(object, item->offset_bytes, item->buffer, item->n_bytes) > 0;
        }
        if (is_done)
                batch_set_error(userdata, index, 0);
}

static void read_ahead(Batch *batch, size_t begin, size_t end)
{
        static const AheadUse use = { .name = read_name_of, .fetch = read_fetch, .use = read_use };

        ahead_run(batch->op.client, &use, batch, begin, end);
}

static void read_end(Batch *batch)
{
        ReadBatch *read = read_batch(batch);

        for (size_t i = 0; i < READ_REGIONS_MAX; i++)
                if (read->mappings[i])
                        maps_unref(batch->op.client->maps, read->mappings[i], false);
        regions_end(&read->regions);
}

static const BatchKind read_kind = {
        .item_bytes = sizeof(struct folio_read_item),
        .error_offset = offsetof(struct folio_read_item, error),
        .ahead = read_ahead,
        .one = read_one,
        .answered = regions_answered,
        .rest = regions_settle,
        .end = read_end,
};

_public_ int folio_read_many(struct folio_client *client, struct folio_read_item *items, size_t n_items)
{
        ReadBatch read = { .regions = { .finish = read_finish } };
        int r = batch_init(&read.regions.batch, client, &read_kind, items, n_items);

        return r < 0 ? r : call_wait(&read.regions.batch.op, batch_begin);
}

_public_ int folio_read_many_async(struct folio_client *client, struct folio_read_item *items, size_t n_items,
                                   folio_done_fn done, void *userdata)
{
        ReadBatch read = { .regions = { .finish = read_finish } };
        int r = batch_init(&read.regions.batch, client, &read_kind, items, n_items);

        return r < 0 ? r : call_async(&read.regions.batch.op, sizeof(read), batch_begin, done, userdata);
}
