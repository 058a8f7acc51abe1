/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of a memory file read as zeros: a list of ranges as layout.h publishes it, in ascending order, apart
 * from each other, of at most LAYOUT_EXTENTS_MAX; where there are more, the largest are kept and the list is partial.
 *
 * Found in two ways. To the kernel a page that nobody ever wrote is a hole, also where it is reserved, which costs two
 * calls a range; but not where it has become a part of a 2 MiB folio by collapse. Those are found by looking at the
 * bytes, which is for idle time. Both look by descriptor, so that nothing is allocated, and neither can be surprised by
 * a file that shrinks. Whether anybody can still write to the file is the caller's to know.
 */
#ifndef DAEMON_MEMORY_ZEROS_H
#define DAEMON_MEMORY_ZEROS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/layout.h"

#define ZEROS_NULL ((LayoutExtents){ .n_extents = 0 })

/* Adds a range to the list, merged with what it touches. Pages beyond what the list can name are left out. */
void zeros_add(LayoutExtents *zeros, uint64_t first_page, uint64_t n_pages);

/* Are all bytes of [@offset_bytes, @offset_bytes + @n_bytes) listed, in one range? *@ret_end_bytes: where that ends. */
bool zeros_has(const LayoutExtents *zeros, uint64_t offset_bytes, uint64_t n_bytes, uint64_t *ret_end_bytes);

/*
 * The first of the 2 MiB pieces of [@offset_bytes, @end_bytes) that are not listed as a whole, and where their run ends;
 * both @end_bytes: none. The offset is a multiple of 2 MiB.
 */
void zeros_find_pieces(const LayoutExtents *zeros, uint64_t offset_bytes, uint64_t end_bytes, uint64_t *ret_begin_bytes,
                       uint64_t *ret_end_bytes);

/*
 * Adds the holes of [0, @n_bytes); the last page may be in it in part. Two system calls for each, and one more where
 * the file ends with data: one in all for a file that is written throughout, two for one that is not at all. After
 * @n_max of them, or when cancelled, it ends, and the list is partial.
 */
int zeros_add_holes(int fd, uint64_t n_bytes, uint64_t n_max, const atomic_bool *cancelled, LayoutExtents *zeros);

typedef struct ZerosScan {
        uint64_t n_bytes;            /* of the file, that count */
        uint64_t offset_bytes;       /* how far it is; a multiple of 2 MiB, or the end */
        uint64_t n_added;            /* pieces that were found by their bytes */
} ZerosScan;

/*
 * Adds the 2 MiB pieces (and the last, shorter one) whose bytes are zeros, from where the scan is: one read of a page
 * for a piece with something in its first page, none for one that is listed. At most about @budget_bytes are read, and
 * a piece counts as ZEROS_PIECE_BYTES at least. What cannot be read is not zero. -ENOMEM, -ECANCELED.
 */
#define ZEROS_PIECE_BYTES (UINT64_C(32) << 10)
int zeros_scan(int fd, ZerosScan *scan, uint64_t budget_bytes, const atomic_bool *cancelled, LayoutExtents *zeros);

static inline bool zeros_scan_is_over(const ZerosScan *scan)
{
        return scan->offset_bytes >= scan->n_bytes;
}

#endif
