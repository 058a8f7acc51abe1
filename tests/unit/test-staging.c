/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The staging allocator: no overlap, no loss, whole again when all is given back, and no trust in what is in the
 * region.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/maps.h"
#include "client/lib/staging.h"
#include "proto/staging.h"
#include "tests/unit/harness.h"

#define N_BYTES (4 * MIB)

static int new_fd(uint64_t n_bytes)
{
        int fd = memfd_create("staging", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

static Staging *new_staging(uint64_t n_bytes)
{
        Staging *staging;

        assert_int_equal(staging_new(new_fd(n_bytes + STAGING_END_BYTES), n_bytes, &staging), 0);
        return staging;
}

static void test_bad_regions(void **state)
{
        static const struct {
                uint64_t file_bytes;
                uint64_t n_bytes;
                int error;
        } rows[] = {
                { 4096, 0, -EINVAL },  { 4096, 63, -EINVAL },          { 4096, 4097, -EPROTO },
                { 0, 4096, -EPROTO },  { 4096, 2 * MIB, -EPROTO },
        };
        Staging *staging = NULL;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(staging_new(new_fd(rows[i].file_bytes), rows[i].n_bytes, &staging), rows[i].error);
        assert_int_equal(staging_new(-1, 4096, &staging), -EBADF);
        assert_null(staging);
        staging_free(NULL);
}

static void test_sizes(void **state)
{
        static const size_t fits[] = { 0, 1, 63, 64, 65, 4095, 4096, MIB, N_BYTES - 64, N_BYTES - 1, N_BYTES };
        static const size_t too_much[] = { N_BYTES + 1, 2 * N_BYTES, SIZE_MAX / 2, SIZE_MAX - 62, SIZE_MAX };
        Staging *staging = new_staging(N_BYTES);

        for (unsigned turn = 0; turn < 3; turn++)
                for (size_t i = 0; i < ARRAY_SIZE(fits); i++) {
                        uint8_t *data = staging_take(staging, fits[i]);

                        assert_non_null(data);
                        assert_int_equal((uintptr_t)data % 64, 0);
                        assert_true(staging_offset(staging, data) + fits[i] <= N_BYTES);
                        if (fits[i])
                                data[0] = data[fits[i] - 1] = 1;
                        staging_give(staging, data);
                }
        for (size_t i = 0; i < ARRAY_SIZE(too_much); i++)
                assert_null(staging_take(staging, too_much[i]));
        staging_free(staging);
}

/* That of the next daemon, which is set up in another way: what is in use stays where it is. */
static void test_another_size(void **state)
{
        static const uint64_t sizes[] = { N_BYTES, 4 * N_BYTES, N_BYTES / 2, 4096, 2 * N_BYTES };
        Staging *staging = new_staging(N_BYTES);
        uint8_t *low = staging_take(staging, 1000), *high;
        uint64_t fits = N_BYTES;

        (void)state;
        assert_non_null(low);
        memset(low, 7, 1000);
        assert_int_equal(staging_offset(staging, low), 0);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int fd = new_fd(sizes[i] + STAGING_END_BYTES), copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                StagingEnd end;
                uint8_t seen[1000];

                assert_int_equal(staging_replace(staging, fd, sizes[i]), 0);
                fits = MIN(fits, sizes[i]);
                assert_int_equal(low[0], 7);
                low[999] = 8;
                assert_int_equal(pread(copy, seen, sizeof(seen), 0), sizeof(seen));
                assert_memory_equal(seen, low, sizeof(seen));
                low[999] = 7;
                staging_arrive(staging, 100 + i);
                assert_int_equal(pread(copy, &end, sizeof(end), (off_t)sizes[i]), sizeof(end));
                assert_int_equal(end.start, 100 + i);
                assert_null(staging_take(staging, fits - 1024 + 1));
                high = staging_take(staging, fits - 1024);
                assert_non_null(high);
                high[fits - 1025] = 1;
                staging_give(staging, high);
                close(copy);
        }
        /* No room for what is in use. */
        high = staging_take(staging, 2000);
        assert_non_null(high);
        assert_int_equal(staging_replace(staging, new_fd(4096 + STAGING_END_BYTES), 4096), 0);
        staging_give(staging, high);
        assert_int_equal(staging_replace(staging, new_fd(100 + STAGING_END_BYTES), 100), -EPROTO);
        assert_int_equal(staging_replace(staging, new_fd(STAGING_END_BYTES), 0), -EPROTO);
        staging_give(staging, low);
        staging_free(staging);

        staging = new_staging(N_BYTES);
        low = staging_take(staging, N_BYTES);
        assert_int_equal(staging_replace(staging, new_fd(4096 + STAGING_END_BYTES), 4096), -EPROTO);
        low[N_BYTES - 1] = 1;
        staging_give(staging, low);
        staging_free(staging);
}

static void test_full_and_whole_again(void **state)
{
        enum { N = N_BYTES / 4096 };
        Staging *staging = new_staging(N_BYTES);
        void *blocks[N];

        for (unsigned turn = 0; turn < 4; turn++) {
                for (unsigned i = 0; i < N; i++)
                        assert_non_null(blocks[i] = staging_take(staging, 4096));
                assert_null(staging_take(staging, 0));
                assert_null(staging_take(staging, 4096));
                /* Given back in different orders: forwards, backwards, every second first. */
                for (unsigned i = 0; i < N; i++) {
                        unsigned every_second = i < N / 2 ? 2 * i : 2 * (i - N / 2) + 1;

                        staging_give(staging, blocks[turn == 0 ? i : turn == 1 ? N - 1 - i : every_second]);
                }
                assert_non_null(blocks[0] = staging_take(staging, N_BYTES));
                staging_give(staging, blocks[0]);
        }
        staging_free(staging);
}

/* What is given back last is taken first: its pages are there. */
static void test_warm_memory_first(void **state)
{
        Staging *staging = new_staging(N_BYTES);
        void *a = staging_take(staging, 1000), *b = staging_take(staging, 1000), *c = staging_take(staging, 1000);

        staging_give(staging, b);
        assert_ptr_equal(staging_take(staging, 1000), b);
        staging_give(staging, a);
        staging_give(staging, b);
        staging_give(staging, c);
        assert_ptr_equal(staging_take(staging, 500), a);
        staging_free(staging);
}

static void test_random_against_a_model(void **state)
{
        enum { N = 256, TURNS = 50000 };
        Staging *staging = new_staging(N_BYTES);
        struct {
                uint8_t *data;
                size_t n_bytes;
                uint8_t mark;
        } blocks[N] = { 0 };
        uint32_t random = 7;
        unsigned n_refused = 0;

        for (unsigned turn = 0; turn < TURNS; turn++) {
                unsigned i;
                size_t n;

                random = random * 1664525 + 1013904223;
                i = (random >> 8) % N;
                if (blocks[i].data) {
                        /* Nobody else has written there, so no two overlap. */
                        for (size_t at = 0; at < blocks[i].n_bytes; at += 61)
                                assert_int_equal(blocks[i].data[at], blocks[i].mark);
                        assert_int_equal(blocks[i].data[blocks[i].n_bytes - 1], blocks[i].mark);
                        staging_give(staging, blocks[i].data);
                        blocks[i].data = NULL;
                        continue;
                }
                random = random * 1664525 + 1013904223;
                n = 1 + (random >> 16) % (64u << (random >> 4) % 11);
                blocks[i].data = staging_take(staging, n);
                if (!blocks[i].data) {
                        n_refused++;
                        continue;
                }
                blocks[i].n_bytes = n;
                blocks[i].mark = (uint8_t)turn;
                memset(blocks[i].data, blocks[i].mark, n);
        }
        assert_true(n_refused < TURNS / 10);
        for (unsigned i = 0; i < N; i++)
                if (blocks[i].data)
                        staging_give(staging, blocks[i].data);
        assert_non_null(staging_take(staging, N_BYTES));
        staging_free(staging);
}

typedef struct Race {
        Staging *staging;
        uint8_t mark;
        bool is_bad;
} Race;

static void *race_run(void *userdata)
{
        Race *race = userdata;

        for (unsigned i = 0; i < 20000; i++) {
                size_t n = 64 + i % 3000;
                uint8_t *data = staging_take(race->staging, n);

                if (!data)
                        continue;
                memset(data, race->mark, n);
                if (data[0] != race->mark || data[n - 1] != race->mark || data[n / 2] != race->mark)
                        race->is_bad = true;
                staging_give(race->staging, data);
        }
        return NULL;
}

static void test_threads(void **state)
{
        Staging *staging = new_staging(64 * KIB);
        Race races[4];
        pthread_t threads[4];

        for (unsigned i = 0; i < 4; i++) {
                races[i] = (Race){ staging, (uint8_t)(i + 1), false };
                assert_int_equal(pthread_create(&threads[i], NULL, race_run, &races[i]), 0);
        }
        for (unsigned i = 0; i < 4; i++) {
                assert_int_equal(pthread_join(threads[i], NULL), 0);
                assert_false(races[i].is_bad);
        }
        assert_non_null(staging_take(staging, 64 * KIB));
        staging_free(staging);
        assert_int_equal(maps_count(), 0);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_bad_regions),        UNIT_TEST(test_another_size),
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_full_and_whole_again), UNIT_TEST(test_warm_memory_first),
                UNIT_TEST(test_random_against_a_model), UNIT_TEST(test_threads),
        };

        return cmocka_run_group_tests_name("staging", tests, NULL, NULL);
}
