/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of one size of which there can be millions: taken from slabs, which come from the kernel and go back to it one
 * by one. A heap would do it as well, but for its end: a heap that a million records leave is put in order, and cut
 * off, in one go, by whoever frees the last of them (measured: 30 ms). Not thread-safe: the loop's.
 *
 * A slab is aligned to its size, so that a record finds its slab by its address.
 */
#ifndef DAEMON_MEMORY_SLAB_H
#define DAEMON_MEMORY_SLAB_H

#include <stddef.h>

#include "base/list.h"

#define SLAB_BYTES ((size_t)64 * 1024)

typedef struct Slabs {
        size_t record_bytes;         /* a multiple of 8; far below SLAB_BYTES */
        List partial;                /* slabs that have a free record */
        void *spare;                 /* an empty one, so that a single record that comes and goes costs no system call */
        size_t n_records;            /* taken */
} Slabs;

void slabs_init(Slabs *slabs, size_t record_bytes);
void slabs_deinit(Slabs *slabs); /* every record has been given back */

/* All zeros; aligned to 8. NULL: no memory. */
void *slabs_take(Slabs *slabs);

/* NULL: nothing. Finds where it belongs by itself. */
void slabs_give(void *record);

#endif
