/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is, on hosts made of a few files: cgroup versions 1 and 2, containers, and nonsense. */
#include "harness.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/service/hostmem.h"

static char root[64];

static void put_file(const char *path, const char *text)
{
        char full[PATH_MAX];
        FILE *file;

        snprintf(full, sizeof(full), "%s%s", root, path);
        for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                (void)mkdir(full, 0700);
                *slash = '/';
        }
        file = fopen(full, "we");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
        harness_setup(state);
        snprintf(root, sizeof(root), "/tmp/test-hostmem-XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", root);
        if (system(command) != 0)
                return -1;
        return harness_teardown(state);
}

#define HOST_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static void assert_limit(uint64_t n_bytes, const char *file)
{
        char *got_file = NULL;

        assert_true(hostmem_cgroup_limit_bytes(root, &got_file) == n_bytes);
        if (file)
                assert_string_equal(got_file, file);
        else
                assert_null(got_file);
        free(got_file);
}

static void test_total(void **state)
{
        assert_int_equal(hostmem_total_bytes(root), 0);
        put_file("/proc/meminfo", "MemFree:   1 kB\nMemTotal:       2048 kB\n");
        assert_int_equal(hostmem_total_bytes(root), 2048 * KIB);
        put_file("/proc/meminfo", "MemTotal:       18446744073709551615 kB\n");
        assert_int_equal(hostmem_total_bytes(root), 0);
        put_file("/proc/meminfo", "garbage");
        assert_int_equal(hostmem_total_bytes(root), 0);
        assert_true(hostmem_total_bytes("") > 0);
}

static void test_v2_walks_up(void **state)
{
        put_file("/proc/self/cgroup", "0::/a/b/c\n");
        put_file("/proc/self/mountinfo", "22 1 0:5 / /proc rw - proc proc rw\n"
                                         "30 22 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
        assert_limit(UINT64_MAX, NULL);
        put_file("/cg/a/b/c/memory.max", "max\n");
        assert_limit(UINT64_MAX, NULL);
        put_file("/cg/a/memory.max", "1073741824\n");
        assert_limit(GIB, "/cg/a/memory.max");
        put_file("/cg/a/b/memory.max", "2147483648\n");
        assert_limit(GIB, "/cg/a/memory.max");
        put_file("/cg/a/b/c/memory.high", "536870912\n");
        assert_limit(GIB / 2, "/cg/a/b/c/memory.high");
        put_file("/cg/other/memory.max", "1\n");
        assert_limit(GIB / 2, "/cg/a/b/c/memory.high");
        put_file("/cg/memory.max", "4096\n");
        assert_limit(4096, "/cg/memory.max");
}

static void test_v1(void **state)
{
        put_file("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:hugetlb,memory:/job\n0::/\n");
        put_file("/proc/self/mountinfo", "31 23 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                         "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,hugetlb,memory\n");
        put_file("/cg/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
        assert_limit(UINT64_MAX, NULL);
        put_file("/cg/memory/memory.limit_in_bytes", "268435456\n");
        assert_limit(256 * MIB, "/cg/memory/memory.limit_in_bytes");
        put_file("/cg/cpu/x/memory.limit_in_bytes", "1\n");
        assert_limit(256 * MIB, "/cg/memory/memory.limit_in_bytes");
}

/* In a container: the mount's top is the container's own cgroup; or the path leads out of what can be seen. */
static void test_containers(void **state)
{
        put_file("/proc/self/cgroup", "3:memory:/docker/0123\n");
        put_file("/proc/self/mountinfo", "35 31 0:32 /docker/0123 /cg/memory ro - cgroup cgroup rw,memory\n");
        put_file("/cg/memory/memory.limit_in_bytes", "134217728\n");
        assert_limit(128 * MIB, "/cg/memory/memory.limit_in_bytes");
        put_file("/proc/self/cgroup", "3:memory:/docker/0123/inner\n");
        put_file("/cg/memory/inner/memory.limit_in_bytes", "67108864\n");
        assert_limit(64 * MIB, "/cg/memory/inner/memory.limit_in_bytes");
        put_file("/proc/self/cgroup", "0::/../../sibling\n");
        put_file("/proc/self/mountinfo", "35 31 0:32 / /cg\\040two rw - cgroup2 none rw\n");
        put_file("/cg two/memory.max", "33554432\n");
        assert_limit(32 * MIB, "/cg two/memory.max");
}

static void test_nonsense_is_no_limit(void **state)
{
        static const char *const lines[] = {
                "", "\n", "a\n", "0:\n", "0::\n", "0::relative\n", ":::::\n", "- - - - - -\n", "1 2 3 4 5 - cgroup2\n",
                "1 2 3 / /cg - cgroup2 x\n", " - cgroup2 cgroup2 rw\n", "1 2 3 / /cg\\ rw - cgroup2 x rw\n",
        };

        for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
                for (size_t j = 0; j < ARRAY_SIZE(lines); j++) {
                        put_file("/proc/self/cgroup", lines[i]);
                        put_file("/proc/self/mountinfo", lines[j]);
                        assert_limit(UINT64_MAX, NULL);
                }
        put_file("/proc/self/cgroup", "0::/\n");
        put_file("/proc/self/mountinfo", "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        put_file("/cg/memory.max", "");
        assert_limit(UINT64_MAX, NULL);
        put_file("/cg/memory.max", "lots");
        assert_limit(UINT64_MAX, NULL);
        put_file("/cg/memory.max", "0\n");
        assert_limit(0, "/cg/memory.max");
}

static void assert_room(uint64_t limit_bytes, uint64_t used_bytes)
{
        uint64_t limit = 0, used = 0;

        assert_true(hostmem_cgroup_room(root, &limit, &used));
        assert_int_equal(limit, limit_bytes);
        assert_int_equal(used, used_bytes);
}

static void test_room_of_v2(void **state)
{
        uint64_t limit, used;

        put_file("/proc/self/cgroup", "0::/a/b\n");
        put_file("/proc/self/mountinfo", "30 22 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
        assert_false(hostmem_cgroup_room(root, &limit, &used));
        put_file("/cg/a/b/memory.max", "max\n");
        put_file("/cg/a/b/memory.current", "5000\n");
        assert_false(hostmem_cgroup_room(root, &limit, &used));
        put_file("/cg/a/b/memory.max", "100000\n");
        assert_room(100000, 5000);
        /* The page cache does not count, what is shared memory does. */
        put_file("/cg/a/b/memory.stat", "anon 1\nfile 4500\nshmem 500\ninactive_file 1000\nactive_file 3000\n"
                                        "unevictable 7\ngarbage\n\nactive_file_x 9\n");
        assert_room(100000, 1000);
        put_file("/cg/a/b/memory.high", "50000\n");
        assert_room(50000, 1000);
        /* A parent with more, and less left; one with less and no number of what is used. */
        put_file("/cg/a/memory.max", "200000\n");
        put_file("/cg/a/memory.current", "190000\n");
        put_file("/cg/memory.max", "10\n");
        assert_room(200000, 190000);
        put_file("/cg/a/memory.current", "999999\n");
        assert_room(200000, 999999);
        put_file("/cg/a/memory.stat", "active_file 18446744073709551615\ninactive_file 18446744073709551615\n");
        assert_room(200000, 999999);
        put_file("/cg/a/memory.stat", "active_file 9223372036854775807\n");
        assert_room(50000, 1000);
}

static void test_room_of_v1(void **state)
{
        put_file("/proc/self/cgroup", "3:hugetlb,memory:/job\n0::/\n");
        put_file("/proc/self/mountinfo", "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,hugetlb,memory\n");
        put_file("/cg/memory/job/memory.limit_in_bytes", "1000000\n");
        put_file("/cg/memory/job/memory.usage_in_bytes", "300000\n");
        put_file("/cg/memory/job/memory.stat", "active_file 7\ninactive_file 7\ntotal_active_file 1000\n"
                                               "total_inactive_file 2000\n");
        assert_room(1000000, 297000);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                HOST_TEST(test_total),
                HOST_TEST(test_v2_walks_up),
                HOST_TEST(test_v1),
                HOST_TEST(test_containers),
                HOST_TEST(test_nonsense_is_no_limit),
                HOST_TEST(test_room_of_v2),
                HOST_TEST(test_room_of_v1),
        };

        return cmocka_run_group_tests_name("hostmem", tests, NULL, NULL);
}
