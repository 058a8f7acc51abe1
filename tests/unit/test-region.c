/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of real files: how large, what is reserved, zeroed and given back, how they are mapped. Failures
 * come from a tmpfs that is too small, a pending signal, and a process without descriptors.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/pages.h"
#include "daemon/memory/region.h"
#include "tests/unit/fail-alloc.h"
#include "tests/unit/region-fixture.h"

static atomic_bool yes = true;

static void test_sizes(void **state)
{
        static const struct {
                uint64_t asked, made;
                int result;
        } rows[] = {
                { 0, 0, -EINVAL },
                { 1, PAGE_BYTES, 0 },
                { PAGE_BYTES, PAGE_BYTES, 0 },
                { PAGE_BYTES + 1, 2 * PAGE_BYTES, 0 },
                { HUGE_BYTES - 1, HUGE_BYTES, 0 },
                { HUGE_BYTES, HUGE_BYTES, 0 },
                { HUGE_BYTES + 1, HUGE_BYTES + PAGE_BYTES, 0 },
                { REGION_WHOLE_FOLIOS_BYTES - 1, REGION_WHOLE_FOLIOS_BYTES, 0 },
                { REGION_WHOLE_FOLIOS_BYTES, REGION_WHOLE_FOLIOS_BYTES, 0 },
                { REGION_WHOLE_FOLIOS_BYTES + 1, REGION_WHOLE_FOLIOS_BYTES + HUGE_BYTES, 0 },
                { INT64_MAX, 0, -EFBIG },
                { UINT64_MAX - HUGE_BYTES, 0, -EFBIG },
                { UINT64_MAX, 0, -EFBIG },
        };
        Backend *const backends[] = { memfd, tmpfs };

        for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
                Region *region = NULL;
                struct stat st;

                assert_int_equal(region_new(backends[i % 2], "test", rows[i / 2].asked, &region), rows[i / 2].result);
                assert_int_equal(region != NULL, rows[i / 2].result == 0);
                if (region) {
                        assert_int_equal(region->size_bytes, rows[i / 2].made);
                        assert_int_equal(fstat(region->fd, &st), 0);
                        assert_int_equal(st.st_size, rows[i / 2].made);
                        assert_int_equal(st.st_blocks, 0);
                        assert_int_equal(region->fd_read_only, -1);
                        assert_null(region->data);
                }
                region_unref(region);
        }
}

static void test_references_and_ids(void **state)
{
        Region *a = new_region(memfd, 1), *b = new_region(tmpfs, 1), *c;
        uint64_t id_a = a->id;

        assert_true(a->id != 0 && b->id != 0 && a->id != b->id);
        assert_ptr_equal(region_ref(a), a);
        region_unref(a);
        assert_true(fcntl(a->fd, F_GETFD) >= 0);
        region_unref(a);
        c = new_region(memfd, 1);
        assert_true(c->id != id_a && c->id != b->id);
        region_unref(b);
        region_unref(c);
        region_unref(NULL);
}

static void test_ranges_outside_are_refused(void **state)
{
        static const struct {
                uint64_t offset, n_bytes;
                bool is_inside;
        } rows[] = {
                { 0, 0, true },
                { 0, 4 * PAGE_BYTES, true },
                { 4 * PAGE_BYTES, 0, true },
                { 0, 4 * PAGE_BYTES + 1, false },
                { 4 * PAGE_BYTES, 1, false },
                { 1, UINT64_MAX, false },
                { UINT64_MAX, 1, false },
                { UINT64_MAX, UINT64_MAX, false },
        };
        Region *region = new_region(memfd, 4 * PAGE_BYTES);
        uint64_t n_huge, n_failed;
        LayoutExtents zeros;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                int expected = rows[i].is_inside ? 0 : -EINVAL;
                uint64_t o = rows[i].offset, n = rows[i].n_bytes;

                assert_int_equal(region_reserve(region, o, n, NULL), expected);
                assert_int_equal(region_zero(region, o, n, NULL), expected);
                assert_int_equal(region_punch(region, o, n, NULL), expected);
                assert_int_equal(region_collapse(region, o, n, true, NULL, &n_huge, &n_failed), expected);
                if (o == 0)
                        assert_int_equal(region_find_zeros(region, n, 1, NULL, &zeros), expected);
        }
        assert_int_equal(allocated_bytes(region), 0);
        region_unref(region);
}

static void test_reserve_and_punch(void **state)
{
        Backend *const backends[] = { memfd, tmpfs };

        for (size_t i = 0; i < 2; i++) {
                Region *region = new_region(backends[i], 16 * HUGE_BYTES);

                assert_int_equal(region_reserve(region, 0, 16 * HUGE_BYTES, NULL), 0);
                assert_int_equal(allocated_bytes(region), 16 * HUGE_BYTES);
                assert_int_equal(region_reserve(region, 0, 16 * HUGE_BYTES, NULL), 0); /* again: nothing new */
                assert_int_equal(allocated_bytes(region), 16 * HUGE_BYTES);
                assert_bytes(region, 0, PAGE_BYTES, 0);
                assert_int_equal(region_punch(region, HUGE_BYTES, 15 * HUGE_BYTES, NULL), 0);
                assert_int_equal(allocated_bytes(region), HUGE_BYTES);
                /* Only whole pages inside the range. */
                fill(region, 0, 4 * PAGE_BYTES, 'x');
                assert_int_equal(region_punch(region, 1, 3 * PAGE_BYTES, NULL), 0);
                assert_bytes(region, 0, PAGE_BYTES, 'x');
                assert_bytes(region, PAGE_BYTES, 2 * PAGE_BYTES, 0);
                assert_bytes(region, 3 * PAGE_BYTES, PAGE_BYTES, 'x');
                assert_int_equal(region_punch(region, 1, PAGE_BYTES - 2, NULL), 0);
                assert_bytes(region, 0, PAGE_BYTES, 'x');
                region_unref(region);
        }
}

static void test_cancelled_before_it_begins(void **state)
{
        Region *region = new_region(memfd, 2 * HUGE_BYTES);
        uint64_t n_huge, n_failed;

        assert_int_equal(region_reserve(region, 0, 2 * HUGE_BYTES, &yes), -ECANCELED);
        assert_int_equal(allocated_bytes(region), 0);
        fill(region, 0, PAGE_BYTES, 'x');
        assert_int_equal(region_zero(region, 0, PAGE_BYTES, &yes), -ECANCELED);
        assert_int_equal(region_punch(region, 0, PAGE_BYTES, &yes), -ECANCELED);
        assert_bytes(region, 0, PAGE_BYTES, 'x');
        if (memfd->capabilities & BACKEND_COLLAPSIBLE)
                assert_int_equal(region_collapse(region, 0, HUGE_BYTES, true, &yes, &n_huge, &n_failed), -ECANCELED);
        region_unref(region);
}

/* --- a file system that is too small ------------------------------------------------------------------------------ */

typedef struct SmallBackend {
        Backend backend;
        int fd_mount;
} SmallBackend;

static int small_create_file(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd)
{
        int fd = openat(CONTAINER_OF(backend, SmallBackend, backend)->fd_mount, ".", O_TMPFILE | O_RDWR | O_CLOEXEC,
                        0600);

        if (fd < 0)
                return -errno;
        assert_int_equal(ftruncate(fd, (off_t)size_bytes), 0);
        *ret_fd = fd;
        return 0;
}

static const BackendOps small_ops = { .name = "small", .create_file = small_create_file };

static void mount_small(SmallBackend *small, const char *size)
{
        int fd = (int)syscall(SYS_fsopen, "tmpfs", 1);

        if (fd < 0)
                skip();
        assert_int_equal(syscall(SYS_fsconfig, fd, 1, "size", size, 0), 0);
        assert_int_equal(syscall(SYS_fsconfig, fd, 6, NULL, NULL, 0), 0);
        small->fd_mount = (int)syscall(SYS_fsmount, fd, 1, 0);
        assert_true(small->fd_mount >= 0);
        close(fd);
        small->backend = (Backend){ .ops = &small_ops, .capabilities = BACKEND_PUNCHABLE };
}

static void test_failed_reservation_leaves_nothing(void **state)
{
        SmallBackend small;
        Region *region;

        mount_small(&small, "96m");
        region = new_region(&small.backend, 160 * MIB);
        assert_int_equal(region_reserve(region, 0, 160 * MIB, NULL), -ENOSPC);
        assert_int_equal(allocated_bytes(region), 0);
        /* A first slice that fits, and then the whole of what is there. */
        assert_int_equal(region_reserve(region, 0, 96 * MIB, NULL), 0);
        assert_int_equal(allocated_bytes(region), 96 * MIB);
        assert_int_equal(region_reserve(region, 96 * MIB, PAGE_BYTES, NULL), -ENOSPC);
        assert_int_equal(allocated_bytes(region), 96 * MIB);
        region_unref(region);
        close(small.fd_mount);
}

static void test_failed_reservation_keeps_what_was_there(void **state)
{
        SmallBackend small;
        Region *region;

        mount_small(&small, "96m");
        region = new_region(&small.backend, 192 * MIB);
        fill(region, 5 * PAGE_BYTES, PAGE_BYTES, 'k'); /* in the first slice, which will succeed */
        assert_int_equal(region_reserve(region, 0, 192 * MIB, NULL), -ENOSPC);
        assert_bytes(region, 5 * PAGE_BYTES, PAGE_BYTES, 'k');
        assert_int_equal(region_punch(region, 0, 192 * MIB, NULL), 0);
        /* In the slice that will fail; the first is taken back. */
        fill(region, 65 * MIB, PAGE_BYTES, 'k');
        assert_int_equal(region_reserve(region, 0, 192 * MIB, NULL), -ENOSPC);
        assert_bytes(region, 65 * MIB, PAGE_BYTES, 'k');
        assert_int_equal(allocated_bytes(region), PAGE_BYTES);
        region_unref(region);
        close(small.fd_mount);
}

static void on_alarm(int number)
{
}

/* A08: a signal each millisecond, which interrupts what the kernel lets it, does not keep a reservation from ending. */
static void test_a08_signals_do_not_stop_a_reservation(void **state)
{
        struct sigaction action = { .sa_handler = on_alarm }, before;
        const struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
        Region *region = new_region(memfd, 128 * MIB);
        int r;

        assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
        r = region_reserve(region, 0, 128 * MIB, NULL);
        assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
        assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
        assert_int_equal(r, 0);
        assert_int_equal(allocated_bytes(region), 128 * MIB);
        region_unref(region);
}

/* --- zeroing ------------------------------------------------------------------------------------------------------ */

static void test_zero_by_table(void **state)
{
        static const struct {
                uint64_t offset, n_bytes;
        } rows[] = {
                { 0, 0 },
                { 5, 0 },
                { 0, 1 },
                { PAGE_BYTES - 1, 1 },
                { PAGE_BYTES - 1, 2 },
                { 0, PAGE_BYTES },
                { 1, PAGE_BYTES },
                { 1, 2 * PAGE_BYTES - 2 },
                { 10, 20 },
                { 100, 5 * PAGE_BYTES },
                { PAGE_BYTES, 6 * PAGE_BYTES },
                { 0, 8 * PAGE_BYTES },
                { 7 * PAGE_BYTES + 1, PAGE_BYTES - 1 },
        };
        Region *region = new_region(memfd, 8 * PAGE_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                uint64_t end = rows[i].offset + rows[i].n_bytes;

                fill(region, 0, 8 * PAGE_BYTES, 'z');
                assert_int_equal(region_zero(region, rows[i].offset, rows[i].n_bytes, NULL), 0);
                assert_bytes(region, 0, rows[i].offset, 'z');
                assert_bytes(region, rows[i].offset, rows[i].n_bytes, 0);
                assert_bytes(region, end, 8 * PAGE_BYTES - end, 'z');
        }
        region_unref(region);
}

static void test_zeroing_holes_takes_no_memory(void **state)
{
        Region *region = new_region(memfd, 8 * PAGE_BYTES);

        assert_int_equal(region_zero(region, 100, 5 * PAGE_BYTES, NULL), 0);
        assert_int_equal(allocated_bytes(region), 0);
        region_unref(region);
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

static bool is_left_out_of_dumps(const void *address)
{
        FILE *smaps = fopen("/proc/self/smaps", "re");
        bool is_ours = false, is_left_out = false;
        unsigned long long begin, end;
        char line[512];

        assert_non_null(smaps);
        while (fgets(line, sizeof(line), smaps)) {
                if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
                        is_ours = begin == (uintptr_t)address;
                else if (is_ours && strncmp(line, "VmFlags:", 8) == 0)
                        is_left_out = strstr(line, " dd") != NULL;
        }
        fclose(smaps);
        return is_left_out;
}

static void test_mapping(void **state)
{
        static const uint64_t sizes[] = { PAGE_BYTES, 3 * PAGE_BYTES, HUGE_BYTES, 3 * HUGE_BYTES };
        Backend *const backends[] = { memfd, tmpfs };

        for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
                Region *region = new_region(backends[i % 2], sizes[i / 2]);

                assert_int_equal(region_map(region, true), 0);
                assert_true(region->is_writable);
                assert_true(IS_ALIGNED((uintptr_t)region->data, HUGE_BYTES));
                assert_true(is_left_out_of_dumps(region->data));
                region->data[region->size_bytes - 1] = 'e';
                assert_bytes(region, region->size_bytes - 1, 1, 'e');
                region_unmap(region);
                assert_null(region->data);
                assert_int_equal(region_map(region, false), 0);
                assert_false(region->is_writable);
                assert_int_equal(region->data[region->size_bytes - 1], 'e');
                assert_int_equal(mprotect(region->data, PAGE_BYTES, PROT_READ | PROT_WRITE), -1);
                region_unref(region); /* unmaps: the harness counts */
        }
}

static void test_populate(void **state)
{
        Region *region = new_region(memfd, HUGE_BYTES);

        assert_int_equal(region_reserve(region, 0, HUGE_BYTES, NULL), 0);
        assert_int_equal(region_map(region, true), 0);
        assert_int_equal(region_populate(region, &yes), -ECANCELED);
        assert_int_equal(region_populate(region, NULL), 0);
        assert_int_equal(allocated_bytes(region), HUGE_BYTES);
        assert_bytes(region, 0, HUGE_BYTES, 0);
        region_unref(region);
}

static void test_writing(void **state)
{
        static const struct {
                uint64_t offset;
                size_t n_bytes;
                int result;
        } rows[] = {
                { 0, 0, 0 },
                { 0, 100, 0 },
                { 3 * PAGE_BYTES, PAGE_BYTES, 0 },
                { 4 * PAGE_BYTES, 0, 0 },
                { 4 * PAGE_BYTES, 1, -EINVAL },
                { 3 * PAGE_BYTES + 1, PAGE_BYTES, -EINVAL },
                { UINT64_MAX, 1, -EINVAL },
                { 1, SIZE_MAX, -EINVAL },
        };
        Region *region = new_region(memfd, 4 * PAGE_BYTES);
        char bytes[PAGE_BYTES];
        uint64_t allocated = 99;

        memset(bytes, 'w', sizeof(bytes));
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(region_write(region, rows[i].offset, bytes, rows[i].n_bytes), rows[i].result);
                if (rows[i].result == 0)
                        assert_bytes(region, rows[i].offset, rows[i].n_bytes, 'w');
        }
        assert_int_equal(region_get_allocated(region, &allocated), 0);
        assert_int_equal(allocated, 2 * PAGE_BYTES);
        assert_int_equal(region_seal_finally(region), 0);
        assert_int_equal(region_write(region, 0, bytes, 1), -EPERM);
        region_unref(region);
}

static void test_resizing(void **state)
{
        static const struct {
                uint64_t asked, made;
                int result;
        } rows[] = {
                { 0, PAGE_BYTES, -EINVAL },
                { 5 * PAGE_BYTES - 1, 5 * PAGE_BYTES, 0 },
                { REGION_WHOLE_FOLIOS_BYTES + 1, REGION_WHOLE_FOLIOS_BYTES + HUGE_BYTES, 0 },
                { INT64_MAX, REGION_WHOLE_FOLIOS_BYTES + HUGE_BYTES, -EFBIG },
                { UINT64_MAX, REGION_WHOLE_FOLIOS_BYTES + HUGE_BYTES, -EFBIG },
                { 1, PAGE_BYTES, 0 },
        };
        Region *region = new_region(memfd, 1);
        struct stat st;

        fill(region, 0, 100, 'r');
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(region_resize(region, rows[i].asked), rows[i].result);
                assert_int_equal(region->size_bytes, rows[i].made);
                assert_int_equal(fstat(region->fd, &st), 0);
                assert_int_equal(st.st_size, rows[i].made);
                assert_bytes(region, 0, 100, 'r');
        }
        region_unref(region);
}

static int attempt_region(void)
{
        Region *region = NULL;
        int r = region_new(memfd, "test", HUGE_BYTES, &region);

        if (r == 0)
                r = region_map(region, false);
        region_unref(region);
        return r;
}

static void test_allocation_failures(void **state)
{
        fail_alloc_sweep(attempt_region);
}

static void test_no_descriptor_left(void **state)
{
        Region *region = new_region(memfd, PAGE_BYTES), *other = NULL;
        struct rlimit before, low;
        int r_new, r_open, r_map;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        low = before;
        low.rlim_cur = 0;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        r_new = region_new(memfd, "test", PAGE_BYTES, &other);
        r_open = region_open_read_only(region);
        r_map = region_map(region, false);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(r_new, -EMFILE);
        assert_null(other);
        assert_int_equal(r_open, -EMFILE);
        assert_int_equal(r_map, -EMFILE);
        assert_null(region->data);
        region_unref(region);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_references_and_ids),
                UNIT_TEST(test_ranges_outside_are_refused),
                UNIT_TEST(test_reserve_and_punch),
                UNIT_TEST(test_cancelled_before_it_begins),
                UNIT_TEST(test_failed_reservation_leaves_nothing),
                UNIT_TEST(test_failed_reservation_keeps_what_was_there),
                UNIT_TEST(test_a08_signals_do_not_stop_a_reservation),
                UNIT_TEST(test_zero_by_table),
                UNIT_TEST(test_zeroing_holes_takes_no_memory),
                UNIT_TEST(test_mapping),
                UNIT_TEST(test_populate),
                UNIT_TEST(test_writing),
                UNIT_TEST(test_resizing),
                UNIT_TEST(test_allocation_failures),
                UNIT_TEST(test_no_descriptor_left),
        };

        return cmocka_run_group_tests(tests, make_backends, free_backends);
}
