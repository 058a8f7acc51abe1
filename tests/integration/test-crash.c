/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that end in the middle: writers, readers, waiters, all with kill -9. What they were writing, holding and
 * owning goes; what they had published stays; nobody else gets a wrong byte.
 */
#include "tests/integration/alive.h"
#include "tests/integration/raw.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define MIB (UINT64_C(1) << 20)

static void await_no_unsealed(Foliod *foliod)
{
        struct folio_client *client = foliod_connect(foliod);

        AWAIT(alive_charges(client).unsealed_bytes == 0 && alive_charges(client).n_unsealed == 0);
        folio_client_unref(client);
}

static void create_and_wait(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;
        void *data;

        CHECK_OK(folio_create(client, "unsealed", 40 * MIB, NULL, &object));
        CHECK_OK(folio_object_map_write(object, &data));
        memset(data, 1, 4096);
        child_say(child, 1);
        for (;;)
                (void)pause();
}

/* Asks for memory, and is gone before the answer can come, in one of three ways. */
static void ask_and_go(Foliod *foliod, unsigned way)
{
        Raw *raw = raw_open(foliod);
        ProtoItem item = { .key = raw_key("unsealed"), .size_bytes = 40 * MIB };
        ProtoRequest request = {
                .verb = VERB_CREATE, .namespace_id = raw_namespace(raw, "default"), .n_items = 1, .items = &item
        };

        if (way == 1)
                assert_int_equal(shutdown(raw->socket, SHUT_RD), 0);
        assert_true(raw_send(raw, &request, false, NULL, 0));
        if (way == 2)
                (void)shutdown(raw->socket, SHUT_RDWR);
        raw_close(raw);
}

/* A13: created, never sealed, client gone: the bytes are back each time, and were counted as unsealed meanwhile. */
static void test_a13_unsealed_of_a_dead_client(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);

        (void)state;
        for (unsigned i = 0; i < 11; i++) {
                Child *child = child_start(foliod, create_and_wait, NULL);

                assert_int_equal(child_hear(child), 1);
                assert_true(alive_charges(client).unsealed_bytes >= 40 * MIB);
                assert_true(foliod_fact(client, "memory.unsealed_bytes") >= 40 * MIB);
                assert_int_equal(folio_exists(client, "unsealed"), 0);
                if (i % 3 == 1)
                        assert_int_equal(kill(child->pid, SIGSTOP), 0);
                child_kill(child);
                await_no_unsealed(foliod);
                assert_int_equal(foliod_fact(client, "memory.unsealed_bytes"), 0);
        }
        for (unsigned i = 0; i < 12; i++) {
                ask_and_go(foliod, i % 3);
                await_no_unsealed(foliod);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

enum { FAST_ROUNDS = 1500 };

static uint64_t fast_bytes(unsigned round)
{
        return round % 16 == 0 ? 2 * MIB + round : 100 + round;
}

static void publish_and_destroy(Child *child)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_client *client = child_connect(child);
        uint8_t *bytes = malloc(3 * MIB);

        CHECK(bytes);
        for (unsigned i = 0; i < alive_scaled(FAST_ROUNDS); i++) {
                harness_fill(bytes, fast_bytes(i), i);
                CHECK_OK(folio_put(client, "fast", bytes, fast_bytes(i), &replace));
                child_say(child, i);
                CHECK_OK(folio_delete(client, "fast", 0));
                /* The reader is through with this round. */
                CHECK(child_hear(child) == i);
        }
        folio_client_unref(client);
}

/* C04: the owner deletes the object right after publishing it: a reader gets all of it, or an error that says so. */
static void test_c04_destroyed_right_after_publishing(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Child *child = child_start(foliod, publish_and_destroy, NULL);
        unsigned n_got = 0;

        (void)state;
        for (unsigned i = 0; i < alive_scaled(FAST_ROUNDS); i++) {
                struct folio_object *object = NULL;
                int error;

                assert_int_equal(child_hear(child), i);
                error = folio_get(client, "fast", 0, 0, &object);
                if (error) {
                        assert_true(error == FOLIO_E_DELETED || error == FOLIO_E_NOT_FOUND);
                } else {
                        const void *data = folio_object_data(object);

                        assert_int_equal(folio_object_size(object), fast_bytes(i));
                        assert_non_null(data);
                        assert_true(harness_is_filled(data, fast_bytes(i), i, 0));
                        ASSERT_OK(folio_object_release(object));
                        n_got++;
                }
                child_say(child, i);
        }
        child_finish(child);
        print_message("# %u of %u rounds got the object\n", n_got, alive_scaled(FAST_ROUNDS));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* C13: deleted while somebody looks at it, and a thousand new ones of the same size made: the view does not change. */
static void test_c13_delete_under_a_view(void **state)
{
        static const uint64_t sizes[] = { 80, 800, 5000, 300000, 3 * MIB };
        enum { N = sizeof(sizes) / sizeof(sizes[0]) };
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *reader = foliod_connect(foliod), *writer = foliod_connect(foliod);
        struct folio_object *objects[N];
        uint8_t *bytes = malloc(3 * MIB);
        char name[64];

        (void)state;
        assert_non_null(bytes);
        for (size_t i = 0; i < N; i++) {
                (void)snprintf(name, sizeof(name), "viewed %zu", i);
                harness_fill(bytes, sizes[i], i);
                ASSERT_OK(folio_put(writer, name, bytes, sizes[i], NULL));
                ASSERT_OK(folio_get(reader, name, 0, 0, &objects[i]));
        }
        /* One that stays, or the region they lie in would go as a whole and be used by nobody. */
        ASSERT_OK(folio_put(writer, "stays", bytes, 100, NULL));
        for (size_t i = 0; i < N; i++) {
                (void)snprintf(name, sizeof(name), "viewed %zu", i);
                ASSERT_OK(folio_delete(i % 2 ? reader : writer, name, 0));
                assert_int_equal(folio_exists(reader, name), 0);
        }
        memset(bytes, 0xdd, 3 * MIB);
        for (size_t i = 0; i < N; i++)
                for (unsigned j = 0; j < (sizes[i] < 5000 ? alive_scaled(1000) : 8); j++) {
                        (void)snprintf(name, sizeof(name), "new %zu %u", i, j);
                        ASSERT_OK(folio_put(writer, name, bytes, sizes[i], NULL));
                }
        for (size_t i = 0; i < N; i++) {
                assert_int_equal(folio_object_size(objects[i]), sizes[i]);
                assert_true(harness_is_filled(folio_object_data(objects[i]), sizes[i], i, 0));
                ASSERT_OK(folio_object_read(objects[i], 0, bytes, sizes[i]));
                assert_true(harness_is_filled(bytes, sizes[i], i, 0));
                ASSERT_OK(folio_object_release(objects[i]));
        }
        for (size_t i = 0; i < N; i++)
                for (unsigned j = 0; j < (sizes[i] < 5000 ? alive_scaled(1000) : 8); j++) {
                        (void)snprintf(name, sizeof(name), "new %zu %u", i, j);
                        ASSERT_OK(folio_delete(writer, name, 0));
                }
        ASSERT_OK(folio_delete(writer, "stays", 0));
        free(bytes);
        folio_client_unref(reader);
        folio_client_unref(writer);
        alive_check(&before);
        foliod_stop(foliod);
}

enum { HELD = 2000 };

static void hold_and_delete_half(Child *child)
{
        struct folio_client *client = child_connect(child);
        static struct folio_put_item puts[HELD];
        static struct folio_get_item gets[HELD];
        static char names[HELD][24];
        unsigned n = alive_scaled(HELD);

        for (unsigned i = 0; i < n; i++) {
                /* 7919 is prime: every place once, in no order. */
                (void)snprintf(names[i], sizeof(names[i]), "held %u", i * 7919 % n);
                puts[i] = (struct folio_put_item){ .name = names[i], .data = "0123456789", .size_bytes = 10 };
                gets[i] = (struct folio_get_item){ .name = names[i] };
        }
        CHECK(folio_put_many(client, puts, n) == 0);
        CHECK(folio_get_many(client, gets, n, 0, 0) == 0);
        for (unsigned i = 0; i < n; i += 2)
                CHECK_OK(folio_delete(client, names[i], 0));
        child_say(child, 1);
        for (;;)
                (void)pause();
}

static void create_the_same(Child *child)
{
        struct folio_client *client = child_connect(child);
        char name[24];

        CHECK(child_hear(child) == 1);
        for (unsigned i = 0; i < alive_scaled(HELD); i++) {
                int error;

                (void)snprintf(name, sizeof(name), "held %u", i);
                error = folio_put(client, name, "abc", 3, NULL);
                CHECK(error == 0 || error == FOLIO_E_EXISTS);
                if (i == alive_scaled(HELD) / 2)
                        child_say(child, 1);
        }
        for (;;)
                (void)pause();
}

static void delete_all(struct folio_client *client)
{
        struct folio_stat entries[64] = { { .struct_bytes = sizeof(entries[0]) } };
        struct folio_list *list;
        int n;

        ASSERT_OK(folio_list_open(client, "", &list));
        while ((n = folio_list_next(list, entries, 64)) > 0)
                for (int i = 0; i < n; i++)
                        ASSERT_OK(folio_delete(client, entries[i].name, FOLIO_IF_EXISTS));
        ASSERT_OK(n);
        folio_list_close(list);
}

/* C15: two clients with thousands of pins and names in common end at the same moment. */
static void test_c15_ids_during_disconnect(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);

        (void)state;
        for (unsigned i = 0; i < alive_scaled(15); i++) {
                Child *holder = child_start(foliod, hold_and_delete_half, NULL);
                Child *maker = child_start(foliod, create_the_same, NULL);
                struct folio_client *client;
                struct folio_object *object;

                assert_int_equal(child_hear(holder), 1);
                child_say(maker, 1);
                assert_int_equal(child_hear(maker), 1);
                assert_int_equal(kill(holder->pid, SIGKILL), 0);
                assert_int_equal(kill(maker->pid, SIGKILL), 0);
                child_kill(holder);
                child_kill(maker);
                client = foliod_connect(foliod);
                ASSERT_OK(folio_get(client, "held 1", 0, 0, &object));
                assert_true(folio_object_size(object) == 10 || folio_object_size(object) == 3);
                assert_memory_equal(folio_object_data(object), folio_object_size(object) == 3 ? "abc" : "012", 3);
                ASSERT_OK(folio_object_release(object));
                delete_all(client);
                folio_client_unref(client);
        }
        alive_check(&before);
        foliod_stop(foliod);
}

static void map_and_end(Child *child)
{
        struct folio_client *client = child_connect(child);
        unsigned way = *(unsigned *)child->userdata;
        struct folio_object *small, *large;

        CHECK_OK(folio_get(client, "small", 0, 0, &small));
        CHECK_OK(folio_get(client, "large", 0, 0, &large));
        CHECK(harness_is_filled(folio_object_data(small), 100, 1, 0));
        CHECK(harness_is_filled(folio_object_data(large), 3 * MIB, 2, 0));
        child_say(child, 1);
        if (way == 0) {
                CHECK_OK(folio_object_release(small));
                CHECK_OK(folio_object_release(large));
                folio_client_unref(client);
                exit(0);
        } else if (way == 1) {
                _exit(0);
        } else if (way == 2) {
                (void)raise(SIGABRT);
        }
        for (;;)
                (void)pause();
}

/* D01: who only looked at an object takes nothing with him when he ends, however he ends. */
static void test_d01_reader_ends(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *bytes = malloc(3 * MIB);

        (void)state;
        assert_non_null(bytes);
        harness_fill(bytes, 100, 1);
        ASSERT_OK(folio_put(client, "small", bytes, 100, NULL));
        harness_fill(bytes, 3 * MIB, 2);
        ASSERT_OK(folio_put(client, "large", bytes, 3 * MIB, NULL));
        for (unsigned way = 0; way < 5; way++) {
                Child *child = child_start(foliod, map_and_end, &way);

                assert_int_equal(child_hear(child), 1);
                if (way >= 2) {
                        (void)kill(child->pid, way == 3 ? SIGTERM : way == 4 ? SIGKILL : SIGABRT);
                        child_kill(child);
                } else {
                        child_finish(child);
                }
                /* Writer and another reader go on. */
                ASSERT_OK(folio_read(client, "small", 0, bytes, 100));
                assert_true(harness_is_filled(bytes, 100, 1, 0));
                ASSERT_OK(folio_read(client, "large", 0, bytes, 3 * MIB));
                assert_true(harness_is_filled(bytes, 3 * MIB, 2, 0));
        }
        ASSERT_OK(folio_delete(client, "small", 0));
        ASSERT_OK(folio_delete(client, "large", 0));
        free(bytes);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void put_two_and_wait(Child *child)
{
        struct folio_create_options scoped = { .struct_bytes = sizeof(scoped), .lifetime = FOLIO_WITH_CREATOR };
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_client *client = child_connect(child);
        void *bytes = calloc(1, 8 * MIB);

        CHECK(bytes);
        CHECK_OK(folio_put(client, "scoped", bytes, 8 * MIB, &scoped));
        CHECK_OK(folio_put(client, "scoped small", bytes, 80, &scoped));
        CHECK_OK(folio_put(client, "persistent", bytes, 2 * MIB, &replace));
        child_say(child, 1);
        for (;;)
                (void)pause();
}

/* D03: kill -9 of the creator takes what was to live with it, and nothing else. */
static void test_d03_creator_killed(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        (void)state;
        for (unsigned i = 0; i < alive_scaled(60); i++) {
                Child *child = child_start(foliod, put_two_and_wait, NULL);

                assert_int_equal(child_hear(child), 1);
                assert_int_equal(folio_exists(client, "scoped"), 1);
                child_kill(child);
                AWAIT(folio_exists(client, "scoped") == 0 && folio_exists(client, "scoped small") == 0);
                assert_int_equal(folio_stat(client, "scoped", &stat), FOLIO_E_DELETED);
                assert_int_equal(folio_exists(client, "persistent"), 1);
        }
        ASSERT_OK(folio_stat(client, "persistent", &stat));
        assert_int_equal(stat.lifetime, FOLIO_UNTIL_DELETED);
        ASSERT_OK(folio_delete(client, "persistent", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void wait_for_it(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;
        struct folio_watch *watch;

        CHECK_OK(folio_watch_open(client, "", 0, &watch));
        CHECK(folio_watch_get_fd(watch) >= 0);
        child_say(child, 1);
        (void)folio_get(client, "awaited", 0, FOLIO_TIMEOUT_FOREVER, &object);
        for (;;)
                (void)pause();
}

/* D06: an answer to somebody who is dead, or does not listen any more, is not the daemon's problem. */
static void test_d06_answering_a_dead_client(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);

        (void)state;
        for (unsigned i = 0; i < alive_scaled(100); i++) {
                Child *child = child_start(foliod, wait_for_it, NULL);

                assert_int_equal(child_hear(child), 1);
                assert_int_equal(kill(child->pid, SIGKILL), 0);
                ASSERT_OK(folio_put(client, "awaited", "x", 1, NULL));
                child_kill(child);
                ASSERT_OK(folio_delete(client, "awaited", 0));
        }
        for (unsigned i = 0; i < alive_scaled(300); i++) {
                Raw *raw = raw_open(foliod);
                ProtoRequest status = { .verb = VERB_STATUS };

                /* Many answers for nobody. */
                for (unsigned j = 0; j < 20; j++) {
                        status.id = 0;
                        if (j == 3 && i % 2)
                                (void)shutdown(raw->socket, SHUT_RD);
                        if (!raw_send(raw, &status, false, NULL, 0))
                                break;
                }
                raw_close(raw);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void wait_for_the_dead(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object = NULL;
        struct rusage before, after;
        uint64_t cpu_us;

        CHECK(folio_get(client, "unsealed", 0, 0, &object) == FOLIO_E_WRITING);
        (void)getrusage(RUSAGE_SELF, &before);
        CHECK(folio_get(client, "unsealed", 0, 700, &object) == FOLIO_E_TIMEOUT);
        (void)getrusage(RUSAGE_SELF, &after);
        cpu_us = (uint64_t)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec -
                            before.ru_stime.tv_sec) *
                         1000000 +
                 (uint64_t)(after.ru_utime.tv_usec + after.ru_stime.tv_usec) -
                 (uint64_t)(before.ru_utime.tv_usec + before.ru_stime.tv_usec);
        /* Who spins uses all of the time that he waits. */
        CHECK(cpu_us < 350000);
        child_say(child, 1);
        CHECK(folio_get(client, "unsealed", 0, 30000, &object) == FOLIO_E_WRITER_DIED);
        CHECK(object == NULL);
        folio_client_unref(client);
}

/* Sleeps on a futex, as far as the kernel lets us look. */
static bool is_waiting(pid_t pid)
{
        char path[64], line[128] = "";
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
        file = fopen(path, "re");
        if (!file)
                return true;
        if (!fgets(line, sizeof(line), file))
                line[0] = '\0';
        fclose(file);
        return strtol(line, NULL, 10) == SYS_futex;
}

/* D15: killed between create and seal: who waits is told, without having spun. */
static void test_d15_creator_killed_before_seal(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        Child *writer = child_start(foliod, create_and_wait, NULL), *reader;

        (void)state;
        assert_int_equal(child_hear(writer), 1);
        reader = child_start(foliod, wait_for_the_dead, NULL);
        assert_int_equal(child_hear(reader), 1);
        /* Who begins to wait when the writer is dead already waits for another one. */
        AWAIT(is_waiting(reader->pid));
        child_kill(writer);
        child_finish(reader);
        assert_int_equal(folio_stat(client, "unsealed", &stat), FOLIO_E_WRITER_DIED);
        /* The name is free for another. */
        ASSERT_OK(folio_put(client, "unsealed", "x", 1, NULL));
        ASSERT_OK(folio_delete(client, "unsealed", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Everything a client can do, over and over, all of it to end with the client. */
static void do_anything(Child *child)
{
        struct folio_create_options scoped = { .struct_bytes = sizeof(scoped),
                                               .lifetime = FOLIO_WITH_CREATOR,
                                               .flags = FOLIO_REPLACE };
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable),
                                                .lifetime = FOLIO_WITH_CREATOR,
                                                .flags = FOLIO_REPLACE | FOLIO_MUTABLE,
                                                .capacity_bytes = 3 * MIB };
        struct folio_create_options stream = { .struct_bytes = sizeof(stream),
                                               .lifetime = FOLIO_WITH_CREATOR,
                                               .flags = FOLIO_REPLACE | FOLIO_STREAM };
        struct folio_client *client = child_connect(child);
        uint8_t *bytes = calloc(1, 3 * MIB);
        struct folio_object *object;
        void *data;

        CHECK(bytes);
        child_say(child, 1);
        for (unsigned i = 0;; i++) {
                char name[32], again[32], changing[32];

                (void)snprintf(name, sizeof(name), "%d any %u", (int)getpid(), i % 7);
                (void)snprintf(again, sizeof(again), "%d again", (int)getpid());
                (void)snprintf(changing, sizeof(changing), "%d changing", (int)getpid());
                CHECK_OK(folio_put(client, name, bytes, i % 3 ? 1000 : 2 * MIB, &scoped));
                CHECK_OK(folio_get(client, name, 0, 0, &object));
                CHECK_OK(folio_create(client, again, 2 * MIB, &scoped, &object));
                CHECK_OK(folio_object_map_write(object, &data));
                memset(data, 1, 2 * MIB);
                CHECK_OK(folio_object_seal(object));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_create(client, again, 1000, &scoped, &object));
                CHECK_OK(folio_object_write(object, 0, bytes, 1000));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_create(client, changing, 100, &mutable, &object));
                CHECK_OK(folio_truncate(client, changing, 2 * MIB));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_create(client, again, 0, &stream, &object));
                CHECK_OK(folio_object_write(object, 0, bytes, 2 * MIB + 5));
                CHECK_OK(folio_object_seal(object));
                CHECK_OK(folio_object_release(object));
                if (i % 8 == 7)
                        CHECK_OK(folio_delete(client, name, 0));
        }
}

/* Issue: kill -9 of a client at any point, and all that was its own is gone. */
static void test_kill_at_any_point(void **state)
{
        /* Every round keeps handles of objects it has replaced, so a child cannot go on for ever. */
        Foliod *foliod = foliod_start("--budget", "1G", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        uint32_t random = 12345;

        (void)state;
        for (unsigned i = 0; i < alive_scaled(60); i++) {
                Child *children[2] = { child_start(foliod, do_anything, NULL), child_start(foliod, do_anything, NULL) };

                for (unsigned j = 0; j < 2; j++)
                        assert_int_equal(child_hear(children[j]), 1);
                for (unsigned j = 0; j < 2; j++) {
                        /* No wait for something, but the random point. */
                        random = random * 1664525 + 1013904223;
                        (void)usleep(random >> 18);
                        child_kill(children[j]);
                }
                await_no_unsealed(foliod);
        }
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_a13_unsealed_of_a_dead_client),
                INTEGRATION_TEST(test_c04_destroyed_right_after_publishing),
                INTEGRATION_TEST(test_c13_delete_under_a_view),
                INTEGRATION_TEST(test_c15_ids_during_disconnect),
                INTEGRATION_TEST(test_d01_reader_ends),
                INTEGRATION_TEST(test_d03_creator_killed),
                INTEGRATION_TEST(test_d06_answering_a_dead_client),
                INTEGRATION_TEST(test_d15_creator_killed_before_seal),
                INTEGRATION_TEST(test_kill_at_any_point),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
