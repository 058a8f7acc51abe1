/* SPDX-License-Identifier: Apache-2.0 */
/* The copy loops: each of them, at every alignment and size, moves what it is told to and touches nothing else. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/macro.h"
#include "client/lib/copy-kernels.h"
#include "tests/unit/harness.h"

enum {
        N_BYTES_MAX = 3 << 20,
        N_GUARD = 192,
        N_PAGE = 4096,
        N_AREA = N_BYTES_MAX + 4 * N_PAGE,
        N_KERNELS_MAX = 2 * _COPY_KERNEL_MAX,
};

/* What has run is the loop, not the sanitizer's idea of it: both areas end where nothing is mapped. */
typedef struct Fixture {
        uint8_t *from; /* N_AREA bytes and an unmapped page */
        uint8_t *to;
        uint64_t seed;
        uint64_t random;
} Fixture;

static uint64_t next_random(Fixture *fixture)
{
        uint64_t x = fixture->random;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        return fixture->random = x;
}

static uint8_t *map_area(void)
{
        uint8_t *area = mmap(NULL, N_AREA + N_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(area, MAP_FAILED);
        assert_int_equal(mprotect(area + N_AREA, N_PAGE, PROT_NONE), 0);
        return area;
}

static void fixture_init(Fixture *fixture)
{
        *fixture = (Fixture){ .from = map_area(), .to = map_area() };
        assert_int_equal(getrandom(&fixture->seed, sizeof(fixture->seed), 0), sizeof(fixture->seed));
        fixture->random = fixture->seed |= 1;
        for (size_t i = 0; i < N_AREA; i += 8) {
                uint64_t bytes = next_random(fixture);

                memcpy(fixture->from + i, &bytes, 8);
        }
        memset(fixture->to, 0xa5, N_AREA);
}

static void fixture_deinit(Fixture *fixture)
{
        assert_int_equal(munmap(fixture->from, N_AREA + N_PAGE), 0);
        assert_int_equal(munmap(fixture->to, N_AREA + N_PAGE), 0);
}

typedef struct Loop {
        CopyFn copy;
        const char *name;
} Loop;

static unsigned find_all(Loop loops[N_KERNELS_MAX])
{
        unsigned n = 0;

        for (CopyKernel kernel = 0; kernel < _COPY_KERNEL_MAX; kernel++) {
                CopyFn wide = copy_kernel_find(kernel), narrow = copy_kernel_find_narrow(kernel);

                if (wide)
                        loops[n++] = (Loop){ wide, copy_kernel_name(kernel) };
                if (narrow && narrow != wide)
                        loops[n++] = (Loop){ narrow, copy_kernel_name(kernel) };
        }
        return n;
}

static bool is_untouched(const uint8_t *bytes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (bytes[i] != 0xa5)
                        return false;
        return true;
}

/* @to with room for the guard bytes before it; those behind it as far as the area goes. */
static void check(Fixture *fixture, const Loop *loop, uint8_t *to, const uint8_t *from, size_t n, size_t n_ahead)
{
        size_t n_after = MIN((size_t)N_GUARD, (size_t)(fixture->to + N_AREA - (to + n)));
        bool is_right;

        loop->copy(to, from, n, n_ahead);
        is_right = memcmp(to, from, n) == 0 && is_untouched(to - N_GUARD, N_GUARD) && is_untouched(to + n, n_after);
        if (!is_right)
                print_error("%s: %zu bytes, to %% 64 = %zu, from %% 64 = %zu, %zu ahead, seed %llu\n", loop->name, n,
                            (size_t)to % 64, (size_t)from % 64, n_ahead, (unsigned long long)fixture->seed);
        assert_true(is_right);
        memset(to, 0xa5, n);
}

static void test_every_alignment(void **state)
{
        static const size_t sizes[] = { 0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257,
                                        319, 320, 383, 384, 385, 511, 512 };
        Loop loops[N_KERNELS_MAX];
        unsigned n = find_all(loops);
        Fixture fixture;

        fixture_init(&fixture);
        for (unsigned k = 0; k < n; k++)
                for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                        for (size_t a = 0; a < 64 * 64; a++) {
                                uint8_t *to = fixture.to + N_PAGE + a % 64;

                                check(&fixture, &loops[k], to, fixture.from + a / 64, sizes[i], 0);
                        }
        fixture_deinit(&fixture);
}

/* Sizes where one loop hands over to the next. */
static void test_every_border(void **state)
{
        static const size_t sizes[] = { 4096, 4352, 8192, 8448, 12288, 16384, 16640,
                                        24576, 32768, 36864, 40960, 65536, 98304, 1 << 20 };
        static const size_t aheads[] = { 0, 1, 4095, 4096, 8191, 8192, SIZE_MAX - 1, SIZE_MAX };
        Loop loops[N_KERNELS_MAX];
        unsigned n = find_all(loops);
        Fixture fixture;

        fixture_init(&fixture);
        for (unsigned k = 0; k < n; k++)
                for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                        for (size_t a = 0; a < 64; a++) {
                                /* A few around it: with and without what the head takes. */
                                size_t size = sizes[i] + (a * 37) % 131 - 65;

                                check(&fixture, &loops[k], fixture.to + N_PAGE + a, fixture.from + a * 29 % 64, size,
                                      aheads[a % ARRAY_SIZE(aheads)]);
                        }
        fixture_deinit(&fixture);
}

/* Source and destination end where a byte more would be a fault, whatever is said about bytes ahead. */
static void test_end_of_memory(void **state)
{
        static const size_t sizes[] = { 1, 64, 255, 256, 300, 511, 4096, 4097,
                                        8192, 16000, 32768, 32832, 70000, 1 << 20 };
        Loop loops[N_KERNELS_MAX];
        unsigned n = find_all(loops);
        Fixture fixture;

        fixture_init(&fixture);
        for (unsigned k = 0; k < n; k++)
                for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                        const uint8_t *from = fixture.from + N_AREA - sizes[i];
                        uint8_t *to = fixture.to + N_AREA - sizes[i];

                        check(&fixture, &loops[k], to, from, sizes[i], 0);
                        check(&fixture, &loops[k], to, from, sizes[i], SIZE_MAX);
                        check(&fixture, &loops[k], to - 33, from, sizes[i], 1 << 20);
                }
        fixture_deinit(&fixture);
}

static void test_model(void **state)
{
        Loop loops[N_KERNELS_MAX];
        unsigned n = find_all(loops);
        Fixture fixture;

        fixture_init(&fixture);
        for (unsigned i = 0; i < 200; i++)
                for (unsigned k = 0; k < n; k++) {
                        static const size_t size_limits[] = { 1024, 16 << 10, 128 << 10, N_BYTES_MAX };
                        size_t size = next_random(&fixture) % (size_limits[i % 4] + 1);
                        size_t from = next_random(&fixture) % 64, to = next_random(&fixture) % 64;
                        size_t ahead = i % 3 == 0 ? 0 : next_random(&fixture) % (N_AREA - 64 - size);

                        check(&fixture, &loops[k], fixture.to + N_PAGE + to, fixture.from + from, size, ahead);
                }
        fixture_deinit(&fixture);
}

static void test_fill(void **state)
{
        static const size_t sizes[] = { 0, 1, 63, 64, 65, 255, 256, 257, 320, 447, 448, 4096, 65537, (1 << 20) + 127 };
        Fixture fixture;

        fixture_init(&fixture);
        for (CopyKernel kernel = 0; kernel < _COPY_KERNEL_MAX; kernel++)
                for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                        for (size_t a = 0; a < 64; a++) {
                                uint8_t *to = fixture.to + N_PAGE + a;
                                size_t n_zero = 0;

                                copy_kernel_find_fill(kernel)(to, sizes[i]);
                                while (n_zero < sizes[i] && to[n_zero] == 0)
                                        n_zero++;
                                assert_int_equal(n_zero, sizes[i]);
                                assert_true(is_untouched(to - N_GUARD, N_GUARD));
                                assert_true(is_untouched(to + sizes[i], N_GUARD));
                                memset(to, 0xa5, sizes[i]);
                        }
        fixture_deinit(&fixture);
}

static void test_names(void **state)
{
        static const char *const wrong[] = { "", "LIBC", "libc ", " libc", "vectors", "avx512", "0" };

        assert_non_null(copy_kernel_find(COPY_KERNEL_LIBC));
        for (CopyKernel kernel = 0; kernel < _COPY_KERNEL_MAX; kernel++)
                assert_int_equal(copy_kernel_by_name(copy_kernel_name(kernel)), kernel);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_int_equal(copy_kernel_by_name(wrong[i]), _COPY_KERNEL_MAX);
        assert_null(copy_kernel_find(_COPY_KERNEL_MAX));
        assert_null(copy_kernel_find_narrow(_COPY_KERNEL_MAX));
        assert_null(copy_kernel_find_narrow(COPY_KERNEL_LIBC));
}

static void test_evict_changes_nothing(void **state)
{
        uint8_t bytes[1000];

        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)i;
        copy_kernel_evict(bytes, sizeof(bytes));
        copy_kernel_evict(bytes + 1, 0);
        copy_kernel_evict(NULL, 0);
        for (size_t i = 0; i < sizeof(bytes); i++)
                assert_int_equal(bytes[i], (uint8_t)i);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_every_alignment), UNIT_TEST(test_every_border), UNIT_TEST(test_end_of_memory),
                UNIT_TEST(test_model),           UNIT_TEST(test_fill),         UNIT_TEST(test_names),
                UNIT_TEST(test_evict_changes_nothing),
        };

        return cmocka_run_group_tests_name("copy-kernels", tests, NULL, NULL);
}
