/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-crowd.h. */
#include "client/ctl/bench-crowd.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)256 << 10)

enum { ORDER_WAIT, ORDER_WORK, ORDER_END };

static void wait_while(atomic_uint *word, unsigned value)
{
        /* Woken for nothing, or interrupted: looked at again. */
        while (atomic_load(word) == value)
                (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake_all(atomic_uint *word)
{
        (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *run_thread(void *argument)
{
        BenchCrowd *crowd = argument;
        unsigned index = atomic_fetch_add(&crowd->n_named, 1);

        wake_all(&crowd->n_named);
        wait_while(&crowd->order, ORDER_WAIT);
        if (atomic_load(&crowd->order) != ORDER_WORK)
                return NULL;
        crowd->work(crowd->argument, index);
        if (atomic_fetch_sub(&crowd->n_left, 1) == 1)
                wake_all(&crowd->n_left);
        return NULL;
}

int bench_crowd_init(BenchCrowd *crowd, unsigned n_threads, void (*work)(void *argument, unsigned index),
                     void *argument)
{
        pthread_attr_t attributes;
        unsigned n_named;
        int r = 0;

        *crowd = (BenchCrowd){ .work = work, .argument = argument, .threads = calloc(n_threads, sizeof(pthread_t)) };
        if (!crowd->threads)
                return -ENOMEM;
        r = -pthread_attr_init(&attributes);
        if (r == 0) {
                (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
                for (; r == 0 && crowd->n_threads < n_threads; crowd->n_threads += r == 0)
                        r = -pthread_create(&crowd->threads[crowd->n_threads], &attributes, run_thread, crowd);
                (void)pthread_attr_destroy(&attributes);
        }
        if (r < 0) {
                bench_crowd_deinit(crowd);
                return r;
        }
        atomic_store(&crowd->n_left, n_threads);
        while ((n_named = atomic_load(&crowd->n_named)) < n_threads)
                wait_while(&crowd->n_named, n_named);
        return 0;
}

void bench_crowd_call(BenchCrowd *crowd)
{
        atomic_store(&crowd->order, ORDER_WORK);
        wake_all(&crowd->order);
}

void bench_crowd_wait(BenchCrowd *crowd)
{
        unsigned n_left;

        while ((n_left = atomic_load(&crowd->n_left)) > 0)
                wait_while(&crowd->n_left, n_left);
}

void bench_crowd_run(BenchCrowd *crowd)
{
        bench_crowd_call(crowd);
        bench_crowd_wait(crowd);
}

void bench_crowd_deinit(BenchCrowd *crowd)
{
        if (atomic_load(&crowd->order) == ORDER_WAIT) {
                atomic_store(&crowd->order, ORDER_END);
                wake_all(&crowd->order);
        }
        for (unsigned i = 0; i < crowd->n_threads; i++)
                (void)pthread_join(crowd->threads[i], NULL);
        free(crowd->threads);
        crowd->threads = NULL;
        crowd->n_threads = 0;
}
