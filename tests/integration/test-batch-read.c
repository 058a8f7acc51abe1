/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many reads, gets and stats in one call: against a writer that replaces what is read all the time, against a model of
 * every kind of item, by the number of round trips, and what is said of the item that failed.
 */
#include <pthread.h>

#include "tests/integration/async.h"
#include "tests/integration/harness.h"
#include "tests/integration/trace.h"

#define MIB (1024u * 1024u)

/* --- while everything is replaced ------------------------------------------------------------------------------- */

enum { N_NAMES = 40, N_ITEMS = 500, RECORD_BYTES = 1000 };

/* An object says which it is, so that a mixture of two is told from either. */
typedef struct Record {
        uint64_t seed;
        uint8_t bytes[RECORD_BYTES - 8];
} Record;

static char replaced[N_NAMES][16];

static void name_all(void)
{
        for (unsigned i = 0; i < N_NAMES; i++)
                (void)snprintf(replaced[i], sizeof(replaced[i]), "r%u", i);
}

static void replace_until_told(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_REPLACE };
        struct pollfd told = { .fd = child->socket, .events = POLLIN };
        struct folio_put_item items[N_NAMES];
        static Record records[N_NAMES];
        uint64_t seed = 1;

        while (poll(&told, 1, 0) == 0) {
                for (unsigned i = 0; i < N_NAMES; i++) {
                        records[i].seed = seed;
                        harness_fill(records[i].bytes, sizeof(records[i].bytes), seed++);
                        items[i] = (struct folio_put_item){ .name = replaced[i], .data = &records[i],
                                                            .size_bytes = RECORD_BYTES, .options = &options };
                }
                CHECK_OK(folio_put_many(client, items, N_NAMES));
                /* Memory is used again soonest where something has been given back. */
                CHECK_OK(folio_delete(client, replaced[seed % N_NAMES], 0));
        }
        (void)child_hear(child);
        folio_client_unref(client);
}

static bool is_whole(const void *bytes)
{
        const Record *record = bytes;

        return harness_is_filled(record->bytes, sizeof(record->bytes), record->seed, 0);
}

/* 0, or gone at the moment. */
static bool is_there(int error)
{
        if (error != 0)
                assert_true(error == FOLIO_E_DELETED || error == FOLIO_E_NOT_FOUND);
        return error == 0;
}

static void read_all(struct folio_client *client, struct folio_object *held, Record *room)
{
        static struct folio_read_item items[N_ITEMS];
        int n_failed = 0, n;

        memset(room, 0, N_ITEMS * sizeof(*room));
        for (unsigned i = 0; i < N_ITEMS; i++)
                items[i] = (struct folio_read_item){
                        .name = i % 10 == 9 ? NULL : replaced[i * 7 % N_NAMES],
                        .object = i % 10 == 9 ? held : NULL,
                        .buffer = &room[i],
                        .n_bytes = RECORD_BYTES,
                };
        n = folio_read_many(client, items, N_ITEMS);
        for (unsigned i = 0; i < N_ITEMS; i++) {
                n_failed += items[i].error != 0;
                if (is_there(items[i].error))
                        assert_true(is_whole(&room[i]));
                else
                        assert_non_null(items[i].name);
        }
        assert_int_equal(n, n_failed);
}

static void get_all(struct folio_client *client)
{
        struct folio_get_item items[N_NAMES * 2];
        int n_failed = 0, n;

        for (unsigned i = 0; i < N_NAMES * 2; i++)
                items[i] = (struct folio_get_item){ .name = replaced[i % N_NAMES] };
        n = folio_get_many(client, items, N_NAMES * 2, 0, 0);
        for (unsigned round = 0; round < 3; round++)
                for (unsigned i = 0; i < N_NAMES * 2; i++)
                        if (is_there(items[i].error))
                                assert_true(is_whole(folio_object_data(items[i].object)));
        for (unsigned i = 0; i < N_NAMES * 2; i++) {
                n_failed += items[i].error != 0;
                if (items[i].error == 0)
                        ASSERT_OK(folio_object_release(items[i].object));
        }
        assert_int_equal(n, n_failed);
}

static void stat_all(struct folio_client *client)
{
        struct folio_stat stats[N_NAMES];
        struct folio_stat_item items[N_NAMES];

        for (unsigned i = 0; i < N_NAMES; i++) {
                stats[i].struct_bytes = sizeof(stats[i]);
                items[i] = (struct folio_stat_item){ .name = replaced[i], .stat = &stats[i] };
        }
        (void)folio_stat_many(client, items, N_NAMES);
        for (unsigned i = 0; i < N_NAMES; i++) {
                if (!is_there(items[i].error))
                        continue;
                assert_memory_equal(stats[i].name, "default:", 8);
                assert_string_equal(stats[i].name + 8, replaced[i]);
                assert_int_equal(stats[i].size_bytes, RECORD_BYTES);
        }
}

static void test_replaced_all_the_time(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod), *writer = foliod_connect(foliod);
        Record *room = calloc(N_ITEMS, sizeof(*room)), first = { .seed = UINT64_MAX };
        struct folio_object *held;
        Child *child;

        (void)state;
        assert_non_null(room);
        name_all();
        harness_fill(first.bytes, sizeof(first.bytes), first.seed);
        ASSERT_OK(folio_put(writer, "held", &first, sizeof(first), NULL));
        ASSERT_OK(folio_get(client, "held", 0, 0, &held));
        ASSERT_OK(folio_delete(writer, "held", 0));
        child = child_start(foliod, replace_until_told, NULL);
        for (unsigned i = 0; i < 200; i++) {
                Record one;
                int r;

                read_all(client, held, room);
                get_all(client);
                stat_all(client);
                r = folio_read(client, replaced[i % N_NAMES], 0, &one, sizeof(one));
                if (is_there(r))
                        assert_true(is_whole(&one));
        }
        child_say(child, 1);
        child_finish(child);
        assert_true(is_whole(folio_object_data(held)));
        ASSERT_OK(folio_object_release(held));
        AWAIT(foliod_fact(writer, "held.count") == 0);
        folio_client_unref(client);
        folio_client_unref(writer);
        free(room);
        foliod_stop(foliod);
}

/* --- round trips ------------------------------------------------------------------------------------------------ */

/* What a data loader takes for one batch: 112 tiny objects, 3,592 bytes together, and 2 large ones. */
enum { N_TINY = 112, N_BATCH = 114, LARGE_BYTES = 32 * 1024 * 1024 + 4096 };

static char batch_names[N_BATCH][16];

static size_t batch_bytes(unsigned i)
{
        return i >= N_TINY ? LARGE_BYTES : i < 8 ? 33 : 32;
}

static void mark(const char *what)
{
        CHECK(write(-1, what, strlen(what)) < 0);
}

static void take_batch(struct folio_client *client, uint8_t *room)
{
        struct folio_read_item items[N_BATCH];

        for (unsigned i = 0; i < N_BATCH; i++) {
                items[i] = (struct folio_read_item){ .name = batch_names[i], .buffer = room, .n_bytes = batch_bytes(i) };
                room += LARGE_BYTES / N_TINY + (i >= N_TINY ? LARGE_BYTES : 0);
        }
        mark("begin");
        CHECK(folio_read_many(client, items, N_BATCH) == 0);
        mark("middle");
        for (unsigned i = 0; i < N_BATCH; i++)
                CHECK(harness_is_filled(items[i].buffer, items[i].n_bytes, i, 0));
}

static void get_batch(struct folio_client *client)
{
        struct folio_get_item items[N_BATCH];

        for (unsigned i = 0; i < N_BATCH; i++)
                items[i] = (struct folio_get_item){ .name = batch_names[i] };
        mark("begin");
        CHECK(folio_get_many(client, items, N_BATCH, 0, 0) == 0);
        mark("middle");
        for (unsigned i = 0; i < N_BATCH; i++) {
                CHECK(folio_object_size(items[i].object) == batch_bytes(i));
                CHECK(harness_is_filled(folio_object_data(items[i].object), batch_bytes(i), i, 0));
                CHECK_OK(folio_object_release(items[i].object));
                items[i].object = NULL;
        }
        mark("again");
        CHECK(folio_get_many(client, items, N_BATCH, 0, 0) == 0);
        mark("end");
        for (unsigned i = 0; i < N_BATCH; i++)
                CHECK_OK(folio_object_release(items[i].object));
}

static void take_when_told(Child *child)
{
        struct folio_client *client = child_connect(child);
        uint8_t *room = malloc(4 * (size_t)LARGE_BYTES);

        CHECK(room);
        child_say(child, 1);
        (void)child_hear(child);
        if (child->userdata)
                take_batch(client, room);
        else
                get_batch(client);
        child_say(child, 1);
        (void)child_hear(child);
        free(room);
        folio_client_unref(client);
}

static void put_batch(struct folio_client *client)
{
        uint8_t *bytes = malloc(LARGE_BYTES);

        assert_non_null(bytes);
        for (unsigned i = 0; i < N_BATCH; i++) {
                (void)snprintf(batch_names[i], sizeof(batch_names[i]), "batch/%u", i);
                harness_fill(bytes, batch_bytes(i), i);
                ASSERT_OK(folio_put(client, batch_names[i], bytes, batch_bytes(i), NULL));
        }
        free(bytes);
}

static void test_f02_round_trips_of_a_batch(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool is_traced = true;

        (void)state;
        put_batch(client);
        for (uintptr_t is_read = 0; is_read < 2; is_read++) {
                Child *child = child_start(foliod, take_when_told, (void *)is_read);
                Trace trace;

                assert_int_equal(child_hear(child), 1);
                is_traced = trace_begin(&trace, foliod, child->pid, "sendmsg,write");
                child_say(child, 1);
                assert_int_equal(child_hear(child), 1);
                if (is_traced) {
                        trace_end(&trace);
                        /* One for the namespace, one for the regions of everything. */
                        assert_int_equal(trace_count(&trace, "sendmsg(", false), 2);
                        if (!is_read)
                                assert_int_equal(trace_count_between(&trace, "write(-1, \"again\"", "write(-1, \"end\""), 0);
                }
                child_say(child, 1);
                child_finish(child);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

/* --- sentences -------------------------------------------------------------------------------------------------- */

#define ASSERT_SAID(text) assert_string_equal(folio_strerror_full(), text)

static void assert_said_after(const char *begin, const char *end)
{
        const char *said = folio_strerror_full();

        if (strncmp(said, begin, strlen(begin)) != 0 || !strstr(said, end))
                fail_msg("not \"%s...%s...\" but \"%s\"", begin, end, said);
}

static void keep_answer(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        (void)client;
        (void)object;
        assert_int_equal(error, 2);
        ASSERT_SAID("item 2 of 3: gone was deleted");
        *(bool *)userdata = true;
}

static void test_sentences(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_get_item get[3] = { { .name = "there" }, { .name = "gone" }, { .name = "never" } };
        struct folio_stat_item stats[2] = { { .name = "there", .stat = &stat }, { .name = "never", .stat = &stat } };
        struct folio_stat_item no_room[1] = { { .name = "default:there" } };
        char buffer[4];
        struct folio_read_item reads[3] = { { .name = "there", .buffer = buffer, .n_bytes = 3 },
                                            { .name = "there", .buffer = buffer, .n_bytes = 4 },
                                            { .name = "there", .n_bytes = 1 } };
        struct folio_put_item puts[3] = { { .name = "new", .data = "x", .size_bytes = 1 },
                                          { .name = "there", .data = "x", .size_bytes = 1 },
                                          { .name = "a b:c", .data = "x", .size_bytes = 1 } };
        struct folio_delete_item gone[2] = { { .name = "never" }, { .name = "not either" } };
        bool is_answered = false;

        (void)state;
        ASSERT_OK(folio_put(client, "there", "abc", 3, NULL));
        ASSERT_OK(folio_put(client, "gone", "abc", 3, NULL));
        ASSERT_OK(folio_delete(client, "gone", 0));
        assert_int_equal(folio_get_many(client, get, 3, 0, 0), 2);
        ASSERT_SAID("item 2 of 3: gone was deleted");
        ASSERT_OK(folio_object_release(get[0].object));
        assert_int_equal(folio_get_many(client, get + 2, 1, 0, 0), 1);
        ASSERT_SAID("item 1 of 1: there is no object never");
        assert_int_equal(folio_stat_many(client, stats, 2), 1);
        ASSERT_SAID("item 2 of 2: there is no object never");
        assert_int_equal(folio_stat_many(client, no_room, 1), 1);
        ASSERT_SAID("item 1 of 1, default:there: folio_stat.struct_bytes is not set");
        assert_int_equal(folio_read_many(client, reads, 3), 2);
        assert_said_after("item 2 of 3, there: 4 bytes at offset 0", "which has 3");
        assert_int_equal(folio_read_many(client, reads + 2, 1), 1);
        ASSERT_SAID("item 1 of 1, there: the buffer is NULL");
        reads[2] = (struct folio_read_item){ .buffer = buffer, .n_bytes = 1 };
        assert_int_equal(folio_read_many(client, reads + 2, 1), 1);
        ASSERT_SAID("item 1 of 1: an item has either a name or an object");
        assert_int_equal(folio_put_many(client, puts, 3), 2);
        assert_int_equal(puts[1].error, FOLIO_E_EXISTS);
        assert_said_after("item 2 of 3", "there");
        assert_int_equal(folio_put_many(client, puts + 2, 1), 1);
        assert_said_after("item 1 of 1", "a b");
        assert_int_equal(folio_delete_many(client, gone, 2), 2);
        assert_said_after("item 1 of 2", "never");
        get[0].name = "there";
        ASSERT_OK(folio_get_many_async(client, get, 3, 0, 0, keep_answer, &is_answered));
        for (unsigned i = 0; i < 10000 && !is_answered; i++) {
                struct pollfd poll_fd = { .fd = folio_client_get_fd(client), .events = POLLIN };

                assert_true(folio_client_process(client) >= 0);
                if (!is_answered)
                        (void)poll(&poll_fd, 1, 20);
        }
        assert_true(is_answered);
        ASSERT_OK(folio_object_release(get[0].object));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- handles that are used again -------------------------------------------------------------------------------- */

typedef struct Takers {
        struct folio_client *client;
        unsigned n_bad;              /* atomic */
} Takers;

static void *take_and_release(void *userdata)
{
        Takers *takers = userdata;

        for (unsigned i = 0; i < 3000; i++) {
                unsigned which = i % N_NAMES;
                struct folio_object *object;
                Record record;

                if (folio_get(takers->client, replaced[which], 0, 0, &object) != 0 || !is_whole(folio_object_data(object)) ||
                    ((const Record *)folio_object_data(object))->seed != which ||
                    folio_object_read(object, 0, &record, sizeof(record)) != 0 || record.seed != which ||
                    folio_object_release(object) != 0 || folio_object_release(object) != FOLIO_E_INVALID ||
                    folio_read(takers->client, replaced[which], 0, &record, sizeof(record)) != 0 || record.seed != which)
                        (void)__atomic_fetch_add(&takers->n_bad, 1, __ATOMIC_RELAXED);
        }
        return NULL;
}

/* Threads that get and release the same few objects: never another's bytes, never a handle of before. */
static void test_threads_that_release(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        Takers takers = { .client = foliod_connect(foliod) };
        struct folio_object *last;
        pthread_t threads[4];

        (void)state;
        name_all();
        for (unsigned i = 0; i < N_NAMES; i++) {
                Record record = { .seed = i };

                harness_fill(record.bytes, sizeof(record.bytes), i);
                ASSERT_OK(folio_put(takers.client, replaced[i], &record, sizeof(record), NULL));
        }
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, take_and_release, &takers), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(takers.n_bad, 0);
        /* A handle outlives its client, and is released after it. */
        ASSERT_OK(folio_get(takers.client, replaced[0], 0, 0, &last));
        folio_client_unref(takers.client);
        assert_true(is_whole(folio_object_data(last)));
        ASSERT_OK(folio_object_release(last));
        assert_int_equal(folio_object_release(last), FOLIO_E_INVALID);
        foliod_stop(foliod);
}

/* --- items of every kind against a model ------------------------------------------------------------------------ */

enum { N_MODEL = 60, N_MODEL_ITEMS = 3000, MODEL_ROOM = 70000 };

typedef struct Model {
        char name[64];
        size_t n_bytes;
        struct folio_object *object; /* NULL: none is held */
        bool is_there;
} Model;

static uint32_t random_state = 12345;

static uint32_t random_below(uint32_t n)
{
        random_state = random_state * 1664525u + 1013904223u;
        return (uint32_t)((uint64_t)random_state * n >> 32);
}

static void model_put(struct folio_client *client, struct folio_client *reader, Model *model)
{
        static const size_t lengths[] = { 0, 1, 63, 64, 65, 4096, 65536, 3 * MIB };
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        uint8_t *bytes = malloc(3 * MIB);

        assert_non_null(bytes);
        for (unsigned i = 0; i < N_MODEL; i++) {
                (void)snprintf(model[i].name, sizeof(model[i].name), "%sm%u%s", i % 3 == 0 ? "default:" : i % 3 == 1 ? "one:" : "",
                               i, i % 5 ? "" : "/a key that does not fit into its slot");
                model[i].n_bytes = lengths[i % 8];
                model[i].is_there = i % 7 != 6;
                harness_fill(bytes, model[i].n_bytes, i);
                ASSERT_OK(folio_put(client, model[i].name, bytes, model[i].n_bytes, i % 4 == 1 ? &own : NULL));
                if (i % 2)
                        ASSERT_OK(folio_get(reader, model[i].name, i % 4 == 1 ? FOLIO_GET_UNMAPPED : 0, 0, &model[i].object));
                if (!model[i].is_there)
                        ASSERT_OK(folio_delete(client, model[i].name, 0));
        }
        free(bytes);
}

/* What the answer to an item has to be. */
static int model_answer(const Model *model, const struct folio_read_item *item)
{
        if ((!item->buffer && item->n_bytes > 0) || !item->name == !item->object)
                return FOLIO_E_INVALID;
        if (item->name && !model->is_there)
                return FOLIO_E_DELETED;
        if (item->offset_bytes > model->n_bytes || item->n_bytes > model->n_bytes - item->offset_bytes)
                return FOLIO_E_RANGE;
        return 0;
}

static void test_model(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", "--namespace", "one:mode=777", NULL);
        struct folio_client *client = foliod_connect(foliod), *reader = foliod_connect(foliod);
        struct folio_read_item *items = calloc(N_MODEL_ITEMS, sizeof(*items));
        unsigned *which = calloc(N_MODEL_ITEMS, sizeof(*which));
        uint8_t *room = malloc((size_t)N_MODEL_ITEMS * 256 + MODEL_ROOM);
        static Model model[N_MODEL];

        (void)state;
        assert_true(items && which && room);
        model_put(client, reader, model);
        for (unsigned round = 0; round < 20; round++) {
                unsigned n_items = round < 10 ? random_below(70) : N_MODEL_ITEMS;
                int n_wrong = 0;

                for (unsigned i = 0; i < n_items; i++) {
                        const Model *m = &model[which[i] = random_below(N_MODEL)];
                        bool is_by_handle = m->object && random_below(2);

                        items[i] = (struct folio_read_item){
                                .name = is_by_handle ? NULL : m->name,
                                .object = is_by_handle ? m->object : NULL,
                                .offset_bytes = random_below((uint32_t)m->n_bytes + 2),
                                .buffer = room + (size_t)i * 256,
                                .n_bytes = random_below(257),
                        };
                        if (random_below(50) == 0)
                                items[i].offset_bytes = UINT64_MAX - random_below(3);
                        if (random_below(50) == 0)
                                items[i].buffer = NULL;
                        if (random_below(50) == 0)
                                items[i].name = NULL;
                        n_wrong += model_answer(m, &items[i]) != 0;
                }
                assert_int_equal(folio_read_many(reader, items, n_items), n_wrong);
                for (unsigned i = 0; i < n_items; i++) {
                        assert_int_equal(items[i].error, model_answer(&model[which[i]], &items[i]));
                        if (items[i].error == 0)
                                assert_true(harness_is_filled(items[i].buffer, items[i].n_bytes, which[i], items[i].offset_bytes));
                }
        }
        for (unsigned i = 0; i < N_MODEL; i++)
                if (model[i].object)
                        ASSERT_OK(folio_object_release(model[i].object));
        folio_client_unref(reader);
        folio_client_unref(client);
        free(items);
        free(which);
        free(room);
        foliod_stop(foliod);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_replaced_all_the_time),
                INTEGRATION_TEST(test_f02_round_trips_of_a_batch),
                INTEGRATION_TEST(test_sentences),
                INTEGRATION_TEST(test_threads_that_release),
                INTEGRATION_TEST(test_model),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
