/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three processes do at random what clients do, each with names of its own, and each against a model in plain memory:
 * after every step the store must say what the model says, byte for byte. A fourth looks at all of it meanwhile, and
 * must never see half of anything.
 *
 * FOLIO_TEST_SECONDS is another time than 20 s; FOLIO_TEST_SEED another seed than the printed one.
 */
#include "tests/integration/alive.h"

#include <sched.h>

#define MIB (UINT64_C(1) << 20)

enum {
        NAMES = 120,
        WRITERS = 3,
        OBJECT_BYTES_MAX = 3 << 20,
};

typedef enum Kind {
        KIND_NONE,
        KIND_SEALED,
        KIND_MUTABLE,
} Kind;

typedef struct Known {
        Kind kind;
        bool was_there; /* some time ago */
        uint8_t *bytes;
        uint64_t size_bytes;
        uint64_t capacity_bytes; /* KIND_MUTABLE */
        uint64_t generation;
} Known;

typedef struct World {
        struct folio_client *client;
        struct folio_client *other;
        uint64_t random;
        uint64_t n_steps;
        unsigned number;
        const char *space; /* its names begin so */
        uint8_t *scratch;
        Known known[NAMES];
        /* One object of each world is held over changes, and must not change. */
        struct folio_object *held;
        uint8_t *held_bytes;
        uint64_t held_size_bytes;
} World;

static uint64_t draw(World *world, uint64_t limit)
{
        world->random ^= world->random << 13;
        world->random ^= world->random >> 7;
        world->random ^= world->random << 17;
        return limit ? world->random % limit : 0;
}

/* Many small ones, some around the limits, a few large. */
static uint64_t draw_size(World *world)
{
        static const uint64_t special[] = { 0, 1, 63, 64, 65, 4095, 4096, 4097, 65536, MIB - 1, MIB, MIB + 1, 2 * MIB };

        switch (draw(world, 10)) {
        case 0:
        case 1:
                return special[draw(world, sizeof(special) / sizeof(special[0]))];
        case 2:
                return draw(world, OBJECT_BYTES_MAX + 1);
        case 3:
        case 4:
                return draw(world, 100000);
        default:
                return draw(world, 2000);
        }
}

static void name_of(const World *world, size_t i, char name[64])
{
        /* Some keys are longer than what a slot of the index holds. */
        (void)snprintf(name, 64, "%sw%u/%s%zu", world->space, world->number,
                       i % 5 == 0 ? "a-rather-long-name-that-goes-on-and-on-" : "", i);
}

static void fill(World *world, uint8_t *bytes, uint64_t n_bytes)
{
        harness_fill(bytes, n_bytes, draw(world, UINT64_MAX));
}

static void remember(World *world, Known *known, Kind kind, uint64_t size_bytes, uint64_t capacity_bytes)
{
        free(known->bytes);
        known->bytes = malloc(capacity_bytes + 1);
        CHECK(known->bytes);
        memcpy(known->bytes, world->scratch, size_bytes);
        known->kind = kind;
        known->was_there = true;
        known->size_bytes = size_bytes;
        known->capacity_bytes = capacity_bytes;
}

static void compare(World *world, size_t i)
{
        struct folio_client *client = draw(world, 2) ? world->client : world->other;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        Known *known = &world->known[i];
        struct folio_object *object;
        char name[64];
        int error;

        name_of(world, i, name);
        if (known->kind == KIND_NONE) {
                error = folio_stat(client, name, &stat);
                /* What is remembered of names that are gone may be forgotten. */
                CHECK(error == FOLIO_E_NOT_FOUND || (known->was_there && error == FOLIO_E_DELETED) ||
                      (known->was_there && error == FOLIO_E_WRITER_DIED));
                CHECK(folio_exists(client, name) == 0);
                return;
        }
        CHECK_OK(folio_stat(client, name, &stat));
        CHECK(stat.size_bytes == known->size_bytes);
        CHECK(stat.state == (known->kind == KIND_SEALED ? FOLIO_STATE_SEALED : FOLIO_STATE_MUTABLE));
        CHECK(stat.huge_bytes <= stat.allocated_bytes || stat.placement == FOLIO_PLACEMENT_PACKED);
        if (known->generation)
                CHECK(stat.generation == known->generation);
        known->generation = stat.generation;
        CHECK(folio_exists(client, name) == 1);
        if (draw(world, 2)) {
                const void *data;

                CHECK_OK(folio_get(client, name, 0, 0, &object));
                data = folio_object_data(object);
                CHECK(data);
                CHECK(folio_object_size(object) == known->size_bytes);
                CHECK(memcmp(data, known->bytes, known->size_bytes) == 0);
                CHECK_OK(folio_object_release(object));
        } else {
                uint64_t offset = draw(world, known->size_bytes + 1), n = draw(world, known->size_bytes - offset + 1);

                CHECK_OK(folio_read(client, name, offset, world->scratch, n));
                CHECK(memcmp(world->scratch, known->bytes + offset, n) == 0);
                CHECK(folio_read(client, name, offset, world->scratch, known->size_bytes - offset + 1) ==
                      FOLIO_E_RANGE);
        }
}

static void do_put(World *world, size_t i)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options) };
        Known *known = &world->known[i];
        uint64_t n_bytes = draw_size(world);
        char name[64];
        int error;

        name_of(world, i, name);
        if (draw(world, 2))
                options.flags |= FOLIO_REPLACE;
        if (draw(world, 8) == 0)
                options.flags |= FOLIO_OWN_REGION;
        fill(world, world->scratch, n_bytes);
        error = folio_put(world->client, name, world->scratch, n_bytes, &options);
        if (known->kind != KIND_NONE && !(options.flags & FOLIO_REPLACE)) {
                CHECK(error == FOLIO_E_EXISTS);
                return;
        }
        CHECK_OK(error);
        remember(world, known, KIND_SEALED, n_bytes, n_bytes);
        known->generation = 0;
}

/* Written in pieces, by call and by mapping, then sealed; or given up. */
static void do_create(World *world, size_t i)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_REPLACE };
        Known *known = &world->known[i];
        uint64_t n_bytes = draw_size(world), n_done = 0;
        bool is_stream = draw(world, 4) == 0, is_mapped = !is_stream && draw(world, 2),
             is_given_up = draw(world, 6) == 0;
        struct folio_object *object;
        char name[64];
        void *data;

        name_of(world, i, name);
        options.flags |= is_stream ? FOLIO_STREAM : draw(world, 6) == 0 ? FOLIO_SPARSE : 0;
        fill(world, world->scratch, n_bytes);
        CHECK_OK(folio_create(world->client, name, is_stream ? 0 : n_bytes, &options, &object));
        /* Until it is sealed the old one has the name. */
        CHECK(folio_exists(world->other, name) == (known->kind != KIND_NONE));
        if (is_mapped) {
                CHECK_OK(folio_object_map_write(object, &data));
                memcpy(data, world->scratch, n_bytes);
        }
        while (!is_mapped && n_done < n_bytes) {
                uint64_t n = 1 + draw(world, n_bytes - n_done);

                CHECK_OK(folio_object_write(object, n_done, world->scratch + n_done, n));
                n_done += n;
        }
        if (is_given_up) {
                CHECK_OK(draw(world, 2) ? folio_object_abort(object) : folio_object_release(object));
                return;
        }
        CHECK_OK(folio_object_seal(object));
        CHECK(folio_object_write(object, 0, "x", 1) == FOLIO_E_STATE);
        CHECK(folio_object_size(object) == n_bytes);
        CHECK_OK(folio_object_release(object));
        remember(world, known, KIND_SEALED, n_bytes, n_bytes);
        known->generation = 0;
}

static void do_mutable(World *world, size_t i)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options),
                                                .flags = FOLIO_MUTABLE | FOLIO_REPLACE };
        Known *known = &world->known[i];
        uint64_t n_bytes = draw_size(world);
        struct folio_object *object;
        char name[64];

        name_of(world, i, name);
        options.capacity_bytes = n_bytes + draw_size(world) + 1;
        if (options.capacity_bytes > OBJECT_BYTES_MAX)
                options.capacity_bytes = OBJECT_BYTES_MAX + 1;
        CHECK_OK(folio_create(world->client, name, n_bytes, &options, &object));
        memset(world->scratch, 0, n_bytes);
        remember(world, known, KIND_MUTABLE, n_bytes, options.capacity_bytes);
        known->generation = 0;
        CHECK_OK(folio_object_release(object));
}

static void do_write(World *world, size_t i)
{
        Known *known = &world->known[i];
        struct folio_object *object = NULL;
        uint64_t offset, n;
        char name[64];
        void *data;

        name_of(world, i, name);
        if (known->kind != KIND_MUTABLE) {
                int error = folio_get(world->client, name, FOLIO_GET_WRITABLE, 0, &object);

                CHECK(known->kind == KIND_SEALED ? error == FOLIO_E_STATE : error != 0);
                return;
        }
        offset = draw(world, known->size_bytes + 1);
        n = draw(world, known->size_bytes - offset + 1);
        CHECK_OK(folio_get(world->client, name, FOLIO_GET_WRITABLE, 0, &object));
        fill(world, world->scratch, n);
        if (draw(world, 2)) {
                CHECK_OK(folio_object_map_write(object, &data));
                memcpy((uint8_t *)data + offset, world->scratch, n);
                /* What lies beyond the end can be touched, and is no part of it. */
                if (known->capacity_bytes > known->size_bytes)
                        ((uint8_t *)data)[known->size_bytes + draw(world, known->capacity_bytes - known->size_bytes)] =
                                0xbb;
        } else {
                CHECK_OK(folio_object_write(object, offset, world->scratch, n));
                CHECK(folio_object_write(object, known->size_bytes, "x", 1) == FOLIO_E_RANGE);
        }
        memcpy(known->bytes + offset, world->scratch, n);
        CHECK_OK(folio_object_release(object));
}

static void do_truncate(World *world, size_t i)
{
        Known *known = &world->known[i];
        uint64_t n_bytes = draw(world, 3) ? draw(world, known->capacity_bytes + 1) : draw_size(world);
        char name[64];
        int error;

        name_of(world, i, name);
        if (draw(world, 4) == 0)
                n_bytes = known->size_bytes;
        error = folio_truncate(draw(world, 2) ? world->client : world->other, name, n_bytes);
        if (known->kind != KIND_MUTABLE) {
                CHECK(known->kind == KIND_SEALED ? error == FOLIO_E_STATE : error != 0);
                return;
        }
        if (n_bytes > known->capacity_bytes) {
                CHECK(error == FOLIO_E_TOO_LARGE);
                return;
        }
        CHECK_OK(error);
        if (n_bytes > known->size_bytes)
                memset(known->bytes + known->size_bytes, 0, n_bytes - known->size_bytes);
        known->size_bytes = n_bytes;
}

static void do_delete(World *world, size_t i)
{
        Known *known = &world->known[i];
        bool if_exists = draw(world, 2);
        char name[64];
        int error;

        name_of(world, i, name);
        error = folio_delete(draw(world, 2) ? world->client : world->other, name, if_exists ? FOLIO_IF_EXISTS : 0);
        if (known->kind == KIND_NONE && !if_exists)
                CHECK(error == FOLIO_E_NOT_FOUND ||
                      (known->was_there && (error == FOLIO_E_DELETED || error == FOLIO_E_WRITER_DIED)));
        else
                CHECK_OK(error);
        known->kind = KIND_NONE;
        known->generation = 0;
}

/* Lets go of what was held, after a last look, and holds another. */
static void do_hold(World *world, size_t i)
{
        Known *known = &world->known[i];
        char name[64];

        if (world->held) {
                CHECK(folio_object_size(world->held) == world->held_size_bytes);
                CHECK(memcmp(folio_object_data(world->held), world->held_bytes, world->held_size_bytes) == 0);
                CHECK_OK(folio_object_release(world->held));
                world->held = NULL;
        }
        if (known->kind != KIND_SEALED)
                return;
        name_of(world, i, name);
        CHECK_OK(folio_get(world->other, name, 0, 0, &world->held));
        world->held_size_bytes = known->size_bytes;
        memcpy(world->held_bytes, known->bytes, known->size_bytes);
}

static void compare_list(World *world)
{
        struct folio_stat entries[16] = { { .struct_bytes = sizeof(entries[0]) } };
        char prefix[32], name[64];
        size_t n_known = 0, n_listed = 0;
        struct folio_list *list;
        int n;

        for (size_t i = 0; i < NAMES; i++)
                n_known += world->known[i].kind != KIND_NONE;
        (void)snprintf(prefix, sizeof(prefix), "%sw%u/", world->space, world->number);
        CHECK_OK(folio_list_open(world->other, prefix, &list));
        while ((n = folio_list_next(list, entries, 16)) > 0)
                for (int j = 0; j < n; j++) {
                        const Known *known = NULL;

                        for (size_t i = 0; i < NAMES && !known; i++) {
                                name_of(world, i, name);
                                if (strcmp(entries[j].name, name) == 0)
                                        known = &world->known[i];
                        }
                        CHECK(known && known->kind != KIND_NONE);
                        CHECK(entries[j].size_bytes == known->size_bytes);
                        n_listed++;
                }
        CHECK_OK(n);
        CHECK(n_listed == n_known);
        folio_list_close(list);
}

static void step(World *world)
{
        size_t i = draw(world, NAMES);

        switch (draw(world, 12)) {
        case 0:
        case 1:
        case 2:
                do_put(world, i);
                break;
        case 3:
        case 4:
                do_create(world, i);
                break;
        case 5:
                do_mutable(world, i);
                break;
        case 6:
        case 7:
                do_write(world, i);
                break;
        case 8:
        case 9:
                do_truncate(world, i);
                break;
        case 10:
                do_delete(world, i);
                break;
        default:
                do_hold(world, i);
                break;
        }
        compare(world, i);
        compare(world, draw(world, NAMES));
        if (world->n_steps % 500 == 0)
                compare_list(world);
}

static uint64_t test_seconds(void)
{
        const char *text = getenv("FOLIO_TEST_SECONDS");

        return text ? strtoull(text, NULL, 10) : 20;
}

typedef struct Start {
        unsigned number;
        const char *space;
        uint64_t seed;
} Start;

static void live(Child *child)
{
        const Start *start = child->userdata;
        World *world = calloc(1, sizeof(*world));
        struct timespec begun, now;

        CHECK(world);
        world->number = start->number;
        world->space = start->space;
        world->random = start->seed + start->number * UINT64_C(0x9e3779b97f4a7c15);
        world->client = child_connect(child);
        world->other = child_connect(child);
        world->scratch = malloc(OBJECT_BYTES_MAX + 64);
        world->held_bytes = malloc(OBJECT_BYTES_MAX + 64);
        CHECK(world->scratch && world->held_bytes);
        (void)clock_gettime(CLOCK_MONOTONIC, &begun);
        do {
                world->n_steps++;
                step(world);
                (void)clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((uint64_t)(now.tv_sec - begun.tv_sec) < test_seconds());
        for (size_t i = 0; i < NAMES; i++)
                compare(world, i);
        compare_list(world);
        for (size_t i = 0; i < NAMES; i++) {
                char name[64];

                name_of(world, i, name);
                CHECK_OK(folio_delete(world->client, name, FOLIO_IF_EXISTS));
                free(world->known[i].bytes);
        }
        world->known[0].kind = KIND_NONE;
        do_hold(world, 0);
        child_say(child, world->n_steps);
        free(world->scratch);
        free(world->held_bytes);
        folio_client_unref(world->other);
        folio_client_unref(world->client);
        free(world);
}

/*
 * A stranger's look: he knows no model, but the bytes of one sealed object are the same at two looks, whatever
 * happens to its name.
 */
static void look_on(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct pollfd told = { .fd = child->socket, .events = POLLIN };
        uint8_t *copy = malloc(OBJECT_BYTES_MAX + 64);
        uint64_t n_looks = 0;

        CHECK(copy);
        while (poll(&told, 1, 0) == 0) {
                struct folio_stat entries[32] = { { .struct_bytes = sizeof(entries[0]) } };
                struct folio_list *list;
                int n;

                CHECK_OK(folio_list_open(client, "w", &list));
                while ((n = folio_list_next(list, entries, 32)) > 0)
                        for (int i = 0; i < n; i++) {
                                struct folio_object *object;

                                if (entries[i].state != FOLIO_STATE_SEALED ||
                                    folio_get(client, entries[i].name, 0, 0, &object))
                                        continue;
                                if (folio_object_size(object) <= OBJECT_BYTES_MAX) {
                                        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                                        const void *data = folio_object_data(object);
                                        uint64_t size_bytes = folio_object_size(object);
                                        int error = folio_object_stat(object, &stat);

                                        CHECK(data);
                                        /* The name may have become that of a mutable object meanwhile. */
                                        if (error == 0 && stat.state == FOLIO_STATE_SEALED) {
                                                memcpy(copy, data, size_bytes);
                                                (void)sched_yield();
                                                CHECK(folio_object_size(object) == size_bytes);
                                                CHECK(memcmp(copy, data, size_bytes) == 0);
                                                n_looks++;
                                        }
                                }
                                CHECK_OK(folio_object_release(object));
                        }
                CHECK_OK(n);
                folio_list_close(list);
        }
        (void)child_hear(child);
        child_say(child, n_looks);
        free(copy);
        folio_client_unref(client);
}

static void test_random_against_model(void **state)
{
        const char *text = getenv("FOLIO_TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
        Foliod *foliod = foliod_start("--budget", "800M", "--pool", "32M", NULL);
        Child *children[WRITERS], *onlooker;
        struct folio_client *client;
        Start starts[WRITERS];
        uint64_t n_steps = 0;
        bool has_tmpfs;
        unsigned n_fds;

        (void)state;
        print_message("# FOLIO_TEST_SEED=%llu\n", (unsigned long long)seed);
        client = foliod_connect(foliod);
        has_tmpfs = alive_add_tmpfs(client);
        n_fds = foliod_count_fds(foliod);
        for (unsigned i = 0; i < WRITERS; i++) {
                /* One of them on another backing. */
                starts[i] =
                        (Start){ .number = i + 1, .space = i == 2 && has_tmpfs ? "tmpfs:" : "default:", .seed = seed };
                children[i] = child_start(foliod, live, &starts[i]);
        }
        onlooker = child_start(foliod, look_on, NULL);
        for (unsigned i = 0; i < WRITERS; i++) {
                n_steps += child_hear(children[i]);
                child_finish(children[i]);
        }
        child_say(onlooker, 1);
        print_message("# %llu steps, %llu objects looked at by a stranger\n", (unsigned long long)n_steps,
                      (unsigned long long)child_hear(onlooker));
        child_finish(onlooker);
        AWAIT(alive_charges(client).n_objects == 0 && alive_charges(client).held_bytes == 0 &&
              alive_charges(client).unsealed_bytes == 0);
        /* The pool may keep a blank or two more than before; nothing that grows with the steps. */
        AWAIT(foliod_count_fds(foliod) <= n_fds + 40);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_random_against_model),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
