/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of the suite `read` share: one object and one plain file of the same kind, and memory to read into. */
#ifndef CTL_BENCH_READ_H
#define CTL_BENCH_READ_H

#include "client/ctl/bench-case.h"

/* The plain way of reading a whole file once. */
typedef enum BenchWay {
        BENCH_WAY_PREAD,
        BENCH_WAY_MMAP,
        BENCH_WAY_POPULATE,
        _BENCH_WAY_MAX,
} BenchWay;

#define BENCH_RANDOM_READS 10000u

typedef struct BenchRead {
        BenchArea source; /* what the written ones hold, in ordinary memory */
        BenchArea buffer;
        bool is_made; /* what follows is there, and is: */
        BenchPages pages, theirs_pages;
        BenchContent content;
        struct folio_object *object;
        int fd;
        /* random reads */
        BenchArea target; /* one after the other */
        uint64_t *offsets;
        struct folio_read_item *items;
        uint64_t seed;
        /* first reads */
        BenchWay way;
} BenchRead;

/* The object and the file are there and are what the case wants; the run is filled. CTL_OK, BENCH_LEFT_OUT, or told. */
int bench_read_make(BenchRun *run, BenchContent content);
/* What bench_read_make() has made last; the suite's close does it as well. */
void bench_read_drop(Bench *bench);

/* The whole once, by a new process. */
int bench_first_setup(BenchRun *run);
int bench_first_ours(BenchRun *run);
int bench_first_theirs(BenchRun *run);
int bench_first_copy(BenchRun *run, const BenchCopy *copy);

/* Pieces of 4 KiB from all over. */
int bench_random_setup(BenchRun *run);
int bench_random_prepare(BenchRun *run);
int bench_random_single(BenchRun *run);
int bench_random_many(BenchRun *run);
int bench_random_theirs(BenchRun *run);
int bench_random_copy(BenchRun *run, const BenchCopy *copy);
int bench_random_teardown(BenchRun *run);

#endif
