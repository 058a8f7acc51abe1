/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client whose foliod ends and comes back, by a foliod that does so when the test wants it: see fake-foliod.h.
 * Over 600 lines: whatever a client can be doing meanwhile has its story.
 */
#include "tests/unit/fake-foliod.h"

#include <limits.h>
#include <sys/wait.h>

enum { N_TRIES_MAX = 100000 };

static bool is_there(struct folio_client *client, const char *name)
{
        return folio_exists(client, name) == 1;
}

/* Only looks: nothing of it asks foliod for anything. */
static void look_until_there(struct folio_client *client, const char *name)
{
        const struct timespec pause = { .tv_nsec = 1000000 };

        for (unsigned i = 0; !is_there(client, name); i++) {
                assert_true(i < N_TRIES_MAX);
                (void)nanosleep(&pause, NULL);
        }
}

static int ask(struct folio_client *client)
{
        struct folio_status fact = { 0 };

        return folio_status_get(client, &fact, 0);
}

/* --- the connection ------------------------------------------------------------------------------------------------------ */

static void test_asks_again(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        uint64_t token = f->token;

        (void)state;
        assert_int_equal(f->resume, 0);
        for (unsigned i = 0; i < 20; i++) {
                assert_true(is_there(client, "test:first"));
                fake_end(f, i % 2);
                fake_come_back(f, FAKE_RESUMES, NULL);
                assert_int_equal(ask(client), 0);
                assert_int_equal(f->n_hellos, i + 2);
                assert_int_equal(f->resume, token);
        }
        assert_int_equal(f->n_messages[VERB_STATUS], 20);
        folio_client_unref(client);
        fake_free(f);
}

static void note_opened(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        int *opened = userdata;

        (void)client;
        assert_null(object);
        assert_int_equal(*opened, 1);
        *opened = error;
}

/* *@answer is 1 until there is one. */
static void process_until(struct folio_client *client, const int *answer)
{
        for (unsigned i = 0; *answer == 1; i++) {
                struct pollfd fd = { .fd = folio_client_get_fd(client), .events = POLLIN };

                assert_true(i < N_TRIES_MAX);
                assert_true(poll(&fd, 1, 30000) > 0);
                assert_true(folio_client_process(client) >= 0);
        }
}

static int open_async(FakeFoliod *f, struct folio_client **ret)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = f->path, .timeout_ms = 20000 };
        int opened = 1;

        assert_int_equal(folio_client_open_async(&options, ret, note_opened, &opened), 0);
        process_until(*ret, &opened);
        return opened;
}

/* One that ends between connect and welcome has a next one; what always hangs up does not have a next one for ever. */
static void test_ends_before_welcome(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = f->path, .timeout_ms = 20000 };
        struct folio_client *client;

        (void)state;
        f->n_hang_ups = 3;
        client = fake_connect(f);
        assert_int_equal(f->n_messages[VERB_HELLO], 4);
        assert_true(is_there(client, "test:first"));
        assert_int_equal(ask(client), 0);
        folio_client_unref(client);

        f->n_hang_ups = 3;
        assert_int_equal(open_async(f, &client), 0);
        assert_int_equal(f->n_messages[VERB_HELLO], 8);
        assert_true(is_there(client, "test:first"));
        folio_client_unref(client);

        f->n_hang_ups = UINT_MAX;
        assert_int_equal(folio_client_open(&options, &client), FOLIO_E_DAEMON_GONE);
        assert_int_equal(open_async(f, &client), FOLIO_E_DAEMON_GONE);
        assert_int_equal(ask(client), FOLIO_E_DAEMON_GONE);
        folio_client_unref(client);
        assert_true(f->n_messages[VERB_HELLO] > 8 + 2 * 3 && f->n_messages[VERB_HELLO] < 100);
        fake_free(f);
}

/* Read, with nobody there; and the next index is found by looking alone. */
static void test_looks_go_on(void **state)
{
        (void)state;
        for (int has_no_beacon = 0; has_no_beacon < 2; has_no_beacon++) {
                FakeFoliod *f = fake_new();
                struct folio_client *client;
                struct folio_object *object;
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };

                f->has_no_beacon = has_no_beacon;
                client = fake_connect(f);
                assert_true(is_there(client, "test:first"));
                fake_end(f, false);
                for (unsigned i = 0; i < 1000; i++) {
                        assert_int_equal(folio_get(client, "test:first", 0, 0, &object), 0);
                        assert_int_equal(folio_object_release(object), 0);
                        assert_int_equal(folio_stat(client, "test:first", &stat), 0);
                        assert_string_equal(stat.name, "test:first");
                        assert_int_equal(folio_exists(client, "test:second"), 0);
                }
                fake_come_back(f, FAKE_RESUMES, "second");
                /* Who has no beacon has to ask once to find out. */
                if (has_no_beacon)
                        assert_int_equal(ask(client), 0);
                look_until_there(client, "test:second");
                assert_true(is_there(client, "test:first"));
                folio_client_unref(client);
                fake_free(f);
        }
}

static void test_nobody_comes(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        struct folio_object *object;

        (void)state;
        assert_true(is_there(client, "test:first"));
        fake_end(f, false);
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(folio_put(client, "test:x", "x", 1, NULL), FOLIO_E_DAEMON_GONE);
                assert_non_null(strstr(folio_strerror_full(), "none has answered for 500 ms"));
                assert_non_null(strstr(folio_strerror_full(), f->path));
                assert_int_equal(folio_get(client, "test:first", 0, 0, &object), 0);
                assert_int_equal(folio_object_release(object), 0);
        }
        assert_int_equal(folio_get(client, "test:x", 0, FOLIO_TIMEOUT_FOREVER, &object), FOLIO_E_DAEMON_GONE);
        fake_come_back(f, FAKE_RESUMES, "second");
        look_until_there(client, "test:second");
        assert_int_equal(folio_put(client, "test:x", "x", 1, NULL), 0);
        folio_client_unref(client);
        fake_free(f);
}

static void test_will_not_have_us(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);

        (void)state;
        assert_true(is_there(client, "test:first"));
        fake_end(f, false);
        f->hello_status = STATUS_LIMIT;
        fake_come_back(f, FAKE_RESUMES, "second");
        assert_int_equal(ask(client), FOLIO_E_LIMIT);
        assert_true(is_there(client, "test:first"));
        f->hello_status = 0;
        look_until_there(client, "test:second");
        assert_int_equal(ask(client), 0);
        folio_client_unref(client);
        fake_free(f);
}

typedef struct Asker {
        pthread_t thread;
        struct folio_client *client;
        int error;
} Asker;

static void *run_ask(void *userdata)
{
        Asker *asker = userdata;

        asker->error = ask(asker->client);
        return NULL;
}

static void *run_wait(void *userdata)
{
        Asker *asker = userdata;
        struct folio_object *object;

        asker->error = folio_get(asker->client, "test:second", 0, 20000, &object);
        if (asker->error == 0)
                asker->error = folio_object_release(object);
        return NULL;
}

/* Many threads in calls, some asked already and some waiting for an object, when it ends and comes back. */
static void test_many_threads(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        Asker askers[8];

        (void)state;
        assert_true(is_there(client, "test:first"));
        f->end_verb = VERB_STATUS;
        f->end = FAKE_ENDS_BEFORE;
        for (size_t i = 0; i < ARRAY_SIZE(askers); i++) {
                askers[i].client = client;
                assert_int_equal(pthread_create(&askers[i].thread, NULL, i % 2 ? run_wait : run_ask, &askers[i]), 0);
        }
        while (atomic_load(&f->n_messages[VERB_STATUS]) == 0)
                sched_yield();
        fake_come_back(f, FAKE_RESUMES, "second");
        for (size_t i = 0; i < ARRAY_SIZE(askers); i++) {
                assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
                assert_int_equal(askers[i].error, 0);
        }
        folio_client_unref(client);
        fake_free(f);
}

/* --- what is held -------------------------------------------------------------------------------------------------------- */

static void test_pins(void **state)
{
        static const int ways[] = { FAKE_RESUMES, FAKE_NEW_SESSION };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        (void)state;
        for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
                FakeFoliod *f = fake_new();
                struct folio_client *client = fake_connect(f);
                struct folio_object *objects[3];

                for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
                        assert_int_equal(folio_get(client, "test:first", 0, 0, &objects[i]), 0);
                assert_int_equal(fake_count_pins(f, "first"), 3);
                fake_end(f, false);
                assert_int_equal(folio_object_release(objects[2]), 0);
                fake_come_back(f, ways[w], NULL);
                assert_int_equal(ask(client), 0);
                assert_int_equal(fake_count_pins(f, "first"), 2);
                assert_int_equal(folio_object_stat(objects[0], &stat), 0);
                assert_string_equal(stat.name, "test:first");
                assert_int_equal(folio_object_release(objects[0]), 0);
                assert_int_equal(folio_get(client, "test:first", 0, 0, &objects[2]), 0);
                assert_int_equal(fake_count_pins(f, "first"), 2);
                assert_int_equal(folio_object_release(objects[1]), 0);
                assert_int_equal(folio_object_release(objects[2]), 0);
                assert_int_equal(fake_count_pins(f, "first"), 0);
                folio_client_unref(client);
                fake_free(f);
        }
}

/* In a thread: somebody wants to be let in. */
static void *come_back_when_wanted(void *userdata)
{
        FakeFoliod *f = userdata;
        struct pollfd fd = { .fd = f->listen_fd, .events = POLLIN };

        FAKE_CHECK(poll(&fd, 1, 60000) == 1);
        fake_come_back(f, FAKE_RESUMES, NULL);
        return NULL;
}

static void note_got(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        (void)client;
        *(int *)userdata = error;
        folio_object_release(object);
}

/*
 * The next one has given the object away before the client has come: what the index of before says of it is not to be
 * held. One that has not come so far changes nothing.
 */
static void test_taken_over(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        struct folio_object *object;
        pthread_t thread;
        int got = 1;

        (void)state;
        assert_true(is_there(client, "test:first"));
        fake_end(f, true);
        assert_int_equal(folio_get(client, "test:first", 0, 0, &object), 0);
        folio_object_release(object);
        fake_take_over(f);
        f->n_names = 0;
        assert_int_equal(pthread_create(&thread, NULL, come_back_when_wanted, f), 0);
        assert_int_equal(folio_get(client, "test:first", 0, 0, &object), FOLIO_E_NOT_FOUND);
        assert_int_equal(pthread_join(thread, NULL), 0);

        fake_add(f, "first");
        assert_int_equal(folio_get(client, "test:first", 0, 0, &object), 0);
        folio_object_release(object);
        fake_end(f, true);
        fake_take_over(f);
        f->n_names = 0;
        assert_int_equal(folio_get_async(client, "test:first", 0, 0, note_got, &got), 0);
        for (unsigned i = 0; i < 100; i++)
                assert_true(folio_client_process(client) >= 0);
        assert_int_equal(got, 1);
        fake_come_back(f, FAKE_RESUMES, NULL);
        process_until(client, &got);
        assert_int_equal(got, FOLIO_E_NOT_FOUND);
        folio_client_unref(client);
        fake_free(f);
}

static void test_another_store(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        struct folio_object *object, *other;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        (void)state;
        assert_int_equal(folio_get(client, "test:first", 0, 0, &object), 0);
        fake_end(f, false);
        fake_come_back(f, FAKE_OTHER_STORE, "second");
        assert_int_equal(ask(client), 0);
        /* The same slot, and another object. */
        assert_int_equal(folio_get(client, "test:second", 0, 0, &other), 0);
        assert_int_equal(folio_get(client, "test:first", 0, 0, &object), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_object_stat(object, &stat), 0);
        assert_string_equal(stat.name, "test:first");
        assert_int_equal(folio_object_truncate(object, 0), FOLIO_E_STATE);
        assert_int_equal(fake_count_pins(f, "second"), 1);
        assert_int_equal(folio_object_release(object), 0);
        assert_int_equal(fake_count_pins(f, "second"), 1);
        assert_int_equal(folio_object_release(other), 0);
        folio_client_unref(client);
        fake_free(f);
}

/* --- what was under way -------------------------------------------------------------------------------------------------- */

static void *come_back_when_ended(void *userdata)
{
        FakeFoliod *f = userdata;
        bool has_ended = false;

        while (!has_ended) {
                (void)pthread_mutex_lock(&f->lock);
                has_ended = !f->index;
                (void)pthread_mutex_unlock(&f->lock);
                (void)sched_yield();
        }
        fake_come_back(f, FAKE_RESUMES, NULL);
        return NULL;
}

static void test_put_under_way(void **state)
{
        static const FakeEnd ends[] = { FAKE_ENDS_BEFORE, FAKE_ENDS_AFTER };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                FakeFoliod *f = fake_new();
                struct folio_client *client = fake_connect(f);
                pthread_t thread;

                f->end = ends[i];
                f->end_verb = VERB_PUT;
                assert_int_equal(pthread_create(&thread, NULL, come_back_when_ended, f), 0);
                assert_int_equal(folio_put(client, "test:x", "x", 1, NULL), 0);
                assert_int_equal(pthread_join(thread, NULL), 0);
                /* Done once, also where it was not known. */
                assert_int_equal(f->n_messages[VERB_PUT], ends[i] == FAKE_ENDS_BEFORE ? 2 : 1);
                assert_true(is_there(client, "test:x"));
                folio_client_unref(client);
                fake_free(f);
        }
}

static void test_batch_under_way(void **state)
{
        enum { N = 8 };
        char names[N][16];

        (void)state;
        for (size_t n_done = 0; n_done <= N; n_done++) {
                struct folio_put_item items[N];
                FakeFoliod *f = fake_new();
                struct folio_client *client = fake_connect(f);
                pthread_t thread;

                for (size_t i = 0; i < N; i++) {
                        snprintf(names[i], sizeof(names[i]), "test:%s", i == 2 ? "first" : (char[]){ (char)('a' + i), '\0' });
                        items[i] = (struct folio_put_item){ .name = names[i], .data = "x", .size_bytes = 1 };
                }
                f->end = FAKE_ENDS_WITHIN;
                f->n_before_end = n_done;
                f->end_verb = VERB_PUT;
                assert_int_equal(pthread_create(&thread, NULL, come_back_when_ended, f), 0);
                assert_int_equal(folio_put_many(client, items, N), 1);
                assert_int_equal(pthread_join(thread, NULL), 0);
                for (size_t i = 0; i < N; i++) {
                        if (i != 2)
                                assert_int_equal(items[i].error, 0);
                        assert_true(is_there(client, names[i]));
                }
                /* It was there, and the put was refused: by whom, and so with which words, depends. */
                assert_int_equal(items[2].error, n_done > 3 && n_done < N ? FOLIO_E_DAEMON_GONE : FOLIO_E_EXISTS);
                folio_client_unref(client);
                fake_free(f);
        }
}

/* So much has happened since that nobody can tell. */
static void *come_back_late(void *userdata)
{
        FakeFoliod *f = userdata;
        char name[16];

        (void)come_back_when_ended(f);
        (void)pthread_mutex_lock(&f->lock);
        for (unsigned i = 0; i < FAKE_EVENTS; i++) {
                snprintf(name, sizeof(name), "n%u", i);
                fake_add_locked(f, name, 0);
        }
        f->holds_back = false;
        (void)pthread_mutex_unlock(&f->lock);
        fake_wake(f);
        return NULL;
}

static void test_lapped(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        pthread_t thread;

        (void)state;
        assert_true(is_there(client, "test:first"));
        (void)pthread_mutex_lock(&f->lock);
        f->end = FAKE_ENDS_AFTER;
        f->end_verb = VERB_PUT;
        f->holds_back = true;
        (void)pthread_mutex_unlock(&f->lock);
        assert_int_equal(pthread_create(&thread, NULL, come_back_late, f), 0);
        assert_int_equal(folio_put(client, "test:x", "x", 1, NULL), FOLIO_E_DAEMON_GONE);
        assert_string_equal(folio_strerror_full(), "test:x: foliod ended before it answered, and whether it was done is not known");
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(f->n_messages[VERB_PUT], 1);
        folio_client_unref(client);
        fake_free(f);
}

typedef struct Done {
        bool is_done;
        int error;
} Done;

static void on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Done *done = userdata;

        (void)client;
        done->is_done = true;
        done->error = error;
        if (object)
                assert_int_equal(folio_object_release(object), 0);
}

static void loop_until(struct folio_client *client, int fd, const Done *done, size_t n)
{
        for (size_t i = 0; i < n; i++)
                while (!done[i].is_done) {
                        struct pollfd wait = { .fd = fd, .events = POLLIN };

                        assert_int_equal(poll(&wait, 1, 20000), 1);
                        assert_true(folio_client_process(client) >= 0);
                }
}

static void test_asynchronous(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        int fd = folio_client_get_fd(client);
        Done done[4] = { 0 };
        pthread_t thread;

        (void)state;
        assert_true(fd >= 0);
        assert_true(is_there(client, "test:first"));
        for (unsigned i = 0; i < 10; i++) {
                char name[16];

                memset(done, 0, sizeof(done));
                snprintf(name, sizeof(name), "test:x%u", i);
                f->end = i % 2 ? FAKE_ENDS_BEFORE : FAKE_ENDS_AFTER;
                f->end_verb = VERB_PUT;
                assert_int_equal(folio_get_async(client, name, 0, 20000, on_done, &done[0]), 0);
                assert_int_equal(folio_put_async(client, name, "x", 1, NULL, on_done, &done[1]), 0);
                assert_int_equal(folio_stat_async(client, "test:first", &(struct folio_stat){ .struct_bytes = sizeof(struct folio_stat) }, on_done, &done[2]), 0);
                assert_int_equal(folio_get_async(client, "test:first", 0, 20000, on_done, &done[3]), 0);
                assert_int_equal(pthread_create(&thread, NULL, come_back_when_ended, f), 0);
                loop_until(client, fd, done, 2);
                loop_until(client, fd, done + 3, 1);
                assert_int_equal(pthread_join(thread, NULL), 0);
                assert_int_equal(done[1].error, 0);
                assert_int_equal(done[3].error, 0);
                assert_int_equal(folio_client_get_fd(client), fd);
        }
        folio_client_unref(client);
        fake_free(f);
}

/* --- watches --------------------------------------------------------------------------------------------------------------- */

static void test_watch(void **state)
{
        static const int ways[] = { FAKE_RESUMES, FAKE_NEW_SESSION };

        (void)state;
        for (size_t w = 0; w < ARRAY_SIZE(ways) * 2; w++) {
                FakeFoliod *f = fake_new();
                struct folio_client *client = fake_connect(f);
                struct folio_event event = { .struct_bytes = sizeof(event) };
                struct folio_watch *watch;
                struct pollfd wait = { .events = POLLIN };
                bool by_fd = w % 2;
                char name[16];
                uint64_t sequence = 1;

                assert_int_equal(folio_watch_open(client, "test:", 0, &watch), 0);
                if (by_fd)
                        wait.fd = folio_watch_get_fd(watch);
                for (unsigned i = 0; i < 5; i++) {
                        fake_end(f, i % 2);
                        snprintf(name, sizeof(name), "a%u", i);
                        fake_come_back(f, ways[w / 2], name);
                        for (int r = 0; by_fd && r == 0;) {
                                assert_int_equal(poll(&wait, 1, 20000), 1);
                                r = folio_watch_next(watch, 0, &event);
                                assert_true(r >= 0);
                        }
                        if (!by_fd)
                                assert_int_equal(folio_watch_next(watch, 20000, &event), 1);
                        assert_int_equal(event.sequence, ++sequence);
                        assert_string_equal(event.name + strlen("test:"), name);
                        snprintf(name, sizeof(name), "b%u", i);
                        fake_add(f, name);
                        while (by_fd && folio_watch_next(watch, 0, &event) == 0)
                                assert_int_equal(poll(&wait, 1, 20000), 1);
                        if (!by_fd)
                                assert_int_equal(folio_watch_next(watch, 20000, &event), 1);
                        assert_int_equal(event.sequence, ++sequence);
                        assert_string_equal(event.name + strlen("test:"), name);
                }
                folio_watch_close(watch);
                folio_client_unref(client);
                fake_free(f);
        }
}

/* --- the ring -------------------------------------------------------------------------------------------------------------- */

static void test_ring(void **state)
{
        static const int ways[] = { FAKE_RESUMES, FAKE_NEW_SESSION };

        (void)state;
        for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
                FakeFoliod *f = fake_new();
                struct folio_client *client = fake_connect(f);
                char name[24];
                unsigned n = 0;

                for (; !f->ring || atomic_load(&f->ring->shared->tail) == 0; n++) {
                        assert_true(n < 100);
                        snprintf(name, sizeof(name), "test:r%u", n);
                        assert_int_equal(folio_put(client, name, "x", 1, NULL), 0);
                }
                fake_end(f, false);
                for (unsigned i = 0; i < 100; i++) {
                        snprintf(name, sizeof(name), "test:s%u", i);
                        assert_int_equal(folio_put(client, name, "x", 1, NULL), 0);
                }
                assert_int_equal(atomic_load(&f->ring->shared->tail), 101);
                fake_come_back(f, ways[w], NULL);
                assert_int_equal(ask(client), 0);
                if (ways[w] == FAKE_RESUMES) {
                        /* The next one carries out what it finds. */
                        ring_publish_head(f->ring->shared, 101);
                        assert_int_equal(folio_flush(client), 0);
                } else {
                        assert_int_equal(folio_flush(client), FOLIO_E_DAEMON_GONE);
                        assert_non_null(strstr(folio_strerror_full(), "101 requests"));
                        assert_int_equal(folio_flush(client), 0);
                }
                folio_client_unref(client);
                fake_free(f);
        }
}

/* --- fork ------------------------------------------------------------------------------------------------------------------ */

static void test_a_child_does_not(void **state)
{
        FakeFoliod *f = fake_new();
        struct folio_client *client = fake_connect(f);
        int status;
        pid_t pid;

        (void)state;
        assert_true(is_there(client, "test:first"));
        fake_end(f, true);
        pid = fork();
        if (pid == 0) {
                struct folio_object *object;

                for (unsigned i = 0; i < 100; i++)
                        if (folio_get(client, "test:first", 0, 0, &object) != FOLIO_E_FORKED || ask(client) != FOLIO_E_FORKED)
                                _exit(1);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        fake_come_back(f, FAKE_RESUMES, NULL);
        assert_int_equal(ask(client), 0);
        assert_int_equal(f->n_hellos, 2);
        folio_client_unref(client);
        fake_free(f);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_asks_again),       UNIT_TEST(test_ends_before_welcome), UNIT_TEST(test_looks_go_on),
                UNIT_TEST(test_nobody_comes),     UNIT_TEST(test_will_not_have_us),    UNIT_TEST(test_many_threads),
                UNIT_TEST(test_pins),             UNIT_TEST(test_another_store),       UNIT_TEST(test_put_under_way),
                UNIT_TEST(test_batch_under_way),  UNIT_TEST(test_lapped),              UNIT_TEST(test_asynchronous),
                UNIT_TEST(test_taken_over),       UNIT_TEST(test_watch),            UNIT_TEST(test_ring),                UNIT_TEST(test_a_child_does_not),
        };

        return cmocka_run_group_tests_name("reconnect", tests, NULL, NULL);
}
