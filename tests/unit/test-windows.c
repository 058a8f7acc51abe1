/* SPDX-License-Identifier: Apache-2.0 */
/* Which windows of a mapping are faulted in for a read, and how much is copied before the next look. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/windows.h"
#include "tests/unit/harness.h"

#define W WINDOW_BYTES

enum { N_WINDOWS = 64 };

static void test_plan(void **state)
{
        static const struct {
                const char *there;   /* D: done; 1-8: small reads so far; else: nothing */
                uint64_t offset, n_bytes, limit;
                size_t first, n_windows;
                uint64_t n_now;
                int count;           /* of the first window afterwards; -1: as before */
        } rows[] = {
                /* Small and alone: the kernel's own faults. */
                { "", 0, 1, 10 * W, 0, 0, 1, 1 },
                { "3", 5, WINDOW_LARGE_BYTES - 1, 10 * W, 0, 0, WINDOW_LARGE_BYTES - 1, 4 },
                { "..", W - 1, 2, 10 * W, 0, 0, 1, 1 },
                { "..1", 2 * W, 100, 10 * W, 2, 0, 100, 2 },
                /* Once too often. */
                { "8", 5, 1, 10 * W, 0, 1, 1, -1 },
                /* Large. */
                { "", 0, WINDOW_LARGE_BYTES, 10 * W, 0, 1, WINDOW_LARGE_BYTES, -1 },
                { "", 5, W, 10 * W, 0, 2, W, -1 },
                { "", 0, 100 * W, 100 * W, 0, 8, 8 * W, -1 },
                { "", 100, 3 * W, 10 * W, 0, 4, 3 * W, -1 },
                { "..D", 0, 10 * W, 10 * W, 0, 2, 2 * W, -1 },
                /* In order: further ahead the longer it goes. */
                { "D", W, 1, 10 * W, 1, 1, 1, -1 },
                { "DD", 2 * W, 4096, 10 * W, 2, 2, 4096, -1 },
                { "DDDDDDDD", 8 * W, 4096, 64 * W, 8, 8, 4096, -1 },
                { "DDDDDDDDDDDDDDDD", 16 * W, 4096, 64 * W, 16, 8, 4096, -1 },
                { "DDDDDDDD", 8 * W, 4096, 10 * W, 8, 2, 4096, -1 },
                { "DDDD..D", 4 * W, 4096, 10 * W, 4, 2, 4096, -1 },
                { "DDDD", 4 * W, 4096, 4 * W + 4096, 4, 1, 4096, -1 },
                /* There. */
                { "D", 0, W, 10 * W, 0, 0, W, -1 },
                { "D", 1, W, 10 * W, 0, 0, W - 1, -1 },
                { "DDD.", 5, 10 * W, 20 * W, 0, 0, 3 * W - 5, -1 },
                { "DDD", 0, 3 * W, 3 * W, 0, 0, 3 * W, -1 },
                /* The very end. */
                { "", N_WINDOWS * W - 1, 1, N_WINDOWS * W, N_WINDOWS - 1, 0, 1, 1 },
                { "", (N_WINDOWS - 2) * W, 2 * W, N_WINDOWS * W, N_WINDOWS - 2, 2, 2 * W, -1 },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Window windows[N_WINDOWS];
                WindowsPlan plan;
                uint8_t before;

                for (size_t k = 0; k < N_WINDOWS; k++)
                        atomic_init(&windows[k], 0);
                for (size_t k = 0; rows[i].there[k]; k++) {
                        char c = rows[i].there[k];

                        windows[k] = c == 'D' ? WINDOW_DONE : c >= '1' && c <= '9' ? (uint8_t)(c - '0') : 0;
                }
                before = windows[rows[i].first];
                plan = windows_plan(windows, rows[i].offset, rows[i].n_bytes, rows[i].limit);
                if (plan.first != rows[i].first || plan.n_windows != rows[i].n_windows || plan.n_bytes != rows[i].n_now)
                        fail_msg("row %zu: window %zu, %zu of them, %llu bytes", i, plan.first, plan.n_windows,
                                 (unsigned long long)plan.n_bytes);
                assert_int_equal(windows[rows[i].first], rows[i].count < 0 ? before : rows[i].count);
        }
}

/* Any way through a mapping ends, looks at every byte once, and leaves no window for twice. */
static void test_walks_end(void **state)
{
        static const uint64_t blocks[] = { 1000, 4096, 65535, 65536, MIB, 3 * W + 5, 20 * W };

        for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
                uint64_t limit = 20 * W - 777, n_calls = 0, n_populated = 0;
                Window windows[N_WINDOWS];

                for (size_t k = 0; k < N_WINDOWS; k++)
                        atomic_init(&windows[k], 0);
                for (uint64_t at = 0; at < limit;) {
                        uint64_t n = MIN(blocks[i], limit - at);
                        WindowsPlan plan = windows_plan(windows, at, n, limit);

                        assert_true(plan.n_bytes >= 1 && plan.n_bytes <= n);
                        assert_int_equal(plan.first, at / W);
                        for (size_t k = 0; k < plan.n_windows; k++) {
                                assert_int_not_equal(windows[plan.first + k], WINDOW_DONE);
                                windows[plan.first + k] = WINDOW_DONE;
                                n_populated++;
                        }
                        n_calls += plan.n_windows > 0;
                        at += plan.n_bytes;
                }
                assert_int_equal(n_populated, 20);
                /* 1 + 1 + 2 + 4 + 8 + 4 */
                assert_true(n_calls <= 6);
                assert_int_equal(windows[20], 0);
        }
}

static void test_prepare(void **state)
{
        enum { N_PAGES = 1536 };
        static unsigned char there[N_PAGES];
        int fd = memfd_create("windows", MFD_CLOEXEC);
        Window windows[3];
        uint8_t *data;

        for (unsigned is_whole = 0; is_whole < 2; is_whole++) {
                assert_int_equal(ftruncate(fd, 0), 0);
                assert_int_equal(ftruncate(fd, N_PAGES * 4096), 0);
                data = mmap(NULL, N_PAGES * 4096, PROT_READ, MAP_SHARED, fd, 0);
                assert_true(data != MAP_FAILED);
                for (size_t i = 0; i < 3; i++)
                        atomic_init(&windows[i], 0);
                /* From page 10 on, data up to the middle of page 30. */
                assert_int_equal(windows_prepare(windows, data, 10 * 4096, 20 * 4096, 30 * 4096 + 100, is_whole), 20 * 4096);
                assert_int_equal(windows[0], WINDOW_DONE);
                assert_int_equal(windows[1], 0);
                assert_int_equal(mincore(data, N_PAGES * 4096, there), 0);
                for (size_t i = 0; i < N_PAGES; i++)
                        assert_int_equal(there[i] & 1, i >= (is_whole ? 0 : 10) && i <= 30);
                /* A small read of another touches nothing by itself. */
                assert_int_equal(windows_prepare(windows, data, 2 * W + 1, 5, 3 * W, is_whole), 5);
                assert_int_equal(mincore(data, N_PAGES * 4096, there), 0);
                assert_int_equal(there[1024] & 1, 0);
                /* A file that has lost its pages is for the copy to find out. */
                assert_int_equal(ftruncate(fd, W), 0);
                assert_int_equal(windows_prepare(windows, data, 2 * W, MIB, 3 * W, is_whole), MIB);
                munmap(data, N_PAGES * 4096);
        }
        close(fd);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_plan),
                UNIT_TEST(test_walks_end),
                UNIT_TEST(test_prepare),
        };

        return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
