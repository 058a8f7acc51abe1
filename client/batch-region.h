/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch whose items are objects that must be mapped, or read: those whose regions are not here are held (pinned) and
 * the regions asked for, in bundles; an object whose region is in the bundle already is left for the end, when that
 * region is mapped. So are those whose descriptors this process had no room for: they are asked for again, fewer at
 * once, until one at a time is too many. Does not know what becomes of an object.
 */
#ifndef CLIENT_BATCH_REGION_H
#define CLIENT_BATCH_REGION_H

#include "client/batch.h"
#include "client/object.h"

typedef struct RegionBatch RegionBatch;

struct RegionBatch {
        Batch batch;
        uint32_t flags;              /* FOLIO_GET_* */
        /*
         * What is done with an object that is mapped, or whose region has come: 0 or the item's error. The reference is
         * taken over.
         */
        int (*finish)(RegionBatch *regions, size_t index, Object *consume_object, const ProtoItemReply *item, int consume_fd);
        Object **held;               /* for each item: waits for its region; NULL before the first */
        bool is_again;               /* regions are asked for that others wait for: they are mapped */
};

static inline RegionBatch *region_batch(Batch *batch)
{
        return CONTAINER_OF(batch, RegionBatch, batch);
}

/* The object that @name will stand for, new, in a namespace that may be read. 0, BATCH_OPENING, or the item's error. */
int region_open(Batch *batch, const char *name, Object **ret, Key *ret_key);

/* The region of an item's object is asked for. The reference is taken over. ON or BUSY. */
BatchTurn region_want(RegionBatch *regions, size_t index, Object *consume_object);

/* Of the kind of such a batch: answered(), rest(), and a part of end(). */
void regions_answered(Batch *batch, Bundle *bundle);
BatchTurn regions_settle(Batch *batch);
void regions_end(RegionBatch *regions);

#endif
