/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many of them: objects in a client, descriptors in a message, requests under way, sessions one after the other. What
 * grows is counted, on both sides, and is back at the end.
 */
#include "tests/integration/alive.h"
#include "tests/integration/raw.h"

#include <pthread.h>
#include <sys/resource.h>

#define MIB (UINT64_C(1) << 20)

static unsigned count_own_mappings(void)
{
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[1024];
        unsigned n = 0;

        CHECK(maps);
        while (fgets(line, sizeof(line), maps))
                if (strstr(line, "memfd:") || strstr(line, "(deleted)"))
                        n++;
        fclose(maps);
        return n;
}

enum { MANY_OWN = 5000, MANY_SMALL = 100000 };

/* In a child: an array of @n names, put in one batch, of 16 bytes each that tell which one it is. */
static char (*put_names(struct folio_client *client, const char *prefix, size_t n, uint32_t flags))[24]
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        struct folio_put_item *items = calloc(n, sizeof(*items));
        char(*names)[24] = calloc(n, sizeof(*names));

        CHECK(items && names);
        for (size_t i = 0; i < n; i++) {
                (void)snprintf(names[i], sizeof(names[i]), "%s %zu", prefix, i);
                items[i] = (struct folio_put_item){
                        .name = names[i], .data = names[i], .size_bytes = 16, .options = &options
                };
        }
        CHECK(folio_put_many(client, items, n) == 0);
        free(items);
        return names;
}

static void delete_names(struct folio_client *client, char (*names)[24], size_t n)
{
        struct folio_delete_item *items = calloc(n, sizeof(*items));

        CHECK(items);
        for (size_t i = 0; i < n; i++)
                items[i] = (struct folio_delete_item){ .name = names[i] };
        CHECK(folio_delete_many(client, items, n) == 0);
        free(items);
        free(names);
}

static void map_many_with_few_fds(Child *child)
{
        struct rlimit few = { .rlim_cur = 1024, .rlim_max = 1024 };
        unsigned n_own = alive_scaled(MANY_OWN), n_small = alive_scaled(MANY_SMALL), n_fds;
        struct folio_client *client;
        char(*own)[24], (*small)[24];
        struct folio_get_item *gets = calloc(n_own, sizeof(*gets));
        struct folio_read_item *reads = calloc(n_small, sizeof(*reads));
        char(*buffers)[16] = calloc(n_small, sizeof(*buffers));
        void *probe;

        CHECK(gets && reads && buffers);
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        client = child_connect(child);
        own = put_names(client, "own", n_own, FOLIO_OWN_REGION);
        small = put_names(client, "small", n_small, 0);
        n_fds = harness_count_own_fds();
        for (unsigned i = 0; i < n_own; i++)
                gets[i] = (struct folio_get_item){ .name = own[i] };
        CHECK(folio_get_many(client, gets, n_own, 0, 0) == 0);
        for (unsigned i = 0; i < n_own; i++)
                CHECK(memcmp(folio_object_data(gets[i].object), own[i], 16) == 0);
        /* All of them are held and mapped; their descriptors are not kept. */
        CHECK(harness_count_own_fds() <= n_fds + 2);
        for (unsigned i = 0; i < n_small; i++)
                reads[i] = (struct folio_read_item){ .name = small[i], .buffer = buffers[i], .n_bytes = 16 };
        CHECK(folio_read_many(client, reads, n_small) == 0);
        for (unsigned i = 0; i < n_small; i++)
                CHECK(memcmp(buffers[i], small[i], 16) == 0);
        CHECK(harness_count_own_fds() <= n_fds + 2);
        /* The program's own memory and descriptors are not in the way. */
        probe = malloc(8 * MIB);
        CHECK(probe);
        free(probe);
        for (unsigned i = 0; i < n_own; i++)
                CHECK_OK(folio_object_release(gets[i].object));
        delete_names(client, own, n_own);
        delete_names(client, small, n_small);
        free(gets);
        free(reads);
        free(buffers);
        folio_client_unref(client);
}

/* E03: a client with few descriptors to spare holds thousands of objects, and reads a hundred thousand. */
static void test_e03_few_descriptors(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);

        (void)state;
        child_finish(child_start(foliod, map_many_with_few_fds, NULL));
        /* An index that has been full keeps its pages: it is memory of the store. */
        before.memory_bytes += (MANY_OWN + MANY_SMALL) * UINT64_C(200);
        alive_check(&before);
        foliod_stop(foliod);
}

/* E06: batches around the number of descriptors that fit in a message: all of them, in order. */
static void test_e06_descriptors_in_a_message(void **state)
{
        static const size_t counts[] = { 1, 28, 29, 249, 250, 251, 252, 253, 254, 255, 256, 257, 1000 };
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);

        (void)state;
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                /* A new client each time: it has none of them mapped. */
                struct folio_client *writer = foliod_connect(foliod), *client = foliod_connect(foliod);
                char(*names)[24] = put_names(writer, "batch", counts[i], FOLIO_OWN_REGION);
                struct folio_get_item *items = calloc(counts[i], sizeof(*items));

                assert_non_null(items);
                for (size_t j = 0; j < counts[i]; j++)
                        items[j] = (struct folio_get_item){ .name = names[j] };
                assert_int_equal(folio_get_many(client, items, counts[i], 0, 0), 0);
                for (size_t j = 0; j < counts[i]; j++) {
                        assert_int_equal(items[j].error, 0);
                        assert_memory_equal(folio_object_data(items[j].object), names[j], 16);
                        ASSERT_OK(folio_object_release(items[j].object));
                }
                free(items);
                delete_names(writer, names, counts[i]);
                folio_client_unref(client);
                folio_client_unref(writer);
        }
        alive_check(&before);
        foliod_stop(foliod);
}

static void release_it(struct folio_object *object, int *ret)
{
        *ret = folio_object_release(object);
}

typedef struct Race {
        struct folio_object *object;
        int error;
} Race;

static void *release_in_thread(void *userdata)
{
        Race *race = userdata;

        release_it(race->object, &race->error);
        return NULL;
}

static void assert_is_no_handle(struct folio_object *object)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        char byte;
        void *data;

        assert_int_equal(folio_object_release(object), FOLIO_E_INVALID);
        assert_int_equal(folio_object_abort(object), FOLIO_E_INVALID);
        assert_int_equal(folio_object_seal(object), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write(object, 0, "x", 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_read(object, 0, &byte, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_truncate(object, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_map_write(object, &data), FOLIO_E_INVALID);
        assert_int_equal(folio_object_metadata(object, &byte, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_stat(object, &stat), FOLIO_E_INVALID);
        assert_int_equal(folio_object_size(object), 0);
        assert_null(folio_object_data(object));
}

/*
 * D21: a handle released twice, one that never was, a pointer into an object, after the client, from two threads at
 * once.
 */
static void test_d21_double_release(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *kept, *object, *late;

        (void)state;
        ASSERT_OK(folio_put(client, "kept", "0123456789", 10, NULL));
        ASSERT_OK(folio_get(client, "kept", 0, 0, &kept));
        ASSERT_OK(folio_get(client, "kept", 0, 0, &object));
        ASSERT_OK(folio_object_release(object));
        assert_is_no_handle(object);
        assert_is_no_handle(NULL);
        assert_is_no_handle((struct folio_object *)(uintptr_t)1);
        assert_is_no_handle((struct folio_object *)(uintptr_t)UINTPTR_MAX);
        assert_is_no_handle((struct folio_object *)(uintptr_t)client);
        assert_is_no_handle((struct folio_object *)((uintptr_t)folio_object_data(kept) + 3));
        assert_is_no_handle((struct folio_object *)((uintptr_t)kept + 1));
        for (unsigned i = 0; i < alive_scaled(300); i++) {
                Race races[2];
                pthread_t threads[2];

                ASSERT_OK(folio_get(client, "kept", 0, 0, &object));
                for (unsigned j = 0; j < 2; j++) {
                        races[j].object = object;
                        assert_int_equal(pthread_create(&threads[j], NULL, release_in_thread, &races[j]), 0);
                }
                for (unsigned j = 0; j < 2; j++)
                        assert_int_equal(pthread_join(threads[j], NULL), 0);
                /* One of them did it. */
                assert_true((races[0].error == 0) != (races[1].error == 0));
                assert_true(races[0].error + races[1].error == FOLIO_E_INVALID);
        }
        /* Nothing else was released. */
        assert_int_equal(folio_object_size(kept), 10);
        assert_memory_equal(folio_object_data(kept), "0123456789", 10);
        ASSERT_OK(folio_get(client, "kept", 0, 0, &late));
        ASSERT_OK(folio_object_release(kept));
        ASSERT_OK(folio_delete(client, "kept", 0));
        folio_client_unref(client);
        ASSERT_OK(folio_object_release(late));
        assert_is_no_handle(late);
        alive_check(&before);
        foliod_stop(foliod);
}

enum { FRAMES = 16, FRAME_BYTES = 7056012 };

/* D25: connect, map a ring of frames, close; again and again. Mappings and descriptors are what they were. */
static void test_d25_mapping_leak_per_session(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *writer = foliod_connect(foliod);
        uint8_t *bytes = malloc(FRAME_BYTES);
        unsigned n_fds = 0, n_mappings = 0;
        char name[32];

        (void)state;
        assert_non_null(bytes);
        for (unsigned i = 0; i < FRAMES; i++) {
                (void)snprintf(name, sizeof(name), "frame %u", i);
                harness_fill(bytes, FRAME_BYTES, i);
                ASSERT_OK(folio_put(writer, name, bytes, FRAME_BYTES, NULL));
        }
        for (unsigned session = 0; session < alive_scaled(200); session++) {
                struct folio_client *client = foliod_connect(foliod);
                struct folio_object *frames[FRAMES];

                for (unsigned i = 0; i < FRAMES; i++) {
                        const uint8_t *data;

                        (void)snprintf(name, sizeof(name), "frame %u", i);
                        ASSERT_OK(folio_get(client, name, 0, 0, &frames[i]));
                        data = folio_object_data(frames[i]);
                        assert_true(harness_is_filled(data + session * 8, 4096, i, session * 8));
                }
                for (unsigned i = 0; i < FRAMES; i++)
                        ASSERT_OK(folio_object_release(frames[i]));
                folio_client_unref(client);
                if (session == 1) {
                        n_fds = harness_count_own_fds();
                        n_mappings = count_own_mappings();
                }
        }
        assert_int_equal(harness_count_own_fds(), n_fds);
        assert_int_equal(count_own_mappings(), n_mappings);
        for (unsigned i = 0; i < FRAMES; i++) {
                (void)snprintf(name, sizeof(name), "frame %u", i);
                ASSERT_OK(folio_delete(writer, name, 0));
        }
        free(bytes);
        folio_client_unref(writer);
        alive_check(&before);
        foliod_stop(foliod);
}

typedef struct Pipelined {
        unsigned n_ok;
        unsigned n_gone;
        unsigned n_cancelled;
        unsigned n_other;
        bool was_deleted;
} Pipelined;

static void count_completion(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Pipelined *pipelined = userdata;

        (void)client;
        if (object)
                (void)folio_object_release(object);
        if (error == 0)
                pipelined->n_ok++;
        else if (error == FOLIO_E_DELETED || error == FOLIO_E_NOT_FOUND)
                pipelined->n_gone++;
        else if (error == FOLIO_E_CANCELLED)
                pipelined->n_cancelled++;
        else
                pipelined->n_other++;
}

static void note_deletion(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        (void)client;
        (void)object;
        ((Pipelined *)userdata)->was_deleted = error == 0 || error == FOLIO_E_CANCELLED;
}

enum { N_REQUESTS = 1000, PIECE = 4096 };

/*
 * Of a sealed object, or, in odd rounds, of one that is truncated in between. Rounds 0 and 1 do not wait for any
 * answer.
 */
static void delete_under_way(Foliod *foliod, unsigned round, uint8_t *bytes, uint8_t *pieces)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable),
                                                .flags = FOLIO_MUTABLE,
                                                .capacity_bytes = 4 * MIB };
        struct folio_client *writer = foliod_connect(foliod), *client = foliod_connect(foliod);
        Pipelined pipelined = { 0 };
        struct folio_object *object;

        harness_fill(bytes, 4 * MIB, round);
        if (round % 2) {
                ASSERT_OK(folio_create(writer, "under way", 4 * MIB, &mutable, &object));
                ASSERT_OK(folio_object_write(object, 0, bytes, 4 * MIB));
                ASSERT_OK(folio_object_release(object));
        } else {
                ASSERT_OK(folio_put(writer, "under way", bytes, 4 * MIB, NULL));
        }
        for (unsigned i = 0; i < N_REQUESTS; i++) {
                if (round % 2 && i % 2)
                        ASSERT_OK(folio_truncate_async(client, "under way", 4 * MIB - i, count_completion, &pipelined));
                else
                        ASSERT_OK(folio_read_async(client, "under way", (uint64_t)i * 64, pieces + (size_t)i * PIECE,
                                                   PIECE, count_completion, &pipelined));
        }
        ASSERT_OK(folio_delete_async(client, "under way", 0, note_deletion, &pipelined));
        while (round >= 2 && !pipelined.was_deleted) {
                struct pollfd ready = { .fd = folio_client_get_fd(client) };

                ready.events = (short)folio_client_get_events(client);
                assert_int_equal(poll(&ready, 1, 20000), 1);
                assert_true(folio_client_process(client) >= 0);
        }
        folio_client_unref(client);
        assert_true(pipelined.was_deleted);
        assert_int_equal(pipelined.n_ok + pipelined.n_gone + pipelined.n_cancelled, N_REQUESTS);
        assert_int_equal(pipelined.n_other, 0);
        for (unsigned i = 0; round % 2 == 0 && pipelined.n_ok == N_REQUESTS && i < N_REQUESTS; i++)
                assert_true(harness_is_filled(pieces + (size_t)i * PIECE, PIECE, round, (size_t)i * 64));
        (void)folio_delete(writer, "under way", FOLIO_IF_EXISTS);
        folio_client_unref(writer);
}

/* Fifty in a row, and the deletion; the answers are read in order, or by nobody. */
static void delete_under_way_by_hand(Foliod *foliod, bool is_read)
{
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        ProtoItem item = {
                .key = raw_key("by hand"), .size_bytes = 3 * MIB, .capacity_bytes = 3 * MIB, .flags = FOLIO_MUTABLE
        };
        ProtoRequest request = { .verb = VERB_TRUNCATE, .namespace_id = id, .n_items = 1, .items = &item };
        struct folio_client *client;

        assert_int_equal(raw_item(raw, VERB_CREATE, id, item), STATUS_OK);
        item = (ProtoItem){ .key = raw_key("by hand") };
        for (unsigned i = 0; i < 50; i++) {
                item.size_bytes = i * 50000;
                request.id = 0;
                assert_true(raw_send(raw, &request, false, NULL, 0));
        }
        request.verb = VERB_DELETE;
        request.id = 0;
        item.size_bytes = 0;
        assert_true(raw_send(raw, &request, false, NULL, 0));
        while (is_read && raw_receive(raw)) {
                assert_int_equal(raw->reply.items[0].status, STATUS_OK);
                if (raw->reply.id == request.id)
                        break;
        }
        raw_close(raw);
        client = foliod_connect(foliod);
        /* Who does not wait for the answer cannot know whether it is gone. */
        if (is_read)
                assert_int_equal(folio_exists(client, "by hand"), 0);
        ASSERT_OK(folio_delete(client, "by hand", FOLIO_IF_EXISTS));
        folio_client_unref(client);
}

/* C16: a thousand requests of an object under way, then its deletion, then the end of the client. */
static void test_c16_deleted_with_requests_under_way(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        uint8_t *bytes = malloc(4 * MIB), *pieces = malloc((size_t)N_REQUESTS * PIECE);

        (void)state;
        assert_non_null(bytes);
        assert_non_null(pieces);
        for (unsigned round = 0; round < 6; round++)
                delete_under_way(foliod, round, bytes, pieces);
        for (unsigned round = 0; round < alive_scaled(100); round++)
                delete_under_way_by_hand(foliod, round % 2);
        free(bytes);
        free(pieces);
        alive_check(&before);
        foliod_stop(foliod);
}

static void come_and_go(Child *child)
{
        for (unsigned i = 0; i < alive_scaled(40); i++) {
                struct folio_client *client = child_connect(child);
                char name[32];

                (void)snprintf(name, sizeof(name), "come %d", (int)getpid());
                CHECK_OK(folio_put(client, name, "x", 1, NULL));
                CHECK(folio_exists(client, name) == 1);
                CHECK_OK(folio_delete(client, name, 0));
                folio_client_unref(client);
        }
}

/* After all clients are gone the daemon is what it was at the start: also after many of them, at once and in turn. */
static void test_nothing_is_left_of_clients(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *clients[40];
        Child *children[6];

        (void)state;
        for (unsigned i = 0; i < 6; i++)
                children[i] = child_start(foliod, come_and_go, NULL);
        for (unsigned i = 0; i < 40; i++)
                clients[i] = foliod_connect(foliod);
        for (unsigned i = 0; i < 6; i++)
                child_finish(children[i]);
        for (unsigned i = 0; i < 40; i++)
                folio_client_unref(clients[i]);
        alive_check(&before);
        foliod_stop(foliod);

        /* With the warm pool at work the daemon's own memory moves, but not what clients are charged for. */
        foliod = foliod_start("--budget", "256M", NULL);
        for (unsigned i = 0; i < 6; i++)
                children[i] = child_start(foliod, come_and_go, NULL);
        for (unsigned i = 0; i < 6; i++)
                child_finish(children[i]);
        clients[0] = foliod_connect(foliod);
        AWAIT(alive_charges(clients[0]).n_objects == 0 && alive_charges(clients[0]).unsealed_bytes == 0 &&
              alive_charges(clients[0]).held_bytes == 0);
        folio_client_unref(clients[0]);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_e03_few_descriptors),
                INTEGRATION_TEST(test_e06_descriptors_in_a_message),
                INTEGRATION_TEST(test_c16_deleted_with_requests_under_way),
                INTEGRATION_TEST(test_d21_double_release),
                INTEGRATION_TEST(test_d25_mapping_leak_per_session),
                INTEGRATION_TEST(test_nothing_is_left_of_clients),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
