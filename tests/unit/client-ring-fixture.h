/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's ring, and the other end of it worked by the test: the same memory, mapped once more. What the ring's
 * user is told is written down.
 */
#ifndef TESTS_UNIT_CLIENT_RING_FIXTURE_H
#define TESTS_UNIT_CLIENT_RING_FIXTURE_H

#include "tests/unit/harness.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/ring.h"
#include "proto/status.h"

#define FIXTURE_FAILURES_MAX 64
#define FIXTURE_WAIT_NS (UINT64_C(20) * 1000 * 1000 * 1000)

typedef struct RingFixture {
        RingHeader *shared;
        RingRecord *records;
        RingResult *results;
        size_t n_bytes;
        uint32_t n_records;
        uint64_t head;               /* the other end's own */
        uint64_t n_carried_out_failed;
        int bell_fd;
        Ring *ring;
        /* What the user was told. */
        atomic_bool is_dead;
        atomic_uint n_asked;
        unsigned n_failures;
        uint64_t failed_size_bytes[FIXTURE_FAILURES_MAX];
        uint32_t failed_status[FIXTURE_FAILURES_MAX];
        char failed_text[FIXTURE_FAILURES_MAX][RING_FAILURE_BYTES_MAX + 1];
        uint64_t progress;
        unsigned n_progress;
} RingFixture;

static inline bool fixture_is_alive(void *userdata)
{
        RingFixture *f = userdata;

        atomic_fetch_add(&f->n_asked, 1);
        return !atomic_load(&f->is_dead);
}

static inline void fixture_on_failure(void *userdata, const RingRecord *record, uint32_t status, const char *text)
{
        RingFixture *f = userdata;
        unsigned i = f->n_failures++ % FIXTURE_FAILURES_MAX;

        f->failed_size_bytes[i] = record->size_bytes;
        f->failed_status[i] = status;
        snprintf(f->failed_text[i], sizeof(f->failed_text[i]), "%s", text);
}

static inline void fixture_on_progress(void *userdata, uint64_t head)
{
        RingFixture *f = userdata;

        f->progress = head;
        f->n_progress++;
}

/* The memory as a daemon makes it, and its descriptor. */
static inline int fixture_make(RingFixture *f, uint32_t n_records)
{
        int fd = memfd_create("ring", MFD_CLOEXEC);
        uint64_t records_bytes = (uint64_t)n_records * sizeof(RingRecord);

        f->n_records = n_records;
        f->n_bytes = sizeof(RingHeader) + records_bytes + (uint64_t)n_records * sizeof(RingResult);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)f->n_bytes), 0);
        f->shared = mmap(NULL, f->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(f->shared != MAP_FAILED);
        f->shared->magic = RING_MAGIC;
        f->shared->version = RING_VERSION;
        f->shared->n_records = n_records;
        f->shared->region_bytes = f->n_bytes;
        f->shared->records_offset = sizeof(RingHeader);
        f->shared->results_offset = sizeof(RingHeader) + records_bytes;
        f->records = (RingRecord *)((uint8_t *)f->shared + f->shared->records_offset);
        f->results = (RingResult *)((uint8_t *)f->shared + f->shared->results_offset);
        f->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_true(f->bell_fd >= 0);
        return fd;
}

static inline int fixture_new_ring(RingFixture *f, int fd)
{
        RingConfig config = {
                .is_alive = fixture_is_alive,
                .on_failure = fixture_on_failure,
                .on_progress = fixture_on_progress,
                .userdata = f,
        };

        return ring_new(&config, fd, fcntl(f->bell_fd, F_DUPFD_CLOEXEC, 3), &f->ring);
}

/* From number @begun on: as a ring that has been in use for long. */
static inline RingFixture *fixture_new_at(uint32_t n_records, uint64_t begun)
{
        RingFixture *f = calloc(1, sizeof(*f));
        int fd;

        assert_non_null(f);
        fd = fixture_make(f, n_records);
        f->shared->head = f->shared->tail = f->head = begun;
        assert_int_equal(fixture_new_ring(f, fd), 0);
        return f;
}

static inline void fixture_free(RingFixture *f)
{
        ring_free(f->ring);
        (void)munmap(f->shared, f->n_bytes);
        close(f->bell_fd);
        free(f);
}

static inline bool fixture_has_records(const RingFixture *f)
{
        return atomic_load_explicit(&f->shared->tail, memory_order_acquire) != f->head;
}

/* Carries the next record out with this outcome; it is seen by nobody before fixture_publish(). */
static inline void fixture_do(RingFixture *f, uint32_t status, const char *text)
{
        const RingRecord *record = &f->records[f->head & (f->n_records - 1)];
        RingResult *result = &f->results[f->head & (f->n_records - 1)];

        assert_true(fixture_has_records(f));
        if (status != STATUS_OK || (record->flags & RING_FLAG_RESULT)) {
                result->status = status;
                result->slot = (uint32_t)record->size_bytes;
                result->generation = record->size_bytes + 1;
                atomic_store_explicit(&result->sequence, (uint32_t)(f->head + 1), memory_order_release);
        }
        if (status != STATUS_OK) {
                if (text && atomic_load_explicit(&f->shared->failure_sequence, memory_order_acquire) == 0) {
                        f->shared->failure_status = status;
                        f->shared->failure_bytes = (uint32_t)strlen(text);
                        memcpy(f->shared->failure_text, text, strlen(text));
                        atomic_store_explicit(&f->shared->failure_sequence, f->head + 1, memory_order_release);
                }
                f->n_carried_out_failed++;
                atomic_store_explicit(&f->shared->n_failed, f->n_carried_out_failed, memory_order_release);
        }
        f->head++;
}

static inline void fixture_publish(RingFixture *f)
{
        ring_publish_head(f->shared, f->head);
        if (ring_has_sleepers(f->shared))
                (void)syscall(SYS_futex, &f->shared->head_futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* All that is there, well. */
static inline void fixture_drain(RingFixture *f)
{
        while (fixture_has_records(f))
                fixture_do(f, STATUS_OK, NULL);
        fixture_publish(f);
}

/* A record that can be told by its size. */
static inline uint64_t fixture_submit(RingFixture *f, uint64_t size_bytes, uint64_t hash, bool wants_result)
{
        RingRecord *record;
        uint64_t sequence;

        assert_int_equal(ring_begin(f->ring, FIXTURE_WAIT_NS, &record, &sequence), 0);
        *record = (RingRecord){ .verb = RING_VERB_PUT, .size_bytes = size_bytes };
        ring_submit(f->ring, hash, wants_result);
        return sequence;
}

#endif
