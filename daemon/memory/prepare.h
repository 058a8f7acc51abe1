/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has a new region made whole, as region_prepare() does, by several workers at once: each takes the next part that
 * nobody has, and then goes to the end of the queue, so that a large region takes all workers that have nothing else to
 * do, and nobody waits for longer than for one part of it. One worker is left out where there are two or more.
 *
 * The first part that fails ends it; what the others have made by then stays behind. Knows nothing of who waits for it.
 */
#ifndef DAEMON_MEMORY_PREPARE_H
#define DAEMON_MEMORY_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/region.h"
#include "daemon/service/worker.h"

typedef struct Prepare Prepare;

typedef struct PrepareConfig {
        WorkerPool *workers;
        Region *region;              /* borrowed, until done() */
        uint64_t n_bytes;            /* 1 or more; as of region_prepare(), as are the next two */
        bool want_huge;
        uint64_t piece_ns_max;
        /* On the loop, once, and never before prepare_begin() has returned; the Prepare is gone then. */
        void (*done)(void *userdata, int result, uint64_t n_huge, uint64_t n_failed);
        void *userdata;
} PrepareConfig;

/* 0, or a negative errno, and then done() is never called. */
int prepare_begin(const PrepareConfig *config, Prepare **ret);

/* Nobody wants it any more: it ends after the parts under way, with -ECANCELED if it was not over. */
void prepare_cancel(Prepare *prepare);

#endif
