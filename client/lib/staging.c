/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator over the staging region. The region is cut into granules of 64 bytes; a block is a run of them. What
 * is known of the granule at either end of a block stands in `books`, private memory: nothing in the region itself is
 * ever read, so whoever scribbles over it spoils bytes, not this.
 *
 * Free blocks hang in lists by the power of two of their length, the last one given back first: its pages are there
 * already, and the first write to a fresh page costs more than copying a small object.
 *
 * Invariants, under `lock`: blocks cover all granules; no two neighbours are both free; a class's bit in `classes` is
 * set where its list is not empty. Does not know what is staged, or for whom.
 */
#include "client/lib/staging.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"
#include "client/lib/maps.h"
#include "proto/staging.h"

#define STAGING_GRANULE_BYTES ((size_t)64)
#define STAGING_GRANULES_MAX (UINT32_C(1) << 30)
#define STAGING_CLASSES 32
#define STAGING_LOOKS_MAX 16         /* at blocks of a class that may be too short */
#define STAGING_NONE UINT32_MAX

typedef struct StagingGranule {
        uint32_t n_granules : 31;    /* of the block; at its first and last granule */
        uint32_t is_free : 1;
        uint32_t next;               /* in the list of free blocks; at the first granule */
        uint32_t previous;
} StagingGranule;

struct Staging {
        pthread_mutex_t lock;
        uint8_t *data;
        size_t n_bytes, n_mapped;    /* behind them is what proto/staging.h says */
        StagingGranule *books;
        uint32_t n_granules;
        uint32_t classes;
        uint32_t heads[STAGING_CLASSES];
};

static unsigned staging_class(uint32_t n_granules)
{
        return 31 - (unsigned)__builtin_clz(n_granules);
}

static void staging_mark(Staging *staging, uint32_t first, uint32_t n_granules, bool is_free)
{
        StagingGranule *head = &staging->books[first], *tail = &staging->books[first + n_granules - 1];

        head->n_granules = tail->n_granules = n_granules;
        head->is_free = tail->is_free = is_free;
}

static void staging_link(Staging *staging, uint32_t first, uint32_t n_granules)
{
        unsigned class = staging_class(n_granules);
        uint32_t head = staging->heads[class];

        staging_mark(staging, first, n_granules, true);
        staging->books[first].previous = STAGING_NONE;
        staging->books[first].next = head;
        if (head != STAGING_NONE)
                staging->books[head].previous = first;
        staging->heads[class] = first;
        staging->classes |= UINT32_C(1) << class;
}

static void staging_unlink(Staging *staging, uint32_t first)
{
        const StagingGranule *block = &staging->books[first];
        unsigned class = staging_class(block->n_granules);

        if (block->previous != STAGING_NONE)
                staging->books[block->previous].next = block->next;
        else
                staging->heads[class] = block->next;
        if (block->next != STAGING_NONE)
                staging->books[block->next].previous = block->previous;
        if (staging->heads[class] == STAGING_NONE)
                staging->classes &= ~(UINT32_C(1) << class);
}

/* A free block of at least @n_granules; NONE where there is none, or only one deep in the list of its class. */
static uint32_t staging_search(const Staging *staging, uint32_t n_granules)
{
        unsigned class = staging_class(n_granules);
        uint32_t larger = class + 1 < STAGING_CLASSES ? staging->classes & (UINT32_MAX << (class + 1)) : 0;
        uint32_t at = staging->heads[class];

        for (unsigned i = 0; at != STAGING_NONE && i < STAGING_LOOKS_MAX; i++, at = staging->books[at].next)
                if (staging->books[at].n_granules >= n_granules)
                        return at;
        if (larger)
                return staging->heads[__builtin_ctz(larger)];
        return STAGING_NONE;
}

void *staging_take(Staging *staging, size_t n_bytes)
{
        uint32_t n, at, n_found;

        if (n_bytes > staging->n_granules * STAGING_GRANULE_BYTES)
                return NULL;
        /* An empty object has a place too: it is told from others by its address. */
        n = n_bytes == 0 ? 1 : (uint32_t)((n_bytes + STAGING_GRANULE_BYTES - 1) / STAGING_GRANULE_BYTES);
        pthread_mutex_lock(&staging->lock);
        at = staging_search(staging, n);
        if (at != STAGING_NONE) {
                n_found = staging->books[at].n_granules;
                staging_unlink(staging, at);
                if (n_found > n)
                        staging_link(staging, at + n, n_found - n);
                staging_mark(staging, at, n, false);
        }
        pthread_mutex_unlock(&staging->lock);
        return at == STAGING_NONE ? NULL : staging->data + at * STAGING_GRANULE_BYTES;
}

void staging_give(Staging *staging, void *data)
{
        uint32_t first = (uint32_t)(staging_offset(staging, data) / STAGING_GRANULE_BYTES), n, after, n_before;

        pthread_mutex_lock(&staging->lock);
        n = staging->books[first].n_granules;
        assert(n > 0 && !staging->books[first].is_free);
        after = first + n;
        if (after < staging->n_granules && staging->books[after].is_free) {
                staging_unlink(staging, after);
                n += staging->books[after].n_granules;
        }
        if (first > 0 && staging->books[first - 1].is_free) {
                n_before = staging->books[first - 1].n_granules;
                first -= n_before;
                staging_unlink(staging, first);
                n += n_before;
        }
        staging_link(staging, first, n);
        pthread_mutex_unlock(&staging->lock);
}

uint64_t staging_offset(const Staging *staging, const void *data)
{
        size_t offset = (size_t)((const uint8_t *)data - staging->data);

        assert(offset < staging->n_bytes && offset % STAGING_GRANULE_BYTES == 0);
        return offset;
}

void staging_end(Staging *staging)
{
        StagingEnd *end = (StagingEnd *)(void *)(staging->data + staging->n_bytes);

        atomic_store_explicit(&end->is_over, 1, memory_order_release);
}

void staging_arrive(Staging *staging, uint64_t start)
{
        StagingEnd *end = (StagingEnd *)(void *)(staging->data + staging->n_bytes);

        atomic_store_explicit(&end->start, start, memory_order_release);
}

bool staging_is_taken_over(const Staging *staging)
{
        StagingEnd *end = (StagingEnd *)(void *)(staging->data + staging->n_bytes);

        /* The daemon stores it, and counts pins behind that: one of us sees the other. */
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load(&end->taken_by) != atomic_load_explicit(&end->start, memory_order_relaxed);
}

void staging_free(Staging *staging)
{
        if (!staging)
                return;
        pthread_mutex_destroy(&staging->lock);
        maps_unmap(staging->data, staging->n_mapped);
        free(staging->books);
        free(staging);
}

/* With the lock. Nothing is taken from @n on any more; false: something is in use there. */
static bool cut(Staging *staging, uint32_t n)
{
        uint32_t at, next;

        for (at = 0; at < staging->n_granules; at += staging->books[at].n_granules)
                if (at + staging->books[at].n_granules > n && !staging->books[at].is_free)
                        return false;
        for (at = 0; at < staging->n_granules; at = next) {
                next = at + staging->books[at].n_granules;
                if (next <= n)
                        continue;
                staging_unlink(staging, at);
                if (at < n)
                        staging_link(staging, at, n - at);
        }
        staging->n_granules = n;
        return true;
}

/* With the lock. What is in use, to the same places of @data. */
static void copy_used(const Staging *staging, uint8_t *data)
{
        for (uint32_t at = 0; at < staging->n_granules; at += staging->books[at].n_granules)
                if (!staging->books[at].is_free)
                        memcpy(data + at * STAGING_GRANULE_BYTES, staging->data + at * STAGING_GRANULE_BYTES,
                               staging->books[at].n_granules * STAGING_GRANULE_BYTES);
}

/* Of a region of another size as much as there is room for, and its end where ours was. */
static int map_over(Staging *staging, int fd, uint64_t n_bytes)
{
        size_t n = (size_t)MIN(n_bytes, (uint64_t)staging->n_bytes);
        int r;

        if (n_bytes == staging->n_bytes)
                return maps_map_over(fd, staging->n_mapped, PROT_READ | PROT_WRITE, staging->data);
        r = maps_map_over(fd, n, PROT_READ | PROT_WRITE, staging->data);
        if (r < 0)
                return r;
        if (mmap(staging->data + staging->n_bytes, STAGING_END_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                 (off_t)n_bytes) == MAP_FAILED)
                return -errno;
        return 0;
}

int staging_replace(Staging *staging, int consume_fd, uint64_t n_bytes)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        uint64_t n_mapped, n_granules = n_bytes / STAGING_GRANULE_BYTES;
        void *data;
        int r;

        if (n_granules == 0 || n_bytes % PAGE_BYTES != 0 || staging->n_bytes % PAGE_BYTES != 0 ||
            !checked_add(n_bytes, STAGING_END_BYTES, &n_mapped))
                return -EPROTO;
        r = maps_map(fd, n_mapped, PROT_READ | PROT_WRITE, &data);
        if (r < 0)
                return r;
        pthread_mutex_lock(&staging->lock);
        if (n_granules >= staging->n_granules || cut(staging, (uint32_t)n_granules)) {
                copy_used(staging, data);
                r = map_over(staging, fd, n_bytes);
        } else {
                r = -EPROTO;
        }
        pthread_mutex_unlock(&staging->lock);
        maps_unmap(data, n_mapped);
        return r;
}

int staging_new(int consume_fd, uint64_t n_bytes, Staging **ret)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        _cleanup_(cleanup_free) Staging *staging = NULL;
        _cleanup_(cleanup_free) StagingGranule *books = NULL;
        uint64_t n_granules = MIN(n_bytes / STAGING_GRANULE_BYTES, (uint64_t)STAGING_GRANULES_MAX);
        uint64_t n_mapped;
        void *data;
        int r;

        if (n_granules == 0)
                return -EINVAL;
        staging = calloc(1, sizeof(*staging));
        books = calloc((size_t)n_granules, sizeof(*books));
        if (!staging || !books)
                return -ENOMEM;
        r = pthread_mutex_init(&staging->lock, NULL);
        if (r != 0)
                return -r;
        if (!checked_add(n_bytes, STAGING_END_BYTES, &n_mapped))
                return -EPROTO;
        r = maps_map(fd, n_mapped, PROT_READ | PROT_WRITE, &data);
        if (r < 0) {
                pthread_mutex_destroy(&staging->lock);
                return r;
        }
        staging->data = data;
        staging->n_bytes = (size_t)n_bytes;
        staging->n_mapped = (size_t)n_mapped;
        staging->books = steal_ptr(&books);
        staging->n_granules = (uint32_t)n_granules;
        for (unsigned i = 0; i < STAGING_CLASSES; i++)
                staging->heads[i] = STAGING_NONE;
        staging_link(staging, 0, staging->n_granules);
        *ret = steal_ptr(&staging);
        return 0;
}
