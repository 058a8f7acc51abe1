/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of 2 MiB of a mapping that is being read, and which of them have been faulted in. What is read in passing
 * faults by itself, as the kernel sees fit (16 pages at a time); what is read in order, or in large pieces, is faulted in by one call a window just
 * before it is copied, so that no block of a copy stands still for a fault, and page tables are still in the cache when they are used.
 *
 * All of it is a hint: a window that is said to be there may have lost pages since, and what is missing comes when it is
 * touched. Any number of threads may go through the windows of one mapping; two may do the same one twice.
 */
#ifndef CLIENT_LIB_WINDOWS_H
#define CLIENT_LIB_WINDOWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

typedef _Atomic uint8_t Window;      /* 0: nothing known; WINDOW_DONE; else: how many small reads there were */

enum {
        WINDOW_DONE = UINT8_MAX,
        WINDOW_READS_MAX = 8,        /* so many small reads make one that is worth it */
        WINDOWS_AHEAD_MAX = 8,       /* 16 MiB by one call */
};

#define WINDOW_BYTES HUGE_BYTES
#define WINDOW_LARGE_BYTES (64 * KIB) /* what the kernel faults in by itself: a read of that much gains by the call */

static inline size_t windows_count(uint64_t n_bytes)
{
        return (size_t)((n_bytes + WINDOW_BYTES - 1) / WINDOW_BYTES);
}

/* The range lies in one window, and that is there: nothing is to be done. @n_bytes is not 0. */
static inline bool windows_is_there(Window *windows, uint64_t offset_bytes, uint64_t n_bytes)
{
        uint64_t first = offset_bytes / WINDOW_BYTES;

        return (offset_bytes + n_bytes - 1) / WINDOW_BYTES == first &&
               atomic_load_explicit(&windows[first], memory_order_relaxed) == WINDOW_DONE;
}

/* What is to be done before [@offset_bytes, + @n_bytes) of a mapping can be copied. */
typedef struct WindowsPlan {
        size_t first;                /* the window that the range begins in */
        size_t n_windows;            /* to fault in, from there; 0: none */
        uint64_t n_bytes;            /* of the range can be copied then; at least 1 */
} WindowsPlan;

/*
 * Never beyond @limit_bytes (where the data end; at least the end of the range). @n_bytes is not 0. Counts a small read of
 * a window that is not there yet; changes nothing else.
 */
WindowsPlan windows_plan(Window *windows, uint64_t offset_bytes, uint64_t n_bytes, uint64_t limit_bytes);

/*
 * Plans, and does it: of the mapping at @data, read-only. @is_whole: the mapping has no hole before @offset_bytes in the
 * window, so all of it may be touched. Returns how much of the range is to be copied before the next call.
 */
uint64_t windows_prepare(Window *windows, const uint8_t *data, uint64_t offset_bytes, uint64_t n_bytes,
                         uint64_t limit_bytes, bool is_whole);

/* Faults memory in because the user wants it so. Best effort: what is not there now comes when it is touched. */
void windows_populate(const uint8_t *data, size_t n_bytes, bool writable);

#endif
