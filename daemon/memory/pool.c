/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See pool.h. Everything the pool has is an item: a region being made, a blank one, one kept for a tag, or one on its
 * way back to the kernel. An item is allocated before its region, and is the job that makes it and the job that frees
 * it, so that giving memory back needs no memory.
 *
 * Paying: an item's bytes are paid before the job that makes it begins, and repaid when its memory has gone, or never
 * came. Taking hands region and payment over together; giving takes both. So the sum of all items' bytes is what the
 * pool has paid and not been repaid.
 *
 * Refuses to know: what a tag means, what regions are for, how much memory there is.
 */
#include "daemon/memory/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/macro.h"

/* What one call may give back on the loop: huge folios go quickly, small pages take a millisecond for 8 MiB. */
#define FREE_AT_ONCE_BYTES_HUGE (64 * MIB)
#define FREE_AT_ONCE_BYTES_SMALL (8 * MIB)

typedef struct Kind {
        List link;
        Backend *backend;
        uint64_t size_bytes;
        bool for_packed;
        bool is_resting;             /* making one failed: no more until somebody asks */
        unsigned n_target;
        unsigned n_making;
        unsigned n_blank;
} Kind;

typedef struct Item {
        List link;                   /* of exactly one of the pool's lists */
        WorkerJob job;
        Pool *pool;
        Kind *kind;                  /* NULL: kept for a tag */
        Region *region;
        Backend *backend;
        uint64_t size_bytes;
        uint64_t tag;
        bool for_packed;
        bool makes_room;             /* it goes so that others can come */
        uint64_t offset_bytes;       /* how far it is made */
        uint64_t n_huge;
        int result;                  /* of the job that makes it */
        uint64_t n_collapse_failed;
} Item;

struct Pool {
        PoolConfig config;
        PoolUsage usage;
        List kinds;
        List making;
        List blank;                  /* newest first: warm in the caches */
        List kept;                   /* newest first */
        List freeing;
};

static void refill_all(Pool *pool);

/* --- giving back -------------------------------------------------------------------------------------------------- */

/* The memory has gone, or was never there. */
static void settle_item(Item *item)
{
        Pool *pool = item->pool;

        assert(!item->region && pool->usage.bytes >= item->size_bytes);
        pool->usage.bytes -= item->size_bytes;
        pool->config.repay(pool->config.userdata, item->size_bytes);
        list_unlink(&item->link);
        free(item);
}

static void free_item_run(WorkerJob *job)
{
        Item *item = CONTAINER_OF(job, Item, job);

        region_unref(steal_ptr(&item->region));
}

static void free_item_done(WorkerJob *job)
{
        Item *item = CONTAINER_OF(job, Item, job);
        Pool *pool = item->pool;
        bool makes_room = item->makes_room;

        region_unref(steal_ptr(&item->region)); /* still there if the workers have ended before it ran */
        settle_item(item);
        if (makes_room)
                refill_all(pool);
}

static uint64_t free_at_once_bytes(const Item *item)
{
        return item->backend->capabilities & (BACKEND_HUGE_AT_ALLOCATION | BACKEND_COLLAPSIBLE) ?
                       FREE_AT_ONCE_BYTES_HUGE :
                       FREE_AT_ONCE_BYTES_SMALL;
}

/* Of no list that is counted. @n_so_far: freed on the loop by the same call. Returns what was repaid at once. */
static uint64_t free_uncounted(Pool *pool, Item *item, uint64_t n_so_far)
{
        uint64_t size_bytes = item->size_bytes;

        list_unlink(&item->link);
        list_push_back(&pool->freeing, &item->link);
        if (n_so_far + size_bytes <= free_at_once_bytes(item)) {
                region_unref(steal_ptr(&item->region));
                settle_item(item);
                return size_bytes;
        }
        item->job.run = free_item_run;
        item->job.done = free_item_done;
        worker_pool_submit(pool->config.workers, WORKER_URGENT, &item->job);
        return 0;
}

/* No longer among the blanks or the kept. */
static void uncount_item(Pool *pool, Item *item)
{
        list_unlink(&item->link);
        pool->usage.ready_bytes -= item->size_bytes;
        if (item->kind) {
                item->kind->n_blank--;
                pool->usage.n_blank--;
        } else {
                pool->usage.n_kept--;
        }
}

static uint64_t free_item(Pool *pool, Item *item, uint64_t n_so_far)
{
        uncount_item(pool, item);
        return free_uncounted(pool, item, n_so_far);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

/* In a worker thread, when all of it is there: what is left to do before it can be given away. */
static int close_region(Item *item)
{
        Region *region = item->region;
        int r;

        region->n_huge = item->n_huge;
        if (!item->for_packed)
                return region_seal_size(region);
        /* Mapped, then sealed: afterwards the kernel allows no other writer. */
        r = region_map(region, true);
        if (r < 0)
                return r;
        r = region_populate(region, &item->job.is_cancelled);
        if (r < 0)
                return r;
        return region_seal_to_daemon(region);
}

/* A part at a time, so that a large one keeps nobody waiting. */
static void make_item_run(WorkerJob *job)
{
        Item *item = CONTAINER_OF(job, Item, job);
        atomic_bool is_dear = false; /* it may cost what it costs */
        uint64_t n_huge, n_failed, n_left;

        if (atomic_load_explicit(&job->is_cancelled, memory_order_relaxed)) {
                item->result = -ECANCELED;
                return;
        }
        if (!item->region)
                item->result = region_new(item->backend, "blank", item->size_bytes, &item->region);
        if (!item->region)
                return;
        /* Where the policy is against huge pages the probe has not claimed that it can. */
        n_left = item->size_bytes - item->offset_bytes;
        item->result = region_prepare_part(item->region, item->offset_bytes, MIN(n_left, REGION_PART_BYTES), true, 0,
                                           &is_dear, &job->is_cancelled, &n_huge, &n_failed);
        item->n_huge += n_huge;
        item->n_collapse_failed += n_failed;
        item->offset_bytes += REGION_PART_BYTES;
        job->is_unfinished = item->result == 0 && item->offset_bytes < item->size_bytes;
        if (item->result == 0 && !job->is_unfinished)
                item->result = close_region(item);
}

static void make_item_done(WorkerJob *job)
{
        Item *item = CONTAINER_OF(job, Item, job);
        Pool *pool = item->pool;
        Kind *kind = item->kind;
        bool is_cancelled = atomic_load_explicit(&job->is_cancelled, memory_order_relaxed);

        kind->n_making--;
        pool->usage.n_collapse_failed += item->n_collapse_failed;
        if (item->result < 0 && !is_cancelled)
                kind->is_resting = true;
        if (!item->region) {
                settle_item(item);
        } else if (item->result < 0 || is_cancelled || kind->n_blank >= kind->n_target) {
                (void)free_uncounted(pool, item, 0);
        } else {
                list_unlink(&item->link);
                list_push_front(&pool->blank, &item->link);
                pool->usage.ready_bytes += item->size_bytes;
                kind->n_blank++;
                pool->usage.n_blank++;
        }
}

static void refill(Pool *pool, Kind *kind)
{
        while (!kind->is_resting && kind->n_blank + kind->n_making < kind->n_target) {
                Item *item;

                if (pool->usage.bytes > pool->config.bytes_max ||
                    kind->size_bytes > pool->config.bytes_max - pool->usage.bytes)
                        return;
                item = calloc(1, sizeof(*item));
                if (!item)
                        return; /* a pool that is not warm is only slower */
                if (!pool->config.pay(pool->config.userdata, kind->size_bytes)) {
                        free(item);
                        return;
                }
                item->pool = pool;
                item->kind = kind;
                item->backend = kind->backend;
                item->size_bytes = kind->size_bytes;
                item->for_packed = kind->for_packed;
                item->result = -ECANCELED;
                item->job.run = make_item_run;
                item->job.done = make_item_done;
                pool->usage.bytes += item->size_bytes;
                kind->n_making++;
                list_push_back(&pool->making, &item->link);
                worker_pool_submit(pool->config.workers, WORKER_IDLE, &item->job);
        }
}

static void refill_all(Pool *pool)
{
        LIST_FOREACH(node, &pool->kinds)
                refill(pool, LIST_ENTRY(node, Kind, link));
}

/* --- pool --------------------------------------------------------------------------------------------------------- */

int pool_new(const PoolConfig *config, Pool **ret)
{
        Pool *pool = calloc(1, sizeof(*pool));

        if (!pool)
                return -ENOMEM;
        pool->config = *config;
        list_init(&pool->kinds);
        list_init(&pool->making);
        list_init(&pool->blank);
        list_init(&pool->kept);
        list_init(&pool->freeing);
        *ret = pool;
        return 0;
}

/* At the end nobody waits for the loop, and there may be no workers any more: all of it here. */
static void free_all(Pool *pool, List *items)
{
        LIST_FOREACH_SAFE(node, items)
        {
                Item *item = LIST_ENTRY(node, Item, link);

                uncount_item(pool, item);
                region_unref(steal_ptr(&item->region));
                settle_item(item);
        }
}

void pool_free(Pool *pool)
{
        List *node;

        if (!pool)
                return;
        assert(list_is_empty(&pool->making) && list_is_empty(&pool->freeing));
        free_all(pool, &pool->blank);
        free_all(pool, &pool->kept);
        assert(pool->usage.bytes == 0);
        while ((node = list_take_front(&pool->kinds)))
                free(LIST_ENTRY(node, Kind, link));
        free(pool);
}

static Kind *find_kind(Pool *pool, const Backend *backend, uint64_t size_bytes, bool for_packed)
{
        LIST_FOREACH(node, &pool->kinds)
        {
                Kind *kind = LIST_ENTRY(node, Kind, link);

                if (kind->backend == backend && kind->size_bytes == size_bytes && kind->for_packed == for_packed)
                        return kind;
        }
        return NULL;
}

void pool_set_limit(Pool *pool, uint64_t bytes_max)
{
        pool->config.bytes_max = bytes_max;
        if (pool->usage.bytes > bytes_max)
                (void)pool_drain(pool, pool->usage.bytes - bytes_max);
}

void pool_want(Pool *pool, Backend *backend, uint64_t size_bytes, bool for_packed, unsigned n_target)
{
        Kind *kind = find_kind(pool, backend, size_bytes, for_packed);
        uint64_t n_freed = 0;

        assert(size_bytes > 0 && IS_ALIGNED(size_bytes, for_packed ? HUGE_BYTES : PAGE_BYTES));
        if (!kind) {
                kind = n_target > 0 ? calloc(1, sizeof(*kind)) : NULL;
                if (!kind)
                        return; /* as in refill() */
                kind->backend = backend;
                kind->size_bytes = size_bytes;
                kind->for_packed = for_packed;
                list_push_back(&pool->kinds, &kind->link);
        }
        kind->n_target = n_target;
        kind->is_resting = false;
        LIST_FOREACH_SAFE(node, &pool->blank)
        {
                Item *item = LIST_ENTRY(node, Item, link);

                if (item->kind != kind || kind->n_blank <= n_target)
                        continue;
                item->makes_room = true;
                n_freed += free_item(pool, item, n_freed);
        }
        refill(pool, kind);
}

/*
 * The smallest that is large enough and not too large: a packed region has room for others, while what a region of
 * one object is larger than that is wasted, and charged to whoever asked for less.
 */
static Item *find_item(List *items, const Backend *backend, uint64_t size_bytes, bool for_packed, uint64_t tag)
{
        Item *best = NULL;

        LIST_FOREACH(node, items)
        {
                Item *item = LIST_ENTRY(node, Item, link);

                if (item->backend != backend || item->for_packed != for_packed || item->tag != tag ||
                    item->size_bytes < size_bytes || item->size_bytes - size_bytes > size_bytes / (for_packed ? 1 : 8))
                        continue;
                if (!best || item->size_bytes < best->size_bytes)
                        best = item;
        }
        return best;
}

Region *pool_take(Pool *pool, Backend *backend, uint64_t size_bytes, bool for_packed, uint64_t tag, bool *ret_is_blank)
{
        Region *region = NULL;
        Item *item = NULL;

        if (tag != 0)
                item = find_item(&pool->kept, backend, size_bytes, for_packed, tag);
        if (!item)
                item = find_item(&pool->blank, backend, size_bytes, for_packed, 0);
        if (item) {
                *ret_is_blank = item->kind != NULL;
                uncount_item(pool, item);
                region = steal_ptr(&item->region);
                pool->usage.bytes -= item->size_bytes; /* paid still, by whoever has the region now */
                pool->usage.n_hits++;
                free(item);
        } else {
                pool->usage.n_misses++;
        }
        /* Somebody asks: what has failed before is worth another try. */
        LIST_FOREACH(node, &pool->kinds)
        {
                Kind *kind = LIST_ENTRY(node, Kind, link);

                if (kind->backend != backend || kind->for_packed != for_packed)
                        continue;
                kind->is_resting = false;
                refill(pool, kind);
        }
        return region;
}

void pool_give(Pool *pool, Region *consume_region, uint64_t tag)
{
        uint64_t size_bytes = consume_region->size_bytes;
        Item *item;

        item = calloc(1, sizeof(*item));
        if (!item) {
                /* No record to send it to a worker with: slowly, but it goes. */
                region_unref(consume_region);
                pool->config.repay(pool->config.userdata, size_bytes);
                return;
        }
        item->pool = pool;
        item->region = consume_region;
        item->backend = consume_region->backend;
        item->size_bytes = size_bytes;
        item->tag = tag;
        item->for_packed = true;
        list_init(&item->link);
        pool->usage.bytes += size_bytes;
        if (tag == 0 || pool->usage.bytes > pool->config.bytes_max) {
                (void)free_uncounted(pool, item, 0);
                return;
        }
        list_push_front(&pool->kept, &item->link);
        pool->usage.ready_bytes += size_bytes;
        pool->usage.n_kept++;
}

void pool_forget(Pool *pool, uint64_t tag)
{
        uint64_t n_freed = 0;

        LIST_FOREACH_SAFE(node, &pool->kept)
        {
                Item *item = LIST_ENTRY(node, Item, link);

                if (item->tag == tag)
                        n_freed += free_item(pool, item, n_freed);
        }
}

uint64_t pool_drain(Pool *pool, uint64_t n_bytes)
{
        List *const lists[] = { &pool->kept, &pool->blank };
        uint64_t n_freed = 0, n_on_the_way = 0;

        /* What is on its way back already counts: the caller asks again when it needs more than that. */
        LIST_FOREACH(node, &pool->freeing)
                n_on_the_way += LIST_ENTRY(node, Item, link)->size_bytes;
        /* The oldest first: they have been of no use for longest. */
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
                while (n_freed + n_on_the_way < n_bytes && !list_is_empty(lists[i])) {
                        Item *item = LIST_ENTRY(lists[i]->previous, Item, link);
                        uint64_t size_bytes = item->size_bytes, n_repaid = free_item(pool, item, n_freed);

                        n_freed += n_repaid;
                        if (n_repaid == 0)
                                n_on_the_way += size_bytes;
                }
        }
        LIST_FOREACH(node, &pool->making)
        {
                Item *item = LIST_ENTRY(node, Item, link);

                if (n_freed + n_on_the_way >= n_bytes)
                        break;
                atomic_store_explicit(&item->job.is_cancelled, true, memory_order_relaxed);
                n_on_the_way += item->size_bytes;
        }
        return n_freed;
}

void pool_get_usage(const Pool *pool, PoolUsage *ret)
{
        *ret = pool->usage;
}
