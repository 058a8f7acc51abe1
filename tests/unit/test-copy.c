/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: all of it or an error, at any offset, and over interruptions. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/copy.h"
#include "tests/unit/harness.h"

static void test_memory(void **state)
{
        char to[4] = "abc";

        copy_bytes(NULL, NULL, 0);
        copy_bytes(to, "xyz", 2);
        assert_string_equal(to, "xyc");
}

static void test_file_both_ways(void **state)
{
        enum { N = 3 << 20 };
        uint8_t *from = test_malloc(N), *to = test_calloc(1, N);
        int fd = memfd_create("copy", MFD_CLOEXEC);

        for (unsigned i = 0; i < N; i++)
                from[i] = (uint8_t)(i * 31 >> 3);
        assert_int_equal(copy_to_fd(fd, 12345, from, N), 0);
        assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
        assert_int_equal(copy_from_fd(fd, 12345, to, N), 0);
        assert_memory_equal(from, to, N);
        assert_int_equal(copy_from_fd(fd, 12345 + N - 1, to, 1), 0);
        assert_int_equal(to[0], from[N - 1]);
        /* Nothing needs nothing. */
        assert_int_equal(copy_from_fd(fd, 0, NULL, 0), 0);
        assert_int_equal(copy_to_fd(fd, 0, NULL, 0), 0);
        close(fd);
        test_free(from);
        test_free(to);
}

static void test_limits(void **state)
{
        static const uint64_t offsets[] = { (uint64_t)INT64_MAX - 1, (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1,
                                            UINT64_MAX - 1, UINT64_MAX };
        int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING), read_only;
        char path[64], bytes[8] = { 0 };

        assert_int_equal(copy_to_fd(fd, 0, "12345678", 8), 0);
        assert_int_equal(copy_from_fd(fd, 0, bytes, 8), 0);
        assert_int_equal(copy_from_fd(fd, 1, bytes, 8), -EIO);
        assert_int_equal(copy_from_fd(fd, 8, bytes, 1), -EIO);
        for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
                assert_int_equal(copy_from_fd(fd, offsets[i], bytes, 2), -EOVERFLOW);
                assert_int_equal(copy_to_fd(fd, offsets[i], bytes, 2), -EOVERFLOW);
        }
        assert_int_equal(copy_from_fd(-1, 0, bytes, 1), -EBADF);
        assert_int_equal(copy_to_fd(-1, 0, bytes, 1), -EBADF);
        assert_int_equal(copy_to_fd(fd, 0, (void *)8, 1), -EFAULT);
        /* Sealed: what the kernel says is passed on. */
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK), 0);
        assert_int_equal(copy_to_fd(fd, 0, bytes, 1), -EPERM);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        read_only = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(read_only >= 0);
        assert_int_equal(copy_from_fd(read_only, 0, bytes, 8), 0);
        assert_int_equal(copy_to_fd(read_only, 0, bytes, 1), -EBADF);
        close(read_only);
        close(fd);
}

static atomic_uint n_signals;

static void on_signal(int number)
{
        (void)number;
        atomic_fetch_add(&n_signals, 1);
}

static void *copy_again_and_again(void *userdata)
{
        enum { N = 32 << 20 };
        int fd = *(int *)userdata;
        uint8_t *bytes = malloc(N);
        void *result = bytes ? userdata : NULL;

        for (unsigned i = 0; result && i < 1000 && (i < 4 || atomic_load(&n_signals) < 20); i++) {
                memset(bytes, (int)i, N);
                if (copy_to_fd(fd, 0, bytes, N) != 0)
                        result = NULL;
                memset(bytes, 0xff, N);
                if (copy_from_fd(fd, 0, bytes, N) != 0 || bytes[0] != (uint8_t)i || bytes[N - 1] != (uint8_t)i)
                        result = NULL;
        }
        atomic_store(&n_signals, UINT32_MAX / 2);
        free(bytes);
        return result;
}

static void test_signals_do_not_end_it(void **state)
{
        struct sigaction action = { .sa_handler = on_signal }, before;
        int fd = memfd_create("copy", MFD_CLOEXEC);
        pthread_t thread;
        void *result;

        atomic_store(&n_signals, 0);
        sigaction(SIGUSR1, &action, &before);
        assert_int_equal(pthread_create(&thread, NULL, copy_again_and_again, &fd), 0);
        while (atomic_load(&n_signals) < UINT32_MAX / 2) {
                unsigned n = atomic_load(&n_signals);

                pthread_kill(thread, SIGUSR1);
                /* Not the next before this one has been taken: bounded by the thread's own end. */
                while (atomic_load(&n_signals) == n)
                        sched_yield();
        }
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, &fd);
        sigaction(SIGUSR1, &before, NULL);
        close(fd);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_memory),
                UNIT_TEST(test_file_both_ways),
                UNIT_TEST(test_limits),
                UNIT_TEST(test_signals_do_not_end_it),
        };

        return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
