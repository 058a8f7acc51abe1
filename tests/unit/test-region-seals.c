/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each seal of a region leaves possible and to whom, tried and not only asked; and what stands in for seals on a
 * backend that has none. One child has no /proc.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/pages.h"
#include "daemon/memory/region.h"
#include "tests/unit/child.h"
#include "tests/unit/region-fixture.h"

static void test_seal_size(void **state)
{
        Region *region = new_region(memfd, HUGE_BYTES), *plain = new_region(tmpfs, HUGE_BYTES);

        assert_int_equal(region_seal_size(region), 0);
        assert_int_equal(region_seal_size(region), 0);
        assert_int_equal(region->seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
        assert_int_equal(region->seals, fcntl(region->fd, F_GET_SEALS));
        assert_int_equal(ftruncate(region->fd, 0), -1);
        assert_int_equal(ftruncate(region->fd, 2 * HUGE_BYTES), -1);
        fill(region, 0, 10, 'w'); /* still to be written */
        assert_int_equal(region_seal_size(plain), 0);
        assert_int_equal(plain->seals, 0);
        region_unref(plain);
        region_unref(region);
}

static void test_seal_to_daemon(void **state)
{
        Region *region = new_region(memfd, HUGE_BYTES), *plain = new_region(tmpfs, HUGE_BYTES);
        Backend weak = { .ops = memfd->ops };
        void *address;

        assert_int_equal(region_reserve(region, 0, HUGE_BYTES, NULL), 0);
        assert_int_equal(region_map(region, true), 0);
        assert_int_equal(region_seal_to_daemon(region), 0);
        assert_int_equal(region->seals, fcntl(region->fd, F_GET_SEALS));
        region->data[5] = 'd';
        assert_bytes(region, 5, 1, 'd');
        assert_int_equal(pages_map(region->fd, HUGE_BYTES, true, &address), -EPERM);
        assert_int_equal(pwrite(region->fd, "x", 1, 0), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(region_punch(region, 0, HUGE_BYTES, NULL), -EPERM);
        assert_int_equal(region_zero(region, 0, HUGE_BYTES, NULL), -EPERM);
        assert_int_equal(region_open_read_only(region), 0);
        assert_int_equal(pages_map(region->fd_read_only, HUGE_BYTES, false, &address), 0);
        assert_int_equal(((char *)address)[5], 'd');
        munmap(address, HUGE_BYTES);
        region_unref(region);

        /* By mode instead; and by neither, which is said and not passed over. */
        assert_int_equal(region_seal_to_daemon(plain), 0);
        plain->backend = &weak;
        assert_int_equal(region_seal_to_daemon(plain), -EOPNOTSUPP);
        region_unref(plain);
}

static void test_c06_final_seal_and_mappings(void **state)
{
        Region *region = new_region(memfd, HUGE_BYTES), *plain = new_region(tmpfs, HUGE_BYTES);
        uint32_t before = region->seals;
        void *address;

        fill(region, 0, HUGE_BYTES, 'f');
        assert_int_equal(region_map(region, true), 0);
        assert_int_equal(region_seal_finally(region), REGION_E_MAPPED);
        assert_int_equal(region->seals, before);
        assert_int_equal(fcntl(region->fd, F_GET_SEALS), before);
        region_unmap(region);
        /* A mapping for reading is in nobody's way, since it comes from a descriptor that cannot write. */
        assert_int_equal(region_map(region, false), 0);
        assert_int_equal(region_seal_finally(region), 0);
        assert_int_equal(region_seal_finally(region), 0);
        assert_int_equal(region->seals, fcntl(region->fd, F_GET_SEALS));
        assert_int_equal(pwrite(region->fd, "x", 1, 0), -1);
        assert_int_equal(ftruncate(region->fd, 0), -1);
        assert_int_equal(region_punch(region, 0, HUGE_BYTES, NULL), -EPERM);
        assert_int_equal(pages_map(region->fd, HUGE_BYTES, true, &address), -EPERM);
        assert_int_equal(madvise(region->data, HUGE_BYTES, MADV_REMOVE), -1);
        assert_int_equal(region->data[HUGE_BYTES - 1], 'f');
        region_unref(region);

        assert_int_equal(region_seal_finally(plain), -EOPNOTSUPP);
        region_unref(plain);
}

static void test_read_only_descriptor(void **state)
{
        Backend *const backends[] = { memfd, tmpfs };

        for (size_t i = 0; i < 2; i++) {
                Region *region = new_region(backends[i], PAGE_BYTES);
                int fd;

                assert_int_equal(region_open_read_only(region), 0);
                fd = region->fd_read_only;
                assert_true(fd >= 0);
                assert_int_equal(region_open_read_only(region), 0);
                assert_int_equal(region->fd_read_only, fd);
                assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
                assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
                assert_int_equal(write(fd, "x", 1), -1);
                region_unref(region);
        }
}

static void live_without_proc(void *userdata)
{
        Region *region = NULL;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", "/proc", "tmpfs", 0, NULL) < 0)
                _exit(CHILD_SKIPPED);
        CHECK(region_new(memfd, "test", PAGE_BYTES, &region) == 0);
        CHECK(region_open_read_only(region) == -ENOENT);
        CHECK(region->fd_read_only == -1);
        CHECK(region_seal_size(region) == 0);
        CHECK(region_open_read_only(region) == -ENOENT);
        CHECK(region_seal_finally(region) == 0);
        CHECK(region_open_read_only(region) == 0);
        CHECK(region->fd_read_only >= 3);
        CHECK(write(region->fd_read_only, "x", 1) < 0 && errno == EPERM);
        region_unref(region);
}

static void test_without_proc_only_sealed_files_are_handed_out(void **state)
{
        child_run(live_without_proc, NULL);
}

/* Without seals: the end of writing is certain only where no writable descriptor and no mapping by one is left. */
static void test_end_of_writing(void **state)
{
        Region *region = new_region(tmpfs, HUGE_BYTES);
        int fd = region->fd, fd_writer;
        void *address;

        fill(region, 0, 100, 'e');
        fd_writer = fcntl(region->fd, F_DUPFD_CLOEXEC, 3);
        assert_true(fd_writer >= 0);
        assert_int_equal(region_end_writing(region), REGION_E_MAPPED);
        fill(region, 0, 100, 'f'); /* nothing has changed */
        assert_int_equal(pages_map(fd_writer, HUGE_BYTES, true, &address), 0);
        close(fd_writer);
        assert_int_equal(region_end_writing(region), REGION_E_MAPPED);
        munmap(address, HUGE_BYTES);
        assert_int_equal(region_end_writing(region), 0);
        assert_int_equal(region_end_writing(region), 0);
        assert_int_equal(region->fd, fd);
        assert_int_equal(fcntl(region->fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_int_equal(fcntl(region->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(region_write(region, 0, "x", 1), -EBADF);
        assert_bytes(region, 0, 100, 'f');
        region_unref(region);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_seal_size),
                UNIT_TEST(test_seal_to_daemon),
                UNIT_TEST(test_c06_final_seal_and_mappings),
                UNIT_TEST(test_read_only_descriptor),
                UNIT_TEST(test_without_proc_only_sealed_files_are_handed_out),
                UNIT_TEST(test_end_of_writing),
        };

        return cmocka_run_group_tests(tests, make_backends, free_backends);
}
