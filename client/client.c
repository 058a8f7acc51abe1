/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's life: find a foliod, or have one started, say hello, and at the end hang up and complete whatever is
 * under way. Also the calls by which an event loop drives it.
 *
 * All clients of the process are in a list, for fork(): a child's copy of a socket would keep the connection of a
 * parent that has died alive, so the child closes it at once. It touches nothing else of an inherited client.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/context.h"
#include "client/lib/connection.h"
#include "client/loop.h"
#include "client/names.h"
#include "client/operation.h"

enum { CLIENT_TIMEOUT_MS_DEFAULT = 30000, CLIENT_CONNECT_PAUSE_MS = 5 };

/* --- all clients of the process ------------------------------------------------------------------------------------------------ */

static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static List clients = LIST_INIT(clients);
static bool clients_are_watched;

static void before_fork(void)
{
        (void)pthread_mutex_lock(&clients_lock);
}

static void after_fork_in_parent(void)
{
        (void)pthread_mutex_unlock(&clients_lock);
}

static void after_fork_in_child(void)
{
        for (List *link; (link = list_take_front(&clients));)
                requests_abandon(LIST_ENTRY(link, Client, siblings)->requests);
        (void)pthread_mutex_unlock(&clients_lock);
}

/* 0 or a negative errno. */
static int clients_add(Client *client)
{
        int r = 0;

        (void)pthread_mutex_lock(&clients_lock);
        if (!clients_are_watched) {
                r = -pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
                clients_are_watched = r == 0;
        }
        if (r == 0)
                list_push_back(&clients, &client->siblings);
        (void)pthread_mutex_unlock(&clients_lock);
        return r;
}

static void clients_remove(Client *client)
{
        (void)pthread_mutex_lock(&clients_lock);
        list_unlink(&client->siblings);
        (void)pthread_mutex_unlock(&clients_lock);
}

/* --- birth and end ---------------------------------------------------------------------------------------------------------------- */

void client_release_user(Client *client)
{
        /* A child's memory of the client is a copy, with holes: nothing of it may be given back twice. */
        if (!forked_is_mine(client->fork_mark))
                return;
        if (atomic_fetch_sub_explicit(&client->n_users, 1, memory_order_acq_rel) != 1)
                return;
        names_free(client);
        staging_free(client->staging);
        maps_free(client->maps);
        requests_free(client->requests);
        idle_deinit(&client->idle);
        (void)pthread_mutex_destroy(&client->loop_lock);
        free(client);
}

/* Hangs up. What handles need stays until the last of them goes. */
static void client_close(Client *client)
{
        clients_remove(client);
        operations_cancel(client);
        loop_deinit(client);
        client_release_user(client);
}

static uint64_t default_mapping_bytes(void)
{
        long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

        return n_pages > 0 && page_bytes > 0 ? (uint64_t)n_pages * (uint64_t)page_bytes / 4 : GIB;
}

/* 0 or a negative errno. */
static int client_new(int consume_socket, const struct folio_open_options *options, uint64_t timeout_ns, Client **ret)
{
        _cleanup_(cleanup_fd) int socket = consume_socket;
        uint64_t mapping_bytes_max = options->mapping_bytes_max ? options->mapping_bytes_max : default_mapping_bytes();
        Client *client = calloc(1, sizeof(*client));
        int r;

        if (!client)
                return -ENOMEM;
        atomic_init(&client->n_references, 1);
        atomic_init(&client->n_users, 1);
        client->timeout_ns = timeout_ns;
        list_init(&client->siblings);
        list_init(&client->ready);
        list_init(&client->staging_waiters);
        list_init(&client->gets);
        client->gets_deadline_ns = UINT64_MAX;
        (void)pthread_mutex_init(&client->loop_lock, NULL);
        idle_init(&client->idle);
        atomic_init(&client->epoll_fd, -1);
        client->timer_fd = -1;
        r = forked_take_mark(&client->fork_mark);
        if (r == 0)
                r = requests_new(steal_fd(&socket), timeout_ns, &client->requests);
        if (r == 0)
                r = maps_new(mapping_bytes_max, &client->maps);
        if (r == 0)
                r = clients_add(client);
        if (r < 0) {
                maps_free(client->maps);
                requests_free(client->requests);
                idle_deinit(&client->idle);
                (void)pthread_mutex_destroy(&client->loop_lock);
                free(client);
                return r;
        }
        *ret = client;
        return 0;
}

/* --- hello -------------------------------------------------------------------------------------------------------------------------- */

static void take_welcome(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Client *client = op->client;
        int r;

        if (!reply->has_welcome || n_fds != 1 || reply->version != PROTO_VERSION) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        client->packed_bytes_max = reply->packed_bytes_max;
        client->staging_bytes = reply->staging_bytes;
        r = staging_new(steal_fd(&fds[0]), reply->staging_bytes, &client->staging);
        if (r < 0)
                op_fail(op, error_from_errno(r), "the staging memory (%llu bytes) cannot be mapped: %s",
                        (unsigned long long)reply->staging_bytes, strerror(-r));
}

static int say_hello(Client *client, const char *name)
{
        ProtoRequest message = {
                .verb = VERB_HELLO,
                .version_min = PROTO_VERSION,
                .version_max = PROTO_VERSION,
                .client_name = { name, strnlen(name, PROTO_CLIENT_NAME_BYTES_MAX) },
        };
        Op op;
        int r;

        op_init(&op, client);
        op_send(&op, &message, take_welcome, op_complete);
        r = op_wait(&op);
        op_deinit(&op);
        return r;
}

/* --- finding a daemon ------------------------------------------------------------------------------------------------------------- */

typedef struct Search {
        SpawnAddress address;        /* of the one that answered */
        uint64_t deadline_ns;
        int refused;                 /* the first errno that is more than "nobody is there"; 0 */
        char refused_path[SPAWN_ADDRESS_BYTES_MAX];
} Search;

static bool is_nobody(int r)
{
        return r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR;
}

static int try_address(Search *search, const SpawnAddress *address, int *ret_socket)
{
        int r = connection_open(address->path, search->deadline_ns, ret_socket);

        if (r == 0)
                search->address = *address;
        else if (!is_nobody(r) && search->refused == 0) {
                search->refused = r;
                memcpy(search->refused_path, address->path, sizeof(search->refused_path));
        }
        return r;
}

static int explain_spawn(int r)
{
        switch (r) {
        case SPAWN_E_NOT_FOUND:
                return error_set(FOLIO_E_DAEMON_GONE, "no foliod is running, and there is none to start on this machine");
        case SPAWN_E_FAILED:
                return error_set(FOLIO_E_DAEMON_GONE, "no foliod is running, and the one started ended before it was ready; "
                                                      "run `foliod --user` to see why");
        case SPAWN_E_TIMEOUT:
                return error_set(FOLIO_E_TIMEOUT, "a foliod was started, but is not ready within the time given");
        }
        return error_set(error_from_errno(r), "starting a foliod failed: %s", strerror(-r));
}

/* 0 or an error. */
static int start_and_connect(Search *search, int *ret_socket)
{
        SpawnAddress address;

        if (!spawn_find_user_address(&address))
                return error_set(FOLIO_E_ACCESS, "there is no safe directory for a foliod of this user; set XDG_RUNTIME_DIR");
        for (;;) {
                struct timespec pause = { .tv_nsec = CLIENT_CONNECT_PAUSE_MS * 1000000L };
                int r = spawn_daemon(search->deadline_ns);

                if (r != 0 && r != SPAWN_E_LOST)
                        return explain_spawn(r);
                r = try_address(search, &address, ret_socket);
                if (r == 0)
                        return 0;
                if (!is_nobody(r))
                        return error_set(r == -EACCES ? FOLIO_E_ACCESS : FOLIO_E_DAEMON_GONE, "connecting to %s: %s",
                                         address.path, strerror(-r));
                if (connection_now_ns() >= search->deadline_ns)
                        return explain_spawn(SPAWN_E_TIMEOUT);
                /* The one that was faster is not listening yet, or has just ended: neither can be waited for. */
                (void)nanosleep(&pause, NULL);
        }
}

static int explain_search(const Search *search, const SpawnAddress *addresses, size_t n_addresses)
{
        switch (-search->refused) {
        case 0:
                return error_set(FOLIO_E_DAEMON_GONE, "no foliod listens at %s%s%s", addresses[0].path,
                                 n_addresses > 1 ? " or " : "", n_addresses > 1 ? addresses[1].path : "");
        case EACCES:
        case EPERM:
                return error_set(FOLIO_E_ACCESS, "%s does not let this user in", search->refused_path);
        case ETIMEDOUT:
                return error_set(FOLIO_E_TIMEOUT, "foliod at %s does not take connections", search->refused_path);
        case EMFILE:
        case ENFILE:
                return error_set(FOLIO_E_LIMIT, "no descriptor left for a connection: %s", strerror(-search->refused));
        case EPROTOTYPE:
                return error_set(FOLIO_E_PROTOCOL, "what listens at %s is no foliod", search->refused_path);
        }
        return error_set(FOLIO_E_DAEMON_GONE, "connecting to %s: %s", search->refused_path, strerror(-search->refused));
}

/* 0 or an error. */
static int find_daemon(const struct folio_open_options *options, Search *search, int *ret_socket)
{
        SpawnAddress addresses[SPAWN_ADDRESSES_MAX];
        size_t n = spawn_candidate_addresses(options->address, addresses);

        if (n == 0)
                return error_set(FOLIO_E_INVALID, "an address of 1 to %d bytes is wanted", SPAWN_ADDRESS_BYTES_MAX - 1);
        for (size_t i = 0; i < n; i++)
                if (try_address(search, &addresses[i], ret_socket) == 0)
                        return 0;
        if ((options->flags & FOLIO_OPEN_SPAWN) && search->refused == 0 && spawn_is_wanted(options->address))
                return start_and_connect(search, ret_socket);
        return explain_search(search, addresses, n);
}

/* --- public -------------------------------------------------------------------------------------------------------------------------- */

static int read_options(const struct folio_open_options *given, struct folio_open_options *ret, uint64_t *ret_timeout_ns)
{
        *ret = (struct folio_open_options){ 0 };
        if (given && given->struct_bytes == 0)
                return error_set(FOLIO_E_INVALID, "folio_open_options.struct_bytes is not set");
        if (given)
                memcpy(ret, given, MIN(given->struct_bytes, sizeof(*ret)));
        if (ret->flags & ~FOLIO_OPEN_SPAWN)
                return error_set(FOLIO_E_INVALID, "unknown flags 0x%x for an open", ret->flags & ~FOLIO_OPEN_SPAWN);
        if (ret->timeout_ms < FOLIO_TIMEOUT_FOREVER)
                return error_set(FOLIO_E_INVALID, "a timeout of %d ms", ret->timeout_ms);
        if (!ret->client_name)
                ret->client_name = program_invocation_short_name;
        if (ret->timeout_ms == 0)
                ret->timeout_ms = CLIENT_TIMEOUT_MS_DEFAULT;
        *ret_timeout_ns = ret->timeout_ms < 0 ? UINT64_MAX : (uint64_t)ret->timeout_ms * 1000000;
        return 0;
}

_public_ int folio_client_open(const struct folio_open_options *given, struct folio_client **ret)
{
        struct folio_open_options options;
        uint64_t timeout_ns = 0, now_ns = connection_now_ns();
        Search search = { 0 };
        Client *client;
        int socket, r;

        r = read_options(given, &options, &timeout_ns);
        if (r == 0 && !ret)
                r = error_set(FOLIO_E_INVALID, "there is no place for the client");
        if (r < 0)
                return r;
        search.deadline_ns = timeout_ns == UINT64_MAX ? UINT64_MAX : now_ns + timeout_ns;
        r = find_daemon(&options, &search, &socket);
        if (r < 0)
                return r;
        r = client_new(socket, &options, timeout_ns, &client);
        if (r < 0)
                return error_set(error_from_errno(r), "opening a client failed: %s", strerror(-r));
        memcpy(client->address, search.address.path, sizeof(client->address));
        if (timeout_ns != UINT64_MAX) {
                now_ns = connection_now_ns();
                requests_set_timeout(client->requests, search.deadline_ns > now_ns ? search.deadline_ns - now_ns : 0);
        }
        r = say_hello(client, options.client_name);
        requests_set_timeout(client->requests, timeout_ns);
        if (r < 0) {
                client_close(client);
                return r;
        }
        *ret = client;
        return 0;
}

_public_ struct folio_client *folio_client_ref(struct folio_client *client)
{
        if (client)
                atomic_fetch_add_explicit(&client->n_references, 1, memory_order_relaxed);
        return client;
}

_public_ void folio_client_unref(struct folio_client *client)
{
        /* In a child there is nothing to end: the connection is the parent's, and locks may be held for ever. */
        if (!client || !forked_is_mine(client->fork_mark))
                return;
        if (atomic_fetch_sub_explicit(&client->n_references, 1, memory_order_acq_rel) == 1)
                client_close(client);
}

_public_ int folio_client_get_fd(struct folio_client *client)
{
        int r = client_check(client);

        return r < 0 ? r : loop_get_fd(client);
}

_public_ int folio_client_get_events(struct folio_client *client)
{
        int r = client_check(client);

        /* That there is room in the socket shows as readable too: it is in the epoll instance. */
        return r < 0 ? r : POLLIN;
}

_public_ int folio_client_process(struct folio_client *client)
{
        unsigned n_completed;
        bool should_look;
        int error = client_check(client);

        if (error < 0)
                return error;
        client_add_user(client);
        should_look = loop_consume(client);
        requests_turn(client->requests);
        error = requests_get_error(client->requests);
        if (error || should_look)
                operations_retry_gets(client, error);
        n_completed = operations_run_ready(client);
        idle_sweep(&client->idle, client->maps);
        loop_update(client);
        if (error) {
                char sentence[ERROR_SENTENCE_BYTES];

                operation_explain(client, error, sentence);
                (void)error_set_sentence(error, sentence);
        }
        client_release_user(client);
        return error ? error : (int)n_completed;
}
