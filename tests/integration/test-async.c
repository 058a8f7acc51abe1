/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting, event loops, callbacks, and a daemon that goes away: how the library behaves among other code. */
#include "tests/integration/harness.h"

#define MIB (1024u * 1024u)

/* --- a get that waits ------------------------------------------------------------------------------------------------- */

static void run_waiter(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        for (int i = 0; i < 20; i++) {
                char name[32];

                snprintf(name, sizeof(name), "wait%d", i);
                child_say(child, 1);
                CHECK_OK(folio_get(client, name, 0, FOLIO_TIMEOUT_FOREVER, &object));
                CHECK(strcmp(folio_object_data(object), name) == 0);
                CHECK_OK(folio_object_release(object));
        }
        folio_client_unref(client);
}

static void test_waiting_get(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        Child *child = child_start(foliod, run_waiter, NULL);
        struct folio_object *object;

        for (int i = 0; i < 20; i++) {
                char name[32];

                snprintf(name, sizeof(name), "wait%d", i);
                assert_int_equal(child_hear(child), 1);
                if (i % 2) {
                        ASSERT_OK(folio_put(client, name, name, sizeof(name), NULL));
                } else {
                        ASSERT_OK(folio_create(client, name, i % 4 ? 32 : 2 * MIB, NULL, &object));
                        ASSERT_OK(folio_object_write(object, 0, name, sizeof(name)));
                        ASSERT_OK(folio_object_seal(object));
                        ASSERT_OK(folio_object_release(object));
                }
        }
        child_finish(child);
        assert_int_equal(folio_get(client, "never", 0, 30, &object), FOLIO_E_TIMEOUT);
        assert_int_equal(folio_get(client, "never", 0, 0, &object), FOLIO_E_NOT_FOUND);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* D15: the writer's death ends the wait. */
static void run_writer(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        CHECK_OK(folio_create(client, "half", 100, NULL, &object));
        child_say(child, 1);
        (void)child_hear(child);
}

static void run_expecting(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        child_say(child, 1);
        CHECK(folio_get(client, "half", 0, FOLIO_TIMEOUT_FOREVER, &object) == FOLIO_E_WRITER_DIED);
        CHECK(strstr(folio_strerror_full(), "half"));
        folio_client_unref(client);
}

static void test_writer_dies(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        Child *writer = child_start(foliod, run_writer, NULL), *waiter;
        struct folio_object *object;

        assert_int_equal(child_hear(writer), 1);
        waiter = child_start(foliod, run_expecting, NULL);
        assert_int_equal(child_hear(waiter), 1);
        assert_int_equal(folio_get(client, "half", 0, 20, &object), FOLIO_E_TIMEOUT);
        child_kill(writer);
        child_finish(waiter);
        AWAIT(folio_get(client, "half", 0, 0, &object) == FOLIO_E_WRITER_DIED);
        /* The name is free again. */
        ASSERT_OK(folio_put(client, "half", "x", 1, NULL));
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void run_waiting_for_ever(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object, *held;

        CHECK_OK(folio_get(client, "there", 0, 0, &held));
        child_say(child, 1);
        CHECK(folio_get(client, "never", 0, FOLIO_TIMEOUT_FOREVER, &object) == FOLIO_E_DAEMON_GONE);
        CHECK(folio_put(client, "k", "x", 1, NULL) == FOLIO_E_DAEMON_GONE);
        CHECK(folio_client_process(client) == FOLIO_E_DAEMON_GONE);
        /* What is held stays readable, and what the index knows, known. */
        CHECK(strcmp(folio_object_data(held), "bytes") == 0);
        CHECK_OK(folio_object_release(held));
        folio_client_unref(client);
}

static void test_daemon_dies(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        Child *child;

        ASSERT_OK(folio_put(client, "there", "bytes", 6, NULL));
        child = child_start(foliod, run_waiting_for_ever, NULL);
        assert_int_equal(child_hear(child), 1);
        foliod_kill(foliod);
        child_finish(child);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- callbacks and event loops --------------------------------------------------------------------------------------------- */

typedef struct Done {
        struct folio_client *client;
        unsigned n;
        int error;
        struct folio_object *object;
        char sentence[256];
} Done;

static void on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Done *done = userdata;

        done->client = client;
        done->n++;
        done->error = error;
        done->object = object;
        snprintf(done->sentence, sizeof(done->sentence), "%s", error ? folio_strerror_full() : "");
}

/* Turns the loop until @done has been called. */
static void loop_until(struct folio_client *client, Done *done, unsigned n)
{
        while (done->n < n) {
                struct pollfd fd = {
                        .fd = folio_client_get_fd(client),
                        .events = (short)folio_client_get_events(client),
                };

                assert_int_equal(poll(&fd, 1, 20000), 1);
                assert_true(folio_client_process(client) >= 0);
        }
        assert_int_equal(done->n, n);
        assert_ptr_equal(done->client, client);
}

static void test_every_async_form(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        static const size_t lengths[] = { 0, 100, 5 * MIB };
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable),
                                                .flags = FOLIO_MUTABLE,
                                                .capacity_bytes = 8192 };

        for (size_t i = 0; i < 3; i++) {
                void *bytes = malloc(lengths[i] + 1), *copy = malloc(lengths[i] + 1);
                Done done = { 0 };
                struct folio_object *object;

                harness_fill(bytes, lengths[i], i);
                ASSERT_OK(folio_put_async(client, "a", bytes, lengths[i], NULL, on_done, &done));
                loop_until(client, &done, 1);
                assert_int_equal(done.error, 0);
                assert_null(done.object);
                ASSERT_OK(folio_put_async(client, "a", bytes, lengths[i], NULL, on_done, &done));
                loop_until(client, &done, 2);
                assert_int_equal(done.error, FOLIO_E_EXISTS);
                assert_non_null(strstr(done.sentence, "a"));
                ASSERT_OK(folio_get_async(client, "a", 0, 0, on_done, &done));
                loop_until(client, &done, 3);
                assert_int_equal(done.error, 0);
                assert_memory_equal(folio_object_data(done.object), bytes, lengths[i]);
                ASSERT_OK(folio_object_release(done.object));
                ASSERT_OK(folio_read_async(client, "a", 0, copy, lengths[i], on_done, &done));
                loop_until(client, &done, 4);
                assert_int_equal(done.error, 0);
                assert_memory_equal(copy, bytes, lengths[i]);
                ASSERT_OK(folio_read_async(client, "a", 1, copy, lengths[i], on_done, &done));
                loop_until(client, &done, 5);
                assert_int_equal(done.error, FOLIO_E_RANGE);
                ASSERT_OK(folio_delete_async(client, "a", 0, on_done, &done));
                loop_until(client, &done, 6);
                assert_int_equal(done.error, 0);
                ASSERT_OK(folio_create_async(client, "c", lengths[i], NULL, on_done, &done));
                loop_until(client, &done, 7);
                assert_int_equal(done.error, 0);
                object = done.object;
                ASSERT_OK(folio_object_write(object, 0, bytes, lengths[i]));
                ASSERT_OK(folio_object_seal_async(object, on_done, &done));
                if (i == 1) /* Released before it is answered: the seal goes on. */
                        ASSERT_OK(folio_object_release(object));
                loop_until(client, &done, 8);
                assert_int_equal(done.error, 0);
                if (i != 1)
                        ASSERT_OK(folio_object_release(object));
                assert_int_equal(folio_exists(client, "c"), 1);
                ASSERT_OK(folio_delete(client, "c", 0));
                free(bytes);
                free(copy);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_async_truncate(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE, .capacity_bytes = 8192 };
        struct folio_object *object;
        Done done = { 0 };

        ASSERT_OK(folio_create_async(client, "m", 10, &mutable, on_done, &done));
        loop_until(client, &done, 1);
        object = done.object;
        ASSERT_OK(folio_truncate_async(client, "m", 5000, on_done, &done));
        loop_until(client, &done, 2);
        assert_int_equal(done.error, 0);
        assert_int_equal(folio_object_size(object), 5000);
        ASSERT_OK(folio_object_release(object));
        assert_int_equal(folio_put_async(client, "bad:name:", "x", 1, NULL, NULL, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_put_async(client, "", "x", 1, NULL, on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(done.n, 2);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_async_wait(void **state)
{
        enum { N = 200 };
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        static Done done[N];
        Done never = { 0 }, writer = { 0 };
        struct folio_object *object;
        char name[32];

        memset(done, 0, sizeof(done));
        for (int i = 0; i < N; i++) {
                snprintf(name, sizeof(name), "later%d", i);
                ASSERT_OK(folio_get_async(client, name, 0, FOLIO_TIMEOUT_FOREVER, on_done, &done[i]));
        }
        ASSERT_OK(folio_get_async(client, "never", 0, 50, on_done, &never));
        loop_until(client, &never, 1);
        assert_int_equal(never.error, FOLIO_E_TIMEOUT);
        for (int i = 0; i < N; i++) {
                snprintf(name, sizeof(name), "later%d", i);
                assert_int_equal(done[i].n, 0);
                ASSERT_OK(folio_put(other, name, name, sizeof(name), NULL));
                if (i % 10 == 9)
                        loop_until(client, &done[i], 1);
        }
        for (int i = 0; i < N; i++) {
                loop_until(client, &done[i], 1);
                assert_int_equal(done[i].error, 0);
                snprintf(name, sizeof(name), "later%d", i);
                assert_string_equal(folio_object_data(done[i].object), name);
                ASSERT_OK(folio_object_release(done[i].object));
        }
        /* A writer that gives up. */
        ASSERT_OK(folio_create(other, "w", 10, NULL, &object));
        ASSERT_OK(folio_get_async(client, "w", 0, FOLIO_TIMEOUT_FOREVER, on_done, &writer));
        assert_true(folio_client_process(client) >= 0);
        assert_int_equal(writer.n, 0);
        folio_client_unref(other);
        loop_until(client, &writer, 1);
        assert_int_equal(writer.error, FOLIO_E_WRITER_DIED);
        ASSERT_OK(folio_object_release(object));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* C16: whatever is under way when a client is closed completes, before the close returns and never after. */
static void test_close_cancels(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        Done waiting = { 0 }, put[50] = { 0 };

        ASSERT_OK(folio_get_async(client, "never", 0, FOLIO_TIMEOUT_FOREVER, on_done, &waiting));
        for (size_t i = 0; i < 50; i++) {
                char name[16];

                snprintf(name, sizeof(name), "p%zu", i);
                ASSERT_OK(folio_put_async(client, name, name, 3, NULL, on_done, &put[i]));
        }
        folio_client_unref(client);
        assert_int_equal(waiting.n, 1);
        assert_int_equal(waiting.error, FOLIO_E_CANCELLED);
        for (size_t i = 0; i < 50; i++) {
                assert_int_equal(put[i].n, 1);
                assert_true(put[i].error == 0 || put[i].error == FOLIO_E_CANCELLED);
        }
        foliod_stop(foliod);
}

typedef struct Chain {
        unsigned left;
        unsigned depth;
        unsigned depth_max;
} Chain;

static void next_link(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Chain *chain = userdata;

        chain->depth++;
        chain->depth_max = chain->depth > chain->depth_max ? chain->depth : chain->depth_max;
        assert_int_equal(error, 0);
        ASSERT_OK(folio_object_release(object));
        if (--chain->left > 0)
                ASSERT_OK(folio_get_async(client, "k", 0, 0, next_link, chain));
        chain->depth--;
}

/* Calls that complete at once, each from the callback of the one before: no stack is needed for them. */
static void test_chain_of_callbacks(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        Chain chain = { .left = 200000 };

        ASSERT_OK(folio_put(client, "k", "x", 1, NULL));
        ASSERT_OK(folio_get_async(client, "k", 0, 0, next_link, &chain));
        while (chain.left > 0)
                assert_true(folio_client_process(client) >= 0);
        assert_int_equal(chain.depth_max, 1);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void unref_in_callback(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        *(int *)userdata = error ? error : 1;
        folio_client_unref(client);
}

static void test_unref_in_callback(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        Done pending = { 0 };
        int called = 0;

        ASSERT_OK(folio_get_async(client, "never", 0, FOLIO_TIMEOUT_FOREVER, on_done, &pending));
        ASSERT_OK(folio_put_async(client, "k", "x", 1, NULL, unref_in_callback, &called));
        while (!called) {
                struct pollfd fd = { .fd = folio_client_get_fd(client), .events = POLLIN };

                assert_int_equal(poll(&fd, 1, 20000), 1);
                (void)folio_client_process(client);
        }
        assert_int_equal(called, 1);
        assert_int_equal(pending.n, 1);
        assert_int_equal(pending.error, FOLIO_E_CANCELLED);
        foliod_stop(foliod);
}

/* More puts at once than the staging memory holds: they take turns. */
static void test_staging_is_shared(void **state)
{
        enum { N = 64 };
        Foliod *foliod = foliod_start("--staging=1M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        size_t n_bytes = 300000;
        uint8_t *bytes = malloc(n_bytes * N);
        static Done done[N];
        struct folio_object *holder[3];

        memset(done, 0, sizeof(done));
        harness_fill(bytes, n_bytes * N, 4);
        for (int i = 0; i < N; i++) {
                char name[16];

                snprintf(name, sizeof(name), "s%d", i);
                ASSERT_OK(folio_put_async(client, name, bytes + (size_t)i * n_bytes, n_bytes, NULL, on_done, &done[i]));
        }
        for (int i = 0; i < N; i++) {
                char name[16];
                struct folio_object *object;

                loop_until(client, &done[i], 1);
                assert_int_equal(done[i].error, 0);
                snprintf(name, sizeof(name), "s%d", i);
                ASSERT_OK(folio_get(client, name, 0, 0, &object));
                assert_memory_equal(folio_object_data(object), bytes + (size_t)i * n_bytes, n_bytes);
                ASSERT_OK(folio_object_release(object));
        }
        /* Held for long by unsealed objects: puts, creates and streams find another way, or say what stands in theirs. */
        for (int i = 0; i < 3; i++) {
                char name[16];

                snprintf(name, sizeof(name), "hold%d", i);
                ASSERT_OK(folio_create(client, name, n_bytes, NULL, &holder[i]));
        }
        ASSERT_OK(folio_put(client, "past", bytes, n_bytes, NULL));
        for (int i = 0; i < 3; i++) {
                ASSERT_OK(folio_object_seal(holder[i]));
                ASSERT_OK(folio_object_release(holder[i]));
        }
        folio_client_unref(client);
        free(bytes);
        foliod_stop(foliod);
}

/* Lines of /proc/self/maps that are shared: what keeps memory of the store. */
static unsigned count_shared(void)
{
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512], mode[8];
        unsigned n = 0;

        assert_non_null(maps);
        while (fgets(line, sizeof(line), maps))
                n += sscanf(line, "%*s %7s", mode) == 1 && mode[3] == 's';
        fclose(maps);
        return n;
}

/* A18: a mapping kept for the next get must not keep the memory of an object that is gone. */
static void test_kept_mappings_go(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *writer = foliod_connect(foliod);
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_object *object;
        uint8_t *bytes = calloc(1, 2 * MIB);
        const void *first;
        unsigned n_before;

        ASSERT_OK(folio_put(writer, "frame", bytes, 2 * MIB, &replace));
        assert_int_equal(folio_exists(client, "frame"), 1);
        n_before = count_shared();
        ASSERT_OK(folio_get(client, "frame", 0, 0, &object));
        first = folio_object_data(object);
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_get(client, "frame", 0, 0, &object));
        assert_ptr_equal(folio_object_data(object), first);
        ASSERT_OK(folio_object_release(object));
        assert_int_equal(count_shared(), n_before + 1);
        for (int i = 0; i < 50; i++) {
                ASSERT_OK(folio_put(writer, "frame", bytes, 2 * MIB, &replace));
                ASSERT_OK(folio_get(client, "frame", 0, 0, &object));
                assert_non_null(folio_object_data(object));
                ASSERT_OK(folio_object_release(object));
                assert_in_range(count_shared(), n_before + 1, n_before + 2);
        }
        ASSERT_OK(folio_delete(writer, "frame", 0));
        assert_true(folio_client_process(client) >= 0);
        assert_int_equal(count_shared(), n_before);
        folio_client_unref(writer);
        folio_client_unref(client);
        free(bytes);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_waiting_get),
                INTEGRATION_TEST(test_writer_dies),
                INTEGRATION_TEST(test_daemon_dies),
                INTEGRATION_TEST(test_every_async_form),
                INTEGRATION_TEST(test_async_truncate),
                INTEGRATION_TEST(test_async_wait),
                INTEGRATION_TEST(test_close_cancels),
                INTEGRATION_TEST(test_chain_of_callbacks),
                INTEGRATION_TEST(test_unref_in_callback),
                INTEGRATION_TEST(test_staging_is_shared),
                INTEGRATION_TEST(test_kept_mappings_go),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
