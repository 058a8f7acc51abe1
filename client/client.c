/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's life: have a foliod found, say hello, and at the end hang up and complete whatever is under way. Also
 * the calls by which an event loop drives it.
 *
 * All clients of the process are in a list, for fork(): a child's copy of a socket would keep the connection of a
 * parent that has died alive, so the child closes it at once. It touches nothing else of an inherited client.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/context.h"
#include "client/greeting.h"
#include "client/lib/connection.h"
#include "client/lib/crew.h"
#include "client/loop.h"
#include "client/object.h"
#include "client/leases.h"
#include "client/operation.h"
#include "client/pipe.h"
#include "client/resume.h"
#include "client/search.h"

#define OPEN_FLAGS (FOLIO_OPEN_SPAWN | FOLIO_OPEN_DUMPABLE | FOLIO_OPEN_VISIBLE | FOLIO_OPEN_TOOL)

enum {
        CLIENT_TIMEOUT_MS_DEFAULT = 30000,
        CLIENT_MAPPINGS_MAX_DEFAULT = 1024,
        CLIENT_COPY_THREADS_MAX = 16,
};

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
        leases_free_all(client);
        pipe_free(client);
        names_free(client);
        staging_free(client->staging);
        maps_free(client->maps);
        client->crew = crew_free(client->crew);
        requests_free(client->requests);
        resume_free(client);
        (void)pthread_mutex_destroy(&client->loop_lock);
        free(client);
}

/* Hangs up. What handles need stays until the last of them goes. */
static void client_close(Client *client)
{
        clients_remove(client);
        operations_cancel(client);
        objects_close(client);
        if (client->staging)
                staging_end(client->staging);
        loop_deinit(client);
        client_release_user(client);
}

static uint64_t default_mapping_bytes(void)
{
        long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

        return n_pages > 0 && page_bytes > 0 ? (uint64_t)n_pages * (uint64_t)page_bytes / 4 : GIB;
}

/* 0 or a negative errno. */
static int client_new(const struct folio_open_options *options, uint64_t timeout_ns, Client **ret)
{
        uint64_t mapping_bytes_max = options->mapping_bytes_max ? options->mapping_bytes_max : default_mapping_bytes();
        uint32_t mappings_max = options->mappings_max ? options->mappings_max : CLIENT_MAPPINGS_MAX_DEFAULT;
        Client *client = calloc(1, sizeof(*client));
        int r;

        if (!client)
                return -ENOMEM;
        atomic_init(&client->n_references, 1);
        atomic_init(&client->n_users, 1);
        client->timeout_ns = timeout_ns;
        list_init(&client->siblings);
        list_init(&client->connecting);
        list_init(&client->opening_waiters);
        list_init(&client->ready);
        list_init(&client->staging_waiters);
        list_init(&client->gets);
        client->gets_deadline_ns = UINT64_MAX;
        (void)pthread_mutex_init(&client->loop_lock, NULL);
        atomic_init(&client->epoll_fd, -1);
        client->timer_fd = -1;
        r = forked_take_mark(&client->fork_mark);
        if (r == 0)
                r = requests_new(-1, timeout_ns, &client->requests);
        if (r == 0)
                r = maps_new(mapping_bytes_max, mappings_max, &client->maps);
        if (r == 0 && options->flags & FOLIO_OPEN_DUMPABLE)
                maps_allow_dumps(client->maps);
        if (r == 0)
                r = pipe_new(client);
        if (r == 0)
                r = resume_new(client);
        client->is_visible = options->flags & FOLIO_OPEN_VISIBLE;
        client->is_tool = options->flags & FOLIO_OPEN_TOOL;
        memcpy(client->client_name, options->client_name, strnlen(options->client_name, sizeof(client->client_name)));
        if (r == 0 && options->copy_threads > 0)
                r = crew_new(options->copy_threads, &client->crew);
        if (r == 0)
                r = clients_add(client);
        if (r < 0) {
                pipe_free(client);
                maps_free(client->maps);
                requests_free(client->requests);
                resume_free(client);
                client->crew = crew_free(client->crew);
                (void)pthread_mutex_destroy(&client->loop_lock);
                free(client);
                return r;
        }
        *ret = client;
        return 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------------------------ */

/* The first operation of a client: finds a foliod, connects, says hello. What else is called waits until it is done. */
typedef struct OpenOp {
        Op op;
        SearchPlan plan;
        uint64_t timeout_ns;
        unsigned n_tries;
} OpenOp;

/* What hangs up on so many hellos is no foliod that is being restarted. */
enum { OPEN_TRIES_MAX = 16 };

static void open_begin(Op *op);

static void take_welcome(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Client *client = op->client;
        int r;

        if (!reply->has_welcome || n_fds < 1 || n_fds > 2 || reply->is_resumed || reply->version != PROTO_VERSION) {
                op_fail_connection(op, FOLIO_E_PROTOCOL);
                return;
        }
        client->packed_bytes_max = reply->packed_bytes_max;
        client->staging_bytes = reply->staging_bytes;
        r = staging_new(steal_fd(&fds[0]), reply->staging_bytes, &client->staging);
        if (r < 0)
                op_fail(op, error_from_errno(r), "the staging memory (%llu bytes) cannot be mapped: %s",
                        (unsigned long long)reply->staging_bytes, strerror(-r));
        else
                op_fail_as_thread(op, resume_begin(client, reply, n_fds == 2 ? steal_fd(&fds[1]) : -1));
}

/* A foliod that ends between connect and welcome has a next one, as for who is connected already. */
static bool open_can_try_again(const OpenOp *open)
{
        const Op *op = &open->op;

        return op->error == FOLIO_E_DAEMON_GONE && open->n_tries < OPEN_TRIES_MAX && !client_is_closing(op->client) &&
               requests_get_error(op->client->requests) == 0 && connection_now_ns() < open->plan.deadline_ns;
}

static void open_end(Op *op)
{
        Client *client = op->client;
        int error = op->error;

        /* The callback of the opening is the first to be called. */
        op_complete(op);
        if (error)
                requests_fail(client->requests, FOLIO_E_DAEMON_GONE);
        operations_opened(client, error ? FOLIO_E_DAEMON_GONE : 0);
}

static void open_answered(Op *op)
{
        if (!open_can_try_again(CONTAINER_OF(op, OpenOp, op))) {
                open_end(op);
                return;
        }
        op->error = 0;
        op->sentence[0] = '\0';
        open_begin(op);
}

static void open_connect(OpenOp *open, int consume_socket)
{
        Op *op = &open->op;
        Client *client = op->client;
        uint64_t now_ns = connection_now_ns(), deadline_ns = open->plan.deadline_ns, timeout_ns = open->timeout_ns;
        ProtoRequest message = greeting_hello(client, 0);

        open->n_tries++;
        requests_connect(client->requests, consume_socket);
        /* What is left of the time for the whole; then the usual. */
        if (deadline_ns != UINT64_MAX)
                requests_set_timeout(client->requests, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
        op_send(op, &message, take_welcome, open_answered);
        requests_set_timeout(client->requests, timeout_ns);
}

static void open_found(Op *op)
{
        OpenOp *open = CONTAINER_OF(op, OpenOp, op);
        Client *client = op->client;
        _cleanup_(cleanup_found) Found *found = client->found;

        client->found = NULL;
        if (client_is_closing(client))
                op_fail_connection(op, FOLIO_E_CANCELLED);
        else if (found && found->error)
                op_fail(op, found->error, "%s", found->sentence);
        if (op->error) {
                open_end(op);
                return;
        }
        memcpy(client->address, found->address.path, sizeof(client->address));
        open_connect(open, steal_fd(&found->socket));
}

static void open_begin(Op *op)
{
        OpenOp *open = CONTAINER_OF(op, OpenOp, op);
        Client *client = op->client;
        Found *found = found_new();
        int r;

        if (!found) {
                op_fail_connection(op, FOLIO_E_NO_MEMORY);
                open_end(op);
                return;
        }
        client->found = found;
        if (op->is_waited)
                search_wait(&open->plan, found);
        if (op->is_waited || search_now(&open->plan, found)) {
                open_found(op);
                return;
        }
        /* There is no way to wait for a daemon that starts, or for room in a backlog, but to wait. */
        client->found = NULL;
        op->step = open_found;
        requests_lock(client->requests);
        list_push_back(&client->connecting, &op->link);
        requests_unlock(client->requests);
        r = search_start(client, &open->plan, found);
        if (r == 0)
                return;
        requests_lock(client->requests);
        list_unlink(&op->link);
        requests_unlock(client->requests);
        op_fail(op, error_from_errno(r), "no thread to search for a foliod: %s", strerror(-r));
        open_end(op);
}

/* --- public -------------------------------------------------------------------------------------------------------------------------- */

static int read_options(const struct folio_open_options *given, struct folio_open_options *ret, uint64_t *ret_timeout_ns)
{
        *ret = (struct folio_open_options){ 0 };
        if (given && given->struct_bytes == 0)
                return error_set(FOLIO_E_INVALID, "folio_open_options.struct_bytes is not set");
        if (given)
                memcpy(ret, given, MIN(given->struct_bytes, sizeof(*ret)));
        if (ret->flags & ~OPEN_FLAGS)
                return error_set(FOLIO_E_INVALID, "unknown flags 0x%x for an open", ret->flags & ~OPEN_FLAGS);
        if (ret->timeout_ms < FOLIO_TIMEOUT_FOREVER)
                return error_set(FOLIO_E_INVALID, "a timeout of %d ms", ret->timeout_ms);
        if (ret->copy_threads > CLIENT_COPY_THREADS_MAX)
                return error_set(FOLIO_E_INVALID, "%u helper threads for copies: %d are the most", ret->copy_threads,
                                 CLIENT_COPY_THREADS_MAX);
        if (!ret->client_name)
                ret->client_name = program_invocation_short_name;
        if (ret->timeout_ms == 0)
                ret->timeout_ms = CLIENT_TIMEOUT_MS_DEFAULT;
        *ret_timeout_ns = ret->timeout_ms < 0 ? UINT64_MAX : (uint64_t)ret->timeout_ms * 1000000;
        return 0;
}

/* A client that has everything but a connection, and how to get one. 0 or an error. */
static int open_init(OpenOp *open, const struct folio_open_options *given, struct folio_client **ret, Client **ret_client)
{
        struct folio_open_options options;
        uint64_t timeout_ns = 0, now_ns = connection_now_ns();
        Client *client;
        int r;

        memset(open, 0, sizeof(*open));
        r = read_options(given, &options, &timeout_ns);
        if (r == 0 && !ret)
                r = error_set(FOLIO_E_INVALID, "there is no place for the client");
        if (r == 0)
                r = search_plan(options.address, options.flags & FOLIO_OPEN_SPAWN,
                                timeout_ns == UINT64_MAX ? UINT64_MAX : now_ns + timeout_ns, &open->plan);
        if (r < 0)
                return r;
        r = client_new(&options, timeout_ns, &client);
        if (r < 0)
                return error_set(error_from_errno(r), "opening a client failed: %s", strerror(-r));
        op_init(&open->op, client);
        open->timeout_ns = timeout_ns;
        *ret_client = client;
        return 0;
}

_public_ int folio_client_open(const struct folio_open_options *given, struct folio_client **ret)
{
        Client *client;
        OpenOp open;
        int r = open_init(&open, given, ret, &client);

        if (r < 0)
                return r;
        /* Not op_run(): that waits until the client is open. */
        open_begin(&open.op);
        r = op_wait(&open.op);
        op_deinit(&open.op);
        if (r < 0) {
                client_close(client);
                return r;
        }
        *ret = client;
        return 0;
}

static void open_op_free(Op *op)
{
        op_deinit(op);
        free(CONTAINER_OF(op, OpenOp, op));
}

_public_ int folio_client_open_async(const struct folio_open_options *given, struct folio_client **ret, folio_done_fn done,
                                     void *userdata)
{
        OpenOp *open;
        Client *client;
        int r = done ? 0 : error_set(FOLIO_E_INVALID, "there is no callback");

        if (r < 0)
                return r;
        open = malloc(sizeof(*open));
        if (!open)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for the request");
        r = open_init(open, given, ret, &client);
        if (r < 0) {
                free(open);
                return r;
        }
        op_set_async(&open->op, done, userdata, open_op_free);
        atomic_store(&client->is_opening, true);
        *ret = client;
        client_add_user(client);
        open_begin(&open->op);
        (void)operations_run_ready(client);
        loop_update(client);
        client_release_user(client);
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
        idle_sweep(client->maps);
        loop_update(client);
        if (error) {
                char sentence[ERROR_SENTENCE_BYTES];

                operation_explain(client, error, sentence);
                (void)error_set_sentence(error, sentence);
        }
        client_release_user(client);
        return error ? error : (int)n_completed;
}
