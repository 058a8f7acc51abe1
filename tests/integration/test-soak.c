/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that are killed and started again for as long as one likes, by names that are always the same (D07, D08),
 * and a foliod that is killed with them now and then: nobody but the dead notices, and nothing of them is left.
 *
 * FOLIO_TEST_LONG=1: ten minutes, and 500 restarts of each; CI=true: two, where the build is not a slow one.
 * FOLIO_TEST_SECONDS says how long, FOLIO_TEST_SEED which, FOLIO_TEST_RESTART_EACH after how many killed clients foliod is.
 */
#include "tests/integration/alive.h"
#include "tests/integration/baseline.h"

#include <inttypes.h>
#include <stdatomic.h>

enum {
        N_SAME = 4, /* of one name, at the same time */
        N_NAMES = 6,
        N_READERS = 8,
        N_WRITERS = 4,
        N_SHARED = 40, /* names that all read and write */
        BYTES_MAX = 64 << 10,
        LARGE_BYTES = 2 << 20,
        KILL_EACH_MS = 200,
        RESTART_EACH = 12, /* kills of clients */
};

static uint64_t dice;

static unsigned roll(unsigned n)
{
        dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (unsigned)(dice >> 33) % n;
}

static void seed_dice(void)
{
        const char *seed = getenv("FOLIO_TEST_SEED");

        dice = seed ? strtoull(seed, NULL, 10) : (uint64_t)getpid();
        print_message("# seed %" PRIu64 "\n", dice);
}

static uint64_t now_ms(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* What may come of a name that others write, delete and leave half done all the time. */
static bool is_expected(int r)
{
        return r == 0 || r == FOLIO_E_NOT_FOUND || r == FOLIO_E_DELETED || r == FOLIO_E_WRITING ||
               r == FOLIO_E_EXISTS || r == FOLIO_E_WRITER_DIED;
}

static void check_answer(int r, const char *what)
{
        if (!is_expected(r))
                fprintf(stderr, "# %s: %s: %s\n", what, folio_strerror(r), folio_strerror_full());
        CHECK(is_expected(r));
}

/* Each says by its first word what the others are. */
static void fill(uint8_t *bytes, size_t n_bytes, uint64_t seed)
{
        harness_fill(bytes, n_bytes, seed);
        memcpy(bytes, &seed, sizeof(seed));
}

static bool is_whole(struct folio_object *object)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        const uint8_t *bytes = folio_object_data(object);
        size_t n_bytes = (size_t)folio_object_size(object), n_right = 8;
        uint64_t seed;

        if (!bytes) {
                fprintf(stderr, "# no bytes: %s\n", folio_strerror_full());
                return false;
        }
        memcpy(&seed, bytes, sizeof(seed));
        if (harness_is_filled(bytes + 8, n_bytes - 8, seed, 8))
                return true;
        while (n_right < n_bytes && harness_is_filled(bytes + n_right, 1, seed, n_right))
                n_right++;
        (void)folio_object_stat(object, &stat);
        fprintf(stderr,
                "# %s, generation %" PRIu64 ", seed %" PRIx64
                ": of %zu bytes %zu are right; placement %u, protection %u\n",
                stat.name, stat.generation, seed, n_bytes, n_right, stat.placement, stat.protection);
        return false;
}

/* --- D07 ------------------------------------------------------------------------------------------------------- */

/* A program that always comes up with the same names, and is killed anywhere in it. */
static void come_up(Child *child)
{
        struct folio_client *client = child_connect_with(child, child->pid % 2 ? FOLIO_OPEN_VISIBLE : 0);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .lifetime = FOLIO_WITH_CREATOR };
        uint8_t bytes[4096];
        char name[32];

        child_say(child, 1);
        for (uint64_t n = 0;; n++) {
                struct folio_object *object;
                unsigned i = (unsigned)(n % N_NAMES);
                int r;

                (void)snprintf(name, sizeof(name), "%sown-%u", i % 2 ? "trusted:" : "", i);
                fill(bytes, sizeof(bytes), n);
                options.flags = n % 3 ? FOLIO_REPLACE : 0;
                check_answer(folio_put(client, name, bytes, sizeof(bytes), &options), "put");
                r = folio_create(client, name, n % 4 ? sizeof(bytes) : LARGE_BYTES, &options, &object);
                check_answer(r, "create");
                if (r == 0) {
                        check_answer(folio_object_write(object, 0, bytes, sizeof(bytes)), "write");
                        if (n % 5)
                                check_answer(folio_object_seal(object), "seal");
                        CHECK_OK(folio_object_release(object));
                }
                r = folio_get(client, name, 0, 0, &object);
                check_answer(r, "get");
                if (r == 0)
                        CHECK_OK(folio_object_release(object));
                if (n % 7 == 0)
                        check_answer(folio_delete(client, name, FOLIO_IF_EXISTS), "delete");
                check_answer(folio_flush(client), "flush");
        }
}

static void delete_prefix(struct folio_client *client, const char *prefix)
{
        struct folio_stat entries[64] = { { .struct_bytes = sizeof(entries[0]) } };
        struct folio_list *list;
        char name[FOLIO_NAMESPACE_BYTES_MAX + FOLIO_KEY_BYTES_MAX + 2];
        int n;

        ASSERT_OK(folio_list_open(client, prefix, &list));
        while ((n = folio_list_next(list, entries, 64)) > 0)
                for (int i = 0; i < n; i++) {
                        (void)snprintf(name, sizeof(name), "%s", entries[i].name);
                        ASSERT_OK(folio_delete(client, name, FOLIO_IF_EXISTS));
                }
        assert_int_equal(n, 0);
        folio_list_close(list);
}

static Foliod *start(void)
{
        return foliod_start_kept("--budget", "512M", "--objects-max", "16384", ALIVE_NO_POOL, FOLIOD_TRUSTED, NULL);
}

static void finish(Foliod *foliod, const Baseline *before)
{
        struct folio_client *client = foliod_connect(foliod);

        delete_prefix(client, "default:");
        delete_prefix(client, "trusted:");
        folio_client_unref(client);
        baseline_check(foliod, before);
        foliod_stop(foliod);
}

static Baseline begin(Foliod *foliod)
{
        struct folio_client *client = foliod_connect(foliod);

        ASSERT_OK(folio_put(client, "trusted:first", "x", 1, NULL));
        ASSERT_OK(folio_delete(client, "trusted:first", 0));
        folio_client_unref(client);
        return baseline_take(foliod);
}

static void test_d07_same_names_again(void **state)
{
        unsigned n_restarts = getenv("FOLIO_TEST_LONG") ? 500 : alive_scaled(60);
        Foliod *foliod = start();
        Baseline before = begin(foliod);
        Child *children[N_SAME];
        pid_t pid = foliod_serving_pid(foliod);

        (void)state;
        seed_dice();
        for (unsigned i = 0; i < N_SAME; i++)
                children[i] = child_start(foliod, come_up, NULL);
        for (unsigned n = 0; n < n_restarts; n++)
                for (unsigned i = 0; i < N_SAME; i++) {
                        assert_int_equal(child_hear(children[i]), 1);
                        (void)usleep(roll(4000)); /* anywhere in what it does */
                        child_kill(children[i]);
                        children[i] = child_start(foliod, come_up, NULL);
                }
        for (unsigned i = 0; i < N_SAME; i++)
                child_kill(children[i]);
        assert_int_equal(foliod_serving_pid(foliod), pid);
        finish(foliod, &before);
}

/* --- D08 ------------------------------------------------------------------------------------------------------- */

static void name_shared(unsigned i, char name[32])
{
        (void)snprintf(name, 32, "%sshared-%u", i % 2 ? "trusted:" : "", i);
}

static void read_on(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);
        struct folio_object *held[4] = { NULL };
        char name[32];

        dice = (uint64_t)getpid();
        for (unsigned n = 0;; n++) {
                struct folio_object *object = NULL;
                int r;

                name_shared(roll(N_SHARED), name);
                r = folio_get(client, name, 0, n % 16 ? 0 : 2, &object);
                if (r != FOLIO_E_TIMEOUT)
                        check_answer(r, "get");
                if (r != 0)
                        continue;
                CHECK(is_whole(object));
                /* Some are held for a while, and are looked at again. */
                if (held[n % 4]) {
                        CHECK(is_whole(held[n % 4]));
                        CHECK_OK(folio_object_release(held[n % 4]));
                }
                held[n % 4] = object;
        }
}

static void write_on(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);
        uint8_t *bytes = malloc(LARGE_BYTES);
        char name[32];

        CHECK(bytes);
        dice = (uint64_t)getpid();
        for (unsigned n = 0;; n++) {
                struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_REPLACE };
                size_t n_bytes = 8 + roll(n % 8 ? 4000 : BYTES_MAX);
                struct folio_object *object;
                int r;

                name_shared(roll(N_SHARED), name);
                if (n % 20 == 19) {
                        check_answer(folio_delete(client, name, FOLIO_IF_EXISTS), "delete");
                } else if (n % 10 == 7) {
                        n_bytes = n % 20 == 7 ? LARGE_BYTES : n_bytes;
                        fill(bytes, n_bytes, dice);
                        r = folio_create(client, name, n_bytes, &options, &object);
                        check_answer(r, "create");
                        if (r == 0) {
                                check_answer(folio_object_write(object, 0, bytes, n_bytes), "write");
                                check_answer(folio_object_seal(object), "seal");
                                CHECK_OK(folio_object_release(object));
                        }
                } else {
                        fill(bytes, n_bytes, dice);
                        check_answer(folio_put(client, name, bytes, n_bytes, &options), "put");
                }
                if (n % 32 == 31)
                        check_answer(folio_flush(client), "flush");
        }
}

static void (*const parts[])(Child *) = { read_on, write_on };

/* One that has ended by itself has found something wrong. */
static void check_running(Child *const *children, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                siginfo_t info = { .si_pid = 0 };

                (void)waitid(P_PID, (id_t)children[i]->pid, &info, WEXITED | WNOHANG | WNOWAIT);
                if (info.si_pid)
                        fail_msg("a %s has ended by itself", i < N_READERS ? "reader" : "writer");
        }
}

static uint64_t choose_seconds(void)
{
        const char *text = getenv("FOLIO_TEST_SECONDS"), *ci = getenv("CI");

        if (text)
                return strtoull(text, NULL, 10);
        if (getenv("FOLIO_TEST_LONG"))
                return 600;
        return ci && strcmp(ci, "true") == 0 && !getenv("FOLIO_TEST_SLOW") ? 120 : 15;
}

static void test_d08_soak(void **state)
{
        uint64_t end_ms = now_ms() + choose_seconds() * 1000;
        Foliod *foliod = start();
        Baseline before = begin(foliod);
        Child *children[N_READERS + N_WRITERS];
        struct folio_client *client;
        const char *each = getenv("FOLIO_TEST_RESTART_EACH");
        unsigned n_kills = 0, n_restarts = 0, restart_each = each ? (unsigned)strtoul(each, NULL, 10) : RESTART_EACH;

        (void)state;
        seed_dice();
        for (unsigned i = 0; i < N_READERS + N_WRITERS; i++)
                children[i] = child_start(foliod, parts[i >= N_READERS], NULL);
        while (now_ms() < end_ms) {
                unsigned i = roll(N_READERS + N_WRITERS);

                (void)usleep((useconds_t)roll(2 * KILL_EACH_MS) * 1000);
                check_running(children, N_READERS + N_WRITERS);
                child_kill(children[i]);
                if (++n_kills % restart_each == 0) {
                        baseline_kill(foliod);
                        n_restarts++;
                }
                children[i] = child_start(foliod, parts[i >= N_READERS], NULL);
        }
        check_running(children, N_READERS + N_WRITERS);
        for (unsigned i = 0; i < N_READERS + N_WRITERS; i++)
                child_kill(children[i]);
        client = foliod_connect(foliod);
        assert_int_equal(foliod_fact(client, "keeper.failed"), 0);
        assert_int_equal(foliod_fact(client, "restore.dropped"), 0);
        assert_int_equal(foliod_fact(client, "restore.bad_descriptors"), 0);
        folio_client_unref(client);
        finish(foliod, &before);
        print_message("# %u clients killed, foliod %u times\n", n_kills, n_restarts);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_d07_same_names_again),
                INTEGRATION_TEST(test_d08_soak),
        };

        return cmocka_run_group_tests_name("soak", tests, NULL, NULL);
}
