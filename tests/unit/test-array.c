/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays on both sides of the size from which they are mapped: zeroed, grown with what is in them, in small pages. */
#include "tests/unit/harness.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/array.h"

#define AT (ARRAY_OWN_BYTES / sizeof(uint64_t))

static bool is_mapped(const void *address)
{
        unsigned char core;

        return mincore((void *)((uintptr_t)address & ~(uintptr_t)(PAGE_BYTES - 1)), 1, &core) == 0;
}

static void test_sizes(void **state)
{
        static const size_t sizes[] = { 1, 2, AT - 1, AT, AT + 1, 3 * AT + 7 };

        for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
                uint64_t *array = array_new(sizes[k], sizeof(*array));

                assert_non_null(array);
                for (size_t i = 0; i < sizes[k]; i++) {
                        assert_int_equal(array[i], 0);
                        array[i] = i + 1;
                }
                array_free(array, sizes[k], sizeof(*array));
                if (sizes[k] >= AT + AT)
                        assert_false(is_mapped(array + AT));
        }
        array_free(NULL, 0, 8);
        array_free(NULL, 5, 8);
}

static void test_no_such_size(void **state)
{
        uint64_t *array = array_new(4, 8);

        assert_null(array_new(SIZE_MAX, 2));
        assert_null(array_new(SIZE_MAX / 8 + 1, 8));
        assert_null(array_new(SIZE_MAX / 16, 8));
        array[3] = 33;
        assert_null(array_grow(array, 4, SIZE_MAX / 8 + 1, 8));
        assert_null(array_grow(array, 4, SIZE_MAX / 16, 8));
        assert_int_equal(array[3], 33);
        array_free(array, 4, 8);
}

static void test_growing(void **state)
{
        static const size_t sizes[] = { 0, 1, 16, AT / 2, AT, AT, 2 * AT, 5 * AT };

        for (size_t from = 0; from < ARRAY_SIZE(sizes); from++)
                for (size_t to = from; to < ARRAY_SIZE(sizes); to++) {
                        uint64_t *array = sizes[from] ? array_new(sizes[from], 8) : NULL;

                        for (size_t i = 0; i < sizes[from]; i++)
                                array[i] = i * 3;
                        if (sizes[to] == 0)
                                continue;
                        array = array_grow(array, sizes[from], sizes[to], 8);
                        assert_non_null(array);
                        for (size_t i = 0; i < sizes[to]; i++)
                                assert_int_equal(array[i], i < sizes[from] ? i * 3 : 0);
                        array_free(array, sizes[to], 8);
                }
}

/* VmFlags of the mapping that @address is in. */
static bool has_flag(const void *address, const char *flag)
{
        FILE *file = fopen("/proc/self/smaps", "re");
        char line[1024];
        bool is_it = false, found = false;

        assert_non_null(file);
        while (fgets(line, sizeof(line), file)) {
                unsigned long from, to;

                if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
                        is_it = (uintptr_t)address >= from && (uintptr_t)address < to;
                else if (is_it && strncmp(line, "VmFlags:", 8) == 0)
                        found = strstr(line, flag) != NULL;
        }
        fclose(file);
        return found;
}

/* Touching one item of a large array makes a small page, before and after it has grown. */
static void test_pages_are_small(void **state)
{
        size_t n = 4 * HUGE_BYTES / sizeof(uint64_t);
        uint64_t *array;

        if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
                skip();
        array = array_new(n, 8);
        assert_true(has_flag(array, " nh"));
        array = array_grow(array, n, 2 * n, 8);
        assert_true(has_flag(array + 2 * n - 1, " nh"));
        array_free(array, 2 * n, 8);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_no_such_size),
                UNIT_TEST(test_growing),
                UNIT_TEST(test_pages_are_small),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
