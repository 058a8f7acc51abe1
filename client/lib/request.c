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
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "client/lib/request-private.h"
#include "folio/types.h"
#include "proto/channel.h"
#include "proto/status.h"

enum { PACKETS_PER_TURN_MAX = 64 };  /* of requests_turn(), so that an event loop gets on */

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
        list_init(&requests->told);
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
        if (requests->error) {
                (void)close_fd(consume_socket);
        } else {
                requests->connection.socket = consume_socket;
                requests->is_opening = true;
        }
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
        reconnect_forget_told(requests, UINT64_MAX);
        free(requests->items);
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

void requests_insert(Requests *requests, Request *request)
{
        list_push_back(&requests->buckets[request->id % REQUEST_BUCKETS], &request->link);
        list_push_back(&requests->by_age, &request->age_link);
}

void requests_remove(Request *request)
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
                        requests_remove(request);
                        return request;
                }
        }
        return NULL;
}

/* --- ending requests ---------------------------------------------------------------------------------------------------- */

void requests_end(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        /* Its memory is the caller's again as soon as it is done. */
        reconnect_copy_free(steal_ptr(&request->copy));
        request->done(request, error, reply, fds, n_fds);
}

void requests_end_all(Requests *requests, int error, const ProtoReply *refusal)
{
        requests_lock(requests);
        if (requests->error == 0)
                requests->error = error;
        for (;;) {
                List *link = list_peek_front(&requests->by_age);
                Request *request = link ? LIST_ENTRY(link, Request, age_link) : NULL;

                if (!request)
                        break;
                requests_remove(request);
                requests_unlock(requests);
                requests_end(request, refusal ? 0 : error, refusal, NULL, 0);
                requests_lock(requests);
        }
        requests_unlock(requests);
}

/* The same, for good. */
static void end_all(Requests *requests, int error, const ProtoReply *refusal)
{
        requests_lock(requests);
        requests->is_ended = true;
        requests->link = REQUESTS_UP;
        requests_unlock(requests);
        requests_end_all(requests, error, refusal);
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
                        requests_remove(request);
                        requests_unlock(requests);
                        requests_end(request, FOLIO_E_TIMEOUT, NULL, NULL, 0);
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

int requests_put(Requests *requests, const void *bytes, size_t n_bytes, bool is_hint)
{
        bool had_queued = connection_has_queued(&requests->connection);
        int r = connection_send(&requests->connection, bytes, n_bytes, is_hint);

        if (!had_queued && connection_has_queued(&requests->connection))
                requests_wake(requests);
        return r;
}

/* With the lock: @request stands in the table. 0, or why it cannot be sent. */
static int send_or_hold(Requests *requests, Request *request, const void *bytes, size_t n_bytes)
{
        int r;

        if (requests->link != REQUESTS_UP)
                return 0;
        if (request->copy)
                request->copy->is_sent = true;
        r = requests_put(requests, bytes, n_bytes, false);
        /* That the other side has hung up is the reader's to find, behind what it said before. */
        if (r == 0 || r == CONNECTION_E_GONE)
                return 0;
        return r == -ENOMEM ? FOLIO_E_NO_MEMORY : FOLIO_E_DAEMON_GONE;
}

/* Where nobody has been there, each pause one request looks whether there is now. */
static void look_again(Requests *requests)
{
        bool is_due;

        requests_lock(requests);
        is_due = requests->link == REQUESTS_ABSENT && connection_now_ns() >= requests->next_ns;
        requests_unlock(requests);
        if (is_due)
                requests_turn(requests);
}

void requests_send(Requests *requests, Request *request, ProtoRequest *message)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;
        int error = 0;

        /* Ids are never used again: 2^64 of them last. 0 means "do not answer". */
        request->id = message->id = atomic_fetch_add(&requests->last_id, 1) + 1;
        request->copy = NULL;
        if (!proto_encode_request(message, bytes, &n_bytes)) {
                request->done(request, FOLIO_E_PROTOCOL, NULL, NULL, 0);
                return;
        }
        if (requests->can_reconnect) {
                look_again(requests);
                request->copy = reconnect_copy(requests, message, bytes, n_bytes);
                if (!request->copy) {
                        request->done(request, FOLIO_E_NO_MEMORY, NULL, NULL, 0);
                        return;
                }
        }
        requests_lock(requests);
        error = requests->error;
        if (error == 0) {
                request->deadline_ns = requests->timeout_ns == UINT64_MAX ? UINT64_MAX :
                                                                            connection_now_ns() + requests->timeout_ns;
                requests_insert(requests, request);
                error = send_or_hold(requests, request, bytes, n_bytes);
                if (error)
                        requests_remove(request);
        }
        requests_unlock(requests);
        if (error)
                requests_end(request, error, NULL, NULL, 0);
}

void requests_tell(Requests *requests, ProtoRequest *message, bool is_hint)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        message->id = 0;
        if (!proto_encode_request(message, bytes, &n_bytes))
                return;
        requests_lock(requests);
        if (requests->can_reconnect && !is_hint && !requests->is_ended)
                reconnect_keep_told(requests, bytes, n_bytes);
        /* Nobody waits for the outcome; and a hint is about what a daemon that comes looks at by itself. */
        if (requests->error == 0 && requests->link == REQUESTS_UP)
                (void)requests_put(requests, bytes, n_bytes, is_hint);
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
        request->copy = NULL;
        requests_lock(requests);
        /* What was under way at an end is never answered late. */
        error = requests->link == REQUESTS_UP ? requests->error : FOLIO_E_DAEMON_GONE;
        if (error == 0)
                requests_insert(requests, request);
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

/* Whose answer @reply is; one that nobody waits for any more is late. */
static void receive_reply(Requests *requests, bool has_lost_fds, const ProtoReply *reply, size_t n_fds)
{
        ProtoReply whole;
        Request *request;

        requests_lock(requests);
        request = table_take(requests, reply->id);
        if (!list_is_empty(&requests->told))
                reconnect_forget_told(requests, reply->id);
        requests_unlock(requests);
        if (!request)
                return;
        if (request->copy && request->copy->n_done > 0)
                reply = reconnect_join(requests, request->copy, reply, &whole);
        if (has_lost_fds)
                requests_end(request, FOLIO_E_LIMIT, reply, NULL, 0);
        else
                requests_end(request, 0, reply, requests->fds, n_fds);
}

/* One packet. False: nothing (more) to be read now. */
static bool receive_one(Requests *requests)
{
        size_t n_bytes = 0, n_fds = 0, n_uninvited = 0;
        ProtoReply reply;
        int r;

        if (requests->error || requests->connection.socket < 0)
                return false;
        r = channel_receive(requests->connection.socket, requests->packet, sizeof(requests->packet), &n_bytes,
                            requests->fds, PROTO_FDS_MAX, &n_fds, &n_uninvited);
        if (r == CHANNEL_E_AGAIN || r == -EINTR)
                return false;
        if (r != CHANNEL_OK && r != CHANNEL_E_FDS_LOST) {
                if (r == CHANNEL_E_TRUNCATED || !reconnect_lose(requests))
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
                if (requests->link == REQUESTS_GREETING)
                        reconnect_refuse(requests, FOLIO_E_DAEMON_GONE, &reply);
                else
                        end_all(requests, FOLIO_E_DAEMON_GONE, &reply);
                return false;
        }
        receive_reply(requests, r == CHANNEL_E_FDS_LOST, &reply, n_fds);
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
        if (r != 0 && r != CONNECTION_E_GONE && !reconnect_lose(requests))
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
        reconnect_step(requests);
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
                reconnect_step(requests);
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
        bool is_alive;

        /* With the lock: the socket can be closed by who reads. */
        requests_lock(requests);
        is_alive = requests->error == 0 && requests->link == REQUESTS_UP && connection_is_alive(&requests->connection);
        requests_unlock(requests);
        return is_alive;
}

int requests_get_socket(Requests *requests)
{
        return requests->connection.socket;
}

int requests_get_connection(Requests *requests, uint32_t *ret_serial)
{
        int socket;

        requests_lock(requests);
        socket = requests->connection.socket;
        *ret_serial = requests->serial;
        requests_unlock(requests);
        return socket;
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

        requests_lock(requests);
        if (requests->timeout_ns != UINT64_MAX)
                LIST_FOREACH(link, &requests->by_age) {
                        deadline_ns = LIST_ENTRY(link, Request, age_link)->deadline_ns;
                        if (deadline_ns != UINT64_MAX)
                                break;
                }
        if (requests->link == REQUESTS_LOST)
                deadline_ns = MIN(deadline_ns, requests->next_ns);
        requests_unlock(requests);
        return deadline_ns;
}
