/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers that die. Case D14: a writer is taken through the making of an object one instruction at a time, and killed
 * at one of them, each time at another; after it the object is there whole or not at all, nobody else has noticed, and
 * all it held is back. Case D17: a data set is replaced under its readers, again and again, by writers that are killed.
 */
#include "tests/integration/spaces.h"

#include "base/macro.h"

#include <sys/ptrace.h>

#define MIB (UINT64_C(1) << 20)

enum {
        N_DEATHS = 24,
        STEPS_MAX = 3000000,         /* many times what it takes */
        STEPS_SUM = 1000000,         /* of all deaths of one kind */
};

typedef enum Way {
        WAY_PUT,
        WAY_PUT_VISIBLE,
        WAY_REPLACE,
        WAY_IN_PLACE,
        WAY_LARGE,
        WAY_DELETE,
        _WAY_MAX
} Way;

static const char *const way_names[] = { "put", "put, visible", "replace", "in place", "in place, large", "delete" };

typedef struct Victim {
        Way way;
        const char *space;
        char name[64];
        uint64_t n_bytes;
} Victim;

enum { SEED_OLD = 1, SEED_NEW = 2 };

/* One step of a program's life, with all that it needs at hand. */
static void act(struct folio_client *client, const Victim *victim, const uint8_t *bytes)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options) };
        struct folio_object *object;
        void *place;

        switch (victim->way) {
        case WAY_PUT_VISIBLE:
                options.flags = FOLIO_PUT_VISIBLE;
                break;
        case WAY_REPLACE:
                options.flags = FOLIO_REPLACE;
                break;
        case WAY_IN_PLACE:
        case WAY_LARGE:
                CHECK_OK(folio_create(client, victim->name, victim->n_bytes, NULL, &object));
                CHECK_OK(folio_object_map_write(object, &place));
                memcpy(place, bytes, victim->n_bytes);
                CHECK_OK(folio_object_seal(object));
                CHECK_OK(folio_object_release(object));
                return;
        case WAY_DELETE:
                CHECK_OK(folio_delete(client, victim->name, 0));
                return;
        case WAY_PUT:
        case _WAY_MAX:
                break;
        }
        CHECK_OK(folio_put(client, victim->name, bytes, victim->n_bytes, &options));
}

static bool had_before(const Victim *victim)
{
        return victim->way == WAY_REPLACE || victim->way == WAY_DELETE;
}

static void live(Child *child)
{
        const Victim *victim = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        uint8_t *bytes = malloc(victim->n_bytes);

        CHECK(bytes);
        spaces_warm_up(client, victim->space);
        harness_fill(bytes, victim->n_bytes, SEED_OLD);
        if (had_before(victim))
                CHECK_OK(folio_put(client, victim->name, bytes, victim->n_bytes, NULL));
        CHECK_OK(folio_flush(client));
        harness_fill(bytes, victim->n_bytes, SEED_NEW);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
                _exit(3);
        (void)raise(SIGSTOP);
        act(client, victim, bytes);
        /* It does not get any further. */
        (void)raise(SIGSTOP);
        _exit(0);
}

/* Goes on for @n_steps, or to its end: then the steps that took, else UINT32_MAX. It stands still afterwards. */
static unsigned step(Child *child, unsigned n_steps)
{
        int status;

        for (unsigned i = 0; i < n_steps; i++) {
                if (ptrace(PTRACE_SINGLESTEP, child->pid, NULL, NULL) != 0)
                        fail_msg("a step: %s", strerror(errno));
                assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
                assert_true(WIFSTOPPED(status));
                if (WSTOPSIG(status) == SIGSTOP)
                        return i;
                assert_int_equal(WSTOPSIG(status), SIGTRAP);
        }
        return UINT32_MAX;
}

/* At its first step. False: there is no ptrace here. */
static bool begin(Child *child)
{
        int status;

        assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
        if (WIFEXITED(status))
                return false;
        assert_true(WIFSTOPPED(status));
        assert_int_equal(ptrace(PTRACE_SETOPTIONS, child->pid, NULL, (void *)PTRACE_O_EXITKILL), 0);
        return true;
}

static void check_whole(struct folio_client *client, const Victim *victim, uint8_t *buffer)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        int error = folio_stat(client, victim->name, &stat);
        bool is_old, is_new;

        if (error) {
                assert_true(error == FOLIO_E_NOT_FOUND || error == FOLIO_E_DELETED || error == FOLIO_E_WRITER_DIED);
                assert_int_not_equal(victim->way, WAY_REPLACE);
                return;
        }
        assert_int_equal(stat.state, FOLIO_STATE_SEALED);
        assert_int_equal(stat.size_bytes, victim->n_bytes);
        ASSERT_OK(folio_read(client, victim->name, 0, buffer, victim->n_bytes));
        is_old = harness_is_filled(buffer, victim->n_bytes, SEED_OLD, 0);
        is_new = harness_is_filled(buffer, victim->n_bytes, SEED_NEW, 0);
        assert_true(had_before(victim) ? is_old || (is_new && victim->way == WAY_REPLACE) : is_new);
        ASSERT_OK(folio_delete(client, victim->name, 0));
}

/* Others read, write, and write in place, in the same namespace. */
static void others_go_on(struct folio_client *client, const Victim *victim, unsigned n)
{
        char name[64], read[64];

        for (unsigned i = 0; i < 3; i++) {
                (void)snprintf(name, sizeof(name), "%s:other %u %u", victim->space, n, i);
                ASSERT_OK(folio_put(client, name, name, sizeof(name), NULL));
                ASSERT_OK(folio_read(client, name, 0, read, sizeof(read)));
                assert_memory_equal(read, name, sizeof(name));
                ASSERT_OK(folio_flush(client));
                ASSERT_OK(folio_delete(client, name, 0));
        }
}

typedef struct Stage {
        Foliod *foliod;
        struct folio_client *client;
        uint8_t *buffer;
        uint64_t used_bytes;         /* of the namespace, by what is there throughout */
} Stage;

static void die_at(Stage *stage, Victim *victim, unsigned n, unsigned n_steps)
{
        Child *child;

        (void)snprintf(victim->name, sizeof(victim->name), "%s:stepped %u", victim->space, n);
        child = child_start(stage->foliod, live, victim);
        assert_true(begin(child));
        (void)step(child, n_steps);
        /* It stands in the middle of whatever it is, and may stand there for long. */
        others_go_on(stage->client, victim, n);
        child_kill(child);
        spaces_await_sessions(stage->client, 1);
        check_whole(stage->client, victim, stage->buffer);
        others_go_on(stage->client, victim, n);
        ASSERT_OK(folio_flush(stage->client));
        assert_int_equal(spaces_get(stage->client, victim->space).used_bytes, stage->used_bytes);
        assert_int_equal(spaces_get(stage->client, victim->space).unsealed_bytes, 0);
}

static void die_everywhere(Stage *stage, Victim *victim)
{
        unsigned n_steps, n_deaths = alive_scaled(N_DEATHS);
        uint64_t leased_bytes;
        Child *child;

        (void)snprintf(victim->name, sizeof(victim->name), "%s:stepped", victim->space);
        child = child_start(stage->foliod, live, victim);
        if (!begin(child)) {
                print_message("# no ptrace here\n");
                skip();
        }
        n_steps = step(child, STEPS_MAX);
        assert_int_not_equal(n_steps, UINT32_MAX);
        child_kill(child);
        spaces_await_sessions(stage->client, 1);
        check_whole(stage->client, victim, stage->buffer);
        n_deaths = MAX(MIN(n_deaths, STEPS_SUM / n_steps), 1u);
        print_message("# %s in %s: %u steps, %u deaths\n", way_names[victim->way], victim->space, n_steps, n_deaths);
        /* From here on each one's memory is there for the next. */
        leased_bytes = spaces_get(stage->client, victim->space).leased_bytes;
        for (unsigned i = 0; i <= n_deaths; i++)
                die_at(stage, victim, i, (unsigned)((uint64_t)n_steps * i / n_deaths));
        assert_true(spaces_get(stage->client, victim->space).leased_bytes <= leased_bytes + 4 * MIB);
}

static void step_through(Way way, uint64_t n_bytes)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        Stage stage = { .foliod = foliod, .client = foliod_connect_with(foliod, 0), .buffer = malloc(n_bytes) };

        assert_non_null(stage.buffer);
        for (unsigned s = 0; s < N_SPACES; s++) {
                Victim victim = { .way = way, .space = spaces_names[s], .n_bytes = n_bytes };

                spaces_warm_up(stage.client, victim.space);
                stage.used_bytes = spaces_get(stage.client, victim.space).used_bytes;
                die_everywhere(&stage, &victim);
        }
        free(stage.buffer);
        folio_client_unref(stage.client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void test_d14_put(void **state)
{
        (void)state;
        step_through(WAY_PUT, 500);
}

static void test_d14_put_visible(void **state)
{
        (void)state;
        step_through(WAY_PUT_VISIBLE, 500);
}

static void test_d14_replace(void **state)
{
        (void)state;
        step_through(WAY_REPLACE, 500);
}

static void test_d14_in_place(void **state)
{
        (void)state;
        step_through(WAY_IN_PLACE, 5000);
}

static void test_d14_in_place_large(void **state)
{
        (void)state;
        step_through(WAY_LARGE, 160 * 1024);
}

static void test_d14_delete(void **state)
{
        (void)state;
        step_through(WAY_DELETE, 500);
}

/* --- D17 ---------------------------------------------------------------------------------------------------------- */

enum { N_READERS = 4, N_WRITERS_KILLED = 12, SET_BYTES = 6 << 20 };

/* The first words are the number of the version; the rest follows from it. */
static void read_versions(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct pollfd stop = { .fd = child->socket, .events = POLLIN };
        uint64_t last = 0, n_seen = 0, last_generation = 0;
        struct folio_object *object;

        while (poll(&stop, 1, 0) == 0) {
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                const uint8_t *data;
                uint64_t version;

                CHECK_OK(folio_get(client, "trusted:cur", 0, 20000, &object));
                CHECK_OK(folio_object_stat(object, &stat));
                data = folio_object_data(object);
                CHECK(data && folio_object_size(object) == SET_BYTES);
                memcpy(&version, data, sizeof(version));
                CHECK(version >= last && stat.generation >= last_generation);
                CHECK(harness_is_filled(data + 64, 4096, version, 64));
                CHECK(harness_is_filled(data + SET_BYTES / 2, 4096, version, SET_BYTES / 2));
                CHECK(harness_is_filled(data + SET_BYTES - 4096, 4096, version, SET_BYTES - 4096));
                last = version;
                last_generation = stat.generation;
                CHECK_OK(folio_object_release(object));
                if (n_seen++ == 0)
                        child_say(child, version);
        }
        folio_client_unref(client);
}

typedef struct Author {
        uint64_t first;              /* its first version */
} Author;

/* Replaces it twice in quick succession, tells, and goes on until it is killed. */
static void write_versions(Child *child)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        const Author *author = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        struct folio_object *object;

        for (uint64_t version = author->first;; version++) {
                void *place;

                CHECK_OK(folio_create(client, "trusted:cur", SET_BYTES, &replace, &object));
                CHECK_OK(folio_object_map_write(object, &place));
                harness_fill(place, SET_BYTES, version);
                memcpy(place, &version, sizeof(version));
                CHECK_OK(folio_object_seal(object));
                CHECK_OK(folio_object_release(object));
                if (version == author->first + 1)
                        child_say(child, version);
        }
}

static void test_d17_replaced_all_the_time(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Child *readers[N_READERS];
        uint64_t version = 1, random = (uint64_t)getpid();
        char read[16];

        (void)state;
        ASSERT_OK(folio_put(client, "trusted:another", "untouched", 9, NULL));
        for (unsigned i = 0; i < N_READERS; i++)
                readers[i] = child_start(foliod, read_versions, NULL);
        for (unsigned i = 0; i < N_WRITERS_KILLED; i++) {
                Author author = { version };
                Child *writer = child_start(foliod, write_versions, &author);

                assert_int_equal(child_hear(writer), version + 1);
                random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                (void)usleep((useconds_t)(random >> 33) % 20000); /* somewhere in the middle of something */
                child_kill(writer);
                spaces_await_sessions(client, 1 + N_READERS);
                ASSERT_OK(folio_read(client, "trusted:cur", 0, &version, sizeof(version)));
                assert_true(version >= author.first + 1);
                version++;
                /* Old, new, what readers hold, what each lease is rounded up to: never one more for each death. */
                assert_true(spaces_get(client, "trusted").leased_bytes <= 160 * MIB);
        }
        for (unsigned i = 0; i < N_READERS; i++) {
                (void)child_hear(readers[i]);
                child_say(readers[i], 0);
                child_finish(readers[i]);
        }
        ASSERT_OK(folio_read(client, "trusted:another", 0, read, 9));
        assert_memory_equal(read, "untouched", 9);
        assert_int_equal(spaces_delete_all(client, "trusted:"), 2);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_d14_put),
                INTEGRATION_TEST(test_d14_put_visible),
                INTEGRATION_TEST(test_d14_replace),
                INTEGRATION_TEST(test_d14_in_place),
                INTEGRATION_TEST(test_d14_in_place_large),
                INTEGRATION_TEST(test_d14_delete),
                INTEGRATION_TEST(test_d17_replaced_all_the_time),
        };

        return cmocka_run_group_tests_name("lease-crash", tests, NULL, NULL);
}
