/* SPDX-License-Identifier: Apache-2.0 */
/* A client among the other things of a process: threads that share it, children that inherit it, and how it is opened. */
#include "tests/integration/harness.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB (1024u * 1024u)

/* --- threads ------------------------------------------------------------------------------------------------------------------ */

typedef struct Worker {
        pthread_t thread;
        struct folio_client *client;
        unsigned number;
        atomic_uint *n_callbacks;
        int error;
} Worker;

static void count_callback(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        if (error == 0)
                atomic_fetch_add((atomic_uint *)userdata, 1);
}

static int work(Worker *worker)
{
        static const size_t lengths[] = { 10, 1000, 200000, 2 * MIB };

        for (unsigned i = 0; i < 150; i++) {
                size_t n_bytes = lengths[i % 4];
                struct folio_object *object;
                uint8_t *bytes = malloc(n_bytes);
                char name[64];
                int r;

                snprintf(name, sizeof(name), "t%u/%u", worker->number, i);
                harness_fill(bytes, n_bytes, i);
                r = folio_put(worker->client, name, bytes, n_bytes, NULL);
                if (r == 0)
                        r = folio_get(worker->client, name, 0, 0, &object);
                if (r < 0) {
                        free(bytes);
                        return r;
                }
                r = memcmp(folio_object_data(object), bytes, n_bytes) == 0 ? 0 : -1;
                if (r == 0)
                        r = folio_object_release(object);
                if (r == 0)
                        r = folio_delete_async(worker->client, name, 0, count_callback, worker->n_callbacks);
                free(bytes);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void *run_worker(void *userdata)
{
        Worker *worker = userdata;

        worker->error = work(worker);
        return NULL;
}

static void test_threads(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        atomic_uint n_callbacks = 0;
        Worker workers[8];

        for (unsigned i = 0; i < 8; i++) {
                workers[i] = (Worker){ .client = client, .number = i, .n_callbacks = &n_callbacks };
                assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
        }
        for (unsigned i = 0; i < 8; i++) {
                assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
                assert_int_equal(workers[i].error, 0);
        }
        while (atomic_load(&n_callbacks) < 8 * 150) {
                struct pollfd fd = { .fd = folio_client_get_fd(client), .events = POLLIN };

                assert_int_equal(poll(&fd, 1, 20000), 1);
                assert_true(folio_client_process(client) >= 0);
        }
        AWAIT(foliod_fact(client, "held.count") == 0);
        assert_int_equal(foliod_fact(client, "objects.count"), 0);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- fork ----------------------------------------------------------------------------------------------------------------------- */

typedef struct Inherited {
        struct folio_client *client;
        struct folio_object *large;
} Inherited;

static void run_forked(Child *child)
{
        Inherited *inherited = child->userdata;
        struct folio_client *client = inherited->client, *own;
        const uint8_t *data = NULL;
        struct folio_object *object;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        CHECK(folio_put(client, "k", "x", 1, NULL) == FOLIO_E_FORKED);
        CHECK(folio_get(client, "large", 0, 0, &object) == FOLIO_E_FORKED);
        CHECK(folio_stat(client, "large", &stat) == FOLIO_E_FORKED);
        CHECK(folio_client_get_fd(client) == FOLIO_E_FORKED);
        CHECK(folio_client_process(client) == FOLIO_E_FORKED);
        CHECK(folio_object_release(inherited->large) == FOLIO_E_FORKED);
        CHECK(strstr(folio_strerror_full(), "fork"));
        folio_client_unref(client);
        /* One of one's own works, in the same process. */
        own = child_connect(child);
        CHECK_OK(folio_get(own, "large", 0, 0, &object));
        data = folio_object_data(object);
        CHECK(harness_is_filled(data, 3 * MIB, 1, 0));
        CHECK_OK(folio_object_release(object));
        CHECK(folio_put(client, "k", "x", 1, NULL) == FOLIO_E_FORKED);
        folio_client_unref(own);
        child_say(child, 1);
        (void)child_hear(child);
}

static void test_fork(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        Inherited inherited = { .client = foliod_connect(foliod) };
        struct folio_client *other = foliod_connect(foliod);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .lifetime = FOLIO_WITH_CREATOR };
        struct folio_holder holder = { .struct_bytes = sizeof(holder) };
        void *bytes = malloc(3 * MIB);
        Child *child;

        harness_fill(bytes, 3 * MIB, 1);
        ASSERT_OK(folio_put(inherited.client, "large", bytes, 3 * MIB, &options));
        ASSERT_OK(folio_get(inherited.client, "large", 0, 0, &inherited.large));
        child = child_start(foliod, run_forked, &inherited);
        assert_int_equal(child_hear(child), 1);
        /* D01: the child's end, or its closing, is not the parent's. */
        assert_int_equal(folio_holders(other, "large", &holder, 1), 1);
        assert_memory_equal(folio_object_data(inherited.large), bytes, 3 * MIB);
        ASSERT_OK(folio_object_release(inherited.large));
        /* And a child that lives on does not keep the parent's connection alive. */
        folio_client_unref(inherited.client);
        AWAIT(folio_exists(other, "large") == 0);
        child_say(child, 1);
        child_finish(child);
        folio_client_unref(other);
        free(bytes);
        foliod_stop(foliod);
}

/* --- opening ---------------------------------------------------------------------------------------------------------------------- */

static void test_open(void **state)
{
        Foliod *foliod = foliod_start("--clients-max=4", NULL);
        struct folio_open_options options = { .struct_bytes = sizeof(options) };
        struct folio_client *clients[5];
        char path[128], too_long[200];

        memset(too_long, 'x', sizeof(too_long) - 1);
        too_long[sizeof(too_long) - 1] = '\0';
        options.address = too_long;
        assert_int_equal(folio_client_open(&options, &clients[0]), FOLIO_E_INVALID);
        options.address = "";
        assert_int_equal(folio_client_open(&options, &clients[0]), FOLIO_E_INVALID);
        snprintf(path, sizeof(path), "%s/nothing", foliod->directory);
        options.address = path;
        assert_int_equal(folio_client_open(&options, &clients[0]), FOLIO_E_DAEMON_GONE);
        assert_non_null(strstr(folio_strerror_full(), path));
        options.address = foliod->socket_path;
        options.flags = 1u << 5;
        assert_int_equal(folio_client_open(&options, &clients[0]), FOLIO_E_INVALID);
        options.flags = 0;
        options.timeout_ms = -2;
        assert_int_equal(folio_client_open(&options, &clients[0]), FOLIO_E_INVALID);
        options.timeout_ms = FOLIO_TIMEOUT_FOREVER;
        assert_int_equal(folio_client_open(&options, NULL), FOLIO_E_INVALID);
        options.struct_bytes = 0;
        assert_int_equal(folio_client_open(&options, &clients[0]), FOLIO_E_INVALID);
        options.struct_bytes = sizeof(options);
        for (int i = 0; i < 4; i++)
                ASSERT_OK(folio_client_open(&options, &clients[i]));
        assert_int_equal(folio_client_open(&options, &clients[4]), FOLIO_E_LIMIT);
        folio_client_unref(clients[0]);
        AWAIT(folio_client_open(&options, &clients[0]) == 0);
        assert_ptr_equal(folio_client_ref(clients[1]), clients[1]);
        folio_client_unref(clients[1]);
        for (int i = 0; i < 4; i++)
                folio_client_unref(clients[i]);
        folio_client_unref(NULL);

        /* By the environment, which names the only one to be tried. */
        assert_int_equal(setenv("FOLIO_SOCKET", path, 1), 0);
        assert_int_equal(folio_client_open(NULL, &clients[0]), FOLIO_E_DAEMON_GONE);
        assert_int_equal(setenv("FOLIO_SOCKET", foliod->socket_path, 1), 0);
        AWAIT(folio_client_open(NULL, &clients[0]) == 0);
        folio_client_unref(clients[0]);
        assert_int_equal(unsetenv("FOLIO_SOCKET"), 0);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_threads),
                INTEGRATION_TEST(test_fork),
                INTEGRATION_TEST(test_open),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
