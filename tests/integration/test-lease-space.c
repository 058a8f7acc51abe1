/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of leases: little of it is wasted, whatever sizes come (case A05), what is freed is used again, a client
 * that puts little takes little, and what nobody uses goes back by itself. And a data set that is replaced all the time
 * under its readers, by a writer that is killed now and then (case D17).
 */
#include "tests/integration/spaces.h"

#include <sys/resource.h>

#define MIB (UINT64_C(1) << 20)

static uint64_t draw(uint64_t *random, uint64_t n)
{
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (*random >> 33) % n;
}

static uint64_t now_ns(void)
{
        struct timespec now;

        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* An idle lease is taken back after 5 s: far longer than that, until @condition holds. */
#define AWAIT_IDLE(condition)                                                                                          \
        do {                                                                                                           \
                uint64_t idle_end_ns = now_ns() + UINT64_C(60000000000);                                               \
                while (!(condition)) {                                                                                 \
                        if (now_ns() > idle_end_ns)                                                                    \
                                fail_msg("never: %s", #condition);                                                     \
                        for (unsigned idle_i = 0; idle_i < 25; idle_i++)                                               \
                                harness_pause();                                                                       \
                }                                                                                                      \
        } while (0)

/* --- A05: full is full -------------------------------------------------------------------------------------------- */

/* From 1 byte to 1 MiB, each order of magnitude alike. */
static uint64_t draw_size(uint64_t *random)
{
        return 1 + draw(random, UINT64_C(1) << draw(random, 21));
}

static void name_filled(char name[64], unsigned i)
{
        (void)snprintf(name, 64, "trusted:filled %u", i);
}

/* Puts until one does not fit, for want of memory. The bytes of all. */
static uint64_t fill(struct folio_client *client, uint64_t random, const void *bytes)
{
        uint64_t n_filled = 0;
        char name[64];

        for (unsigned i = 0;; i++) {
                uint64_t n_bytes = draw_size(&random);
                int error;

                name_filled(name, i);
                error = folio_put(client, name, bytes, n_bytes, NULL);
                if (error) {
                        assert_int_equal(error, FOLIO_E_FULL);
                        return n_filled;
                }
                n_filled += n_bytes;
        }
}

/*
 * A client that puts objects of all sizes gets at least 85 % of the budget before the store is full, again and again;
 * and when they are deleted there is room for one that takes most of it.
 */
static void test_a05_full_is_full(void **state)
{
        Foliod *foliod = foliod_start("--budget", "192M", ALIVE_NO_POOL, "--objects-max", "200000",
                                      FOLIOD_TRUSTED, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint64_t budget_bytes = foliod_fact(client, "memory.budget_bytes");
        struct folio_object *object;
        void *bytes = calloc(1, MIB);

        (void)state;
        assert_non_null(bytes);
        spaces_warm_up(client, "trusted");
        for (unsigned round = 0; round < 4; round++) {
                uint64_t n_filled = fill(client, round, bytes);

                print_message("# %llu MiB of %llu MiB\n", (unsigned long long)(n_filled / MIB),
                              (unsigned long long)(budget_bytes / MIB));
                assert_true(n_filled * 100 >= budget_bytes * 85);
                (void)spaces_delete_all(client, "trusted:filled ");
                ASSERT_OK(folio_create(client, "trusted:large", budget_bytes / 2, NULL, &object));
                ASSERT_OK(folio_object_abort(object));
        }
        folio_client_unref(client);
        free(bytes);
        alive_check(&before);
        foliod_stop(foliod);
}

typedef struct Kept {
        unsigned n_objects, n_named;
        unsigned numbers[100000];
        uint64_t sizes[100000];
        uint64_t n_bytes;
        uint64_t random;
} Kept;

/* Puts until one does not fit. */
static void kept_fill(struct folio_client *client, Kept *kept, uint64_t (*draw_one)(uint64_t *random), const void *bytes)
{
        char name[64];

        for (;;) {
                uint64_t n_bytes = draw_one(&kept->random);
                int error;

                name_filled(name, kept->n_named);
                error = folio_put(client, name, bytes, n_bytes, NULL);
                if (error) {
                        assert_int_equal(error, FOLIO_E_FULL);
                        return;
                }
                assert_true(kept->n_objects < sizeof(kept->sizes) / sizeof(kept->sizes[0]));
                kept->numbers[kept->n_objects] = kept->n_named++;
                kept->sizes[kept->n_objects++] = n_bytes;
                kept->n_bytes += n_bytes;
        }
}

static void kept_delete_third(struct folio_client *client, Kept *kept)
{
        unsigned n = 0;
        char name[64];

        for (unsigned i = 0; i < kept->n_objects; i++) {
                if (draw(&kept->random, 3) > 0) {
                        kept->numbers[n] = kept->numbers[i];
                        kept->sizes[n++] = kept->sizes[i];
                        continue;
                }
                name_filled(name, kept->numbers[i]);
                ASSERT_OK(folio_delete(client, name, 0));
                kept->n_bytes -= kept->sizes[i];
        }
        kept->n_objects = n;
}

static uint64_t draw_even(uint64_t *random)
{
        return 1 + draw(random, MIB);
}

/*
 * A third, at random, is deleted, and others of other sizes take its place until the store is full again: little of it
 * is lost to holes that nothing fits in.
 */
static void test_a05_random_third(void **state)
{
        static uint64_t (*const draws[])(uint64_t *random) = { draw_size, draw_even };
        void *bytes = calloc(1, MIB);
        Kept *kept = malloc(sizeof(*kept));

        (void)state;
        assert_true(bytes && kept);
        for (size_t i = 0; i < sizeof(draws) / sizeof(draws[0]); i++) {
                Foliod *foliod = foliod_start("--budget", "192M", ALIVE_NO_POOL, "--objects-max", "200000",
                                              FOLIOD_TRUSTED, NULL);
                Alive before = alive_begin(foliod);
                struct folio_client *client = foliod_connect(foliod);

                *kept = (Kept){ .random = 7 + i };
                kept_fill(client, kept, draws[i], bytes);
                for (unsigned round = 0; round < 3; round++) {
                        struct folio_namespace ns;

                        kept_delete_third(client, kept);
                        kept_fill(client, kept, draws[i], bytes);
                        ns = spaces_get(client, "trusted");
                        print_message("# %llu MiB in leases of %llu MiB\n", (unsigned long long)(kept->n_bytes / MIB),
                                      (unsigned long long)(ns.leased_bytes / MIB));
                        /* All of it lies there, but for what was put before there was a lease. */
                        assert_true(kept->n_bytes * 100 >= ns.leased_bytes * 85);
                        assert_true(kept->n_bytes * 100 >= foliod_fact(client, "memory.budget_bytes") * 82);
                }
                (void)spaces_delete_all(client, "trusted:filled ");
                folio_client_unref(client);
                alive_check(&before);
                foliod_stop(foliod);
        }
        free(kept);
        free(bytes);
}

static void fill_and_go(Child *child)
{
        struct folio_client *client = child_connect(child);
        char name[64];
        int error = 0;

        for (unsigned i = 0; error == 0; i++) {
                name_filled(name, i);
                error = folio_put(client, name, child->userdata, 20000, NULL);
        }
        CHECK(error == FOLIO_E_FULL);
        folio_client_unref(client);
}

/* What somebody left has little room, in each region less than would be worth it otherwise: where memory is short it is used. */
static void test_a05_left_and_nearly_full(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, "--objects-max", "20000", FOLIOD_TRUSTED, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *bytes = calloc(1, 20000);
        unsigned n, n_deleted = 0, n_put = 0;
        char name[64];

        (void)state;
        assert_non_null(bytes);
        child_finish(child_start(foliod, fill_and_go, bytes));
        spaces_await_sessions(client, 1);
        n = spaces_count(client, "trusted:filled ");
        assert_true(n > 1000);
        for (unsigned i = 0; i < n; i += 10, n_deleted++) {
                name_filled(name, i);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        for (int error = 0; error == 0 && n_put < 2 * n_deleted; n_put += error == 0) {
                (void)snprintf(name, sizeof(name), "trusted:refilled %u", n_put);
                error = folio_put(client, name, bytes, 20000, NULL);
                assert_true(error == 0 || error == FOLIO_E_FULL);
        }
        print_message("# %u of %u deleted, %u put instead\n", n_deleted, n, n_put);
        assert_true(n_put * 100 >= n_deleted * 85);
        (void)spaces_delete_all(client, "trusted:filled ");
        (void)spaces_delete_all(client, "trusted:refilled ");
        free(bytes);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* The pattern of the case: every second of many small ones is deleted, and the next ones take their places. */
static void test_a05_every_second(void **state)
{
        enum { N = 40000 };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint64_t random = 3, n_bytes = 0, sizes[2] = { 0, 0 };
        struct folio_namespace ns;
        uint8_t bytes[3001] = { 0 };
        char name[64];

        (void)state;
        for (unsigned i = 0; i < alive_scaled(N); i++) {
                uint64_t n = 100 + draw(&random, 2901);

                name_filled(name, i);
                ASSERT_OK(folio_put(client, name, bytes, n, NULL));
                sizes[i % 2] += n;
        }
        for (unsigned i = 0; i < alive_scaled(N); i += 2) {
                name_filled(name, i);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        while (n_bytes < sizes[0]) {
                uint64_t n = 100 + draw(&random, 2901);

                (void)snprintf(name, sizeof(name), "trusted:refilled %llu", (unsigned long long)n_bytes);
                ASSERT_OK(folio_put(client, name, bytes, n, NULL));
                n_bytes += n;
        }
        ns = spaces_get(client, "trusted");
        print_message("# %llu KiB in leases of %llu KiB\n", (unsigned long long)(ns.used_bytes / 1024),
                      (unsigned long long)(ns.leased_bytes / 1024));
        /* The last lease is as large as all before it, and may hardly have been begun. */
        if (alive_scaled(N) == N)
                assert_true((sizes[1] + n_bytes) * 100 >= ns.leased_bytes * 85 / 2);
        (void)spaces_delete_all(client, "trusted:filled ");
        (void)spaces_delete_all(client, "trusted:refilled ");
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Far from full: what a client takes for what it puts. It asks for no more than it has put already, or 2 MiB. */
static void test_a05_waste(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint64_t random = 9, n_bytes = 0, n_last = 0;
        uint8_t *bytes = calloc(1, MIB);
        char name[64];

        (void)state;
        assert_non_null(bytes);
        for (unsigned i = 0; n_bytes < 100 * MIB; i++) {
                struct folio_namespace ns;
                uint64_t n = draw_size(&random);

                name_filled(name, i);
                ASSERT_OK(folio_put(client, name, bytes, n, NULL));
                n_bytes += n;
                if (n_bytes < n_last + 4 * MIB)
                        continue;
                n_last = n_bytes;
                ns = spaces_get(client, "trusted");
                assert_true(ns.leased_bytes <= 2 * n_bytes + 4 * MIB);
                /* Rounding to 64 bytes is all that an object costs beside its bytes. */
                assert_true(ns.used_bytes >= n_bytes && ns.used_bytes <= n_bytes + 64 * (uint64_t)(i + 1));
        }
        (void)spaces_delete_all(client, "trusted:filled ");
        folio_client_unref(client);
        free(bytes);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- used again --------------------------------------------------------------------------------------------------- */

static void churn(struct folio_client *client, unsigned n_rounds, uint64_t n_bytes, const void *bytes)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        char name[64];

        for (unsigned i = 0; i < n_rounds; i++) {
                (void)snprintf(name, sizeof(name), "trusted:churned %u", i % 16);
                ASSERT_OK(folio_put(client, name, bytes, n_bytes, i % 2 ? &replace : NULL));
                if (i % 2 == 0 || i % 16 < 8)
                        ASSERT_OK(folio_delete(client, name, 0));
        }
        (void)spaces_delete_all(client, "trusted:churned ");
        ASSERT_OK(folio_flush(client));
}

enum { N_EVENTS = 8192 };            /* as foliod keeps where its settings do not say */

static void test_churn_does_not_grow(void **state)
{
        static const uint64_t sizes[] = { 64, 4096, 60000, 300000, 3 * MIB };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);
        uint8_t *bytes = calloc(1, 3 * MIB);

        (void)state;
        assert_non_null(bytes);
        /* Until the log of events is full once: it is memory like other, and grows to that size whatever is put. */
        churn(client, N_EVENTS, 64, bytes);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                unsigned n_rounds = sizes[i] > MIB ? 300 : sizes[i] > 65536 ? 1000 : 10000;
                uint64_t leased_bytes, memory_bytes;

                churn(client, alive_scaled(n_rounds), sizes[i], bytes);
                leased_bytes = spaces_get(client, "trusted").leased_bytes;
                memory_bytes = alive_memory_bytes(foliod);
                churn(client, 3 * alive_scaled(n_rounds), sizes[i], bytes);
                assert_true(spaces_get(client, "trusted").leased_bytes <= leased_bytes);
                assert_true(alive_memory_bytes(foliod) <= memory_bytes + 2 * MIB);
                assert_int_equal(spaces_get(client, "trusted").used_bytes, 0);
        }
        folio_client_unref(client);
        free(bytes);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- many small clients ------------------------------------------------------------------------------------------- */

enum { N_CLIENTS = 1000, FDS_PER_CLIENT = 12 };

static void be_a_thousand(Child *child)
{
        unsigned n = alive_scaled(N_CLIENTS);
        struct folio_client **clients = calloc(n, sizeof(*clients));
        char name[64];

        CHECK(clients);
        for (unsigned i = 0; i < n; i++) {
                clients[i] = child_connect_with(child, 0);
                (void)snprintf(name, sizeof(name), "trusted:client %u", i);
                CHECK_OK(folio_put(clients[i], name, name, sizeof(name), NULL));
        }
        for (unsigned i = 0; i < n; i++)
                CHECK_OK(folio_flush(clients[i]));
        child_say(child, n);
        CHECK(child_hear(child) == 1);
        for (unsigned i = 0; i < n; i++)
                folio_client_unref(clients[i]);
        free(clients);
}

static bool raise_fds(rlim_t n, struct rlimit *ret_before)
{
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, ret_before), 0);
        limit = *ret_before;
        limit.rlim_cur = n + 1000;
        if (limit.rlim_max < limit.rlim_cur)
                limit.rlim_max = limit.rlim_cur;
        return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static void test_small_clients_stay_small(void **state)
{
        uint64_t memory_bytes;
        struct folio_client *client;
        struct rlimit limit;
        Foliod *foliod;
        Alive before;
        Child *child;

        (void)state;
        if (!raise_fds(N_CLIENTS * FDS_PER_CLIENT, &limit))
                skip();
        foliod = foliod_start("--budget", "512M", "--session-max", "16G", ALIVE_NO_POOL, FOLIOD_TRUSTED, NULL);
        before = alive_begin(foliod);
        child = child_start(foliod, be_a_thousand, NULL);
        assert_int_equal(child_hear(child), alive_scaled(N_CLIENTS));
        client = foliod_connect(foliod);
        assert_int_equal(spaces_count(client, "trusted:client "), alive_scaled(N_CLIENTS));
        /* Nobody has put enough to be worth a lease; a ring and a pin table are all that each takes. */
        assert_int_equal(spaces_get(client, "trusted").leased_bytes, 0);
        memory_bytes = alive_memory_bytes(foliod);
        assert_true(memory_bytes < before.memory_bytes + 32 * MIB + (uint64_t)alive_scaled(N_CLIENTS) * 128 * 1024);
        child_say(child, 1);
        child_finish(child);
        spaces_await_sessions(client, 1);
        assert_int_equal(spaces_delete_all(client, "trusted:client "), alive_scaled(N_CLIENTS));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* --- nobody uses it ----------------------------------------------------------------------------------------------- */

static void put_many(struct folio_client *client, const char *what, unsigned n, const void *bytes)
{
        char name[64];

        for (unsigned i = 0; i < n; i++) {
                (void)snprintf(name, sizeof(name), "trusted:%s %u", what, i);
                CHECK_OK(folio_put(client, name, bytes, 10000, NULL));
        }
        CHECK_OK(folio_flush(client));
}

static void put_and_go(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);

        put_many(client, "left", 1000, child->userdata);
        folio_client_unref(client);
}

static void test_idle_memory_goes_back(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0), *other = foliod_connect(foliod);
        uint8_t *bytes = malloc(10000), read[64];
        uint64_t used_bytes;

        (void)state;
        assert_non_null(bytes);
        harness_fill(bytes, 10000, 3);
        /* All deleted, the client still there: recalled, and given back. */
        put_many(client, "idle", 1000, bytes);
        assert_true(spaces_get(other, "trusted").leased_bytes >= 8 * MIB);
        assert_int_equal(spaces_delete_all(client, "trusted:idle "), 1000);
        ASSERT_OK(folio_flush(client));
        AWAIT_IDLE(spaces_get(other, "trusted").leased_bytes == 0);
        /* It does not know, and goes on as if nothing were. */
        put_many(client, "again", 1000, bytes);
        /* Some left in each region: those stay where they are. */
        for (unsigned i = 0; i < 1000; i++)
                if (i % 100) {
                        char name[64];

                        (void)snprintf(name, sizeof(name), "trusted:again %u", i);
                        ASSERT_OK(folio_delete(client, name, 0));
                }
        ASSERT_OK(folio_flush(client));
        ASSERT_OK(folio_read(other, "trusted:again 500", 64, read, sizeof(read)));
        assert_true(harness_is_filled(read, sizeof(read), 3, 64));
        folio_client_unref(client);
        spaces_await_sessions(other, 1);
        ASSERT_OK(folio_read(other, "trusted:again 900", 128, read, sizeof(read)));
        assert_true(harness_is_filled(read, sizeof(read), 3, 128));
        used_bytes = spaces_get(other, "trusted").leased_bytes;
        assert_true(used_bytes > 0);
        /* What it left has room: the next client is given that. */
        child_finish(child_start(foliod, put_and_go, bytes));
        spaces_await_sessions(other, 1);
        assert_true(spaces_get(other, "trusted").leased_bytes <= used_bytes + 2 * MIB);
        assert_int_equal(spaces_delete_all(other, "trusted:left "), 1000);
        assert_int_equal(spaces_delete_all(other, "trusted:again "), 10);
        AWAIT_IDLE(spaces_get(other, "trusted").leased_bytes == 0);
        free(bytes);
        folio_client_unref(other);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Memory is short: others' leases that are of no use to them are taken at once, whether idle for long or not. */
static void test_short_memory_recalls(void **state)
{
        Foliod *foliod = foliod_start("--budget", "96M", ALIVE_NO_POOL, FOLIOD_TRUSTED, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0), *other = foliod_connect(foliod);
        struct folio_object *object;
        uint8_t *bytes = calloc(1, 10000);

        (void)state;
        assert_non_null(bytes);
        for (unsigned round = 0; round < 3; round++) {
                put_many(client, "short", 5000, bytes);
                assert_int_equal(spaces_delete_all(client, "trusted:short "), 5000);
                ASSERT_OK(folio_flush(client));
                assert_true(spaces_get(other, "trusted").leased_bytes > 0);
                /* There would be no room for it beside them. */
                ASSERT_OK(folio_create(other, "default:large", 64 * MIB, NULL, &object));
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_object_release(object));
                put_many(client, "beside", 100, bytes);
                assert_int_equal(spaces_delete_all(client, "trusted:beside "), 100);
                ASSERT_OK(folio_delete(other, "default:large", 0));
        }
        free(bytes);
        folio_client_unref(client);
        folio_client_unref(other);
        alive_check(&before);
        foliod_stop(foliod);
}

/* All that is free is the empty lease of the very client that wants memory for something else, by the same ring. */
static void test_one_s_own_empty_lease(void **state)
{
        Foliod *foliod = foliod_start("--budget", "96M", ALIVE_NO_POOL, FOLIOD_TRUSTED, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0), *other = foliod_connect(foliod);
        struct folio_object *object;
        uint8_t *bytes = calloc(1, 10000);
        char name[64];

        (void)state;
        assert_non_null(bytes);
        for (unsigned round = 0; round < 3; round++) {
                uint64_t n_free;

                put_many(client, "own", 3000, bytes);
                assert_int_equal(spaces_delete_all(client, "trusted:own "), 3000);
                ASSERT_OK(folio_flush(client));
                assert_true(spaces_get(other, "trusted").leased_bytes >= 30 * MIB);
                n_free = foliod_fact(other, "memory.budget_bytes") - foliod_fact(other, "memory.used_bytes");
                ASSERT_OK(folio_create(other, "default:rest", n_free / (2 * MIB) * 2 * MIB, NULL, &object));
                assert_true(spaces_get(other, "trusted").leased_bytes >= 30 * MIB);
                for (unsigned i = 0; i < 2000; i++) {
                        (void)snprintf(name, sizeof(name), "default:elsewhere %u", i);
                        ASSERT_OK(folio_put(client, name, bytes, 10000, NULL));
                }
                ASSERT_OK(folio_flush(client));
                assert_int_equal(spaces_delete_all(client, "default:elsewhere "), 2000);
                ASSERT_OK(folio_flush(client));
                ASSERT_OK(folio_object_abort(object));
        }
        free(bytes);
        folio_client_unref(client);
        folio_client_unref(other);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_a05_full_is_full),
                INTEGRATION_TEST(test_a05_random_third),
                INTEGRATION_TEST(test_a05_left_and_nearly_full),
                INTEGRATION_TEST(test_a05_every_second),
                INTEGRATION_TEST(test_a05_waste),
                INTEGRATION_TEST(test_churn_does_not_grow),
                INTEGRATION_TEST(test_small_clients_stay_small),
                INTEGRATION_TEST(test_idle_memory_goes_back),
                INTEGRATION_TEST(test_short_memory_recalls),
                INTEGRATION_TEST(test_one_s_own_empty_lease),
        };

        return cmocka_run_group_tests_name("lease-space", tests, NULL, NULL);
}
