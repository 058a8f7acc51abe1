/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of robust futexes that the kernel walks at a thread's end has one entry here, in memory of our own, and the
 * futex word that belongs to it lies so many bytes away, in the page that clients see: so they see the word, and no
 * pointer of ours. It takes the place of the C library's list for this thread, which is for robust mutexes; there are
 * none in this process.
 *
 * The kernel marks a word only where it holds the thread's number, as that thread's own pid namespace counts.
 */
#include "daemon/server/beacon.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/region.h"
#include "proto/beacon.h"

static_assert(BEACON_OWNER_DIED == FUTEX_OWNER_DIED, "the kernel's bit");

struct DaemonBeacon {
        struct robust_list_head head;
        struct robust_list entry;
        Region *region;
        Beacon *page;                /* in the one mapping that can write */
};

/* Sealed while the mapping that was made before goes on writing. */
static int make_page(DaemonBeacon *beacon, Backend *backend)
{
        int r = region_new(backend, "folio-beacon", BEACON_BYTES, &beacon->region);

        if (r == 0)
                r = region_map(beacon->region, true);
        if (r == 0)
                r = region_seal_to_daemon(beacon->region);
        if (r == 0)
                r = region_open_read_only(beacon->region);
        if (r == 0)
                beacon->page = (Beacon *)(void *)beacon->region->data;
        return r;
}

static int light(DaemonBeacon *beacon)
{
        beacon->entry.next = &beacon->head.list;
        beacon->head.list.next = &beacon->entry;
        beacon->head.futex_offset = (long)((uintptr_t)&beacon->page->owner - (uintptr_t)&beacon->entry);
        atomic_store_explicit(&beacon->page->owner, (uint32_t)syscall(SYS_gettid), memory_order_release);
        return syscall(SYS_set_robust_list, &beacon->head, sizeof(beacon->head)) < 0 ? -errno : 0;
}

DEFINE_CLEANUP(DaemonBeacon *, cleanup_beacon, daemon_beacon_free)

int daemon_beacon_new(Backend *backend, uint64_t instance, DaemonBeacon **ret)
{
        _cleanup_(cleanup_beacon) DaemonBeacon *beacon = calloc(1, sizeof(*beacon));
        int r;

        if (!beacon)
                return -ENOMEM;
        r = make_page(beacon, backend);
        if (r < 0)
                return r;
        beacon->page->magic = BEACON_MAGIC;
        beacon->page->version = BEACON_VERSION;
        beacon->page->instance = instance;
        if (getrandom(&beacon->page->start, sizeof(beacon->page->start), 0) != sizeof(beacon->page->start))
                return -EIO;
        r = light(beacon);
        if (r == 0)
                *ret = steal_ptr(&beacon);
        return r;
}

void daemon_beacon_free(DaemonBeacon *beacon)
{
        if (!beacon)
                return;
        /* First the list: what is in it must not go while the kernel could look there. */
        if (beacon->head.list.next) {
                static struct robust_list_head empty = { .list.next = &empty.list };

                (void)syscall(SYS_set_robust_list, &empty, sizeof(empty)); /* cannot fail for a list of that size */
                atomic_fetch_or_explicit(&beacon->page->owner, BEACON_OWNER_DIED, memory_order_release);
        }
        if (beacon->region)
                region_unref(beacon->region);
        free(beacon);
}

int daemon_beacon_fd(const DaemonBeacon *beacon)
{
        return beacon->region->fd_read_only;
}

uint64_t daemon_beacon_start(const DaemonBeacon *beacon)
{
        return beacon->page->start;
}
