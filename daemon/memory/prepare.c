/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts are handed out by a counter, which is all that the jobs share but the first error and the sums. Whether a
 * part was done is not recorded: every part that was taken has been tried when all jobs are over.
 */
#include "daemon/memory/prepare.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/macro.h"

typedef struct PrepareJob {
        WorkerJob job;
        Prepare *prepare;
} PrepareJob;

struct Prepare {
        PrepareConfig config;
        _Atomic uint64_t next_offset;
        atomic_int error;            /* the first one; 0: none */
        atomic_bool is_dear;
        atomic_bool is_cancelled;
        _Atomic uint64_t n_huge, n_failed;
        unsigned n_jobs_left;        /* of the loop */
        PrepareJob jobs[];
};

static void run_part(WorkerJob *job)
{
        Prepare *prepare = CONTAINER_OF(job, PrepareJob, job)->prepare;
        const PrepareConfig *config = &prepare->config;
        uint64_t offset = atomic_fetch_add(&prepare->next_offset, REGION_PART_BYTES), n_huge, n_failed;
        int none = 0, r;

        if (offset >= config->n_bytes || atomic_load(&prepare->error) != 0)
                return;
        r = region_prepare_part(config->region, offset, MIN(config->n_bytes - offset, REGION_PART_BYTES),
                                config->want_huge, config->piece_ns_max, &prepare->is_dear, &prepare->is_cancelled,
                                &n_huge, &n_failed);
        atomic_fetch_add(&prepare->n_huge, n_huge);
        atomic_fetch_add(&prepare->n_failed, n_failed);
        if (r < 0)
                (void)atomic_compare_exchange_strong(&prepare->error, &none, r); /* another may have been first */
        job->is_unfinished = atomic_load(&prepare->error) == 0 && atomic_load(&prepare->next_offset) < config->n_bytes;
}

static void part_done(WorkerJob *job)
{
        Prepare *prepare = CONTAINER_OF(job, PrepareJob, job)->prepare;
        PrepareConfig config = prepare->config;
        uint64_t n_huge, n_failed;
        int result;

        assert(prepare->n_jobs_left > 0);
        if (--prepare->n_jobs_left > 0)
                return;
        result = atomic_load(&prepare->error);
        if (result == 0 && atomic_load(&prepare->next_offset) < config.n_bytes)
                result = -ECANCELED; /* the workers have ended */
        n_huge = atomic_load(&prepare->n_huge);
        n_failed = atomic_load(&prepare->n_failed);
        free(prepare);
        config.done(config.userdata, result, n_huge, n_failed);
}

int prepare_begin(const PrepareConfig *config, Prepare **ret)
{
        uint64_t n_parts = (config->n_bytes + REGION_PART_BYTES - 1) / REGION_PART_BYTES;
        unsigned n_threads = worker_pool_n_threads(config->workers);
        unsigned n_jobs = (unsigned)MIN(n_parts, (uint64_t)MAX(n_threads, 2u) - 1);
        Prepare *prepare;

        assert(config->n_bytes > 0);
        prepare = calloc(1, sizeof(*prepare) + n_jobs * sizeof(prepare->jobs[0]));
        if (!prepare)
                return -ENOMEM;
        prepare->config = *config;
        prepare->n_jobs_left = n_jobs;
        for (unsigned i = 0; i < n_jobs; i++) {
                prepare->jobs[i].prepare = prepare;
                prepare->jobs[i].job.run = run_part;
                prepare->jobs[i].job.done = part_done;
                worker_pool_submit(config->workers, WORKER_URGENT, &prepare->jobs[i].job);
        }
        *ret = prepare;
        return 0;
}

void prepare_cancel(Prepare *prepare)
{
        atomic_store(&prepare->is_cancelled, true);
}
