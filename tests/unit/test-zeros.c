/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of ranges that read as zeros against a bitmap, at their limits; and what is found in files of both backends:
 * sparse, reserved, written, written with zeros. Looking never allocates.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/unit/region-fixture.h"

static uint32_t next_random(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

static void assert_in_order(const LayoutExtents *zeros)
{
        uint64_t end = 0;

        assert_true(zeros->n_extents <= LAYOUT_EXTENTS_MAX);
        for (uint32_t i = 0; i < zeros->n_extents; i++) {
                assert_true(zeros->extents[i].n_pages > 0);
                assert_true(i == 0 || zeros->extents[i].first_page > end);
                end = (uint64_t)zeros->extents[i].first_page + zeros->extents[i].n_pages;
                assert_true(end <= UINT32_MAX);
        }
}

static bool is_listed(const LayoutExtents *zeros, uint64_t page)
{
        for (uint32_t i = 0; i < zeros->n_extents; i++)
                if (page >= zeros->extents[i].first_page &&
                    page - zeros->extents[i].first_page < zeros->extents[i].n_pages)
                        return true;
        return false;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

#define MODEL_PAGES 1000u            /* never more than 500 ranges */

static void assert_has_as_model(const LayoutExtents *zeros, const bool *model, uint64_t *random)
{
        for (unsigned i = 0; i < 50; i++) {
                uint64_t offset = next_random(random) % (MODEL_PAGES * PAGE_BYTES);
                uint64_t n = 1 + next_random(random) % (20 * PAGE_BYTES), end = 0;
                bool is = true;

                n = MIN(n, MODEL_PAGES * PAGE_BYTES - offset);
                for (uint64_t page = offset / PAGE_BYTES; page <= (offset + n - 1) / PAGE_BYTES; page++)
                        is = is && model[page];
                assert_int_equal(zeros_has(zeros, offset, n, &end), is);
                if (is) {
                        assert_true(end >= offset + n && IS_ALIGNED(end, PAGE_BYTES));
                        assert_true(model[end / PAGE_BYTES - 1] &&
                                    (end == MODEL_PAGES * PAGE_BYTES || !model[end / PAGE_BYTES]));
                }
        }
}

static void test_add_against_model(void **state)
{
        for (uint64_t seed = 1; seed <= 40; seed++) {
                uint64_t random = seed;
                LayoutExtents zeros = ZEROS_NULL;
                bool model[MODEL_PAGES] = { false };

                for (unsigned i = 0; i < 200; i++) {
                        uint32_t first = next_random(&random) % MODEL_PAGES;
                        uint32_t n = next_random(&random) % (seed % 2 ? 3 : 40);

                        n = MIN(n, MODEL_PAGES - first);
                        zeros_add(&zeros, first, n);
                        memset(model + first, true, n);
                }
                assert_in_order(&zeros);
                assert_int_equal(zeros.is_partial, 0);
                for (uint32_t page = 0; page < MODEL_PAGES; page++)
                        assert_int_equal(is_listed(&zeros, page), model[page]);
                assert_has_as_model(&zeros, model, &random);
        }
}

/* One more than there is room for: the smallest goes, whatever the order they come in. */
static void test_the_largest_are_kept(void **state)
{
        enum { N = LAYOUT_EXTENTS_MAX + 200 };

        for (uint64_t seed = 1; seed <= 8; seed++) {
                uint64_t random = seed;
                uint32_t order[N], n_pages[N], smallest_kept = UINT32_MAX, largest_left = 0, n_kept = 0;
                LayoutExtents zeros = ZEROS_NULL;

                for (uint32_t i = 0; i < N; i++) {
                        uint32_t j = seed % 2 ? i : next_random(&random) % (i + 1);

                        order[i] = order[j];
                        order[j] = i;
                        n_pages[i] = 1 + next_random(&random) % 90;
                }
                for (uint32_t i = 0; i < N; i++) {
                        zeros_add(&zeros, order[i] * 100u, n_pages[order[i]]);
                        assert_int_equal(zeros.n_extents, MIN(i + 1, (uint32_t)LAYOUT_EXTENTS_MAX));
                        assert_int_equal(zeros.is_partial, i >= LAYOUT_EXTENTS_MAX);
                }
                assert_in_order(&zeros);
                for (uint32_t i = 0; i < N; i++) {
                        if (is_listed(&zeros, i * 100u)) {
                                assert_true(is_listed(&zeros, i * 100u + n_pages[i] - 1));
                                smallest_kept = MIN(smallest_kept, n_pages[i]);
                                n_kept++;
                        } else {
                                largest_left = MAX(largest_left, n_pages[i]);
                        }
                }
                assert_int_equal(n_kept, LAYOUT_EXTENTS_MAX);
                assert_true(largest_left <= smallest_kept);
                /* What joins two of a full list needs no room. */
                zeros_add(&zeros, 0, 100u * N);
                assert_int_equal(zeros.n_extents, 1);
        }
}

static void test_numbers_at_their_limits(void **state)
{
        static const struct {
                uint64_t first_page, n_pages;
                uint32_t n_extents, n_listed, is_partial;
        } rows[] = {
                { 0, 0, 0, 0, 0 },
                { UINT64_MAX, 0, 0, 0, 0 },
                { 0, UINT32_MAX, 1, UINT32_MAX, 0 },
                { 0, (uint64_t)UINT32_MAX + 1, 1, UINT32_MAX, 1 },
                { 0, UINT64_MAX, 1, UINT32_MAX, 1 },
                { UINT32_MAX - 1, 1, 1, 1, 0 },
                { UINT32_MAX - 1, 2, 1, 1, 1 },
                { UINT32_MAX, 1, 0, 0, 1 },
                { (uint64_t)UINT32_MAX + 1, 1, 0, 0, 1 },
                { UINT64_MAX, UINT64_MAX, 0, 0, 1 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                LayoutExtents zeros = ZEROS_NULL;

                zeros_add(&zeros, rows[i].first_page, rows[i].n_pages);
                assert_int_equal(zeros.n_extents, rows[i].n_extents);
                assert_int_equal(zeros.is_partial, rows[i].is_partial);
                if (zeros.n_extents > 0)
                        assert_int_equal(zeros.extents[0].n_pages, rows[i].n_listed);
                assert_in_order(&zeros);
        }
}

static void test_pieces_that_are_left(void **state)
{
        const uint64_t pages = HUGE_BYTES / PAGE_BYTES;

        for (uint64_t seed = 1; seed <= 200; seed++) {
                uint64_t random = seed, n_bytes = 10 * HUGE_BYTES + (seed % 3) * PAGE_BYTES, begin = 0, end, at = 0;
                LayoutExtents zeros = ZEROS_NULL;
                uint64_t ignored;

                for (unsigned i = 0; i < 4; i++)
                        zeros_add(&zeros, next_random(&random) % (pages * 11), next_random(&random) % (pages * 4));
                for (; at < n_bytes; at = end) {
                        zeros_find_pieces(&zeros, at, n_bytes, &begin, &end);
                        assert_true(begin >= at && (begin == n_bytes || IS_ALIGNED(begin, HUGE_BYTES)));
                        assert_true(end == n_bytes || (end > begin && IS_ALIGNED(end, HUGE_BYTES)));
                        for (uint64_t p = at; p < MIN(end, n_bytes); p += HUGE_BYTES)
                                assert_int_equal(zeros_has(&zeros, p, MIN(HUGE_BYTES, n_bytes - p), &ignored),
                                                 p < begin);
                }
        }
}

/* --- holes -------------------------------------------------------------------------------------------------------- */

static bool is_exact(const Backend *backend)
{
        return !(backend->capabilities & BACKEND_HUGE_AT_ALLOCATION);
}

/*
 * Pages that were reserved, or written, or neither; only the second kind is data. But what is reserved a second time
 * the kernel makes zeros of at once, and calls data then.
 */
static void test_holes_of_random_files(void **state)
{
        enum { N = 700 };
        Backend *const backends[] = { memfd, tmpfs };

        for (uint64_t seed = 0; seed < 20; seed++) {
                Region *region = new_region(backends[seed % 2], N * PAGE_BYTES);
                uint64_t random = seed + 1, allocated, n_bytes = (N - seed % 3) * PAGE_BYTES - seed % 5 * 800;
                LayoutExtents zeros;
                unsigned n_reserved[N] = { 0 };
                bool is_data[N] = { false };

                for (unsigned i = 0; i < 60; i++) {
                        uint64_t first = next_random(&random) % N, n = 1 + next_random(&random) % 20;

                        n = MIN(n, N - first);
                        if (next_random(&random) % 2) {
                                assert_int_equal(region_reserve(region, first * PAGE_BYTES, n * PAGE_BYTES, NULL), 0);
                                for (uint64_t page = first; page < first + n; page++)
                                        n_reserved[page]++;
                        } else {
                                fill(region, first * PAGE_BYTES, n * PAGE_BYTES, 'd');
                                memset(is_data + first, true, n);
                        }
                }
                allocated = allocated_bytes(region);
                assert_int_equal(region_find_zeros(region, n_bytes, UINT64_MAX, NULL, &zeros), 0);
                assert_int_equal(allocated_bytes(region), allocated);
                assert_in_order(&zeros);
                assert_int_equal(zeros.is_partial, 0);
                for (uint64_t page = 0; page < N; page++) {
                        if (page * PAGE_BYTES >= n_bytes || is_data[page])
                                assert_false(is_listed(&zeros, page));
                        else if (is_exact(backends[seed % 2]))
                                assert_true(is_listed(&zeros, page) || n_reserved[page] > 1);
                        if (is_listed(&zeros, page))
                                assert_bytes(region, page * PAGE_BYTES, PAGE_BYTES, 0);
                }
                region_unref(region);
        }
}

static void test_holes_at_the_ends(void **state)
{
        Region *region = new_region(memfd, 4 * PAGE_BYTES);
        LayoutExtents zeros;

        assert_int_equal(region_find_zeros(region, 0, UINT64_MAX, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 0);
        assert_int_equal(region_find_zeros(region, 1, UINT64_MAX, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 1);
        assert_int_equal(zeros.extents[0].n_pages, 1);
        fill(region, 0, 2 * PAGE_BYTES + 1, 'x');
        assert_int_equal(region_find_zeros(region, 2 * PAGE_BYTES + 1, UINT64_MAX, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 0);
        assert_int_equal(region_find_zeros(region, 3 * PAGE_BYTES, UINT64_MAX, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 0);
        assert_int_equal(region_find_zeros(region, 3 * PAGE_BYTES + 1, UINT64_MAX, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 1);
        assert_int_equal(zeros.extents[0].first_page, 3);
        assert_int_equal(zeros.extents[0].n_pages, 1);
        assert_int_equal(region_find_zeros(region, 4 * PAGE_BYTES + 1, UINT64_MAX, NULL, &zeros), -EINVAL);
        assert_int_equal(region_find_zeros(region, UINT64_MAX, UINT64_MAX, NULL, &zeros), -EINVAL);
        region_unref(region);
}

/* More holes than may be looked at, and than a list has room for. */
static void test_too_many_holes(void **state)
{
        static const struct {
                uint64_t n_max;
                uint32_t n_extents, is_partial;
        } rows[] = {
                { 0, 0, 1 }, { 1, 1, 1 }, { 510, 510, 1 }, { 511, 511, 1 }, { 599, 511, 1 },
                { 600, 511, 1 }, { UINT64_MAX, 511, 1 },
        };
        atomic_bool is_cancelled = true;
        Region *region;
        LayoutExtents zeros;

        if (!is_exact(memfd))
                skip();
        region = new_region(memfd, 1200 * PAGE_BYTES);
        for (uint64_t page = 0; page < 1200; page += 2)
                fill(region, page * PAGE_BYTES, 1, 'x');
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(region_find_zeros(region, 1200 * PAGE_BYTES, rows[i].n_max, NULL, &zeros), 0);
                assert_int_equal(zeros.n_extents, rows[i].n_extents);
                assert_int_equal(zeros.is_partial, rows[i].is_partial);
                assert_in_order(&zeros);
        }
        /* The last of just as many as may be looked at ends at the end. */
        assert_int_equal(region_find_zeros(region, 20 * PAGE_BYTES, 10, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 10);
        assert_int_equal(zeros.is_partial, 0);
        assert_int_equal(region_find_zeros(region, 1200 * PAGE_BYTES, UINT64_MAX, &is_cancelled, &zeros), 0);
        assert_int_equal(zeros.n_extents, 0);
        assert_int_equal(zeros.is_partial, 1);
        region_unref(region);
}

/* --- by the bytes ------------------------------------------------------------------------------------------------- */

static unsigned scan_all(Region *region, ZerosScan *scan, uint64_t budget_bytes, LayoutExtents *zeros)
{
        unsigned n = 0;

        while (!zeros_scan_is_over(scan)) {
                assert_int_equal(region_scan_zeros(region, scan, budget_bytes, NULL, zeros), 0);
                assert_true(++n < 10000);
        }
        return n;
}

static void test_scan_finds_written_zeros(void **state)
{
        static const uint64_t budgets[] = { 1, 100 * KIB, 8 * MIB, UINT64_MAX };
        const uint64_t pages = HUGE_BYTES / PAGE_BYTES, n_bytes = 8 * HUGE_BYTES + 3 * PAGE_BYTES + 5;
        Backend *const backends[] = { memfd, tmpfs };

        for (size_t i = 0; i < 2 * ARRAY_SIZE(budgets); i++) {
                Region *region = new_region(backends[i % 2], n_bytes);
                ZerosScan scan = { .n_bytes = n_bytes };
                LayoutExtents zeros;
                uint64_t allocated;

                /* Written throughout, as far as the kernel knows. */
                fill(region, 0, 9 * HUGE_BYTES, 0);
                fill(region, 1 * HUGE_BYTES + 7, 1, 'f');        /* 1: in the first page */
                fill(region, 3 * HUGE_BYTES - 1, 1, 'l');        /* 2: in the last byte */
                fill(region, 4 * HUGE_BYTES + 100 * KIB, 1, 'm'); /* 4 */
                fill(region, 7 * HUGE_BYTES, HUGE_BYTES, 'w');   /* 7: as most are */
                fill(region, n_bytes, 1, 'b');                   /* behind the end: of no meaning */
                allocated = allocated_bytes(region);
                assert_int_equal(region_find_zeros(region, n_bytes, UINT64_MAX, NULL, &zeros), 0);
                assert_int_equal(zeros.n_extents, 0);
                assert_true(scan_all(region, &scan, budgets[i / 2], &zeros) >= (budgets[i / 2] == 1 ? 9 : 1));
                assert_int_equal(allocated_bytes(region), allocated);
                assert_int_equal(scan.n_added, 5);
                assert_int_equal(zeros.n_extents, 4);
                assert_int_equal(zeros.extents[0].first_page, 0);
                assert_int_equal(zeros.extents[0].n_pages, pages);
                assert_int_equal(zeros.extents[1].first_page, 3 * pages);
                assert_int_equal(zeros.extents[1].n_pages, pages);
                assert_int_equal(zeros.extents[2].first_page, 5 * pages);
                assert_int_equal(zeros.extents[2].n_pages, 2 * pages);
                assert_int_equal(zeros.extents[3].first_page, 8 * pages);
                assert_int_equal(zeros.extents[3].n_pages, 4);
                region_unref(region);
        }
}

/* What is listed is not read again, and joins with what is found beside it. */
static void test_scan_skips_what_is_known(void **state)
{
        const uint64_t pages = HUGE_BYTES / PAGE_BYTES;
        Region *region = new_region(memfd, 64 * HUGE_BYTES);
        ZerosScan scan = { .n_bytes = 64 * HUGE_BYTES };
        LayoutExtents zeros = ZEROS_NULL;

        assert_int_equal(region_find_zeros(region, 64 * HUGE_BYTES, UINT64_MAX, NULL, &zeros), 0);
        assert_int_equal(zeros.n_extents, 1);
        assert_int_equal(scan_all(region, &scan, 1, &zeros), 1);
        assert_int_equal(scan.n_added, 0);

        fill(region, 0, HUGE_BYTES, 0);
        fill(region, 2 * HUGE_BYTES + PAGE_BYTES, PAGE_BYTES, 0);
        scan = (ZerosScan){ .n_bytes = 64 * HUGE_BYTES };
        assert_int_equal(region_find_zeros(region, 64 * HUGE_BYTES, UINT64_MAX, NULL, &zeros), 0);
        assert_true(zeros.n_extents >= 1);
        (void)scan_all(region, &scan, 8 * MIB, &zeros);
        assert_true(scan.n_added >= 2);
        assert_int_equal(zeros.n_extents, 1);
        assert_int_equal(zeros.extents[0].first_page, 0);
        assert_int_equal(zeros.extents[0].n_pages, 64 * pages);
        region_unref(region);
}

/* A piece that was made huge before anything was written is data to the kernel, and zeros to who looks. */
static void test_scan_of_blank_huge_memory(void **state)
{
        uint64_t n_huge, n_failed, ignored;
        LayoutExtents zeros;
        ZerosScan scan = { .n_bytes = 4 * HUGE_BYTES };
        Region *region;

        if (!(memfd->capabilities & BACKEND_COLLAPSIBLE))
                skip();
        region = new_region(memfd, 4 * HUGE_BYTES);
        assert_int_equal(region_prepare(region, 4 * HUGE_BYTES, true, 0, NULL, &n_huge, &n_failed), 0);
        fill(region, 2 * HUGE_BYTES + 9 * PAGE_BYTES, 10, 'x');
        assert_int_equal(region_seal_finally(region), 0);
        assert_int_equal(region_find_zeros(region, 4 * HUGE_BYTES, UINT64_MAX, NULL, &zeros), 0);
        (void)scan_all(region, &scan, 8 * MIB, &zeros);
        for (uint64_t piece = 0; piece < 4; piece++)
                assert_int_equal(zeros_has(&zeros, piece * HUGE_BYTES, HUGE_BYTES, &ignored), piece != 2);
        assert_int_equal(allocated_bytes(region), 4 * HUGE_BYTES);
        region_unref(region);
}

static void test_scan_gives_up(void **state)
{
        Region *region = new_region(memfd, 2 * HUGE_BYTES);
        ZerosScan scan = { .n_bytes = 2 * HUGE_BYTES + 1 };
        atomic_bool is_cancelled = true;
        LayoutExtents zeros = ZEROS_NULL;

        assert_int_equal(region_scan_zeros(region, &scan, 8 * MIB, NULL, &zeros), -EINVAL);
        scan.n_bytes = 2 * HUGE_BYTES;
        assert_int_equal(region_scan_zeros(region, &scan, 8 * MIB, &is_cancelled, &zeros), -ECANCELED);
        assert_int_equal(scan.offset_bytes, 0);
        assert_int_equal(zeros.n_extents, 0);
        /* What cannot be read is not zero. */
        assert_int_equal(ftruncate(region->fd, (off_t)HUGE_BYTES), 0);
        assert_int_equal(region_scan_zeros(region, &scan, 8 * MIB, NULL, &zeros), 0);
        assert_true(zeros_scan_is_over(&scan));
        assert_int_equal(zeros.n_extents, 1);
        assert_int_equal(zeros.extents[0].n_pages, HUGE_BYTES / PAGE_BYTES);
        region_unref(region);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_add_against_model),
                UNIT_TEST(test_the_largest_are_kept),
                UNIT_TEST(test_numbers_at_their_limits),
                UNIT_TEST(test_pieces_that_are_left),
                UNIT_TEST(test_holes_of_random_files),
                UNIT_TEST(test_holes_at_the_ends),
                UNIT_TEST(test_too_many_holes),
                UNIT_TEST(test_scan_finds_written_zeros),
                UNIT_TEST(test_scan_skips_what_is_known),
                UNIT_TEST(test_scan_of_blank_huge_memory),
                UNIT_TEST(test_scan_gives_up),
        };

        return cmocka_run_group_tests_name("zeros", tests, make_backends, free_backends);
}
