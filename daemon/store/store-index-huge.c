/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the index of a space huge as it grows: one job at a time for each space, in idle time. A new client that maps
 * an index of a million objects then takes a fault for each 2 MiB instead of one for each 4 KiB, and lookups miss the
 * TLB less. The loop and all readers go on while a piece is made huge; who touches just that piece waits for its copy.
 *
 * The space stays until its job is over; the job has a reference to the region besides.
 */
#include "daemon/store/store-private.h"

#include "base/cleanup.h"

/* A collapse fails for passing reasons, a page that somebody just looks at: it is tried so often in all. */
#define ROUNDS_MAX 3u

static void collapse_run(WorkerJob *job)
{
        IndexCollapse *c = CONTAINER_OF(job, IndexCollapse, job);
        uint64_t ignored;

        c->result = region_collapse(c->region, c->offset_bytes, c->n_bytes, true, &job->is_cancelled, &c->n_huge,
                                    &c->n_failed);
        if (c->result == 0)
                c->result = region_measure(c->region, &ignored, &c->huge_bytes);
}

static void collapse_done(WorkerJob *job);

static void submit(Store *store, Space *space)
{
        IndexCollapse *c = &space->index_collapse;

        c->is_running = true;
        c->store = store;
        c->region = region_ref(index_region(space->index));
        c->n_huge = c->n_failed = 0;
        c->result = -1;
        c->job.run = collapse_run;
        c->job.done = collapse_done;
        worker_pool_submit(store->config.workers, WORKER_IDLE, &c->job);
}

static void collapse_done(WorkerJob *job)
{
        IndexCollapse *c = CONTAINER_OF(job, IndexCollapse, job);
        Space *space = CONTAINER_OF(c, Space, index_collapse);
        Store *store = c->store;

        c->is_running = false;
        region_unref(steal_ptr(&c->region));
        store->n_collapsed += c->n_huge;
        store->n_collapse_failed += c->n_failed;
        if (c->result == 0)
                space->index_huge_bytes = c->huge_bytes;
        if (space->is_removed || store->is_stopping) {
                store_try_free_space(store, space);
                return;
        }
        if (c->n_failed > 0 && ++c->n_rounds < ROUNDS_MAX)
                submit(store, space); /* what is huge already is not done again */
        else
                store_collapse_index(store, space);
}

void store_collapse_index(Store *store, Space *space)
{
        IndexCollapse *c = &space->index_collapse;
        uint32_t capabilities = index_region(space->index)->backend->capabilities;

        if (c->is_running || space->is_removed || store->is_stopping || space->ns.huge == FOLIO_HUGE_NEVER ||
            !(capabilities & BACKEND_COLLAPSIBLE) || capabilities & BACKEND_HUGE_AT_ALLOCATION)
                return;
        if (!index_take_pieces(space->index, STORE_COLLAPSE_SLICE_BYTES, &c->offset_bytes, &c->n_bytes))
                return;
        c->n_rounds = 0;
        submit(store, space);
}

void store_cancel_index_collapse(Space *space)
{
        if (space->index_collapse.is_running)
                atomic_store_explicit(&space->index_collapse.job.is_cancelled, true, memory_order_relaxed);
}
