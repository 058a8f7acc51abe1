/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes that make and delete at the same time, and one that cleans up under their hands. Whatever the
 * order was, each was told the truth, and what is there in the end is what should be.
 */
#include "tests/integration/alive.h"

enum { N_WRITERS = 4, N_SMALL = 5000 };

static void read_name(char ret[32], unsigned writer, unsigned i)
{
        (void)snprintf(ret, 32, "writer %u %u", writer, i);
}

static size_t read_size(unsigned writer, unsigned i)
{
        return 1 + (writer * 131 + i * 17) % 700;
}

/* What becomes of the small object @i: deleted, written anew, or left as it was. */
static bool is_deleted(unsigned i)
{
        return i % 4 == 1 || i % 4 == 3;
}

static uint64_t last_seed(unsigned writer, unsigned i)
{
        return (uint64_t)writer * 1000000 + i + (i % 4 == 3 ? 500000 : 0);
}

static void write_small(Child *child)
{
        unsigned writer = *(unsigned *)child->userdata, n = alive_scaled(N_SMALL);
        struct folio_client *client = child_connect(child);
        uint8_t bytes[1024];
        char name[32];

        child_say(child, 1);
        CHECK(child_hear(child) == 1); /* all of them at once */
        for (unsigned i = 0; i < n; i++) {
                read_name(name, writer, i);
                harness_fill(bytes, read_size(writer, i), (uint64_t)writer * 1000000 + i);
                CHECK_OK(folio_put(client, name, bytes, read_size(writer, i), NULL));
                if (!is_deleted(i))
                        continue;
                CHECK_OK(folio_delete(client, name, 0));
                CHECK(folio_exists(client, name) == 0);
                if (i % 4 != 3)
                        continue;
                harness_fill(bytes, read_size(writer, i), last_seed(writer, i));
                CHECK_OK(folio_put(client, name, bytes, read_size(writer, i), NULL));
        }
        folio_client_unref(client);
}

static void test_four_writers(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        unsigned writers[N_WRITERS], n = alive_scaled(N_SMALL), n_there = 0;
        struct folio_client *client;
        Child *children[N_WRITERS];
        uint8_t bytes[1024];
        char name[32];

        (void)state;
        for (unsigned i = 0; i < N_WRITERS; i++) {
                writers[i] = i;
                children[i] = child_start(foliod, write_small, &writers[i]);
        }
        for (unsigned i = 0; i < N_WRITERS; i++)
                assert_int_equal(child_hear(children[i]), 1);
        for (unsigned i = 0; i < N_WRITERS; i++)
                child_say(children[i], 1);
        for (unsigned i = 0; i < N_WRITERS; i++)
                child_finish(children[i]);
        client = foliod_connect(foliod);
        for (unsigned writer = 0; writer < N_WRITERS; writer++)
                for (unsigned i = 0; i < n; i++) {
                        struct folio_object *object;

                        read_name(name, writer, i);
                        if (i % 4 == 1) {
                                assert_int_equal(folio_exists(client, name), 0);
                                continue;
                        }
                        ASSERT_OK(folio_get(client, name, 0, 0, &object));
                        assert_int_equal(folio_object_size(object), read_size(writer, i));
                        ASSERT_OK(folio_object_read(object, 0, bytes, read_size(writer, i)));
                        assert_true(harness_is_filled(bytes, read_size(writer, i), last_seed(writer, i), 0));
                        ASSERT_OK(folio_object_release(object));
                        n_there++;
                }
        assert_int_equal(alive_charges(client).n_objects, n_there);
        for (unsigned writer = 0; writer < N_WRITERS; writer++)
                for (unsigned i = 0; i < n; i++) {
                        read_name(name, writer, i);
                        if (i % 4 != 1)
                                ASSERT_OK(folio_delete(client, name, 0));
                }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- D11 ---------------------------------------------------------------------------------------------------------- */

enum { N_MAKERS = 8, N_SHARED = 10, N_WAVES = 6, N_ROUNDS = 2000, SHARED_BYTES = 96 };

/* The name was there, was not, or was just being made by another: that is all anybody may be told. */
static bool is_honest(int error)
{
        return error == 0 || error == FOLIO_E_EXISTS || error == FOLIO_E_NOT_FOUND || error == FOLIO_E_DELETED ||
               error == FOLIO_E_WRITING || error == FOLIO_E_WRITER_DIED;
}

#define CHECK_HONEST(call)                                                                                             \
        do {                                                                                                           \
                int honest_error = (call);                                                                             \
                if (!is_honest(honest_error))                                                                          \
                        CHECK_OK(honest_error);                                                                        \
        } while (0)

static unsigned next_random(unsigned *state)
{
        *state = *state * 1103515245u + 12345u;
        return *state >> 16;
}

static void make_step_by_step(struct folio_client *client, const char *name, const uint8_t *bytes, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        struct folio_object *object;
        int error = folio_create(client, name, SHARED_BYTES, &options, &object);

        CHECK_HONEST(error);
        if (error)
                return;
        CHECK_OK(folio_object_write(object, 0, bytes, SHARED_BYTES));
        CHECK_HONEST(folio_object_seal(object));
        CHECK_OK(folio_object_release(object));
}

static void get_whole(struct folio_client *client, const char *name, unsigned i)
{
        struct folio_object *object;
        int error = folio_get(client, name, 0, 0, &object);

        CHECK_HONEST(error);
        if (error)
                return;
        /* Nobody's half, and no other's. */
        CHECK(folio_object_size(object) == SHARED_BYTES);
        CHECK(harness_is_filled(folio_object_data(object), SHARED_BYTES, i, 0));
        CHECK_OK(folio_object_release(object));
}

static void make_and_delete(Child *child)
{
        unsigned random = *(unsigned *)child->userdata;
        struct folio_client *client = child_connect(child);
        uint8_t bytes[SHARED_BYTES];
        char name[32];

        for (unsigned round = 0; round < alive_scaled(N_ROUNDS); round++) {
                unsigned i = next_random(&random) % N_SHARED;

                if (round == 10)
                        child_say(child, 1);
                (void)snprintf(name, sizeof(name), "shared %u", i);
                harness_fill(bytes, sizeof(bytes), i);
                switch (next_random(&random) % 5) {
                case 0:
                        CHECK_HONEST(folio_put(client, name, bytes, sizeof(bytes), NULL));
                        break;
                case 1:
                        make_step_by_step(client, name, bytes, 0);
                        break;
                case 2:
                        make_step_by_step(client, name, bytes, FOLIO_OWN_REGION);
                        break;
                case 3:
                        get_whole(client, name, i);
                        break;
                case 4:
                        CHECK_HONEST(folio_delete(client, name, 0));
                        break;
                }
        }
        folio_client_unref(client);
}

/* Lists and removes whatever is there, until it is told that it is enough. */
static void clean_up(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_stat entries[N_SHARED + 2] = { { .struct_bytes = sizeof(entries[0]) } };
        struct pollfd enough = { .fd = child->socket, .events = POLLIN };
        struct folio_list *list;
        int n;

        child_say(child, 1);
        while (poll(&enough, 1, 0) == 0) {
                CHECK_OK(folio_list_open(client, "shared ", &list));
                while ((n = folio_list_next(list, entries, N_SHARED + 2)) > 0)
                        for (int i = 0; i < n; i++)
                                CHECK_HONEST(folio_delete(client, entries[i].name, 0));
                CHECK(n == 0);
                folio_list_close(list);
        }
        CHECK(child_hear(child) == 1);
        folio_client_unref(client);
}

/* D11: names are made, opened and deleted under a cleaner, and some of those who do it are killed. */
static void test_d11_cleaner(void **state)
{
        Foliod *foliod = foliod_start("--budget", "128M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Child *cleaner = child_start(foliod, clean_up, NULL);
        unsigned seeds[N_MAKERS];
        Child *makers[N_MAKERS];

        (void)state;
        assert_int_equal(child_hear(cleaner), 1);
        for (unsigned wave = 0; wave < N_WAVES; wave++) {
                for (unsigned i = 0; i < N_MAKERS; i++) {
                        seeds[i] = 1 + wave * N_MAKERS + i;
                        makers[i] = child_start(foliod, make_and_delete, &seeds[i]);
                }
                /* They are in the middle of it. */
                for (unsigned i = 0; i < N_MAKERS; i++)
                        assert_int_equal(child_hear(makers[i]), 1);
                for (unsigned i = 0; i < N_MAKERS; i++)
                        if (i % 3 == wave % 3)
                                child_kill(makers[i]);
                for (unsigned i = 0; i < N_MAKERS; i++)
                        if (i % 3 != wave % 3)
                                child_finish(makers[i]);
        }
        child_say(cleaner, 1);
        child_finish(cleaner);
        /* An innocent creator, of each name: nothing stale is in its way, once the dead are cleaned up after. */
        for (unsigned i = 0; i < N_SHARED; i++) {
                uint8_t bytes[SHARED_BYTES];
                char name[32];
                int error;

                (void)snprintf(name, sizeof(name), "shared %u", i);
                AWAIT((error = folio_delete(client, name, 0)) != FOLIO_E_WRITING);
                assert_true(is_honest(error));
                harness_fill(bytes, sizeof(bytes), i);
                ASSERT_OK(folio_put(client, name, bytes, sizeof(bytes), NULL));
                ASSERT_OK(folio_delete(client, name, 0));
                assert_int_equal(folio_delete(client, name, 0), FOLIO_E_DELETED);
        }
        AWAIT(alive_charges(client).n_objects == 0 && alive_charges(client).unsealed_bytes == 0);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_d11_cleaner),
                INTEGRATION_TEST(test_four_writers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
