/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring, from outside: a program that puts and deletes without waiting sees what it has done at once, whichever call
 * it asks by, in every thread; others see it when they have been told to look; and it makes no difference which
 * requests go through the ring and which through the socket (see test-ring-order.c too). Everything in a namespace whose writers are trusted, and
 * in one where they are not.
 */
#include "tests/integration/spaces.h"

#include <pthread.h>
#include <sys/socket.h>

#define MIB (UINT64_C(1) << 20)

/* --- ten thousand steps against a model --------------------------------------------------------------------------- */

enum { N_NAMES = 24, N_STEPS = 10000, BYTES_MAX = 2 << 20 };

typedef struct Model {
        char name[160];
        bool exists;
        uint64_t size_bytes, seed;
} Model;

typedef struct Promise {             /* of an asynchronous call: what it must come to */
        bool is_success;
        unsigned *n_open;
        char name[160];
        uint8_t *bytes;
} Promise;

typedef struct World {
        struct folio_client *client;
        uint64_t random, n_seeds;
        unsigned n_open;
        Model models[N_SPACES * N_NAMES];
        uint8_t *bytes, *read;
} World;

static uint64_t draw(World *world, uint64_t n)
{
        world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (world->random >> 33) % n;
}

/* Mostly what fits in a record's worth of staging; some that wait for their result, some with a region of their own. */
static uint64_t draw_size(World *world)
{
        switch (draw(world, 32)) {
        case 0:
                return 0;
        case 1:
                return 64 * 1024 + draw(world, 512 * 1024);
        case 2:
                return draw(world, 8) ? 5000 : MIB + draw(world, MIB);
        default:
                return 1 + draw(world, 3000);
        }
}

static void check_model(struct folio_client *client, const char *whose, const Model *model, uint8_t *buffer)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        int error = folio_stat(client, model->name, &stat);

        if (model->exists != (error == 0))
                fail_msg("%s is %s, and %s stat answers %d, \"%s\", state %u", model->name,
                         model->exists ? "there" : "not there", whose, error,
                         error ? folio_strerror_full() : "no error", stat.state);
        assert_int_equal(folio_exists(client, model->name), model->exists);
        if (!model->exists)
                return;
        assert_int_equal(stat.size_bytes, model->size_bytes);
        assert_int_equal(stat.state, FOLIO_STATE_SEALED);
        ASSERT_OK(folio_read(client, model->name, 0, buffer, model->size_bytes));
        if (!harness_is_filled(buffer, model->size_bytes, model->seed, 0))
                fail_msg("%s has other bytes", model->name);
}

static void expect(const Model *model, const char *what, int answer, bool is_success)
{
        if ((answer == 0) != is_success)
                fail_msg("%s of %s answered %d: \"%s\"", what, model->name, answer, folio_strerror_full());
}

static void note_put(World *world, Model *model, uint64_t n_bytes, bool is_success)
{
        if (!is_success)
                return;
        model->exists = true;
        model->size_bytes = n_bytes;
        model->seed = world->n_seeds;
}

static void do_put(World *world, Model *model, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        bool is_success = !model->exists || flags & FOLIO_REPLACE;
        uint64_t n_bytes = draw_size(world);

        /* Now and then one that no record has room for. */
        options.content_type = draw(world, 16) == 0 ? "text/plain" : NULL;
        harness_fill(world->bytes, n_bytes, ++world->n_seeds);
        expect(model, "put", folio_put(world->client, model->name, world->bytes, n_bytes, &options), is_success);
        /* They are the caller's again. */
        memset(world->bytes, 0x5a, n_bytes);
        note_put(world, model, n_bytes, is_success);
}

static void do_create(World *world, Model *model, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        bool is_success = !model->exists || flags & FOLIO_REPLACE, is_mapped = draw(world, 2);
        uint64_t n_bytes = draw_size(world);
        struct folio_object *object;
        void *place;
        int error = folio_create(world->client, model->name, n_bytes, &options, &object);

        expect(model, "create", error, is_success);
        if (!is_success)
                return;
        world->n_seeds++;
        if (is_mapped) {
                ASSERT_OK(folio_object_map_write(object, &place));
                harness_fill(place, n_bytes, world->n_seeds);
        } else {
                harness_fill(world->bytes, n_bytes, world->n_seeds);
                ASSERT_OK(folio_object_write(object, 0, world->bytes, n_bytes));
        }
        if (draw(world, 8) == 0) {
                ASSERT_OK(folio_object_abort(object));
                return;
        }
        ASSERT_OK(folio_object_seal(object));
        if (draw(world, 2) && n_bytes > 0)
                assert_true(harness_is_filled(folio_object_data(object), n_bytes, world->n_seeds, 0));
        ASSERT_OK(folio_object_release(object));
        note_put(world, model, n_bytes, true);
}

static void on_promise(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Promise *promise = userdata;

        (void)client;
        (void)object;
        if ((error == 0) != promise->is_success)
                fail_msg("an asynchronous %s about %s answered %d, \"%s\", and was to %s", promise->bytes ? "put" : "delete",
                         promise->name, error, error ? folio_strerror_full() : "no error",
                         promise->is_success ? "succeed" : "fail");
        (*promise->n_open)--;
        free(promise->bytes);
        free(promise);
}

static void do_async(World *world, Model *model, bool is_delete)
{
        uint64_t n_bytes = 1 + draw(world, 3000);
        Promise *promise = calloc(1, sizeof(*promise));

        assert_non_null(promise);
        promise->is_success = is_delete == model->exists;
        promise->n_open = &world->n_open;
        memcpy(promise->name, model->name, sizeof(promise->name));
        world->n_open++;
        if (is_delete) {
                ASSERT_OK(folio_delete_async(world->client, model->name, 0, on_promise, promise));
                model->exists = false;
                return;
        }
        promise->bytes = malloc(n_bytes);
        assert_non_null(promise->bytes);
        harness_fill(promise->bytes, n_bytes, ++world->n_seeds);
        note_put(world, model, n_bytes, promise->is_success);
        ASSERT_OK(folio_put_async(world->client, model->name, promise->bytes, n_bytes, NULL, on_promise, promise));
}

static void settle(World *world)
{
        while (world->n_open) {
                struct pollfd ready = { .fd = folio_client_get_fd(world->client),
                                        .events = (short)folio_client_get_events(world->client) };

                assert_true(poll(&ready, 1, 20000) == 1);
                assert_true(folio_client_process(world->client) >= 0);
        }
}

static void step(World *world)
{
        Model *model = &world->models[draw(world, N_SPACES * N_NAMES)];
        unsigned what = (unsigned)draw(world, 20);
        int error;

        if (what < 5)
                do_put(world, model, 0);
        else if (what < 9)
                do_put(world, model, FOLIO_REPLACE);
        else if (what < 13) {
                error = folio_delete(world->client, model->name, 0);
                expect(model, "delete", error, model->exists);
                model->exists = false;
        } else if (what < 15)
                do_create(world, model, draw(world, 4) ? 0 : FOLIO_OWN_REGION);
        else if (what < 16)
                do_create(world, model, FOLIO_REPLACE);
        else if (what < 17)
                do_async(world, model, draw(world, 2));
        else if (world->n_open)
                settle(world);
        else
                check_model(world->client, "its own", model, world->read);
}

static void name_models(World *world)
{
        for (unsigned i = 0; i < N_SPACES * N_NAMES; i++) {
                Model *model = &world->models[i];

                /* One in four is too long for a record. */
                (void)snprintf(model->name, sizeof(model->name), "%s:model-%02u%s", spaces_names[i / N_NAMES], i,
                               i % 4 == 3 ? "-whose-key-is-longer-than-the-seventy-two-bytes-that-a-record-has-room-for"
                                            "-so-it-takes-the-socket" :
                                            "");
        }
}

static void test_model(void **state)
{
        const char *seed = getenv("FOLIO_TEST_SEED");
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *other = foliod_connect(foliod);
        World *world = calloc(1, sizeof(*world));
        unsigned n_there = 0;

        (void)state;
        assert_non_null(world);
        world->random = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
        print_message("# FOLIO_TEST_SEED=%llu\n", (unsigned long long)world->random);
        world->client = foliod_connect_with(foliod, 0);
        world->bytes = malloc(BYTES_MAX);
        world->read = malloc(BYTES_MAX);
        assert_true(world->bytes && world->read);
        name_models(world);
        for (unsigned i = 0; i < alive_scaled(N_STEPS); i++)
                step(world);
        settle(world);
        ASSERT_OK(folio_flush(world->client));
        for (unsigned i = 0; i < N_SPACES * N_NAMES; i++) {
                check_model(other, "another's", &world->models[i], world->read);
                check_model(world->client, "its own", &world->models[i], world->read);
                n_there += world->models[i].exists;
        }
        assert_int_equal(spaces_count(other, "default:model-") + spaces_count(other, "trusted:model-"), n_there);
        for (unsigned i = 0; i < N_SPACES * N_NAMES; i++)
                ASSERT_OK(folio_delete(world->client, world->models[i].name, FOLIO_IF_EXISTS));
        folio_client_unref(world->client);
        folio_client_unref(other);
        free(world->bytes);
        free(world->read);
        free(world);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- read your own writes ----------------------------------------------------------------------------------------- */

/* Each way to ask, right after the put (or replacement), and right after the delete. */
static void see_there(struct folio_client *client, const char *name, uint64_t value, unsigned way)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_get_item get = { .name = name };
        struct folio_stat_item asked = { .name = name, .stat = &stat };
        struct folio_object *object;
        uint64_t read = 0;
        struct folio_read_item item = { .name = name, .buffer = &read, .n_bytes = sizeof(read) };

        switch (way % 7) {
        case 0:
                CHECK(folio_exists(client, name) == 1);
                return;
        case 1:
                CHECK_OK(folio_stat(client, name, &stat));
                CHECK(stat.size_bytes == sizeof(value));
                return;
        case 2:
                CHECK_OK(folio_get(client, name, 0, 0, &object));
                memcpy(&read, folio_object_data(object), sizeof(read));
                CHECK_OK(folio_object_release(object));
                break;
        case 3:
                CHECK_OK(folio_read(client, name, 0, &read, sizeof(read)));
                break;
        case 4:
                CHECK(folio_get_many(client, &get, 1, 0, 0) == 0);
                memcpy(&read, folio_object_data(get.object), sizeof(read));
                CHECK_OK(folio_object_release(get.object));
                break;
        case 5:
                CHECK(folio_read_many(client, &item, 1) == 0);
                break;
        case 6:
                CHECK(folio_stat_many(client, &asked, 1) == 0);
                CHECK(stat.size_bytes == sizeof(value));
                CHECK(spaces_count(client, name) == 1);
                return;
        }
        CHECK(read == value);
}

static void see_gone(struct folio_client *client, const char *name, unsigned way)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_get_item get = { .name = name };
        struct folio_holder holder = { .struct_bytes = sizeof(holder) };
        struct folio_object *object;
        uint64_t read;

        switch (way % 7) {
        case 0:
                CHECK(folio_exists(client, name) == 0);
                break;
        case 1:
                CHECK(folio_stat(client, name, &stat) == FOLIO_E_DELETED);
                break;
        case 2:
                CHECK(folio_get(client, name, 0, 0, &object) == FOLIO_E_DELETED);
                break;
        case 3:
                CHECK(folio_read(client, name, 0, &read, sizeof(read)) == FOLIO_E_DELETED);
                break;
        case 4:
                CHECK(folio_get_many(client, &get, 1, 0, 0) == 1 && get.error == FOLIO_E_DELETED);
                break;
        case 5:
                CHECK(folio_holders(client, name, &holder, 1) < 0);
                break;
        case 6:
                CHECK(spaces_count(client, name) == 0);
                break;
        }
}

static void see_own(struct folio_client *client, const char *space)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_object *object;
        char name[64];

        for (uint64_t i = 0; i < alive_scaled(3000); i++) {
                uint64_t next = i + 1;

                (void)snprintf(name, sizeof(name), "%s:own-%u-", space, (unsigned)i % 50);
                CHECK_OK(folio_put(client, name, &i, sizeof(i), NULL));
                see_there(client, name, i, (unsigned)i);
                CHECK_OK(folio_put(client, name, &next, sizeof(next), &replace));
                see_there(client, name, next, (unsigned)(i / 7));
                CHECK(folio_put(client, name, &i, sizeof(i), NULL) == FOLIO_E_EXISTS);
                CHECK_OK(folio_delete(client, name, 0));
                see_gone(client, name, (unsigned)i);
                CHECK_OK(folio_create(client, name, sizeof(i), NULL, &object));
                CHECK(folio_exists(client, name) == 0);
                CHECK_OK(folio_object_write(object, 0, &i, sizeof(i)));
                CHECK_OK(folio_object_seal(object));
                see_there(client, name, i, (unsigned)(i / 3));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_delete(client, name, 0));
                see_gone(client, name, (unsigned)(i / 5));
        }
}

static void test_read_your_own(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        for (unsigned i = 0; i < N_SPACES; i++)
                see_own(client, spaces_names[i]);
        ASSERT_OK(folio_flush(client));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Two threads that pass one name to each other: what one has done the other sees, of the same client. */
typedef struct Pair {
        struct folio_client *client;
        const char *space;
        int ends[2];
        unsigned n_rounds;
} Pair;

static void pass(int fd, uint64_t round)
{
        CHECK(send(fd, &round, sizeof(round), MSG_NOSIGNAL) == sizeof(round));
}

static void await_pass(int fd, uint64_t round)
{
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        uint64_t heard = 0;

        CHECK(poll(&ready, 1, 60000) == 1 && recv(fd, &heard, sizeof(heard), MSG_WAITALL) == sizeof(heard));
        CHECK(heard == round);
}

static void *take_and_delete(void *userdata)
{
        Pair *pair = userdata;
        char name[64];

        for (uint64_t i = 0; i < pair->n_rounds; i++) {
                (void)snprintf(name, sizeof(name), "%s:pair-%u-", pair->space, (unsigned)i % 20);
                await_pass(pair->ends[1], i);
                see_there(pair->client, name, i, (unsigned)i);
                CHECK_OK(folio_delete(pair->client, name, 0));
                pass(pair->ends[1], i);
        }
        return NULL;
}

static void test_read_your_own_in_threads(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        for (unsigned i = 0; i < N_SPACES; i++) {
                Pair pair = { .client = client, .space = spaces_names[i], .n_rounds = alive_scaled(2000) };
                pthread_t thread;
                char name[64];

                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.ends), 0);
                assert_int_equal(pthread_create(&thread, NULL, take_and_delete, &pair), 0);
                for (uint64_t round = 0; round < pair.n_rounds; round++) {
                        (void)snprintf(name, sizeof(name), "%s:pair-%u-", pair.space, (unsigned)round % 20);
                        ASSERT_OK(folio_put(client, name, &round, sizeof(round), NULL));
                        pass(pair.ends[0], round);
                        await_pass(pair.ends[0], round);
                        see_gone(client, name, (unsigned)round);
                }
                assert_int_equal(pthread_join(thread, NULL), 0);
                close(pair.ends[0]);
                close(pair.ends[1]);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_model),
                INTEGRATION_TEST(test_read_your_own),
                INTEGRATION_TEST(test_read_your_own_in_threads),
        };

        return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
