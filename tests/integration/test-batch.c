/* SPDX-License-Identifier: Apache-2.0 */
/* Many objects in one call, and watching what changes. */
#include "tests/integration/harness.h"

#define MIB (1024u * 1024u)

/* --- batches ---------------------------------------------------------------------------------------------------------- */

enum { N_MANY = 10000 };

static struct folio_put_item many_puts[N_MANY];
static struct folio_get_item many_gets[N_MANY];
static struct folio_stat_item many_stats[N_MANY];
static struct folio_read_item many_reads[N_MANY];
static struct folio_delete_item many_deletes[N_MANY];
static struct folio_stat stat_room[N_MANY];
static char names[N_MANY][96];
static uint8_t data[N_MANY][100], copies[N_MANY][100];

static void test_ten_thousand(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *reader = foliod_connect(foliod);

        memset(many_gets, 0, sizeof(many_gets));
        for (size_t i = 0; i < N_MANY; i++) {
                snprintf(names[i], sizeof(names[i]), "batch/%zu%s", i,
                         i % 5 ? "" : "/a key that goes on behind the slot's own room");
                harness_fill(data[i], sizeof(data[i]), i);
                many_puts[i] = (struct folio_put_item){ .name = names[i], .data = data[i], .size_bytes = i % 101 };
                many_gets[i].name = names[i];
                stat_room[i].struct_bytes = sizeof(stat_room[i]);
                many_stats[i] = (struct folio_stat_item){ .name = names[i], .stat = &stat_room[i] };
                many_reads[i] = (struct folio_read_item){ .name = names[i], .buffer = copies[i], .n_bytes = i % 101 };
                many_deletes[i] = (struct folio_delete_item){ .name = names[i] };
        }
        ASSERT_OK(folio_put_many(client, many_puts, N_MANY));
        /* All of them again: each is refused, for itself. */
        assert_int_equal(folio_put_many(client, many_puts, N_MANY), N_MANY);
        for (size_t i = 0; i < N_MANY; i++)
                assert_int_equal(many_puts[i].error, FOLIO_E_EXISTS);
        ASSERT_OK(folio_stat_many(reader, many_stats, N_MANY));
        ASSERT_OK(folio_read_many(reader, many_reads, N_MANY));
        ASSERT_OK(folio_get_many(reader, many_gets, N_MANY, 0, 0));
        for (size_t i = 0; i < N_MANY; i++) {
                assert_int_equal(stat_room[i].size_bytes, i % 101);
                assert_memory_equal(copies[i], data[i], i % 101);
                assert_int_equal(folio_object_size(many_gets[i].object), i % 101);
                assert_memory_equal(folio_object_data(many_gets[i].object), data[i], i % 101);
                many_reads[i].name = NULL;
                many_reads[i].object = many_gets[i].object;
        }
        memset(copies, 0, sizeof(copies));
        ASSERT_OK(folio_delete_many(client, many_deletes, N_MANY));
        assert_int_equal(folio_delete_many(client, many_deletes, N_MANY), N_MANY);
        ASSERT_OK(folio_read_many(reader, many_reads, N_MANY));
        for (size_t i = 0; i < N_MANY; i++) {
                /* The index remembers why a name is gone, but not for ever. */
                assert_true(many_deletes[i].error == FOLIO_E_DELETED || many_deletes[i].error == FOLIO_E_NOT_FOUND);
                assert_memory_equal(copies[i], data[i], i % 101);
                ASSERT_OK(folio_object_release(many_gets[i].object));
        }
        assert_int_equal(folio_get_many(reader, many_gets, N_MANY, 0, 0), N_MANY);
        AWAIT(foliod_fact(client, "held.count") == 0);
        assert_int_equal(foliod_fact(client, "objects.count"), 0);
        folio_client_unref(reader);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_mixed(void **state)
{
        Foliod *foliod =
                foliod_start("--staging=1M", "--namespace", "one:mode=777", "--namespace", "two:mode=777", NULL);
        struct folio_client *client = foliod_connect(foliod), *reader = foliod_connect(foliod);
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        enum { N = 90 };
        struct folio_put_item put[N];
        struct folio_read_item read[N];
        struct folio_get_item get[N];
        struct folio_delete_item remove[N] = { 0 };
        static char name[N][32];
        uint8_t *bytes = malloc(3 * MIB), *copy = malloc((size_t)N * 3 * MIB);
        static const size_t lengths[] = { 0, 10, 5000, 600000, MIB, 3 * MIB };

        harness_fill(bytes, 3 * MIB, 1);
        for (size_t i = 0; i < N; i++) {
                size_t n_bytes = lengths[i % 6];

                snprintf(name[i], sizeof(name[i]), "%s%zu", i % 3 == 0 ? "one:" : i % 3 == 1 ? "two:" : "", i);
                put[i] = (struct folio_put_item){
                        .name = name[i], .data = bytes, .size_bytes = n_bytes, .options = i % 4 ? NULL : &own
                };
                read[i] = (struct folio_read_item){ .name = name[i], .buffer = copy + i * 3 * MIB, .n_bytes = n_bytes };
                get[i] = (struct folio_get_item){ .name = name[i] };
                remove[i].name = name[i];
        }
        put[5].name = "bad name:x";
        put[8].name = "nowhere:x";
        put[11].data = NULL;
        put[14].name = name[13];
        assert_int_equal(folio_put_many(client, put, N), 4);
        assert_int_equal(put[5].error, FOLIO_E_INVALID);
        assert_int_equal(put[8].error, FOLIO_E_NOT_FOUND);
        assert_int_equal(put[11].error, FOLIO_E_INVALID);
        /* Of two with one name one has it, whichever was first. */
        assert_true((put[14].error == FOLIO_E_EXISTS) != (put[13].error == FOLIO_E_EXISTS));
        read[20].offset_bytes = UINT64_MAX;
        read[21].name = NULL;
        assert_int_equal(folio_read_many(reader, read, N), 6);
        assert_int_equal(read[5].error, FOLIO_E_NOT_FOUND);
        assert_int_equal(read[20].error, FOLIO_E_RANGE);
        assert_int_equal(read[21].error, FOLIO_E_INVALID);
        for (size_t i = 0; i < N; i++)
                if (read[i].error == 0 && i != 13 && i != 14)
                        assert_memory_equal(read[i].buffer, bytes, read[i].n_bytes);
        assert_int_equal(folio_get_many(reader, get, N, 0, 0), 4);
        for (size_t i = 0; i < N; i++) {
                if (get[i].error) {
                        assert_int_equal(get[i].error, FOLIO_E_NOT_FOUND);
                        assert_null(get[i].object);
                        continue;
                }
                assert_memory_equal(folio_object_data(get[i].object), bytes, folio_object_size(get[i].object));
                ASSERT_OK(folio_object_release(get[i].object));
        }
        for (size_t i = 0; i < N; i++)
                remove[i].flags = FOLIO_IF_EXISTS;
        remove[0].flags = 1u << 20;
        assert_int_equal(folio_delete_many(client, remove, N), 1);
        assert_int_equal(remove[0].error, FOLIO_E_INVALID);
        ASSERT_OK(folio_put_many(client, NULL, 0));
        assert_int_equal(folio_put_many(client, NULL, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_get_many(client, get, 1, 1u << 9, 0), FOLIO_E_INVALID);
        folio_client_unref(reader);
        folio_client_unref(client);
        free(bytes);
        free(copy);
        foliod_stop(foliod);
}

static void put_slowly(Child *child)
{
        struct folio_client *client = child_connect(child);
        char name[32] = { 0 };

        for (int i = 99; i >= 0; i--) {
                memset(name, 0, sizeof(name));
                snprintf(name, sizeof(name), "w%d", i);
                CHECK_OK(folio_put(client, name, name, sizeof(name), NULL));
        }
        folio_client_unref(client);
}

/*
 * Small and large ones in one batch, of two namespaces, large ones with as much metadata as fills a message after a few. Of two
 * of one name one is refused, or replaced: that is so for the small one first, as it is on its way first.
 */
static void test_small_and_large(void **state)
{
        enum { N_SMALL = 1500, N_LARGE = 150, N_PAIRS = 4, N = N_SMALL + N_LARGE + N_PAIRS };
        static uint8_t metadata[FOLIO_METADATA_BYTES_MAX];
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION, .metadata = metadata };
        struct folio_create_options ample = own, again = own;
        Foliod *foliod = foliod_start("--budget", "256M", "--namespace", "one:mode=777", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_put_item *puts = calloc(N, sizeof(*puts));
        struct folio_read_item *reads = calloc(N, sizeof(*reads));
        char(*keys)[32] = calloc(N, sizeof(*keys));

        (void)state;
        assert_true(puts && reads && keys);
        ample.metadata_bytes = sizeof(metadata);
        again.flags |= FOLIO_REPLACE;
        for (unsigned i = 0; i < N; i++) {
                bool is_large = i >= N_SMALL || i % 10 == 9;

                (void)snprintf(keys[i], sizeof(keys[i]), "%s%u", i % 3 ? "mixed/" : "one:mixed/", i);
                puts[i] = (struct folio_put_item){ .name = keys[i], .data = data[i], .size_bytes = i % 101,
                                                   .options = !is_large ? NULL : i % 2 ? &own : &ample };
                harness_fill(data[i], sizeof(data[i]), i);
        }
        for (unsigned i = N - N_PAIRS; i < N; i += 2) {
                /* A large one in front of a small one; and the other way round, to be replaced. */
                memcpy(keys[i + 1], keys[i], sizeof(keys[i]));
                puts[i].options = i + 2 < N ? &own : NULL;
                puts[i + 1].options = i + 2 < N ? NULL : &again;
        }
        assert_int_equal(folio_put_many(client, puts, N), 1);
        for (unsigned i = 0; i < N; i++) {
                assert_int_equal(puts[i].error, i == N - N_PAIRS ? FOLIO_E_EXISTS : 0);
                reads[i] = (struct folio_read_item){ .name = keys[i], .buffer = copies[i], .n_bytes = i % 101 };
        }
        reads[N - 4].n_bytes = reads[N - 2].n_bytes = 0;
        assert_int_equal(folio_read_many(client, reads, N), 0);
        for (unsigned i = 0; i < N; i++)
                assert_memory_equal(copies[i], data[i], reads[i].n_bytes);
        free(puts);
        free(reads);
        free(keys);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_get_many_waits(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_get_item get[101];
        static char name[101][32];
        Child *child;

        for (size_t i = 0; i < 101; i++) {
                snprintf(name[i], sizeof(name[i]), "w%zu", i);
                get[i] = (struct folio_get_item){ .name = name[i] };
        }
        child = child_start(foliod, put_slowly, NULL);
        ASSERT_OK(folio_get_many(client, get, 100, 0, FOLIO_TIMEOUT_FOREVER));
        child_finish(child);
        for (size_t i = 0; i < 100; i++) {
                assert_memory_equal(folio_object_data(get[i].object), name[i], sizeof(name[i]));
                ASSERT_OK(folio_object_release(get[i].object));
        }
        assert_int_equal(folio_get_many(client, get, 101, 0, 20), 1);
        assert_int_equal(get[100].error, FOLIO_E_TIMEOUT);
        for (size_t i = 0; i < 100; i++)
                ASSERT_OK(folio_object_release(get[i].object));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- watching ------------------------------------------------------------------------------------------------------------ */

static struct folio_event next_event(struct folio_watch *watch)
{
        struct folio_event event = { .struct_bytes = sizeof(event) };

        assert_int_equal(folio_watch_next(watch, 20000, &event), 1);
        return event;
}

static void expect_event(struct folio_watch *watch, uint32_t type, const char *name)
{
        struct folio_event event = next_event(watch);

        assert_int_equal(event.type, type);
        assert_string_equal(event.name, name);
}

static void test_watch(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *writer = foliod_connect(foliod);
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        struct folio_event event = { .struct_bytes = sizeof(event) };
        struct folio_watch *all, *some, *again;
        struct folio_object *object;
        uint64_t sequence;

        ASSERT_OK(folio_watch_open(client, "", 0, &all));
        ASSERT_OK(folio_watch_open(client, "p/", 0, &some));
        assert_int_equal(folio_watch_next(all, 0, &event), 0);
        ASSERT_OK(folio_put(writer, "p/a", "x", 1, NULL));
        ASSERT_OK(folio_put(writer, "q", "x", 1, NULL));
        ASSERT_OK(folio_put(writer, "p/a", "xy", 2, &replace));
        ASSERT_OK(folio_delete(writer, "p/a", 0));
        ASSERT_OK(folio_create(writer, "p/m", 10, &mutable, &object));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_create(writer, "p/w", 10, NULL, &object));
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));

        expect_event(all, FOLIO_EVENT_SEALED, "default:p/a");
        expect_event(all, FOLIO_EVENT_SEALED, "default:q");
        event = next_event(all);
        assert_int_equal(event.type, FOLIO_EVENT_REPLACED);
        assert_int_equal(event.size_bytes, 2);
        sequence = event.sequence;
        assert_int_equal(sequence, 3);
        expect_event(all, FOLIO_EVENT_DELETED, "default:p/a");
        expect_event(all, FOLIO_EVENT_SEALED, "default:p/m");
        expect_event(all, FOLIO_EVENT_SEALED, "default:p/w");
        assert_int_equal(folio_watch_next(all, 0, &event), 0);
        assert_int_equal(folio_watch_next(all, 10, &event), 0);
        expect_event(some, FOLIO_EVENT_SEALED, "default:p/a");
        expect_event(some, FOLIO_EVENT_REPLACED, "default:p/a");
        expect_event(some, FOLIO_EVENT_DELETED, "default:p/a");
        expect_event(some, FOLIO_EVENT_SEALED, "default:p/m");
        expect_event(some, FOLIO_EVENT_SEALED, "default:p/w");
        assert_int_equal(folio_watch_next(some, 0, &event), 0);

        /* Resumed after what was seen. */
        ASSERT_OK(folio_watch_open(client, "", sequence, &again));
        expect_event(again, FOLIO_EVENT_DELETED, "default:p/a");
        folio_watch_close(again);
        assert_int_equal(folio_watch_open(client, "", 1000, &again), FOLIO_E_INVALID);
        assert_int_equal(folio_watch_open(client, "nowhere:", 0, &again), FOLIO_E_NOT_FOUND);
        folio_watch_close(NULL);
        folio_watch_close(all);
        folio_client_unref(client);
        /* A watch keeps its client. */
        ASSERT_OK(folio_put(writer, "p/z", "x", 1, NULL));
        expect_event(some, FOLIO_EVENT_SEALED, "default:p/z");
        folio_watch_close(some);
        folio_client_unref(writer);
        foliod_stop(foliod);
}

static bool is_readable(int fd, int timeout_ms)
{
        struct pollfd readable = { .fd = fd, .events = POLLIN };

        return poll(&readable, 1, timeout_ms) == 1;
}

/* Two watches of one client in one namespace: each descriptor tells of each event. */
static void test_watch_descriptor(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *writer = foliod_connect(foliod);
        struct folio_event event = { .struct_bytes = sizeof(event) };
        struct folio_watch *watches[2];
        int fds[2];

        for (int i = 0; i < 2; i++) {
                ASSERT_OK(folio_watch_open(client, "", 0, &watches[i]));
                fds[i] = folio_watch_get_fd(watches[i]);
                assert_true(fds[i] >= 0);
                assert_int_equal(folio_watch_get_fd(watches[i]), fds[i]);
                while (folio_watch_next(watches[i], 0, &event) == 1)
                        ;
                assert_false(is_readable(fds[i], 0));
        }
        for (int round = 0; round < 100; round++) {
                char name[32];

                snprintf(name, sizeof(name), "r%d", round);
                ASSERT_OK(folio_put(writer, name, "x", 1, NULL));
                for (int i = 0; i < 2; i++) {
                        assert_true(is_readable(fds[i], 20000));
                        assert_int_equal(folio_watch_next(watches[i], 0, &event), 1);
                        assert_string_equal(event.name + 8, name);
                        assert_int_equal(folio_watch_next(watches[i], 0, &event), 0);
                        assert_false(is_readable(fds[i], 0));
                }
        }
        /* What is left is told, then that there is no more; and the end wakes, too. */
        ASSERT_OK(folio_put(writer, "last", "x", 1, NULL));
        foliod_kill(foliod);
        for (int i = 0; i < 2; i++) {
                assert_true(is_readable(fds[i], 20000));
                assert_int_equal(folio_watch_next(watches[i], 0, &event), 1);
                assert_string_equal(event.name, "default:last");
                assert_int_equal(folio_watch_next(watches[i], FOLIO_TIMEOUT_FOREVER, &event), FOLIO_E_DAEMON_GONE);
                folio_watch_close(watches[i]);
        }
        folio_client_unref(writer);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_watch_lapped(void **state)
{
        Foliod *foliod = foliod_start("--events=64", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_watch *watch;
        struct folio_event event;
        uint64_t n_seen = 0, n_missed = 0, expected = 1;

        ASSERT_OK(folio_watch_open(client, "", 0, &watch));
        for (int i = 0; i < 500; i++) {
                char name[32];

                snprintf(name, sizeof(name), "e%d", i);
                ASSERT_OK(folio_put(client, name, "x", 1, NULL));
        }
        for (int r = 1; r == 1;) {
                event = (struct folio_event){ .struct_bytes = sizeof(event) };
                r = folio_watch_next(watch, 0, &event);
                if (r != 1)
                        break;
                if (event.type == FOLIO_EVENT_MISSED) {
                        n_missed += event.n_missed;
                        expected += event.n_missed;
                        continue;
                }
                assert_int_equal(event.sequence, expected);
                expected++;
                n_seen++;
        }
        assert_int_equal(n_seen + n_missed, 500);
        assert_true(n_missed >= 500 - 64);
        assert_true(n_seen >= 60);
        folio_watch_close(watch);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- namespaces ----------------------------------------------------------------------------------------------------------- */

static void test_namespaces(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_namespace settings = { .struct_bytes = sizeof(settings) }, entries[4];
        struct folio_event event = { .struct_bytes = sizeof(event) };
        struct folio_watch *watch;
        struct folio_object *object;
        int n;

        strcpy(settings.name, "team");
        settings.fields = FOLIO_NAMESPACE_FIELD_MODE | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS;
        settings.mode = 0770;
        settings.quota_objects = 2;
        ASSERT_OK(folio_namespace_add(client, &settings));
        assert_int_equal(folio_namespace_add(client, &settings), FOLIO_E_EXISTS);
        ASSERT_OK(folio_put(client, "team:a", "x", 1, NULL));
        ASSERT_OK(folio_put(client, "team:b", "x", 1, NULL));
        assert_int_equal(folio_put(client, "team:c", "x", 1, NULL), FOLIO_E_LIMIT);
        settings.fields = FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS;
        settings.quota_objects = 3;
        ASSERT_OK(folio_namespace_set(client, &settings));
        ASSERT_OK(folio_put(client, "team:c", "xyz", 3, NULL));
        memset(entries, 0, sizeof(entries));
        entries[0].struct_bytes = sizeof(entries[0]);
        n = folio_namespace_list(client, NULL, entries, 4);
        assert_int_equal(n, 2);
        assert_string_equal(entries[0].name, "default");
        assert_string_equal(entries[1].name, "team");
        assert_int_equal(entries[1].n_objects, 3);
        assert_int_equal(entries[1].quota_objects, 3);
        assert_int_equal(entries[1].mode, 0770);
        assert_int_equal(folio_namespace_list(client, "default", entries, 4), 1);
        assert_int_equal(folio_namespace_list(client, "team", entries, 4), 0);
        assert_int_equal(folio_namespace_list(client, NULL, entries, 0), FOLIO_E_INVALID);

        ASSERT_OK(folio_get(client, "team:c", 0, 0, &object));
        ASSERT_OK(folio_watch_open(client, "team:", 0, &watch));
        ASSERT_OK(folio_namespace_remove(client, "team"));
        assert_int_equal(folio_exists(client, "team:a"), FOLIO_E_NOT_FOUND);
        assert_memory_equal(folio_object_data(object), "xyz", 3);
        while ((n = folio_watch_next(watch, FOLIO_TIMEOUT_FOREVER, &event)) == 1)
                assert_int_equal(event.type, FOLIO_EVENT_DELETED);
        assert_int_equal(n, FOLIO_E_DAEMON_GONE);
        folio_watch_close(watch);
        /* One of the same name is another one. */
        settings.fields = 0;
        ASSERT_OK(folio_namespace_add(client, &settings));
        assert_int_equal(folio_exists(client, "team:a"), 0);
        ASSERT_OK(folio_put(client, "team:a", "new", 3, NULL));
        assert_int_equal(folio_exists(client, "team:a"), 1);
        ASSERT_OK(folio_object_release(object));
        assert_int_equal(folio_namespace_remove(client, "default"), FOLIO_E_INVALID);
        assert_int_equal(folio_namespace_remove(client, "nowhere"), FOLIO_E_NOT_FOUND);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_holders(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        struct folio_holder holders[2] = { { .struct_bytes = sizeof(holders[0]) } };
        struct folio_object *mine, *theirs, *more;

        ASSERT_OK(folio_put(client, "h", "x", 1, NULL));
        assert_int_equal(folio_holders(client, "h", holders, 2), 0);
        ASSERT_OK(folio_get(client, "h", 0, 0, &mine));
        ASSERT_OK(folio_get(other, "h", 0, 0, &theirs));
        ASSERT_OK(folio_get(other, "h", 0, 0, &more));
        assert_int_equal(folio_holders(client, "h", holders, 2), 2);
        assert_int_equal(holders[0].pid, getpid());
        assert_int_equal(holders[0].n_pins + holders[1].n_pins, 3);
        assert_int_equal(folio_holders(client, "h", NULL, 0), 2);
        ASSERT_OK(folio_object_release(theirs));
        ASSERT_OK(folio_object_release(more));
        assert_int_equal(folio_holders(client, "h", holders, 2), 1);
        ASSERT_OK(folio_object_release(mine));
        assert_int_equal(folio_holders(client, "nothing", holders, 2), FOLIO_E_NOT_FOUND);
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_ten_thousand),     INTEGRATION_TEST(test_mixed), INTEGRATION_TEST(test_small_and_large),
                INTEGRATION_TEST(test_get_many_waits),   INTEGRATION_TEST(test_watch),
                INTEGRATION_TEST(test_watch_descriptor), INTEGRATION_TEST(test_watch_lapped),
                INTEGRATION_TEST(test_namespaces),       INTEGRATION_TEST(test_holders),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
