/* SPDX-License-Identifier: Apache-2.0 */
/* The client's end of a ring, step by step: one thread is both sides. Then memory that nobody should have written. */
#include "tests/unit/client-ring-fixture.h"

#include <errno.h>
#include <sys/wait.h>

#include "tests/unit/fail-alloc.h"

static void test_records_in_order(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        RingRecord *record;
        uint64_t sequence;

        for (uint64_t i = 0; i < 1000; i++) {
                assert_int_equal(fixture_submit(f, i, 0, false), i);
                assert_int_equal(f->shared->tail, i + 1);
                assert_int_equal(f->records[i % 8].size_bytes, i);
                if (i % 5 == 4)
                        fixture_drain(f);
        }
        assert_int_equal(ring_tail(f->ring), 1000);
        assert_int_equal(ring_head(f->ring), 1000);
        assert_int_equal(f->progress, 1000);
        assert_int_equal(f->n_failures, 0);

        /* What was begun and given up was never there. */
        assert_int_equal(ring_begin(f->ring, 0, &record, &sequence), 0);
        assert_int_equal(sequence, 1000);
        ring_cancel(f->ring);
        assert_int_equal(f->shared->tail, 1000);
        assert_int_equal(fixture_submit(f, 7, 0, false), 1000);
        fixture_free(f);
}

static void test_full(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        RingRecord *record;
        uint64_t sequence;

        for (unsigned i = 0; i < 8; i++)
                fixture_submit(f, i, 0, false);
        assert_int_equal(ring_begin(f->ring, 0, &record, &sequence), RING_E_TIMEOUT);
        assert_int_equal(ring_begin(f->ring, 1000 * 1000, &record, &sequence), RING_E_TIMEOUT);
        assert_int_equal(f->shared->n_sleeping, 0);
        /* One place is enough. */
        fixture_do(f, STATUS_OK, NULL);
        fixture_publish(f);
        assert_int_equal(fixture_submit(f, 8, 0, false), 8);
        assert_int_equal(ring_begin(f->ring, 0, &record, &sequence), RING_E_TIMEOUT);

        /* Nobody will ever make room. */
        atomic_store(&f->is_dead, true);
        assert_int_equal(ring_begin(f->ring, UINT64_MAX, &record, &sequence), RING_E_GONE);
        assert_true(f->n_asked > 0);
        /* It is asked once: who comes later does not wait for the next time. */
        f->n_asked = 0;
        assert_int_equal(ring_wait(f->ring, 8, UINT64_MAX), RING_E_GONE);
        assert_int_equal(f->n_asked, 0);
        /* What has been carried out has been, nevertheless. */
        assert_int_equal(ring_wait(f->ring, 0, UINT64_MAX), 0);
        fixture_drain(f);
        assert_int_equal(ring_wait(f->ring, 8, UINT64_MAX), 0);
        fixture_free(f);
}

static void test_bell(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        uint64_t n;

        fixture_submit(f, 0, 0, false);
        assert_int_equal(read(f->bell_fd, &n, sizeof(n)), -1);
        fixture_drain(f);
        assert_int_equal(ring_hang_bell(f->shared, f->head), 0);
        fixture_submit(f, 1, 0, false);
        fixture_submit(f, 2, 0, false);
        assert_int_equal(read(f->bell_fd, &n, sizeof(n)), sizeof(n));
        assert_int_equal(n, 1);
        assert_int_equal(f->shared->bell, 0);
        /* What came before it was hung is not rung for. */
        assert_int_equal(ring_hang_bell(f->shared, f->head), 1);
        assert_int_equal(read(f->bell_fd, &n, sizeof(n)), -1);
        fixture_free(f);
}

static void test_results(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        char text[RING_FAILURE_BYTES_MAX + 1];
        uint64_t good, bad, other;
        RingResult result;

        good = fixture_submit(f, 41, 0, true);
        bad = fixture_submit(f, 42, 0, true);
        other = fixture_submit(f, 43, 0, false);
        assert_false(ring_try_result(f->ring, good, &result, text));
        fixture_do(f, STATUS_OK, NULL);
        fixture_publish(f);
        assert_true(ring_try_result(f->ring, good, &result, text));
        assert_int_equal(result.status, STATUS_OK);
        assert_int_equal(result.slot, 41);
        assert_int_equal(result.generation, 42);
        assert_int_equal(result.sequence, good + 1);
        assert_string_equal(text, "");

        fixture_do(f, STATUS_EXISTS, "there is one");
        fixture_do(f, STATUS_FULL, "too much");
        fixture_publish(f);
        assert_int_equal(ring_wait(f->ring, other, 0), 0);
        /* The one that is waited for is not told to others; the other had no room for its sentence. */
        assert_int_equal(f->n_failures, 1);
        assert_int_equal(f->failed_size_bytes[0], 43);
        assert_int_equal(f->failed_status[0], STATUS_FULL);
        assert_string_equal(f->failed_text[0], "");
        assert_int_equal(f->shared->failure_sequence, 0);
        assert_int_equal(ring_wait_result(f->ring, bad, 0, &result, text), 0);
        assert_int_equal(result.status, STATUS_EXISTS);
        assert_string_equal(text, "there is one");

        /* The next has the room. */
        fixture_submit(f, 44, 0, false);
        fixture_do(f, STATUS_EXISTS, "again");
        fixture_publish(f);
        assert_int_equal(ring_head(f->ring), 4);
        assert_int_equal(f->n_failures, 2);
        assert_string_equal(f->failed_text[1], "again");
        fixture_free(f);
}

/* Failures are told once, in order, before their places are used again, also where nobody ever waits. */
static void test_failures_nobody_waits_for(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        unsigned n = 0;

        for (uint64_t i = 0; i < 60; i++) {
                fixture_submit(f, i, 0, false);
                if (i % 3 == 0) {
                        fixture_do(f, STATUS_ACCESS, "no");
                        n++;
                } else {
                        fixture_do(f, STATUS_OK, NULL);
                }
                fixture_publish(f);
        }
        assert_int_equal(ring_catch_up(f->ring, 0, 0), 0);
        assert_int_equal(f->n_failures, n);
        for (unsigned i = 0; i < n; i++) {
                assert_int_equal(f->failed_size_bytes[i], 3 * i);
                assert_int_equal(f->failed_status[i], STATUS_ACCESS);
        }
        fixture_free(f);
}

/* A result that nobody has asked for yet does not keep its place for ever. */
static void test_results_are_kept(void **state)
{
        enum { N = 500 };
        RingFixture *f = fixture_new_at(8, UINT32_MAX - 100);
        char text[RING_FAILURE_BYTES_MAX + 1];
        uint64_t sequences[N];
        RingResult result;
        unsigned n_told = 0;

        for (uint64_t i = 0; i < N; i++) {
                sequences[i] = fixture_submit(f, i, 0, true);
                fixture_do(f, i % 7 == 0 ? STATUS_FULL : STATUS_OK, "full");
                fixture_publish(f);
        }
        for (uint64_t i = 0; i < N; i += 2) {
                bool by_waiting = i % 4 == 0;

                if (by_waiting)
                        assert_int_equal(ring_wait_result(f->ring, sequences[i], 0, &result, text), 0);
                else
                        assert_true(ring_try_result(f->ring, sequences[i], &result, text));
                assert_int_equal(result.slot, i);
                assert_int_equal(result.generation, i + 1);
                assert_int_equal(result.status, i % 7 == 0 ? STATUS_FULL : STATUS_OK);
                if (i % 7 != 0)
                        assert_string_equal(text, "");
        }
        assert_int_equal(f->n_failures, 0);
        for (uint64_t i = N - 1; i < N; i -= 2) {
                ring_forget_result(f->ring, sequences[i]);
                n_told += i % 7 == 0;
                assert_int_equal(f->n_failures, n_told);
                if (i % 7 == 0)
                        assert_int_equal(f->failed_size_bytes[(n_told - 1) % FIXTURE_FAILURES_MAX], i);
        }
        fixture_free(f);
}

static void test_forgotten_before(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        char text[RING_FAILURE_BYTES_MAX + 1];
        uint64_t good, bad;
        RingResult result;

        good = fixture_submit(f, 1, 0, true);
        bad = fixture_submit(f, 2, 0, true);
        ring_forget_result(f->ring, good);
        ring_forget_result(f->ring, bad);
        fixture_do(f, STATUS_OK, NULL);
        fixture_do(f, STATUS_FULL, "full");
        fixture_publish(f);
        assert_int_equal(ring_head(f->ring), 2);
        assert_int_equal(f->n_failures, 1);
        assert_int_equal(f->failed_size_bytes[0], 2);
        assert_string_equal(f->failed_text[0], "full");
        /* Who gives up waiting has given the result up. */
        bad = fixture_submit(f, 3, 0, true);
        assert_int_equal(ring_wait_result(f->ring, bad, 1000, &result, text), RING_E_TIMEOUT);
        fixture_do(f, STATUS_FULL, NULL);
        fixture_publish(f);
        assert_int_equal(ring_head(f->ring), 3);
        assert_int_equal(f->n_failures, 2);
        fixture_free(f);
}

static void test_catch_up(void **state)
{
        /* The low half of the numbers runs over in the midst of it. */
        static const uint64_t begun[] = { 0, UINT32_MAX - 3, (UINT64_C(5) << 32) - 1 };

        for (size_t i = 0; i < ARRAY_SIZE(begun); i++) {
                RingFixture *f = fixture_new_at(16, begun[i]);

                assert_true(ring_is_caught_up(f->ring, 17));
                assert_true(ring_is_caught_up(f->ring, 0));
                fixture_submit(f, 0, 17, false);
                fixture_submit(f, 0, 18, false);
                fixture_submit(f, 0, 0, false);
                assert_false(ring_is_caught_up(f->ring, 17));
                assert_false(ring_is_caught_up(f->ring, 18));
                assert_true(ring_is_caught_up(f->ring, 19));
                assert_false(ring_is_caught_up(f->ring, 0));
                assert_int_equal(ring_catch_up(f->ring, 17, 0), RING_E_TIMEOUT);
                assert_int_equal(ring_catch_up(f->ring, 19, 0), 0);
                fixture_do(f, STATUS_OK, NULL);
                fixture_publish(f);
                assert_true(ring_is_caught_up(f->ring, 17));
                assert_false(ring_is_caught_up(f->ring, 18));
                assert_int_equal(ring_catch_up(f->ring, 17, 0), 0);
                assert_int_equal(ring_catch_up(f->ring, 18, 1000), RING_E_TIMEOUT);
                fixture_do(f, STATUS_OK, NULL);
                fixture_publish(f);
                assert_int_equal(ring_catch_up(f->ring, 18, 0), 0);
                assert_int_equal(ring_catch_up(f->ring, 0, 0), RING_E_TIMEOUT);
                fixture_do(f, STATUS_FULL, "late");
                fixture_publish(f);
                assert_true(ring_is_caught_up(f->ring, 0));
                /* Who waits for everything has been told of what failed. */
                assert_int_equal(f->n_failures, 0);
                assert_int_equal(ring_catch_up(f->ring, 0, 0), 0);
                assert_int_equal(f->n_failures, 1);
                /* And it stays so, however far the ring has come since. */
                for (unsigned j = 0; j < 100; j++) {
                        fixture_submit(f, 0, 1000 + j, false);
                        assert_true(ring_is_caught_up(f->ring, 17));
                        fixture_drain(f);
                }
                fixture_free(f);
        }
}

static void test_lease_use(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);

        for (uint32_t i = 0; i < RING_LEASES_MAX; i++)
                atomic_fetch_add(ring_lease_use(f->ring, i), i);
        for (uint32_t i = 0; i < RING_LEASES_MAX; i++)
                assert_int_equal(f->shared->lease_use[i], i);
        fixture_free(f);
}

/* -- what is taken in ---------------------------------------------------------------------------------------------- */

typedef struct LayoutCase {
        const char *what;
        size_t offset;               /* in the header */
        size_t n_bytes;
        uint64_t value;
} LayoutCase;

#define LAYOUT_CASE(field, value)                                                                                      \
        { #field " " #value, offsetof(RingHeader, field), sizeof(((RingHeader *)0)->field), value }

static void test_layouts(void **state)
{
        enum { RECORDS = 4096, RESULTS = 4096 + 8 * 128, ALL = RESULTS + 8 * 32 };
        static const LayoutCase cases[] = {
                LAYOUT_CASE(magic, 0), LAYOUT_CASE(magic, RING_MAGIC + 1), LAYOUT_CASE(version, 0),
                LAYOUT_CASE(version, 2), LAYOUT_CASE(n_records, 0), LAYOUT_CASE(n_records, 7),
                LAYOUT_CASE(n_records, 16), LAYOUT_CASE(n_records, 65536), LAYOUT_CASE(n_records, 131072),
                LAYOUT_CASE(n_records, UINT32_MAX), LAYOUT_CASE(n_records, UINT32_C(1) << 31),
                LAYOUT_CASE(region_bytes, 0), LAYOUT_CASE(region_bytes, ALL - 1), LAYOUT_CASE(region_bytes, ALL + 1),
                LAYOUT_CASE(region_bytes, UINT64_MAX), LAYOUT_CASE(records_offset, 0),
                LAYOUT_CASE(records_offset, RECORDS - 64), LAYOUT_CASE(records_offset, RECORDS + 1),
                LAYOUT_CASE(records_offset, ALL - 1024 + 64), LAYOUT_CASE(records_offset, UINT64_MAX - 63),
                LAYOUT_CASE(results_offset, 0), LAYOUT_CASE(results_offset, RESULTS + 8),
                LAYOUT_CASE(results_offset, RESULTS + 64), LAYOUT_CASE(results_offset, UINT64_MAX - 63),
                LAYOUT_CASE(head, 1), LAYOUT_CASE(tail, 1), LAYOUT_CASE(head, UINT64_MAX),
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                RingFixture f = { 0 };
                int fd = fixture_make(&f, 8);

                assert_int_equal(f.n_bytes, ALL);
                memcpy((uint8_t *)f.shared + cases[i].offset, &cases[i].value, cases[i].n_bytes);
                if (fixture_new_ring(&f, fd) != RING_E_LAYOUT)
                        fail_msg("taken in: %s", cases[i].what);
                munmap(f.shared, f.n_bytes);
                close(f.bell_fd);
        }
}

static void test_layouts_at_their_limits(void **state)
{
        static const uint32_t n_records[] = { 1, 2, 4, RING_RECORDS, 65536 };

        for (size_t i = 0; i < ARRAY_SIZE(n_records); i++) {
                RingFixture *f = fixture_new_at(n_records[i], 5);

                for (uint64_t j = 0; j < 3 * (uint64_t)n_records[i]; j++) {
                        assert_int_equal(fixture_submit(f, j, j, j % 2), 5 + j);
                        if (j % n_records[i] == n_records[i] - 1)
                                fixture_drain(f);
                }
                assert_int_equal(ring_catch_up(f->ring, 0, 0), 0);
                assert_int_equal(ring_head_seen(f->ring), ring_tail(f->ring));
                fixture_free(f);
        }
}

static void test_no_ring_at_all(void **state)
{
        RingFixture f = { 0 };
        int fds[2];

        f.bell_fd = eventfd(0, EFD_CLOEXEC);
        assert_int_equal(fixture_new_ring(&f, memfd_create("empty", MFD_CLOEXEC)), RING_E_LAYOUT);
        assert_int_equal(pipe(fds), 0);
        assert_int_equal(fixture_new_ring(&f, fds[0]), RING_E_LAYOUT);
        assert_true(fixture_new_ring(&f, -1) < 0);
        close(fds[1]);
        close(f.bell_fd);
        ring_free(NULL);
}

/* -- memory that nobody should have written ------------------------------------------------------------------------ */

static void assert_broken(RingFixture *f)
{
        char text[RING_FAILURE_BYTES_MAX + 1];
        RingResult result;
        RingRecord *record;
        uint64_t sequence;

        assert_int_equal(ring_begin(f->ring, UINT64_MAX, &record, &sequence), RING_E_GONE);
        assert_int_equal(ring_wait(f->ring, ring_tail(f->ring) - 1, UINT64_MAX), RING_E_GONE);
        assert_int_equal(ring_wait_result(f->ring, ring_tail(f->ring) - 1, UINT64_MAX, &result, text), RING_E_GONE);
        assert_false(ring_try_result(f->ring, ring_tail(f->ring) - 1, &result, text));
        assert_int_equal(ring_catch_up(f->ring, 0, UINT64_MAX), RING_E_GONE);
}

static void test_hostile_heads(void **state)
{
        static const uint64_t heads[] = { 0, 3, 9, UINT64_MAX, UINT64_MAX / 2, (UINT64_C(1) << 32) + 4 };

        for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
                RingFixture *f = fixture_new_at(8, 4);

                for (unsigned j = 0; j < 4; j++)
                        fixture_submit(f, j, 100 + j, j == 3);
                fixture_do(f, STATUS_OK, NULL);
                fixture_publish(f);
                assert_int_equal(ring_head(f->ring), 5);
                ring_publish_head(f->shared, heads[i]);
                assert_int_equal(ring_head(f->ring), 5);
                assert_broken(f);
                /* There is no way back. */
                ring_publish_head(f->shared, 6);
                assert_int_equal(ring_head(f->ring), 5);
                assert_broken(f);
                fixture_free(f);
        }
}

static void test_hostile_results(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        char text[RING_FAILURE_BYTES_MAX + 1];
        uint64_t sequence;
        RingResult result;

        /* None was written where one was asked for; and one of a number that is nobody's. */
        sequence = fixture_submit(f, 1, 0, true);
        f->head++;
        fixture_publish(f);
        assert_int_equal(ring_wait_result(f->ring, sequence, 0, &result, text), 0);
        assert_int_equal(result.status, STATUS_PROTOCOL);
        sequence = fixture_submit(f, 1, 0, true);
        fixture_do(f, UINT32_MAX, "what?");
        f->shared->failure_bytes = UINT32_MAX;
        memset(f->shared->failure_text, 'x', sizeof(f->shared->failure_text));
        fixture_publish(f);
        assert_int_equal(ring_wait_result(f->ring, sequence, 0, &result, text), 0);
        assert_int_equal(result.status, UINT32_MAX);
        assert_int_equal(strlen(text), RING_FAILURE_BYTES_MAX);

        /* A count that is nonsense makes us look, and nothing else. */
        memset(f->results, 0xff, 8 * sizeof(*f->results));
        for (unsigned i = 0; i < 100; i++) {
                fixture_submit(f, i, 0, false);
                atomic_store(&f->shared->n_failed, UINT64_MAX - i * 7919);
                f->head++;
                fixture_publish(f);
        }
        assert_int_equal(ring_catch_up(f->ring, 0, 0), 0);
        assert_int_equal(f->n_failures, 0);
        /* A sentence that is nobody's does not stay for ever. */
        atomic_store(&f->shared->failure_sequence, 3);
        fixture_submit(f, 5, 0, false);
        fixture_do(f, STATUS_FULL, "not kept");
        fixture_publish(f);
        assert_int_equal(ring_catch_up(f->ring, 0, 0), 0);
        assert_int_equal(f->n_failures, 1);
        assert_string_equal(f->failed_text[0], "");
        assert_int_equal(f->shared->failure_sequence, 0);
        fixture_free(f);
}

/* Everything random, all the time: it ends, and stays within its memory. */
static void test_hostile_noise(void **state)
{
        uint64_t random = 88172645463325252u;

        for (unsigned round = 0; round < 200; round++) {
                RingFixture *f = fixture_new_at(16, 0);
                char text[RING_FAILURE_BYTES_MAX + 1];
                RingResult result;
                bool is_over = false;

                for (unsigned i = 0; i < 50 && !is_over; i++) {
                        RingRecord *record;
                        uint64_t sequence;

                        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                        is_over = ring_begin(f->ring, 1000, &record, &sequence) != 0;
                        if (is_over)
                                break;
                        ring_submit(f->ring, random, random % 3 == 0);
                        for (size_t j = 0; j < 16; j++) {
                                f->results[j].status = (uint32_t)(random >> j);
                                f->results[j].sequence = (uint32_t)(sequence + 1 - (random >> j & 3));
                        }
                        f->shared->n_failed = random;
                        f->shared->failure_sequence = sequence + 1 - (random & 1);
                        f->shared->failure_bytes = (uint32_t)random;
                        f->shared->head_futex = (uint32_t)random;
                        f->shared->head = sequence + 1 - (random % 64 == 0 ? random : random & 3);
                        (void)ring_catch_up(f->ring, random, 100);
                        if (random % 3 == 0)
                                is_over = ring_wait_result(f->ring, sequence, 100, &result, text) != 0;
                }
                fixture_free(f);
        }
}

/* -- the rest ------------------------------------------------------------------------------------------------------ */

static void test_not_inherited(void **state)
{
        RingFixture *f = fixture_new_at(8, 0);
        int status;
        pid_t pid;

        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                /* The fixture's own mapping is there, the ring's is not. */
                unsigned char vector;
                void *page = (void *)ALIGN_DOWN((uintptr_t)ring_lease_use(f->ring, 0), (uintptr_t)4096);

                _exit(mincore(f->shared, 4096, &vector) == 0 && mincore(page, 4096, &vector) < 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        fixture_free(f);
}

static int attempt_new(void)
{
        RingFixture f = { 0 };
        int fd = fixture_make(&f, 8);
        int r = fixture_new_ring(&f, fd);

        if (r == 0)
                ring_free(f.ring);
        munmap(f.shared, f.n_bytes);
        close(f.bell_fd);
        return r;
}

static void test_no_memory_new(void **state)
{
        fail_alloc_sweep(attempt_new);
}

/* Results that cannot be kept stay where they are, and are in the way. */
static int attempt_keep(void)
{
#ifndef FAIL_ALLOC_SANITIZED
        int countdown = atomic_exchange(&fail_alloc_countdown, 0);
        RingFixture *f = fixture_new_at(4, 0);
        char text[RING_FAILURE_BYTES_MAX + 1];
        uint64_t sequence = 0;
        RingRecord *record;
        RingResult result;
        int r = 0;

        for (unsigned i = 0; i < 4; i++)
                fixture_submit(f, i, 0, i < 2);
        atomic_store(&fail_alloc_countdown, countdown);
        for (unsigned i = 0; i < 2 && r == 0; i++) {
                fixture_do(f, i == 0 ? STATUS_OK : STATUS_FULL, "full");
                fixture_publish(f);
                r = ring_begin(f->ring, UINT64_MAX, &record, &sequence) == 0 ? 0 : -ENOMEM;
                if (r == 0)
                        ring_submit(f->ring, 0, false);
        }
        countdown = atomic_exchange(&fail_alloc_countdown, 0);
        /* Whatever happened, nothing is lost but perhaps the sentence. */
        assert_int_equal(ring_wait_result(f->ring, 0, 0, &result, text), 0);
        assert_int_equal(result.status, STATUS_OK);
        if (f->head == 1)
                fixture_do(f, STATUS_FULL, "full");
        fixture_drain(f);
        assert_int_equal(ring_wait_result(f->ring, 1, 0, &result, text), 0);
        assert_int_equal(result.status, STATUS_FULL);
        assert_int_equal(result.slot, 1);
        fixture_submit(f, 5, 0, false);
        fixture_free(f);
        atomic_store(&fail_alloc_countdown, countdown);
        return r;
#else
        return 0;
#endif
}

static void test_no_memory_keep(void **state)
{
        fail_alloc_sweep(attempt_keep);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_records_in_order),
                UNIT_TEST(test_full),
                UNIT_TEST(test_bell),
                UNIT_TEST(test_results),
                UNIT_TEST(test_failures_nobody_waits_for),
                UNIT_TEST(test_results_are_kept),
                UNIT_TEST(test_forgotten_before),
                UNIT_TEST(test_catch_up),
                UNIT_TEST(test_lease_use),
                UNIT_TEST(test_layouts),
                UNIT_TEST(test_layouts_at_their_limits),
                UNIT_TEST(test_no_ring_at_all),
                UNIT_TEST(test_hostile_heads),
                UNIT_TEST(test_hostile_results),
                UNIT_TEST(test_hostile_noise),
                UNIT_TEST(test_not_inherited),
                UNIT_TEST(test_no_memory_new),
                UNIT_TEST(test_no_memory_keep),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
