/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What mapping leaves: private views that nobody else sees, as many mappings kept as was asked for, none where there is no room for
 * more, and holes that stay holes whoever reads them.
 */
#include "client/lib/maps.h"
#include "tests/integration/alive.h"

#include <inttypes.h>
#include <sys/resource.h>

/* --- private views --------------------------------------------------------------------------------------------------------- */

static void on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        (void)client;
        assert_null(object);
        *(int *)userdata = error;
}

static int wait_for(struct folio_client *client, const int *error)
{
        struct pollfd ready = { .fd = folio_client_get_fd(client), .events = POLLIN };

        for (unsigned i = 0; *error == 1 && i < 100; i++) {
                assert_true(poll(&ready, 1, 20000) > 0);
                assert_true(folio_client_process(client) >= 0);
        }
        return *error;
}

static void test_private_views(void **state)
{
        static const struct {
                const char *name;
                uint64_t n_bytes;
                uint32_t flags;
        } rows[] = { { "none", 0, 0 }, { "one", 1, 0 }, { "packed", 100000, 0 }, { "page", 4096, FOLIO_OWN_REGION },
                     { "odd", 4097, FOLIO_OWN_REGION }, { "large", 5 * MIB + 3, 0 } };
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        uint8_t *bytes = malloc(6 * MIB), *read = malloc(6 * MIB);
        unsigned n_mappings;

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = rows[i].flags };
                uint64_t n = rows[i].n_bytes;
                struct folio_object *object, *second;
                void *view = NULL, *again = NULL, *others = NULL;
                int error = 1;

                harness_fill(bytes, n, i);
                ASSERT_OK(folio_put(client, rows[i].name, bytes, n, &options));
                ASSERT_OK(folio_get(client, rows[i].name, FOLIO_GET_UNMAPPED, 0, &object));
                ASSERT_OK(folio_get(client, rows[i].name, 0, 0, &second));
                n_mappings = maps_count();
                if (i % 2) {
                        ASSERT_OK(folio_object_map_async(object, FOLIO_MAP_PRIVATE | FOLIO_GET_POPULATE, on_done, &error));
                        ASSERT_OK(wait_for(client, &error));
                }
                ASSERT_OK(folio_object_map_private(object, &view));
                ASSERT_OK(folio_object_map_private(object, &again));
                assert_ptr_equal(view, again);
                ASSERT_OK(folio_object_map_private(second, &others));
                if (n > 0) {
                        assert_ptr_not_equal(view, others);
                        assert_int_equal(maps_count(), n_mappings + 2);
                }
                assert_memory_equal(view, bytes, n);
                memset(view, 0x5a, n);
                /* Neither the object, nor anybody's view of it, nor another view has changed. */
                assert_memory_equal(others, bytes, n);
                assert_memory_equal(folio_object_data(object), bytes, n);
                ASSERT_OK(folio_object_read(object, 0, read, n));
                assert_memory_equal(read, bytes, n);
                memset(read, 0, n);
                ASSERT_OK(folio_read(other, rows[i].name, 0, read, n));
                assert_memory_equal(read, bytes, n);
                /* It outlives the name. */
                ASSERT_OK(folio_delete(other, rows[i].name, 0));
                ASSERT_OK(folio_object_release(second));
                for (uint64_t k = 0; k < n; k++)
                        assert_int_equal(((uint8_t *)view)[k], 0x5a);
                n_mappings = maps_count();
                ASSERT_OK(folio_object_release(object));
                /* And goes with the handle: nothing answers where it was. */
                assert_true(n == 0 || maps_count() < n_mappings);
                if (n > 0) {
                        unsigned char there;

                        assert_int_equal(mincore((void *)((uintptr_t)view & ~UINT64_C(4095)), 4096, &there), -1);
                        assert_int_equal(errno, ENOMEM);
                }
        }
        free(bytes);
        free(read);
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_private_views_refused(void **state)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object, *writing;
        int error = 1;
        void *view;

        (void)state;
        ASSERT_OK(folio_create(client, "mutable", 4096, &mutable, &object));
        ASSERT_OK(folio_create(client, "writing", 4096, NULL, &writing));
        assert_int_equal(folio_object_map_private(object, &view), FOLIO_E_STATE);
        assert_non_null(strstr(folio_strerror_full(), "mutable"));
        assert_int_equal(folio_object_map_private(writing, &view), FOLIO_E_STATE);
        assert_int_equal(folio_object_map_private(NULL, &view), FOLIO_E_INVALID);
        assert_int_equal(folio_object_map_private(writing, NULL), FOLIO_E_INVALID);
        ASSERT_OK(folio_object_map_async(object, FOLIO_MAP_PRIVATE, on_done, &error));
        assert_int_equal(wait_for(client, &error), FOLIO_E_STATE);
        assert_int_equal(folio_object_map_async(object, FOLIO_MAP_PRIVATE | FOLIO_GET_WRITABLE, on_done, &error), FOLIO_E_INVALID);
        assert_int_equal(folio_object_map_async(object, UINT32_MAX, on_done, &error), FOLIO_E_INVALID);
        ASSERT_OK(folio_object_seal(writing));
        ASSERT_OK(folio_object_map_private(writing, &view));
        ASSERT_OK(folio_object_release(writing));
        assert_int_equal(folio_object_map_private(writing, &view), FOLIO_E_INVALID);
        ASSERT_OK(folio_object_release(object));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- what is kept ------------------------------------------------------------------------------------------------------------ */

static void test_mappings_max(void **state)
{
        enum { N = 12 };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        static const unsigned bounds[] = { 1, 5, 0 };

        (void)state;
        for (size_t b = 0; b < sizeof(bounds) / sizeof(bounds[0]); b++) {
                struct folio_open_options options = { .struct_bytes = sizeof(options), .address = foliod->socket_path,
                                                      .flags = FOLIO_OPEN_VISIBLE, .mappings_max = bounds[b] };
                struct folio_object *objects[N];
                struct folio_client *client;
                unsigned n_before;
                char name[32];

                ASSERT_OK(folio_client_open(&options, &client));
                for (unsigned i = 0; i < N; i++) {
                        (void)snprintf(name, sizeof(name), "%zu/%u", b, i);
                        harness_make_large(client, name, 8192, FOLIO_OWN_REGION);
                }
                n_before = maps_count();
                for (unsigned i = 0; i < N; i++) {
                        (void)snprintf(name, sizeof(name), "%zu/%u", b, i);
                        ASSERT_OK(folio_get(client, name, 0, 0, &objects[i]));
                }
                assert_int_equal(maps_count(), n_before + N);
                for (unsigned i = 0; i < N; i++)
                        ASSERT_OK(folio_object_release(objects[i]));
                assert_int_equal(maps_count(), n_before + (bounds[b] ? bounds[b] : N));
                /* Of those that are gone nothing is kept, however many there are. */
                for (unsigned i = 0; i < N; i++) {
                        (void)snprintf(name, sizeof(name), "%zu/%u", b, i);
                        ASSERT_OK(folio_delete(client, name, 0));
                }
                assert_int_equal(maps_count(), n_before);
                folio_client_unref(client);
        }
        foliod_stop(foliod);
}

/*
 * Case E18, in a process that has used up nearly all of its mappings itself: small objects share theirs; of those with
 * a region each the library stops in time, says why, and reads them all the same; malloc() goes on working.
 */
enum { E18_PACKED = 5000, E18_OWN = 400, E18_MAX = 65530, E18_OBJECT_BYTES = 4096 };

/* As many mappings of our own as 90 % of what a process may have. NULL: that is too many for a test. */
static uint8_t *fill_up_mappings(void)
{
        uint8_t *pages = mmap(NULL, E18_MAX * UINT64_C(4096), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
        unsigned n_max = 0;

        assert_non_null(file);
        assert_int_equal(fscanf(file, "%u", &n_max), 1);
        fclose(file);
        assert_true(pages != MAP_FAILED);
        if (n_max > E18_MAX) {
                munmap(pages, E18_MAX * UINT64_C(4096));
                return NULL;
        }
        for (unsigned i = 0; i < n_max / 10 * 9; i += 2)
                assert_int_equal(mprotect(pages + i * UINT64_C(4096), 4096, PROT_READ), 0);
        return pages;
}

static void e18_put(struct folio_client *client, const char *kind, unsigned n, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        uint8_t bytes[E18_OBJECT_BYTES];
        char name[32];

        for (unsigned i = 0; i < n; i++) {
                (void)snprintf(name, sizeof(name), "%s %u", kind, i);
                harness_fill(bytes, sizeof(bytes), i);
                ASSERT_OK(folio_put(client, name, bytes, sizeof(bytes), &options));
        }
}

/* Maps them until that is refused. How many there are then. */
static unsigned e18_get(struct folio_client *client, const char *kind, unsigned n, struct folio_object **objects)
{
        char name[32];

        for (unsigned i = 0; i < n; i++) {
                int error;

                (void)snprintf(name, sizeof(name), "%s %u", kind, i);
                error = folio_get(client, name, 0, 0, &objects[i]);
                if (error == FOLIO_E_LIMIT) {
                        assert_non_null(strstr(folio_strerror_full(), "vm.max_map_count"));
                        return i;
                }
                ASSERT_OK(error);
                assert_true(harness_is_filled(folio_object_data(objects[i]), E18_OBJECT_BYTES, i, 0));
        }
        return n;
}

static void e18_read(struct folio_client *client, unsigned n)
{
        static struct folio_object *unmapped[E18_OWN];
        uint8_t read[E18_OBJECT_BYTES];
        char name[32];

        for (unsigned i = 0; i < n; i++) {
                (void)snprintf(name, sizeof(name), "own %u", i);
                ASSERT_OK(folio_get(client, name, FOLIO_GET_UNMAPPED, 0, &unmapped[i]));
                memset(read, 0, sizeof(read));
                ASSERT_OK(folio_object_read(unmapped[i], 0, read, sizeof(read)));
                assert_true(harness_is_filled(read, sizeof(read), i, 0));
                memset(read, 0, sizeof(read));
                ASSERT_OK(folio_read(client, name, 100, read, sizeof(read) - 100));
                assert_true(harness_is_filled(read, sizeof(read) - 100, i, 100));
        }
        for (unsigned i = 0; i < n; i++)
                ASSERT_OK(folio_object_release(unmapped[i]));
}

static void test_e18_more_objects_than_mappings(void **state)
{
        static struct folio_object *objects[E18_PACKED];
        uint8_t *pages = fill_up_mappings();
        struct folio_client *client;
        unsigned n_before, n_mapped;
        Foliod *foliod;

        (void)state;
        if (!pages)
                skip();
        foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        client = foliod_connect(foliod);
        e18_put(client, "packed", E18_PACKED, 0);
        e18_put(client, "own", E18_OWN, FOLIO_OWN_REGION);
        n_before = maps_count();
        assert_int_equal(e18_get(client, "packed", E18_PACKED, objects), E18_PACKED);
        assert_true(maps_count() - n_before <= 16);
        for (unsigned i = 0; i < E18_PACKED; i++)
                ASSERT_OK(folio_object_release(objects[i]));
        n_mapped = e18_get(client, "own", E18_OWN, objects);
        assert_true(n_mapped >= 32 && n_mapped < E18_OWN);
        for (unsigned i = 0; i < 100; i++) {
                void *block = malloc(MIB);

                assert_non_null(block);
                free(block);
        }
        e18_read(client, E18_OWN);
        /* What is let go of makes room. */
        ASSERT_OK(folio_object_release(objects[0]));
        ASSERT_OK(folio_get(client, "own 399", 0, 0, &objects[0]));
        for (unsigned i = 0; i < n_mapped; i++)
                ASSERT_OK(folio_object_release(objects[i]));
        folio_client_unref(client);
        munmap(pages, E18_MAX * UINT64_C(4096));
        foliod_stop(foliod);
}

static void test_options_of_the_client(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        static const struct {
                uint32_t copy_threads;
                int error;
        } rows[] = { { 0, 0 }, { 1, 0 }, { 16, 0 }, { 17, FOLIO_E_INVALID }, { UINT32_MAX, FOLIO_E_INVALID } };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct folio_open_options options = { .struct_bytes = sizeof(options), .address = foliod->socket_path,
                                                      .flags = FOLIO_OPEN_VISIBLE, .copy_threads = rows[i].copy_threads };
                struct folio_client *client = NULL;

                assert_int_equal(folio_client_open(&options, &client), rows[i].error);
                folio_client_unref(client);
        }
        foliod_stop(foliod);
}

/* --- what a mapping costs, and leaves out ------------------------------------------------------------------------------------ */

static uint64_t count_faults(void)
{
        struct rusage usage;

        assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
        return (uint64_t)usage.ru_minflt;
}

/* F01: who reads all of it once through a mapping is not made to take a fault for every page: it can be had whole. */
static void test_f01_whole_at_once(void **state)
{
        enum { N_BYTES = 16 << 20 };
        static const uint32_t flags[] = { 0, FOLIO_GET_POPULATE };
        Foliod *foliod = foliod_start("--budget", "64M", "--huge", "never", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        uint64_t n_faults[2];

        (void)state;
        harness_make_large(client, "large", N_BYTES, 0);
        for (size_t i = 0; i < 2; i++) {
                struct folio_client *reader = foliod_connect(foliod);
                const volatile uint8_t *data;
                struct folio_object *object;

                ASSERT_OK(folio_get(reader, "large", flags[i], 0, &object));
                data = folio_object_data(object);
                n_faults[i] = count_faults();
                for (size_t at = 0; at < N_BYTES; at += 4096)
                        (void)data[at];
                n_faults[i] = count_faults() - n_faults[i];
                ASSERT_OK(folio_object_release(object));
                folio_client_unref(reader);
        }
        print_message("# faults of a scan: %" PRIu64 ", populated %" PRIu64 "\n", n_faults[0], n_faults[1]);
        /* Sanitizers keep books in memory of their own, which faults. */
        if (!getenv("FOLIO_TEST_SLOW")) {
                assert_true(n_faults[0] >= N_BYTES / 65536 / 2);
                assert_true(n_faults[1] <= 8);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* Mappings of shared files in the process @pid (a text, or `self`) that a core dump would have. How many are left out. */
static unsigned count_left_out(const char *pid)
{
        char path[64], line[512], mapped[512] = "";
        unsigned n = 0;
        FILE *smaps;

        (void)snprintf(path, sizeof(path), "/proc/%s/smaps", pid);
        smaps = fopen(path, "re");
        assert_non_null(smaps);
        while (fgets(line, sizeof(line), smaps)) {
                if (strstr(line, "folio") && (strstr(line, "/memfd:") || strstr(line, "(deleted)"))) {
                        memcpy(mapped, line, sizeof(mapped));
                } else if (strncmp(line, "VmFlags:", 8) == 0 && mapped[0]) {
                        if (!strstr(line, " dd"))
                                fail_msg("in a core dump: %s", mapped);
                        mapped[0] = '\0';
                        n++;
                }
        }
        (void)fclose(smaps);
        return n;
}

/* D24: neither a program that maps objects nor the daemon writes them into its core dump. */
static void test_d24_core_leaves_objects_out(void **state)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *large, *small, *writable, *fresh;
        void *data;

        (void)state;
        harness_make_large(client, "large", 5 * MIB, 0);
        ASSERT_OK(folio_put(client, "small", "x", 1, NULL));
        ASSERT_OK(folio_get(client, "large", 0, 0, &large));
        ASSERT_OK(folio_get(client, "small", 0, 0, &small));
        ASSERT_OK(folio_create(client, "writable", 3 * MIB, &mutable, &writable));
        ASSERT_OK(folio_object_map_write(writable, &data));
        ASSERT_OK(folio_create(client, "fresh", 3 * MIB, NULL, &fresh));
        ASSERT_OK(folio_object_map_write(fresh, &data));
        ASSERT_OK(folio_object_map_private(large, &data));
        /* And the index, the pins, the staging memory. */
        assert_true(count_left_out("self") >= 8);
        assert_true(count_left_out(foliod->pid_text) >= 3);
        ASSERT_OK(folio_object_release(fresh));
        ASSERT_OK(folio_object_release(writable));
        ASSERT_OK(folio_object_release(small));
        ASSERT_OK(folio_object_release(large));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- holes --------------------------------------------------------------------------------------------------------------------- */

/* Every way to read a sparse object leaves its holes holes. */
static void read_all_ways(struct folio_client *client, const char *name, uint8_t *buffer, uint64_t n_bytes)
{
        struct folio_read_item items[2] = { { .name = name, .buffer = buffer, .n_bytes = n_bytes } };
        struct folio_object *object;

        ASSERT_OK(folio_read(client, name, 0, buffer, n_bytes));
        ASSERT_OK(folio_read_many(client, items, 1));
        assert_int_equal(items[0].error, 0);
        for (unsigned unmapped = 0; unmapped < 2; unmapped++) {
                ASSERT_OK(folio_get(client, name, unmapped ? FOLIO_GET_UNMAPPED : 0, 0, &object));
                for (uint64_t at = 0; at < n_bytes; at += MIB)
                        ASSERT_OK(folio_object_read(object, at, buffer, MIB));
                ASSERT_OK(folio_object_read(object, 0, buffer, n_bytes));
                items[1] = (struct folio_read_item){ .object = object, .buffer = buffer, .n_bytes = n_bytes };
                ASSERT_OK(folio_read_many(client, &items[1], 1));
                ASSERT_OK(folio_object_release(object));
        }
}

static void test_holes_stay(void **state)
{
        enum { N_BYTES = 32 << 20 };
        static const struct {
                uint64_t step;       /* a page is written every so many bytes */
                uint32_t flags;
        } rows[] = { { N_BYTES, FOLIO_SPARSE }, { 4 * MIB, FOLIO_SPARSE }, { 8192, FOLIO_SPARSE },
                     { N_BYTES, FOLIO_SPARSE | FOLIO_MUTABLE }, { 4 * MIB, FOLIO_SPARSE | FOLIO_MUTABLE } };
        Foliod *foliod = foliod_start("--budget", "256M", "--huge", "never", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        uint8_t *buffer = malloc(N_BYTES), page[4096];
        uint64_t before;
        char name[32];

        (void)state;
        memset(page, 0x77, sizeof(page));
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = rows[i].flags };
                struct folio_object *object;

                (void)snprintf(name, sizeof(name), "sparse %zu", i);
                ASSERT_OK(folio_create(client, name, N_BYTES, &options, &object));
                for (uint64_t at = 0; at < N_BYTES; at += rows[i].step)
                        ASSERT_OK(folio_object_write(object, at, page, sizeof(page)));
                if (!(rows[i].flags & FOLIO_MUTABLE))
                        ASSERT_OK(folio_object_seal(object));
                /* Pin tables take memory by being used. */
                ASSERT_OK(folio_read(client, name, 0, buffer, 1));
                ASSERT_OK(folio_read(other, name, 0, buffer, 1));
                before = alive_memory_bytes(foliod);
                for (unsigned k = 0; k < 2; k++) {
                        memset(buffer, 1, N_BYTES);
                        read_all_ways(k ? other : client, name, buffer, N_BYTES);
                        for (uint64_t at = 0; at < N_BYTES; at++)
                                if (buffer[at] != (at % rows[i].step < sizeof(page) ? 0x77 : 0))
                                        fail_msg("row %zu: byte %" PRIu64 " is %u", i, at, buffer[at]);
                }
                if (alive_memory_bytes(foliod) != before)
                        fail_msg("row %zu: to read it took %" PRIu64 " bytes", i, alive_memory_bytes(foliod) - before);
                ASSERT_OK(folio_object_release(object));
        }
        /* Not before: what one row gives back, a little later, is not to be counted in the next. */
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                (void)snprintf(name, sizeof(name), "sparse %zu", i);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        free(buffer);
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_private_views),
                INTEGRATION_TEST(test_private_views_refused),
                INTEGRATION_TEST(test_mappings_max),
                INTEGRATION_TEST(test_e18_more_objects_than_mappings),
                INTEGRATION_TEST(test_options_of_the_client),
                INTEGRATION_TEST(test_f01_whole_at_once),
                INTEGRATION_TEST(test_d24_core_leaves_objects_out),
                INTEGRATION_TEST(test_holes_stay),
        };

        return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
