/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long each of many small operations takes: counts in buckets a sixty-fourth wide, so that any number of them take
 * the same memory, and what is asked of them is within 2 %. What reading the clock takes is found out first and left
 * out. Knows nothing of the operations.
 */
#ifndef CTL_BENCH_LAPS_H
#define CTL_BENCH_LAPS_H

#include <stddef.h>
#include <stdint.h>

#include "client/ctl/bench-count.h"

#define BENCH_LAPS_BUCKETS 3776

typedef struct BenchLaps {
        uint64_t n_laps;
        uint64_t clock_ns; /* of a lap in which nothing is done */
        uint64_t begun_ns;
        uint32_t counts[BENCH_LAPS_BUCKETS];
} BenchLaps;

void bench_laps_init(BenchLaps *laps);
void bench_laps_add(BenchLaps *laps, uint64_t time_ns);

/* @share of them took no longer, from 0 to 1, in ns; 0 where there are none. */
double bench_laps_quantile(const BenchLaps *laps, double share);

/* Around one operation; with NULL they do nothing, so that one loop is both timed as a whole and counted one by one. */
static inline void bench_laps_begin(BenchLaps *laps)
{
        if (laps)
                laps->begun_ns = bench_now_ns();
}

static inline void bench_laps_end(BenchLaps *laps)
{
        uint64_t time_ns;

        if (!laps)
                return;
        time_ns = bench_now_ns() - laps->begun_ns;
        /* None took no time at all. */
        bench_laps_add(laps, time_ns > laps->clock_ns ? time_ns - laps->clock_ns : 1);
}

#endif
