/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordinary memory to measure with: anonymous, of 2 MiB pages where the kernel has them, faulted in; and the loops that
 * copy between such areas, the measure of what can be had at all. Knows neither store nor files.
 */
#ifndef CTL_BENCH_MEMORY_H
#define CTL_BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_PAGE_BYTES ((size_t)4096)
#define BENCH_HUGE_BYTES ((size_t)2 << 20)

typedef struct BenchArea {
        unsigned char *address; /* aligned to 2 MiB; NULL: none */
        size_t n_bytes;
} BenchArea;

#define BENCH_AREA_NULL                                                                                                \
        {                                                                                                              \
                0                                                                                                      \
        }

/* All of it is written once. 0, or a negative errno. */
int bench_area_init(BenchArea *area, size_t n_bytes);
void bench_area_deinit(BenchArea *area);

/* Bytes that are no zeros and nowhere repeat within a page; the same for the same @seed. */
void bench_fill(void *buffer, size_t n_bytes, uint64_t seed);

/*
 * The sum of one field of smaps (as "AnonHugePages:") over the mappings that touch [@address, @address + @n_bytes), at
 * most @n_bytes; 0 where there is no such file.
 */
uint64_t bench_smaps_bytes(const void *address, size_t n_bytes, const char *field);

/* A loop that copies with one thread; a table of those this processor has ends with a name of NULL. */
typedef struct BenchCopy {
        const char *name;
        void (*run)(void *to, const void *from, size_t n_bytes);
} BenchCopy;

extern const BenchCopy bench_copies[];

/* What this process could still allocate: of the machine, and of its cgroup. UINT64_MAX where neither is told. */
uint64_t bench_memory_available(void);

#endif
