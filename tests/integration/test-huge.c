/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Huge pages: small things do not take them, large things get them where the machine allows, what is reported is what
 * is there, and many readers of one object share its memory.
 */
#include "tests/integration/alive.h"
#include "tests/integration/trace.h"

#include <inttypes.h>

#define MIB (UINT64_C(1) << 20)
#define HUGE (2 * MIB)

/* B01: a thousand small objects on a tmpfs that likes huge pages do not take a huge page each. */
static void test_b01_small_files_on_huge_tmpfs(void **state)
{
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        static const char bytes[100];
        uint64_t bytes_before;
        char name[32];

        (void)state;
        if (!has_tmpfs) {
                folio_client_unref(client);
                foliod_stop(foliod);
                skip();
        }
        ASSERT_OK(folio_put(client, "tmpfs:first", "x", 1, NULL));
        bytes_before = alive_memory_bytes(foliod);
        for (unsigned i = 0; i < 1000; i++) {
                (void)snprintf(name, sizeof(name), "tmpfs:small %u", i);
                ASSERT_OK(folio_put(client, name, bytes, sizeof(bytes), NULL));
        }
        assert_true(alive_memory_bytes(foliod) <= bytes_before + 2 * HUGE);
        for (unsigned i = 0; i < 100; i++) {
                (void)snprintf(name, sizeof(name), "tmpfs:own %u", i);
                ASSERT_OK(folio_put(client, name, "x", 1, &own));
                ASSERT_OK(folio_stat(client, name, &stat));
                assert_int_equal(stat.backing, FOLIO_BACKING_TMPFS);
                assert_true(stat.allocated_bytes <= 4096);
        }
        assert_true(alive_memory_bytes(foliod) <= bytes_before + 3 * HUGE);
        assert_true(alive_charges(client).used_bytes <= 8 * HUGE);
        ASSERT_OK(folio_namespace_remove(client, "tmpfs"));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* What our own mapping of an object says of it: bytes mapped by huge pages. */
static uint64_t mapped_huge_bytes(const void *data)
{
        uint64_t begin, end, kib = 0;
        bool is_ours = false;
        char line[512];
        FILE *smaps = fopen("/proc/self/smaps", "re");

        assert_non_null(smaps);
        while (fgets(line, sizeof(line), smaps)) {
                if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2)
                        is_ours = (uintptr_t)data >= begin && (uintptr_t)data < end;
                if (is_ours && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
                        break;
        }
        fclose(smaps);
        return kib * 1024;
}

static void compare_huge(struct folio_client *client, const char *name, uint64_t n_bytes)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object;
        const volatile uint8_t *data;
        void *bytes = calloc(1, n_bytes);
        uint64_t mapped;

        assert_non_null(bytes);
        ASSERT_OK(folio_put(client, name, bytes, n_bytes, NULL));
        free(bytes);
        /* Where it is to become huge, a worker does it after the seal; where it is not, this holds at once. */
        for (unsigned i = 0; i < 200; i++) {
                ASSERT_OK(folio_stat(client, name, &stat));
                if (stat.huge_bytes >= n_bytes / HUGE * HUGE)
                        break;
                harness_pause();
        }
        ASSERT_OK(folio_get(client, name, 0, 0, &object));
        data = folio_object_data(object);
        assert_non_null((const void *)(uintptr_t)data);
        for (uint64_t i = 0; i < n_bytes; i += 4096)
                (void)data[i];
        mapped = mapped_huge_bytes((const void *)(uintptr_t)data);
        /* A piece that has just become huge is counted when the worker is through with all of them. */
        AWAIT(folio_stat(client, name, &stat) == 0 && stat.huge_bytes >= mapped);
        print_message("# %s of %llu bytes: allocated %llu, huge as stat says %llu, as mapped here %llu\n", name,
                      (unsigned long long)n_bytes, (unsigned long long)stat.allocated_bytes,
                      (unsigned long long)stat.huge_bytes, (unsigned long long)mapped);
        assert_int_equal(stat.size_bytes, n_bytes);
        assert_int_equal(stat.huge_bytes % HUGE, 0);
        assert_true(stat.huge_bytes <= stat.allocated_bytes);
        assert_true(stat.allocated_bytes <= (n_bytes + HUGE - 1) / HUGE * HUGE);
        /* Less may be mapped so than is there: the kernel decides for each mapping. */
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, name, 0));
}

/* B03: huge pages are reported as found, never as asked for; and what the policy is stands in the log and in status. */
static void test_b03_huge_as_found(void **state)
{
        static const uint64_t sizes[] = { HUGE - 1, HUGE, HUGE + 1, 5 * MIB, 64 * MIB };
        static const char *const policies[] = { "auto", "never", "always" };
        bool has_tmpfs;
        Alive before;

        (void)state;
        for (unsigned policy = 0; policy < 3; policy++) {
                Foliod *foliod = foliod_start("--budget", "256M", "--huge", policies[policy], ALIVE_NO_POOL, NULL);
                struct folio_client *client = foliod_connect(foliod);
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };

                has_tmpfs = alive_add_tmpfs(client);
                folio_client_unref(client);
                before = alive_begin(foliod);
                client = foliod_connect(foliod);
                (void)foliod_fact(client, "huge.policy");
                for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                        compare_huge(client, "huge", sizes[i]);
                        if (has_tmpfs)
                                compare_huge(client, "tmpfs:huge", sizes[i]);
                }
                if (policy == 1) {
                        char *bytes = calloc(1, 4 * MIB);

                        assert_non_null(bytes);
                        ASSERT_OK(folio_put(client, "never", bytes, 4 * MIB, NULL));
                        free(bytes);
                        ASSERT_OK(folio_stat(client, "never", &stat));
                        /* Unless the administrator makes all shared memory huge, nobody asked for any. */
                        assert_true(stat.huge_bytes == 0 || stat.huge_bytes == 4 * MIB);
                        ASSERT_OK(folio_delete(client, "never", 0));
                }
                folio_client_unref(client);
                alive_check(&before);
                foliod_stop(foliod);
        }
}

/*
 * As foliod's policy `auto` has it: not where the administrator turned them off, nor where the kernel has no
 * MADV_COLLAPSE.
 */
static bool can_be_huge(void)
{
        static const struct {
                const char *path;
                const char *off;
        } switches[] = {
                { "/sys/kernel/mm/transparent_hugepage/enabled", "[never]" },
                { "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[deny]" },
        };
        bool can = true;

        for (size_t i = 0; i < 2; i++) {
                char line[256] = "";
                FILE *file = fopen(switches[i].path, "re");

                if (!file || !fgets(line, sizeof(line), file) || strstr(line, switches[i].off))
                        can = false;
                if (file)
                        fclose(file);
        }
        return can;
}

static uint64_t own_kib(const char *field)
{
        char line[256];
        uint64_t kib = 0;
        FILE *rollup = fopen("/proc/self/smaps_rollup", "re");

        CHECK(rollup);
        while (fgets(line, sizeof(line), rollup))
                if (strncmp(line, field, strlen(field)) == 0)
                        kib = strtoull(line + strlen(field), NULL, 10);
        fclose(rollup);
        return kib;
}

enum { N_READERS = 8 };

static void read_shared(Child *child)
{
        uint64_t n_bytes = *(uint64_t *)child->userdata;
        struct folio_client *client = child_connect(child);
        struct folio_object *small, *large;
        uint64_t private_kib;
        const uint8_t *data;

        CHECK_OK(folio_get(client, "shared small", 0, 10000, &small));
        CHECK(folio_object_size(small) == 100);
        CHECK(harness_is_filled(folio_object_data(small), 100, 1, 0));
        CHECK_OK(folio_get(client, "shared", 0, 10000, &large));
        data = folio_object_data(large);
        CHECK(data);
        private_kib = own_kib("Anonymous:");
        CHECK(harness_is_filled(data, n_bytes, 2, 0));
        /* All of it has been looked at, and not a copy of it is ours. */
        CHECK(own_kib("Anonymous:") < private_kib + n_bytes / 1024 / 32);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        /* All of it is resident here, and in the others, so this is no more than our share. */
        CHECK(own_kib("Rss:") >= n_bytes / 1024);
        child_say(child, own_kib("Pss_Shmem:"));
        CHECK(child_hear(child) == 1);
        /* It may have become huge meanwhile, under our mapping. */
        CHECK(harness_is_filled(data, n_bytes, 2, 0));
        CHECK_OK(folio_object_release(small));
        CHECK_OK(folio_object_release(large));
        folio_client_unref(client);
}

/* A large object and a small one, put by one process and got by eight: identical, no copy, huge pages. */
static void test_shared_by_eight_readers(void **state)
{
        uint64_t n_bytes = getenv("FOLIO_TEST_SLOW") ? 64 * MIB : 256 * MIB, shared_kib = 0, bytes_before;
        Foliod *foliod = foliod_start("--budget", "600M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        uint8_t *bytes = malloc(n_bytes);
        Child *children[N_READERS];

        (void)state;
        assert_non_null(bytes);
        harness_fill(bytes, 100, 1);
        ASSERT_OK(folio_put(client, "shared small", bytes, 100, NULL));
        harness_fill(bytes, n_bytes, 2);
        ASSERT_OK(folio_put(client, "shared", bytes, n_bytes, NULL));
        free(bytes);
        bytes_before = alive_memory_bytes(foliod);
        for (unsigned i = 0; i < N_READERS; i++)
                children[i] = child_start(foliod, read_shared, &n_bytes);
        for (unsigned i = 0; i < N_READERS; i++)
                assert_int_equal(child_hear(children[i]), 1);
        for (unsigned i = 0; i < N_READERS; i++)
                child_say(children[i], 1);
        for (unsigned i = 0; i < N_READERS; i++)
                shared_kib += child_hear(children[i]);
        print_message("# %llu MiB in %u readers: their shares are %llu MiB in all\n",
                      (unsigned long long)(n_bytes / MIB), N_READERS, (unsigned long long)(shared_kib / 1024));
        assert_true(shared_kib <= n_bytes / 1024 * 5 / 4 + N_READERS * 8 * 1024);
        assert_true(alive_memory_bytes(foliod) <= bytes_before + N_READERS * 16 * MIB);
        if (can_be_huge())
                AWAIT(folio_stat(client, "shared", &stat) == 0 && stat.huge_bytes >= n_bytes / 100 * 95);
        else
                print_message("# the administrator of this machine has turned huge pages off\n");
        for (unsigned i = 0; i < N_READERS; i++)
                child_say(children[i], 1);
        for (unsigned i = 0; i < N_READERS; i++)
                child_finish(children[i]);
        ASSERT_OK(folio_stat(client, "shared", &stat));
        print_message("# huge: %llu of %llu MiB\n", (unsigned long long)(stat.huge_bytes / MIB),
                      (unsigned long long)(stat.size_bytes / MIB));
        ASSERT_OK(folio_delete(client, "shared", 0));
        ASSERT_OK(folio_delete(client, "shared small", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

enum { FILLED_BYTES = 16 * 1024 * 1024 + 4097 };

/* Puts in one call, and by large writes that neither begin nor end at a page; and small ones. */
static void fill_large(Child *child)
{
        static const uint64_t ends[] = { 5 * 1024 * 1024 + 1, 5 * 1024 * 1024 + 100, 12 * 1024 * 1024, FILLED_BYTES };
        struct folio_client *client = child_connect(child);
        uint8_t *bytes = malloc(FILLED_BYTES);
        struct folio_object *object;
        uint64_t at = 0;

        CHECK(bytes);
        harness_fill(bytes, FILLED_BYTES, 5);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        CHECK_OK(folio_put(client, "filled/put", bytes, FILLED_BYTES, NULL));
        CHECK_OK(folio_create(client, "filled/write", FILLED_BYTES, NULL, &object));
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); at = ends[i++])
                CHECK_OK(folio_object_write(object, at, bytes + at, ends[i] - at));
        CHECK_OK(folio_object_seal(object));
        CHECK_OK(folio_object_release(object));
        child_say(child, 2);
        CHECK(child_hear(child) == 2);
        free(bytes);
        folio_client_unref(client);
}

/*
 * A region that is all huge is filled through a mapping, which is gone before the seal; one of small pages by the
 * kernel. What is seen is the same.
 */
static void test_filled_by_what_there_is(void **state)
{
        static const char *const policies[] = { "always", "never" }, *const names[] = { "filled/put", "filled/write" };
        unsigned n_traced = 0;

        (void)state;
        for (unsigned policy = 0; policy < 2; policy++) {
                Foliod *foliod = foliod_start("--budget", "256M", "--huge", policies[policy], ALIVE_NO_POOL, NULL);
                Alive before = alive_begin(foliod);
                struct folio_client *client = foliod_connect(foliod);
                Child *child = child_start(foliod, fill_large, NULL);
                bool is_traced, is_huge = true;
                Trace trace;

                assert_int_equal(child_hear(child), 1);
                is_traced = trace_begin(&trace, foliod, child->pid, "pwrite64");
                child_say(child, 1);
                assert_int_equal(child_hear(child), 2);
                if (is_traced)
                        trace_end(&trace);
                for (unsigned i = 0; i < 2; i++) {
                        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                        struct folio_object *object;

                        ASSERT_OK(folio_stat(client, names[i], &stat));
                        is_huge = is_huge && stat.huge_bytes >= FILLED_BYTES / HUGE * HUGE;
                        ASSERT_OK(folio_get(client, names[i], 0, 0, &object));
                        assert_true(harness_is_filled(folio_object_data(object), FILLED_BYTES, 5, 0));
                        ASSERT_OK(folio_object_release(object));
                        ASSERT_OK(folio_delete(client, names[i], 0));
                }
                /* By the kernel, where pages are small: the put, and four writes. Else only the write of 99 bytes. */
                if (is_traced && (is_huge || policy == 1)) {
                        assert_int_equal(trace_count(&trace, "pwrite64(", true), is_huge ? 1 : 5);
                        n_traced++;
                }
                child_say(child, 2);
                child_finish(child);
                folio_client_unref(client);
                alive_check(&before);
                foliod_stop(foliod);
        }
        if (n_traced < 2)
                print_message("# not all calls were looked at: strace, or huge pages, are not to be had here\n");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_b01_small_files_on_huge_tmpfs),
                INTEGRATION_TEST(test_b03_huge_as_found),
                INTEGRATION_TEST(test_shared_by_eight_readers),
                INTEGRATION_TEST(test_filled_by_what_there_is),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
