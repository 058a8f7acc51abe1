/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See worker.h. A job is in exactly one of four places: a queue, the list of running ones, the list of finished ones,
 * or with the loop, which has then forgotten it. The lists are under the mutex; n_pending is the loop's alone. A
 * finished job reaches the loop through an eventfd, written when the list of finished ones stops being empty.
 *
 * All threads are alike: which may take an idle job is decided by how many already do, so one thread is always free
 * to take an urgent job, without a thread that never does anything else.
 */
#include "daemon/service/worker.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#define WORKER_STACK_BYTES (256 * KIB)

/* Completions given to their owners before the loop gets its turn again. */
#define WORKER_DONE_PER_TURN 64
#define WORKER_DONE_NS UINT64_C(250000)

struct WorkerPool {
        struct event *event;
        int event_fd;
        unsigned n_pending;

        pthread_mutex_t mutex;
        pthread_cond_t wake;         /* something in a queue, or stopping */
        List queues[_WORKER_QUEUE_MAX];
        List running;
        List finished;
        unsigned n_idle_running;
        bool is_stopping;

        unsigned n_threads;
        pthread_t threads[];
};

static bool may_take_idle(const WorkerPool *pool)
{
        return pool->n_threads == 1 || pool->n_idle_running < pool->n_threads - 1;
}

/* Under the mutex. NULL: nothing for this thread now. */
static WorkerJob *take_job(WorkerPool *pool, WorkerQueue *ret_queue)
{
        List *node = list_take_front(&pool->queues[WORKER_URGENT]);

        *ret_queue = WORKER_URGENT;
        if (!node && may_take_idle(pool)) {
                node = list_take_front(&pool->queues[WORKER_IDLE]);
                *ret_queue = WORKER_IDLE;
        }
        return node ? LIST_ENTRY(node, WorkerJob, link) : NULL;
}

static void notify_loop(WorkerPool *pool)
{
        uint64_t one = 1;
        ssize_t n;

        /* It can only fail where the counter is full, and then the loop has been told often enough. */
        do {
                n = write(pool->event_fd, &one, sizeof(one));
        } while (n < 0 && errno == EINTR);
}

/* Under the mutex. A job of which a piece is left waits behind the others; this thread at least will look there. */
static void put_back(WorkerPool *pool, WorkerQueue queue, WorkerJob *job)
{
        if (job->is_unfinished) {
                job->is_unfinished = false;
                list_push_back(&pool->queues[queue], &job->link);
                return;
        }
        if (list_is_empty(&pool->finished))
                notify_loop(pool);
        list_push_back(&pool->finished, &job->link);
}

static void *run_thread(void *userdata)
{
        WorkerPool *pool = userdata;
        WorkerQueue queue;
        WorkerJob *job;

        pthread_mutex_lock(&pool->mutex);
        while (!pool->is_stopping) {
                job = take_job(pool, &queue);
                if (!job) {
                        pthread_cond_wait(&pool->wake, &pool->mutex);
                        continue;
                }
                list_push_back(&pool->running, &job->link);
                pool->n_idle_running += queue == WORKER_IDLE;
                pthread_mutex_unlock(&pool->mutex);

                job->run(job);

                pthread_mutex_lock(&pool->mutex);
                pool->n_idle_running -= queue == WORKER_IDLE;
                list_unlink(&job->link);
                put_back(pool, queue, job);
        }
        pthread_mutex_unlock(&pool->mutex);
        return NULL;
}

static WorkerJob *take_finished(WorkerPool *pool)
{
        List *node;

        pthread_mutex_lock(&pool->mutex);
        node = list_take_front(&pool->finished);
        pthread_mutex_unlock(&pool->mutex);
        return node ? LIST_ENTRY(node, WorkerJob, link) : NULL;
}

static uint64_t monotonic_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for a clock there is */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void finish_job(WorkerPool *pool, WorkerJob *job)
{
        assert(pool->n_pending > 0);
        pool->n_pending--;
        job->done(job); /* may free it, and may submit more */
}

/* One by one, so that a done() that itself drains the pool finds the others where it looks for them. */
static void dispatch_finished(evutil_socket_t fd, short what, void *userdata)
{
        WorkerPool *pool = userdata;
        uint64_t until_ns = monotonic_ns() + WORKER_DONE_NS, ignored;
        WorkerJob *job;

        (void)!read(pool->event_fd, &ignored, sizeof(ignored)); /* empty: somebody was here before */
        /* By time as well: a done() that submits the next piece of something long can find it finished at once. */
        for (unsigned i = 0; i < WORKER_DONE_PER_TURN && monotonic_ns() < until_ns; i++) {
                job = take_finished(pool);
                if (!job)
                        return;
                finish_job(pool, job);
        }
        notify_loop(pool); /* perhaps for nothing */
}

static void stop_threads(WorkerPool *pool)
{
        pthread_mutex_lock(&pool->mutex);
        pool->is_stopping = true;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
        for (unsigned i = 0; i < pool->n_threads; i++)
                pthread_join(pool->threads[i], NULL);
        pool->n_threads = 0;
}

static void deinit_and_free(WorkerPool *pool)
{
        if (pool->event)
                event_free(pool->event);
        (void)close_fd(pool->event_fd);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
        free(pool);
}

static int start_threads(WorkerPool *pool, unsigned n_threads)
{
        sigset_t blocked, before;
        pthread_attr_t attributes;
        int r;

        r = pthread_attr_init(&attributes);
        if (r != 0)
                return -r;
        r = pthread_attr_setstacksize(&attributes, MAX(WORKER_STACK_BYTES, (size_t)PTHREAD_STACK_MIN));

        /* Threads inherit the mask: signals are for the loop, but for those that report a thread's own fault. */
        sigfillset(&blocked);
        sigdelset(&blocked, SIGSEGV);
        sigdelset(&blocked, SIGBUS);
        sigdelset(&blocked, SIGFPE);
        sigdelset(&blocked, SIGILL);
        sigdelset(&blocked, SIGTRAP);
        pthread_sigmask(SIG_SETMASK, &blocked, &before);
        for (unsigned i = 0; r == 0 && i < n_threads; i++) {
                pthread_t thread;

                r = pthread_create(&thread, &attributes, run_thread, pool);
                if (r != 0)
                        break;
                (void)pthread_setname_np(thread, "foliod-worker"); /* for people who look at top */
                pthread_mutex_lock(&pool->mutex); /* the threads that run already read it */
                pool->threads[pool->n_threads++] = thread;
                pthread_mutex_unlock(&pool->mutex);
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        return -r;
}

int worker_pool_new(struct event_base *base, unsigned n_threads, WorkerPool **ret)
{
        WorkerPool *pool;
        int r;

        if (n_threads == 0 || n_threads > UINT16_MAX)
                return -EINVAL;
        pool = calloc(1, sizeof(*pool) + n_threads * sizeof(pool->threads[0]));
        if (!pool)
                return -ENOMEM;
        pthread_mutex_init(&pool->mutex, NULL); /* neither can fail on Linux with default attributes */
        pthread_cond_init(&pool->wake, NULL);
        for (int i = 0; i < _WORKER_QUEUE_MAX; i++)
                list_init(&pool->queues[i]);
        list_init(&pool->running);
        list_init(&pool->finished);

        pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = pool->event_fd < 0 ? -errno : 0;
        if (r == 0) {
                pool->event = event_new(base, pool->event_fd, EV_READ | EV_PERSIST, dispatch_finished, pool);
                if (!pool->event || event_add(pool->event, NULL) < 0)
                        r = -ENOMEM;
        }
        if (r == 0)
                r = start_threads(pool, n_threads);
        if (r < 0) {
                stop_threads(pool);
                deinit_and_free(pool);
                return r;
        }
        *ret = pool;
        return 0;
}

void worker_pool_free(WorkerPool *pool)
{
        WorkerJob *job;

        if (!pool)
                return;
        stop_threads(pool);
        assert(list_is_empty(&pool->running));

        /* Without threads nothing is shared. A done() that submits more only makes the queues longer once. */
        while ((job = take_finished(pool)))
                finish_job(pool, job);
        for (int i = 0; i < _WORKER_QUEUE_MAX;) {
                List *node = list_take_front(&pool->queues[i]);

                if (!node) {
                        i++;
                        continue;
                }
                job = LIST_ENTRY(node, WorkerJob, link);
                atomic_store_explicit(&job->is_cancelled, true, memory_order_relaxed);
                finish_job(pool, job);
                i = 0;
        }
        assert(pool->n_pending == 0);
        deinit_and_free(pool);
}

void worker_pool_submit(WorkerPool *pool, WorkerQueue queue, WorkerJob *job)
{
        assert(job->run && job->done);
        assert(queue >= 0 && queue < _WORKER_QUEUE_MAX);

        pool->n_pending++;
        atomic_store_explicit(&job->is_cancelled, false, memory_order_relaxed);
        job->is_unfinished = false;
        pthread_mutex_lock(&pool->mutex);
        list_push_back(&pool->queues[queue], &job->link);
        pthread_cond_signal(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
}

unsigned worker_pool_n_threads(const WorkerPool *pool)
{
        return pool->n_threads;
}

unsigned worker_pool_n_pending(const WorkerPool *pool)
{
        return pool->n_pending;
}

void worker_pool_drain(WorkerPool *pool)
{
        struct pollfd wait = { .fd = pool->event_fd, .events = POLLIN };
        uint64_t ignored;
        WorkerJob *job;

        while (pool->n_pending > 0) {
                job = take_finished(pool);
                if (job) {
                        finish_job(pool, job);
                        continue;
                }
                /* None is finished, so the next one that is will say so; what the counter has been told is stale. */
                (void)poll(&wait, 1, -1);
                (void)!read(pool->event_fd, &ignored, sizeof(ignored));
        }
}
