/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory on tmpfs for files with names: of the mount of BenchPlain where there is one, else one of this program's
 * own in /dev/shm, which is removed again. Knows nothing of what is in it.
 */
#ifndef CTL_BENCH_FOLDER_H
#define CTL_BENCH_FOLDER_H

#include "client/ctl/bench-plain.h"

typedef struct BenchFolder {
        int fd; /* -1: none */
        char path[40]; /* of our own; "" */
} BenchFolder;

#define BENCH_FOLDER_NULL                                                                                              \
        {                                                                                                              \
                .fd = -1                                                                                               \
        }

/* 0, or a negative errno; for pages that bench_plain_has(). */
int bench_folder_init(BenchFolder *folder, const BenchPlain *plain, BenchPages pages);
/* What was made in it is gone already. */
void bench_folder_deinit(BenchFolder *folder);

/* A new file, written and closed: three system calls. 0, or a negative errno. */
int bench_folder_put(const BenchFolder *folder, const char *name, const void *data, uint64_t n_bytes);
/* 0, or a negative errno. */
int bench_folder_remove(const BenchFolder *folder, const char *name);

#endif
