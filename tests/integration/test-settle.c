/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod loses the processor in the middle of a change to the index: who looks waits for it and then has the right
 * answer, however long that takes within its timeout; is told so where it takes longer; and does not wait for a dead one.
 */
#include "tests/integration/async.h"
#include "tests/integration/frozen.h"

#include <pthread.h>

#define LONG_ENOUGH 50u              /* pauses: a hundred milliseconds, which is more than any number of looks took */

/* --- what one can ask --------------------------------------------------------------------------------------------- */

typedef struct Asker {
        struct folio_client *client;
        struct folio_object *object; /* held: default:there */
        struct folio_object *writable; /* held: default:mutable, of 8,192 bytes */
} Asker;

static int ask_exists(Asker *asker)
{
        return folio_exists(asker->client, "there") == 1 ? 0 : folio_exists(asker->client, "there");
}

static int ask_missing(Asker *asker)
{
        return folio_exists(asker->client, "nobody");
}

static int ask_stat(Asker *asker)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        int r = folio_stat(asker->client, "there", &stat);

        return r < 0 ? r : stat.size_bytes == 5 ? 0 : -1000;
}

static int ask_get(Asker *asker)
{
        struct folio_object *object;
        int r = folio_get(asker->client, "there", 0, 0, &object);

        if (r < 0)
                return r;
        r = memcmp(folio_object_data(object), "there", 5) == 0 ? 0 : -1000;
        (void)folio_object_release(object);
        return r;
}

static int ask_read(Asker *asker)
{
        char bytes[5];
        int r = folio_read(asker->client, "there", 0, bytes, sizeof(bytes));

        return r < 0 ? r : memcmp(bytes, "there", 5) == 0 ? 0 : -1000;
}

static int ask_object_stat(Asker *asker)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        return folio_object_stat(asker->object, &stat);
}

static int ask_object_metadata(Asker *asker)
{
        char bytes[16];

        return folio_object_metadata(asker->object, bytes, sizeof(bytes));
}

/* One item that is not the batch's first: those before and behind it are as they should be. */
static int ask_get_many(Asker *asker)
{
        struct folio_get_item items[] = { { .name = "there" }, { .name = "nobody" }, { .name = "mutable" } };
        int r = folio_get_many(asker->client, items, 3, 0, 0);

        for (unsigned i = 0; i < 3; i++)
                if (items[i].object)
                        (void)folio_object_release(items[i].object);
        return items[0].error ? items[0].error : r == 1 && items[1].error == FOLIO_E_NOT_FOUND ? items[2].error : -1000;
}

static int ask_read_many(Asker *asker)
{
        char bytes[5], other[5];
        struct folio_read_item items[] = { { .name = "there", .buffer = bytes, .n_bytes = 5 },
                                           { .name = "mutable", .buffer = other, .n_bytes = 5 } };
        int r = folio_read_many(asker->client, items, 2);

        return items[0].error ? items[0].error : r == 0 && memcmp(bytes, "there", 5) == 0 ? 0 : -1000;
}

static int ask_stat_many(Asker *asker)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_stat_item item = { .name = "there", .stat = &stat };
        int r = folio_stat_many(asker->client, &item, 1);

        return item.error ? item.error : r;
}

static int ask_list(Asker *asker)
{
        struct folio_stat entries[3] = { { .struct_bytes = sizeof(entries[0]) } };
        struct folio_list *list;
        int r = folio_list_open(asker->client, "default:", &list);

        if (r < 0)
                return r;
        r = folio_list_next(list, entries, 3);
        folio_list_close(list);
        return r < 0 ? r : r == 2 ? 0 : -1000;
}

/* Also where the connection has ended: then the calls have, too. What it counts is not of interest here. */
static int finish(Asker *asker, int r, Done *done)
{
        for (unsigned i = 0; r >= 0 && done->n == 0; i++) {
                struct pollfd ready = { .fd = folio_client_get_fd(asker->client), .events = (short)folio_client_get_events(asker->client) };

                assert_true(i < 1000);
                (void)poll(&ready, 1, 100);
                (void)folio_client_process(asker->client);
        }
        return r < 0 ? r : done->error < 0 ? done->error : 0;
}

static int ask_exists_async(Asker *asker)
{
        Done done = { 0 };

        return finish(asker, folio_exists_async(asker->client, "there", async_on_done, &done), &done);
}

static int ask_get_async(Asker *asker)
{
        Done done = { 0 };
        int r = finish(asker, folio_get_async(asker->client, "there", 0, 0, async_on_done, &done), &done);

        if (r == 0)
                (void)folio_object_release(done.object);
        return r;
}

static int ask_read_many_async(Asker *asker)
{
        char bytes[5] = { 0 }, other[5];
        struct folio_read_item items[] = { { .name = "there", .buffer = bytes, .n_bytes = 5 },
                                           { .name = "mutable", .buffer = other, .n_bytes = 5 } };
        Done done = { 0 };
        int r = finish(asker, folio_read_many_async(asker->client, items, 2, async_on_done, &done), &done);

        return r < 0 ? r : items[0].error ? items[0].error : memcmp(bytes, "there", 5) == 0 ? items[1].error : -1000;
}

static int ask_list_async(Asker *asker)
{
        struct folio_list *list = NULL;
        Done done = { 0 };
        int r = finish(asker, folio_list_open_async(asker->client, "default:", &list, async_on_done, &done), &done);

        if (r == 0)
                folio_list_close(list);
        return r;
}

static const struct {
        const char *what;
        int (*ask)(Asker *asker);
} asks[] = {
        { "exists", ask_exists },           { "exists, of what is not there", ask_missing },
        { "stat", ask_stat },               { "get", ask_get },
        { "read", ask_read },               { "object_stat", ask_object_stat },
        { "get_many", ask_get_many },       { "object_metadata", ask_object_metadata },
        { "read_many", ask_read_many },     { "stat_many", ask_stat_many },
        { "list", ask_list },               { "exists_async", ask_exists_async },
        { "get_async", ask_get_async },     { "read_many_async", ask_read_many_async },
        { "list_open_async", ask_list_async },
};

#define N_ASKS (sizeof(asks) / sizeof(asks[0]))

static Asker asker_begin(const Foliod *foliod, int timeout_ms)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = foliod->socket_path,
                                              .timeout_ms = timeout_ms };
        Asker asker;

        ASSERT_OK(folio_client_open(&options, &asker.client));
        ASSERT_OK(folio_put(asker.client, "there", "there", 5, NULL));
        ASSERT_OK(folio_create(asker.client, "mutable", 8192, &mutable, &asker.writable));
        ASSERT_OK(folio_flush(asker.client));
        ASSERT_OK(folio_get(asker.client, "there", 0, 1000, &asker.object));
        return asker;
}

static void asker_end(Asker *asker)
{
        (void)folio_object_release(asker->object);
        (void)folio_object_release(asker->writable);
        folio_client_unref(asker->client);
}

/* --- stories ------------------------------------------------------------------------------------------------------ */

static void *thaw_later(void *userdata)
{
        for (unsigned i = 0; i < LONG_ENOUGH; i++)
                harness_pause();
        frozen_end(userdata);
        return NULL;
}

static void test_waits_for_the_end_of_a_change(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        Asker asker = asker_begin(foliod, 20000);

        (void)state;
        for (size_t i = 0; i < N_ASKS; i++) {
                Frozen frozen = frozen_begin(foliod, "default");
                pthread_t thread;
                int r;

                assert_int_equal(pthread_create(&thread, NULL, thaw_later, &frozen), 0);
                r = asks[i].ask(&asker);
                assert_int_equal(pthread_join(thread, NULL), 0);
                if (r < 0)
                        fail_msg("%s: %d, %s", asks[i].what, r, folio_strerror_full());
                ASSERT_OK(asks[i].ask(&asker));
        }
        asker_end(&asker);
        foliod_stop(foliod);
}

/* The size of a mutable object is what it is, not what it was when the handle was made. */
static void test_size_of_a_mutable_object(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        Asker asker = asker_begin(foliod, 20000);
        pthread_t thread;
        Frozen frozen;
        uint64_t n_bytes;

        (void)state;
        ASSERT_OK(folio_truncate(asker.client, "mutable", 100));
        frozen = frozen_begin(foliod, "default");
        assert_int_equal(pthread_create(&thread, NULL, thaw_later, &frozen), 0);
        n_bytes = folio_object_size(asker.writable);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(n_bytes, 100);
        asker_end(&asker);
        foliod_stop(foliod);
}

static void test_waits_no_longer_than_its_timeout(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        Asker asker = asker_begin(foliod, 100);

        (void)state;
        for (size_t i = 0; i < N_ASKS; i++) {
                Frozen frozen = frozen_begin(foliod, "default");
                int r = asks[i].ask(&asker);

                frozen_end(&frozen);
                if (r != FOLIO_E_TIMEOUT)
                        fail_msg("%s: %d, %s", asks[i].what, r, folio_strerror_full());
        }
        asker_end(&asker);
        foliod_stop(foliod);
}

static void test_does_not_wait_for_the_dead(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        Asker asker = asker_begin(foliod, FOLIO_TIMEOUT_FOREVER);
        Frozen frozen = frozen_begin(foliod, "default");

        (void)state;
        foliod_kill(foliod);
        frozen_forget(&frozen);
        for (size_t i = 0; i < N_ASKS; i++) {
                int r = asks[i].ask(&asker);

                if (r != FOLIO_E_DAEMON_GONE)
                        fail_msg("%s: %d, %s", asks[i].what, r, folio_strerror_full());
        }
        asker_end(&asker);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_waits_for_the_end_of_a_change),
                INTEGRATION_TEST(test_size_of_a_mutable_object),
                INTEGRATION_TEST(test_waits_no_longer_than_its_timeout),
                INTEGRATION_TEST(test_does_not_wait_for_the_dead),
        };

        return cmocka_run_group_tests_name("settle", tests, NULL, NULL);
}
