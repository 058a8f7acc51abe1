/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What regions are made of, by count: collapsed or huge from the start, with holes that looking does not fill, under
 * every seal. Where the kernel cannot make huge pages the tests that need them are skipped.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/unit/region-fixture.h"

static void test_collapse_and_measure(void **state)
{
        uint64_t n_huge, n_failed, allocated, huge;
        Region *region = new_region(memfd, 6 * HUGE_BYTES);

        if (!(memfd->capabilities & BACKEND_COLLAPSIBLE)) {
                region_unref(region);
                skip();
        }
        /* Pieces 0 and 1 whole, 3 with one page, the rest holes. */
        fill(region, 0, 2 * HUGE_BYTES, 'h');
        fill(region, 3 * HUGE_BYTES + PAGE_BYTES, PAGE_BYTES, 'p');
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        assert_int_equal(allocated, 2 * HUGE_BYTES + PAGE_BYTES);
        if (!(memfd->capabilities & BACKEND_HUGE_AT_ALLOCATION))
                assert_int_equal(huge, 0);
        assert_int_equal(region_seal_finally(region), 0);
        assert_int_equal(region_collapse(region, 0, 6 * HUGE_BYTES, false, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge, 3);
        assert_int_equal(n_failed, 0);
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        assert_int_equal(allocated, 3 * HUGE_BYTES); /* to look has not filled a hole */
        assert_int_equal(huge, 3 * HUGE_BYTES);
        assert_bytes(region, 0, 2 * HUGE_BYTES, 'h');
        assert_bytes(region, 3 * HUGE_BYTES + PAGE_BYTES, PAGE_BYTES, 'p');
        assert_bytes(region, 3 * HUGE_BYTES + 2 * PAGE_BYTES, PAGE_BYTES, 0);
        /* Whether pages may still be added to a sealed file is the kernel's affair: it is done, or counted. */
        assert_int_equal(region_collapse(region, 4 * HUGE_BYTES, 2 * HUGE_BYTES, true, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge + n_failed, 2);
        region_unref(region);
}

/* There whole, huge where that was wanted and can be, and zero; a range that is none changes nothing. */
static void test_prepare(void **state)
{
        const struct {
                uint64_t n_bytes;
                bool want_huge;
                uint64_t n_pieces;
                int r;
        } rows[] = {
                { 0, true, 0, 0 },
                { PAGE_BYTES, true, 0, 0 },
                { HUGE_BYTES, true, 1, 0 },
                { 2 * HUGE_BYTES + 3 * PAGE_BYTES, true, 2, 0 },
                { 4 * HUGE_BYTES, true, 4, 0 },
                { 4 * HUGE_BYTES, false, 0, 0 },
                { 4 * HUGE_BYTES + 1, true, 0, -EINVAL },
                { UINT64_MAX, true, 0, -EINVAL },
        };
        bool can_collapse = memfd->capabilities & BACKEND_COLLAPSIBLE &&
                            !(memfd->capabilities & BACKEND_HUGE_AT_ALLOCATION);
        atomic_bool cancelled = true;
        uint64_t n_huge, n_failed;
        Region *region;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                region = new_region(memfd, 4 * HUGE_BYTES);
                assert_int_equal(region_prepare(region, rows[i].n_bytes, rows[i].want_huge, 0, NULL, &n_huge, &n_failed),
                                 rows[i].r);
                assert_int_equal(n_huge + n_failed, can_collapse ? rows[i].n_pieces : 0);
                if (rows[i].r == 0) {
                        assert_true(allocated_bytes(region) >= rows[i].n_bytes);
                        assert_bytes(region, 0, rows[i].n_bytes, 0);
                }
                region_unref(region);
        }
        region = new_region(memfd, 4 * HUGE_BYTES);
        assert_int_equal(region_prepare(region, 4 * HUGE_BYTES, true, 0, &cancelled, &n_huge, &n_failed), -ECANCELED);
        assert_int_equal(allocated_bytes(region), 0);
        region_unref(region);
}

/* A limit that is always passed: the first slice is tried, the rest is there all the same, in small pages. */
static void test_b02_preparing_stops_where_it_costs(void **state)
{
        uint64_t n_huge, n_failed, n_bytes = 40 * HUGE_BYTES;
        Region *region = new_region(memfd, n_bytes);

        assert_int_equal(region_prepare(region, n_bytes, true, 1, NULL, &n_huge, &n_failed), 0);
        assert_true(n_huge + n_failed <= 16);
        assert_int_equal(allocated_bytes(region), n_bytes);
        region_unref(region);
        /* And one that is never passed. */
        region = new_region(memfd, n_bytes);
        assert_int_equal(region_prepare(region, n_bytes, true, UINT64_MAX / 64, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge + n_failed, memfd->capabilities & BACKEND_COLLAPSIBLE ? 40 : 0);
        assert_int_equal(allocated_bytes(region), n_bytes);
        region_unref(region);
}

static void test_collapse_of_blanks(void **state)
{
        uint64_t n_huge, n_failed, allocated, huge;
        Region *region = new_region(memfd, 4 * HUGE_BYTES);

        if (!(memfd->capabilities & BACKEND_COLLAPSIBLE)) {
                region_unref(region);
                skip();
        }
        assert_int_equal(region_collapse(region, 0, 4 * HUGE_BYTES, false, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge + n_failed, 0);
        assert_int_equal(allocated_bytes(region), 0);
        /* Only whole pieces inside the range. */
        assert_int_equal(region_collapse(region, 1, 2 * HUGE_BYTES, true, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge, 1);
        assert_int_equal(allocated_bytes(region), HUGE_BYTES);
        assert_int_equal(region_reserve(region, 0, 4 * HUGE_BYTES, NULL), 0);
        assert_int_equal(region_collapse(region, 0, 4 * HUGE_BYTES, true, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge, 4);
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        assert_int_equal(allocated, 4 * HUGE_BYTES);
        assert_int_equal(huge, 4 * HUGE_BYTES);
        assert_bytes(region, 0, 4 * HUGE_BYTES, 0);
        region_unref(region);
}

/* Where others have it mapped, and write, meanwhile. */
static void test_collapse_under_a_mapping(void **state)
{
        uint64_t n_huge, n_failed;
        Region *region = new_region(memfd, 2 * HUGE_BYTES);

        if (!(memfd->capabilities & BACKEND_COLLAPSIBLE)) {
                region_unref(region);
                skip();
        }
        assert_int_equal(region_reserve(region, 0, 2 * HUGE_BYTES, NULL), 0);
        assert_int_equal(region_map(region, true), 0);
        memset(region->data, 'm', 2 * HUGE_BYTES);
        assert_int_equal(region_seal_to_daemon(region), 0);
        assert_int_equal(region_collapse(region, 0, 2 * HUGE_BYTES, false, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge, 2);
        region->data[HUGE_BYTES] = 'n';
        assert_bytes(region, HUGE_BYTES, 1, 'n');
        assert_bytes(region, 0, HUGE_BYTES, 'm');
        region_unref(region);
}

static void test_tmpfs_is_huge_at_once(void **state)
{
        uint64_t allocated, huge;
        Region *region = new_region(tmpfs, 8 * HUGE_BYTES);

        assert_int_equal(region_reserve(region, 0, 8 * HUGE_BYTES, NULL), 0);
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        assert_int_equal(allocated, 8 * HUGE_BYTES);
        fill(region, 0, 8 * HUGE_BYTES, 't');
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        assert_int_equal(allocated, 8 * HUGE_BYTES);
        if (tmpfs->capabilities & BACKEND_HUGE_AT_ALLOCATION)
                assert_int_equal(huge, 8 * HUGE_BYTES);
        region_unref(region);
}

static void test_policy_never_collapses_nothing(void **state)
{
        uint64_t n_huge, n_failed, allocated, huge;
        const char *call;
        Backend *never;
        Region *region;

        assert_int_equal(backend_memfd_new(FOLIO_HUGE_NEVER, &never, &call), 0);
        region = new_region(never, 2 * HUGE_BYTES);
        fill(region, 0, 2 * HUGE_BYTES, 'x');
        assert_int_equal(region_collapse(region, 0, 2 * HUGE_BYTES, true, NULL, &n_huge, &n_failed), 0);
        assert_int_equal(n_huge + n_failed, 0);
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        if (!(never->capabilities & BACKEND_HUGE_AT_ALLOCATION))
                assert_int_equal(huge, 0);
        region_unref(region);
        backend_free(never);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_collapse_and_measure),
                UNIT_TEST(test_prepare),
                UNIT_TEST(test_b02_preparing_stops_where_it_costs),
                UNIT_TEST(test_collapse_of_blanks),
                UNIT_TEST(test_collapse_under_a_mapping),
                UNIT_TEST(test_tmpfs_is_huge_at_once),
                UNIT_TEST(test_policy_never_collapses_nothing),
        };

        return cmocka_run_group_tests(tests, make_backends, free_backends);
}
