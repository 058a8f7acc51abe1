/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that begin their work together. They are there, and asleep, before anything is measured; measured is from the
 * moment they are called until the last has done its part. Knows nothing of the work.
 */
#ifndef CTL_BENCH_CROWD_H
#define CTL_BENCH_CROWD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct BenchCrowd {
        pthread_t *threads;
        unsigned n_threads;
        void (*work)(void *argument, unsigned index); /* index: from 0, one of a thread's own */
        void *argument;
        atomic_uint n_named; /* threads that have taken their index */
        atomic_uint n_left; /* threads that have not done their part */
        atomic_uint order; /* waited at */
} BenchCrowd;

#define BENCH_CROWD_NULL                                                                                               \
        {                                                                                                              \
                0                                                                                                      \
        }

/* 0, or a negative errno: then there are none. */
int bench_crowd_init(BenchCrowd *crowd, unsigned n_threads, void (*work)(void *argument, unsigned index),
                     void *argument);
/* Once: calls them, and waits until all have done their part. */
void bench_crowd_run(BenchCrowd *crowd);
/* The two apart. */
void bench_crowd_call(BenchCrowd *crowd);
void bench_crowd_wait(BenchCrowd *crowd);
/* Whether they have run or not. */
void bench_crowd_deinit(BenchCrowd *crowd);

#endif
