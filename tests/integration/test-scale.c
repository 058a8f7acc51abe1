/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A million small objects: all of them are there, each takes little memory, and what the index answers costs no
 * system call. Times are printed, never judged.
 *
 * FOLIO_TEST_SCALE is another number of objects than a million.
 */
#include "tests/integration/alive.h"
#include "tests/integration/trace.h"

#include <limits.h>

#define MIB (UINT64_C(1) << 20)

enum {
        OBJECT_BYTES = 100,
        BATCH = 2000,
        NAME_BYTES = 16,
};

static size_t n_objects_wanted(void)
{
        const char *text = getenv("FOLIO_TEST_SCALE");
        size_t n = text ? strtoul(text, NULL, 10) : 1000000;

        if (!text && getenv("FOLIO_TEST_SLOW"))
                n = 200000;
        return n < BATCH ? BATCH : n / BATCH * BATCH;
}

static double now_s(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

typedef struct Batch {
        char names[BATCH][NAME_BYTES];
        uint8_t bytes[BATCH][OBJECT_BYTES];
        uint8_t read[BATCH][OBJECT_BYTES];
        struct folio_put_item puts[BATCH];
        struct folio_read_item reads[BATCH];
        struct folio_delete_item deletes[BATCH];
} Batch;

static void batch_prepare(Batch *batch, size_t first)
{
        for (size_t i = 0; i < BATCH; i++) {
                (void)snprintf(batch->names[i], NAME_BYTES, "scale %zu", first + i);
                harness_fill(batch->bytes[i], OBJECT_BYTES, first + i);
                batch->puts[i] = (struct folio_put_item){ .name = batch->names[i],
                                                          .data = batch->bytes[i],
                                                          .size_bytes = OBJECT_BYTES };
                batch->reads[i] = (struct folio_read_item){ .name = batch->names[i],
                                                            .buffer = batch->read[i],
                                                            .n_bytes = OBJECT_BYTES };
                batch->deletes[i] = (struct folio_delete_item){ .name = batch->names[i] };
        }
}

static double put_all(struct folio_client *client, Batch *batch, size_t begin, size_t end)
{
        double time_s = 0;

        for (size_t i = begin; i < end; i += BATCH) {
                double begun_s;

                batch_prepare(batch, i);
                begun_s = now_s();
                if (folio_put_many(client, batch->puts, BATCH) != 0)
                        fail_msg("put of batch at %zu: %s", i, folio_strerror_full());
                time_s += now_s() - begun_s;
        }
        return time_s;
}

static double read_all(struct folio_client *client, Batch *batch, size_t begin, size_t end)
{
        double time_s = 0;

        for (size_t i = begin; i < end; i += BATCH) {
                double begun_s;

                batch_prepare(batch, i);
                begun_s = now_s();
                assert_int_equal(folio_read_many(client, batch->reads, BATCH), 0);
                time_s += now_s() - begun_s;
                assert_memory_equal(batch->read, batch->bytes, sizeof(batch->read));
        }
        return time_s;
}

static size_t count_listed(struct folio_client *client)
{
        enum { PAGE = 512 };
        struct folio_stat *entries = calloc(PAGE, sizeof(*entries));
        struct folio_list *list;
        char last[FOLIO_NAME_BYTES_MAX + 1] = "";
        size_t n_listed = 0;
        int n;

        assert_non_null(entries);
        entries[0].struct_bytes = sizeof(*entries);
        ASSERT_OK(folio_list_open(client, "scale ", &list));
        while ((n = folio_list_next(list, entries, PAGE)) > 0)
                for (int i = 0; i < n; i++) {
                        assert_true(strcmp(last, entries[i].name) < 0);
                        (void)strcpy(last, entries[i].name);
                        n_listed++;
                }
        ASSERT_OK(n);
        folio_list_close(list);
        free(entries);
        return n_listed;
}

/* The cost of one operation with @n_known objects, over those of them that were put last. */
static void print_cost(const char *what, double time_s, size_t n_done, size_t n_known)
{
        print_message("# %s: %.2f us each, with %zu objects\n", what, time_s * 1e6 / (double)n_done, n_known);
}

static void get_each(struct folio_client *client, size_t n_known)
{
        enum { N_GETS = 20000 };
        double begun_s = now_s();
        char name[NAME_BYTES];

        for (size_t i = 0; i < N_GETS; i++) {
                struct folio_object *object;

                (void)snprintf(name, sizeof(name), "scale %zu", i * 7919 % n_known);
                ASSERT_OK(folio_get(client, name, 0, 0, &object));
                if (i % 64 == 0)
                        assert_true(harness_is_filled(folio_object_data(object), OBJECT_BYTES, i * 7919 % n_known, 0));
                ASSERT_OK(folio_object_release(object));
        }
        print_cost("get and release, one by one", now_s() - begun_s, N_GETS, n_known);
}

static void test_a_million_objects(void **state)
{
        size_t n = n_objects_wanted();
        char objects_max[32];
        Foliod *foliod;
        Alive before;
        struct folio_client *client;
        Batch *batch = malloc(sizeof(*batch));
        uint64_t bytes_before, n_bytes;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        (void)state;
        assert_non_null(batch);
        (void)snprintf(objects_max, sizeof(objects_max), "%zu", n + 1000);
        foliod = foliod_start("--budget", "1200M", "--objects-max", objects_max, ALIVE_NO_POOL, NULL);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        bytes_before = alive_memory_bytes(foliod);

        print_cost("put, in batches", put_all(client, batch, 0, BATCH), BATCH, BATCH);
        print_cost("read, in batches", read_all(client, batch, 0, BATCH), BATCH, BATCH);
        get_each(client, BATCH);
        print_cost("put, in batches", put_all(client, batch, BATCH, n), n - BATCH, n);
        n_bytes = alive_memory_bytes(foliod) - bytes_before;
        print_message("# memory: %.0f bytes for each object of %d\n", (double)n_bytes / (double)n, OBJECT_BYTES);
        /* 128 of chunk, 128 of slot, 12 of bucket; and what areas of 2 MiB round up to. */
        assert_true(n_bytes <= n * 512 + 32 * MIB);
        assert_int_equal(alive_charges(client).n_objects, n);
        print_cost("read, in batches", read_all(client, batch, 0, n), n, n);
        get_each(client, n);
        {
                double begun_s = now_s();

                assert_int_equal(count_listed(client), n);
                print_cost("list", now_s() - begun_s, n, n);
        }
        assert_int_equal(folio_stat(client, "scale none", &stat), FOLIO_E_NOT_FOUND);
        {
                double time_s = 0;

                for (size_t i = 0; i < n; i += BATCH) {
                        double begun_s;

                        batch_prepare(batch, i);
                        begun_s = now_s();
                        assert_int_equal(folio_delete_many(client, batch->deletes, BATCH), 0);
                        time_s += now_s() - begun_s;
                }
                print_cost("delete, in batches", time_s, n, n);
        }
        assert_int_equal(alive_charges(client).n_objects, 0);
        free(batch);
        folio_client_unref(client);
        /* An index that has been full keeps its pages: it is memory of the store, and counted above. */
        before.memory_bytes += n * 200;
        alive_check(&before);
        foliod_stop(foliod);
}

static void use_what_is_known(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object, *large;
        uint8_t buffer[100];
        uint64_t sum = 0;

        /* The first time may ask: for the index, the region, a mapping. */
        CHECK_OK(folio_get(client, "known small", 0, 0, &object));
        CHECK_OK(folio_object_release(object));
        CHECK_OK(folio_read(client, "known small", 0, buffer, 100));
        CHECK_OK(folio_get(client, "known large", 0, 0, &large));
        CHECK(folio_object_data(large));
        CHECK_OK(folio_object_release(large));
        CHECK_OK(folio_stat(client, "known small", &stat));
        CHECK(folio_exists(client, "unknown") == 0);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        (void)!write(-1, "begin", 5);
        for (unsigned i = 0; i < 1000; i++) {
                CHECK_OK(folio_get(client, "known small", 0, 0, &object));
                sum += ((const volatile uint8_t *)folio_object_data(object))[i % 100];
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_stat(client, "known small", &stat));
                CHECK_OK(folio_stat(client, "known large", &stat));
                CHECK(folio_exists(client, "known small") == 1);
                CHECK(folio_exists(client, "unknown") == 0);
                CHECK(folio_stat(client, "unknown", &stat) == FOLIO_E_NOT_FOUND);
                CHECK_OK(folio_read(client, "known small", 10, buffer, 50));
                CHECK_OK(folio_get(client, "known large", 0, 0, &large));
                sum += ((const volatile uint8_t *)folio_object_data(large))[i];
                CHECK_OK(folio_object_release(large));
        }
        (void)!write(-1, "end", 3);
        CHECK(sum > 0);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        folio_client_unref(client);
}

/*
 * What is known costs no system call: get, stat, exists and read of a small object, get of a large one mapped
 * already.
 */
static void test_known_objects_without_system_calls(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *bytes = malloc(3 * MIB);
        bool is_traced;
        Trace trace;
        Child *child;

        (void)state;
        assert_non_null(bytes);
        harness_fill(bytes, 3 * MIB, 1);
        ASSERT_OK(folio_put(client, "known small", bytes, 100, NULL));
        ASSERT_OK(folio_put(client, "known large", bytes, 3 * MIB, NULL));
        free(bytes);
        child = child_start(foliod, use_what_is_known, NULL);
        assert_int_equal(child_hear(child), 1);
        is_traced = trace_begin(&trace, foliod, child->pid, NULL);
        child_say(child, 1);
        assert_int_equal(child_hear(child), 1);
        if (is_traced) {
                trace_end(&trace);
                assert_int_equal(trace_count_between(&trace, "write(-1, \"begin\"", "write(-1, \"end\""), 0);
        }
        child_say(child, 1);
        child_finish(child);
        ASSERT_OK(folio_delete(client, "known small", 0));
        ASSERT_OK(folio_delete(client, "known large", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_known_objects_without_system_calls),
                INTEGRATION_TEST(test_a_million_objects),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
