/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See greeting.h. Everything has been answered before anything is put in place; where the connection ends in between, or
 * something cannot be had, nothing has changed, and there will be another greeting.
 *
 * Where the session is the same, so are pin tables, staging memory, ring and timerfds: foliod has them still. A session that could
 * not be had again is a new one of the same store: what was counted and staged is copied. A foliod that knows
 * nothing of the store that there was has other objects under the same numbers: then everything of before is closed.
 */
#include "client/greeting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/lib/reconnect.h"
#include "client/pipe.h"
#include "client/watch.h"
#include "proto/status.h"

/* --- the beacon ------------------------------------------------------------------------------------------------------------------ */

int greeting_light(Client *client, int consume_fd)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        Resume *resume = client->resume;
        size_t n_page = (size_t)sysconf(_SC_PAGESIZE);
        Beacon *beacon;
        struct stat st;
        void *area;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < BEACON_BYTES)
                return -EPROTO;
        if (!resume->beacons) {
                area = mmap(NULL, GREETING_BEACONS * n_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                if (area == MAP_FAILED)
                        return -errno;
                resume->beacons = area;
        }
        beacon = (Beacon *)(void *)(resume->beacons + resume->n_beacons % GREETING_BEACONS * n_page);
        if (mmap(beacon, BEACON_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
                return -errno;
        (void)madvise(beacon, n_page, MADV_DONTDUMP); /* nobody's data, but nothing of foliod's belongs into a core */
        if (beacon->magic != BEACON_MAGIC || beacon->version != BEACON_VERSION)
                return -EPROTO;
        resume->n_beacons++;
        /* Who sees this one sees what was put in place before. */
        atomic_store_explicit(&client->beacon, beacon, memory_order_release);
        return 0;
}

/* --- the end of a greeting ------------------------------------------------------------------------------------------------------- */

static void let_go(Resume *resume)
{
        for (size_t i = 0; i < resume->n_openings; i++) {
                (void)close_fd(resume->openings[i].index_fd);
                (void)close_fd(resume->openings[i].pins_fd);
                (void)close_fd(resume->openings[i].watch_fd);
        }
        free(steal_ptr(&resume->openings));
        resume->n_openings = 0;
        resume->staging_fd = close_fd(resume->staging_fd);
        resume->beacon_fd = close_fd(resume->beacon_fd);
}

/* Where the connection is still there: it is given up, and made again after a while. */
static void fail(Resume *resume)
{
        let_go(resume);
        if (resume->failed != FOLIO_E_DAEMON_GONE)
                reconnect_refuse(resume->client->requests, resume->failed, NULL);
}

static bool is_there(const Opening *opening)
{
        return opening->status == STATUS_OK;
}

/* 0 or a negative errno: it is to be done again. */
static int put_space(Resume *resume, Opening *opening)
{
        Space *space = opening->name->space;
        int r = SPACE_E_LAYOUT;

        if (resume->is_resumed)
                opening->pins_fd = close_fd(opening->pins_fd);
        if (is_there(opening))
                r = space_replace(space, &opening->ns, steal_fd(&opening->index_fd), steal_fd(&opening->pins_fd));
        if (r < 0)
                return r;
        if (r > 0) {
                /* Gone, or laid out in another way: it is opened when it is wanted. */
                space_close(space);
                return 0;
        }
        opening->name->writers = opening->ns.writers;
        if (opening->watch_fd >= 0)
                watches_replace(resume->client, space, opening->watch_fd);
        return 0;
}

static void close_spaces(Client *client)
{
        for (Name *name = atomic_load_explicit(&client->names, memory_order_acquire); name; name = name->next)
                space_close(name->space);
}

/* With the gap held for writing. */
static int put_memory(Resume *resume)
{
        Client *client = resume->client;
        int r = 0;

        if (!resume->is_resumed)
                r = staging_replace(client->staging, steal_fd(&resume->staging_fd), resume->staging_bytes);
        if (resume->is_other_store)
                close_spaces(client);
        for (size_t i = 0; r == 0 && i < resume->n_openings; i++)
                r = put_space(resume, &resume->openings[i]);
        if (r == 0 && resume->beacon_fd >= 0)
                r = greeting_light(client, steal_fd(&resume->beacon_fd));
        if (r < 0)
                return r;
        /* Nobody is looking at an index of before any more, and who has pinned something there has it in the table. */
        staging_arrive(client->staging, resume_beacon(client)->start);
        resume_end(client);
        return r;
}

static void put_in_place(Resume *resume)
{
        Client *client = resume->client;
        int r;

        resume->is_other_store = resume->instance_next != atomic_load(&client->instance);
        (void)pthread_rwlock_wrlock(&resume->gap);
        atomic_fetch_add(&resume->n_replaced, 1);
        r = put_memory(resume);
        atomic_fetch_add(&resume->n_replaced, 1);
        (void)pthread_rwlock_unlock(&resume->gap);
        let_go(resume);
        if (r < 0) {
                resume->failed = error_from_errno(r);
                fail(resume);
                return;
        }
        resume->last_session = resume->session;
        resume->session = resume->session_next;
        resume->token = resume->token_next;
        atomic_store(&client->instance, resume->instance_next);
        atomic_fetch_add(&client->n_leased, 1);
        if (resume->is_resumed)
                pipe_resume(client);
        else
                pipe_lose(client);
        reconnect_finish(client->requests);
}

/* One answer has come, or will not. */
static void count_down(Resume *resume)
{
        if (--resume->n_awaited > 0)
                return;
        if (resume->failed)
                fail(resume);
        else
                put_in_place(resume);
}

/* --- namespaces ------------------------------------------------------------------------------------------------------------------ */

static void on_opened(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Opening *opening = CONTAINER_OF(request, Opening, request);
        Resume *resume = opening->client->resume;

        if (error) {
                resume->failed = resume->failed ? resume->failed : error;
        } else if (reply->status != STATUS_OK) {
                opening->status = reply->status;
        } else if (reply->n_namespaces != 1 || (n_fds != 0 && n_fds != 2)) {
                resume->failed = FOLIO_E_PROTOCOL;
        } else {
                opening->status = STATUS_OK;
                opening->ns = reply->namespaces[0];
                if (n_fds == 2) {
                        opening->index_fd = steal_fd(&fds[0]);
                        opening->pins_fd = steal_fd(&fds[1]);
                }
        }
        count_down(resume);
}

static void on_watched(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Opening *opening = CONTAINER_OF(request, Opening, watching);
        Resume *resume = opening->client->resume;

        if (error)
                resume->failed = resume->failed ? resume->failed : error;
        else if (reply->status == STATUS_OK && n_fds == 1)
                opening->watch_fd = steal_fd(&fds[0]);
        count_down(resume);
}

/* Older entries of the same name are closed. */
static bool is_to_be_opened(const Name *name)
{
        return names_is_open(name->space);
}

static bool is_to_be_watched(const Resume *resume, Name *name)
{
        return !resume->is_resumed && (name->watch_fd >= 0 || watches_want(resume->client, name->space));
}

static bool make_openings(Resume *resume)
{
        Client *client = resume->client;
        Name *names = atomic_load_explicit(&client->names, memory_order_acquire);
        size_t n = 0;

        for (Name *name = names; name; name = name->next)
                n += is_to_be_opened(name);
        resume->openings = n > 0 ? calloc(n, sizeof(*resume->openings)) : NULL;
        if (n > 0 && !resume->openings)
                return false;
        for (Name *name = names; name && resume->n_openings < n; name = name->next)
                if (is_to_be_opened(name))
                        resume->openings[resume->n_openings++] = (Opening){
                                .request.done = on_opened, .watching.done = on_watched, .client = client, .name = name,
                                .index_fd = -1, .pins_fd = -1, .watch_fd = -1,
                        };
        return true;
}

static void open_namespaces(Resume *resume)
{
        Requests *requests = resume->client->requests;
        size_t n = resume->n_openings;

        /* One more, so that it is over only when all have been sent. */
        resume->n_awaited = 1;
        for (size_t i = 0; i < n; i++) {
                Opening *opening = &resume->openings[i];
                ProtoRequest message = { .verb = VERB_NAMESPACE_OPEN, .has_namespace = true };
                ProtoRequest watching = { .verb = VERB_WATCH, .namespace_id = opening->name->space->id };

                memcpy(message.ns.name, opening->name->space->name, sizeof(opening->name->space->name));
                resume->n_awaited++;
                reconnect_send(requests, &opening->request, &message);
                if (!is_to_be_watched(resume, opening->name))
                        continue;
                resume->n_awaited++;
                reconnect_send(requests, &opening->watching, &watching);
        }
        count_down(resume);
}

/* --- hello ------------------------------------------------------------------------------------------------------------------------ */

/* False: not what a welcome is. */
static bool take_welcome(Resume *resume, const ProtoReply *reply, int *fds, size_t n_fds)
{
        size_t n_before = reply->is_resumed ? 0 : 1;

        if (!reply->has_welcome || reply->version != PROTO_VERSION || n_fds < n_before || n_fds > n_before + 1)
                return false;
        /* Of another store nothing can be resumed, and with what was agreed on before it cannot be worked. */
        if (reply->is_resumed && reply->instance != atomic_load(&resume->client->instance))
                return false;
        resume->is_resumed = reply->is_resumed;
        resume->token_next = reply->session_token;
        resume->session_next = reply->session_number;
        resume->instance_next = reply->instance;
        resume->staging_bytes = reply->staging_bytes;
        if (n_before == 1)
                resume->staging_fd = steal_fd(&fds[0]);
        if (n_fds == n_before + 1)
                resume->beacon_fd = steal_fd(&fds[n_before]);
        return true;
}

static void on_hello(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Resume *resume = CONTAINER_OF(request, Resume, hello);
        Requests *requests = resume->client->requests;

        if (error == FOLIO_E_DAEMON_GONE)
                return;
        if (error || reply->status != STATUS_OK) {
                reconnect_refuse(requests, error ? error : status_to_error(reply->status), error ? NULL : reply);
        } else if (!take_welcome(resume, reply, fds, n_fds)) {
                reconnect_refuse(requests, FOLIO_E_PROTOCOL, NULL);
        } else if (resume->instance_next == atomic_load(&resume->client->instance) && !make_openings(resume)) {
                let_go(resume);
                reconnect_refuse(requests, FOLIO_E_NO_MEMORY, NULL);
        } else {
                open_namespaces(resume);
        }
}

ProtoRequest greeting_hello(const Client *client, uint64_t resume)
{
        return (ProtoRequest){
                .verb = VERB_HELLO,
                .version_min = PROTO_VERSION,
                .version_max = PROTO_VERSION,
                .client_name = { client->client_name, strnlen(client->client_name, sizeof(client->client_name)) },
                .is_tool = client->is_tool,
                .resume = resume,
        };
}

void greeting_begin(void *userdata)
{
        Client *client = userdata;
        Resume *resume = client->resume;
        ProtoRequest message = greeting_hello(client, resume->token);

        resume->failed = 0;
        resume->hello.done = on_hello;
        reconnect_send(client->requests, &resume->hello, &message);
}
