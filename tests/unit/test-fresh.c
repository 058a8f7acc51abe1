/* SPDX-License-Identifier: Apache-2.0 */
/* Fresh memory is told from memory that is there, and made; nothing else about it changes. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/fresh.h"
#include "tests/unit/harness.h"

#define N_BYTES (2 * FRESH_BYTES_MIN)

static uint8_t *map(void)
{
        uint8_t *bytes = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(bytes, MAP_FAILED);
        /* Page by page, whatever this machine does by default. */
        assert_int_equal(madvise(bytes, N_BYTES, MADV_NOHUGEPAGE), 0);
        return bytes;
}

static size_t count_resident(uint8_t *bytes)
{
        size_t n_pages = N_BYTES / (size_t)getpagesize(), n = 0;
        unsigned char *are_there = test_malloc(n_pages);

        assert_int_equal(mincore(bytes, N_BYTES, are_there), 0);
        for (size_t i = 0; i < n_pages; i++)
                n += are_there[i] & 1;
        test_free(are_there);
        return n;
}

static void test_is_fresh(void **state)
{
        static const size_t offsets[] = { 0, 1, 4095, 4096, 12345 };
        uint8_t *bytes = map();

        errno = 77;
        for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
                assert_true(fresh_is(bytes + offsets[i], FRESH_BYTES_MIN));
        /* Some of it, and all. */
        bytes[0] = 1;
        assert_true(fresh_is(bytes, FRESH_BYTES_MIN));
        bytes[FRESH_BYTES_MIN - 1] = 1;
        assert_true(fresh_is(bytes, FRESH_BYTES_MIN));
        memset(bytes, 1, FRESH_BYTES_MIN);
        assert_false(fresh_is(bytes, FRESH_BYTES_MIN));
        assert_false(fresh_is(bytes + 1, FRESH_BYTES_MIN - 1));
        assert_true(fresh_is(bytes + 1, FRESH_BYTES_MIN + 4096));
        assert_true(fresh_is(bytes, N_BYTES));
        munmap(bytes, N_BYTES);
        /* Where there is nothing nothing is known. */
        assert_false(fresh_is(bytes, N_BYTES));
        assert_int_equal(errno, 77);
}

static void test_make(void **state)
{
        size_t page_bytes = (size_t)getpagesize();
        uint8_t *bytes = map();

        errno = 77;
        fresh_make(bytes + page_bytes - 1, page_bytes + 2);
        /* The three pages it touches, or none on a kernel that cannot. */
        if (count_resident(bytes) != 0)
                assert_int_equal(count_resident(bytes), 3);
        bytes[0] = 7;
        fresh_make(bytes, FRESH_STEP_BYTES);
        assert_int_equal(bytes[0], 7);
        assert_int_equal(bytes[1], 0);
        assert_true(count_resident(bytes) <= FRESH_STEP_BYTES / page_bytes);
        munmap(bytes, N_BYTES);
        /* Neither nothing nor what is read-only is an error of ours. */
        fresh_make(bytes, N_BYTES);
        bytes = map();
        assert_int_equal(mprotect(bytes, N_BYTES, PROT_READ), 0);
        fresh_make(bytes, N_BYTES);
        assert_int_equal(count_resident(bytes), 0);
        munmap(bytes, N_BYTES);
        assert_int_equal(errno, 77);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_is_fresh),
                UNIT_TEST(test_make),
        };

        return cmocka_run_group_tests_name("fresh", tests, NULL, NULL);
}
