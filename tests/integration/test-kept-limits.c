/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a keeper holds, and how much of it: more objects than it may store descriptors (E16), ten thousand that come
 * and go (E17), and clients that hang up while nobody is there to see it.
 */
#include "tests/integration/alive.h"
#include "tests/integration/baseline.h"
#include "tests/integration/program.h"

enum {
        N_OWN = 600,
        OWN_BYTES = 64 << 10,
        N_TURNS = 10000,
};

static Foliod *start(const char *slots)
{
        return foliod_start_kept("--budget", "512M", "--objects-max", "16384", ALIVE_NO_POOL, "--packed-max", "4K",
                                 "--keeper-slots", slots, NULL);
}

static void name_of(unsigned i, char name[32])
{
        (void)snprintf(name, 32, "own-%u", i);
}

static int put_own(struct folio_client *client, unsigned i, uint8_t *bytes)
{
        char name[32];

        name_of(i, name);
        harness_fill(bytes, OWN_BYTES, i);
        return folio_put(client, name, bytes, OWN_BYTES, NULL);
}

/* Refused, or there after a restart, or, if it is not, one of those that are said to be volatile. */
static void put_and_restart(const char *slots)
{
        Foliod *foliod = start(slots);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *bytes = malloc(OWN_BYTES);
        bool *is_put = calloc(N_OWN, sizeof(*is_put));
        unsigned n_put = 0, n_there = 0;
        uint64_t n_volatile;

        assert_true(bytes && is_put);
        for (unsigned i = 0; i < N_OWN; i++) {
                int r = put_own(client, i, bytes);

                if (r == 0)
                        n_put += is_put[i] = true;
                else
                        assert_true(r == FOLIO_E_LIMIT || r == FOLIO_E_FULL);
        }
        n_volatile = foliod_fact(client, "keeper.volatile");
        baseline_kill(foliod);
        for (unsigned i = 0; i < N_OWN; i++) {
                struct folio_object *object;
                char name[32];
                int r;

                name_of(i, name);
                r = folio_get(client, name, 0, 0, &object);
                assert_true(r == 0 || r == FOLIO_E_NOT_FOUND || r == FOLIO_E_DELETED);
                assert_true(r != 0 || is_put[i]);
                if (r != 0)
                        continue;
                n_there++;
                assert_int_equal(folio_object_size(object), OWN_BYTES);
                assert_true(harness_is_filled(folio_object_data(object), OWN_BYTES, i, 0));
                ASSERT_OK(folio_object_release(object));
        }
        print_message("# with %s slots: %u of %u put, %llu volatile, %u there after a restart\n", slots, n_put, N_OWN,
                      (unsigned long long)n_volatile, n_there);
        assert_true(n_there + n_volatile >= n_put);
        folio_client_unref(client);
        free(bytes);
        free(is_put);
        foliod_stop(foliod);
}

static void test_e16_more_than_it_may_store(void **state)
{
        (void)state;
        put_and_restart("512");
        put_and_restart("64");
        put_and_restart("16");
        put_and_restart("4");
}

/* Each has an index, and a restart needs another beside it: one that could not be had again is refused before. */
static void test_namespaces_without_room(void **state)
{
        enum { N = 40 };
        Foliod *foliod = start("16");
        struct folio_client *client = foliod_connect(foliod);
        bool is_put[N] = { false };
        unsigned n_put = 0;
        char name[32];

        (void)state;
        for (unsigned i = 0; i < N; i++) {
                struct folio_namespace added = { .struct_bytes = sizeof(added) };
                int r;

                (void)snprintf(added.name, sizeof(added.name), "room-%u", i);
                (void)snprintf(name, sizeof(name), "room-%u:x", i);
                r = folio_namespace_add(client, &added);
                assert_true(r == 0 || r == FOLIO_E_LIMIT || r == FOLIO_E_FULL);
                r = r == 0 ? folio_put(client, name, "bytes", 5, NULL) : r;
                assert_true(r == 0 || r == FOLIO_E_LIMIT || r == FOLIO_E_FULL);
                n_put += is_put[i] = r == 0;
        }
        ASSERT_OK(folio_flush(client));
        assert_true(n_put > 0);
        for (unsigned round = 0; round < 3; round++) {
                uint64_t n_volatile = foliod_fact(client, "keeper.volatile"), n_there = 0;

                baseline_kill(foliod);
                for (unsigned i = 0; i < N; i++) {
                        (void)snprintf(name, sizeof(name), "room-%u:x", i);
                        if (folio_exists(client, name) != 1)
                                continue;
                        assert_true(is_put[i]);
                        n_there++;
                }
                print_message("# with 16 slots: %u of %d namespaces, %llu volatile, %llu there after restart %u\n", n_put, N,
                              (unsigned long long)n_volatile, (unsigned long long)n_there, round + 1);
                assert_true(n_there + n_volatile >= n_put);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* A process that may hold hardly anything keeps nothing, and says so, rather than lose what it promised. */
static void test_few_descriptors(void **state)
{
        static const struct {
                const char *world;
                bool is_kept;
        } rows[] = { { "nofile=60", false }, { "nofile=71", false }, { "nofile=72", true }, { "nofile=100", true } };

        (void)state;
        for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct folio_status fact = { .struct_bytes = sizeof(fact) };
                struct folio_client *client;
                Foliod *foliod;

                program_set_world(rows[i].world);
                foliod = foliod_start_kept("--budget", "64M", "--objects-max", "1024", ALIVE_NO_POOL, NULL);
                program_set_world(NULL);
                client = foliod_connect(foliod);
                assert_int_equal(foliod_fact(client, "keeper.slots") > 0, rows[i].is_kept);
                ASSERT_OK(folio_put(client, "name", "bytes", 5, NULL));
                ASSERT_OK(folio_flush(client));
                baseline_kill(foliod);
                /* Where nothing is kept, the socket is not either. */
                AWAIT(folio_status_get(client, &fact, 1) > 0);
                assert_int_equal(folio_exists(client, "name"), rows[i].is_kept);
                folio_client_unref(client);
                foliod_stop(foliod);
        }
}

static void test_e17_come_and_go(void **state)
{
        unsigned n_turns = getenv("FOLIO_TEST_LONG") ? N_TURNS : alive_scaled(N_TURNS) / 2;
        Foliod *foliod = start("512");
        Baseline before = baseline_take(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *bytes = malloc(OWN_BYTES);
        uint64_t n_before = foliod_fact(client, "keeper.parked") + foliod_fact(client, "keeper.direct");
        char name[32];

        (void)state;
        assert_non_null(bytes);
        for (unsigned i = 0; i < n_turns; i++) {
                ASSERT_OK(put_own(client, i % 50, bytes));
                name_of(i % 50, name);
                /* The first ten stay until the last but one turn. */
                if (i % 50 >= 10 || i >= 50)
                        ASSERT_OK(folio_delete(client, name, 0));
                if (i == 49)
                        for (unsigned j = 0; j < 10; j++) {
                                name_of(j, name);
                                ASSERT_OK(folio_delete(client, name, 0));
                        }
                if (i % 2500 == 2499)
                        baseline_kill(foliod);
        }
        ASSERT_OK(folio_flush(client));
        assert_int_equal(foliod_fact(client, "objects.count"), 0);
        assert_int_equal(foliod_fact(client, "keeper.failed"), 0);
        /* Some of the client's own may have come since, as a ring. */
        AWAIT(foliod_fact(client, "keeper.parked") + foliod_fact(client, "keeper.direct") <= n_before + 8);
        folio_client_unref(client);
        free(bytes);
        baseline_check(foliod, &before);
        foliod_stop(foliod);
}

/* This process lives on, so its end is not what tells the next foliod. */
static void test_hung_up_unseen(void **state)
{
        Foliod *foliod = start("512");
        Baseline before = baseline_take(foliod);
        struct folio_client *early, *late, *other;
        pid_t pid = foliod_serving_pid(foliod);

        (void)state;
        early = foliod_connect(foliod);
        late = foliod_connect(foliod);
        ASSERT_OK(folio_put(early, "early", "x", 1, NULL));
        ASSERT_OK(folio_put(late, "late", "x", 1, NULL));
        /* It cannot look. */
        assert_int_equal(kill(pid, SIGSTOP), 0);
        folio_client_unref(early);
        assert_int_equal(kill(pid, SIGKILL), 0);
        AWAIT(foliod_serving_pid(foliod) != pid);
        other = foliod_connect(foliod);
        AWAIT(foliod_fact(other, "sessions.ghosts") == 1);
        /* And one that has not noticed anything before it goes. */
        folio_client_unref(late);
        AWAIT(foliod_fact(other, "sessions.ghosts") == 0);
        ASSERT_OK(folio_delete(other, "early", 0));
        ASSERT_OK(folio_delete(other, "late", 0));
        folio_client_unref(other);
        baseline_check(foliod, &before);
        foliod_stop(foliod);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_e16_more_than_it_may_store),
                INTEGRATION_TEST(test_namespaces_without_room),
                INTEGRATION_TEST(test_few_descriptors),
                INTEGRATION_TEST(test_e17_come_and_go),
                INTEGRATION_TEST(test_hung_up_unseen),
        };

        return cmocka_run_group_tests_name("kept-limits", tests, NULL, NULL);
}
