/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of sizes, and how they are remembered and forgotten. */
#include "tests/unit/harness.h"

#include "base/macro.h"
#include "daemon/memory/demand.h"

static void test_classes(void **state)
{
        static const struct {
                uint64_t n_bytes, class_bytes;
        } rows[] = {
                { 1, PAGE_BYTES },
                { PAGE_BYTES, PAGE_BYTES },
                { PAGE_BYTES + 1, 2 * PAGE_BYTES },
                { 32 * KIB, 32 * KIB },
                { 32 * KIB + 1, 36 * KIB },
                { MIB, MIB },
                { MIB + 1, MIB + 128 * KIB },
                { 2 * MIB - 1, 2 * MIB },
                { 3 * MIB, 3 * MIB },
                { 33 * MIB, 36 * MIB },
                { 64 * MIB, 64 * MIB },
                { 64 * MIB + 1, 72 * MIB },
                { UINT64_C(1) << 62, UINT64_C(1) << 62 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(demand_class_bytes(rows[i].n_bytes), rows[i].class_bytes);
        for (uint64_t n = 32 * KIB; n < GIB; n = n * 17 / 16 + 77) {
                uint64_t class_bytes = demand_class_bytes(n);

                assert_true(class_bytes >= n && class_bytes - n <= n / 8);
                assert_true(IS_ALIGNED(class_bytes, PAGE_BYTES));
                assert_int_equal(demand_class_bytes(class_bytes), class_bytes);
        }
}

static void test_the_heaviest_comes_first(void **state)
{
        Demand demand = DEMAND_NULL;

        assert_true(demand_note(&demand, 4 * MIB));
        assert_true(demand_note(&demand, 8 * MIB));
        assert_false(demand_note(&demand, 8 * MIB - 1));
        assert_int_equal(demand.n_classes, 2);
        assert_int_equal(demand.classes[0].size_bytes, 8 * MIB);
        assert_int_equal(demand.classes[0].weight, 2 * DEMAND_USE_WEIGHT);
        for (int i = 0; i < 100; i++)
                demand_note(&demand, 4 * MIB);
        assert_int_equal(demand.classes[0].size_bytes, 4 * MIB);
        assert_int_equal(demand.classes[0].weight, DEMAND_WEIGHT_MAX);
        assert_int_equal(demand_wanted(&demand.classes[0]), 4);
        assert_int_equal(demand_wanted(&demand.classes[1]), 1);
}

static void test_a_new_one_takes_the_place_of_the_lightest(void **state)
{
        Demand demand = DEMAND_NULL;
        bool is_there = false;

        for (unsigned i = 0; i < DEMAND_CLASSES_MAX; i++)
                for (unsigned n = 0; n < i + 2; n++)
                        demand_note(&demand, (i + 1) * MIB);
        assert_int_equal(demand.n_classes, DEMAND_CLASSES_MAX);
        demand_note(&demand, 128 * MIB);
        assert_int_equal(demand.n_classes, DEMAND_CLASSES_MAX);
        for (unsigned i = 0; i < DEMAND_CLASSES_MAX; i++) {
                assert_int_not_equal(demand.classes[i].size_bytes, MIB);
                is_there |= demand.classes[i].size_bytes == 128 * MIB;
        }
        assert_true(is_there);
        /* In order always. */
        for (unsigned i = 1; i < DEMAND_CLASSES_MAX; i++)
                assert_true(demand.classes[i - 1].weight >= demand.classes[i].weight);
}

static void test_time_forgets(void **state)
{
        Demand demand = DEMAND_NULL;
        unsigned n = 0;

        demand_age(&demand);
        assert_int_equal(demand.n_classes, 0);
        demand_note(&demand, 2 * MIB);
        for (int i = 0; i < 100; i++)
                demand_note(&demand, 32 * MIB);
        for (n = 0; n < DEMAND_USE_WEIGHT; n++) {
                assert_int_equal(demand.n_classes, 2);
                demand_age(&demand);
        }
        assert_int_equal(demand.n_classes, 1);
        for (; demand.n_classes > 0 && n < 100; n++)
                demand_age(&demand);
        assert_in_range(n, 2 * DEMAND_USE_WEIGHT, 32);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_classes),
                UNIT_TEST(test_the_heaviest_comes_first),
                UNIT_TEST(test_a_new_one_takes_the_place_of_the_lightest),
                UNIT_TEST(test_time_forgets),
        };

        return cmocka_run_group_tests_name("demand", tests, NULL, NULL);
}
