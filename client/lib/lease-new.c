/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the two descriptors of a lease in: reads the book's header by pread() into private memory, checks every
 * number of it against the sizes of the two files with arithmetic that cannot wrap, and only then maps. And counts
 * who points into the region. Knows nothing of what is placed.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "client/lib/lease-private.h"
#include "client/lib/maps.h"

#define LEASE_LINE_BYTES 64

static bool lease_is_layout(const LeaseBook *b, const LeaseConfig *config, uint64_t file_bytes)
{
        uint64_t n_words = (config->region_bytes / LEASE_UNIT_BYTES + LEASE_WORD_UNITS - 1) / LEASE_WORD_UNITS;

        if (b->magic != LEASE_MAGIC || b->version != LEASE_VERSION)
                return false;
        if (b->region_id != config->region_id || b->region_bytes != config->region_bytes)
                return false;
        if (!IS_POWER_OF_TWO(b->n_freed_max) || b->n_freed_max > LEASE_FREED_MAX)
                return false;
        return b->book_bytes <= file_bytes && b->bitmap_offset >= sizeof(*b) &&
               IS_ALIGNED(b->bitmap_offset, LEASE_LINE_BYTES) &&
               checked_range(b->bitmap_offset, n_words * sizeof(uint64_t), b->book_bytes);
}

/* 0, LEASE_E_LAYOUT or a negative errno. */
static int lease_get_file_bytes(int fd, uint64_t *ret)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < 0)
                return LEASE_E_LAYOUT;
        *ret = (uint64_t)st.st_size;
        return 0;
}

static int lease_map_shared(int fd, uint64_t n_bytes, int protection, void **ret)
{
        int r;

        r = maps_map(fd, n_bytes, protection, ret);
        if (r < 0)
                return r;
        if (madvise(*ret, (size_t)n_bytes, MADV_DONTFORK) < 0) {
                r = -errno;
                maps_unmap(steal_ptr(ret), (size_t)n_bytes);
                return r;
        }
        return 0;
}

static int lease_map_book(Lease *lease, int fd)
{
        LeaseBook book;
        uint64_t file_bytes = 0;
        void *data;
        ssize_t n;
        int r;

        r = lease_get_file_bytes(fd, &file_bytes);
        if (r != 0)
                return r;
        do
                n = pread(fd, &book, sizeof(book), 0);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        if (n != (ssize_t)sizeof(book) || !lease_is_layout(&book, &lease->config, file_bytes))
                return LEASE_E_LAYOUT;
        r = lease_map_shared(fd, book.book_bytes, PROT_READ, &data);
        if (r < 0)
                return r;
        lease->book = data;
        lease->book_bytes = book.book_bytes;
        lease->n_freed_max = book.n_freed_max;
        lease->fresh_to = book.is_fresh ? lease->n_units : 0;
        lease->words = (const _Atomic uint64_t *)((uint8_t *)data + book.bitmap_offset);
        return 0;
}

static int lease_map_region(Lease *lease, int fd)
{
        uint64_t file_bytes = 0;
        void *data;
        int r;

        r = lease_get_file_bytes(fd, &file_bytes);
        if (r != 0)
                return r;
        if (file_bytes < lease->config.region_bytes)
                return LEASE_E_LAYOUT;
        r = lease_map_shared(fd, lease->config.region_bytes, PROT_READ | PROT_WRITE, &data);
        if (r < 0)
                return r;
        lease->data = data;
        return 0;
}

static void lease_unmap(Lease *lease)
{
        if (lease->data)
                maps_unmap(lease->data, (size_t)lease->config.region_bytes);
        if (lease->book)
                maps_unmap(lease->book, (size_t)lease->book_bytes);
        ranges_deinit(&lease->guards);
        free(lease);
}

DEFINE_CLEANUP(Lease *, cleanup_lease_unmap, lease_unmap)

int lease_new(const LeaseConfig *config, int consume_region_fd, int consume_book_fd, Lease **ret)
{
        _cleanup_(cleanup_fd) int region_fd = consume_region_fd;
        _cleanup_(cleanup_fd) int book_fd = consume_book_fd;
        _cleanup_(cleanup_lease_unmap) Lease *lease = NULL;
        int r;

        if (config->region_bytes < LEASE_UNIT_BYTES || config->region_bytes > LEASE_REGION_BYTES_MAX)
                return LEASE_E_LAYOUT;
        lease = calloc(1, sizeof(*lease));
        if (!lease)
                return -ENOMEM;
        atomic_init(&lease->n_references, 1);
        lease->config = *config;
        lease->n_units = (uint32_t)(config->region_bytes / LEASE_UNIT_BYTES);
        ranges_init(&lease->guards, lease->n_units);
        r = lease_map_book(lease, book_fd);
        if (r != 0)
                return r;
        r = lease_map_region(lease, region_fd);
        if (r != 0)
                return r;
        /*
         * There is no window yet: the first comes out of the book too, as others may have objects there. What came free
         * before is of no use, as it may be in the log more than once.
         */
        lease->n_freed = atomic_load_explicit(&lease->book->n_freed, memory_order_acquire);
        *ret = steal_ptr(&lease);
        return 0;
}

void lease_free(Lease *lease)
{
        if (!lease)
                return;
        assert(atomic_load_explicit(&lease->n_references, memory_order_acquire) == 1);
        lease_unmap(lease);
}

Lease *lease_ref(Lease *lease)
{
        unsigned n = atomic_fetch_add_explicit(&lease->n_references, 1, memory_order_relaxed);

        assert(n > 0);
        (void)n;
        return lease;
}

void lease_unref(Lease *lease)
{
        if (!lease)
                return;
        /* Release: what this thread did in the region; acquire: what all the others did, before it is unmapped. */
        if (atomic_fetch_sub_explicit(&lease->n_references, 1, memory_order_acq_rel) == 1)
                lease_unmap(lease);
}
