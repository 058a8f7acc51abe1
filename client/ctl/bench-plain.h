/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain way: files on tmpfs of this program's own, with 4 KiB pages and with 2 MiB pages, mounted nowhere and gone
 * with it. Mounting takes CAP_SYS_ADMIN; who lacks it has it in a user namespace, where those are allowed, and a child
 * goes there and hands the mounts back. Where neither is to be had a memfd does for 4 KiB pages.
 *
 * Which pages a file has is looked at, not believed. Knows nothing of the store.
 */
#ifndef CTL_BENCH_PLAIN_H
#define CTL_BENCH_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum BenchPages { BENCH_PAGES_4K, BENCH_PAGES_2M, _BENCH_PAGES_MAX } BenchPages;

typedef enum BenchContent {
        BENCH_CONTENT_WRITTEN,
        BENCH_CONTENT_RESERVED, /* memory is there; nothing was ever written */
        BENCH_CONTENT_HOLE, /* no memory either */
} BenchContent;

typedef struct BenchPlain {
        int mount_fds[_BENCH_PAGES_MAX]; /* -1: none of that kind */
        char sentence[192]; /* what is missing and why; "" for nothing */
        unsigned n_files; /* named so far */
} BenchPlain;

/* A file that has a path to be opened by. */
typedef struct BenchFile {
        int fd;
        int directory_fd;
        char path[40];
        bool is_named; /* in the directory; else the path leads to fd */
} BenchFile;

void bench_plain_init(BenchPlain *plain);
void bench_plain_deinit(BenchPlain *plain);

bool bench_plain_has(const BenchPlain *plain, BenchPages pages);

/* What it is: "tmpfs file, 2 MiB pages". */
const char *bench_plain_label(const BenchPlain *plain, BenchPages pages);

/* An empty file without a name; a descriptor, or a negative errno. One system call, as any program would make it. */
int bench_plain_create(const BenchPlain *plain, BenchPages pages);

/* The same with bytes in it; @data is of @n_bytes, for BENCH_CONTENT_WRITTEN. */
int bench_plain_make(const BenchPlain *plain, BenchPages pages, BenchContent content, const void *data,
                     uint64_t n_bytes, int *ret_fd);

/* The same with a path. 0, or a negative errno. */
int bench_file_init(BenchFile *file, BenchPlain *plain, BenchPages pages, const void *data, uint64_t n_bytes);
void bench_file_deinit(BenchFile *file);

/* All of it at @offset_bytes; 0, or a negative errno. @block_bytes: in one call, at most; 0: as much as goes. */
int bench_write(int fd, uint64_t offset_bytes, const void *data, uint64_t n_bytes, uint64_t block_bytes);

/* The share of a file of written bytes that has 2 MiB pages, from 0 to 1. */
double bench_plain_huge_share(int fd, uint64_t n_bytes);

#endif
