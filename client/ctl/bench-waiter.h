/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that wait for something that this one is about to do, and say when they had it. One thing at a time: they
 * are told its number, and it is done when all of them are seen asleep, or polling; what they use of the CPU from there on is
 * counted. Clocks of processes of one machine are one clock. Knows nothing of what is waited for.
 */
#ifndef CTL_BENCH_WAITER_H
#define CTL_BENCH_WAITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_WAITERS_MAX 8

/* In a waiter: what it does. Each returns 0, or a negative errno. */
typedef struct BenchWaiting {
        int (*open)(void *argument, unsigned index); /* NULL: nothing to prepare */
        /* Waits, @kind as told to bench_waiters_expect(); *ret_ns: when it had it. */
        int (*wait)(void *argument, unsigned index, uint32_t kind, uint32_t number, uint64_t *ret_ns);
        void *argument;
        bool is_polling; /* it does not sleep while it waits: it is enough that it has begun to */
} BenchWaiting;

typedef struct BenchWaiterSlot BenchWaiterSlot;

typedef struct BenchWaiters {
        BenchWaiterSlot *slots; /* shared with them; NULL: none */
        unsigned n_waiters;
        bool is_polling;
        pid_t pids[BENCH_WAITERS_MAX];
        int stat_fds[BENCH_WAITERS_MAX]; /* what the kernel says of them */
        uint32_t turn; /* the last that was told */
} BenchWaiters;

/* When they had it, the first and the last of them, and what all used of the CPU. */
typedef struct BenchWaited {
        uint64_t first_ns, last_ns;
        uint64_t cpu_ns;
} BenchWaited;

/* Each returns 0, or a negative errno. bench_waiters_deinit() is legal after each, also after a failure. */
int bench_waiters_init(BenchWaiters *waiters, unsigned n_waiters, const BenchWaiting *waiting);
/* Tells them @kind and @number, and returns when they wait. */
int bench_waiters_expect(BenchWaiters *waiters, uint32_t kind, uint32_t number);
/* When all have had it, or the first of them that fails. */
int bench_waiters_collect(BenchWaiters *waiters, BenchWaited *ret);
void bench_waiters_deinit(BenchWaiters *waiters);

#endif
