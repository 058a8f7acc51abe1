/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes sealed objects huge after the fact: in idle time, a slice at a time, while readers go on; then looks what has
 * come of it, and says so in the slot. A collapse fails for passing reasons (a page that somebody just looks at), so
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
        uint64_t offset_bytes;
        uint64_t n_bytes;            /* of this slice */
        uint64_t n_huge, n_failed;   /* of this slice */
        uint64_t n_failed_round;
        unsigned n_rounds;
        uint64_t allocated_bytes, huge_bytes;
        int result;
} Collapse;

static void collapse_run(WorkerJob *job)
{
        Collapse *c = CONTAINER_OF(job, Collapse, job);

        c->result = region_collapse(c->region, c->offset_bytes, c->n_bytes, false, &job->is_cancelled, &c->n_huge,
                                    &c->n_failed);
        if (c->result == 0 && c->offset_bytes + c->n_bytes == c->region->size_bytes)
                c->result = region_measure(c->region, &c->allocated_bytes, &c->huge_bytes);
}

static void submit_slice(Collapse *c)
{
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

static void collapse_done(WorkerJob *job)
{
        Collapse *c = CONTAINER_OF(job, Collapse, job);
        Store *store = c->store;
        bool is_round_over = c->offset_bytes + c->n_bytes == c->region->size_bytes;
        bool is_ok = c->result == 0 && !job->is_cancelled && c->object && !store->is_stopping;

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
        list_unlink(&c->link);
        if (c->object) {
                c->object->is_collapsing = false;
        } else {
                store->freeing_bytes -= charged_bytes(c->region);
                store_drop_region(store, steal_ptr(&c->region));
        }
        free(c);
}

void store_begin_collapse(Store *store, Object *object)
{
        const Space *space = object->space;
        uint32_t capabilities = object->region->backend->capabilities;
        Collapse *c;

        if (object->region->size_bytes < HUGE_BYTES || space->ns.huge == FOLIO_HUGE_NEVER ||
            !(capabilities & BACKEND_COLLAPSIBLE) || capabilities & BACKEND_HUGE_AT_ALLOCATION)
                return;
        c = calloc(1, sizeof(*c));
        if (!c)
                return; /* small pages, then */
        c->store = store;
        c->object = object;
        c->region = object->region;
        c->job.run = collapse_run;
        c->job.done = collapse_done;
        list_push_back(&store->collapses, &c->link);
        object->is_collapsing = true;
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
