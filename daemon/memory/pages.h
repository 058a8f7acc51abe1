/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the pages of a memory file lie: where there is data, how much is in 2 MiB folios, and the request to the kernel
 * to make more of it so. Works on a descriptor alone; keeps nothing. Knows neither backends nor regions.
 *
 * Every mapping made here is for reading, through a descriptor that is open for reading only, so that it neither
 * stands in the way of F_SEAL_WRITE nor can change a byte; and no byte is read through it by this program, so that a
 * file that shrinks meanwhile is an errno and never a signal.
 */
#ifndef DAEMON_MEMORY_PAGES_H
#define DAEMON_MEMORY_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The largest piece of work between two looks at a cancel flag. */
#define PAGES_SLICE_BYTES (UINT64_C(64) << 20)

static inline bool pages_is_cancelled(const atomic_bool *cancelled)
{
        return cancelled && atomic_load_explicit(cancelled, memory_order_relaxed);
}

/* The same file by a new open file description, O_RDONLY and CLOEXEC; needs /proc. */
int pages_reopen_read_only(int fd, int *ret_fd);

/* A shared mapping of the file's first @size_bytes (not 0), aligned to 2 MiB, not in core dumps. Undone by munmap(). */
int pages_map(int fd, uint64_t size_bytes, bool writable, void **ret_address);

/*
 * The first run of data in [@offset, @end): *@ret_offset == @end where there is none. Pages that were reserved but
 * never written are no data to the kernel.
 */
int pages_find_data(int fd, uint64_t offset, uint64_t end, uint64_t *ret_offset, uint64_t *ret_end);

/*
 * How many bytes of [0, @size_bytes) are in 2 MiB folios. Looks only where data is: a look at a page that was
 * reserved and never written would have to zero it first.
 */
int pages_count_huge(int fd, uint64_t size_bytes, uint64_t *ret_huge_bytes);

/*
 * The two ways of counting, by themselves: bytes of [@address, @address + @n_bytes) that this process has mapped by
 * huge entries. The second needs the range to be exactly one mapping.
 */
int pages_scan_huge(const void *address, uint64_t n_bytes, uint64_t *ret_huge_bytes);
int pages_read_smaps_huge(const void *address, uint64_t n_bytes, uint64_t *ret_huge_bytes);

/*
 * Asks the kernel to make each whole 2 MiB piece of [@begin, @end) one folio. Pieces without any page are left alone,
 * unless @touch: then one page of each is allocated first, through @fd. Soft failures are counted; -ECANCELED.
 */
int pages_collapse(int fd, uint64_t begin, uint64_t end, bool touch, const atomic_bool *cancelled, uint64_t *ret_n_huge,
                   uint64_t *ret_n_failed);

/* fallocate() in slices; after EINTR it goes on in smaller ones, so that a frequent signal cannot stop it for ever. */
int pages_fallocate(int fd, int mode, uint64_t offset, uint64_t n_bytes, const atomic_bool *cancelled);

#endif
