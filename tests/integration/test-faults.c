/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading and mapping cost: faults are counted, not timed.
 *
 * Two counts: getrusage() counts what the kernel did, also when it was asked for a range by one call; the software event
 * counts how often the program was stopped for it. Where the latter is not to be had the tests of it say less.
 */
#include "client/lib/maps.h"
#include "tests/integration/alive.h"
#include "tests/integration/faults.h"

#include <inttypes.h>

#define HUGE (2 * MIB)

/* --- faults ------------------------------------------------------------------------------------------------------------------ */

/* In order, block by block, of small pages: the kernel maps 64 KiB at a fault; we are not stopped for any but the first few. */
static void test_blocks_of_small_pages(void **state)
{
        static const size_t blocks[] = { 4096, 65536, 1 << 20 };
        enum { N_BYTES = 64 << 20 };
        Foliod *foliod = foliod_start("--budget", "256M", "--huge", "never", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *buffer = malloc(MIB);
        int fd = faults_open_stops();

        (void)state;
        assert_non_null(buffer);
        memset(buffer, 1, MIB);
        harness_make_large(client, "large", N_BYTES, 0);
        for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
                struct folio_client *other = foliod_connect(foliod);
                uint64_t n_faults, n_stops;
                struct folio_object *object;

                /* For the objects, the library's own memory, and the first copy's measurements. */
                ASSERT_OK(folio_read(other, "large", 0, buffer, 1000));
                ASSERT_OK(folio_get(other, "large", 0, 0, &object));
                n_faults = faults_count();
                n_stops = fd >= 0 ? faults_read_stops(fd) : 0;
                for (uint64_t at = 0; at < N_BYTES; at += blocks[i]) {
                        ASSERT_OK(folio_object_read(object, at, buffer, blocks[i]));
                        if (at % MIB == 0)
                                assert_true(harness_is_filled(buffer, blocks[i], at, 0));
                }
                n_faults = faults_count() - n_faults;
                n_stops = fd >= 0 ? faults_read_stops(fd) - n_stops : 0;
                print_message("# blocks of %zu: %" PRIu64 " faults, stopped %" PRIu64 " times\n", blocks[i], n_faults, n_stops);
                /* The kernel's own count of what it maps at once: 16 pages. */
                assert_true(n_faults <= N_BYTES / 65536 + 64);
                assert_true(n_stops <= 64);
                ASSERT_OK(folio_object_release(object));
                folio_client_unref(other);
        }
        if (fd >= 0)
                close(fd);
        free(buffer);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* The user's own access is as lazy as it was: a get touches nothing. */
static void test_get_is_lazy(void **state)
{
        enum { N_BYTES = 16 << 20, N_PAGES = N_BYTES / 4096 };
        Foliod *foliod = foliod_start("--budget", "256M", "--huge", "never", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        uint64_t n_faults;
        const volatile uint8_t *data;

        (void)state;
        harness_make_large(client, "large", N_BYTES, 0);
        n_faults = faults_count();
        ASSERT_OK(folio_get(client, "large", 0, 0, &object));
        assert_true(faults_count() - n_faults < 16);
        data = folio_object_data(object);
        for (size_t i = 0; i < N_BYTES; i += 4096)
                (void)data[i];
        assert_true(faults_count() - n_faults >= N_BYTES / 65536 / 2);
        ASSERT_OK(folio_object_release(object));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* A byte of every 16 KiB. */
static void touch(volatile uint8_t *data, uint64_t n_bytes)
{
        for (uint64_t i = 0; i < n_bytes; i += 16384)
                data[i] = 1;
}

typedef struct Touched {
        uint64_t n_faults;           /* of the mapping and the writes */
        uint64_t n_stops;            /* of the writes */
        bool is_huge;
} Touched;

static Touched touch_plain(uint64_t n_bytes)
{
        int fd = memfd_create("plain", MFD_CLOEXEC);
        Touched touched;
        uint8_t *data;

        assert_int_equal(fallocate(fd, 0, 0, (off_t)n_bytes), 0);
        touched.n_faults = faults_count();
        data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(data != MAP_FAILED);
        touch(data, n_bytes);
        touched.n_faults = faults_count() - touched.n_faults;
        munmap(data, n_bytes);
        close(fd);
        return touched;
}

static Touched touch_fresh(Foliod *foliod, uint64_t n_bytes, int fd)
{
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object;
        uint8_t *bytes = calloc(1, n_bytes);
        Touched touched;
        void *data;

        assert_non_null(bytes);
        ASSERT_OK(folio_create(client, "fresh", n_bytes, NULL, &object));
        touched.n_faults = faults_count();
        ASSERT_OK(folio_object_map_write(object, &data));
        touched.n_stops = fd >= 0 ? faults_read_stops(fd) : 0;
        touch(data, n_bytes);
        touched.n_stops = fd >= 0 ? faults_read_stops(fd) - touched.n_stops : 0;
        touched.n_faults = faults_count() - touched.n_faults;
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_stat(object, &stat));
        touched.is_huge = stat.huge_bytes >= n_bytes / HUGE * HUGE;
        ASSERT_OK(folio_object_read(object, 0, bytes, n_bytes));
        for (uint64_t i = 0; i < n_bytes; i++)
                assert_int_equal(bytes[i], i % 16384 == 0);
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, "fresh", 0));
        folio_client_unref(client);
        free(bytes);
        return touched;
}

/* lmbench's pattern on a fresh object, against a file of small pages. */
static void test_write_a_fresh_mapping(void **state)
{
        enum { N_BYTES = 128 << 20 };
        int fd = faults_open_stops();
        Touched plain = touch_plain(N_BYTES), touched;
        Foliod *foliod;

        (void)state;
        foliod = foliod_start("--budget", "256M", "--huge", "always", NULL);
        touched = touch_fresh(foliod, N_BYTES, fd);
        foliod_stop(foliod);
        print_message("# plain: %" PRIu64 " faults; %s: %" PRIu64 " faults, stopped %" PRIu64 " times\n", plain.n_faults,
                      touched.is_huge ? "huge" : "not huge", touched.n_faults, touched.n_stops);
        if (touched.is_huge && plain.n_faults >= N_BYTES / 16384)
                assert_true(touched.n_faults * 20 <= plain.n_faults);
        /* Of small pages the first 64 MiB are faulted in when it is mapped: the program is not stopped for them. */
        foliod = foliod_start("--budget", "256M", "--huge", "never", ALIVE_NO_POOL, NULL);
        touched = touch_fresh(foliod, N_BYTES / 2, fd);
        foliod_stop(foliod);
        print_message("# small: %" PRIu64 " faults, stopped %" PRIu64 " times\n", touched.n_faults, touched.n_stops);
        assert_true(touched.n_stops <= 64);
        if (fd >= 0)
                close(fd);
}

/* Large writes into a new object: nothing is mapped, nothing faults, and one call moves each block. */
static void test_write_by_blocks(void **state)
{
        enum { N_BYTES = 32 << 20 };
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *block = malloc(MIB);
        unsigned n_mappings;
        struct folio_object *object;
        uint64_t n_faults;

        (void)state;
        assert_non_null(block);
        memset(block, 7, MIB);
        ASSERT_OK(folio_create(client, "large", N_BYTES, NULL, &object));
        n_mappings = maps_count();
        n_faults = faults_count();
        for (uint64_t at = 0; at < N_BYTES; at += MIB)
                ASSERT_OK(folio_object_write(object, at, block, MIB));
        assert_true(faults_count() - n_faults <= 16);
        assert_int_equal(maps_count(), n_mappings);
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        free(block);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* Sanitizers keep books in memory of their own, which takes a fault wherever we touch new memory. */
static void test_nothing_to_count_here(void **state)
{
        skip();
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_blocks_of_small_pages),
                INTEGRATION_TEST(test_get_is_lazy),
                INTEGRATION_TEST(test_write_a_fresh_mapping),
                INTEGRATION_TEST(test_write_by_blocks),
        };

        const struct CMUnitTest watched[] = {
                INTEGRATION_TEST(test_nothing_to_count_here),
                INTEGRATION_TEST(test_write_by_blocks),
        };

        if (getenv("FOLIO_TEST_SLOW"))
                return cmocka_run_group_tests_name("faults", watched, NULL, NULL);
        return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
