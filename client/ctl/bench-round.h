/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: one case measured on both sides in alternation, so that what the machine does besides falls on both alike,
 * and what is made of it. A ratio is made of the two times of one round; the figure is the median of the rounds, and
 * the spread is the distance between the quartiles of the ratios, as a share of their median.
 */
#ifndef CTL_BENCH_ROUND_H
#define CTL_BENCH_ROUND_H

#include "client/ctl/bench-case.h"

typedef struct BenchSide {
        double time_ns; /* median */
        uint64_t n_faults; /* median */
        uint64_t n_tlb_misses; /* median; BENCH_UNKNOWN */
        uint64_t n_calls; /* BENCH_UNKNOWN */
        double waiters_cpu_ns; /* median; 0: nobody waits */
        double p50_ns, p99_ns; /* of one operation, over all rounds; negative: not counted */
} BenchSide;

typedef struct BenchResult {
        BenchSide ours, theirs;
        double ratio; /* above 1: Folio is faster */
        double spread;
        double fraction; /* of what the copy loop reaches; negative: none */
        const char *copy; /* the loop that was the better one; NULL */
        uint64_t n_round_trips; /* in one measurement, as the daemon counts requests; BENCH_UNKNOWN */
        uint64_t n_records; /* and what came through shared memory; BENCH_UNKNOWN */
} BenchResult;

#define BENCH_ROUNDS_MAX 1000

/*
 * @step is called before every round, with the number of those that are done. CTL_OK; BENCH_LEFT_OUT; CTL_REFUSED also
 * where a signal wants the end; else told.
 */
int bench_round_run(BenchRun *run, void (*step)(void *userdata, unsigned n_done), void *userdata, BenchResult *ret);

#endif
