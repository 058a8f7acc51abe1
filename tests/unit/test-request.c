/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and the connection below them, against a daemon that is a thread at the other end of a socketpair and does
 * what each test tells it to. More than 600 lines, as every way in which a request can end is here.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/connection.h"
#include "client/lib/request.h"
#include "proto/channel.h"
#include "proto/status.h"

#define SECOND_NS UINT64_C(1000000000)

/* --- a client's side ------------------------------------------------------------------------------------------------------ */

typedef struct Pair {
        Requests *requests;
        int daemon;                  /* the daemon's end */
} Pair;

static Pair pair_new(uint64_t timeout_ns)
{
        Pair pair = { 0 };
        int ends[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        assert_int_equal(requests_new(ends[0], timeout_ns, &pair.requests), 0);
        pair.daemon = ends[1];
        return pair;
}

static void pair_free(Pair *pair)
{
        requests_close(pair->requests, FOLIO_E_CANCELLED);
        requests_free(pair->requests);
        if (pair->daemon >= 0)
                close(pair->daemon);
}

/* A request that remembers how it ended. */
typedef struct Asked {
        Request request;
        Requests *requests;
        unsigned n_done;             /* under the lock */
        int error;
        uint32_t n_more;             /* of the reply: the daemon puts a number of the test's there */
        size_t n_fds;
        int fd;                      /* the first one, where `takes` */
        bool takes;
        bool had_reply;
} Asked;

static void asked_done(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Asked *asked = CONTAINER_OF(request, Asked, request);

        requests_lock(asked->requests);
        asked->n_done++;
        asked->error = error;
        asked->had_reply = reply != NULL;
        asked->n_fds = n_fds;
        if (reply)
                asked->n_more = reply->n_more;
        if (n_fds > 0 && asked->takes) {
                asked->fd = fds[0];
                fds[0] = -1;
        }
        requests_wake(asked->requests);
        requests_unlock(asked->requests);
}

static void ask(Requests *requests, Asked *asked, const char *text)
{
        ProtoRequest message = { .verb = VERB_NAMESPACE_LIST, .after = { text, strlen(text) } };

        *asked = (Asked){ .request.done = asked_done, .requests = requests, .fd = -1, .takes = asked->takes };
        requests_send(requests, &asked->request, &message);
}

static bool is_done(void *userdata)
{
        return ((Asked *)userdata)->n_done > 0;
}

static void wait_for(Asked *asked)
{
        requests_wait(asked->requests, is_done, asked);
        assert_int_equal(asked->n_done, 1);
}

/* --- a daemon's side ------------------------------------------------------------------------------------------------------ */

typedef struct Got {
        uint64_t id;
        ProtoVerb verb;
        unsigned number;             /* of the text, where it is one */
} Got;

/* False: the other side has hung up. */
static bool daemon_hear(int socket, Got *ret)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        struct pollfd readable = { .fd = socket, .events = POLLIN };
        ProtoDecoder *decoder;
        ProtoRequest request;
        size_t n_bytes, n_fds, n_uninvited;
        char text[32] = "";
        int r;

        assert_int_equal(poll(&readable, 1, 20000), 1);
        r = channel_receive(socket, bytes, sizeof(bytes), &n_bytes, NULL, 0, &n_fds, &n_uninvited);
        if (r == CHANNEL_E_HANGUP)
                return false;
        assert_int_equal(r, CHANNEL_OK);
        assert_int_equal(proto_decoder_new(&decoder), 0);
        assert_true(proto_decode_request(decoder, bytes, n_bytes, &request));
        ret->id = request.id;
        ret->verb = request.verb;
        if (request.after.n_bytes > 0 && request.after.n_bytes < sizeof(text))
                memcpy(text, request.after.bytes, request.after.n_bytes);
        ret->number = (unsigned)strtoul(text, NULL, 10);
        proto_decoder_free(decoder);
        return true;
}

static void daemon_say(int socket, uint64_t id, uint32_t number, const int *fds, size_t n_fds)
{
        ProtoReply reply = { .id = id, .n_more = number };
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;
        int r;

        assert_true(proto_encode_reply(&reply, bytes, &n_bytes));
        while ((r = channel_send(socket, bytes, n_bytes, fds, n_fds)) == CHANNEL_E_AGAIN) {
                struct pollfd room = { .fd = socket, .events = POLLOUT };

                assert_int_equal(poll(&room, 1, 20000), 1);
        }
        assert_int_equal(r, CHANNEL_OK);
}

/* Answers everything, in batches of eight and each batch backwards, until the other side hangs up. */
static void *daemon_echo(void *userdata)
{
        int socket = *(int *)userdata;
        Got got[8];
        size_t n = 0;
        bool is_open = true;

        while (is_open) {
                struct pollfd readable = { .fd = socket, .events = POLLIN };

                if (n < ARRAY_SIZE(got) && (n == 0 || poll(&readable, 1, 0) == 1)) {
                        is_open = daemon_hear(socket, &got[n]);
                        if (is_open && got[n].id != 0)
                                n++;
                        continue;
                }
                while (n > 0) {
                        n--;
                        daemon_say(socket, got[n].id, got[n].number + 1, NULL, 0);
                }
        }
        return NULL;
}

/* --- tests ------------------------------------------------------------------------------------------------------------------ */

static void test_round_trip(void **state)
{
        Pair pair = pair_new(10 * SECOND_NS);
        Asked asked = { 0 };
        pthread_t daemon;

        assert_int_equal(pthread_create(&daemon, NULL, daemon_echo, &pair.daemon), 0);
        for (unsigned i = 0; i < 1000; i++) {
                char text[16];

                snprintf(text, sizeof(text), "%u", i);
                ask(pair.requests, &asked, text);
                wait_for(&asked);
                assert_int_equal(asked.error, 0);
                assert_int_equal(asked.n_more, i + 1);
        }
        assert_int_equal(requests_next_deadline_ns(pair.requests), UINT64_MAX);
        requests_close(pair.requests, FOLIO_E_CANCELLED);
        assert_int_equal(pthread_join(daemon, NULL), 0);
        pair_free(&pair);
}

/* Thousands under way at once, answered in another order than they were asked. */
static void test_pipelined(void **state)
{
        enum { N = 5000 };
        Pair pair = pair_new(20 * SECOND_NS);
        Asked *asked = calloc(N, sizeof(*asked));
        pthread_t daemon;

        assert_non_null(asked);
        assert_int_equal(pthread_create(&daemon, NULL, daemon_echo, &pair.daemon), 0);
        for (unsigned i = 0; i < N; i++) {
                char text[16];

                snprintf(text, sizeof(text), "%u", i);
                ask(pair.requests, &asked[i], text);
        }
        for (unsigned i = N; i > 0; i--) {
                wait_for(&asked[i - 1]);
                assert_int_equal(asked[i - 1].error, 0);
                assert_int_equal(asked[i - 1].n_more, i);
        }
        requests_close(pair.requests, FOLIO_E_CANCELLED);
        assert_int_equal(pthread_join(daemon, NULL), 0);
        pair_free(&pair);
        free(asked);
}

typedef struct Asker {
        pthread_t thread;
        Requests *requests;
        unsigned first;
        unsigned n_wrong;
} Asker;

static void *run_asker(void *userdata)
{
        Asker *asker = userdata;

        for (unsigned i = 0; i < 2000; i++) {
                Asked asked = { 0 };
                char text[16];

                snprintf(text, sizeof(text), "%u", asker->first + i);
                ask(asker->requests, &asked, text);
                requests_wait(asked.requests, is_done, &asked);
                asker->n_wrong += asked.n_done != 1 || asked.error != 0 || asked.n_more != asker->first + i + 1;
        }
        return NULL;
}

static void test_threads(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        Asker askers[8] = { 0 };
        pthread_t daemon;

        assert_int_equal(pthread_create(&daemon, NULL, daemon_echo, &pair.daemon), 0);
        for (size_t i = 0; i < ARRAY_SIZE(askers); i++) {
                askers[i].requests = pair.requests;
                askers[i].first = (unsigned)i * 1000000;
                assert_int_equal(pthread_create(&askers[i].thread, NULL, run_asker, &askers[i]), 0);
        }
        for (size_t i = 0; i < ARRAY_SIZE(askers); i++) {
                assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
                assert_int_equal(askers[i].n_wrong, 0);
        }
        requests_close(pair.requests, FOLIO_E_CANCELLED);
        assert_int_equal(pthread_join(daemon, NULL), 0);
        pair_free(&pair);
}

/* D19: that no answer came is an error of its own, and what comes later harms nobody. */
static void test_timeout_and_late_reply(void **state)
{
        Pair pair = pair_new(SECOND_NS / 50);
        Asked first = { 0 }, second = { 0 };
        Got got;

        ask(pair.requests, &first, "1");
        wait_for(&first);
        assert_int_equal(first.error, FOLIO_E_TIMEOUT);
        assert_false(first.had_reply);
        assert_true(daemon_hear(pair.daemon, &got));
        daemon_say(pair.daemon, got.id, 7, NULL, 0);

        requests_set_timeout(pair.requests, 20 * SECOND_NS);
        ask(pair.requests, &second, "2");
        assert_true(daemon_hear(pair.daemon, &got));
        daemon_say(pair.daemon, got.id, 8, NULL, 0);
        wait_for(&second);
        assert_int_equal(second.error, 0);
        assert_int_equal(second.n_more, 8);
        assert_int_equal(first.n_done, 1);
        pair_free(&pair);
}

static Asked late;

static void expect_late(Request *request, int error, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Asked *asked = CONTAINER_OF(request, Asked, request);

        if (error == FOLIO_E_TIMEOUT) {
                late = (Asked){ .request.done = asked_done, .requests = asked->requests, .fd = -1 };
                requests_expect(asked->requests, request->id, &late.request);
        }
        asked_done(request, error, reply, fds, n_fds);
}

static void test_expected_late_reply(void **state)
{
        ProtoRequest message = { .verb = VERB_PING };

        for (unsigned hangs_up = 0; hangs_up < 2; hangs_up++) {
                Pair pair = pair_new(SECOND_NS / 50);
                Asked asked = { .request.done = expect_late, .requests = pair.requests };
                Got got;

                requests_send(pair.requests, &asked.request, &message);
                wait_for(&asked);
                assert_int_equal(asked.error, FOLIO_E_TIMEOUT);
                assert_int_equal(late.n_done, 0);
                assert_true(daemon_hear(pair.daemon, &got));
                if (hangs_up) {
                        close(pair.daemon);
                        pair.daemon = -1;
                } else {
                        daemon_say(pair.daemon, got.id, 9, NULL, 0);
                }
                wait_for(&late);
                assert_int_equal(late.error, hangs_up ? FOLIO_E_DAEMON_GONE : 0);
                pair_free(&pair);
        }
}

static void test_hangup(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        Asked asked[5] = { 0 }, after = { 0 };
        Got got;

        for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
                ask(pair.requests, &asked[i], "1");
        assert_true(requests_is_alive(pair.requests));
        /* What was answered before the end still counts. */
        assert_true(daemon_hear(pair.daemon, &got));
        daemon_say(pair.daemon, got.id, 3, NULL, 0);
        while (poll(&(struct pollfd){ .fd = pair.daemon, .events = POLLIN }, 1, 0) == 1)
                assert_true(daemon_hear(pair.daemon, &got));
        close(pair.daemon);
        pair.daemon = -1;
        assert_false(requests_is_alive(pair.requests));
        for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
                wait_for(&asked[i]);
        assert_int_equal(asked[0].error, 0);
        assert_int_equal(asked[0].n_more, 3);
        for (size_t i = 1; i < ARRAY_SIZE(asked); i++)
                assert_int_equal(asked[i].error, FOLIO_E_DAEMON_GONE);
        assert_int_equal(requests_get_error(pair.requests), FOLIO_E_DAEMON_GONE);
        ask(pair.requests, &after, "2");
        assert_int_equal(after.n_done, 1);
        assert_int_equal(after.error, FOLIO_E_DAEMON_GONE);
        pair_free(&pair);
}

static void test_garbage_and_unknown_ids(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        Asked asked = { 0 };
        Got got;

        ask(pair.requests, &asked, "1");
        assert_true(daemon_hear(pair.daemon, &got));
        /* Nobody asked for these. */
        daemon_say(pair.daemon, 0, 1, NULL, 0);
        daemon_say(pair.daemon, got.id + 1, 2, NULL, 0);
        daemon_say(pair.daemon, UINT64_MAX, 3, NULL, 0);
        requests_turn(pair.requests);
        assert_int_equal(asked.n_done, 0);
        assert_int_equal(send(pair.daemon, "\xff\xff\xff\xff", 4, 0), 4);
        wait_for(&asked);
        assert_int_equal(asked.error, FOLIO_E_PROTOCOL);
        assert_int_equal(requests_get_error(pair.requests), FOLIO_E_PROTOCOL);
        pair_free(&pair);
}

/* Refused: the reason is everybody's reply, also where the other side was gone before we asked. */
static void test_refused(void **state)
{
        for (unsigned hangs_up_first = 0; hangs_up_first < 2; hangs_up_first++) {
                Pair pair = pair_new(20 * SECOND_NS);
                Asked asked[2] = { 0 }, after = { 0 };
                ProtoReply reply = { .status = STATUS_LIMIT, .n_more = 6 };
                uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
                size_t n_bytes;

                assert_true(proto_encode_reply(&reply, bytes, &n_bytes));
                if (hangs_up_first) {
                        assert_int_equal(channel_send(pair.daemon, bytes, n_bytes, NULL, 0), CHANNEL_OK);
                        close(pair.daemon);
                        pair.daemon = -1;
                }
                for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
                        ask(pair.requests, &asked[i], "1");
                if (!hangs_up_first)
                        assert_int_equal(channel_send(pair.daemon, bytes, n_bytes, NULL, 0), CHANNEL_OK);
                for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
                        wait_for(&asked[i]);
                        assert_int_equal(asked[i].error, 0);
                        assert_true(asked[i].had_reply);
                        assert_int_equal(asked[i].n_more, 6);
                }
                ask(pair.requests, &after, "1");
                assert_int_equal(after.error, FOLIO_E_DAEMON_GONE);
                pair_free(&pair);
        }
}

/* More than the socket takes: the rest waits here, in order, and nothing is lost when the daemon begins to read. */
static void test_full_socket(void **state)
{
        enum { N = 3000 };
        Pair pair = pair_new(60 * SECOND_NS);
        Asked *asked = calloc(N, sizeof(*asked));
        int small = 4096;
        pthread_t daemon;

        assert_non_null(asked);
        assert_int_equal(setsockopt(requests_get_socket(pair.requests), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
        for (unsigned i = 0; i < N; i++)
                ask(pair.requests, &asked[i], "5");
        assert_true(requests_wants_room(pair.requests));
        for (unsigned i = 0; i < N; i++)
                assert_int_equal(asked[i].n_done, 0);
        assert_int_equal(pthread_create(&daemon, NULL, daemon_echo, &pair.daemon), 0);
        for (unsigned i = 0; i < N; i++) {
                wait_for(&asked[i]);
                assert_int_equal(asked[i].error, 0);
        }
        assert_false(requests_wants_room(pair.requests));
        requests_close(pair.requests, FOLIO_E_CANCELLED);
        assert_int_equal(pthread_join(daemon, NULL), 0);
        pair_free(&pair);
        free(asked);
}

/* Hints have a bound; what must arrive has none. */
static void test_hints_are_dropped(void **state)
{
        enum { N = 5000 };
        Pair pair = pair_new(20 * SECOND_NS);
        ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = 1, .generation = 1 };
        unsigned n_hints = 0, n_aborts = 0;
        int small = 4096;
        Got got;

        assert_int_equal(setsockopt(requests_get_socket(pair.requests), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
        for (unsigned i = 0; i < N; i++) {
                ProtoRequest message = { .verb = VERB_RELEASE, .n_items = 1, .items = &item };

                requests_tell(pair.requests, &message, true);
        }
        for (unsigned i = 0; i < 10; i++) {
                ProtoRequest message = { .verb = VERB_ABORT, .n_items = 1, .items = &item };

                requests_tell(pair.requests, &message, false);
        }
        while (requests_wants_room(pair.requests) ||
               poll(&(struct pollfd){ .fd = pair.daemon, .events = POLLIN }, 1, 0) == 1) {
                assert_true(daemon_hear(pair.daemon, &got));
                assert_int_equal(got.id, 0);
                n_hints += got.verb == VERB_RELEASE;
                n_aborts += got.verb == VERB_ABORT;
                requests_turn(pair.requests);
        }
        assert_int_equal(n_aborts, 10);
        assert_in_range(n_hints, CONNECTION_HINTS_QUEUED_MAX, N - 1);
        pair_free(&pair);
}

/* E06: descriptors that nobody takes are closed; UNIT_TEST() counts. */
static void test_descriptors(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        static int fds[PROTO_FDS_MAX];
        size_t counts[] = { 1, 2, PROTO_FDS_MAX };
        Asked asked = { 0 };
        Got got;

        for (size_t i = 0; i < PROTO_FDS_MAX; i++)
                fds[i] = eventfd(0, EFD_CLOEXEC);
        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
                for (int takes = 0; takes < 2; takes++) {
                        asked.takes = takes;
                        ask(pair.requests, &asked, "1");
                        assert_true(daemon_hear(pair.daemon, &got));
                        daemon_say(pair.daemon, got.id, 1, fds, counts[i]);
                        wait_for(&asked);
                        assert_int_equal(asked.error, 0);
                        assert_int_equal(asked.n_fds, counts[i]);
                        if (takes) {
                                assert_true(asked.fd >= 0);
                                assert_true(fcntl(asked.fd, F_GETFD) & FD_CLOEXEC);
                                close(asked.fd);
                        }
                }
        }
        /* Nor does one that comes with a reply to nobody stay. */
        daemon_say(pair.daemon, UINT64_MAX, 1, fds, 3);
        requests_turn(pair.requests);
        for (size_t i = 0; i < PROTO_FDS_MAX; i++)
                close(fds[i]);
        pair_free(&pair);
}

/* At RLIMIT_NOFILE the request says so, and the connection goes on. */
static void test_descriptors_lost(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        struct rlimit before, low;
        int fds[2] = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) }, highest;
        Asked asked = { 0 };
        Got got;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        highest = dup(fds[0]);
        close(highest);
        low = before;
        low.rlim_cur = (rlim_t)highest;
        ask(pair.requests, &asked, "1");
        assert_true(daemon_hear(pair.daemon, &got));
        daemon_say(pair.daemon, got.id, 4, fds, 2);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        wait_for(&asked);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(asked.error, FOLIO_E_LIMIT);
        assert_true(asked.had_reply);
        assert_int_equal(asked.n_more, 4);
        assert_int_equal(asked.n_fds, 0);

        ask(pair.requests, &asked, "2");
        assert_true(daemon_hear(pair.daemon, &got));
        daemon_say(pair.daemon, got.id, 5, fds, 2);
        wait_for(&asked);
        assert_int_equal(asked.error, 0);
        assert_int_equal(asked.n_fds, 2);
        close(fds[0]);
        close(fds[1]);
        pair_free(&pair);
}

static void test_close_cancels(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        Asked asked[3] = { 0 }, after = { 0 };

        for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
                ask(pair.requests, &asked[i], "1");
        requests_close(pair.requests, FOLIO_E_CANCELLED);
        for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
                assert_int_equal(asked[i].n_done, 1);
                assert_int_equal(asked[i].error, FOLIO_E_CANCELLED);
        }
        ask(pair.requests, &after, "1");
        assert_int_equal(after.error, FOLIO_E_DAEMON_GONE);
        assert_false(requests_is_alive(pair.requests));
        pair_free(&pair);
}

static void test_does_not_fit(void **state)
{
        Pair pair = pair_new(20 * SECOND_NS);
        static char metadata[FOLIO_METADATA_BYTES_MAX];
        ProtoItem items[8] = { 0 };
        ProtoRequest message = { .verb = VERB_PUT, .n_items = ARRAY_SIZE(items), .items = items };
        Asked asked = { .request.done = asked_done, .requests = pair.requests };

        for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
                items[i].key = (Key){ "k", 1 };
                items[i].metadata = (Key){ metadata, sizeof(metadata) };
        }
        requests_send(pair.requests, &asked.request, &message);
        assert_int_equal(asked.n_done, 1);
        assert_int_equal(asked.error, FOLIO_E_PROTOCOL);
        assert_int_equal(requests_get_error(pair.requests), 0);
        pair_free(&pair);
}

/* Deadlines are in the order of the requests, and an event loop can ask for the next one. */
static void test_event_loop(void **state)
{
        Pair pair = pair_new(SECOND_NS / 20);
        Asked asked[2] = { 0 };
        uint64_t first_ns;
        Got got;

        assert_int_equal(requests_next_deadline_ns(pair.requests), UINT64_MAX);
        ask(pair.requests, &asked[0], "1");
        first_ns = requests_next_deadline_ns(pair.requests);
        ask(pair.requests, &asked[1], "2");
        assert_int_equal(requests_next_deadline_ns(pair.requests), first_ns);
        requests_turn(pair.requests);
        assert_true(daemon_hear(pair.daemon, &got));
        daemon_say(pair.daemon, got.id, 1, NULL, 0);
        while (asked[0].n_done == 0 || asked[1].n_done == 0) {
                struct pollfd readable = { .fd = requests_get_socket(pair.requests), .events = POLLIN };

                (void)poll(&readable, 1, 5);
                requests_turn(pair.requests);
        }
        assert_int_equal(asked[0].error, 0);
        assert_int_equal(asked[1].error, FOLIO_E_TIMEOUT);
        pair_free(&pair);
}

/* A connection that comes later: who waits meanwhile is woken by it; one that never comes ends all that is asked for. */
static void *connect_later(void *userdata)
{
        Pair *pair = userdata;
        int ends[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        pair->daemon = ends[1];
        requests_connect(pair->requests, ends[0]);
        return NULL;
}

static bool is_connected(void *userdata)
{
        return requests_get_socket(userdata) >= 0;
}

static void test_connect_later(void **state)
{
        Pair pair = { .daemon = -1 };
        Asked asked = { 0 };
        pthread_t connector, daemon;

        assert_int_equal(requests_new(-1, 20 * SECOND_NS, &pair.requests), 0);
        requests_turn(pair.requests);
        assert_int_equal(requests_get_error(pair.requests), 0);
        assert_true(requests_is_alive(pair.requests));
        assert_int_equal(requests_get_socket(pair.requests), -1);
        assert_int_equal(pthread_create(&connector, NULL, connect_later, &pair), 0);
        requests_wait(pair.requests, is_connected, pair.requests);
        assert_int_equal(pthread_join(connector, NULL), 0);
        assert_int_equal(pthread_create(&daemon, NULL, daemon_echo, &pair.daemon), 0);
        ask(pair.requests, &asked, "7");
        wait_for(&asked);
        assert_int_equal(asked.error, 0);
        requests_close(pair.requests, FOLIO_E_CANCELLED);
        assert_int_equal(pthread_join(daemon, NULL), 0);
        pair_free(&pair);

        assert_int_equal(requests_new(-1, 20 * SECOND_NS, &pair.requests), 0);
        requests_fail(pair.requests, FOLIO_E_DAEMON_GONE);
        ask(pair.requests, &asked, "8");
        wait_for(&asked);
        assert_int_equal(asked.error, FOLIO_E_DAEMON_GONE);
        assert_false(requests_is_alive(pair.requests));
        /* Too late: it is closed. */
        pair.daemon = -1;
        (void)connect_later(&pair);
        assert_int_equal(requests_get_socket(pair.requests), -1);
        pair_free(&pair);
}

/* --- connections ------------------------------------------------------------------------------------------------------------ */

static void test_connection_open(void **state)
{
        char directory[] = "/tmp/folio-unit-XXXXXX", path[64], too_long[200];
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        uint64_t deadline_ns = connection_now_ns() + 10 * SECOND_NS;
        int listener, fd = -1, waiting[8], n_waiting = 0, r = 0;

        assert_non_null(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/s", directory);
        memset(too_long, 'x', sizeof(too_long) - 1);
        too_long[sizeof(too_long) - 1] = '\0';
        assert_int_equal(connection_open("", deadline_ns, &fd), -ENAMETOOLONG);
        assert_int_equal(connection_open(too_long, deadline_ns, &fd), -ENAMETOOLONG);
        assert_int_equal(connection_open(path, deadline_ns, &fd), -ENOENT);

        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        memcpy(address.sun_path, path, strlen(path) + 1);
        assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
        /* E13: a socket that nobody listens on. */
        assert_int_equal(connection_open(path, deadline_ns, &fd), -ECONNREFUSED);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(connection_open(path, deadline_ns, &fd), 0);
        assert_true(fd >= 3);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
        assert_int_equal(connection_try(too_long, &fd), -ENAMETOOLONG);
        assert_int_equal(connection_try(path, &fd), 0);
        assert_true(fd >= 3);
        assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
        close(fd);
        assert_int_equal(connection_open(path, 0, &fd), -ETIMEDOUT);
        /* A listener that accepts nobody: the backlog fills, and the wait for room in it has an end. */
        while (r == 0 && n_waiting < (int)ARRAY_SIZE(waiting)) {
                r = connection_open(path, connection_now_ns() + SECOND_NS / 20, &waiting[n_waiting]);
                n_waiting += r == 0;
        }
        assert_int_equal(r, -ETIMEDOUT);
        assert_int_equal(connection_try(path, &fd), -EAGAIN);
        while (n_waiting > 0)
                close(waiting[--n_waiting]);
        close(listener);
        unlink(path);
        rmdir(directory);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_round_trip),
                UNIT_TEST(test_pipelined),
                UNIT_TEST(test_threads),
                UNIT_TEST(test_timeout_and_late_reply),
                UNIT_TEST(test_expected_late_reply),
                UNIT_TEST(test_hangup),
                UNIT_TEST(test_garbage_and_unknown_ids),
                UNIT_TEST(test_refused),
                UNIT_TEST(test_full_socket),
                UNIT_TEST(test_hints_are_dropped),
                UNIT_TEST(test_descriptors),
                UNIT_TEST(test_descriptors_lost),
                UNIT_TEST(test_close_cancels),
                UNIT_TEST(test_does_not_fit),
                UNIT_TEST(test_event_loop),
                UNIT_TEST(test_connect_later),
                UNIT_TEST(test_connection_open),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
