/* SPDX-License-Identifier: Apache-2.0 */
/* Where objects go in a leased region, rule by rule; and books that are not those of the region. */
#include "tests/unit/book-fixture.h"

#include <errno.h>
#include <sys/wait.h>

#include "tests/unit/fail-alloc.h"

/* Places and publishes as record @sequence; the book knows nothing of it yet. */
static uint64_t put(LeaseFixture *f, uint64_t n_bytes, uint64_t sequence)
{
        uint64_t offset = UINT64_MAX;
        void *data = NULL;

        assert_true(lease_begin(f->lease));
        assert_int_equal(lease_place(f->lease, n_bytes, sequence, &offset, &data), LEASE_PLACE_OK);
        assert_true(offset <= f->region_bytes && n_bytes <= f->region_bytes - offset);
        assert_int_equal(offset % LEASE_UNIT_BYTES, 0);
        assert_ptr_equal(data, lease_data(f->lease) + offset);
        if (n_bytes >= 32 * KIB)
                assert_int_equal(offset % PAGE_BYTES, 0);
        lease_placed(f->lease, sequence);
        lease_end(f->lease);
        return offset;
}

static int try(LeaseFixture *f, uint64_t n_bytes, uint64_t head)
{
        uint64_t offset;
        void *data;
        int r = lease_place(f->lease, n_bytes, head, &offset, &data);

        if (r == LEASE_PLACE_OK)
                lease_unplace(f->lease, offset, n_bytes);
        return r;
}

static void take(LeaseFixture *f, uint64_t offset, uint64_t n_bytes)
{
        assert_true(lease_fixture_take(f, (uint32_t)(offset / LEASE_UNIT_BYTES), (uint32_t)lease_units(n_bytes)));
}

static void give(LeaseFixture *f, uint64_t offset, uint64_t n_bytes)
{
        lease_fixture_log(f, (uint32_t)(offset / LEASE_UNIT_BYTES), (uint32_t)lease_units(n_bytes));
        lease_fixture_clear(f, (uint32_t)(offset / LEASE_UNIT_BYTES), (uint32_t)lease_units(n_bytes));
}

static void test_window_in_order(void **state)
{
        static const uint64_t sizes[] = { 0, 1, 63, 64, 65, 128, 1000 };
        LeaseFixture *f = lease_fixture_new(2 * MIB);
        uint64_t expected = 0, sequence = 0;

        assert_int_equal(lease_region_id(f->lease), FIXTURE_REGION_ID);
        assert_int_equal(lease_region_bytes(f->lease), 2 * MIB);
        assert_int_equal(lease_last(f->lease), 0);
        for (size_t i = 0; i < 70; i++) {
                uint64_t n_bytes = sizes[i % ARRAY_SIZE(sizes)];

                assert_int_equal(put(f, n_bytes, sequence++), expected);
                expected += ALIGN_UP(MAX(n_bytes, 1), 64);
                assert_int_equal(lease_last(f->lease), sequence);
        }
        assert_int_equal(f->use, 0);
        lease_fixture_free(f);
}

static void test_sizes_at_their_limits(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);

        assert_int_equal(try(f, 2 * MIB, 0), LEASE_PLACE_OK);
        assert_int_equal(try(f, 2 * MIB + 1, 0), LEASE_PLACE_FULL);
        assert_int_equal(try(f, UINT64_MAX, 0), LEASE_PLACE_FULL);
        assert_int_equal(try(f, LEASE_REGION_BYTES_MAX, 0), LEASE_PLACE_FULL);
        assert_int_equal(put(f, 2 * MIB, 0), 0);
        /* That has not been carried out: the book would call it free. */
        assert_int_equal(try(f, 1, 0), LEASE_PLACE_BEHIND);
        take(f, 0, 2 * MIB);
        assert_int_equal(try(f, 1, 1), LEASE_PLACE_FULL);
        assert_int_equal(try(f, 1, 1), LEASE_PLACE_FULL);
        give(f, 0, 2 * MIB);
        assert_int_equal(put(f, 2 * MIB, 1), 0);
        lease_fixture_free(f);
}

/* What came free of just this size is used first, the newest before the others; nothing before its bits are clear. */
static void test_freed_newest_first(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);
        uint64_t offsets[8], other;

        for (unsigned i = 0; i < 8; i++) {
                offsets[i] = put(f, 200, i);
                take(f, offsets[i], 200);
        }
        other = put(f, 64, 8);
        take(f, other, 64);
        give(f, offsets[3], 200);
        give(f, offsets[5], 200);
        give(f, other, 64);
        lease_fixture_log(f, (uint32_t)(offsets[6] / 64), 4);
        assert_int_equal(put(f, 193, 9), offsets[5]);
        assert_int_equal(put(f, 256, 10), offsets[3]);
        assert_int_equal(put(f, 60, 11), other);
        assert_true(put(f, 200, 12) > other);
        lease_fixture_clear(f, (uint32_t)(offsets[6] / 64), 4);
        assert_int_equal(put(f, 200, 13), offsets[6]);
        /* Given back: as if nothing had been. */
        assert_int_equal(try(f, 200, 14), LEASE_PLACE_OK);
        assert_int_equal(lease_last(f->lease), 14);
        lease_fixture_free(f);
}

static void test_unplace(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);
        uint64_t first, second, third;
        void *data;

        assert_int_equal(lease_place(f->lease, 100, 0, &first, &data), LEASE_PLACE_OK);
        assert_int_equal(lease_place(f->lease, 100, 0, &second, &data), LEASE_PLACE_OK);
        assert_true(first != second);
        lease_unplace(f->lease, first, 100);
        assert_int_equal(lease_place(f->lease, 100, 0, &third, &data), LEASE_PLACE_OK);
        assert_int_equal(third, first);
        lease_unplace(f->lease, second, 100);
        lease_unplace(f->lease, third, 100);
        assert_int_equal(lease_last(f->lease), 0);
        lease_fixture_free(f);
}

/* The next window lies behind the last, and around; what is placed and not yet published is stepped around. */
static void test_next_window(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);
        uint64_t offset, pending;
        void *data;

        for (uint64_t i = 0; i < 16; i++)
                take(f, put(f, 64 * KIB, i), 64 * KIB);
        assert_int_equal(try(f, 64, 16), LEASE_PLACE_FULL);
        /* In the first half and in the second, but not by the log. */
        lease_fixture_clear(f, 2 * 1024, 1024);
        lease_fixture_clear(f, 3 * 1024, 1024);
        lease_fixture_clear(f, 9 * 1024, 1024);
        lease_fixture_log(f, 15 * 1024, 1024);
        /* Enough has come free for another look. */
        assert_int_equal(lease_place(f->lease, 128 * KIB, 16, &offset, &data), LEASE_PLACE_OK);
        assert_int_equal(offset, 128 * KIB);
        lease_placed(f->lease, 16);
        assert_int_equal(lease_place(f->lease, 64 * KIB, 16, &pending, &data), LEASE_PLACE_OK);
        assert_int_equal(pending, 9 * 64 * KIB);
        assert_int_equal(try(f, 64, 16), LEASE_PLACE_BEHIND);
        take(f, offset, 128 * KIB);
        assert_int_equal(try(f, 64, 17), LEASE_PLACE_FULL);
        lease_placed_at(f->lease, pending, 17);
        assert_int_equal(lease_last(f->lease), 18);
        lease_fixture_free(f);
}

/* A run across where the search begins is one run. */
static void test_run_across_the_beginning(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);

        for (uint64_t i = 0; i < 16; i++)
                take(f, put(f, 64 * KIB, i), 64 * KIB);
        lease_fixture_clear(f, 7 * 1024, 1024);
        lease_fixture_log(f, 0, 1024);
        assert_int_equal(put(f, 64 * KIB, 16), 7 * 64 * KIB);
        take(f, 7 * 64 * KIB, 64 * KIB);
        lease_fixture_clear(f, 0, f->n_units);
        lease_fixture_log(f, 0, 1024);
        assert_int_equal(put(f, MIB, 17), 0);
        lease_fixture_free(f);
}

static void test_pages_waste_little(void **state)
{
        LeaseFixture *f = lease_fixture_new(4 * MIB);
        uint64_t used = 0, sequence = 0;
        int r = LEASE_PLACE_OK;

        /* Small ones fill the gaps between large ones. */
        while (r == LEASE_PLACE_OK) {
                uint64_t n_bytes = sequence % 4 == 0 ? 40 * KIB + 64 : 3 * KIB / 4, offset;
                void *data;

                r = lease_place(f->lease, n_bytes, UINT64_MAX, &offset, &data);
                if (r == LEASE_PLACE_OK) {
                        lease_placed_at(f->lease, offset, sequence++);
                        take(f, offset, n_bytes);
                        used += n_bytes;
                }
        }
        assert_true(used > 4 * MIB * 95 / 100);
        lease_fixture_free(f);
}

static void test_epoch(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);

        assert_true(lease_begin(f->lease));
        assert_true(lease_begin(f->lease));
        assert_int_equal(f->use, 2);
        atomic_fetch_add(&f->book->epoch, 1);
        assert_false(lease_begin(f->lease));
        assert_int_equal(f->use, 2);
        lease_end(f->lease);
        lease_end(f->lease);
        assert_int_equal(f->use, 0);
        lease_fixture_free(f);
}

static void test_guards(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);
        uint64_t offset, again, large;

        offset = put(f, 300, 0);
        take(f, offset, 300);
        assert_true(lease_guard(f->lease, offset, 300));
        assert_true(lease_guard(f->lease, offset, 300));
        assert_int_equal(f->use, 2);
        give(f, offset, 300);
        again = put(f, 300, 1);
        assert_true(again != offset);
        lease_unguard(f->lease, offset, 300);
        assert_true(put(f, 300, 2) != offset);
        lease_unguard(f->lease, offset, 300);
        assert_int_equal(put(f, 300, 3), offset);
        assert_int_equal(f->use, 0);

        /* Nor is there a window over it, wherever it is looked for. */
        assert_true(lease_guard(f->lease, again, 300));
        assert_int_equal(try(f, MIB, 4), LEASE_PLACE_FULL);
        large = put(f, MIB - 64 * KIB, 4);
        assert_true(large >= again + 300);
        lease_unguard(f->lease, again, 300);
        lease_fixture_free(f);
}

static void test_guard_was_in_the_way(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);

        assert_true(lease_guard(f->lease, 512 * KIB, 64 * KIB));
        assert_int_equal(try(f, MIB, 0), LEASE_PLACE_FULL);
        assert_int_equal(try(f, 513 * KIB, 0), LEASE_PLACE_FULL);
        lease_unguard(f->lease, 512 * KIB, 64 * KIB);
        assert_int_equal(try(f, MIB, 0), LEASE_PLACE_OK);
        lease_fixture_free(f);
}

static void test_references(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);
        Lease *lease = lease_ref(f->lease);

        lease_data(f->lease)[5] = 1;
        lease_unref(f->lease);
        assert_int_equal(lease_data(lease)[5], 1);
        lease_unref(lease);
        lease_unref(NULL);
        f->lease = NULL;
        lease_fixture_free(f);
}

/* What came free for the holder before may stand in the log more than once. */
static void test_log_from_before(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);

        lease_free(f->lease);
        for (unsigned i = 0; i < 4; i++)
                lease_fixture_log(f, 128, 2);
        assert_int_equal(lease_fixture_open(f), 0);
        assert_int_equal(put(f, 128, 0), 0);
        assert_int_equal(put(f, 128, 1), 128);
        assert_int_equal(put(f, 128, 2), 256);
        lease_fixture_free(f);
}

/*
 * What was placed last has been carried out by the next daemon, which has a book of its own: this one calls it free. What
 * was found in it before, nobody has used.
 */
static void test_book_of_a_dead_daemon(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);

        (void)state;
        assert_int_equal(put(f, MIB / 2, 0), 3 * MIB / 2);
        assert_int_equal(put(f, MIB, 1), MIB / 2);
        atomic_fetch_or(&f->beacon.owner, BEACON_OWNER_DIED);
        assert_int_equal(try(f, MIB, 1), LEASE_PLACE_BEHIND);
        assert_int_equal(put(f, 64, 2), 0);
        assert_int_equal(try(f, MIB, 3), LEASE_PLACE_FULL);
        assert_int_equal(try(f, MIB / 2 - 64, 3), LEASE_PLACE_FULL);
        assert_int_equal(try(f, 64, 3), LEASE_PLACE_FULL);
        lease_fixture_free(f);
}

/* More comes free than the log has room for. */
static void test_log_is_lapped(void **state)
{
        enum { N = 3000 };
        LeaseFixture *f = lease_fixture_new(2 * MIB);
        bool *is_used = calloc(f->n_units, sizeof(*is_used));
        uint64_t sequence = 0, offset;
        void *data;

        assert_non_null(is_used);
        for (unsigned i = 0; i < N; i++)
                take(f, put(f, 64, sequence++), 64);
        for (unsigned i = 0; i < N; i++)
                give(f, i * 64, 64);
        for (;;) {
                int r = lease_place(f->lease, 64, sequence, &offset, &data);

                if (r == LEASE_PLACE_FULL)
                        break;
                assert_int_equal(r, LEASE_PLACE_OK);
                assert_false(is_used[offset / 64]);
                is_used[offset / 64] = true;
                lease_placed_at(f->lease, offset, sequence++);
                take(f, offset, 64);
        }
        for (uint32_t i = 0; i < f->n_units; i++)
                assert_true(is_used[i]);
        free(is_used);
        lease_fixture_free(f);
}

/* More that is placed and not published than is remembered: no window is found then, and none that would be wrong. */
static void test_many_pending(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);
        uint64_t offsets[64];
        void *data;

        for (unsigned i = 0; i < 64; i++)
                assert_int_equal(lease_place(f->lease, 8 * KIB, 0, &offsets[i], &data), LEASE_PLACE_OK);
        assert_int_equal(try(f, MIB, 0), LEASE_PLACE_FULL);
        for (unsigned i = 0; i < 40; i++)
                lease_placed_at(f->lease, offsets[i], i);
        for (unsigned i = 0; i < 40; i++)
                take(f, offsets[i], 8 * KIB);
        assert_int_equal(try(f, 600 * KIB, 40), LEASE_PLACE_FULL);
        assert_int_equal(try(f, 500 * KIB, 40), LEASE_PLACE_OK);
        for (unsigned i = 40; i < 64; i++)
                lease_unplace(f->lease, offsets[i], 8 * KIB);
        assert_int_equal(lease_last(f->lease), 40);
        lease_fixture_free(f);
}

/* -- books that lie ------------------------------------------------------------------------------------------------ */

typedef struct LayoutCase {
        const char *what;
        size_t offset;
        size_t n_bytes;
        uint64_t value;
} LayoutCase;

#define LAYOUT_CASE(field, value)                                                                                      \
        { #field " " #value, offsetof(LeaseBook, field), sizeof(((LeaseBook *)0)->field), value }

static void test_layouts(void **state)
{
        static const LayoutCase cases[] = {
                LAYOUT_CASE(magic, 0), LAYOUT_CASE(magic, LEASE_MAGIC + 1), LAYOUT_CASE(version, 0),
                LAYOUT_CASE(version, 2), LAYOUT_CASE(n_freed_max, 0), LAYOUT_CASE(n_freed_max, 3),
                LAYOUT_CASE(n_freed_max, 512), LAYOUT_CASE(n_freed_max, UINT32_MAX),
                LAYOUT_CASE(region_id, FIXTURE_REGION_ID + 1), LAYOUT_CASE(region_bytes, MIB - 64),
                LAYOUT_CASE(region_bytes, MIB + 64), LAYOUT_CASE(region_bytes, UINT64_MAX),
                LAYOUT_CASE(book_bytes, 0), LAYOUT_CASE(book_bytes, 4096 + MIB / 512 - 1),
                LAYOUT_CASE(book_bytes, 4096 + MIB / 512 + 1), LAYOUT_CASE(book_bytes, UINT64_MAX),
                LAYOUT_CASE(bitmap_offset, 0), LAYOUT_CASE(bitmap_offset, 4096 - 64),
                LAYOUT_CASE(bitmap_offset, 4096 + 8), LAYOUT_CASE(bitmap_offset, 4096 + 64),
                LAYOUT_CASE(bitmap_offset, UINT64_MAX - 63),
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                LeaseFixture f = { 0 };

                lease_fixture_make(&f, MIB);
                memcpy((uint8_t *)f.book + cases[i].offset, &cases[i].value, cases[i].n_bytes);
                if (lease_fixture_open(&f) != LEASE_E_LAYOUT)
                        fail_msg("taken in: %s", cases[i].what);
                lease_fixture_deinit(&f);
        }
}

static void test_regions_that_do_not_fit(void **state)
{
        static const uint64_t region_bytes[] = { 0, 63, MIB + 64, LEASE_REGION_BYTES_MAX + 64, UINT64_MAX };
        LeaseFixture f = { 0 };

        lease_fixture_make(&f, MIB);
        for (size_t i = 0; i < ARRAY_SIZE(region_bytes); i++) {
                f.region_bytes = f.book->region_bytes = region_bytes[i];
                assert_int_equal(lease_fixture_open(&f), LEASE_E_LAYOUT);
        }
        /* The book is right, and the region shorter than it says. */
        f.region_bytes = f.book->region_bytes = MIB;
        assert_int_equal(ftruncate(f.region_fd, MIB - 1), 0);
        assert_int_equal(lease_fixture_open(&f), LEASE_E_LAYOUT);
        assert_int_equal(ftruncate(f.region_fd, MIB), 0);
        assert_int_equal(lease_fixture_open(&f), 0);
        lease_free(f.lease);
        assert_int_equal(ftruncate(f.book_fd, 4095), 0);
        assert_int_equal(lease_fixture_open(&f), LEASE_E_LAYOUT);
        lease_fixture_deinit(&f);
        lease_free(NULL);
}

static void test_all_ones(void **state)
{
        LeaseFixture *f = lease_fixture_new(MIB);

        memset(f->words, 0xff, f->n_units / 8);
        assert_int_equal(try(f, 0, 0), LEASE_PLACE_FULL);
        assert_int_equal(try(f, MIB, 0), LEASE_PLACE_FULL);
        lease_fixture_free(f);
}

/* -- the rest ------------------------------------------------------------------------------------------------------ */

static void test_not_inherited(void **state)
{
        LeaseFixture *f = lease_fixture_new(2 * MIB);
        int status;
        pid_t pid;

        assert_int_equal((uintptr_t)lease_data(f->lease) % (2 * MIB), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                unsigned char vector;

                _exit(mincore(f->book, 4096, &vector) == 0 && mincore(lease_data(f->lease), 4096, &vector) < 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        lease_fixture_free(f);
}

static int attempt_new(void)
{
        LeaseFixture f = { 0 };
        int r;

        lease_fixture_make(&f, MIB);
        r = lease_fixture_open(&f);
        if (r == 0 && !lease_guard(f.lease, 0, 64))
                r = -ENOMEM;
        else if (r == 0)
                lease_unguard(f.lease, 0, 64);
        if (f.lease)
                lease_free(f.lease);
        lease_fixture_deinit(&f);
        assert_int_equal(f.use, 0);
        return r;
}

static void test_no_memory(void **state)
{
        fail_alloc_sweep(attempt_new);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_window_in_order),
                UNIT_TEST(test_sizes_at_their_limits),
                UNIT_TEST(test_freed_newest_first),
                UNIT_TEST(test_unplace),
                UNIT_TEST(test_next_window),
                UNIT_TEST(test_run_across_the_beginning),
                UNIT_TEST(test_pages_waste_little),
                UNIT_TEST(test_epoch),
                UNIT_TEST(test_guards),
                UNIT_TEST(test_guard_was_in_the_way),
                UNIT_TEST(test_references),
                UNIT_TEST(test_log_from_before),
                UNIT_TEST(test_log_is_lapped),
                UNIT_TEST(test_book_of_a_dead_daemon),
                UNIT_TEST(test_many_pending),
                UNIT_TEST(test_layouts),
                UNIT_TEST(test_regions_that_do_not_fit),
                UNIT_TEST(test_all_ones),
                UNIT_TEST(test_not_inherited),
                UNIT_TEST(test_no_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
