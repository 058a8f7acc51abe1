/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for what is not there yet: who sleeps uses no processor, who polls (FOLIO_GET_POLL) is answered as well, all
 * of them get the whole object, and a wait ends when it was to end.
 */
#include "tests/integration/spaces.h"

enum { N_WAITERS = 8, N_ROUNDS = 60 };

typedef struct Waiter {
        const char *space;
        uint32_t flags;              /* of the get */
        unsigned n_rounds;
} Waiter;

static void name_round(char name[64], const char *space, uint64_t round)
{
        (void)snprintf(name, 64, "%s:round-%llu", space, (unsigned long long)round);
}

static size_t round_bytes(uint64_t round)
{
        return round % 5 == 4 ? 1 << 20 : 64 + round * 97 % 5000;
}

static void wait_for_rounds(Child *child)
{
        const Waiter *waiter = child->userdata;
        struct folio_client *client = child_connect(child);
        struct folio_object *object;
        char name[64];

        for (uint64_t round = 0; round < waiter->n_rounds; round++) {
                name_round(name, waiter->space, round);
                child_say(child, round);
                CHECK_OK(folio_get(client, name, waiter->flags, 60000, &object));
                CHECK(folio_object_size(object) == round_bytes(round));
                CHECK(harness_is_filled(folio_object_data(object), round_bytes(round), round, 0));
                CHECK_OK(folio_object_release(object));
        }
        child_say(child, UINT64_MAX);
        CHECK(child_hear(child) == 0);
        folio_client_unref(client);
}

/* One writer, who waits for nothing, and some who wait for each object, half of them polling. */
static void hand_rounds(Foliod *foliod, struct folio_client *client, const char *space)
{
        unsigned n_rounds = alive_scaled(N_ROUNDS);
        uint8_t *bytes = malloc(1 << 20);
        Waiter waiters[N_WAITERS];
        Child *children[N_WAITERS];
        char name[64];

        assert_non_null(bytes);
        for (unsigned i = 0; i < N_WAITERS; i++) {
                waiters[i] = (Waiter){ space, i % 2 ? FOLIO_GET_POLL : 0, n_rounds };
                children[i] = child_start(foliod, wait_for_rounds, &waiters[i]);
        }
        for (uint64_t round = 0; round < n_rounds; round++) {
                for (unsigned i = 0; i < N_WAITERS; i++)
                        assert_int_equal(child_hear(children[i]), round);
                name_round(name, space, round);
                harness_fill(bytes, round_bytes(round), round);
                ASSERT_OK(folio_put(client, name, bytes, round_bytes(round), NULL));
        }
        for (unsigned i = 0; i < N_WAITERS; i++) {
                assert_int_equal(child_hear(children[i]), UINT64_MAX);
                child_say(children[i], 0);
                child_finish(children[i]);
        }
        for (uint64_t round = 0; round < n_rounds; round++) {
                name_round(name, space, round);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        ASSERT_OK(folio_flush(client));
        free(bytes);
}

static void test_asleep_and_polling(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++)
                hand_rounds(foliod, client, spaces_names[s]);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static uint64_t clock_read(clockid_t clock)
{
        struct timespec now;

        assert_int_equal(clock_gettime(clock, &now), 0);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool is_asleep(pid_t pid)
{
        char path[64], line[256] = "";
        const char *state;
        FILE *stat;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        stat = fopen(path, "re");
        assert_non_null(stat);
        assert_non_null(fgets(line, sizeof(line), stat));
        fclose(stat);
        state = strrchr(line, ')');
        return state && state[1] && state[2] == 'S';
}

static void wait_once(Child *child)
{
        const Waiter *waiter = child->userdata;
        struct folio_client *client = child_connect(child);
        struct folio_object *object;
        char name[64];

        (void)snprintf(name, sizeof(name), "%s:at last", waiter->space);
        child_say(child, 1);
        CHECK_OK(folio_get(client, name, waiter->flags, FOLIO_TIMEOUT_FOREVER, &object));
        CHECK(memcmp(folio_object_data(object), "here", 4) == 0);
        CHECK_OK(folio_object_release(object));
        folio_client_unref(client);
}

/*
 * What it uses is looked at over half a second or more of waiting, in which nothing happens: less than one part in ten
 * of one processor is far more than the few looks it takes, and far less than going round.
 */
static void test_sleeper_uses_no_processor(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                Waiter sleeping = { .space = spaces_names[s] };
                Waiter polling = { .space = spaces_names[s], .flags = FOLIO_GET_POLL };
                Child *sleeper = child_start(foliod, wait_once, &sleeping), *poller;
                uint64_t began_ns, used_ns, daemon_ns;
                clockid_t clock, daemon_clock;
                char name[64];

                assert_int_equal(child_hear(sleeper), 1);
                AWAIT(is_asleep(sleeper->pid));
                assert_int_equal(clock_getcpuclockid(sleeper->pid, &clock), 0);
                assert_int_equal(clock_getcpuclockid(foliod->pid, &daemon_clock), 0);
                began_ns = clock_read(CLOCK_MONOTONIC);
                used_ns = clock_read(clock);
                daemon_ns = clock_read(daemon_clock);
                while (clock_read(CLOCK_MONOTONIC) - began_ns < UINT64_C(500000000))
                        harness_pause();
                used_ns = clock_read(clock) - used_ns;
                daemon_ns = clock_read(daemon_clock) - daemon_ns;
                began_ns = clock_read(CLOCK_MONOTONIC) - began_ns;
                assert_true(used_ns < began_ns / 10);
                /* Nor does foliod look for what nobody sends. */
                assert_true(daemon_ns < began_ns / 10);
                poller = child_start(foliod, wait_once, &polling);
                assert_int_equal(child_hear(poller), 1);
                (void)snprintf(name, sizeof(name), "%s:at last", spaces_names[s]);
                ASSERT_OK(folio_put(client, name, "here", 4, NULL));
                child_finish(sleeper);
                child_finish(poller);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* The wait of a poller ends as any other. */
static void test_polling_ends(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);
        struct folio_object *object, *writing;
        struct folio_get_item item = { .name = "trusted:never" };

        (void)state;
        assert_int_equal(folio_get(client, "trusted:never", FOLIO_GET_POLL, 0, &object), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_get(client, "trusted:never", FOLIO_GET_POLL, 30, &object), FOLIO_E_TIMEOUT);
        assert_int_equal(folio_get(client, "never", FOLIO_GET_POLL, 30, &object), FOLIO_E_TIMEOUT);
        assert_int_equal(folio_get_many(client, &item, 1, FOLIO_GET_POLL, 30), 1);
        assert_int_equal(item.error, FOLIO_E_TIMEOUT);
        /* Being written is not there yet, whoever waits. */
        ASSERT_OK(folio_create(client, "trusted:written", 100, NULL, &writing));
        assert_int_equal(folio_get(client, "trusted:written", FOLIO_GET_POLL, 30, &object), FOLIO_E_TIMEOUT);
        ASSERT_OK(folio_object_seal(writing));
        ASSERT_OK(folio_get(client, "trusted:written", FOLIO_GET_POLL, 30, &object));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_object_release(writing));
        ASSERT_OK(folio_delete(client, "trusted:written", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* The daemon is killed while somebody polls, and while somebody sleeps: both are told. */
static void wait_for_ever(Child *child)
{
        const Waiter *waiter = child->userdata;
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        child_say(child, 1);
        CHECK(folio_get(client, waiter->space, waiter->flags, FOLIO_TIMEOUT_FOREVER, &object) == FOLIO_E_DAEMON_GONE);
        folio_client_unref(client);
}

static void test_daemon_goes(void **state)
{
        Foliod *foliod = spaces_start();
        Waiter waiters[2] = { { .space = "trusted:never" }, { .space = "trusted:never", .flags = FOLIO_GET_POLL } };
        Child *children[2];

        (void)state;
        for (unsigned i = 0; i < 2; i++) {
                children[i] = child_start(foliod, wait_for_ever, &waiters[i]);
                assert_int_equal(child_hear(children[i]), 1);
        }
        foliod_kill(foliod);
        for (unsigned i = 0; i < 2; i++)
                child_finish(children[i]);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_asleep_and_polling),
                INTEGRATION_TEST(test_sleeper_uses_no_processor),
                INTEGRATION_TEST(test_polling_ends),
                INTEGRATION_TEST(test_daemon_goes),
        };

        return cmocka_run_group_tests_name("poll", tests, NULL, NULL);
}
