/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Half of an agreement of which the other is in the client library: who sleeps says so in its pin table, fences, and
 * looks at the word again; we change the word, fence, and look at the tables. One of the two fences is the first.
 */
#include "daemon/store/index-wakes.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"

static bool can_sleep(const IndexWakes *wakes)
{
        atomic_thread_fence(memory_order_seq_cst); /* between the words that were changed and the tables */
        return !wakes->has_sleepers || wakes->has_sleepers(wakes->userdata);
}

static void wake(_Atomic uint32_t *word)
{
        /* Not PRIVATE: the sleepers are other processes. That nobody sleeps is no error; nothing else can go wrong. */
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wake_dirty(IndexWakes *wakes)
{
        for (uint32_t i = 0; i < wakes->n_dirty; i++)
                wake(&wakes->buckets[wakes->dirty[i]].sequence);
}

void index_wakes_mark(IndexWakes *wakes, uint32_t bucket)
{
        if (wakes->n_dirty > 0 && wakes->dirty[wakes->n_dirty - 1] == bucket)
                return;
        if (wakes->n_dirty == INDEX_WAKES_MAX) {
                if (can_sleep(wakes))
                        wake_dirty(wakes);
                wakes->n_dirty = 0;
        }
        wakes->dirty[wakes->n_dirty++] = bucket;
}

bool index_wakes_flush(IndexWakes *wakes)
{
        bool had_events = wakes->has_events;

        if ((wakes->n_dirty > 0 || had_events) && can_sleep(wakes)) {
                wake_dirty(wakes);
                if (had_events)
                        wake(&wakes->header->event_futex);
        }
        wakes->n_dirty = 0;
        wakes->has_events = false;
        return had_events;
}

void index_wakes_all(IndexWakes *wakes, uint32_t n_buckets)
{
        if (can_sleep(wakes)) {
                wake_dirty(wakes);
                for (uint32_t i = 0; i < n_buckets; i++)
                        wake(&wakes->buckets[i].sequence);
                wake(&wakes->header->event_futex);
        }
        wakes->n_dirty = 0;
        wakes->has_events = false;
}
