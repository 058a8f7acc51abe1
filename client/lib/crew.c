/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One work at a time. Its record lies on its caller's stack: helpers find it under the lock and count themselves in;
 * the caller takes it away first and then waits until all are out, so that none sees it afterwards. Pieces are taken
 * by an atomic counter: who is fast, or begins early, takes more.
 */
#include "client/lib/crew.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/macro.h"
#include "client/lib/forked.h"

/* A piece calls little; signal frames with all the processor's registers want some too. */
#define CREW_STACK_BYTES ((size_t)256 << 10)

typedef struct Work {
        CrewPieceFn run;
        void *userdata;
        size_t n_pieces;
        atomic_size_t next;
        atomic_int error;
} Work;

struct Crew {
        uint32_t forked_mark;
        uint32_t n_wanted;

        pthread_mutex_t lock; /* of all below */
        pthread_cond_t has_work;
        pthread_cond_t is_done;
        Work *work;          /* NULL: none, or none to join any more */
        uint64_t n_works;    /* so that a helper joins each but once */
        uint32_t n_inside;   /* helpers that have @work */
        uint32_t n_threads;
        bool has_caller;
        bool is_ending;
        pthread_t threads[CREW_THREADS_MAX];
};

static void take_pieces(Work *work)
{
        while (atomic_load_explicit(&work->error, memory_order_relaxed) == 0) {
                size_t piece = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
                int r;

                if (piece >= work->n_pieces)
                        return;
                r = work->run(work->userdata, piece);
                if (r < 0)
                        atomic_store_explicit(&work->error, r, memory_order_relaxed);
        }
}

static void *crew_thread(void *userdata)
{
        Crew *crew = userdata;
        uint64_t n_seen = 0;

        (void)pthread_mutex_lock(&crew->lock);
        while (!crew->is_ending) {
                Work *work = crew->work;

                if (!work || crew->n_works == n_seen) {
                        (void)pthread_cond_wait(&crew->has_work, &crew->lock);
                        continue;
                }
                n_seen = crew->n_works;
                crew->n_inside++;
                (void)pthread_mutex_unlock(&crew->lock);
                take_pieces(work);
                (void)pthread_mutex_lock(&crew->lock);
                if (--crew->n_inside == 0)
                        (void)pthread_cond_signal(&crew->is_done);
        }
        (void)pthread_mutex_unlock(&crew->lock);
        return NULL;
}

/* Under the lock. As many as can be had; what is missing is tried again with the next work. */
static void start_threads(Crew *crew)
{
        pthread_attr_t attributes;
        sigset_t blocked, before;

        if (pthread_attr_init(&attributes) != 0)
                return;
        (void)pthread_attr_setstacksize(&attributes, CREW_STACK_BYTES);
        /* The program's signals are for its own threads; what the kernel raises for a load must find its handler. */
        (void)sigfillset(&blocked);
        (void)sigdelset(&blocked, SIGBUS);
        (void)sigdelset(&blocked, SIGSEGV);
        (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
        while (crew->n_threads < crew->n_wanted &&
               pthread_create(&crew->threads[crew->n_threads], &attributes, crew_thread, crew) == 0) {
                (void)pthread_setname_np(crew->threads[crew->n_threads], "folio-copy");
                crew->n_threads++;
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)pthread_attr_destroy(&attributes);
}

int crew_new(uint32_t n_threads, Crew **ret)
{
        Crew *crew = calloc(1, sizeof(*crew));
        int r;

        if (!crew)
                return -ENOMEM;
        r = forked_take_mark(&crew->forked_mark);
        if (r < 0) {
                free(crew);
                return r;
        }
        crew->n_wanted = CLAMP(n_threads, 1u, CREW_THREADS_MAX);
        /* Neither fails with default attributes. */
        (void)pthread_mutex_init(&crew->lock, NULL);
        (void)pthread_cond_init(&crew->has_work, NULL);
        (void)pthread_cond_init(&crew->is_done, NULL);
        *ret = crew;
        return 0;
}

Crew *crew_free(Crew *crew)
{
        if (!crew)
                return NULL;
        if (forked_is_mine(crew->forked_mark)) {
                (void)pthread_mutex_lock(&crew->lock);
                crew->is_ending = true;
                (void)pthread_cond_broadcast(&crew->has_work);
                (void)pthread_mutex_unlock(&crew->lock);
                for (uint32_t i = 0; i < crew->n_threads; i++)
                        (void)pthread_join(crew->threads[i], NULL);
                (void)pthread_cond_destroy(&crew->is_done);
                (void)pthread_cond_destroy(&crew->has_work);
                (void)pthread_mutex_destroy(&crew->lock);
        }
        /* In a child the three are as the fork found them, perhaps held by threads that are not here. */
        free(crew);
        return NULL;
}

/* Lets the helpers at @work. False: they are another caller's. */
static bool offer(Crew *crew, Work *work)
{
        bool is_free;

        (void)pthread_mutex_lock(&crew->lock);
        is_free = !crew->has_caller;
        if (is_free) {
                crew->has_caller = true;
                if (crew->n_threads < crew->n_wanted)
                        start_threads(crew);
                crew->work = work;
                crew->n_works++;
                (void)pthread_cond_broadcast(&crew->has_work);
        }
        (void)pthread_mutex_unlock(&crew->lock);
        return is_free;
}

static void take_back(Crew *crew)
{
        (void)pthread_mutex_lock(&crew->lock);
        crew->work = NULL;
        while (crew->n_inside > 0)
                (void)pthread_cond_wait(&crew->is_done, &crew->lock);
        crew->has_caller = false;
        (void)pthread_mutex_unlock(&crew->lock);
}

int crew_run(Crew *crew, CrewPieceFn run, void *userdata, size_t n_pieces)
{
        Work work = { .run = run, .userdata = userdata, .n_pieces = n_pieces };
        bool is_shared = n_pieces > 1 && forked_is_mine(crew->forked_mark) && offer(crew, &work);

        take_pieces(&work);
        if (is_shared)
                take_back(crew);
        return atomic_load(&work.error);
}

uint32_t crew_count_threads(Crew *crew)
{
        uint32_t n;

        if (!forked_is_mine(crew->forked_mark))
                return 0;
        (void)pthread_mutex_lock(&crew->lock);
        n = crew->n_threads;
        (void)pthread_mutex_unlock(&crew->lock);
        return n;
}
