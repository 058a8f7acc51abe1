/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a piece of work costs: time, page faults, TLB misses where the processor counts them, and, in a run of its own
 * that is not timed, its system calls. Those are seen as a debugger sees them, by a child that traces the calling
 * thread; where that is not allowed, or there are too many, they are unknown. Knows nothing of the work.
 */
#ifndef CTL_BENCH_COUNT_H
#define CTL_BENCH_COUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_UNKNOWN UINT64_MAX

/* One measurement. */
typedef struct BenchSample {
        uint64_t time_ns;
        uint64_t n_faults;
        uint64_t n_tlb_misses; /* of loads; BENCH_UNKNOWN */
        uint64_t n_calls; /* of the system; only where is_taken */
        uint64_t waiters_cpu_ns; /* of processes that wait for the work; 0: there are none */
        bool is_taken; /* who did the work has filled this in itself */
} BenchSample;

uint64_t bench_now_ns(void);

typedef struct BenchCounter {
        int misses_fd; /* -1: not counted here */
} BenchCounter;

void bench_counter_init(BenchCounter *counter);
void bench_counter_deinit(BenchCounter *counter);
/* The same sample for both, and nothing written to it in between. */
void bench_counter_begin(BenchCounter *counter, BenchSample *sample);
void bench_counter_end(BenchCounter *counter, BenchSample *sample);

typedef struct BenchTracer {
        pid_t pid;
        int fd;
} BenchTracer;

/* Ended by bench_tracer_end(), also where it cannot be had here. */
void bench_tracer_begin(BenchTracer *tracer);
/* System calls of the calling thread, which is the main one, since then; BENCH_UNKNOWN, also where begin said no. */
uint64_t bench_tracer_end(BenchTracer *tracer);

#endif
