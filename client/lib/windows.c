/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See windows.h. On a machine whose page tables are virtual too, 128 MiB of 4 KiB pages are mapped and copied once in
 * 21.3 ms by windows of 2 or 16 MiB, in 22.3 ms by faults of 64 KiB, and read by pread() in 29 ms: the gain is small, and so are the windows. They
 * grow to 16 MiB while a reader goes on in order, which saves calls where the pages are huge.
 */
#include "client/lib/windows.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static uint8_t window_get(Window *window)
{
        return atomic_load_explicit(window, memory_order_relaxed);
}

/* How many in front of @at are there, up to the largest step: so far somebody has read in order. */
static size_t windows_behind(Window *windows, size_t at)
{
        size_t n = 0;

        while (n < WINDOWS_AHEAD_MAX && n < at && window_get(&windows[at - 1 - n]) == WINDOW_DONE)
                n++;
        return n;
}

WindowsPlan windows_plan(Window *windows, uint64_t offset_bytes, uint64_t n_bytes, uint64_t limit_bytes)
{
        size_t first = (size_t)(offset_bytes / WINDOW_BYTES), at = first, n_behind, n;
        size_t last = (size_t)((offset_bytes + n_bytes - 1) / WINDOW_BYTES), end = windows_count(limit_bytes);
        uint64_t n_here = MIN(n_bytes, (first + 1) * WINDOW_BYTES - offset_bytes);
        uint8_t state = window_get(&windows[first]);

        while (at <= last && window_get(&windows[at]) == WINDOW_DONE)
                at++;
        if (at > first)
                return (WindowsPlan){ first, 0, MIN(n_bytes, at * WINDOW_BYTES - offset_bytes) };
        n_behind = windows_behind(windows, first);
        if (n_here < WINDOW_LARGE_BYTES && n_behind == 0 && state < WINDOW_READS_MAX) {
                atomic_store_explicit(&windows[first], (uint8_t)(state + 1), memory_order_relaxed);
                return (WindowsPlan){ first, 0, n_here };
        }
        n = MIN(MAX(n_behind, last - first + 1), (size_t)WINDOWS_AHEAD_MAX);
        n = MIN(n, MAX(end, last + 1) - first);
        for (at = 1; at < n && window_get(&windows[first + at]) != WINDOW_DONE;)
                at++;
        return (WindowsPlan){ first, at, MIN(n_bytes, (first + at) * WINDOW_BYTES - offset_bytes) };
}

uint64_t windows_prepare(Window *windows, const uint8_t *data, uint64_t offset_bytes, uint64_t n_bytes,
                         uint64_t limit_bytes, bool is_whole)
{
        WindowsPlan plan = windows_plan(windows, offset_bytes, n_bytes, limit_bytes);
        uint64_t begin = is_whole ? plan.first * WINDOW_BYTES : offset_bytes / PAGE_BYTES * PAGE_BYTES;
        uint64_t end = MIN((plan.first + plan.n_windows) * WINDOW_BYTES, limit_bytes);

        if (plan.n_windows > 0) {
                (void)madvise((void *)(uintptr_t)(data + begin), (size_t)(end - begin), MADV_POPULATE_READ);
                for (size_t i = 0; i < plan.n_windows; i++)
                        atomic_store_explicit(&windows[plan.first + i], WINDOW_DONE, memory_order_relaxed);
        }
        return plan.n_bytes;
}

void windows_populate(const uint8_t *data, size_t n_bytes, bool writable)
{
        if (madvise((void *)(uintptr_t)data, n_bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ||
            errno != EINVAL)
                return;
        /* Linux before 5.14. Others may be writing there: adding nothing makes the page ours without changing it. */
        for (size_t i = 0; i < n_bytes; i += PAGE_BYTES) {
                _Atomic uint8_t *byte = (_Atomic uint8_t *)(uintptr_t)&data[i];

                if (writable)
                        (void)atomic_fetch_add_explicit(byte, 0, memory_order_relaxed);
                else
                        (void)atomic_load_explicit(byte, memory_order_relaxed);
        }
}
