/* SPDX-License-Identifier: Apache-2.0 */
/* The book of a leased region: what is taken, what may be, and in which order its holder comes to know. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/leased.h"

#include "fail-alloc.h"

#define REGION_BYTES (2 * MIB)
#define N_UNITS (REGION_BYTES / LEASE_UNIT_BYTES)

static Backend *memfd;

static int make_backend(void **state)
{
        const char *call;

        return backend_memfd_new(FOLIO_HUGE_NEVER, &memfd, &call);
}

static int free_backend(void **state)
{
        backend_free(memfd);
        return 0;
}

static Leased *make(uint64_t size_bytes)
{
        Region *region = NULL;
        Leased *leased = NULL;

        assert_int_equal(region_new(memfd, "test", size_bytes, &region), 0);
        assert_int_equal(region_seal_size_for_good(region), 0);
        assert_int_equal(leased_new(memfd, region, &leased), 0);
        return leased;
}

static void unmake(Leased *leased)
{
        region_unref(leased_free(leased));
}

static uint64_t word(const Leased *leased, uint64_t i)
{
        const uint8_t *book = (const uint8_t *)leased->book;

        return ((const uint64_t *)(const void *)(book + leased->book->bitmap_offset))[i];
}

static bool is_taken(const Leased *leased, uint64_t unit)
{
        return word(leased, unit / 64) >> unit % 64 & 1;
}

/* What a holder maps. */
static void test_book(void **state)
{
        Leased *leased = make(REGION_BYTES);
        const LeaseBook *book = leased->book;
        struct stat st;
        void *mapped;

        assert_int_equal(book->magic, LEASE_MAGIC);
        assert_int_equal(book->version, LEASE_VERSION);
        assert_int_equal(book->n_freed_max, LEASE_FREED_MAX);
        assert_int_equal(book->region_id, leased->region->id);
        assert_int_equal(book->region_bytes, REGION_BYTES);
        assert_int_equal(book->book_bytes, leased_book_bytes(REGION_BYTES));
        assert_true(book->bitmap_offset + N_UNITS / 8 <= book->book_bytes);
        assert_int_equal(leased_used_bytes(leased), 0);

        /* The region can be written through one descriptor, and the other cannot be made one that can. */
        assert_int_equal(fcntl(leased->region->fd, F_GETFL) & O_ACCMODE, O_RDWR);
        assert_int_equal(fcntl(leased->region->fd_read_only, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_int_equal(fstat(leased->region->fd, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(ftruncate(leased->region->fd, MIB), -1);
        assert_int_equal(fcntl(leased->region->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);

        /* The book can be written by nobody but the daemon. */
        assert_int_equal(leased->book_region->fd, -1);
        assert_int_equal(fcntl(leased->book_region->fd_read_only, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_int_equal(fstat(leased->book_region->fd_read_only, &st), 0);
        assert_int_equal(st.st_size, book->book_bytes);
        mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, leased->book_region->fd_read_only, 0);
        assert_ptr_equal(mapped, MAP_FAILED);
        unmake(leased);
}

static void test_book_bytes(void **state)
{
        static const struct {
                uint64_t region_bytes, book_bytes;
        } rows[] = {
                { 4096, 8192 },
                { 2 * MIB, 8192 },
                { 2 * MIB + 4096, 4096 + 8192 },
                { 64 * MIB, 4096 + 128 * KIB },
                { LEASE_REGION_BYTES_MAX, LEASE_REGION_BYTES_MAX / 512 + HUGE_BYTES }, /* whole folios */
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(leased_book_bytes(rows[i].region_bytes), rows[i].book_bytes);
}

static void test_ranges(void **state)
{
        static const struct {
                uint64_t offset_bytes, n_bytes;
                int outcome;
        } rows[] = {
                { 0, 0, 0 },
                { 0, 1, 0 },
                { 0, 64, 0 },
                { 0, 65, 0 },
                { 64, 1, 0 },
                { 0, REGION_BYTES, 0 },
                { 0, REGION_BYTES - 1, 0 },
                { 0, REGION_BYTES + 1, LEASED_E_RANGE },
                { 64, REGION_BYTES - 64, 0 },
                { 64, REGION_BYTES - 63, LEASED_E_RANGE },
                { 64, REGION_BYTES, LEASED_E_RANGE },
                { REGION_BYTES - 64, 0, 0 },
                { REGION_BYTES - 64, 64, 0 },
                { REGION_BYTES - 64, 65, LEASED_E_RANGE },
                { REGION_BYTES, 0, LEASED_E_RANGE },
                { REGION_BYTES, 64, LEASED_E_RANGE },
                { 1, 1, LEASED_E_RANGE },
                { 63, 1, LEASED_E_RANGE },
                { 65, 1, LEASED_E_RANGE },
                { 0, UINT64_MAX, LEASED_E_RANGE },
                { 64, UINT64_MAX, LEASED_E_RANGE },
                { UINT64_MAX, 0, LEASED_E_RANGE },
                { UINT64_MAX - 63, 64, LEASED_E_RANGE },
                { UINT64_MAX - 63, UINT64_MAX, LEASED_E_RANGE },
        };
        Leased *leased = make(REGION_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(leased_take(leased, rows[i].offset_bytes, rows[i].n_bytes), rows[i].outcome);
                if (rows[i].outcome == 0) {
                        assert_int_equal(leased->used_units, lease_units(rows[i].n_bytes));
                        leased_give(leased, rows[i].offset_bytes, rows[i].n_bytes);
                }
                assert_int_equal(leased->used_units, 0);
                assert_int_equal(leased->n_taken, 0);
        }
        for (uint64_t i = 0; i < N_UNITS / 64; i++)
                assert_int_equal(word(leased, i), 0);
        unmake(leased);
}

/* Every first and last unit around the edges of words: those bits and no others, taken once only. */
static void test_words(void **state)
{
        static const uint64_t edges[] = { 0, 1, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192, 193, 255, 256 };
        Leased *leased = make(REGION_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(edges); i++)
                for (size_t j = i; j < ARRAY_SIZE(edges); j++) {
                        uint64_t first = edges[i], n = edges[j] - first + 1;

                        /* A neighbour on each side, which stays. */
                        if (first > 0)
                                assert_int_equal(leased_take(leased, (first - 1) * 64, 64), 0);
                        assert_int_equal(leased_take(leased, (first + n) * 64, 64), 0);
                        assert_int_equal(leased_take(leased, first * 64, n * 64), 0);
                        for (uint64_t unit = 0; unit < 300; unit++)
                                assert_int_equal(is_taken(leased, unit), unit + 1 >= first && unit <= first + n);
                        assert_int_equal(leased_take(leased, first * 64, 1), LEASED_E_TAKEN);
                        assert_int_equal(leased_take(leased, (first + n - 1) * 64, 64), LEASED_E_TAKEN);
                        assert_int_equal(leased_take(leased, 0, 300 * 64), LEASED_E_TAKEN);
                        assert_int_equal(leased->n_taken, 2 + (first > 0));
                        leased_give(leased, first * 64, n * 64);
                        for (uint64_t unit = 0; unit < 300; unit++)
                                assert_int_equal(is_taken(leased, unit), unit + 1 == first || unit == first + n);
                        leased_give(leased, (first + n) * 64, 64);
                        if (first > 0)
                                leased_give(leased, (first - 1) * 64, 64);
                        assert_int_equal(leased->used_units, 0);
                }
        unmake(leased);
}

/* One unit in the middle of whole words is seen by whoever wants them all. */
static void test_overlap_within(void **state)
{
        Leased *leased = make(REGION_BYTES);

        for (uint64_t unit = 60; unit < 400; unit += 17) {
                assert_int_equal(leased_take(leased, unit * 64, 64), 0);
                assert_int_equal(leased_take(leased, 0, REGION_BYTES), LEASED_E_TAKEN);
                assert_int_equal(leased_take(leased, 50 * 64, 400 * 64), LEASED_E_TAKEN);
                assert_int_equal(leased->used_units, 1);
                leased_give(leased, unit * 64, 64);
        }
        unmake(leased);
}

static void test_log(void **state)
{
        Leased *leased = make(REGION_BYTES);
        const LeaseBook *book = leased->book;

        assert_int_equal(book->n_freed, 0);
        for (uint64_t i = 0; i < LEASE_FREED_MAX + 3; i++) {
                assert_int_equal(leased_take(leased, i * 3 * 64, 130), 0);
                assert_int_equal(book->n_freed, i);
                leased_give(leased, i * 3 * 64, 130);
                assert_int_equal(book->n_freed, i + 1);
                assert_int_equal(book->freed[i % LEASE_FREED_MAX], lease_freed((uint32_t)i * 3, 3));
        }
        /* The oldest are overwritten, and only they. */
        assert_int_equal(book->freed[2], lease_freed((LEASE_FREED_MAX + 2) * 3, 3));
        assert_int_equal(book->freed[3], lease_freed(9, 3));
        unmake(leased);
}

static void test_epoch(void **state)
{
        Leased *leased = make(REGION_BYTES);

        assert_int_equal(leased_epoch(leased), 0);
        assert_int_equal(leased_raise_epoch(leased), 1);
        assert_int_equal(leased_epoch(leased), 1);
        assert_int_equal(leased->book->epoch, 1);
        unmake(leased);
}

static void test_free_bytes(void **state)
{
        Leased *leased = make(REGION_BYTES);

        assert_int_equal(leased_find_free_bytes(leased, UINT64_MAX), REGION_BYTES);
        assert_int_equal(leased_take(leased, 0, REGION_BYTES), 0);
        assert_int_equal(leased_find_free_bytes(leased, UINT64_MAX), 0);
        leased_give(leased, 0, REGION_BYTES);

        /* Every second unit. */
        for (uint64_t unit = 0; unit < N_UNITS; unit += 2)
                assert_int_equal(leased_take(leased, unit * 64, 64), 0);
        assert_int_equal(leased_find_free_bytes(leased, UINT64_MAX), 64);
        leased_give(leased, 100 * 64, 64);
        assert_int_equal(leased_find_free_bytes(leased, UINT64_MAX), 3 * 64);
        /* Over the edge of a word. */
        for (uint64_t unit = 120; unit < 140; unit += 2)
                leased_give(leased, unit * 64, 64);
        assert_int_equal(leased_find_free_bytes(leased, UINT64_MAX), 21 * 64);
        /* Words in the middle, and both ends. */
        for (uint64_t unit = 140; unit < 1000; unit += 2)
                leased_give(leased, unit * 64, 64);
        assert_int_equal(leased_find_free_bytes(leased, UINT64_MAX), (1000 - 119) * 64);
        /* It goes no further than is enough. */
        assert_in_range(leased_find_free_bytes(leased, 64), 64, (1000 - 119) * 64 - 1);
        assert_in_range(leased_find_free_bytes(leased, 65), 65, (1000 - 119) * 64);
        assert_int_equal(leased_find_free_bytes(leased, (1000 - 119) * 64 - 63), (1000 - 119) * 64);
        for (uint64_t unit = 0; unit < N_UNITS; unit += 2)
                if (is_taken(leased, unit))
                        leased_give(leased, unit * 64, 64);
        assert_int_equal(leased->used_units, 0);
        unmake(leased);
}

static int attempt_new(void)
{
        Region *region = NULL;
        Leased *leased = NULL;
        int r = region_new(memfd, "test", REGION_BYTES, &region);

        if (r < 0)
                return r;
        r = region_seal_size_for_good(region);
        assert_int_equal(r, 0);
        r = leased_new(memfd, region, &leased);
        /* Where it fails the region is still the caller's. */
        region_unref(r < 0 ? region : leased_free(leased));
        return r;
}

static void test_no_memory(void **state)
{
        fail_alloc_sweep(attempt_new);
}

static void test_too_large(void **state)
{
        Region region = { .size_bytes = LEASE_REGION_BYTES_MAX + PAGE_BYTES, .fd = -1, .fd_read_only = -1 };
        Leased *leased = NULL;

        assert_int_equal(leased_new(memfd, &region, &leased), -EFBIG);
        assert_null(leased);
        assert_null(leased_free(NULL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_book),
                UNIT_TEST(test_book_bytes),
                UNIT_TEST(test_ranges),
                UNIT_TEST(test_words),
                UNIT_TEST(test_overlap_within),
                UNIT_TEST(test_log),
                UNIT_TEST(test_epoch),
                UNIT_TEST(test_free_bytes),
                UNIT_TEST(test_no_memory),
                UNIT_TEST(test_too_large),
        };

        return cmocka_run_group_tests_name("leased", tests, make_backend, free_backend);
}
