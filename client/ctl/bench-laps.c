/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-laps.h. */
#include "client/ctl/bench-laps.h"

/* Up to here each number has a bucket of its own; from then on each power of two has FINE of them. */
#define EXACT 128u
#define FINE_BITS 6u
#define FINE (1u << FINE_BITS)
#define CLOCK_TRIES 1000u

static size_t bucket_of(uint64_t time_ns)
{
        unsigned shift;

        if (time_ns < EXACT)
                return (size_t)time_ns;
        shift = 63u - (unsigned)__builtin_clzll(time_ns) - FINE_BITS;
        return (size_t)shift * FINE + (size_t)(time_ns >> shift);
}

/* The middle of a bucket. */
static double middle_of(size_t bucket)
{
        unsigned shift;

        if (bucket < EXACT)
                return (double)bucket;
        shift = (unsigned)(bucket / FINE) - 1;
        return ((double)(bucket % FINE + FINE) + 0.5) * (double)(UINT64_C(1) << shift);
}

void bench_laps_init(BenchLaps *laps)
{
        uint64_t best_ns = UINT64_MAX;

        *laps = (BenchLaps){ 0 };
        for (unsigned i = 0; i < CLOCK_TRIES; i++) {
                uint64_t begun_ns = bench_now_ns(), time_ns = bench_now_ns() - begun_ns;

                if (time_ns < best_ns)
                        best_ns = time_ns;
        }
        laps->clock_ns = best_ns;
}

void bench_laps_add(BenchLaps *laps, uint64_t time_ns)
{
        uint32_t *count = &laps->counts[bucket_of(time_ns)];

        /* A full bucket stays full: of a share four thousand million say enough. */
        if (*count == UINT32_MAX)
                return;
        (*count)++;
        laps->n_laps++;
}

double bench_laps_quantile(const BenchLaps *laps, double share)
{
        uint64_t n_wanted = (uint64_t)(share * (double)laps->n_laps + 0.5), n = 0;

        if (laps->n_laps == 0)
                return 0;
        if (n_wanted < 1)
                n_wanted = 1;
        for (size_t i = 0; i < BENCH_LAPS_BUCKETS; i++) {
                n += laps->counts[i];
                if (n >= n_wanted)
                        return middle_of(i);
        }
        return middle_of(BENCH_LAPS_BUCKETS - 1);
}
