/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous calls where things end otherwise: an opening that waits or fails, a daemon that dies, a client that is
 * closed, few descriptors. Each call completes once.
 */
#include "tests/integration/async.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

/* --- opening ------------------------------------------------------------------------------------------------------------------ */

/* What is called before foliod has said welcome waits for it, and comes behind it. */
static void test_calls_before_the_welcome(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_open_options options = async_options(foliod);
        struct folio_client *client = NULL;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        Done opened = { 0 }, put = { 0 }, got = { 0 }, many = { 0 };
        struct folio_put_item item = { .name = "c", .data = "c", .size_bytes = 1 };

        /* A daemon that is stopped says nothing yet, but its listener takes connections. */
        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        ASSERT_OK(folio_client_open_async(&options, &client, async_on_done, &opened));
        ASSERT_OK(folio_put_async(client, "a", "12345", 5, NULL, async_on_done, &put));
        ASSERT_OK(folio_get_async(client, "b", 0, FOLIO_TIMEOUT_FOREVER, async_on_done, &got));
        ASSERT_OK(folio_put_many_async(client, &item, 1, async_on_done, &many));
        assert_true(folio_client_process(client) >= 0);
        assert_int_equal(opened.n + put.n + got.n + many.n, 0);
        assert_int_equal(kill(foliod->pid, SIGCONT), 0);
        while (put.n == 0) {
                async_turn(client);
                assert_true(opened.n == 1 || put.n == 0);
        }
        assert_int_equal(opened.n, 1);
        assert_int_equal(opened.error, 0);
        assert_int_equal(put.error, 0);
        assert_int_equal(async_finish(client, &many), 0);
        /* And a blocking call in its place. */
        ASSERT_OK(folio_put(client, "b", "b", 1, NULL));
        assert_int_equal(async_finish(client, &got), 0);
        ASSERT_OK(folio_object_release(got.object));
        folio_client_unref(client);
        ASSERT_OK(folio_client_open_async(&options, &client, async_on_done, &opened));
        ASSERT_OK(folio_stat(client, "a", &stat));
        assert_int_equal(opened.n, 2);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* Nobody is there: the opening says why, and whatever was called ends with it, once. */
static void test_open_fails(void **state)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = "/nonexistent/folio.sock" };
        struct folio_client *client = NULL;
        struct folio_object *object;
        Done opened = { 0 }, put = { 0 };

        ASSERT_OK(folio_client_open_async(&options, &client, async_on_done, &opened));
        assert_int_equal(opened.n, 1);
        assert_int_equal(opened.error, FOLIO_E_DAEMON_GONE);
        assert_non_null(strstr(opened.sentence, "/nonexistent/folio.sock"));
        ASSERT_OK(folio_put_async(client, "a", "1", 1, NULL, async_on_done, &put));
        assert_int_equal(put.n, 1);
        assert_int_equal(put.error, FOLIO_E_DAEMON_GONE);
        assert_int_equal(folio_get(client, "a", 0, FOLIO_TIMEOUT_FOREVER, &object), FOLIO_E_DAEMON_GONE);
        assert_int_equal(folio_client_process(client), FOLIO_E_DAEMON_GONE);
        assert_true(folio_client_get_fd(client) >= 0);
        folio_client_unref(client);
        assert_int_equal(opened.n, 1);
}

/* A listener that nobody accepts from. */
static int listen_at(const char *path, int *ret_filler)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 0), 0);
        *ret_filler = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(*ret_filler, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* A backlog that is full: another thread waits for room in it. The opening times out, or is given up. */
static void test_open_waits_for_room(void **state)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .timeout_ms = 300 };
        char directory[] = "/tmp/folio-async-XXXXXX", path[64];
        struct folio_client *client = NULL;
        Done opened = { 0 }, put = { 0 };
        unsigned n_fds = harness_count_own_fds();
        int fd, filler;

        assert_non_null(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/sock", directory);
        options.address = path;
        fd = listen_at(path, &filler);
        ASSERT_OK(folio_client_open_async(&options, &client, async_on_done, &opened));
        ASSERT_OK(folio_put_async(client, "a", "1", 1, NULL, async_on_done, &put));
        assert_int_equal(opened.n + put.n, 0);
        while (opened.n == 0) {
                struct pollfd poller = { .fd = folio_client_get_fd(client), .events = POLLIN };

                assert_int_equal(poll(&poller, 1, 20000), 1);
                (void)folio_client_process(client);
        }
        assert_int_equal(opened.error, FOLIO_E_TIMEOUT);
        assert_int_equal(put.n, 1);
        assert_int_equal(put.error, FOLIO_E_DAEMON_GONE);
        folio_client_unref(client);
        /* Given up while the thread searches. */
        opened = put = (Done){ 0 };
        ASSERT_OK(folio_client_open_async(&options, &client, async_on_done, &opened));
        ASSERT_OK(folio_put_async(client, "a", "1", 1, NULL, async_on_done, &put));
        folio_client_unref(client);
        assert_int_equal(opened.n, 1);
        assert_int_equal(opened.error, FOLIO_E_CANCELLED);
        assert_int_equal(put.n, 1);
        assert_int_equal(put.error, FOLIO_E_CANCELLED);
        close(filler);
        close(fd);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(directory), 0);
        AWAIT(harness_count_own_fds() == n_fds);
}

/* The process that listens there. */
static pid_t listener_of(const char *path)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct ucred peer = { 0 };
        socklen_t n_bytes = sizeof(peer);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes), 0);
        close(fd);
        return peer.pid;
}

static int open_in_loop(struct folio_open_options *options, struct folio_client **ret, Done *put)
{
        Done opened = { 0 };

        ASSERT_OK(folio_client_open_async(options, ret, async_on_done, &opened));
        ASSERT_OK(folio_put_async(*ret, "spawned", "1", 1, NULL, async_on_done, put));
        while (opened.n == 0 || put->n == 0) {
                struct pollfd fd = { .fd = folio_client_get_fd(*ret), .events = POLLIN };

                assert_int_equal(poll(&fd, 1, 20000), 1);
                (void)folio_client_process(*ret);
        }
        assert_int_equal(opened.n + put->n, 2);
        return opened.error;
}

/* A daemon that must be started first, and one that is not there to be started. */
static void test_open_starts_a_daemon(void **state)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_OPEN_SPAWN, .timeout_ms = 20000 };
        char directory[] = "/tmp/folio-async-XXXXXX", path[96];
        struct folio_client *client = NULL;
        unsigned n_fds = harness_count_own_fds();
        Done put = { 0 };
        pid_t pid;

        if (access("/run/folio/folio.sock", F_OK) == 0)
                skip(); /* the machine's own daemon would answer */
        assert_non_null(mkdtemp(directory));
        assert_int_equal(setenv("XDG_RUNTIME_DIR", directory, 1) | unsetenv("FOLIO_SOCKET"), 0);
        assert_int_equal(setenv("FOLIO_DAEMON", "/nonexistent/foliod", 1), 0);
        assert_int_equal(open_in_loop(&options, &client, &put), FOLIO_E_DAEMON_GONE);
        assert_int_equal(put.error, FOLIO_E_DAEMON_GONE);
        folio_client_unref(client);
        put = (Done){ 0 };
        assert_int_equal(setenv("FOLIO_DAEMON", getenv("FOLIOD"), 1), 0);
        assert_int_equal(open_in_loop(&options, &client, &put), 0);
        assert_int_equal(put.error, 0);
        folio_client_unref(client);
        snprintf(path, sizeof(path), "%s/folio/folio.sock", directory);
        pid = listener_of(path);
        assert_true(pid > 1 && kill(pid, SIGTERM) == 0);
        AWAIT(access(path, F_OK) < 0);
        AWAIT(kill(pid, 0) < 0);
        snprintf(path, sizeof(path), "rm -r '%s'", directory);
        assert_int_equal(system(path), 0);
        assert_int_equal(unsetenv("XDG_RUNTIME_DIR") | unsetenv("FOLIO_DAEMON"), 0);
        AWAIT(harness_count_own_fds() == n_fds);
}

/* --- everything at once -------------------------------------------------------------------------------------------------------- */

enum { N_PENDING = 22 };

typedef struct Pending {
        Done done[N_PENDING];
        struct folio_object *stream, *held, *mutable, *reader;
        AsyncItems *items;
        uint8_t *bytes;
        struct folio_stat stat;
        struct folio_list *list;
        struct folio_watch *watch;
        struct folio_holder holder;
        struct folio_namespace space, spaces[2];
        struct folio_status fact;
        char copy[64];
} Pending;

static Pending *pending_new(struct folio_client *client)
{
        struct folio_create_options stream = { .struct_bytes = sizeof(stream), .flags = FOLIO_STREAM };
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE, .capacity_bytes = 8192 };
        Pending *pending = calloc(1, sizeof(*pending));

        assert_non_null(pending);
        pending->items = async_items_new();
        pending->bytes = calloc(1, 4 * MIB);
        /* Not zeros: where those are the index says. */
        harness_fill(pending->bytes, 4 * MIB, 1);
        pending->stat.struct_bytes = sizeof(pending->stat);
        pending->holder.struct_bytes = sizeof(pending->holder);
        pending->space.struct_bytes = sizeof(pending->space);
        pending->spaces[0].struct_bytes = sizeof(pending->spaces[0]);
        pending->fact.struct_bytes = sizeof(pending->fact);
        strcpy(pending->space.name, "pending");
        ASSERT_OK(folio_create(client, "p-stream", 0, &stream, &pending->stream));
        ASSERT_OK(folio_create(client, "p-held", 100, NULL, &pending->held));
        ASSERT_OK(folio_create(client, "p-mutable", 10, &mutable, &pending->mutable));
        ASSERT_OK(folio_put(client, "p-large", pending->bytes, 3 * MIB, NULL));
        ASSERT_OK(folio_get(client, "p-large", FOLIO_GET_UNMAPPED, 0, &pending->reader));
        return pending;
}

static void pending_free(Pending *pending)
{
        for (int i = 0; i < N_PENDING; i++)
                if (pending->done[i].object)
                        ASSERT_OK(folio_object_release(pending->done[i].object));
        for (size_t i = 0; i < ASYNC_N_ITEMS; i++)
                if (pending->items->gets[i].object)
                        ASSERT_OK(folio_object_release(pending->items->gets[i].object));
        ASSERT_OK(folio_object_release(pending->stream));
        ASSERT_OK(folio_object_release(pending->held));
        ASSERT_OK(folio_object_release(pending->mutable));
        ASSERT_OK(folio_object_release(pending->reader));
        folio_list_close(pending->list);
        free(pending->items);
        free(pending->bytes);
        free(pending);
}

/* One of each, none of which the index can answer: all wait for the daemon. */
static void begin_everything(struct folio_client *client, Pending *p)
{
        Done *done = p->done;

        ASSERT_OK(folio_put_async(client, "other:x", "1", 1, NULL, async_on_done, done++));
        ASSERT_OK(folio_get_async(client, "never", 0, FOLIO_TIMEOUT_FOREVER, async_on_done, done++));
        ASSERT_OK(folio_stat_async(client, "elsewhere:a", &p->stat, async_on_done, done++));
        ASSERT_OK(folio_exists_async(client, "elsewhere:a", async_on_done, done++));
        ASSERT_OK(folio_object_read_async(p->reader, 0, p->copy, 3, async_on_done, done++));
        ASSERT_OK(folio_object_map_async(p->reader, 0, async_on_done, done++));
        ASSERT_OK(folio_object_write_async(p->stream, 0, p->bytes, 4 * MIB, async_on_done, done++));
        ASSERT_OK(folio_object_truncate_async(p->mutable, 20, async_on_done, done++));
        ASSERT_OK(folio_object_seal_async(p->held, async_on_done, done++));
        ASSERT_OK(folio_list_open_async(client, "elsewhere:", &p->list, async_on_done, done++));
        ASSERT_OK(folio_watch_open_async(client, "", 0, &p->watch, async_on_done, done++));
        ASSERT_OK(folio_holders_async(client, "p-large", &p->holder, 1, async_on_done, done++));
        ASSERT_OK(folio_namespace_add_async(client, &p->space, async_on_done, done++));
        ASSERT_OK(folio_namespace_set_async(client, &p->space, async_on_done, done++));
        ASSERT_OK(folio_namespace_remove_async(client, "pending", async_on_done, done++));
        ASSERT_OK(folio_namespace_list_async(client, NULL, p->spaces, 2, async_on_done, done++));
        ASSERT_OK(folio_status_get_async(client, &p->fact, 1, async_on_done, done++));
        ASSERT_OK(folio_put_many_async(client, p->items->puts, ASYNC_N_ITEMS, async_on_done, done++));
        ASSERT_OK(folio_get_many_async(client, p->items->gets, ASYNC_N_ITEMS, 0, FOLIO_TIMEOUT_FOREVER, async_on_done, done++));
        ASSERT_OK(folio_stat_many_async(client, p->items->stats, ASYNC_N_ITEMS, async_on_done, done++));
        ASSERT_OK(folio_read_many_async(client, p->items->reads, ASYNC_N_ITEMS, async_on_done, done++));
        ASSERT_OK(folio_delete_many_async(client, p->items->deletes, ASYNC_N_ITEMS, async_on_done, done++));
        assert_int_equal(done - p->done, N_PENDING);
}

/* The daemon is killed with everything under way: each call completes, once, and its items too. */
static void test_daemon_killed_in_the_middle(void **state)
{
        Foliod *foliod = foliod_start("--staging=1M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        Pending *pending = pending_new(client);

        async_n_done = 0;
        assert_true(folio_client_get_fd(client) >= 0);
        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        begin_everything(client, pending);
        assert_int_equal(async_n_done, 0);
        foliod_kill(foliod);
        for (int i = 0; i < 10000 && async_n_done < N_PENDING; i++) {
                struct pollfd fd = { .fd = folio_client_get_fd(client), .events = POLLIN };

                assert_int_equal(poll(&fd, 1, 20000), 1);
                (void)folio_client_process(client);
        }
        (void)folio_client_process(client);
        assert_int_equal(async_n_done, N_PENDING);
        for (int i = 0; i < N_PENDING; i++) {
                assert_int_equal(pending->done[i].n, 1);
                if (i < 17)
                        assert_int_equal(pending->done[i].error, FOLIO_E_DAEMON_GONE);
                else
                        assert_int_equal(pending->done[i].error, ASYNC_N_ITEMS);
        }
        for (size_t i = 0; i < ASYNC_N_ITEMS; i++) {
                assert_int_equal(pending->items->puts[i].error, FOLIO_E_DAEMON_GONE);
                assert_int_equal(pending->items->deletes[i].error, FOLIO_E_DAEMON_GONE);
                assert_true(pending->items->gets[i].error < 0 && !pending->items->gets[i].object);
                assert_true(pending->items->reads[i].error < 0 && pending->items->stats[i].error < 0);
        }
        assert_null(pending->list);
        assert_null(pending->watch);
        folio_client_unref(client);
        pending_free(pending);
        foliod_stop(foliod);
}

/* The client is closed with everything under way: cancelled, once each, before the close returns. */
static void test_close_cancels_everything(void **state)
{
        Foliod *foliod = foliod_start("--staging=1M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        Pending *pending = pending_new(client);

        async_n_done = 0;
        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        begin_everything(client, pending);
        assert_int_equal(async_n_done, 0);
        folio_client_unref(client);
        assert_int_equal(async_n_done, N_PENDING);
        for (int i = 0; i < N_PENDING; i++) {
                assert_int_equal(pending->done[i].n, 1);
                assert_int_equal(pending->done[i].error, FOLIO_E_CANCELLED);
                assert_true(strlen(pending->done[i].sentence) > 0);
        }
        for (size_t i = 0; i < ASYNC_N_ITEMS; i++) {
                assert_true(pending->items->puts[i].error < 0);
                assert_true(pending->items->gets[i].error < 0 && !pending->items->gets[i].object);
        }
        assert_null(pending->list);
        assert_null(pending->watch);
        assert_int_equal(kill(foliod->pid, SIGCONT), 0);
        pending_free(pending);
        foliod_stop(foliod);
}

/* The same again, at every point of the way: some complete, the others are cancelled, and none does both. */
static void test_close_at_any_time(void **state)
{
        Foliod *foliod = foliod_start("--staging=1M", NULL);

        for (int n_turns = 0; n_turns < 12; n_turns++) {
                struct folio_client *client = foliod_connect(foliod), *cleaner = foliod_connect(foliod);
                Pending *pending = pending_new(client);

                async_n_done = 0;
                begin_everything(client, pending);
                for (int i = 0; i < n_turns; i++)
                        async_turn(client);
                /* A watch has a reference of its own. */
                folio_watch_close(pending->watch);
                pending->watch = NULL;
                folio_client_unref(client);
                assert_int_equal(async_n_done, N_PENDING);
                for (int i = 0; i < N_PENDING; i++)
                        assert_int_equal(pending->done[i].n, 1);
                pending_free(pending);
                (void)folio_delete_many(cleaner, (struct folio_delete_item[]){ { .name = "p-large" }, { .name = "p-held" },
                                                                              { .name = "p-mutable" } }, 3);
                folio_client_unref(cleaner);
        }
        foliod_stop(foliod);
}

/* --- few descriptors ----------------------------------------------------------------------------------------------------------------- */

enum { N_REGIONS = 300 };

/* Opens whatever this process may open, but for @n_room. The ones opened follow each other in @fillers, -1 at the end. */
static void fill_descriptors(int fillers[128], unsigned n_room)
{
        struct rlimit limit = { 100, 4096 };
        unsigned n = 0;

        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        while (n < 127 && (fillers[n] = fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0)
                n++;
        CHECK(n < 127 && n >= n_room);
        for (; n_room > 0; n_room--)
                close(fillers[--n]);
        fillers[n] = -1;
}

static void empty_descriptors(const int *fillers)
{
        while (*fillers >= 0)
                close(*fillers++);
}

static void run_with_few_descriptors(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        struct folio_put_item *puts = calloc(N_REGIONS, sizeof(*puts));
        struct folio_get_item *gets = calloc(N_REGIONS, sizeof(*gets));
        struct folio_read_item *reads = calloc(N_REGIONS, sizeof(*reads));
        char(*names)[16] = calloc(N_REGIONS, sizeof(*names)), (*copies)[16] = calloc(N_REGIONS, sizeof(*copies));
        int fillers[128];

        CHECK(puts && gets && reads && names && copies);
        for (size_t i = 0; i < N_REGIONS; i++) {
                snprintf(names[i], sizeof(names[i]), "r%zu", i);
                puts[i] = (struct folio_put_item){ .name = names[i], .data = names[i], .size_bytes = 16, .options = &own };
                gets[i] = (struct folio_get_item){ .name = names[i] };
                reads[i] = (struct folio_read_item){ .name = names[i], .buffer = copies[i], .n_bytes = 16 };
        }
        CHECK_OK(folio_put(client, "first", "1", 1, NULL));
        fill_descriptors(fillers, *(unsigned *)child->userdata);
        CHECK(folio_put_many(client, puts, N_REGIONS) == 0);
        CHECK(folio_read_many(client, reads, N_REGIONS) == 0);
        CHECK(folio_get_many(client, gets, N_REGIONS, 0, 0) == 0);
        for (size_t i = 0; i < N_REGIONS; i++) {
                CHECK(memcmp(copies[i], names[i], 16) == 0);
                CHECK(gets[i].error == 0);
                CHECK(memcmp(folio_object_data(gets[i].object), names[i], 16) == 0);
                CHECK_OK(folio_object_release(gets[i].object));
        }
        /* As many are free as were. */
        CHECK(dup(0) >= 0);
        empty_descriptors(fillers);
        folio_client_unref(client);
        free(puts);
        free(gets);
        free(reads);
        free(names);
        free(copies);
}

/* E03, E04: regions come as many at once as there is room for descriptors, down to one. */
static void test_e03_e04_batch_with_few_descriptors(void **state)
{
        unsigned rooms[] = { 1, 2, 7, 40, 64 };

        for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
                Foliod *foliod = foliod_start("--budget", "256M", NULL);

                child_finish(child_start(foliod, run_with_few_descriptors, &rooms[i]));
                foliod_stop(foliod);
        }
}

static void run_without_descriptors(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_get_item gets[3] = { { .name = "a" }, { .name = "b" }, { .name = "c" } };
        int fillers[128];

        CHECK(folio_exists(client, "a") == 1);
        fill_descriptors(fillers, 0);
        CHECK(folio_get_many(client, gets, 3, 0, 0) == 3);
        for (int i = 0; i < 3; i++)
                CHECK(gets[i].error == FOLIO_E_LIMIT && !gets[i].object);
        CHECK(strstr(folio_strerror_full(), "RLIMIT_NOFILE"));
        /* The connection is as good as before, and nothing is held. */
        empty_descriptors(fillers);
        CHECK(folio_holders(client, "a", NULL, 0) == 0);
        CHECK(folio_get_many(client, gets, 3, 0, 0) == 0);
        for (int i = 0; i < 3; i++)
                CHECK_OK(folio_object_release(gets[i].object));
        folio_client_unref(client);
}

/* E04: where not one descriptor fits, that is what the error says, and the connection goes on. */
static void test_e04_no_descriptor_at_all(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        static const char *const names[] = { "a", "b", "c" };

        for (int i = 0; i < 3; i++)
                ASSERT_OK(folio_put(client, names[i], "1", 1, &own));
        child_finish(child_start(foliod, run_without_descriptors, NULL));
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_calls_before_the_welcome),
                INTEGRATION_TEST(test_open_fails),
                INTEGRATION_TEST(test_open_waits_for_room),
                INTEGRATION_TEST(test_open_starts_a_daemon),
                INTEGRATION_TEST(test_daemon_killed_in_the_middle),
                INTEGRATION_TEST(test_close_cancels_everything),
                INTEGRATION_TEST(test_close_at_any_time),
                INTEGRATION_TEST(test_e03_e04_batch_with_few_descriptors),
                INTEGRATION_TEST(test_e04_no_descriptor_at_all),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
