/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: all of it or an error, at any offset, over interruptions and bad memory, alone and with a crew. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/copy.h"
#include "client/lib/crew.h"
#include "tests/unit/harness.h"
#include "tests/unit/child.h"

/* Bad memory below a descriptor, which few kernels let one make: pread() itself, for the whole program. */
static atomic_int n_preads_until_bad = -1;

ssize_t pread(int fd, void *to, size_t n_bytes, off_t offset)
{
        /* Half of it, then the page that is not good. */
        if (atomic_load(&n_preads_until_bad) >= 0) {
                if (atomic_fetch_sub(&n_preads_until_bad, 1) == 0) {
                        errno = EIO;
                        return -1;
                }
                n_bytes = n_bytes / 2 + 1;
        }
        return syscall(SYS_pread64, fd, to, n_bytes, offset);
}

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

static void test_bad_memory_below_a_descriptor(void **state)
{
        uint8_t bytes[4096];
        int fd = memfd_create("copy", MFD_CLOEXEC);

        assert_int_equal(ftruncate(fd, sizeof(bytes)), 0);
        for (int n = 0; n < 4; n++) {
                atomic_store(&n_preads_until_bad, n);
                assert_int_equal(copy_from_fd(fd, 0, bytes, sizeof(bytes)), -EIO);
                assert_int_equal(atomic_load(&n_preads_until_bad), -1);
        }
        assert_int_equal(copy_from_fd(fd, 0, bytes, sizeof(bytes)), 0);
        close(fd);
}

static void fill_pattern(uint8_t *bytes, size_t n_bytes)
{
        uint32_t x = 1;

        for (size_t i = 0; i < n_bytes; i++) {
                x = x * 1664525 + 1013904223;
                bytes[i] = (uint8_t)(x >> 24);
        }
}

/* Around every size at which another way is taken. */
static void test_out(void **state)
{
        enum { N_MAX = (33 << 20) + 64, N_GUARD = 64 };
        static const size_t sizes[] = { 0, 1, 7, 64, 255, 256, 4095, 4096, 4097, 32767, 32768,
                                        (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (4 << 20) + 1,
                                        (32 << 20) - 1, 32 << 20, (32 << 20) + 1 };
        uint8_t *from = test_malloc(N_MAX), *to = test_malloc(N_MAX + 2 * N_GUARD);

        fill_pattern(from, N_MAX);
        assert_int_equal(copy_out(NULL, NULL, 0, 0), 0);
        assert_int_equal(copy_out_by(NULL, NULL, NULL, 0, 0), 0);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                for (unsigned way = 0; way < 3; way++) {
                        size_t n = sizes[i], skew = (i * 13 + way) % 61;
                        uint8_t *at = to + N_GUARD + skew % 7;

                        memset(at - N_GUARD, 0xa5, n + 2 * N_GUARD);
                        if (way == 2)
                                copy_bytes(at, from + skew, n);
                        else if (way == 1)
                                assert_int_equal(copy_out_by(NULL, at, from + skew, n, N_MAX - skew - n), 0);
                        else
                                assert_int_equal(copy_out(at, from + skew, n, i % 2 ? 0 : N_MAX - skew - n), 0);
                        assert_memory_equal(at, from + skew, n);
                        for (unsigned j = 0; j < N_GUARD; j++) {
                                assert_int_equal(at[(int)j - N_GUARD], 0xa5);
                                assert_int_equal(at[n + j], 0xa5);
                        }
                }
        test_free(from);
        test_free(to);
}

typedef struct Large {
        int fd;
        uint8_t *from;
        uint8_t *to;
        size_t n_bytes;
} Large;

enum { LARGE_BYTES = 72 << 20 };

static void large_init(Large *large)
{
        *large = (Large){ .fd = memfd_create("copy", MFD_CLOEXEC), .n_bytes = LARGE_BYTES };
        assert_int_equal(ftruncate(large->fd, LARGE_BYTES), 0);
        large->from = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, large->fd, 0);
        assert_ptr_not_equal(large->from, MAP_FAILED);
        large->to = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(large->to, MAP_FAILED);
        fill_pattern(large->from, 1 << 20);
        for (size_t at = 1 << 20; at < LARGE_BYTES; at += 1 << 20) {
                memcpy(large->from + at, large->from, 1 << 20);
                memcpy(large->from + at, &at, sizeof(at));
        }
}

static void large_deinit(Large *large)
{
        munmap(large->from, LARGE_BYTES);
        munmap(large->to, LARGE_BYTES);
        close(large->fd);
}

static void test_crew(void **state)
{
        static const struct {
                size_t from, to, n_bytes;
        } cases[] = {
                { 0, 0, COPY_CREW_BYTES_MIN - 1 },
                { 0, 0, COPY_CREW_BYTES_MIN },
                { 0, 0, COPY_CREW_BYTES_MIN + 1 },
                { 1, 0, LARGE_BYTES - 1 },
                { 12345, 77, COPY_CREW_BYTES_MIN + 4097 },
                { (2 << 20) - 1, 3, COPY_CREW_BYTES_MIN + 1 },
                { 0, 0, LARGE_BYTES },
        };
        Crew *crew = NULL;
        Large large;

        large_init(&large);
        assert_int_equal(crew_new(2, &crew), 0);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                size_t end = cases[i].to + cases[i].n_bytes;
                uint8_t *from, *to;

                memset(large.to, 0xa5, 4096);
                memset(large.to + LARGE_BYTES - (10 << 20), 0xa5, 10 << 20);
                from = large.from + cases[i].from;
                to = large.to + cases[i].to;
                assert_int_equal(copy_out_by(crew, to, from, cases[i].n_bytes, 0), 0);
                assert_int_equal(memcmp(to, from, cases[i].n_bytes), 0);
                for (size_t at = 0; at < cases[i].to; at++)
                        assert_int_equal(large.to[at], 0xa5);
                for (size_t at = end; at < MIN(end + 4096, (size_t)LARGE_BYTES); at++)
                        assert_int_equal(large.to[at], 0xa5);
                /* Only what is large enough wakes anybody. */
                assert_int_equal(crew_count_threads(crew), cases[i].n_bytes < COPY_CREW_BYTES_MIN ? 0 : 2);
        }
        crew_free(crew);
        large_deinit(&large);
}

/* In a child, as its first guarded copies: cmocka catches SIGBUS anew in each test, and would have it instead of us. */
static void child_cut_short(void *userdata)
{
        static const size_t ends[] = { 0, 4096, 5 << 20, LARGE_BYTES / 2, LARGE_BYTES - 4096 };
        Large *large = userdata;
        Crew *crew = NULL;

        CHECK(crew_new(2, &crew) == 0);
        CHECK(copy_out_by(crew, large->to, large->from, LARGE_BYTES, 0) == 0);
        /* From the end on, so that it only gets less. */
        for (size_t i = ARRAY_SIZE(ends); i-- > 0;) {
                CHECK(ftruncate(large->fd, (off_t)ends[i]) == 0);
                CHECK(copy_out_by(crew, large->to, large->from, LARGE_BYTES, 0) == -EIO);
                CHECK(copy_out_by(NULL, large->to, large->from, LARGE_BYTES, 0) == -EIO);
                CHECK(copy_out(large->to, large->from + ends[i], 1, 0) == -EIO);
                CHECK(copy_out(large->to, large->from + LARGE_BYTES - 5000, 5000, 0) == -EIO);
                if (ends[i] > 0) {
                        CHECK(copy_out(large->to, large->from, MIN(ends[i], (size_t)1 << 20), LARGE_BYTES / 2) == 0);
                        CHECK(copy_out(large->to, large->from + ends[i] - 1, 1, 4096) == 0);
                        CHECK(copy_out(large->to, large->from + ends[i] - 1, 2, 4096) == -EIO);
                }
        }
        /* The crew has come through it. */
        CHECK(ftruncate(large->fd, LARGE_BYTES) == 0);
        CHECK(copy_out_by(crew, large->to, large->from, LARGE_BYTES, 0) == 0);
        crew_free(crew);
}

static void test_bad_memory_below_a_mapping(void **state)
{
        Large large;

        large_init(&large);
        child_run(child_cut_short, &large);
        large_deinit(&large);
}

static void child_copies_alone(void *userdata)
{
        void **both = userdata;
        Large *large = both[0];

        memset(large->to, 0, LARGE_BYTES);
        CHECK(copy_out_by(both[1], large->to, large->from, LARGE_BYTES, 0) == 0);
        CHECK(memcmp(large->to, large->from, LARGE_BYTES) == 0);
        CHECK(crew_count_threads(both[1]) == 0);
}

static void test_crew_after_fork(void **state)
{
        Crew *crew = NULL;
        Large large;

        large_init(&large);
        assert_int_equal(crew_new(1, &crew), 0);
        assert_int_equal(copy_out_by(crew, large.to, large.from, LARGE_BYTES, 0), 0);
        child_run(child_copies_alone, (void *[]){ &large, crew });
        crew_free(crew);
        large_deinit(&large);
}

/* Fresh, there already, and large enough for the other stores. */
static void copy_fill_large(void)
{
        enum { N = (128 << 20) + 4096 };
        uint8_t *to = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(to, MAP_FAILED);
        for (unsigned i = 0; i < 2; i++) {
                to[0] = to[1] = to[N - 1] = 0xa5;
                copy_fill(to + 1, N - 2);
                assert_int_equal(to[0], 0xa5);
                assert_int_equal(to[N - 1], 0xa5);
                assert_true(to[1] == 0 && memcmp(to + 1, to + 2, N - 3) == 0);
                memset(to, 0xa5, N);
        }
        /* A hole in the middle: fresh again. */
        assert_int_equal(madvise(to + (64 << 20), 4 << 20, MADV_DONTNEED), 0);
        copy_fill(to, N);
        assert_true(to[0] == 0 && memcmp(to, to + 1, N - 1) == 0);
        munmap(to, N);
}

static void test_fill(void **state)
{
        enum { N_MAX = (5 << 20) + 256 };
        static const size_t sizes[] = { 0, 1, 63, 64, 65, 4095, 4096, 65537, (1 << 20) + 1, 5 << 20 };
        uint8_t *to = test_malloc(N_MAX);

        copy_fill(NULL, 0);
        copy_fill_large();
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                size_t n = sizes[i], at = 64 + i;

                memset(to, 0xa5, N_MAX);
                copy_fill(to + at, n);
                for (size_t j = 0; j < at; j++)
                        assert_int_equal(to[j], 0xa5);
                assert_true(n == 0 || (to[at] == 0 && memcmp(to + at, to + at + 1, n - 1) == 0));
                for (size_t j = at + n; j < at + n + 64; j++)
                        assert_int_equal(to[j], 0xa5);
        }
        test_free(to);
}

/* Into memory never touched; what lies beside it in its first and last page stays. */
static void test_out_to_fresh(void **state)
{
        static const size_t sizes[] = { (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (40 << 20) + 4097, LARGE_BYTES - 64 };
        Crew *crew = NULL;
        Large large;

        large_init(&large);
        assert_int_equal(crew_new(1, &crew), 0);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                for (unsigned n_touched = 0; n_touched < 3; n_touched++) {
                        size_t n = sizes[i];

                        assert_int_equal(madvise(large.to, LARGE_BYTES, MADV_DONTNEED), 0);
                        large.to[6] = 0xa5;
                        large.to[7 + n] = 0xa5;
                        if (n_touched == 1)
                                large.to[7 + n / 2] = 1;
                        else if (n_touched == 2)
                                memset(large.to + 7, 1, n);
                        if (n_touched == 0)
                                copy_bytes(large.to + 7, large.from + i, n);
                        assert_int_equal(memcmp(large.to + 7, large.from + i, n) == 0, n_touched == 0);
                        if (n_touched == 0)
                                assert_int_equal(madvise(large.to + 4096, n - 8192, MADV_DONTNEED), 0);
                        assert_int_equal(copy_out_by(i % 2 ? NULL : crew, large.to + 7, large.from + i, n, 0), 0);
                        assert_int_equal(memcmp(large.to + 7, large.from + i, n), 0);
                        assert_int_equal(large.to[6], 0xa5);
                        assert_int_equal(large.to[7 + n], 0xa5);
                }
        crew_free(crew);
        large_deinit(&large);
}

/* A hint may be about anything. */
static void test_prefetch(void **state)
{
        void *unmapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(unmapped, MAP_FAILED);
        assert_int_equal(munmap(unmapped, 4096), 0);
        copy_prefetch(NULL, 0);
        copy_prefetch(unmapped, 0);
        copy_prefetch(unmapped, 1);
        copy_prefetch(unmapped, 4096);
        /* Bounded, or this would take very long. */
        copy_prefetch(unmapped, SIZE_MAX - (uintptr_t)unmapped);
}

static void test_describe(void **state)
{
        assert_non_null(strstr(copy_describe(), "4 KiB "));
        assert_non_null(strstr(copy_describe(), "("));
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                /* Before any other guarded copy: it needs a child in which none has been. */
                UNIT_TEST(test_bad_memory_below_a_mapping),
                UNIT_TEST(test_memory),
                UNIT_TEST(test_file_both_ways),
                UNIT_TEST(test_limits),
                UNIT_TEST(test_signals_do_not_end_it),
                UNIT_TEST(test_bad_memory_below_a_descriptor),
                UNIT_TEST(test_out),
                UNIT_TEST(test_crew),
                UNIT_TEST(test_crew_after_fork),
                UNIT_TEST(test_out_to_fresh),
                UNIT_TEST(test_fill),
                UNIT_TEST(test_prefetch),
                UNIT_TEST(test_describe),
        };

        return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
