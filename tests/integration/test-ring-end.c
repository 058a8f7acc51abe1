/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of puts that nobody waited for: others see them when the program says so, refusals that come late are
 * told, what was put before a program ended is there however it ended, and none of it takes a system call. Everything
 * in a namespace whose writers are trusted, and in one where they are not.
 */
#include "tests/integration/spaces.h"
#include "tests/integration/trace.h"

#include "proto/ring.h"

/* --- visible ------------------------------------------------------------------------------------------------------ */

enum { SEE_PUT, SEE_GONE };

/* Looks once when it is told to, and never waits. */
static void look_when_told(Child *child)
{
        const char *space = child->userdata;
        struct folio_client *client = child_connect(child);
        char name[64];
        uint64_t i, read;

        (void)snprintf(name, sizeof(name), "%s:seen", space);
        while ((i = child_hear(child)) != UINT64_MAX) {
                if (i % 2 == SEE_GONE)
                        CHECK(folio_exists(client, name) == 0);
                else {
                        CHECK_OK(folio_read(client, name, 0, &read, sizeof(read)));
                        CHECK(read == i);
                }
                child_say(child, i);
        }
        folio_client_unref(client);
}

static void ask(Child *child, uint64_t number)
{
        child_say(child, number);
        assert_int_equal(child_hear(child), number);
}

static void put_seen(struct folio_client *client, const char *name, uint64_t number, unsigned way)
{
        struct folio_create_options visible = { .struct_bytes = sizeof(visible),
                                                .flags = FOLIO_PUT_VISIBLE | FOLIO_REPLACE };
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_object *object;

        switch (way) {
        case 0:
                ASSERT_OK(folio_put(client, name, &number, sizeof(number), &visible));
                return;
        case 1:
                ASSERT_OK(folio_put(client, name, &number, sizeof(number), &replace));
                ASSERT_OK(folio_flush(client));
                return;
        case 2:
                ASSERT_OK(folio_create(client, name, sizeof(number), &visible, &object));
                break;
        default:
                ASSERT_OK(folio_create(client, name, sizeof(number), &replace, &object));
                break;
        }
        ASSERT_OK(folio_object_write(object, 0, &number, sizeof(number)));
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        if (way > 2)
                ASSERT_OK(folio_flush(client));
}

static void test_visible_when_it_returns(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *visible = foliod_connect(foliod), *plain = foliod_connect_with(foliod, 0);

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                Child *child = child_start(foliod, look_when_told, (void *)(uintptr_t)spaces_names[s]);
                char name[64];

                (void)snprintf(name, sizeof(name), "%s:seen", spaces_names[s]);
                spaces_warm_up(plain, spaces_names[s]);
                for (uint64_t i = 0; i < 2 * alive_scaled(500); i += 2) {
                        put_seen(plain, name, i, (unsigned)(i / 2) % 4);
                        ask(child, i + SEE_PUT);
                        ASSERT_OK(folio_delete(visible, name, 0));
                        ask(child, i + SEE_GONE);
                }
                child_say(child, UINT64_MAX);
                child_finish(child);
        }
        folio_client_unref(visible);
        folio_client_unref(plain);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- refusals that come late -------------------------------------------------------------------------------------- */

enum { N_RACED = 400, N_RACES = 6 };

typedef struct Race {
        const char *space;
        uint64_t writer;
} Race;

/* Puts every name, and finds out in which of two ways it was told of each that it did not get. */
static void race_for_names(Child *child)
{
        const Race *race = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        bool is_mine[N_RACED];
        unsigned n_late = 0;
        char name[64];
        uint64_t read;
        int told;

        for (unsigned round = 0; round < N_RACES; round++) {
                child_say(child, round);
                CHECK(child_hear(child) == round);
                for (unsigned i = 0; i < N_RACED; i++) {
                        int error;

                        (void)snprintf(name, sizeof(name), "%s:race-%u-%u", race->space, round, i);
                        error = folio_put(client, name, &race->writer, sizeof(read), NULL);
                        CHECK(error == 0 || error == FOLIO_E_EXISTS);
                        is_mine[i] = error == 0;
                }
                told = folio_flush(client);
                CHECK(told == 0 || told == FOLIO_E_EXISTS);
                if (told)
                        CHECK(strstr(folio_strerror_full(), "race-"));
                CHECK_OK(folio_flush(client));
                n_late = 0;
                for (unsigned i = 0; i < N_RACED; i++) {
                        (void)snprintf(name, sizeof(name), "%s:race-%u-%u", race->space, round, i);
                        CHECK_OK(folio_read(client, name, 0, &read, sizeof(read)));
                        /* Who was refused by the call itself does not have it after all. */
                        CHECK(is_mine[i] || read != race->writer);
                        n_late += is_mine[i] && read != race->writer;
                }
                CHECK((n_late > 0) == (told != 0));
        }
        folio_client_unref(client);
}

static void test_two_race_for_names(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                Race races[2] = { { spaces_names[s], 1 }, { spaces_names[s], 2 } };
                Child *children[2];
                char prefix[64];

                for (unsigned i = 0; i < 2; i++)
                        children[i] = child_start(foliod, race_for_names, &races[i]);
                for (uint64_t round = 0; round < N_RACES; round++) {
                        for (unsigned i = 0; i < 2; i++)
                                assert_int_equal(child_hear(children[i]), round);
                        for (unsigned i = 0; i < 2; i++)
                                child_say(children[i], round);
                }
                for (unsigned i = 0; i < 2; i++)
                        child_finish(children[i]);
                (void)snprintf(prefix, sizeof(prefix), "%s:race-", spaces_names[s]);
                assert_int_equal(spaces_delete_all(client, prefix), N_RACED * N_RACES);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* The quota is used up by puts that nobody waits for: the flush says so, and then each put by itself. */
static void fill_quota(struct folio_client *client, const char *space, unsigned quota)
{
        unsigned n_put = 0;
        char name[64];
        int error = 0;

        for (; n_put < quota + 100; n_put++) {
                (void)snprintf(name, sizeof(name), "%s:quota-%u", space, n_put);
                error = folio_put(client, name, name, sizeof(name), NULL);
                if (error)
                        break;
        }
        assert_true(n_put >= quota && (error == 0 || error == FOLIO_E_LIMIT));
        error = folio_flush(client);
        assert_true(error == FOLIO_E_LIMIT || n_put == quota);
        if (error)
                assert_non_null(strstr(folio_strerror_full(), "quota"));
        for (unsigned i = 0; i < 3; i++) {
                (void)snprintf(name, sizeof(name), "%s:more-%u", space, i);
                assert_int_equal(folio_put(client, name, name, sizeof(name), NULL), FOLIO_E_LIMIT);
                assert_int_equal(folio_exists(client, name), 0);
        }
        ASSERT_OK(folio_flush(client));
        (void)snprintf(name, sizeof(name), "%s:quota-0", space);
        ASSERT_OK(folio_delete(client, name, 0));
        (void)snprintf(name, sizeof(name), "%s:more-0", space);
        ASSERT_OK(folio_put(client, name, name, sizeof(name), NULL));
        ASSERT_OK(folio_flush(client));
        ASSERT_OK(folio_delete(client, name, 0));
        (void)snprintf(name, sizeof(name), "%s:quota-", space);
        assert_int_equal(spaces_delete_all(client, name), quota - 1);
}

/* Without a flush: the call itself says so soon enough, as no more can be under way than the ring has room for. */
static void fill_quota_unflushed(struct folio_client *client, const char *space, unsigned quota)
{
        char name[64];
        int error = 0;

        for (unsigned i = 0; error == 0; i++) {
                assert_true(i <= quota + 2 * RING_RECORDS);
                (void)snprintf(name, sizeof(name), "%s:quota-%u", space, i);
                error = folio_put(client, name, name, sizeof(name), NULL);
        }
        assert_int_equal(error, FOLIO_E_LIMIT);
        error = folio_flush(client);
        assert_true(error == 0 || error == FOLIO_E_LIMIT);
        (void)snprintf(name, sizeof(name), "%s:quota-", space);
        assert_int_equal(spaces_delete_all(client, name), quota);
        ASSERT_OK(folio_flush(client));
}

static void test_quota_told_late(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, "--namespace", "small:quota-objects=300",
                                      "--namespace", "fast:quota-objects=300,writers=trusted", NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        for (unsigned i = 0; i < 3; i++) {
                fill_quota(client, "small", 300);
                fill_quota(client, "fast", 300);
                fill_quota_unflushed(client, "small", 300);
                fill_quota_unflushed(client, "fast", 300);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- no system call ----------------------------------------------------------------------------------------------- */

static void mark(const char *what)
{
        CHECK(write(-1, what, strlen(what)) < 0);
}

enum { N_UNTOLD = 400 };             /* fewer than a ring holds: nobody takes them out meanwhile */

static void put_untold(Child *child)
{
        const char *space = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        char name[64], bytes[100] = "untold";

        spaces_warm_up(client, space);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        mark("puts begin");
        for (unsigned i = 0; i < N_UNTOLD; i++) {
                (void)snprintf(name, sizeof(name), "%s:untold-%u", space, i);
                CHECK_OK(folio_put(client, name, bytes, sizeof(bytes), NULL));
        }
        mark("puts end");
        child_say(child, 2);
        CHECK(child_hear(child) == 2);
        CHECK_OK(folio_flush(client));
        child_say(child, 3);
        CHECK(child_hear(child) == 3);
        mark("deletes begin");
        for (unsigned i = 0; i < N_UNTOLD; i++) {
                (void)snprintf(name, sizeof(name), "%s:untold-%u", space, i);
                CHECK_OK(folio_delete(client, name, 0));
        }
        mark("deletes end");
        child_say(child, 4);
        CHECK(child_hear(child) == 4);
        CHECK_OK(folio_flush(client));
        child_say(child, 5);
        folio_client_unref(client);
}

/* The daemon stands still, so that the only thing there could be to do is to ring the bell, once. */
static bool count_untold(Foliod *foliod, Child *child)
{
        bool is_traced;
        Trace trace;

        assert_int_equal(child_hear(child), 1);
        is_traced = trace_begin(&trace, foliod, child->pid, NULL);
        for (uint64_t number = 1; number < 5; number += 2) {
                assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
                child_say(child, number);
                assert_int_equal(child_hear(child), number + 1);
                assert_int_equal(kill(foliod->pid, SIGCONT), 0);
                child_say(child, number + 1);
                assert_int_equal(child_hear(child), number + 2);
        }
        if (is_traced) {
                trace_end(&trace);
                assert_true(trace_count_between(&trace, "puts begin", "puts end") <= 1);
                assert_true(trace_count_between(&trace, "deletes begin", "deletes end") <= 1);
        }
        child_finish(child);
        return is_traced;
}

static void test_no_system_call(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        bool is_traced = true;

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++)
                is_traced = count_untold(foliod, child_start(foliod, put_untold, (void *)(uintptr_t)spaces_names[s])) &&
                            is_traced;
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

/* --- the program ends --------------------------------------------------------------------------------------------- */

typedef struct Ending {
        const char *space;
        unsigned n;
        bool closes;                 /* gives its client up first */
        bool stays;                  /* and does not end by itself */
        _Atomic uint64_t *n_begun, *n_returned; /* shared */
} Ending;

static void name_ending(char name[64], const char *space, uint64_t i)
{
        (void)snprintf(name, 64, "%s:ending-%llu", space, (unsigned long long)i);
}

static size_t ending_bytes(uint64_t i)
{
        return 8 + i * 7919 % 3000;
}

static void put_and_end(Child *child)
{
        const Ending *ending = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        uint8_t bytes[4096];
        char name[64];

        spaces_warm_up(client, ending->space);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        for (uint64_t i = 0; i < ending->n; i++) {
                name_ending(name, ending->space, i);
                harness_fill(bytes, ending_bytes(i), i);
                if (ending->n_begun)
                        atomic_store(ending->n_begun, i + 1);
                CHECK_OK(folio_put(client, name, bytes, ending_bytes(i), NULL));
                if (ending->n_returned)
                        atomic_store(ending->n_returned, i + 1);
        }
        if (ending->stays) {
                child_say(child, 2);
                (void)child_hear(child);
        }
        if (ending->closes)
                folio_client_unref(client);
        fflush(NULL);
        _exit(0);
}

static void check_ending(struct folio_client *client, const char *space, uint64_t i)
{
        uint8_t bytes[4096];
        char name[64];

        name_ending(name, space, i);
        ASSERT_OK(folio_read(client, name, 0, bytes, ending_bytes(i)));
        assert_true(harness_is_filled(bytes, ending_bytes(i), i, 0));
}

static void test_exit_right_after(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);

        (void)state;
        for (unsigned s = 0; s < 2 * N_SPACES; s++) {
                Ending ending = { .space = spaces_names[s / 2], .n = 1000, .closes = s % 2 };
                Child *child = child_start(foliod, put_and_end, &ending);
                char prefix[64];

                assert_int_equal(child_hear(child), 1);
                child_say(child, 1);
                child_finish(child);
                spaces_await_sessions(client, 1);
                for (uint64_t i = 0; i < ending.n; i++)
                        check_ending(client, ending.space, i);
                (void)snprintf(prefix, sizeof(prefix), "%s:ending-", ending.space);
                assert_int_equal(spaces_delete_all(client, prefix), ending.n);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Killed while the daemon stands still: what is in its ring is carried out all the same. */
static void test_killed_with_a_full_ring(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                Ending ending = { .space = spaces_names[s], .n = N_UNTOLD, .stays = true };
                Child *child = child_start(foliod, put_and_end, &ending);
                char prefix[64];

                assert_int_equal(child_hear(child), 1);
                assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
                child_say(child, 1);
                assert_int_equal(child_hear(child), 2);
                child_kill(child);
                assert_int_equal(kill(foliod->pid, SIGCONT), 0);
                spaces_await_sessions(client, 1);
                for (uint64_t i = 0; i < ending.n; i++)
                        check_ending(client, ending.space, i);
                (void)snprintf(prefix, sizeof(prefix), "%s:ending-", ending.space);
                assert_int_equal(spaces_delete_all(client, prefix), ending.n);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* At any moment: every put that returned is there, the one it was in the middle of is there whole or not at all. */
static void test_killed_at_any_moment(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        _Atomic uint64_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        (void)state;
        assert_ptr_not_equal(shared, MAP_FAILED);
        for (unsigned round = 0; round < alive_scaled(40); round++) {
                Ending ending = { .space = spaces_names[round % N_SPACES], .n = 100000, .n_begun = &shared[0],
                                  .n_returned = &shared[1] };
                Child *child = child_start(foliod, put_and_end, &ending);
                uint64_t wanted = 1 + round * 37, n_begun, n_returned;
                char name[64];

                atomic_store(&shared[0], 0);
                atomic_store(&shared[1], 0);
                assert_int_equal(child_hear(child), 1);
                child_say(child, 1);
                for (uint64_t looks = 0; atomic_load(&shared[1]) < wanted; looks++) {
                        assert_true(looks < UINT64_C(10000000000));
                        assert_int_equal(kill(child->pid, 0), 0);
                }
                child_kill(child);
                spaces_await_sessions(client, 1);
                n_begun = atomic_load(&shared[0]);
                n_returned = atomic_load(&shared[1]);
                for (uint64_t i = 0; i < n_returned; i++)
                        check_ending(client, ending.space, i);
                name_ending(name, ending.space, n_begun - 1);
                if (n_begun > n_returned && folio_exists(client, name))
                        check_ending(client, ending.space, n_returned++);
                (void)snprintf(name, sizeof(name), "%s:ending-", ending.space);
                assert_int_equal(spaces_delete_all(client, name), n_returned);
        }
        assert_int_equal(munmap((void *)shared, 4096), 0);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* It is the daemon that ends, with the ring full and somebody waiting for room: told, and no wait for ever. */
static void put_until_gone(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);
        char name[64];
        int error = 0;

        spaces_warm_up(client, child->userdata);
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        for (unsigned i = 0; error == 0; i++) {
                CHECK(i < 100000);
                (void)snprintf(name, sizeof(name), "%s:gone-%u", (const char *)child->userdata, i);
                error = folio_put(client, name, name, sizeof(name), NULL);
                if (i == N_UNTOLD)
                        child_say(child, 2);
        }
        CHECK(error == FOLIO_E_DAEMON_GONE);
        CHECK(folio_flush(client) == FOLIO_E_DAEMON_GONE);
        folio_client_unref(client);
}

static void test_daemon_killed(void **state)
{
        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                Foliod *foliod = spaces_start();
                Child *child = child_start(foliod, put_until_gone, (void *)(uintptr_t)spaces_names[s]);

                assert_int_equal(child_hear(child), 1);
                assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
                child_say(child, 1);
                assert_int_equal(child_hear(child), 2);
                foliod_kill(foliod);
                child_finish(child);
                foliod_stop(foliod);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_visible_when_it_returns),
                INTEGRATION_TEST(test_two_race_for_names),
                INTEGRATION_TEST(test_quota_told_late),
                INTEGRATION_TEST(test_no_system_call),
                INTEGRATION_TEST(test_exit_right_after),
                INTEGRATION_TEST(test_killed_with_a_full_ring),
                INTEGRATION_TEST(test_killed_at_any_moment),
                INTEGRATION_TEST(test_daemon_killed),
        };

        return cmocka_run_group_tests_name("ring-end", tests, NULL, NULL);
}
