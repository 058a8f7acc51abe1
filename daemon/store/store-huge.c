/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done for sealed objects in idle time, a slice at a time, while readers go on. First, which 2 MiB pieces hold
 * nothing but zeros: what has become huge before it was written looks like data to the kernel, written or not. Then all
 * other pieces are made huge, and the slot says what has come of it: pieces of zeros are left as they are, since nobody
 * touches them to read them. A collapse fails for passing reasons (a page that somebody just looks at), so
 * what failed is tried a few times. The object may go meanwhile: its region then stays here until the slice is over.
 */
#include "daemon/store/store-private.h"

#include <stdlib.h>

#include "base/cleanup.h"

#define ROUNDS_MAX 3u

typedef struct Collapse {
        WorkerJob job;
        List link;
        Store *store;
        Object *object;              /* NULL: gone, and its region is ours */
        Region *region;
        LayoutExtents *zeros;        /* a worker's while it scans; NULL: nothing is known */
        ZerosScan scan;
        bool wants_huge;
        uint64_t offset_bytes;
        uint64_t n_bytes;            /* of this slice */
        uint64_t n_huge, n_failed;   /* of this slice */
        uint64_t n_failed_round;
        unsigned n_rounds;
        uint64_t allocated_bytes, huge_bytes;
        int result;
} Collapse;

static void scan_run(WorkerJob *job)
{
        Collapse *c = CONTAINER_OF(job, Collapse, job);

        c->result = region_scan_zeros(c->region, &c->scan, STORE_SCAN_SLICE_BYTES, &job->is_cancelled, c->zeros);
}

/* Of the slice, what is not known to be zeros. */
static int collapse_pieces(Collapse *c)
{
        static const LayoutExtents none;
        uint64_t begin = c->offset_bytes, end = c->offset_bytes + c->n_bytes, run_end, n_huge, n_failed;
        int r = 0;

        while (r == 0) {
                zeros_find_pieces(c->zeros ? c->zeros : &none, begin, end, &begin, &run_end);
                if (begin == end)
                        return 0;
                r = region_collapse(c->region, begin, run_end - begin, false, &c->job.is_cancelled, &n_huge, &n_failed);
                c->n_huge += n_huge;
                c->n_failed += n_failed;
                begin = run_end;
        }
        return r;
}

static void collapse_run(WorkerJob *job)
{
        Collapse *c = CONTAINER_OF(job, Collapse, job);

        c->result = collapse_pieces(c);
        if (c->result == 0 && c->offset_bytes + c->n_bytes == c->region->size_bytes)
                c->result = region_measure(c->region, &c->allocated_bytes, &c->huge_bytes);
}

static void collapse_done(WorkerJob *job);

static void submit_slice(Collapse *c)
{
        c->job.run = collapse_run;
        c->job.done = collapse_done;
        c->n_bytes = MIN(c->region->size_bytes - c->offset_bytes, STORE_COLLAPSE_SLICE_BYTES);
        c->n_huge = c->n_failed = 0;
        c->result = -1;
        worker_pool_submit(c->store->config.workers, WORKER_IDLE, &c->job);
}

/* The object is still there: its slot says what is true now. */
static void publish(Collapse *c)
{
        Space *space = c->object->space;
        LayoutSlot record;

        index_get(space->index, c->object->slot, &record);
        record.allocated_pages = (uint32_t)MIN(c->allocated_bytes / PAGE_BYTES, UINT32_MAX);
        record.huge_folios = (uint32_t)(c->huge_bytes / HUGE_BYTES);
        index_update(space->index, c->object->slot, &record);
}

static uint64_t charged_bytes(const Region *region)
{
        const Charge *charge = region->charge;

        return charge ? charge->n_bytes : 0;
}

/* Is there still somebody whom it serves? */
static bool is_wanted(const Collapse *c)
{
        return !c->job.is_cancelled && c->object && !c->store->is_stopping;
}

static void end(Collapse *c)
{
        Store *store = c->store;

        list_unlink(&c->link);
        if (c->object) {
                c->object->is_collapsing = false;
        } else {
                store->freeing_bytes -= charged_bytes(c->region);
                store_drop_region(store, steal_ptr(&c->region));
        }
        free(c->zeros);
        free(c);
}

static void collapse_done(WorkerJob *job)
{
        Collapse *c = CONTAINER_OF(job, Collapse, job);
        Store *store = c->store;
        bool is_round_over = c->offset_bytes + c->n_bytes == c->region->size_bytes;
        bool is_ok = c->result == 0 && is_wanted(c);

        store->n_collapsed += c->n_huge;
        store->n_collapse_failed += c->n_failed;
        c->n_failed_round += c->n_failed;
        if (is_ok && !is_round_over) {
                c->offset_bytes += c->n_bytes;
                submit_slice(c);
                return;
        }
        if (is_ok) {
                publish(c);
                if (c->n_failed_round > 0 && ++c->n_rounds < ROUNDS_MAX) {
                        c->offset_bytes = c->n_failed_round = 0;
                        submit_slice(c);
                        return;
                }
        }
        end(c);
}

static void scan_done(WorkerJob *job);

static void submit_scan(Collapse *c)
{
        c->job.run = scan_run;
        c->job.done = scan_done;
        c->result = -1;
        worker_pool_submit(c->store->config.workers, WORKER_IDLE, &c->job);
}

static void scan_done(WorkerJob *job)
{
        Collapse *c = CONTAINER_OF(job, Collapse, job);

        if (!is_wanted(c)) {
                end(c);
                return;
        }
        if (c->result == 0 && !zeros_scan_is_over(&c->scan)) {
                submit_scan(c);
                return;
        }
        /* Also where it had to be given up: what has been found is true. */
        if (c->scan.n_added > 0)
                store_publish_zeros(c->object, c->zeros);
        if (c->wants_huge)
                submit_slice(c);
        else
                end(c);
}

static bool can_collapse(const Object *object)
{
        const Space *space = object->space;
        uint32_t capabilities = object->region->backend->capabilities;

        return object->region->size_bytes >= HUGE_BYTES && space->ns.huge != FOLIO_HUGE_NEVER &&
               capabilities & BACKEND_COLLAPSIBLE && !(capabilities & BACKEND_HUGE_AT_ALLOCATION);
}

void store_begin_idle_work(Store *store, Object *object, LayoutExtents *consume_zeros, bool wants_huge)
{
        _cleanup_(cleanup_free) LayoutExtents *zeros = consume_zeros;
        const Space *space = object->space;
        LayoutSlot record;
        uint64_t ignored;
        bool is_all_zero, can_scan;
        Collapse *c;

        index_get(space->index, object->slot, &record);
        is_all_zero = zeros && zeros_has(zeros, 0, record.size_bytes, &ignored);
        can_scan = zeros && record.size_bytes >= HUGE_BYTES && !is_all_zero;
        wants_huge = wants_huge && !is_all_zero && can_collapse(object);
        if (!can_scan && !wants_huge)
                return;
        c = calloc(1, sizeof(*c));
        if (!c)
                return; /* small pages, then */
        c->store = store;
        c->object = object;
        c->region = object->region;
        c->zeros = steal_ptr(&zeros);
        c->scan.n_bytes = record.size_bytes;
        c->wants_huge = wants_huge;
        list_push_back(&store->collapses, &c->link);
        object->is_collapsing = true;
        if (can_scan)
                submit_scan(c);
        else
                submit_slice(c);
}

void store_orphan_collapse(Store *store, Object *object)
{
        LIST_FOREACH(node, &store->collapses)
        {
                Collapse *c = LIST_ENTRY(node, Collapse, link);

                if (c->object != object)
                        continue;
                c->object = NULL;
                object->region = NULL;
                /* Whoever needs its memory waits for it, as for that of a region on its way out. */
                store->freeing_bytes += charged_bytes(c->region);
                object->is_collapsing = false;
                atomic_store_explicit(&c->job.is_cancelled, true, memory_order_relaxed);
                return;
        }
}

void store_cancel_collapses(Store *store)
{
        LIST_FOREACH(node, &store->collapses)
                atomic_store_explicit(&LIST_ENTRY(node, Collapse, link)->job.is_cancelled, true, memory_order_relaxed);
}
