/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A leased region and its book for the client's side of it; the test does what the daemon does to the book: which
 * units are taken, and what came free.
 */
#ifndef TESTS_UNIT_BOOK_FIXTURE_H
#define TESTS_UNIT_BOOK_FIXTURE_H

#include "tests/unit/harness.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/lease.h"

#define FIXTURE_REGION_ID 77
#define FIXTURE_EPOCH 5

typedef struct LeaseFixture {
        LeaseBook *book;
        _Atomic uint64_t *words;
        uint64_t book_bytes;
        uint64_t region_bytes;
        uint32_t n_units;
        int region_fd;
        int book_fd;
        _Atomic uint32_t use;
        Beacon beacon;               /* of the daemon whose book it is */
        Lease *lease;
} LeaseFixture;

static inline void lease_fixture_make(LeaseFixture *f, uint64_t region_bytes)
{
        uint64_t n_words = (region_bytes / LEASE_UNIT_BYTES + 63) / 64;

        f->region_bytes = region_bytes;
        f->n_units = (uint32_t)(region_bytes / LEASE_UNIT_BYTES);
        f->book_bytes = sizeof(LeaseBook) + n_words * 8;
        f->region_fd = memfd_create("region", MFD_CLOEXEC);
        f->book_fd = memfd_create("book", MFD_CLOEXEC);
        assert_true(f->region_fd >= 0 && f->book_fd >= 0);
        assert_int_equal(ftruncate(f->region_fd, (off_t)region_bytes), 0);
        assert_int_equal(ftruncate(f->book_fd, (off_t)f->book_bytes), 0);
        f->book = mmap(NULL, f->book_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->book_fd, 0);
        assert_true(f->book != MAP_FAILED);
        f->book->magic = LEASE_MAGIC;
        f->book->version = LEASE_VERSION;
        f->book->n_freed_max = LEASE_FREED_MAX;
        f->book->region_id = FIXTURE_REGION_ID;
        f->book->region_bytes = region_bytes;
        f->book->book_bytes = f->book_bytes;
        f->book->bitmap_offset = sizeof(LeaseBook);
        f->book->epoch = FIXTURE_EPOCH;
        f->words = (_Atomic uint64_t *)((uint8_t *)f->book + sizeof(LeaseBook));
}

static inline int lease_fixture_open(LeaseFixture *f)
{
        LeaseConfig config = {
                .region_id = FIXTURE_REGION_ID,
                .region_bytes = f->region_bytes,
                .number = 3,
                .epoch = FIXTURE_EPOCH,
                .use = &f->use,
                .beacon = &f->beacon,
        };

        return lease_new(&config, fcntl(f->region_fd, F_DUPFD_CLOEXEC, 3), fcntl(f->book_fd, F_DUPFD_CLOEXEC, 3),
                         &f->lease);
}

static inline LeaseFixture *lease_fixture_new(uint64_t region_bytes)
{
        LeaseFixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        lease_fixture_make(f, region_bytes);
        assert_int_equal(lease_fixture_open(f), 0);
        return f;
}

static inline void lease_fixture_deinit(LeaseFixture *f)
{
        munmap(f->book, f->book_bytes);
        close(f->region_fd);
        close(f->book_fd);
}

static inline void lease_fixture_free(LeaseFixture *f)
{
        lease_free(f->lease);
        lease_fixture_deinit(f);
        free(f);
}

static inline bool lease_fixture_is_taken(const LeaseFixture *f, uint32_t unit)
{
        return atomic_load_explicit(&f->words[unit / 64], memory_order_relaxed) >> unit % 64 & 1;
}

/* False: some of it is taken, or outside. */
static inline bool lease_fixture_take(LeaseFixture *f, uint32_t first, uint32_t n_units)
{
        if ((uint64_t)first + n_units > f->n_units || n_units == 0)
                return false;
        for (uint32_t unit = first; unit < first + n_units; unit++)
                if (lease_fixture_is_taken(f, unit))
                        return false;
        for (uint32_t unit = first; unit < first + n_units; unit++)
                atomic_fetch_or_explicit(&f->words[unit / 64], UINT64_C(1) << unit % 64, memory_order_release);
        return true;
}

/* In two steps, between which a client may look. */
static inline void lease_fixture_log(LeaseFixture *f, uint32_t first, uint32_t n_units)
{
        uint64_t n = atomic_load_explicit(&f->book->n_freed, memory_order_relaxed);

        atomic_store_explicit(&f->book->freed[n % LEASE_FREED_MAX], lease_freed(first, n_units), memory_order_release);
        atomic_store_explicit(&f->book->n_freed, n + 1, memory_order_release);
}

static inline void lease_fixture_clear(LeaseFixture *f, uint32_t first, uint32_t n_units)
{
        for (uint32_t unit = first; unit < first + n_units; unit++)
                atomic_fetch_and_explicit(&f->words[unit / 64], ~(UINT64_C(1) << unit % 64), memory_order_release);
}

#endif
