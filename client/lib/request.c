/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of requests under way, the reader's part, and the wait.
 *
 * Requests stand in a table by id, and in a list by age; as all have the same timeout, the oldest is the first whose time passes.
 * Whoever has the reader's part (is_reading) owns the decoder, the packet and the receiving side of the socket;
 * everything else is under the lock. An eventfd wakes the reader out of its poll where another thread's packet had to be queued.
 */
#include "client/lib/request.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "client/lib/connection.h"
#include "folio/types.h"
#include "proto/channel.h"
#include "proto/status.h"

enum {
        REQUEST_BUCKETS = 256,
        PACKETS_PER_TURN_MAX = 64,   /* of requests_turn(), so that an event loop gets on */
};

struct Requests {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        Connection connection;
        int wake_fd;
        bool is_reading;
        pthread_t reader;            /* where is_reading */
        int error;                   /* not 0: the connection is of no use */
        unsigned n_sleeping;         /* in the condition variable */
        uint64_t timeout_ns;
        atomic_uint_fast64_t last_id;
        List by_age;
        List buckets[REQUEST_BUCKETS];
        /* The reader's. */
        ProtoDecoder *decoder;
        int fds[PROTO_FDS_MAX];
        uint8_t packet[PROTO_MESSAGE_BYTES_MAX];
};

DEFINE_CLEANUP(ProtoDecoder *, cleanup_decoder, proto_decoder_free)

int requests_new(int consume_socket, uint64_t timeout_ns, Requests **ret)
{
        _cleanup_(cleanup_fd) int socket = consume_socket, wake = -1;
        _cleanup_(cleanup_decoder) ProtoDecoder *decoder = NULL;
        _cleanup_(cleanup_free) Requests *requests = calloc(1, sizeof(*requests));
        int r;

        if (!requests)
                return -ENOMEM;
        r = proto_decoder_new(&decoder);
        if (r < 0)
                return r;
        wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (wake < 0)
                return -errno;
        r = pthread_mutex_init(&requests->lock, NULL);
        if (r != 0)
                return -r;
        r = pthread_cond_init(&requests->changed, NULL);
        if (r != 0) {
                (void)pthread_mutex_destroy(&requests->lock);
                return -r;
        }
        requests->timeout_ns = timeout_ns;
        list_init(&requests->by_age);
        for (size_t i = 0; i < REQUEST_BUCKETS; i++)
                list_init(&requests->buckets[i]);
        requests->decoder = steal_ptr(&decoder);
        requests->wake_fd = steal_fd(&wake);
        connection_init(&requests->connection, steal_fd(&socket));
        *ret = steal_ptr(&requests);
        return 0;
}

void requests_connect(Requests *requests, int consume_socket)
{
        requests_lock(requests);
        assert(requests->connection.socket < 0);
        if (requests->error)
                (void)close_fd(consume_socket);
        else
                requests->connection.socket = consume_socket;
        /* Who reads is asleep without it. */
        requests_wake(requests);
        requests_unlock(requests);
}

void requests_free(Requests *requests)
{
        if (!requests)
                return;
        assert(list_is_empty(&requests->by_age));
        assert(requests->n_sleeping == 0);
        connection_deinit(&requests->connection);
        requests->wake_fd = close_fd(requests->wake_fd);
        proto_decoder_free(requests->decoder);
        (void)pthread_cond_destroy(&requests->changed);
        (void)pthread_mutex_destroy(&requests->lock);
        free(requests);
}

void requests_abandon(Requests *requests)
{
        requests->connection.socket = close_fd(requests->connection.socket);
}

void requests_lock(Requests *requests)
{
        int r = pthread_mutex_lock(&requests->lock);

        assert(r == 0);
        (void)r;
}

void requests_unlock(Requests *requests)
{
        int r = pthread_mutex_unlock(&requests->lock);

        assert(r == 0);
        (void)r;
}

void requests_wake(Requests *requests)
{
        if (requests->n_sleeping > 0)
                (void)pthread_cond_broadcast(&requests->changed);
        /* The one that reads sleeps in poll(), unless that is us. A full counter is as good as one more. */
        if (requests->is_reading && !pthread_equal(requests->reader, pthread_self())) {
                uint64_t one = 1;

                (void)!write(requests->wake_fd, &one, sizeof(one));
        }
}

/* --- the table: with the lock ------------------------------------------------------------------------------------------ */

static void table_insert(Requests *requests, Request *request)
{
        list_push_back(&requests->buckets[request->id % REQUEST_BUCKETS], &request->link);
        list_push_back(&requests->by_age, &request->age_link);
}

static void table_remove(Request *request)
{
        list_unlink(&request->link);
        list_unlink(&request->age_link);
}

static Request *table_take(Requests *requests, uint64_t id)
{
        List *bucket = &requests->buckets[id % REQUEST_BUCKETS];

        LIST_FOREACH(link, bucket) {
                Request *request = LIST_ENTRY(link, Request, link);

                if (request->id == id) {
                        table_remove(request);
                        return request;
                }
        }
        return NULL;
}

/* --- ending requests ---------------------------------------------------------------------------------------------------- */

/* With @refusal, which is about the connection, as the reply to each where there is one. */
static void end_all(Requests *requests, int error, const ProtoReply *refusal)
{
        requests_lock(requests);
        if (requests->error == 0)
                requests->error = error;
        for (;;) {
                List *link = list_peek_front(&requests->by_age);
                Request *request = link ? LIST_ENTRY(link, Request, age_link) : NULL;

                if (!request)
                        break;
                table_remove(request);
                requests_unlock(requests);
                request->done(request, refusal ? 0 : error, refusal, NULL, 0);
                requests_lock(requests);
        }
        requests_unlock(requests);
}

static void end_overdue(Requests *requests)
{
        uint64_t now_ns;

        /* Without a timeout nobody needs the clock. What requests_expect() put there has no deadline, but may stand before others. */
        if (requests->timeout_ns == UINT64_MAX)
                return;
        now_ns = connection_now_ns();
        requests_lock(requests);
        for (bool found = true; found;) {
                found = false;
                LIST_FOREACH(link, &requests->by_age) {
                        Request *request = LIST_ENTRY(link, Request, age_link);

                        if (request->deadline_ns == UINT64_MAX)
                                continue;
                        if (request->deadline_ns > now_ns)
                                break;
                        table_remove(request);
                        requests_unlock(requests);
                        request->done(request, FOLIO_E_TIMEOUT, NULL, NULL, 0);
                        requests_lock(requests);
                        found = true;
                        break;
                }
        }
        requests_unlock(requests);
}

void requests_fail(Requests *requests, int error)
{
        end_all(requests, error, NULL);
}

void requests_close(Requests *requests, int error)
{
        end_all(requests, error, NULL);
        requests_lock(requests);
        requests->error = FOLIO_E_DAEMON_GONE;
        connection_deinit(&requests->connection);
        requests_unlock(requests);
}

void requests_set_timeout(Requests *requests, uint64_t timeout_ns)
{
        requests_lock(requests);
        requests->timeout_ns = timeout_ns;
        requests_unlock(requests);
}

int requests_get_error(Requests *requests)
{
        int error;

        requests_lock(requests);
        error = requests->error;
        requests_unlock(requests);
        return error;
}

/* --- sending ------------------------------------------------------------------------------------------------------------ */

/* With the lock. */
static int send_bytes(Requests *requests, const void *bytes, size_t n_bytes, bool is_hint)
{
        bool had_queued = connection_has_queued(&requests->connection);
        int r = connection_send(&requests->connection, bytes, n_bytes, is_hint);

        if (!had_queued && connection_has_queued(&requests->connection))
                requests_wake(requests);
        return r;
}

void requests_send(Requests *requests, Request *request, ProtoRequest *message)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;
        int error = 0, r;

        /* Ids are never used again: 2^64 of them last. 0 means "do not answer". */
        request->id = message->id = atomic_fetch_add(&requests->last_id, 1) + 1;
        if (!proto_encode_request(message, bytes, &n_bytes)) {
                request->done(request, FOLIO_E_PROTOCOL, NULL, NULL, 0);
                return;
        }
        requests_lock(requests);
        error = requests->error;
        if (error == 0) {
                request->deadline_ns = requests->timeout_ns == UINT64_MAX ? UINT64_MAX :
                                                                            connection_now_ns() + requests->timeout_ns;
                table_insert(requests, request);
                r = send_bytes(requests, bytes, n_bytes, false);
                /* That the other side has hung up is the reader's to find, behind what it said before. */
                if (r != 0 && r != CONNECTION_E_GONE) {
                        error = r == -ENOMEM ? FOLIO_E_NO_MEMORY : FOLIO_E_DAEMON_GONE;
                        table_remove(request);
                }
        }
        requests_unlock(requests);
        if (error)
                request->done(request, error, NULL, NULL, 0);
}

void requests_tell(Requests *requests, ProtoRequest *message, bool is_hint)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        message->id = 0;
        if (!proto_encode_request(message, bytes, &n_bytes))
                return;
        requests_lock(requests);
        /* Nobody waits for the outcome: a daemon that is gone has forgotten what this would have been about. */
        if (requests->error == 0)
                (void)send_bytes(requests, bytes, n_bytes, is_hint);
        requests_unlock(requests);
}

uint64_t requests_last_id(Requests *requests)
{
        return atomic_load(&requests->last_id);
}

void requests_expect(Requests *requests, uint64_t id, Request *request)
{
        int error;

        request->id = id;
        request->deadline_ns = UINT64_MAX;
        requests_lock(requests);
        error = requests->error;
        if (error == 0)
                table_insert(requests, request);
        requests_unlock(requests);
        if (error)
                request->done(request, error, NULL, NULL, 0);
}

/* --- receiving: in the reader's part, without the lock --------------------------------------------------------------------- */

static void close_left(int *fds, size_t n_fds)
{
        for (size_t i = 0; i < n_fds; i++)
                fds[i] = close_fd(fds[i]);
}

/* One packet. False: nothing (more) to be read now. */
static bool receive_one(Requests *requests)
{
        size_t n_bytes = 0, n_fds = 0, n_uninvited = 0;
        Request *request;
        ProtoReply reply;
        int r;

        if (requests->error || requests->connection.socket < 0)
                return false;
        r = channel_receive(requests->connection.socket, requests->packet, sizeof(requests->packet), &n_bytes,
                            requests->fds, PROTO_FDS_MAX, &n_fds, &n_uninvited);
        if (r == CHANNEL_E_AGAIN || r == -EINTR)
                return false;
        if (r != CHANNEL_OK && r != CHANNEL_E_FDS_LOST) {
                end_all(requests, r == CHANNEL_E_TRUNCATED ? FOLIO_E_PROTOCOL : FOLIO_E_DAEMON_GONE, NULL);
                return false;
        }
        if (!proto_decode_reply(requests->decoder, requests->packet, n_bytes, &reply)) {
                close_left(requests->fds, n_fds);
                end_all(requests, FOLIO_E_PROTOCOL, NULL);
                return false;
        }
        if (reply.id == 0 && reply.status != STATUS_OK) {
                close_left(requests->fds, n_fds);
                end_all(requests, FOLIO_E_DAEMON_GONE, &reply);
                return false;
        }
        requests_lock(requests);
        request = table_take(requests, reply.id);
        requests_unlock(requests);
        /* One that nobody waits for any more is late, and its descriptors are closed below. */
        if (request && r == CHANNEL_E_FDS_LOST)
                request->done(request, FOLIO_E_LIMIT, &reply, NULL, 0);
        else if (request)
                request->done(request, 0, &reply, requests->fds, n_fds);
        close_left(requests->fds, n_fds);
        return true;
}

static void flush(Requests *requests)
{
        int r;

        requests_lock(requests);
        r = connection_has_queued(&requests->connection) ? connection_flush(&requests->connection) : 0;
        requests_unlock(requests);
        /* What the other side has sent before it hung up is read first: receive_one() finds the end. */
        if (r != 0 && r != CONNECTION_E_GONE)
                end_all(requests, FOLIO_E_DAEMON_GONE, NULL);
}

static int milliseconds_until(uint64_t deadline_ns)
{
        uint64_t now_ns, left_ms;

        if (deadline_ns == UINT64_MAX)
                return -1;
        now_ns = connection_now_ns();
        if (deadline_ns <= now_ns)
                return 0;
        left_ms = (deadline_ns - now_ns + 999999) / 1000000;
        return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* Sleeps until there is something to read, to send, to end, or to look at. */
static void sleep_in_poll(Requests *requests)
{
        struct pollfd fds[2] = {
                { .fd = requests->connection.socket, .events = POLLIN },
                { .fd = requests->wake_fd, .events = POLLIN },
        };

        if (requests_wants_room(requests))
                fds[0].events |= POLLOUT;
        /* A signal only makes the round come earlier. */
        if (poll(fds, 2, milliseconds_until(requests_next_deadline_ns(requests))) > 0 && fds[1].revents) {
                uint64_t count;

                (void)!read(requests->wake_fd, &count, sizeof(count));
        }
}

void requests_turn(Requests *requests)
{
        bool is_mine;

        requests_lock(requests);
        is_mine = !requests->is_reading;
        if (is_mine) {
                requests->is_reading = true;
                requests->reader = pthread_self();
        }
        requests_unlock(requests);
        if (!is_mine)
                return;
        flush(requests);
        for (unsigned i = 0; i < PACKETS_PER_TURN_MAX && receive_one(requests); i++)
                ;
        end_overdue(requests);
        requests_lock(requests);
        requests->is_reading = false;
        requests_wake(requests);
        requests_unlock(requests);
}

/* With the lock, which it gives up meanwhile. */
static void read_until(Requests *requests, bool (*is_enough)(void *userdata), void *userdata)
{
        requests->is_reading = true;
        requests->reader = pthread_self();
        while (!is_enough(userdata)) {
                bool more;

                requests_unlock(requests);
                sleep_in_poll(requests);
                flush(requests);
                do {
                        more = receive_one(requests);
                        requests_lock(requests);
                        more = more && !is_enough(userdata);
                        requests_unlock(requests);
                } while (more);
                end_overdue(requests);
                requests_lock(requests);
        }
        requests->is_reading = false;
        requests_wake(requests);
}

void requests_wait(Requests *requests, bool (*is_enough)(void *userdata), void *userdata)
{
        requests_lock(requests);
        while (!is_enough(userdata)) {
                if (!requests->is_reading) {
                        read_until(requests, is_enough, userdata);
                        break;
                }
                requests->n_sleeping++;
                (void)pthread_cond_wait(&requests->changed, &requests->lock);
                requests->n_sleeping--;
        }
        requests_unlock(requests);
}

bool requests_is_alive(Requests *requests)
{
        return requests_get_error(requests) == 0 && connection_is_alive(&requests->connection);
}

int requests_get_socket(Requests *requests)
{
        return requests->connection.socket;
}

bool requests_wants_room(Requests *requests)
{
        bool wants;

        requests_lock(requests);
        wants = requests->error == 0 && connection_has_queued(&requests->connection);
        requests_unlock(requests);
        return wants;
}

uint64_t requests_next_deadline_ns(Requests *requests)
{
        uint64_t deadline_ns = UINT64_MAX;

        if (requests->timeout_ns == UINT64_MAX)
                return UINT64_MAX;
        requests_lock(requests);
        LIST_FOREACH(link, &requests->by_age) {
                deadline_ns = LIST_ENTRY(link, Request, age_link)->deadline_ns;
                if (deadline_ns != UINT64_MAX)
                        break;
        }
        requests_unlock(requests);
        return deadline_ns;
}
