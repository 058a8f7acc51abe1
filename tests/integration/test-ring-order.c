/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order a program sees what it does, where some of it goes through the ring and some by the socket, answered or
 * not. Each case has the daemon where it must be for the wrong order to show, or goes to and fro often enough.
 */
#include "tests/integration/spaces.h"

#include <pthread.h>

#define MIB (UINT64_C(1) << 20)

/* --- in one order ------------------------------------------------------------------------------------------------- */

/* Ring, socket, ring, about one name; what comes of each shows in what the next one answers. */
static void go_to_and_fro(struct folio_client *client, struct folio_client *other, const char *name)
{
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_create_options described = { .struct_bytes = sizeof(described), .metadata = "m",
                                                  .metadata_bytes = 1 };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object;
        char text[16];

        for (unsigned i = 0; i < alive_scaled(300); i++) {
                ASSERT_OK(folio_put(client, name, "first", 5, NULL));
                ASSERT_OK(folio_delete(client, name, 0));
                ASSERT_OK(folio_create(client, name, 4096, &own, &object));
                ASSERT_OK(folio_object_write(object, 0, "second", 6));
                assert_int_equal(folio_put(client, name, "no", 2, NULL), FOLIO_E_EXISTS);
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_put(client, name, "third", 5, &replace));
                ASSERT_OK(folio_read(client, name, 0, text, 5));
                assert_memory_equal(text, "third", 5);
                ASSERT_OK(folio_delete(client, name, 0));
                ASSERT_OK(folio_put(client, name, "fourth", 6, &described));
                ASSERT_OK(folio_stat(client, name, &stat));
                assert_int_equal(stat.metadata_bytes, 1);
                ASSERT_OK(folio_put(client, name, "fifth", 5, &replace));
                ASSERT_OK(folio_create(client, name, 3 * MIB, &replace, &object));
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_put(client, name, "sixth", 5, &replace));
                assert_int_equal(folio_object_size(object), 3 * MIB);
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_flush(client));
                ASSERT_OK(folio_read(other, name, 0, text, 5));
                assert_memory_equal(text, "sixth", 5);
                ASSERT_OK(folio_delete(client, name, 0));
                assert_int_equal(folio_exists(client, name), 0);
                assert_true(folio_delete(client, name, 0) < 0);
                ASSERT_OK(folio_delete(client, name, FOLIO_IF_EXISTS));
        }
        ASSERT_OK(folio_flush(client));
        assert_int_equal(folio_exists(other, name), 0);
}

static void test_one_order(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0), *other = foliod_connect(foliod);

        (void)state;
        go_to_and_fro(client, other, "default:to and fro");
        go_to_and_fro(client, other, "trusted:to and fro");
        folio_client_unref(client);
        folio_client_unref(other);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- given up, and let go of --------------------------------------------------------------------------------------- */

static void stop(const Foliod *foliod)
{
        int status;

        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        assert_int_equal(waitpid(foliod->pid, &status, WUNTRACED), foliod->pid);
        assert_true(WIFSTOPPED(status));
}

/* A little later; whoever looks at once finds it stopped. */
static void *let_it_go_on(void *userdata)
{
        const Foliod *foliod = userdata;

        for (unsigned i = 0; i < 20; i++)
                harness_pause();
        (void)kill(foliod->pid, SIGCONT);
        return NULL;
}

static void on_answer(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        (void)client;
        (void)object;
        *(int *)userdata = error;
}

static void give_up_unseen(Foliod *foliod, struct folio_client *client)
{
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        struct folio_object *object;

        ASSERT_OK(folio_create(client, "default:given up", 4096, &own, &object));
        stop(foliod);
        ASSERT_OK(folio_object_abort(object));
}

/* What is given up by a word on the socket, which is not answered, is gone for who gave it up. */
static void see_it_given_up(Foliod *foliod, struct folio_client *client)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        int answer = 1;
        pthread_t thread;

        give_up_unseen(foliod, client);
        assert_int_equal(pthread_create(&thread, NULL, let_it_go_on, foliod), 0);
        assert_int_equal(folio_stat(client, "default:given up", &stat), FOLIO_E_NOT_FOUND);
        assert_int_equal(pthread_join(thread, NULL), 0);
        give_up_unseen(foliod, client);
        ASSERT_OK(folio_stat_async(client, "default:given up", &stat, on_answer, &answer));
        assert_int_equal(answer, 1);
        assert_int_equal(kill(foliod->pid, SIGCONT), 0);
        while (answer == 1) {
                struct pollfd ready = { .fd = folio_client_get_fd(client),
                                        .events = (short)folio_client_get_events(client) };

                assert_true(poll(&ready, 1, 20000) == 1);
                assert_true(folio_client_process(client) >= 0);
        }
        assert_int_equal(answer, FOLIO_E_NOT_FOUND);
}

static void test_given_up(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        see_it_given_up(foliod, client);
        /* The same with a ring. */
        spaces_warm_up(client, "default");
        see_it_given_up(foliod, client);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * A handle that knew its slot before the seal, and not what the seal made of it: that the object has gone with it is
 * said all the same, and its memory is free at once, not when foliod looks for such things.
 */
static void test_held_over_the_seal(void **state)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        spaces_warm_up(client, "trusted");
        for (unsigned i = 0; i < 20; i++) {
                struct folio_object *object;

                ASSERT_OK(folio_create(client, "trusted:held", 3 * MIB, &replace, &object));
                ASSERT_OK(folio_flush(client));
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_put(client, "trusted:held", "next", 4, &replace));
                ASSERT_OK(folio_flush(client));
                ASSERT_OK(folio_object_release(object));
                assert_int_equal(foliod_fact(client, "held.count"), 0);
        }
        ASSERT_OK(folio_delete(client, "trusted:held", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_one_order),
                INTEGRATION_TEST(test_given_up),
                INTEGRATION_TEST(test_held_over_the_seal),
        };

        return cmocka_run_group_tests_name("ring-order", tests, NULL, NULL);
}
