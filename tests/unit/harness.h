/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every unit test shares: cmocka with its includes in order, and a check around each test that it left no
 * descriptor and no mapping of shared memory behind. Use UNIT_TEST() for the table and unit_run() to run it.
 */
#ifndef TESTS_UNIT_HARNESS_H
#define TESTS_UNIT_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static inline int harness_count_fds(void)
{
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;

        assert_non_null(dir);
        while (readdir(dir))
                n++;
        closedir(dir);
        return n;
}

/* Lines of /proc/self/maps that are shared file mappings: what a leaked region would show as. */
static inline int harness_count_shared_mappings(void)
{
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512], mode[8];
        int n = 0;

        assert_non_null(maps);
        while (fgets(line, sizeof(line), maps))
                if (sscanf(line, "%*s %7s", mode) == 1 && mode[3] == 's')
                        n++;
        fclose(maps);
        return n;
}

typedef struct Harness {
        int n_fds;
        int n_mappings;
} Harness;

static Harness harness_before;

static inline int harness_setup(void **state)
{
        (void)state;
        harness_before.n_fds = harness_count_fds();
        harness_before.n_mappings = harness_count_shared_mappings();
        return 0;
}

static inline int harness_teardown(void **state)
{
        (void)state;
        assert_int_equal(harness_count_fds(), harness_before.n_fds);
        assert_int_equal(harness_count_shared_mappings(), harness_before.n_mappings);
        return 0;
}

#define UNIT_TEST(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

#endif
