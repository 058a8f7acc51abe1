/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way of reading against a model in plain memory, byte for byte: objects of every kind and of sizes around every
 * limit, mapped or not, with holes, written and truncated in between, by clients that keep mappings, that keep none,
 * that may have hardly any, and that have helpers.
 *
 * FOLIO_TEST_SECONDS is another time than 4 s for each world; FOLIO_TEST_SEED another seed than the printed one.
 */
#include "tests/integration/alive.h"
#include "tests/integration/async.h"

enum {
        N_OBJECTS = 40,
        N_CLIENTS = 3,
        N_HANDLES = 3,
        OBJECT_BYTES_MAX = 5 << 20,
        MANY = 12,
};

typedef struct Model {
        char name[24];
        uint8_t *bytes;
        uint64_t size_bytes;
        uint64_t capacity_bytes;
        bool is_mutable;
        struct folio_object *handles[N_HANDLES]; /* NULL, or of the client with that number */
        void *view[N_HANDLES];
} Model;

typedef struct World {
        struct folio_client *clients[N_CLIENTS];
        uint64_t random;
        Model models[N_OBJECTS];
        uint8_t *buffer; /* room for an object, and for a guard on both sides */
        uint64_t n_reads;
        bool is_tight; /* what maps may answer that there is no room */
} World;

enum { GUARD_BYTES = 256, GUARD = 0xa5 };

static uint64_t draw(World *world, uint64_t limit)
{
        world->random ^= world->random << 13;
        world->random ^= world->random >> 7;
        world->random ^= world->random << 17;
        return limit ? world->random % limit : 0;
}

static uint64_t draw_size(World *world, uint64_t max)
{
        static const uint64_t special[] = { 1, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1,
                                            2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 4 * MIB };
        uint64_t n = special[draw(world, sizeof(special) / sizeof(special[0]))];

        switch (draw(world, 4)) {
        case 0:
                return n <= max ? n : max;
        case 1:
                return draw(world, max + 1);
        case 2:
                return draw(world, (max < 5000 ? max : 5000) + 1);
        default:
                return draw(world, (max < 300000 ? max : 300000) + 1);
        }
}

/* A piece inside [0, @n_bytes). Some touch the end. */
static uint64_t draw_piece(World *world, uint64_t n_bytes, size_t *ret_n)
{
        uint64_t n = draw(world, 5) == 0 ? n_bytes : draw_size(world, n_bytes);
        uint64_t room = n_bytes - n;

        *ret_n = n;
        switch (draw(world, 4)) {
        case 0:
                return room;
        case 1:
                return draw(world, room / 4096 + 1) * 4096;
        default:
                return draw(world, room + 1);
        }
}

/* True: this process can map no more, and was told so. */
static bool may_be_refused(const World *world, int error)
{
        if (world->is_tight && error == FOLIO_E_LIMIT) {
                assert_non_null(strstr(folio_strerror_full(), "vm.max_map_count"));
                return true;
        }
        ASSERT_OK(error);
        return false;
}

/* --- objects ------------------------------------------------------------------------------------------------------------- */

/* Writes pieces of it, and leaves out others, some of which are filled with zeros. */
static void write_pieces(World *world, Model *model, struct folio_object *object)
{
        unsigned n_pieces = (unsigned)draw(world, 6);

        for (unsigned i = 0; i < n_pieces; i++) {
                size_t n;
                uint64_t offset = draw_piece(world, model->size_bytes, &n);

                if (draw(world, 4) == 0)
                        memset(model->bytes + offset, 0, n);
                else
                        harness_fill(model->bytes + offset, n, draw(world, UINT64_MAX));
                ASSERT_OK(folio_object_write(object, offset, model->bytes + offset, n));
        }
}

static void make(World *world, Model *model)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options) };
        struct folio_client *client = world->clients[draw(world, N_CLIENTS)];
        struct folio_object *object;
        void *data;

        model->size_bytes = draw_size(world, OBJECT_BYTES_MAX);
        model->capacity_bytes = model->size_bytes;
        model->is_mutable = draw(world, 3) == 0;
        if (model->is_mutable) {
                options.flags |= FOLIO_MUTABLE;
                model->capacity_bytes = model->size_bytes + draw_size(world, OBJECT_BYTES_MAX - model->size_bytes);
                options.capacity_bytes = model->capacity_bytes;
        }
        if (draw(world, 3) == 0)
                options.flags |= FOLIO_SPARSE;
        if (draw(world, 4) == 0)
                options.flags |= FOLIO_OWN_REGION;
        model->bytes = calloc(1, model->capacity_bytes + 1);
        assert_non_null(model->bytes);
        if (!options.flags && draw(world, 2)) {
                harness_fill(model->bytes, model->size_bytes, draw(world, UINT64_MAX));
                ASSERT_OK(folio_put(client, model->name, model->bytes, model->size_bytes, NULL));
                return;
        }
        ASSERT_OK(folio_create(client, model->name, model->size_bytes, &options, &object));
        write_pieces(world, model, object);
        if (draw(world, 3) == 0 && !may_be_refused(world, folio_object_map_write(object, &data))) {
                assert_memory_equal(data, model->bytes, model->size_bytes);
                harness_fill(model->bytes, model->size_bytes / 3, draw(world, UINT64_MAX));
                memcpy(data, model->bytes, model->size_bytes / 3);
        }
        /* It can be read before it is sealed. */
        memset(world->buffer, GUARD, model->size_bytes);
        ASSERT_OK(folio_object_read(object, 0, world->buffer, model->size_bytes));
        assert_memory_equal(world->buffer, model->bytes, model->size_bytes);
        if (!model->is_mutable)
                ASSERT_OK(folio_object_seal(object));
        if (!model->is_mutable && draw(world, 2)) {
                ASSERT_OK(folio_object_read(object, 0, world->buffer, model->size_bytes));
                assert_memory_equal(world->buffer, model->bytes, model->size_bytes);
        }
        ASSERT_OK(folio_object_release(object));
}

static void let_go(Model *model, unsigned i)
{
        if (model->handles[i])
                ASSERT_OK(folio_object_release(model->handles[i]));
        model->handles[i] = NULL;
        model->view[i] = NULL;
}

static void unmake(World *world, Model *model)
{
        if (!model->bytes)
                return;
        ASSERT_OK(folio_delete(world->clients[draw(world, N_CLIENTS)], model->name, 0));
        for (unsigned i = 0; i < N_HANDLES; i++)
                let_go(model, i);
        free(model->bytes);
        model->bytes = NULL;
}

static struct folio_object *hold(World *world, Model *model, unsigned client)
{
        static const uint32_t flags[] = { 0, FOLIO_GET_UNMAPPED, FOLIO_GET_UNMAPPED, FOLIO_GET_POPULATE, FOLIO_GET_WRITABLE };
        uint32_t how = flags[draw(world, model->is_mutable ? 5 : 4)];

        int error = 0;

        if (!model->handles[client])
                error = folio_get(world->clients[client], model->name, how, 0, &model->handles[client]);
        if (may_be_refused(world, error))
                ASSERT_OK(folio_get(world->clients[client], model->name, FOLIO_GET_UNMAPPED, 0, &model->handles[client]));
        return model->handles[client];
}

/* --- reading --------------------------------------------------------------------------------------------------------------- */

typedef struct Area {
        uint8_t *bytes;
        size_t n;
} Area;

/* A place of any alignment, with a guard on both sides. */
static Area area(World *world, uint8_t *from, size_t n)
{
        Area new = { from + GUARD_BYTES + draw(world, 64), n };

        memset(new.bytes - GUARD_BYTES, GUARD, n + 2 * GUARD_BYTES);
        return new;
}

static void check(World *world, const Area *read, const Model *model, uint64_t offset, const char *how)
{
        if (memcmp(read->bytes, model->bytes + offset, read->n) != 0)
                fail_msg("%s: %zu bytes at %llu of %llu of %s are not those that are there", how, read->n,
                         (unsigned long long)offset, (unsigned long long)model->size_bytes, model->name);
        for (size_t i = 0; i < GUARD_BYTES; i++)
                if (read->bytes[-1 - (long)i] != GUARD || read->bytes[read->n + i] != GUARD)
                        fail_msg("%s: wrote beside the buffer", how);
        world->n_reads++;
}

static void read_one(World *world, Model *model)
{
        unsigned client = (unsigned)draw(world, N_CLIENTS);
        struct folio_client *by = world->clients[client];
        size_t n;
        uint64_t offset = draw_piece(world, model->size_bytes, &n);
        Area to = area(world, world->buffer, n);
        Done done = { 0 };
        const void *data;
        void *view;

        switch (draw(world, 6)) {
        case 0:
                ASSERT_OK(folio_read(by, model->name, offset, to.bytes, n));
                check(world, &to, model, offset, "folio_read()");
                break;
        case 1:
                ASSERT_OK(folio_read_async(by, model->name, offset, to.bytes, n, async_on_done, &done));
                ASSERT_OK(async_finish(by, &done));
                check(world, &to, model, offset, "folio_read_async()");
                break;
        case 2:
                ASSERT_OK(folio_object_read(hold(world, model, client), offset, to.bytes, n));
                check(world, &to, model, offset, "folio_object_read()");
                break;
        case 3:
                ASSERT_OK(folio_object_read_async(hold(world, model, client), offset, to.bytes, n, async_on_done, &done));
                ASSERT_OK(async_finish(by, &done));
                check(world, &to, model, offset, "folio_object_read_async()");
                break;
        case 4:
                data = folio_object_data(hold(world, model, client));
                if (!data && may_be_refused(world, FOLIO_E_LIMIT))
                        break;
                assert_non_null(data);
                memcpy(to.bytes, (const uint8_t *)data + offset, n);
                check(world, &to, model, offset, "folio_object_data()");
                break;
        default:
                if (model->is_mutable) {
                        assert_int_equal(folio_object_map_private(hold(world, model, client), &view), FOLIO_E_STATE);
                        break;
                }
                if (may_be_refused(world, folio_object_map_private(hold(world, model, client), &view)))
                        break;
                /* The first time it is the object; then what we have made of it. */
                if (!model->view[client]) {
                        memcpy(to.bytes, (uint8_t *)view + offset, n);
                        check(world, &to, model, offset, "folio_object_map_private()");
                }
                assert_true(!model->view[client] || model->view[client] == view);
                model->view[client] = view;
                memset((uint8_t *)view + offset, (int)draw(world, 256), n);
                break;
        }
}

/* Ranges outside, as they must be refused, and nothing written. */
static void read_outside(World *world, Model *model)
{
        unsigned client = (unsigned)draw(world, N_CLIENTS);
        const uint64_t rows[][2] = { { model->size_bytes, 1 }, { 0, model->size_bytes + 1 }, { UINT64_MAX, 1 },
                                     { 1, UINT64_MAX }, { UINT64_MAX, UINT64_MAX } };
        const uint64_t *row = rows[draw(world, 5)];
        Area to = area(world, world->buffer, 0);

        assert_int_equal(folio_read(world->clients[client], model->name, row[0], to.bytes, row[1]), FOLIO_E_RANGE);
        assert_int_equal(folio_object_read(hold(world, model, client), row[0], to.bytes, row[1]), FOLIO_E_RANGE);
        check(world, &to, model, 0, "outside");
}

static void read_many(World *world)
{
        unsigned client = (unsigned)draw(world, N_CLIENTS), n_items = 0;
        struct folio_read_item items[MANY] = { 0 };
        Model *models[MANY];
        Area areas[MANY];
        uint8_t *at = world->buffer;

        for (; n_items < MANY; n_items++) {
                struct folio_read_item *item = &items[n_items];
                Model *model = &world->models[draw(world, N_OBJECTS)];

                if (!model->bytes)
                        break;
                models[n_items] = model;
                item->offset_bytes = draw_piece(world, model->size_bytes, &item->n_bytes);
                if (at + item->n_bytes + 3 * GUARD_BYTES > world->buffer + 2 * OBJECT_BYTES_MAX)
                        break;
                areas[n_items] = area(world, at, item->n_bytes);
                at = areas[n_items].bytes + item->n_bytes + GUARD_BYTES;
                item->buffer = areas[n_items].bytes;
                if (draw(world, 2))
                        item->name = model->name;
                else
                        item->object = hold(world, model, client);
        }
        if (draw(world, 2)) {
                Done done = { 0 };

                ASSERT_OK(folio_read_many_async(world->clients[client], items, n_items, async_on_done, &done));
                ASSERT_OK(async_finish(world->clients[client], &done));
        } else {
                ASSERT_OK(folio_read_many(world->clients[client], items, n_items));
        }
        for (unsigned i = 0; i < n_items; i++) {
                assert_int_equal(items[i].error, 0);
                check(world, &areas[i], models[i], items[i].offset_bytes, "folio_read_many()");
        }
}

static void change(World *world, Model *model)
{
        struct folio_client *by = world->clients[draw(world, N_CLIENTS)];
        struct folio_object *object;
        uint64_t n;

        if (!model->is_mutable)
                return;
        if (draw(world, 2)) {
                n = draw_size(world, model->capacity_bytes);
                ASSERT_OK(folio_truncate(by, model->name, n));
                if (n < model->size_bytes)
                        memset(model->bytes + n, 0, model->size_bytes - n);
                model->size_bytes = n;
        } else {
                ASSERT_OK(folio_get(by, model->name,
                                    FOLIO_GET_WRITABLE | (world->is_tight || draw(world, 2) ? FOLIO_GET_UNMAPPED : 0), 0, &object));
                write_pieces(world, model, object);
                ASSERT_OK(folio_object_release(object));
        }
}

static void step(World *world)
{
        Model *model = &world->models[draw(world, N_OBJECTS)];

        if (!model->bytes) {
                make(world, model);
                return;
        }
        switch (draw(world, 20)) {
        case 0:
                unmake(world, model);
                break;
        case 1:
        case 2:
                for (unsigned i = 0; i < N_HANDLES; i++)
                        let_go(model, i);
                break;
        case 3:
        case 4:
        case 5:
                change(world, model);
                break;
        case 6:
        case 7:
                read_many(world);
                break;
        case 8:
                read_outside(world, model);
                break;
        default:
                read_one(world, model);
        }
}

/* --- worlds ------------------------------------------------------------------------------------------------------------------ */

static uint64_t now_ns(void)
{
        struct timespec now;

        assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void live(Foliod *foliod, const char *what, bool is_tight)
{
        const char *seconds = getenv("FOLIO_TEST_SECONDS"), *seed = getenv("FOLIO_TEST_SEED");
        uint64_t end_ns = now_ns() + (seconds ? strtoull(seconds, NULL, 10) : 4) * UINT64_C(1000000000);
        World *world = calloc(1, sizeof(*world));

        assert_non_null(world);
        world->is_tight = is_tight;
        world->random = (seed ? strtoull(seed, NULL, 10) : now_ns() ^ (uint64_t)getpid() << 40) | 1;
        print_message("# %s: FOLIO_TEST_SEED=%llu\n", what, (unsigned long long)world->random);
        world->buffer = malloc(2 * OBJECT_BYTES_MAX + 4 * GUARD_BYTES);
        assert_non_null(world->buffer);
        for (unsigned i = 0; i < N_CLIENTS; i++) {
                struct folio_open_options options = async_options(foliod);

                /* One as everybody is, one that keeps nothing mapped, one with helpers that keeps one mapping. */
                options.mapping_bytes_max = i == 1 ? 1 : 0;
                options.mappings_max = i == 2 ? 1 : 0;
                options.copy_threads = i == 2 ? 2 : 0;
                ASSERT_OK(folio_client_open(&options, &world->clients[i]));
        }
        for (unsigned i = 0; i < N_OBJECTS; i++)
                (void)snprintf(world->models[i].name, sizeof(world->models[i].name), "object %u", i);
        while (now_ns() < end_ns)
                step(world);
        assert_true(world->n_reads > 100);
        print_message("# %s: %llu reads\n", what, (unsigned long long)world->n_reads);
        for (unsigned i = 0; i < N_OBJECTS; i++)
                unmake(world, &world->models[i]);
        for (unsigned i = 0; i < N_CLIENTS; i++)
                folio_client_unref(world->clients[i]);
        free(world->buffer);
        free(world);
}

static void test_small_pages(void **state)
{
        Foliod *foliod = foliod_start("--budget", "512M", "--huge", "never", ALIVE_NO_POOL, NULL);

        (void)state;
        live(foliod, "small pages", false);
        foliod_stop(foliod);
}

static void test_huge_pages(void **state)
{
        Foliod *foliod = foliod_start("--budget", "512M", NULL);

        (void)state;
        live(foliod, "huge pages", false);
        foliod_stop(foliod);
}

/*
 * A process that has nearly used its mappings up: the library has room for a few dozen, and what cannot be mapped is
 * still read.
 */
static void test_hardly_any_mappings(void **state)
{
        enum { N_MAX = 65530 };
        Foliod *foliod = foliod_start("--budget", "512M", ALIVE_NO_POOL, NULL);
        uint8_t *mappings = mmap(NULL, N_MAX * UINT64_C(4096), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        unsigned n_max = 0;
        FILE *file = fopen("/proc/sys/vm/max_map_count", "re");

        (void)state;
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%u", &n_max), 1);
        fclose(file);
        if (n_max > N_MAX) {
                munmap(mappings, N_MAX * UINT64_C(4096));
                foliod_stop(foliod);
                skip();
        }
        /* Every other page is of another protection: a mapping for each page. */
        for (unsigned i = 0; i < n_max / 10 * 9; i += 2)
                assert_int_equal(mprotect(mappings + i * UINT64_C(4096), 4096, PROT_READ), 0);
        live(foliod, "hardly any mappings", true);
        munmap(mappings, N_MAX * UINT64_C(4096));
        foliod_stop(foliod);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_small_pages),
                INTEGRATION_TEST(test_huge_pages),
                INTEGRATION_TEST(test_hardly_any_mappings),
        };

        return cmocka_run_group_tests_name("read", tests, NULL, NULL);
}
