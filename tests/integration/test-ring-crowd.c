/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many at the same names at once, in both kinds of namespace: threads of one client, writers that replace each other's
 * objects, readers of what is reused a moment later, a child that inherits everything, a process that can have no more
 * descriptors or memory, a foliod that stands still. Whatever one reads is whole; every error is one that is meant.
 */
#include "tests/integration/spaces.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define MIB (UINT64_C(1) << 20)
#define WORDS_MAX 3000u

/* --- bytes that show where they come from ------------------------------------------------------------------------- */

static uint64_t word_at(uint64_t seed, uint64_t i)
{
        return (seed + i) * UINT64_C(0x9e3779b97f4a7c15) ^ seed;
}

static size_t fill_words(uint64_t *words, uint64_t seed)
{
        size_t n = 2 + seed % (WORDS_MAX - 2);

        words[0] = seed;
        for (size_t i = 1; i < n; i++)
                words[i] = word_at(seed, i);
        return n * sizeof(uint64_t);
}

static bool is_whole(const uint64_t *words, uint64_t n_bytes)
{
        uint64_t seed = words[0], n = 2 + seed % (WORDS_MAX - 2);

        if (n_bytes != n * sizeof(uint64_t))
                return false;
        for (uint64_t i = 1; i < n; i++)
                if (words[i] != word_at(seed, i))
                        return false;
        return true;
}

static bool is_missing(int error)
{
        return error == FOLIO_E_NOT_FOUND || error == FOLIO_E_DELETED;
}

/* What is there under the name, if it is: by a handle. */
static void look(struct folio_client *client, const char *name, uint32_t flags)
{
        struct folio_object *object;
        int r = folio_get(client, name, flags, 0, &object);

        if (r < 0) {
                if (!is_missing(r))
                        CHECK_OK(r);
                return;
        }
        CHECK(is_whole(folio_object_data(object), folio_object_size(object)));
        CHECK_OK(folio_object_release(object));
}

/* --- threads of one client ---------------------------------------------------------------------------------------- */

typedef struct Crowd {
        struct folio_client *client;
        unsigned n_rounds;
        atomic_uint n_seeds;
} Crowd;

static void *be_one_of_many(void *userdata)
{
        static const struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        Crowd *crowd = userdata;
        uint64_t *words = malloc(WORDS_MAX * sizeof(uint64_t));
        uint64_t random = atomic_fetch_add(&crowd->n_seeds, 1) + 1;
        char name[64];

        CHECK(words);
        for (unsigned i = 0; i < crowd->n_rounds; i++) {
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                int r;

                random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                (void)snprintf(name, sizeof(name), "%s:crowd %u", spaces_names[random >> 40 & 1],
                               (unsigned)(random >> 41) % 100);
                switch ((random >> 33) % 6) {
                case 0:
                        r = folio_put(crowd->client, name, words, fill_words(words, random >> 20), NULL);
                        if (r != FOLIO_E_EXISTS)
                                CHECK_OK(r);
                        break;
                case 1:
                        r = folio_put(crowd->client, name, words, fill_words(words, random >> 20), &replace);
                        CHECK_OK(r);
                        break;
                case 2:
                        r = folio_delete(crowd->client, name, 0);
                        if (!is_missing(r))
                                CHECK_OK(r);
                        break;
                case 3:
                        r = folio_stat(crowd->client, name, &stat);
                        if (!is_missing(r))
                                CHECK_OK(r);
                        break;
                case 4:
                        look(crowd->client, name, FOLIO_GET_SEALED);
                        break;
                default:
                        look(crowd->client, name, 0);
                }
        }
        free(words);
        return NULL;
}

static void test_many_threads_at_the_same_names(void **state)
{
        enum { N_THREADS = 64 };
        Scene scene = scene_begin();
        Crowd crowd = { .client = foliod_connect_with(scene.foliod, 0), .n_rounds = alive_scaled(1500) };
        pthread_t threads[N_THREADS];
        int r;

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++)
                spaces_warm_up(crowd.client, spaces_names[s]);
        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, be_one_of_many, &crowd), 0);
        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        /* Two that put the same name at once: one of them is told so, late. The same for deletes. */
        r = folio_flush(crowd.client);
        if (r != FOLIO_E_EXISTS && !is_missing(r))
                ASSERT_OK(r);
        for (unsigned i = 0; i < 100; i++)
                for (unsigned s = 0; s < N_SPACES; s++) {
                        char name[64];

                        (void)snprintf(name, sizeof(name), "%s:crowd %u", spaces_names[s], i);
                        look(scene.client, name, 0);
                }
        folio_client_unref(crowd.client);
        scene_end(&scene);
}

/* --- one name, replaced for ever ---------------------------------------------------------------------------------- */

static void replace_for_ever(Child *child)
{
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        const char *space = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        static uint64_t words[WORDS_MAX];
        uint64_t seed = (uint64_t)getpid() << 20;
        unsigned n = alive_scaled(20000);
        char name[64];

        (void)snprintf(name, sizeof(name), "%s:one", space);
        spaces_warm_up(client, space);
        child_say(child, 1);
        for (unsigned i = 0; i < n; i++)
                CHECK_OK(folio_put(client, name, words, fill_words(words, seed + i), &replace));
        CHECK_OK(folio_flush(client));
        folio_client_unref(client);
        child_say(child, 2);
}

static bool has_said(const Child *child)
{
        struct pollfd ready = { .fd = child->socket, .events = POLLIN };

        return poll(&ready, 1, 0) > 0;
}

static void test_two_replace_one_reads(void **state)
{
        Scene scene = scene_begin();
        static uint64_t words[WORDS_MAX];

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                Child *one = child_start(scene.foliod, replace_for_ever, (void *)(uintptr_t)spaces_names[s]);
                Child *other = child_start(scene.foliod, replace_for_ever, (void *)(uintptr_t)spaces_names[s]);
                struct folio_object *held;
                unsigned n_looks = 0;
                char name[64];

                (void)snprintf(name, sizeof(name), "%s:one", spaces_names[s]);
                assert_int_equal(child_hear(one), 1);
                assert_int_equal(child_hear(other), 1);
                ASSERT_OK(folio_get(scene.client, name, 0, 20000, &held));
                while (!has_said(one) || !has_said(other)) {
                        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

                        look(scene.client, name, n_looks % 3 == 0 ? FOLIO_GET_SEALED : 0);
                        ASSERT_OK(folio_read(scene.client, name, 0, words, 16));
                        assert_true(words[1] == word_at(words[0], 1));
                        ASSERT_OK(folio_stat(scene.client, name, &stat));
                        n_looks++;
                }
                assert_true(n_looks > 0);
                assert_true(is_whole(folio_object_data(held), folio_object_size(held)));
                ASSERT_OK(folio_object_release(held));
                assert_int_equal(child_hear(one), 2);
                assert_int_equal(child_hear(other), 2);
                child_finish(one);
                child_finish(other);
        }
        scene_end(&scene);
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

typedef struct Inherited {
        struct folio_client *client;
        struct folio_object *unsealed; /* in a lease */
        struct folio_object *sealed;
} Inherited;

static void be_a_child(Child *child)
{
        Inherited *inherited = child->userdata;
        struct folio_object *object;
        struct folio_client *own;

        CHECK(folio_put(inherited->client, "trusted:x", "x", 1, NULL) == FOLIO_E_FORKED);
        CHECK(folio_create(inherited->client, "trusted:x", 100, NULL, &object) == FOLIO_E_FORKED);
        CHECK(folio_delete(inherited->client, "trusted:sealed", 0) == FOLIO_E_FORKED);
        CHECK(folio_flush(inherited->client) == FOLIO_E_FORKED);
        CHECK(folio_object_seal(inherited->unsealed) == FOLIO_E_FORKED);
        CHECK(folio_object_abort(inherited->unsealed) == FOLIO_E_FORKED);
        CHECK(folio_object_write(inherited->unsealed, 0, "y", 1) == FOLIO_E_FORKED);
        CHECK(folio_object_release(inherited->sealed) == FOLIO_E_FORKED);
        folio_client_unref(inherited->client);
        own = child_connect_with(child, 0);
        spaces_warm_up(own, "trusted");
        CHECK_OK(folio_put(own, "trusted:of the child", "child", 5, NULL));
        folio_client_unref(own);
}

static void test_fork_with_a_ring(void **state)
{
        Scene scene = scene_begin();
        Inherited inherited = { .client = foliod_connect_with(scene.foliod, 0) };
        struct folio_object *object;
        void *data;

        (void)state;
        spaces_warm_up(inherited.client, "trusted");
        ASSERT_OK(folio_put(inherited.client, "trusted:sealed", "sealed", 6, NULL));
        ASSERT_OK(folio_get(inherited.client, "trusted:sealed", 0, 0, &inherited.sealed));
        ASSERT_OK(folio_create(inherited.client, "trusted:unsealed", 5000, NULL, &inherited.unsealed));
        ASSERT_OK(folio_object_map_write(inherited.unsealed, &data));
        harness_fill(data, 5000, 5);
        for (unsigned i = 0; i < 20; i++) {
                Child *child = child_start(scene.foliod, be_a_child, &inherited);

                /* The parent goes on meanwhile. */
                for (unsigned j = 0; j < 200; j++) {
                        char name[64];

                        (void)snprintf(name, sizeof(name), "trusted:of the parent %u", j);
                        ASSERT_OK(folio_put(inherited.client, name, name, sizeof(name), NULL));
                        ASSERT_OK(folio_delete(inherited.client, name, 0));
                }
                child_finish(child);
                /* What it has published is carried out, also after its end, but perhaps later. */
                AWAIT(folio_exists(scene.client, "trusted:of the child") == 1);
                ASSERT_OK(folio_delete(scene.client, "trusted:of the child", 0));
        }
        ASSERT_OK(folio_object_seal(inherited.unsealed));
        ASSERT_OK(folio_flush(inherited.client));
        ASSERT_OK(folio_get(scene.client, "trusted:unsealed", 0, 0, &object));
        assert_true(harness_is_filled(folio_object_data(object), 5000, 5, 0));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_object_release(inherited.unsealed));
        ASSERT_OK(folio_object_release(inherited.sealed));
        folio_client_unref(inherited.client);
        scene_end(&scene);
}

/* --- poor processes ----------------------------------------------------------------------------------------------- */

/* One put, get and delete after the other; the only errors are those of who has no descriptor, or no memory. */
static void work_poorly(struct folio_client *client)
{
        static uint64_t words[WORDS_MAX];
        char name[64];

        for (unsigned i = 0; i < 600; i++) {
                int r;

                (void)snprintf(name, sizeof(name), "%s:poor %u", spaces_names[i % N_SPACES], i);
                r = folio_put(client, name, words, fill_words(words, i), NULL);
                if (r != FOLIO_E_LIMIT && r != FOLIO_E_NO_MEMORY)
                        CHECK_OK(r);
                if (r < 0)
                        continue;
                r = folio_read(client, name, 0, words, 16);
                if (r != FOLIO_E_LIMIT && r != FOLIO_E_NO_MEMORY)
                        CHECK_OK(r);
                CHECK_OK(folio_delete(client, name, 0));
        }
        CHECK_OK(folio_flush(client));
}

static void have_no_descriptors(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);
        struct rlimit limit;

        CHECK(folio_exists(client, "default:x") == 0 && folio_exists(client, "trusted:x") == 0);
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        /* From none on: at some step in between each thing fails that can. */
        for (rlim_t n = 0; n < 24; n++) {
                struct rlimit poor = { .rlim_cur = n, .rlim_max = limit.rlim_max };

                CHECK(setrlimit(RLIMIT_NOFILE, &poor) == 0);
                work_poorly(client);
        }
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        work_poorly(client);
        folio_client_unref(client);
}

static void have_no_address_space(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);
        unsigned long n_pages = 0;
        FILE *statm;

        CHECK(folio_exists(client, "default:x") == 0 && folio_exists(client, "trusted:x") == 0);
        for (unsigned n = 0; n < 12; n++) {
                struct rlimit poor;

                statm = fopen("/proc/self/statm", "re");
                CHECK(statm && fscanf(statm, "%lu", &n_pages) == 1);
                (void)fclose(statm);
                poor.rlim_cur = n_pages * 4096ul + (rlim_t)n * 512 * 1024;
                poor.rlim_max = RLIM_INFINITY;
                CHECK(setrlimit(RLIMIT_AS, &poor) == 0);
                work_poorly(client);
        }
        folio_client_unref(client);
}

static void test_poor_processes(void **state)
{
        Scene scene = scene_begin();

        (void)state;
        child_finish(child_start(scene.foliod, have_no_descriptors, NULL));
        spaces_await_sessions(scene.client, 1);
        /* The sanitizers' own memory is of the same address space, and they end where they get none. */
        if (!getenv("FOLIO_TEST_SLOW"))
                child_finish(child_start(scene.foliod, have_no_address_space, NULL));
        scene_work(&scene);
        scene_end(&scene);
}

/* --- lifetimes ---------------------------------------------------------------------------------------------------- */

static void leave_much(Child *child)
{
        struct folio_create_options with = { .struct_bytes = sizeof(with), .lifetime = FOLIO_WITH_CREATOR };
        struct folio_create_options until = { .struct_bytes = sizeof(until), .lifetime = FOLIO_UNTIL_TIME };
        struct folio_client *client = child_connect_with(child, 0);
        static uint64_t words[WORDS_MAX];
        struct folio_object *object;
        struct timespec now;
        char name[64];

        for (unsigned s = 0; s < N_SPACES; s++)
                spaces_warm_up(client, spaces_names[s]);
        (void)clock_gettime(CLOCK_REALTIME, &now);
        until.expires_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 1500000000u;
        for (unsigned i = 0; i < 300; i++) {
                const char *space = spaces_names[i % N_SPACES];

                (void)snprintf(name, sizeof(name), "%s:with %u", space, i);
                CHECK_OK(folio_put(client, name, words, fill_words(words, i), &with));
                (void)snprintf(name, sizeof(name), "%s:until %u", space, i);
                CHECK_OK(folio_put(client, name, words, fill_words(words, i), &until));
                (void)snprintf(name, sizeof(name), "%s:unsealed %u", space, i);
                if (i < 20)
                        CHECK_OK(folio_create(client, name, 9000, &until, &object));
        }
        CHECK_OK(folio_flush(client));
        child_say(child, 1);
        (void)child_hear(child);
}

static void test_lifetimes_in_leases(void **state)
{
        Scene scene = scene_begin();

        (void)state;
        for (unsigned i = 0; i < 2; i++) {
                Child *child = child_start(scene.foliod, leave_much, NULL);
                struct folio_object *held;

                assert_int_equal(child_hear(child), 1);
                ASSERT_OK(folio_get(scene.client, "trusted:with 1", 0, 0, &held));
                child_kill(child);
                for (unsigned s = 0; s < N_SPACES; s++) {
                        char name[64];

                        (void)snprintf(name, sizeof(name), "%s:with ", spaces_names[s]);
                        AWAIT(spaces_count(scene.client, name) == 0);
                        (void)snprintf(name, sizeof(name), "%s:unsealed ", spaces_names[s]);
                        AWAIT(spaces_count(scene.client, name) == 0);
                        (void)snprintf(name, sizeof(name), "%s:until ", spaces_names[s]);
                        AWAIT(spaces_count(scene.client, name) == 0);
                }
                assert_true(is_whole(folio_object_data(held), folio_object_size(held)));
                ASSERT_OK(folio_object_release(held));
        }
        scene_end(&scene);
}

/* --- a foliod that stands still ------------------------------------------------------------------------------------ */

static void test_stopped_under_load(void **state)
{
        Scene scene = scene_begin();
        Crowd crowd = { .client = foliod_connect_with(scene.foliod, 0), .n_rounds = alive_scaled(20000) };
        pthread_t threads[4];

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++)
                spaces_warm_up(crowd.client, spaces_names[s]);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, be_one_of_many, &crowd), 0);
        for (unsigned i = 0; i < 10; i++) {
                assert_int_equal(kill(scene.foliod->pid, SIGSTOP), 0);
                for (unsigned j = 0; j < 50; j++)
                        harness_pause();
                assert_int_equal(kill(scene.foliod->pid, SIGCONT), 0);
                harness_pause();
        }
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        folio_client_unref(crowd.client);
        scene_end(&scene);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_many_threads_at_the_same_names),
                INTEGRATION_TEST(test_two_replace_one_reads),
                INTEGRATION_TEST(test_fork_with_a_ring),
                INTEGRATION_TEST(test_poor_processes),
                INTEGRATION_TEST(test_lifetimes_in_leases),
                INTEGRATION_TEST(test_stopped_under_load),
        };

        return cmocka_run_group_tests_name("ring-crowd", tests, NULL, NULL);
}
