/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many objects, and as many files, that are called the same but for a number; their names are made before anything is
 * measured. What is measured is one thing done to each of them, one after the other, or to all in one call. Removing is
 * of all of them, whether they are there or not.
 */
#ifndef CTL_BENCH_MANY_H
#define CTL_BENCH_MANY_H

#include "client/ctl/bench-case.h"
#include "client/ctl/bench-folder.h"

/* Of names that are made here; those of objects hold that of the namespace. */
#define BENCH_MANY_NAME_BYTES 80
#define BENCH_MANY_FILE_BYTES 32

typedef struct BenchMany {
        size_t n;
        char (*names)[BENCH_MANY_NAME_BYTES];
        char (*files)[BENCH_MANY_FILE_BYTES];
} BenchMany;

/* @word: short. 0, or -ENOMEM. */
int bench_many_init(BenchMany *many, const BenchStore *store, BenchSpace space, const char *word, size_t n);
/* The same in another namespace. */
void bench_many_name(BenchMany *many, const BenchStore *store, BenchSpace space);
void bench_many_deinit(BenchMany *many);

/*
 * @one to each of them, each of them a lap; the first that fails ends it. What the client did not wait for is waited for
 * in the end, in no lap. All return 0 or an error, of the library here, of the system there.
 */
typedef int BenchOne(BenchRun *run, size_t index);
int bench_many_ours(BenchRun *run, size_t n, BenchOne *one);
/* @n_calls: what @one asks of the system. */
int bench_many_theirs(BenchRun *run, size_t n, BenchOne *one, unsigned n_calls);

/* All objects, or files, of the same bytes, outside of what is measured: CTL_OK, or told; CTL_REFUSED also where a signal wants the end. */
int bench_many_put(BenchRun *run, const BenchMany *many, const void *data, uint64_t n_bytes);
int bench_many_write(BenchRun *run, const BenchMany *many, const BenchFolder *folder, const void *data,
                     uint64_t n_bytes);

/* Waits until the memory is free again. */
void bench_many_delete(Bench *bench, const BenchMany *many);
void bench_many_unlink(const BenchMany *many, const BenchFolder *folder);

#endif
