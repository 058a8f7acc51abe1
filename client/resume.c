/* SPDX-License-Identifier: Apache-2.0 */
/* See resume.h. What is said to the next foliod is greeting.c's, and what has become of requests fate.c's. */
#include "client/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/fate.h"
#include "client/greeting.h"
#include "client/lib/connection.h"
#include "client/lib/reconnect.h"
#include "client/loop.h"
#include "client/watch.h"

#define RESUME_NUDGE_NS UINT64_C(2000000)
#define RESUME_SLICE_NS UINT64_C(5000000)
#define SERVICE_FOLDER "/run/folio/"

/* For as long as there is none: a foliod of which nobody can tell without asking. */
static const Beacon unknown_beacon = { .magic = BEACON_MAGIC, .version = BEACON_VERSION };

/* And while there is no connection, whatever has become of foliod. */
static const Beacon dark_beacon = { .magic = BEACON_MAGIC, .version = BEACON_VERSION, .owner = BEACON_OWNER_DIED };

int resume_new(Client *client)
{
        Resume *resume = calloc(1, sizeof(*resume));
        pthread_rwlockattr_t attributes;

        if (!resume)
                return -ENOMEM;
        resume->client = client;
        atomic_init(&resume->n_replaced, 2); /* 0 is no count */
        resume->staging_fd = resume->beacon_fd = -1;
        (void)pthread_rwlockattr_init(&attributes);
        /* Readers come one after the other, and would keep the new index out for ever. */
        (void)pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        (void)pthread_rwlock_init(&resume->gap, &attributes);
        (void)pthread_rwlockattr_destroy(&attributes);
        list_init(&client->watches);
        atomic_init(&client->beacon, &unknown_beacon);
        client->resume = resume;
        return 0;
}

void resume_free(Client *client)
{
        Resume *resume = steal_ptr(&client->resume);

        if (!resume)
                return;
        atomic_store(&client->beacon, &unknown_beacon);
        if (resume->beacons)
                (void)munmap(resume->beacons, GREETING_BEACONS * (size_t)sysconf(_SC_PAGESIZE));
        (void)pthread_rwlock_destroy(&resume->gap);
        free(resume);
}

/* --- connecting ------------------------------------------------------------------------------------------------------------------ */

static int connect_again(void *userdata, int *ret_socket)
{
        Client *client = userdata;

        return client_is_closing(client) ? -ECANCELED : connection_try(client->address, ret_socket);
}

/* So that who looks moves the reconnect on, also where foliod has no beacon, or is there still, and has hung up. */
static void on_loss(void *userdata)
{
        atomic_store_explicit(&((Client *)userdata)->beacon, &dark_beacon, memory_order_release);
}

/* Those who wait by shared memory, by a descriptor, or for an object, look again. */
static void on_change(void *userdata, int error)
{
        Client *client = userdata;

        operations_retry_gets(client, error);
        watches_wake(client);
        loop_update(client);
}

void resume_end(Client *client)
{
        if (resume_beacon(client) == &dark_beacon)
                atomic_store_explicit(&client->beacon, &unknown_beacon, memory_order_release);
}

int resume_begin(Client *client, const ProtoReply *welcome, int consume_beacon_fd)
{
        const ReconnectConfig config = {
                .connect = connect_again,
                .mark = fate_mark,
                .lost = on_loss,
                .greet = greeting_begin,
                .judge = fate_judge,
                .changed = on_change,
                .userdata = client,
        };
        Resume *resume = client->resume;
        int r;

        resume->token = welcome->session_token;
        resume->session = welcome->session_number;
        atomic_store(&client->instance, welcome->instance);
        if (consume_beacon_fd >= 0) {
                r = greeting_light(client, consume_beacon_fd);
                if (r < 0)
                        return error_set(error_from_errno(r), "the page that tells of foliod's end cannot be mapped: %s", strerror(-r));
                staging_arrive(client->staging, resume_beacon(client)->start);
        }
        reconnect_enable(client->requests, &config);
        return 0;
}

/* --- moving it on ---------------------------------------------------------------------------------------------------------------- */

static void nudge(Client *client)
{
        Resume *resume = client->resume;
        uint64_t now_ns = connection_now_ns(), last_ns = atomic_load_explicit(&resume->nudged_ns, memory_order_relaxed);

        /* One of many threads, and not for every look-up. */
        if (now_ns - last_ns < RESUME_NUDGE_NS ||
            !atomic_compare_exchange_strong(&resume->nudged_ns, &last_ns, now_ns))
                return;
        requests_turn(client->requests);
        loop_update(client);
}

void resume_enter(Client *client)
{
        nudge(client);
        (void)pthread_rwlock_rdlock(&client->resume->gap);
}

void resume_leave(Client *client)
{
        (void)pthread_rwlock_unlock(&client->resume->gap);
}

unsigned resume_count(const Client *client)
{
        return atomic_load_explicit(&client->resume->n_replaced, memory_order_acquire);
}

uint64_t resume_slice_ns(const Client *client, uint64_t usual_ns)
{
        return resume_is_lit(resume_beacon(client)) ? usual_ns : MIN(usual_ns, RESUME_SLICE_NS);
}

int resume_check(Client *client)
{
        int error;

        if (requests_is_alive(client->requests))
                return 0;
        requests_turn(client->requests);
        error = requests_get_error(client->requests);
        if (error)
                return error;
        return reconnect_is_up(client->requests) ? 0 : RESUME_GAP;
}

typedef struct Knock {
        Request request;
        Client *client;
        int error;
        bool is_done;
} Knock;

static void on_knocked(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Knock *knock = CONTAINER_OF(request, Knock, request);
        Requests *requests = knock->client->requests;

        requests_lock(requests);
        knock->error = error;
        knock->is_done = true;
        requests_wake(requests);
        requests_unlock(requests);
}

static bool is_knocked(void *userdata)
{
        return ((Knock *)userdata)->is_done;
}

int resume_wait(Client *client)
{
        Knock knock = { .request.done = on_knocked, .client = client };
        ProtoRequest message = { .verb = VERB_PING };

        requests_send(client->requests, &knock.request, &message);
        requests_wait(client->requests, is_knocked, &knock);
        return knock.error;
}

/* --- saying so ------------------------------------------------------------------------------------------------------------------- */

void resume_explain(const Client *client, char *sentence)
{
        int refused = reconnect_get_refusal(client->requests);
        bool is_service = strncmp(client->address, SERVICE_FOLDER, strlen(SERVICE_FOLDER)) == 0;
        const char *hint = is_service ? "is foliod.service running? journalctl -u foliod" : "start it there again";

        if (!client->address[0]) {
                error_format(sentence, "the client has no connection: its open has failed");
                return;
        }
        switch (-refused) {
        case 0:
                error_format(sentence, "the connection to foliod at %s has ended", client->address);
                return;
        case ECONNREFUSED:
                error_format(sentence, "foliod at %s ended and none has answered for 500 ms; %s", client->address, hint);
                return;
        case ENOENT:
        case ENOTDIR:
                error_format(sentence, "foliod ended, its socket vanished (%s), and none has come back within 500 ms; %s",
                             client->address, hint);
                return;
        }
        error_format(sentence, "foliod at %s ended and could not be connected to again within 500 ms: %s", client->address,
                     strerror(-refused));
}
