/* SPDX-License-Identifier: Apache-2.0 */
/* What bench measures with: figures, memory, plain files, counted system calls, work of a child, a kept signal. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/ctl/bench-child.h"
#include "client/ctl/bench-count.h"
#include "client/ctl/bench-crowd.h"
#include "client/ctl/bench-folder.h"
#include "client/ctl/bench-laps.h"
#include "client/ctl/bench-median.h"
#include "client/ctl/bench-memory.h"
#include "client/ctl/bench-plain.h"
#include "client/ctl/bench-stop.h"
#include "client/ctl/bench-waiter.h"

#define MIB ((size_t)1 << 20)

static bool is_near(double a, double b)
{
        return a - b < 1e-9 && b - a < 1e-9;
}

static void test_medians(void **state)
{
        static const struct {
                double values[7];
                size_t n_values;
                double median, spread;
        } rows[] = {
                { { 0 }, 0, 0, 0 },
                { { 3 }, 1, 3, 0 },
                { { 4, 2 }, 2, 3, 1.0 / 3 },
                { { 5, 1, 3 }, 3, 3, 2.0 / 3 },
                { { 7, 7, 7, 7, 7 }, 5, 7, 0 },
                /* One that is far out moves neither. */
                { { 10, 10, 10, 1000, 10, 10, 10 }, 7, 10, 0 },
                { { 5, 4, 3, 2, 1 }, 5, 3, 2.0 / 3 },
                { { 0, 0, 0 }, 3, 0, 0 },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                double values[7];

                memcpy(values, rows[i].values, sizeof(values));
                assert_true(is_near(bench_median(values, rows[i].n_values), rows[i].median));
                memcpy(values, rows[i].values, sizeof(values));
                assert_true(is_near(bench_spread(values, rows[i].n_values), rows[i].spread));
        }
        (void)state;
}

static void test_areas(void **state)
{
        static const size_t sizes[] = { 1, BENCH_PAGE_BYTES, BENCH_HUGE_BYTES, BENCH_HUGE_BYTES + 1, 8 * MIB };
        BenchArea area = BENCH_AREA_NULL;

        bench_area_deinit(&area);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                assert_int_equal(bench_area_init(&area, sizes[i]), 0);
                assert_int_equal((uintptr_t)area.address % BENCH_HUGE_BYTES, 0);
                assert_true(area.n_bytes >= sizes[i] && area.n_bytes < sizes[i] + BENCH_HUGE_BYTES);
                /* All of it is there. */
                assert_true(bench_smaps_bytes(area.address, area.n_bytes, "Rss:") == area.n_bytes);
                area.address[area.n_bytes - 1] = 1;
                bench_area_deinit(&area);
                assert_null(area.address);
        }
        assert_int_equal(bench_area_init(&area, 0), -EINVAL);
        assert_int_equal(bench_area_init(&area, SIZE_MAX), -EINVAL);
        assert_int_equal(bench_area_init(&area, SIZE_MAX / 2), -ENOMEM);
        assert_null(area.address);
        assert_true(bench_memory_available() > 0);
        (void)state;
}

static void test_loops_copy(void **state)
{
        static const size_t sizes[] = { 0, 1, 7, 63, 64, 65, 4096, 100000 };
        unsigned char from[100001], to[100001];
        size_t n_copies = 0;

        bench_fill(from, sizeof(from), 3);
        for (const BenchCopy *copy = bench_copies; copy->name; copy++, n_copies++)
                for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                        memset(to, 0xee, sizeof(to));
                        copy->run(to, from, sizes[i]);
                        assert_memory_equal(to, from, sizes[i]);
                        assert_int_equal(to[sizes[i]], 0xee);
                }
        assert_true(n_copies >= 1);
        /* The same seed, the same bytes; another, others. */
        bench_fill(to, sizeof(to), 3);
        assert_memory_equal(to, from, sizeof(to));
        bench_fill(to, sizeof(to), 5);
        assert_memory_not_equal(to, from, sizeof(to));
        (void)state;
}

static void check_file(BenchPlain *plain, BenchPages pages)
{
        BenchFile file;
        struct stat status;
        char *data = malloc(4 * MIB), *found = malloc(4 * MIB);
        int fd;

        assert_non_null(data);
        assert_non_null(found);
        bench_fill(data, 4 * MIB, 9);
        assert_int_equal(bench_plain_make(plain, pages, BENCH_CONTENT_WRITTEN, data, 4 * MIB, &fd), 0);
        assert_int_equal(pread(fd, found, 4 * MIB, 0), 4 * MIB);
        assert_memory_equal(found, data, 4 * MIB);
        assert_true(is_near(bench_plain_huge_share(fd, 4 * MIB), pages == BENCH_PAGES_2M ? 1 : 0));
        close(fd);
        assert_int_equal(bench_plain_make(plain, pages, BENCH_CONTENT_RESERVED, NULL, 4 * MIB, &fd), 0);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(status.st_blocks, 4 * MIB / 512);
        close(fd);
        assert_int_equal(bench_plain_make(plain, pages, BENCH_CONTENT_HOLE, NULL, 4 * MIB, &fd), 0);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(status.st_blocks, 0);
        assert_int_equal(status.st_size, 4 * MIB);
        close(fd);
        assert_int_equal(bench_file_init(&file, plain, pages, data, 1000), 0);
        fd = openat(file.directory_fd, file.path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, found, 4 * MIB, 0), 1000);
        assert_memory_equal(found, data, 1000);
        close(fd);
        bench_file_deinit(&file);
        bench_file_deinit(&file);
        free(data);
        free(found);
}

static void test_plain_files(void **state)
{
        BenchPlain plain;

        bench_plain_init(&plain);
        assert_true(bench_plain_has(&plain, BENCH_PAGES_4K));
        for (int i = 0; i < _BENCH_PAGES_MAX; i++) {
                if (bench_plain_has(&plain, (BenchPages)i))
                        check_file(&plain, (BenchPages)i);
                else
                        /* Then it is said. */
                        assert_string_not_equal(plain.sentence, "");
        }
        bench_plain_deinit(&plain);
        assert_false(bench_plain_has(&plain, BENCH_PAGES_2M));
        /* Without any mount. */
        check_file(&plain, BENCH_PAGES_4K);
        (void)state;
}

static void test_system_calls_are_counted(void **state)
{
        static const unsigned counts[] = { 0, 1, 37 };
        BenchTracer tracer;

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                uint64_t n;

                bench_tracer_begin(&tracer);
                for (unsigned k = 0; k < counts[i]; k++)
                        (void)syscall(SYS_getuid);
                n = bench_tracer_end(&tracer);
                /* Who is traced already, or may not be, does not know. */
                if (n != BENCH_UNKNOWN)
                        assert_int_equal(n, counts[i]);
        }
        /* Too many to wait for. */
        bench_tracer_begin(&tracer);
        for (unsigned k = 0; k < 20001; k++)
                (void)syscall(SYS_getuid);
        assert_true(bench_tracer_end(&tracer) == BENCH_UNKNOWN);
        (void)state;
}

static void test_faults_are_counted(void **state)
{
        BenchCounter counter;
        BenchSample sample = { 0 };
        unsigned char *bytes =
                mmap(NULL, 16 * BENCH_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(bytes != MAP_FAILED);
        assert_int_equal(madvise(bytes, 16 * BENCH_PAGE_BYTES, MADV_NOHUGEPAGE), 0);
        bench_counter_init(&counter);
        bench_counter_begin(&counter, &sample);
        for (size_t i = 0; i < 16; i++)
                *(volatile unsigned char *)(bytes + i * BENCH_PAGE_BYTES) = 1;
        bench_counter_end(&counter, &sample);
        assert_true(sample.n_faults >= 16);
        assert_false(sample.is_taken);
        assert_true(counter.misses_fd >= 0 || sample.n_tlb_misses == BENCH_UNKNOWN);
        /* A sample that was taken otherwise is left as it is. */
        sample = (BenchSample){ .time_ns = 5, .n_faults = 6, .n_tlb_misses = 7, .is_taken = true };
        bench_counter_end(&counter, &sample);
        assert_true(sample.time_ns == 5 && sample.n_faults == 6 && sample.n_tlb_misses == 7);
        bench_counter_deinit(&counter);
        bench_counter_deinit(&counter);
        munmap(bytes, 16 * BENCH_PAGE_BYTES);
        (void)state;
}

static int report(void *argument, BenchSample *sample)
{
        sample->n_faults = *(unsigned *)argument;
        return *(unsigned *)argument == 0 ? -EIO : 0;
}

static int die(void *argument, BenchSample *sample)
{
        (void)argument;
        (void)sample;
        _exit(0);
}

static void test_children_report(void **state)
{
        BenchSample sample = { .n_faults = 99 };
        unsigned number = 0;

        assert_int_equal(bench_child_run(report, &number, &sample), -EIO);
        assert_int_equal(bench_child_run(die, NULL, &sample), -ECHILD);
        assert_true(sample.n_faults == 99 && !sample.is_taken);
        number = 42;
        assert_int_equal(bench_child_run(report, &number, &sample), 0);
        assert_true(sample.n_faults == 42 && sample.is_taken);
        (void)state;
}

static volatile sig_atomic_t n_signals;

static void on_signal(int signal_number)
{
        (void)signal_number;
        n_signals++;
}

static void test_signals_are_kept(void **state)
{
        struct sigaction ours = { .sa_handler = on_signal }, found;

        assert_int_equal(sigaction(SIGTERM, &ours, NULL), 0);
        bench_stop_begin();
        assert_false(bench_stop_is_wanted());
        bench_stop_end();
        assert_int_equal(n_signals, 0);
        bench_stop_begin();
        assert_int_equal(raise(SIGTERM), 0);
        assert_int_equal(n_signals, 0);
        assert_true(bench_stop_is_wanted());
        /* It comes now, and to whom it would have come. */
        bench_stop_end();
        assert_int_equal(n_signals, 1);
        assert_false(bench_stop_is_wanted());
        assert_int_equal(sigaction(SIGTERM, NULL, &found), 0);
        assert_true(found.sa_handler == on_signal);
        /* What nohup ignores stays ignored. */
        ours.sa_handler = SIG_IGN;
        assert_int_equal(sigaction(SIGHUP, &ours, NULL), 0);
        bench_stop_begin();
        assert_int_equal(raise(SIGHUP), 0);
        assert_false(bench_stop_is_wanted());
        bench_stop_end();
        (void)state;
}

/* --- small operations --------------------------------------------------------------------------------------------- */

static void test_laps_of_one_time(void **state)
{
        static const uint64_t times_ns[] = { 0,    1,    63,   64,        127,       128,
                                             129,  255,  256,  1000,      123456,    UINT64_C(1) << 32,
                                             1u << 31, UINT64_C(1) << 63, UINT64_MAX };
        static BenchLaps laps;

        for (size_t i = 0; i < sizeof(times_ns) / sizeof(times_ns[0]); i++) {
                double wanted = (double)times_ns[i], got;

                bench_laps_init(&laps);
                assert_true(is_near(bench_laps_quantile(&laps, 0.5), 0));
                bench_laps_add(&laps, times_ns[i]);
                assert_int_equal(laps.n_laps, 1);
                got = bench_laps_quantile(&laps, 0.5);
                assert_true(got >= wanted * 0.98 && got <= wanted * 1.02);
                assert_true(is_near(got, bench_laps_quantile(&laps, 0)) && is_near(got, bench_laps_quantile(&laps, 1)));
        }
        (void)state;
}

static void test_laps_quantiles(void **state)
{
        static BenchLaps laps;

        /* 98 short ones and two long ones: of a hundred the ninety-eighth is short, the ninety-ninth is not. */
        bench_laps_init(&laps);
        for (int i = 0; i < 98; i++)
                bench_laps_add(&laps, 10);
        bench_laps_add(&laps, 100000);
        bench_laps_add(&laps, 100000);
        assert_true(is_near(bench_laps_quantile(&laps, 0.5), 10));
        assert_true(is_near(bench_laps_quantile(&laps, 0.98), 10));
        assert_true(bench_laps_quantile(&laps, 0.99) > 98000);
        /* A full bucket stays full. */
        laps.counts[10] = UINT32_MAX;
        bench_laps_add(&laps, 10);
        assert_int_equal(laps.counts[10], UINT32_MAX);
        assert_int_equal(laps.n_laps, 100);
        /* Around nothing at all there is still a lap; with NULL there is none. */
        bench_laps_init(&laps);
        bench_laps_begin(&laps);
        bench_laps_end(&laps);
        bench_laps_begin(NULL);
        bench_laps_end(NULL);
        assert_int_equal(laps.n_laps, 1);
        assert_true(bench_laps_quantile(&laps, 0.5) > 0);
        (void)state;
}

#define N_CROWD 20u

static void note_work(void *argument, unsigned index)
{
        atomic_uint *done = argument;

        atomic_fetch_add(&done[index], 1);
}

static void test_crowds_work_once(void **state)
{
        atomic_uint done[N_CROWD] = { 0 };
        BenchCrowd crowd;

        for (int i = 0; i < 3; i++) {
                assert_int_equal(bench_crowd_init(&crowd, N_CROWD, note_work, done), 0);
                for (unsigned k = 0; k < N_CROWD; k++)
                        assert_int_equal(atomic_load(&done[k]), 0);
                /* The last time they are sent home. */
                if (i < 2) {
                        if (i == 0) {
                                bench_crowd_run(&crowd);
                        } else {
                                bench_crowd_call(&crowd);
                                bench_crowd_wait(&crowd);
                        }
                        for (unsigned k = 0; k < N_CROWD; k++)
                                assert_int_equal(atomic_exchange(&done[k], 0), 1);
                }
                bench_crowd_deinit(&crowd);
        }
        for (unsigned k = 0; k < N_CROWD; k++)
                assert_int_equal(atomic_load(&done[k]), 0);
        (void)state;
}

/* Pipes, one for each waiter. */
typedef struct Awaited {
        int fds[BENCH_WAITERS_MAX][2];
        int open_error;
} Awaited;

static int awaited_open(void *argument, unsigned index)
{
        const Awaited *awaited = argument;

        return index == BENCH_WAITERS_MAX - 1 ? awaited->open_error : 0;
}

static int awaited_wait(void *argument, unsigned index, uint32_t kind, uint32_t number, uint64_t *ret_ns)
{
        const Awaited *awaited = argument;
        unsigned char byte;

        if (read(awaited->fds[index][0], &byte, 1) != 1)
                return -EIO;
        *ret_ns = bench_now_ns();
        /* Kind 1 wants the number. */
        return kind == 1 && byte != number ? -EILSEQ : 0;
}

static void test_waiters(void **state)
{
        Awaited awaited = { 0 };
        BenchWaiting waiting = { .open = awaited_open, .wait = awaited_wait, .argument = &awaited };
        BenchWaiters waiters;
        BenchWaited waited;

        for (unsigned i = 0; i < BENCH_WAITERS_MAX; i++)
                assert_int_equal(pipe2(awaited.fds[i], O_CLOEXEC), 0);
        assert_int_equal(bench_waiters_init(&waiters, BENCH_WAITERS_MAX, &waiting), 0);
        for (unsigned char number = 1; number < 5; number++) {
                uint64_t begun_ns = bench_now_ns();

                assert_int_equal(bench_waiters_expect(&waiters, 1, number), 0);
                for (unsigned i = 0; i < BENCH_WAITERS_MAX; i++)
                        assert_int_equal(write(awaited.fds[i][1], &number, 1), 1);
                assert_int_equal(bench_waiters_collect(&waiters, &waited), 0);
                assert_true(waited.first_ns >= begun_ns && waited.last_ns >= waited.first_ns);
                assert_true(waited.last_ns <= bench_now_ns());
                assert_true(waited.cpu_ns > 0);
        }
        /* One that gets something else says so. */
        assert_int_equal(bench_waiters_expect(&waiters, 1, 7), 0);
        for (unsigned i = 0; i < BENCH_WAITERS_MAX; i++)
                assert_int_equal(write(awaited.fds[i][1], i == 3 ? "\x01" : "\x07", 1), 1);
        assert_int_equal(bench_waiters_collect(&waiters, &waited), -EILSEQ);
        bench_waiters_deinit(&waiters);

        /* Those that do not sleep are not waited for to sleep: it is enough that each has been told. */
        waiting.is_polling = true;
        assert_int_equal(bench_waiters_init(&waiters, 1, &waiting), 0);
        assert_int_equal(write(awaited.fds[0][1], "\x01", 1), 1);
        assert_int_equal(bench_waiters_expect(&waiters, 1, 1), 0);
        assert_int_equal(bench_waiters_collect(&waiters, &waited), 0);
        bench_waiters_deinit(&waiters);
        waiting.is_polling = false;

        awaited.open_error = -EMFILE;
        assert_int_equal(bench_waiters_init(&waiters, BENCH_WAITERS_MAX, &waiting), -EMFILE);
        bench_waiters_deinit(&waiters);
        bench_waiters_deinit(&waiters);
        for (unsigned i = 0; i < BENCH_WAITERS_MAX; i++) {
                (void)close(awaited.fds[i][0]);
                (void)close(awaited.fds[i][1]);
        }
        (void)state;
}

/* In a mount, and in a directory that is made where there is none; nothing is left. */
static void test_folders(void **state)
{
        BenchPlain plain = { .mount_fds = { -1, -1 } };
        BenchFolder folder = BENCH_FOLDER_NULL;
        char path[sizeof(folder.path)];
        struct stat status;

        for (int i = 0; i < 2; i++) {
                int r;

                if (i == 0)
                        bench_plain_init(&plain);
                r = bench_folder_init(&folder, &plain, BENCH_PAGES_4K);
                strcpy(path, folder.path);
                if (r == 0) {
                        assert_int_equal(bench_folder_put(&folder, "a", "bytes", 5), 0);
                        assert_int_equal(bench_folder_put(&folder, "a", "bytes", 5), -EEXIST);
                        assert_int_equal(fstatat(folder.fd, "a", &status, 0), 0);
                        assert_int_equal(status.st_size, 5);
                        assert_int_equal(bench_folder_remove(&folder, "a"), 0);
                        assert_int_equal(bench_folder_remove(&folder, "a"), -ENOENT);
                }
                bench_folder_deinit(&folder);
                bench_folder_deinit(&folder);
                assert_int_equal(folder.fd, -1);
                if (i == 0)
                        bench_plain_deinit(&plain);
                else if (r == 0)
                        assert_true(*path && stat(path, &status) < 0 && errno == ENOENT);
        }
        (void)state;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_medians),
                UNIT_TEST(test_areas),
                UNIT_TEST(test_loops_copy),
                UNIT_TEST(test_plain_files),
                UNIT_TEST(test_system_calls_are_counted),
                UNIT_TEST(test_faults_are_counted),
                UNIT_TEST(test_children_report),
                UNIT_TEST(test_signals_are_kept),
                UNIT_TEST(test_laps_of_one_time),
                UNIT_TEST(test_laps_quantiles),
                UNIT_TEST(test_crowds_work_once),
                UNIT_TEST(test_waiters),
                UNIT_TEST(test_folders),
        };

        return cmocka_run_group_tests_name("ctl-bench", tests, NULL, NULL);
}
