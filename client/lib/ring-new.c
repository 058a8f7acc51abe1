/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the two descriptors of a ring in: reads the header by pread() into private memory, checks every number of
 * it against the size of the file with arithmetic that cannot wrap, and only then maps. After that nothing in
 * shared memory can lead us outside the mapping. Records and results may lie over each other in a hostile file;
 * that gives wrong answers, and is not looked for. Knows nothing of how a ring is used.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "client/lib/maps.h"
#include "client/lib/ring-private.h"

#define RING_RECORDS_MAX 65536u

static bool ring_is_layout(const RingHeader *h, uint64_t file_bytes)
{
        uint64_t records_bytes, results_bytes;

        if (h->magic != RING_MAGIC || h->version != RING_VERSION)
                return false;
        if (!IS_POWER_OF_TWO(h->n_records) || h->n_records > RING_RECORDS_MAX)
                return false;
        if (h->region_bytes > file_bytes || h->region_bytes < sizeof(*h))
                return false;
        records_bytes = (uint64_t)h->n_records * sizeof(RingRecord);
        results_bytes = (uint64_t)h->n_records * sizeof(RingResult);
        return h->records_offset >= sizeof(*h) && IS_ALIGNED(h->records_offset, RING_LINE_BYTES) &&
               checked_range(h->records_offset, records_bytes, h->region_bytes) &&
               h->results_offset >= sizeof(*h) && IS_ALIGNED(h->results_offset, RING_LINE_BYTES) &&
               checked_range(h->results_offset, results_bytes, h->region_bytes);
}

/* 0, RING_E_LAYOUT or a negative errno. */
static int ring_read_header(int fd, RingHeader *ret)
{
        struct stat st;
        ssize_t n;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(*ret))
                return RING_E_LAYOUT;
        do
                n = pread(fd, ret, sizeof(*ret), 0);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return n == (ssize_t)sizeof(*ret) && ring_is_layout(ret, (uint64_t)st.st_size) ? 0 : RING_E_LAYOUT;
}

static int ring_map(Ring *ring, int fd)
{
        RingHeader header;
        void *data;
        int r;

        r = ring_read_header(fd, &header);
        if (r != 0)
                return r;
        ring->n_records = header.n_records;
        ring->mask = header.n_records - 1;
        ring->is_wanted = calloc(ring->n_records, 1);
        ring->hashes = calloc(ring->n_records, sizeof(*ring->hashes));
        if (!ring->is_wanted || !ring->hashes)
                return -ENOMEM;
        r = maps_map(fd, header.region_bytes, PROT_READ | PROT_WRITE, &data);
        if (r < 0)
                return r;
        ring->shared = data;
        ring->n_bytes = header.region_bytes;
        ring->records = (RingRecord *)((uint8_t *)data + header.records_offset);
        ring->results = (RingResult *)((uint8_t *)data + header.results_offset);
        /* A child of fork() that put something in would do it in our name. */
        return madvise(data, (size_t)header.region_bytes, MADV_DONTFORK) < 0 ? -errno : 0;
}

static bool ring_has_processors(void)
{
        cpu_set_t set;

        if (sched_getaffinity(0, sizeof(set), &set) == 0)
                return CPU_COUNT(&set) > 1;
        return sysconf(_SC_NPROCESSORS_ONLN) > 1;
}

static int ring_init_lock(Ring *ring, bool has_processors)
{
        pthread_mutexattr_t attributes;
        int r;

        r = pthread_mutexattr_init(&attributes);
        if (r != 0)
                return -r;
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
        /* Most of the time it is held for less than it takes to sleep. */
        if (has_processors)
                (void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
        r = pthread_mutex_init(&ring->lock, &attributes);
        (void)pthread_mutexattr_destroy(&attributes);
        return -r;
}

static void ring_unmap(Ring *ring)
{
        if (ring->shared)
                maps_unmap(ring->shared, (size_t)ring->n_bytes);
        (void)close_fd(ring->bell_fd);
        free(ring->is_wanted);
        free(ring->hashes);
        kept_deinit(&ring->kept);
        free(ring);
}

DEFINE_CLEANUP(Ring *, cleanup_ring_unmap, ring_unmap)

int ring_new(const RingConfig *config, int consume_fd, int consume_bell_fd, Ring **ret)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        _cleanup_(cleanup_fd) int bell_fd = consume_bell_fd;
        _cleanup_(cleanup_ring_unmap) Ring *ring = NULL;
        bool has_processors = ring_has_processors();
        uint64_t begun;
        int r;

        ring = aligned_alloc(RING_LINE_BYTES, ALIGN_UP(sizeof(*ring), (size_t)RING_LINE_BYTES));
        if (!ring)
                return -ENOMEM;
        memset(ring, 0, sizeof(*ring));
        ring->config = *config;
        ring->bell_fd = steal_fd(&bell_fd);
        r = ring_map(ring, fd);
        if (r != 0)
                return r;
        /* Not of the header's copy: it is where the daemon stands, if this is not its first record. */
        begun = atomic_load_explicit(&ring->shared->head, memory_order_acquire);
        if (begun != atomic_load_explicit(&ring->shared->tail, memory_order_relaxed) || begun > UINT64_MAX / 2)
                return RING_E_LAYOUT;
        ring->n_failed = atomic_load_explicit(&ring->shared->n_failed, memory_order_relaxed);
        atomic_init(&ring->n_restarts, atomic_load_explicit(&ring->shared->n_restarts, memory_order_acquire));
        atomic_init(&ring->tail, begun);
        atomic_init(&ring->seen, begun);
        for (size_t i = 0; i < RING_LATEST; i++)
                atomic_init(&ring->latest[i], (uint32_t)begun);
        ring->look_at = begun + MAX(ring->n_records / 4, 1u);
        spin_init(&ring->spin, has_processors);
        r = ring_init_lock(ring, has_processors);
        if (r < 0)
                return r;
        *ret = steal_ptr(&ring);
        return 0;
}

void ring_free(Ring *ring)
{
        if (!ring)
                return;
        (void)pthread_mutex_destroy(&ring->lock);
        ring_unmap(ring);
}

uint32_t ring_count_restarts(const Ring *ring)
{
        return atomic_load_explicit(&ring->shared->n_restarts, memory_order_acquire);
}

bool ring_is_taken_over(const Ring *ring)
{
        return ring_count_restarts(ring) != atomic_load_explicit(&ring->n_restarts, memory_order_acquire);
}
