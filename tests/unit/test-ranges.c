/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges against a plain list of them. */
#include "tests/unit/harness.h"

#include "base/macro.h"
#include "client/lib/ranges.h"

static void test_ranges(void **state)
{
        enum { N = 20000 };
        Range all[200];
        unsigned n = 0;
        uint64_t random = 12345;
        Ranges ranges;
        Range found;

        ranges_init(&ranges, N);
        assert_false(ranges_find(&ranges, 0, N, &found));
        for (unsigned i = 0; i < 20000; i++) {
                uint32_t begin, end;
                const Range *first = NULL;

                random = random * 6364136223846793005u + 1442695040888963407u;
                if (n < ARRAY_SIZE(all) && random >> 60 < 9) {
                        begin = (uint32_t)(random >> 33) % N;
                        end = MIN(begin + 1 + (uint32_t)(random >> 20) % (random >> 50 & 1 ? 3000 : 5), N);
                        all[n++] = (Range){ .first = begin, .n = end - begin };
                        assert_true(ranges_add(&ranges, begin, end - begin));
                } else if (n > 0) {
                        unsigned which = (unsigned)(random >> 33) % n;

                        ranges_remove(&ranges, all[which].first, all[which].n);
                        all[which] = all[--n];
                }
                begin = (uint32_t)(random >> 30) % N;
                end = MIN(begin + (uint32_t)(random >> 21) % 200, N);
                for (unsigned j = 0; j < n; j++)
                        if (all[j].first < end && all[j].first + all[j].n > begin && begin < end &&
                            (!first || all[j].first < first->first))
                                first = &all[j];
                assert_int_equal(ranges_find(&ranges, begin, end, &found), first != NULL);
                if (first)
                        assert_int_equal(found.first, first->first);
        }
        ranges_deinit(&ranges);
        ranges_init(&ranges, UINT32_MAX);
        assert_true(ranges_add(&ranges, UINT32_MAX - 2, 2));
        assert_true(ranges_find(&ranges, UINT32_MAX - 1, UINT32_MAX, &found));
        ranges_deinit(&ranges);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_ranges),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
