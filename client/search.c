/* SPDX-License-Identifier: Apache-2.0 */
/* See search.h. The thread has a use of the client, so that there is a place to look whether anybody wants what it finds. */
#include "client/search.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/connection.h"
#include "client/loop.h"
#include "client/operation.h"

enum { SEARCH_PAUSE_MS = 5 };

typedef struct Search {
        SpawnAddress address;        /* of the one that answered */
        uint64_t deadline_ns;
        int refused;                 /* the first errno that is more than "nobody is there"; 0 */
        char refused_path[SPAWN_ADDRESS_BYTES_MAX];
} Search;

Found *found_new(void)
{
        Found *found = calloc(1, sizeof(*found));

        if (found)
                found->socket = -1;
        return found;
}

void found_free(Found *found)
{
        if (!found)
                return;
        (void)close_fd(found->socket);
        free(found);
}

int search_plan(const char *address, bool may_spawn, uint64_t deadline_ns, SearchPlan *ret)
{
        *ret = (SearchPlan){ .deadline_ns = deadline_ns };
        ret->is_given = !spawn_is_wanted(address);
        ret->may_spawn = may_spawn && !ret->is_given;
        ret->n_addresses = spawn_candidate_addresses(address, ret->addresses);
        if (ret->n_addresses == 0)
                return error_set(FOLIO_E_INVALID, "an address of 1 to %d bytes is wanted", SPAWN_ADDRESS_BYTES_MAX - 1);
        return 0;
}

/* --- looking ---------------------------------------------------------------------------------------------------------------------------- */

static bool is_nobody(int r)
{
        return r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR;
}

static int try_address(Search *search, const SpawnAddress *address, bool may_wait, int *ret_socket)
{
        int r = may_wait ? connection_open(address->path, search->deadline_ns, ret_socket) :
                           connection_try(address->path, ret_socket);

        if (r == 0)
                search->address = *address;
        else if (!is_nobody(r) && search->refused == 0) {
                search->refused = r;
                memcpy(search->refused_path, address->path, sizeof(search->refused_path));
        }
        return r;
}

static int explain_spawn(int r, uint64_t begun_ns)
{
        char what[256];

        switch (r) {
        case SPAWN_E_NOT_FOUND:
                spawn_describe_program(what, sizeof(what));
                return error_set(FOLIO_E_DAEMON_GONE, "no foliod is running, and none can be started: %s", what);
        case SPAWN_E_FAILED:
                return error_set(FOLIO_E_DAEMON_GONE, "no foliod is running, and the one started ended before it was ready; "
                                                      "run `foliod --user` to see why");
        case SPAWN_E_TIMEOUT:
                return error_set(FOLIO_E_TIMEOUT, "a foliod was started, but is not ready after %llu ms",
                                 (unsigned long long)((connection_now_ns() - begun_ns) / 1000000));
        }
        return error_set(error_from_errno(r), "starting a foliod failed: %s", strerror(-r));
}

/* 0 or an error. */
static int start_and_connect(Search *search, int *ret_socket)
{
        uint64_t begun_ns = connection_now_ns();
        SpawnAddress address;
        char wrong[256];

        spawn_describe_directory(wrong, sizeof(wrong));
        if (*wrong || !spawn_find_user_address(&address))
                return error_set(FOLIO_E_ACCESS, "no foliod is running, and none can be started for this user: %s", wrong);
        for (;;) {
                struct timespec pause = { .tv_nsec = SEARCH_PAUSE_MS * 1000000L };
                int r = spawn_daemon(search->deadline_ns);

                if (r != 0 && r != SPAWN_E_LOST)
                        return explain_spawn(r, begun_ns);
                r = try_address(search, &address, true, ret_socket);
                if (r == 0)
                        return 0;
                if (!is_nobody(r))
                        return error_set(r == -EACCES ? FOLIO_E_ACCESS : FOLIO_E_DAEMON_GONE, "connecting to %s: %s",
                                         address.path, strerror(-r));
                if (connection_now_ns() >= search->deadline_ns)
                        return explain_spawn(SPAWN_E_TIMEOUT, begun_ns);
                /* The one that was faster is not listening yet, or has just ended: neither can be waited for. */
                (void)nanosleep(&pause, NULL);
        }
}

static int explain_search(const Search *search, const SearchPlan *plan)
{
        char places[400];

        switch (-search->refused) {
        case 0:
                /* Also those that were passed over: they are where a user looks for it. */
                spawn_describe_addresses(plan->is_given ? plan->addresses[0].path : NULL, places, sizeof(places));
                return error_set(FOLIO_E_DAEMON_GONE, "no foliod listens at %s; start foliod%s", places,
                                 plan->is_given ? " there, or name another socket" :
                                                  ", or name its socket in FOLIO_SOCKET, or open with FOLIO_OPEN_SPAWN");
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

/* 0, an error with the thread's sentence, or 1: that takes waiting. */
static int search_through(const SearchPlan *plan, bool may_wait, Search *search, int *ret_socket)
{
        for (size_t i = 0; i < plan->n_addresses; i++) {
                int r = try_address(search, &plan->addresses[i], may_wait, ret_socket);

                if (r == 0)
                        return 0;
                if (r == -EAGAIN && !may_wait)
                        return 1;
        }
        if (!plan->may_spawn || search->refused)
                return explain_search(search, plan);
        return may_wait ? start_and_connect(search, ret_socket) : 1;
}

/* False: that takes waiting. */
static bool find(const SearchPlan *plan, bool may_wait, Found *found)
{
        Search search = { .deadline_ns = plan->deadline_ns };
        int r = search_through(plan, may_wait, &search, &found->socket);

        if (r > 0)
                return false;
        found->address = search.address;
        found->error = r;
        if (r < 0)
                error_format(found->sentence, "%s", error_get_sentence());
        return true;
}

void search_wait(const SearchPlan *plan, Found *found)
{
        (void)find(plan, true, found);
}

bool search_now(const SearchPlan *plan, Found *found)
{
        return find(plan, false, found);
}

/* --- in a thread ------------------------------------------------------------------------------------------------------------------------ */

typedef struct Searcher {
        Client *client;              /* a user of it */
        SearchPlan plan;
        Found *found;
} Searcher;

static void *run(void *userdata)
{
        Searcher *searcher = userdata;
        Client *client = searcher->client;

        search_wait(&searcher->plan, searcher->found);
        if (operations_found(client, searcher->found))
                loop_update(client);
        else
                found_free(searcher->found);
        client_release_user(client);
        free(searcher);
        return NULL;
}

int search_start(Client *client, const SearchPlan *plan, Found *consume_found)
{
        Searcher *searcher = malloc(sizeof(*searcher));
        pthread_attr_t attributes;
        sigset_t all, before;
        pthread_t thread;
        int r = searcher ? pthread_attr_init(&attributes) : ENOMEM;

        if (r == 0) {
                *searcher = (Searcher){ client, *plan, consume_found };
                client_add_user(client);
                /* The program's signals are for its own threads. */
                sigfillset(&all);
                (void)pthread_sigmask(SIG_SETMASK, &all, &before);
                (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
                r = pthread_create(&thread, &attributes, run, searcher);
                (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
                (void)pthread_attr_destroy(&attributes);
                if (r != 0)
                        client_release_user(client);
        }
        if (r != 0) {
                free(searcher);
                found_free(consume_found);
        }
        return -r;
}
