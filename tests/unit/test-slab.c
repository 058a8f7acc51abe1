/* SPDX-License-Identifier: Apache-2.0 */
/* Records from slabs: all different, zero, and given back to the kernel when the last of a slab has gone. */
#include "tests/unit/harness.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/slab.h"

static bool is_mapped(const void *address)
{
        unsigned char core;

        return mincore((void *)((uintptr_t)address & ~(uintptr_t)(PAGE_BYTES - 1)), 1, &core) == 0;
}

static void test_records(void **state)
{
        static const size_t sizes[] = { 8, 16, 56, 152, 4096 };
        enum { N = 3000 };
        unsigned char **records = calloc(N, sizeof(*records));

        for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
                Slabs slabs;

                slabs_init(&slabs, sizes[k]);
                for (int round = 0; round < 2; round++) {
                        for (size_t i = 0; i < N; i++) {
                                records[i] = slabs_take(&slabs);
                                assert_non_null(records[i]);
                                assert_true(IS_ALIGNED((uintptr_t)records[i], 8));
                                for (size_t j = 0; j < sizes[k]; j++)
                                        assert_int_equal(records[i][j], 0);
                                memset(records[i], (int)(i % 251) + 1, sizes[k]);
                        }
                        assert_int_equal(slabs.n_records, N);
                        for (size_t i = 0; i < N; i++)
                                for (size_t j = 0; j < sizes[k]; j++)
                                        assert_int_equal(records[i][j], i % 251 + 1);
                        /* In an order of its own: every third, then the rest. */
                        for (size_t i = 0; i < N; i += 3)
                                slabs_give(records[i]);
                        for (size_t i = 0; i < N; i++)
                                if (i % 3 != 0)
                                        slabs_give(records[i]);
                        assert_int_equal(slabs.n_records, 0);
                }
                slabs_deinit(&slabs);
        }
        slabs_give(NULL);
        free(records);
}

static void test_memory_goes_back(void **state)
{
        enum { N_BYTES = 1024, N = 4 * SLAB_BYTES / N_BYTES };
        char *records[N];
        unsigned n_mapped = 0;
        Slabs slabs;

        slabs_init(&slabs, N_BYTES);
        for (size_t i = 0; i < N; i++)
                records[i] = slabs_take(&slabs);
        for (size_t i = 0; i < N; i++)
                slabs_give(records[i]);
        /* One slab stays for who comes next. */
        for (size_t i = 0; i < N; i += SLAB_BYTES / N_BYTES)
                n_mapped += is_mapped(records[i]);
        assert_true(n_mapped <= 1);
        records[0] = slabs_take(&slabs);
        assert_true(is_mapped(records[0]));
        slabs_give(records[0]);
        slabs_deinit(&slabs);
        assert_false(is_mapped(records[0]));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_records),
                UNIT_TEST(test_memory_goes_back),
        };

        return cmocka_run_group_tests_name("slab", tests, NULL, NULL);
}
