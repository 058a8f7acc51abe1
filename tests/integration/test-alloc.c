/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is promised is there, memory that is not there is refused in words, memory that is given back is gone.
 * Where a case needs a file system of a certain size, the budget plays its part: foliod's memory is bounded by that,
 * and the clients see the same answer. Nobody here may be signalled.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"

#include <sys/time.h>

#define MIB (UINT64_C(1) << 20)
#define HUGE (2 * MIB)

/* Says which number stands in the way. */
static void assert_says_numbers(void)
{
        assert_non_null(strpbrk(folio_strerror_full(), "0123456789"));
}

static void create_fill_delete(Child *child)
{
        const char *prefix = child->userdata;
        struct folio_client *client = child_connect(child);
        uint32_t random = (uint32_t)getpid();
        unsigned n_full = 0, n_done = 0;
        char name[64];

        (void)snprintf(name, sizeof(name), "%sfill %d", prefix, (int)getpid());
        for (unsigned i = 0; i < alive_scaled(12); i++) {
                struct folio_object *object;
                uint64_t n_bytes;
                void *data;
                int error;

                random = random * 1664525 + 1013904223;
                n_bytes = MIB + random % (24 * MIB);
                error = folio_create(client, name, n_bytes, NULL, &object);
                if (error) {
                        CHECK(error == FOLIO_E_FULL);
                        n_full++;
                        continue;
                }
                CHECK_OK(folio_object_map_write(object, &data));
                /* One byte of each page: a signal would come at any of them. */
                for (uint64_t j = 0; j < n_bytes; j += 4096)
                        ((volatile uint8_t *)data)[j] = (uint8_t)j;
                ((volatile uint8_t *)data)[n_bytes - 1] = 1;
                CHECK_OK(folio_object_seal(object));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_delete(client, name, 0));
                n_done++;
        }
        child_say(child, n_done);
        child_say(child, n_full);
        folio_client_unref(client);
}

/* A01: many writers in a store too small for all: every create is good to the last byte, or says FULL. */
static void test_a01_never_outgrows(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);
        Child *children[8];
        Alive before;
        uint64_t n_done = 0, n_full = 0;

        (void)state;
        folio_client_unref(client);
        before = alive_begin(foliod);
        for (unsigned i = 0; i < 8; i++)
                children[i] = child_start(foliod, create_fill_delete, (void *)(i % 2 && has_tmpfs ? "tmpfs:" : ""));
        for (unsigned i = 0; i < 8;) {
                struct pollfd said = { .fd = children[i]->socket, .events = POLLIN };

                /* What the kernel says that foliod has, at any time: the budget, and the staging of eight clients. */
                assert_true(alive_memory_bytes(foliod) <= 100 * MIB * 102 / 100 + 10 * 4 * MIB);
                if (poll(&said, 1, 5) != 1)
                        continue;
                n_done += child_hear(children[i]);
                n_full += child_hear(children[i]);
                child_finish(children[i]);
                i++;
        }
        print_message("# %llu created, %llu refused\n", (unsigned long long)n_done, (unsigned long long)n_full);
        assert_true(n_done > 0);
        alive_check(&before);
        foliod_stop(foliod);
}

static void reserve_then_fill(struct folio_client *client, const char *prefix)
{
        struct folio_object *object, *fillers[64];
        char name[64];
        unsigned n = 0;
        void *data;

        (void)snprintf(name, sizeof(name), "%sreserved", prefix);
        ASSERT_OK(folio_create(client, name, 60 * MIB, NULL, &object));
        /* Somebody else takes the rest, to the last byte. */
        for (uint64_t n_bytes = 32 * MIB; n_bytes >= 4096 && n < 64;) {
                int error;

                (void)snprintf(name, sizeof(name), "%sfiller %u", prefix, n);
                error = folio_create(client, name, n_bytes, NULL, &fillers[n]);
                if (error == 0) {
                        n++;
                } else {
                        assert_int_equal(error, FOLIO_E_FULL);
                        n_bytes /= 2;
                }
        }
        assert_true(n > 0 && n < 64);
        ASSERT_OK(folio_object_map_write(object, &data));
        memset(data, 0x11, 60 * MIB);
        {
                struct folio_object *refused = NULL;

                (void)snprintf(name, sizeof(name), "%srefused", prefix);
                assert_int_equal(folio_create(client, name, MIB, NULL, &refused), FOLIO_E_FULL);
                assert_says_numbers();
                assert_null(refused);
                assert_int_equal(folio_put(client, name, data, 3 * MIB, NULL), FOLIO_E_FULL);
                assert_int_equal(folio_exists(client, name), 0);
        }
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        for (unsigned i = 0; i < n; i++)
                ASSERT_OK(folio_object_abort(fillers[i]));
        (void)snprintf(name, sizeof(name), "%sreserved", prefix);
        ASSERT_OK(folio_delete(client, name, 0));
}

/* A02: everything else is taken after the object was created and before it is touched. */
static void test_a02_filled_after_create(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);
        Alive before;

        (void)state;
        folio_client_unref(client);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        reserve_then_fill(client, "");
        AWAIT(alive_charges(client).used_bytes == before.used_bytes);
        if (has_tmpfs)
                reserve_then_fill(client, "tmpfs:");
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * A05: every second object is deleted: what is free is as good as if it were in one piece. Sizes are multiples of 2
 * MiB, as own regions beyond that are rounded up to.
 */
static void test_a05_full_though_the_total_would_do(void **state)
{
        Foliod *foliod = foliod_start("--budget", "300M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        unsigned n_small = alive_scaled(20000), n_kept = 0;
        struct folio_object *object;
        uint64_t kept_bytes = 0, packed_bytes;
        static char bytes[3 * MIB];
        char name[32];

        (void)state;
        for (unsigned i = 0; i < 100; i++) {
                (void)snprintf(name, sizeof(name), "piece %u", i);
                ASSERT_OK(folio_put(client, name, bytes, 3 * MIB, NULL));
        }
        for (unsigned i = 0; i < 100; i += 2) {
                (void)snprintf(name, sizeof(name), "piece %u", i);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        ASSERT_OK(folio_create(client, "whole", 140 * MIB, NULL, &object));
        ASSERT_OK(folio_object_abort(object));
        for (unsigned i = 1; i < 100; i += 2) {
                (void)snprintf(name, sizeof(name), "piece %u", i);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        AWAIT(alive_charges(client).used_bytes == before.used_bytes);

        /* Small ones of all sizes, every second one deleted, and as many put again: no more memory than they need. */
        for (unsigned i = 0; i < n_small; i++) {
                (void)snprintf(name, sizeof(name), "small %u", i);
                ASSERT_OK(folio_put(client, name, bytes, 100 + i * 37 % 2900, NULL));
        }
        packed_bytes = alive_memory_bytes(foliod);
        for (unsigned i = 0; i < n_small; i += 2) {
                (void)snprintf(name, sizeof(name), "small %u", i);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        for (unsigned i = 0; i < n_small; i += 2) {
                (void)snprintf(name, sizeof(name), "again %u", i);
                ASSERT_OK(folio_put(client, name, bytes, 100 + (i + 2) * 37 % 2900, NULL));
                kept_bytes += 100 + (i + 2) * 37 % 2900;
        }
        for (unsigned i = 1; i < n_small; i += 2)
                kept_bytes += 100 + i * 37 % 2900;
        print_message("# %llu MiB in %llu MiB, before deleting %llu MiB\n", (unsigned long long)(kept_bytes / MIB),
                      (unsigned long long)(alive_memory_bytes(foliod) / MIB), (unsigned long long)(packed_bytes / MIB));
        assert_true(alive_memory_bytes(foliod) <= packed_bytes + packed_bytes * 15 / 100 + 2 * HUGE);
        for (unsigned i = 0; i < n_small; i++) {
                (void)snprintf(name, sizeof(name), i % 2 ? "small %u" : "again %u", i);
                ASSERT_OK(folio_delete(client, name, 0));
                n_kept++;
        }
        assert_int_equal(n_kept, n_small);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * A06: one large reservation. A share of the budget stands for a share of free memory, which belongs to others too.
 * It is there, or FULL, or TOO_LARGE; and what was refused has left nothing behind.
 */
static void test_a06_large_reservation(void **state)
{
        Foliod *foliod = foliod_start("--budget", "300M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        static const unsigned shares[] = { 25, 50, 90, 99, 101 };
        struct folio_object *first, *second;

        (void)state;
        for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
                uint64_t n_bytes = 3 * MIB * shares[i];
                int error = folio_create(client, "share", n_bytes, NULL, &first);

                if (shares[i] <= 90)
                        ASSERT_OK(error);
                if (shares[i] > 100)
                        assert_int_equal(error, FOLIO_E_TOO_LARGE);
                if (error) {
                        assert_true(error == FOLIO_E_FULL || error == FOLIO_E_TOO_LARGE);
                        assert_says_numbers();
                        continue;
                }
                error = folio_create(client, "another", n_bytes, NULL, &second);
                if (shares[i] <= 25) {
                        ASSERT_OK(error);
                        ASSERT_OK(folio_object_abort(second));
                } else if (shares[i] > 50) {
                        assert_int_equal(error, FOLIO_E_FULL);
                        assert_true(alive_memory_bytes(foliod) <= before.memory_bytes + n_bytes + 16 * MIB);
                } else if (error == 0) {
                        ASSERT_OK(folio_object_abort(second));
                }
                ASSERT_OK(folio_object_abort(first));
                AWAIT(alive_charges(client).used_bytes == before.used_bytes);
                AWAIT(alive_memory_bytes(foliod) <= before.memory_bytes + 16 * MIB);
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void nothing(int number)
{
        (void)number;
}

static void create_under_signals(Foliod *foliod, uint64_t n_bytes, bool signals_daemon)
{
        struct itimerval often = { .it_interval = { .tv_usec = 1000 }, .it_value = { .tv_usec = 1000 } }, never = { 0 };
        struct sigaction action = { .sa_handler = nothing }, old;
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        pid_t pid = foliod->pid, disturber = 0;
        void *data;

        fflush(NULL);
        if (signals_daemon) {
                disturber = fork();
                assert_true(disturber >= 0);
                if (disturber == 0) {
                        /* 200 a second, of the one signal that a running foliod is made for. */
                        for (unsigned i = 0; i < 4000; i++) {
                                if (kill(pid, SIGHUP) != 0)
                                        break;
                                (void)usleep(5000);
                        }
                        _exit(0);
                }
        }
        assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
        for (unsigned i = 0; i < 3; i++) {
                ASSERT_OK(folio_create(client, "interrupted", n_bytes, NULL, &object));
                ASSERT_OK(folio_object_map_write(object, &data));
                for (uint64_t j = 0; j < n_bytes; j += 4096)
                        ((volatile uint8_t *)data)[j] = 1;
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_put(client, "copied", data = calloc(1, 5 * MIB), 5 * MIB, NULL));
                free(data);
                ASSERT_OK(folio_delete(client, "interrupted", 0));
                ASSERT_OK(folio_delete(client, "copied", 0));
        }
        assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
        assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
        if (disturber) {
                (void)kill(disturber, SIGKILL);
                (void)waitpid(disturber, NULL, 0);
        }
        folio_client_unref(client);
}

/* A08: signals while memory is reserved: real ones, and a kernel that undoes its work at each. */
static void test_a08_signals_during_reservation(void **state)
{
        const char *shim = getenv("FOLIO_SHIM_FALLOCATE");
        Foliod *foliod = foliod_start("--budget", "300M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        char world[512], link_path[64];

        (void)state;
        create_under_signals(foliod, 100 * MIB, true);
        alive_check(&before);
        foliod_stop(foliod);

        assert_non_null(shim);
        /* Through a link: the path of a checkout may hold a space, and LD_PRELOAD cannot. */
        (void)snprintf(link_path, sizeof(link_path), "/tmp/folio-shim-%d.so", (int)getpid());
        assert_int_equal(symlink(shim, link_path), 0);
        (void)snprintf(world, sizeof(world), "preload=%s", link_path);
        program_set_world(world);
        foliod = foliod_start("--budget", "300M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        assert_int_equal(unlink(link_path), 0);
        before = alive_begin(foliod);
        create_under_signals(foliod, 100 * MIB, false);
        alive_check(&before);
        foliod_stop(foliod);
}

/* A12: a budget larger than what the cgroup allows is clamped, or refused; a client sees FULL, nobody is killed. */
static void test_a12_container_limit(void **state)
{
        char cgroup[96], world[128];
        struct folio_client *client;
        struct folio_object *objects[128];
        uint64_t budget_bytes;
        unsigned n = 0;
        Foliod *foliod;
        Alive before;
        int error = 0;

        (void)state;
        if (!program_make_cgroup(128 * MIB, cgroup)) {
                print_message("# no memory cgroup can be made here\n");
                skip();
        }
        (void)snprintf(world, sizeof(world), "cgroup=%s", cgroup);
        for (unsigned round = 0; round < 2; round++) {
                program_set_world(world);
                foliod =
                        round ? foliod_start("--budget", "1G", ALIVE_NO_POOL, NULL) : foliod_start(ALIVE_NO_POOL, NULL);
                program_set_world(NULL);
                before = alive_begin(foliod);
                client = foliod_connect(foliod);
                budget_bytes = foliod_fact(client, "memory.budget_bytes");
                if (budget_bytes > 128 * MIB)
                        fail_msg("a budget of %llu MiB in a cgroup of 128 MiB",
                                 (unsigned long long)(budget_bytes / MIB));
                for (n = 0; n < 128; n++) {
                        char name[32];
                        void *data;

                        (void)snprintf(name, sizeof(name), "contained %u", n);
                        error = folio_create(client, name, 3 * MIB, NULL, &objects[n]);
                        if (error)
                                break;
                        ASSERT_OK(folio_object_map_write(objects[n], &data));
                        memset(data, 1, 3 * MIB);
                }
                assert_int_equal(error, FOLIO_E_FULL);
                assert_true(n >= 20);
                while (n > 0)
                        ASSERT_OK(folio_object_abort(objects[--n]));
                folio_client_unref(client);
                alive_check(&before);
                foliod_stop(foliod);
        }
        program_remove_cgroup(cgroup);
}

/*
 * A18: deleting gives memory back at once; or, where somebody holds it, when he lets go, and until then it is
 * charged.
 */
static void test_a18_delete_gives_memory_back(void **state)
{
        enum { N = 12 };
        Foliod *foliod = foliod_start("--budget", "300M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod), *holder = foliod_connect(foliod);
        struct folio_holder who[4] = { { .struct_bytes = sizeof(who[0]) } };
        struct folio_object *objects[N];
        char *bytes = calloc(1, 10 * MIB), name[32];

        (void)state;
        assert_non_null(bytes);
        for (unsigned is_held = 0; is_held < 2; is_held++) {
                for (unsigned i = 0; i < N; i++) {
                        (void)snprintf(name, sizeof(name), "deleted %u", i);
                        ASSERT_OK(folio_put(client, name, bytes, 10 * MIB, NULL));
                        if (is_held)
                                ASSERT_OK(folio_get(holder, name, 0, 0, &objects[i]));
                }
                assert_true(alive_memory_bytes(foliod) >= N * 10 * MIB);
                if (is_held) {
                        assert_int_equal(folio_holders(client, "deleted 0", who, 4), 1);
                        assert_int_equal(who[0].pid, getpid());
                        assert_int_equal(who[0].uid, getuid());
                        assert_int_equal(who[0].n_pins, 1);
                }
                for (unsigned i = 0; i < N; i++) {
                        (void)snprintf(name, sizeof(name), "deleted %u", i);
                        ASSERT_OK(folio_delete(client, name, 0));
                        /* The name is free at once. */
                        ASSERT_OK(folio_put(client, name, "again", 5, NULL));
                        ASSERT_OK(folio_delete(client, name, 0));
                }
                if (is_held) {
                        struct folio_object *refused;

                        assert_int_equal(alive_charges(client).n_held, N);
                        assert_true(alive_charges(client).held_bytes >= N * 10 * MIB);
                        assert_true(alive_charges(client).used_bytes >= N * 10 * MIB);
                        assert_int_equal(folio_create(client, "more", 250 * MIB, NULL, &refused), FOLIO_E_FULL);
                        for (unsigned i = 0; i < N; i++)
                                ASSERT_OK(folio_object_release(objects[i]));
                }
                AWAIT(alive_charges(client).held_bytes == 0);
                AWAIT(alive_charges(client).used_bytes == before.used_bytes);
                /* Half of it at least while the clients' mappings are still kept for reuse; all when they are gone. */
        }
        free(bytes);
        folio_client_unref(holder);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void need_two(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *objects[2];
        char name[32];

        for (unsigned round = 0; round < 20; round++) {
                unsigned n = 0;

                for (; n < 2; n++) {
                        int error;

                        (void)snprintf(name, sizeof(name), "two %d %u", (int)getpid(), n);
                        error = folio_create(client, name, 40 * MIB, NULL, &objects[n]);
                        if (error) {
                                CHECK(error == FOLIO_E_FULL);
                                break;
                        }
                }
                while (n > 0)
                        CHECK_OK(folio_object_abort(objects[--n]));
        }
        folio_client_unref(client);
}

/* A21: larger than the store is said at once and never waited for; near the limit nobody waits for another for ever. */
static void test_a21_larger_than_the_store(void **state)
{
        Foliod *foliod = foliod_start("--budget", "100M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        Child *children[5];

        (void)state;
        assert_int_equal(folio_create(client, "larger", 101 * MIB, NULL, &object), FOLIO_E_TOO_LARGE);
        assert_says_numbers();
        assert_int_equal(folio_get(client, "larger", 0, 0, &object), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_get(client, "larger", 0, 50, &object), FOLIO_E_TIMEOUT);
        for (unsigned i = 0; i < 5; i++)
                children[i] = child_start(foliod, need_two, NULL);
        for (unsigned i = 0; i < 5; i++)
                child_finish(children[i]);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_a01_never_outgrows),
                INTEGRATION_TEST(test_a02_filled_after_create),
                INTEGRATION_TEST(test_a05_full_though_the_total_would_do),
                INTEGRATION_TEST(test_a06_large_reservation),
                INTEGRATION_TEST(test_a08_signals_during_reservation),
                INTEGRATION_TEST(test_a12_container_limit),
                INTEGRATION_TEST(test_a18_delete_gives_memory_back),
                INTEGRATION_TEST(test_a21_larger_than_the_store),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
