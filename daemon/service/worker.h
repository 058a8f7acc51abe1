/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only threads of foliod: a bounded pool for everything that may take over a millisecond. A job is embedded in
 * what it works for. run() is called in a worker thread and touches nothing but what the job owns for that time
 * (a region, a descriptor, numbers); done() is called on the loop afterwards, in the order of finishing.
 *
 * A long job does its work in pieces: run() does one, sets `is_unfinished`, and the pool puts it at the end of its queue,
 * so that those who came meanwhile have their turn before the next piece.
 *
 * Two queues: WORKER_URGENT, somebody waits for it; WORKER_IDLE, nobody does. One thread is always left for urgent
 * jobs where there are two or more; where there is one, urgent jobs go first.
 */
#ifndef DAEMON_SERVICE_WORKER_H
#define DAEMON_SERVICE_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"

struct event_base;

typedef struct WorkerPool WorkerPool;
typedef struct WorkerJob WorkerJob;

typedef enum WorkerQueue {
        WORKER_URGENT,
        WORKER_IDLE,
        _WORKER_QUEUE_MAX
} WorkerQueue;

struct WorkerJob {
        List link;                   /* the pool's, from submit until done() */
        void (*run)(WorkerJob *job); /* in a worker thread */
        void (*done)(WorkerJob *job); /* on the loop; may free the job */
        atomic_bool is_cancelled;    /* set on the loop; a long run() looks at it between slices */
        bool is_unfinished;          /* set by run(): run it again, later */
};

int worker_pool_new(struct event_base *base, unsigned n_threads, WorkerPool **ret);

/*
 * Waits for the running jobs, cancels the queued ones (their done() is called with is_cancelled set, run() not, or not to
 * the last piece).
 */
void worker_pool_free(WorkerPool *pool);

/* On the loop. @job has run and done set; the pool sets the rest. Cannot fail. */
void worker_pool_submit(WorkerPool *pool, WorkerQueue queue, WorkerJob *job);

unsigned worker_pool_n_threads(const WorkerPool *pool);

/* Jobs submitted whose done() has not been called. */
unsigned worker_pool_n_pending(const WorkerPool *pool);

/*
 * For tests and for stopping: hands out completions until nothing is pending. Other events of the loop wait, so this
 * may also be called from one.
 */
void worker_pool_drain(WorkerPool *pool);

#endif
