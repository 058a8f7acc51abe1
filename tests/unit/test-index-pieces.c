/* SPDX-License-Identifier: Apache-2.0 */
/* Which pieces of an area are handed out to be made huge: by how far it is used, each once, in order. */
#include "harness.h"

#include "base/macro.h"
#include "daemon/store/index-pieces.h"

#define LEAD INDEX_PIECES_LEAD_BYTES

/* Of an area of three and a half pieces, in one go: how many. */
static void test_how_many(void **state)
{
        static const struct {
                uint64_t used_bytes;
                uint64_t n_pieces;
        } rows[] = {
                { 0, 0 },
                { 1, 0 },
                { HUGE_BYTES - LEAD - 1, 0 },
                { HUGE_BYTES - LEAD, 2 },
                { HUGE_BYTES, 2 },
                { 2 * HUGE_BYTES - LEAD - 1, 2 },
                { 2 * HUGE_BYTES - LEAD, 3 },
                { 3 * HUGE_BYTES - LEAD - 1, 3 },
                { 3 * HUGE_BYTES - LEAD, 4 },
                { 7 * HUGE_BYTES / 2, 4 },
                { UINT64_MAX, 4 },
        };
        uint64_t offset, n_bytes;
        IndexPieces pieces;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                index_pieces_init(&pieces, 10 * HUGE_BYTES, 7 * HUGE_BYTES / 2);
                if (index_pieces_take(&pieces, rows[i].used_bytes, UINT64_MAX, &offset, &n_bytes)) {
                        assert_int_equal(offset, 10 * HUGE_BYTES);
                        assert_int_equal(n_bytes, rows[i].n_pieces * HUGE_BYTES);
                } else {
                        assert_int_equal(rows[i].n_pieces, 0);
                }
                assert_false(index_pieces_take(&pieces, rows[i].used_bytes, UINT64_MAX, &offset, &n_bytes));
        }
}

/* An area that grows byte by byte, and slices of one piece: all of them, none twice. */
static void test_one_after_the_other(void **state)
{
        uint64_t offset, n_bytes, n = 0;
        IndexPieces pieces;

        index_pieces_init(&pieces, 0, 8 * HUGE_BYTES);
        for (uint64_t used = 0; used <= 8 * HUGE_BYTES; used += 64 * KIB) {
                while (index_pieces_take(&pieces, used, 1, &offset, &n_bytes)) {
                        assert_int_equal(offset, n++ * HUGE_BYTES);
                        assert_int_equal(n_bytes, HUGE_BYTES);
                        /* Before it is needed, but not long before. */
                        assert_true(offset <= used + LEAD);
                }
                assert_true(used < HUGE_BYTES - LEAD || used <= n * HUGE_BYTES);
        }
        assert_int_equal(n, 8);
        /* It never shrinks, and asks for nothing where it is used less than before. */
        assert_false(index_pieces_take(&pieces, 0, 1, &offset, &n_bytes));
}

/* A small one is never worth a piece. */
static void test_small_area(void **state)
{
        uint64_t offset, n_bytes;
        IndexPieces pieces;

        index_pieces_init(&pieces, HUGE_BYTES, HUGE_BYTES - LEAD - 1);
        assert_false(index_pieces_take(&pieces, HUGE_BYTES - LEAD - 1, UINT64_MAX, &offset, &n_bytes));
        index_pieces_init(&pieces, HUGE_BYTES, HUGE_BYTES - LEAD);
        assert_true(index_pieces_take(&pieces, HUGE_BYTES - LEAD, UINT64_MAX, &offset, &n_bytes));
        assert_int_equal(n_bytes, HUGE_BYTES);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_how_many),
                UNIT_TEST(test_one_after_the_other),
                UNIT_TEST(test_small_area),
        };

        return cmocka_run_group_tests_name("index-pieces", tests, NULL, NULL);
}
