/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to verbs and back, over a real connection and a scripted store: the rules of the conversation by table,
 * items in their places whatever order they end in, replies that fit, descriptors that go once. Over 600 lines: all of
 * it is one fixture's, and each verb has its script.
 */
#include "harness.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/macro.h"
#include "daemon/server/dispatch.h"
#include "daemon/service/log.h"
#include "fake-store.h"
#include "folio/admin.h"
#include "proto/channel.h"
#include "proto/layout.h"
#include "proto/ring.h"

typedef struct Fixture {
        struct event_base *base;
        Poller *poller;
        Dispatch *dispatch;
        ProtoDecoder *decoder;
        int client;
        Peer *peer;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;
        int fds[PROTO_FDS_MAX];
        size_t n_fds;
} Fixture;

static Fixture f;
static Backend *backend;          /* of the beacon */

static void on_hangup(Peer *peer, void *userdata)
{
        if (f.peer == peer)
                f.peer = NULL;
        peer_unref(peer);
}

static void connect_client_by(uint64_t (*now_ns)(void))
{
        gid_t groups[2] = { 8, 9 };
        PeerConfig config = {
                .base = f.base, .cred = { .uid = 5, .pid = 6, .n_groups = 2, .groups = groups }, .comm = "tester",
                .fds_in_flight_max = 500, .on_message = dispatch_message, .message_userdata = f.dispatch,
                .on_hangup = on_hangup, .now_ns = now_ns,
        };
        int sockets[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
        f.client = sockets[0];
        assert_int_equal(peer_new(&config, sockets[1], &f.peer), 0);
}

/* A machine so fast that no turn is ever over. */
static uint64_t still_clock(void)
{
        return 1;
}

static void connect_client(void)
{
        connect_client_by(still_clock);
}

static void disconnect_client(void)
{
        if (f.peer)
                peer_close(f.peer);
        if (f.client >= 0)
                close(f.client);
        f.client = -1;
}

static void each_fact(void *userdata, DispatchFactFn each, void *each_userdata)
{
        each(each_userdata, "daemon.version", 0, "1.2.3");
}

static uint64_t poller_clock(void)
{
        static uint64_t now_ns;

        return now_ns += 1000;
}

static void flush_nothing(void *userdata)
{
}

static int setup(void **state)
{
        PollerConfig poller_config = { .now_ns = poller_clock, .cpu_ns = poller_clock, .flush = flush_nothing };
        DispatchConfig config = {
                .staging_bytes = 4 * MIB, .packed_bytes_max = MIB, .budget_bytes = GIB, .version = "1.2.3",
                .each_fact = each_fact,
        };

        harness_setup(state);
        fake_reset();
        f = (Fixture){ .client = -1 };
        f.base = event_base_new();
        config.base = f.base;
        if (!f.base || poller_new(&poller_config, &f.poller) < 0)
                return -1;
        config.poller = f.poller;
        if (dispatch_new(&config, &f.dispatch) < 0 || proto_decoder_new(&f.decoder) < 0)
                return -1;
        connect_client();
        return 0;
}

static int teardown(void **state)
{
        disconnect_client();
        assert_int_equal(fake.n_sessions_open, 0);
        dispatch_free(f.dispatch); /* asserts that nothing is under way */
        proto_decoder_free(f.decoder);
        poller_free(f.poller);
        event_base_free(f.base);
        return harness_teardown(state);
}

#define DISPATCH_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static void turn(void)
{
        assert_true(event_base_loop(f.base, EVLOOP_NONBLOCK) >= 0);
}

static void send_request(const ProtoRequest *request)
{
        size_t n_bytes;

        assert_true(proto_encode_request(request, f.bytes, &n_bytes));
        assert_int_equal(channel_send(f.client, f.bytes, n_bytes, NULL, 0), CHANNEL_OK);
        turn();
}

static bool receive_reply(ProtoReply *ret)
{
        if (channel_receive(f.client, f.bytes, sizeof(f.bytes), &f.n_bytes, f.fds, PROTO_FDS_MAX, &f.n_fds,
                NULL) != CHANNEL_OK)
                return false;
        assert_true(proto_decode_reply(f.decoder, f.bytes, f.n_bytes, ret));
        return true;
}

static void close_fds(void)
{
        for (size_t i = 0; i < f.n_fds; i++)
                close(f.fds[i]);
        f.n_fds = 0;
}

static void hello(void)
{
        ProtoRequest request = { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1 };
        ProtoReply reply;

        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_OK);
        assert_int_equal(f.n_fds, 1);
        close_fds();
}

static void assert_key(Key key, const char *text)
{
        assert_int_equal(key.n_bytes, strlen(text));
        assert_memory_equal(key.bytes, text, strlen(text));
}

static void test_hello(void **state)
{
        ProtoRequest request = { .id = 77, .verb = VERB_HELLO, .version_min = 1, .version_max = 9,
                                 .client_name = { "my name", 7 } };
        ProtoReply reply;

        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.id, 77);
        assert_int_equal(reply.status, STATUS_OK);
        assert_true(reply.has_welcome);
        assert_int_equal(reply.version, 1);
        assert_int_equal(reply.instance, 4711);
        assert_int_equal(reply.staging_bytes, 4 * MIB);
        assert_int_equal(reply.packed_bytes_max, MIB);
        assert_int_equal(reply.budget_bytes, GIB);
        assert_int_equal(reply.daemon_pid, getpid());
        assert_key(reply.daemon_version, "1.2.3");
        assert_int_equal(f.n_fds, 1);
        close_fds();
        assert_string_equal(fake.last_comm, "my name");
        assert_int_equal(fake.last_uid, 5);
        assert_int_equal(fake.last_n_groups, 2);
        assert_int_equal(fake.n_sessions_open, 1);
        disconnect_client();
        assert_int_equal(fake.n_sessions_open, 0);
}

/* A dispatch that has a beacon, and ghosts, takes the place of the fixture's. */
static void begin_again(DaemonBeacon **ret_beacon, Ghosts **ret_ghosts)
{
        GhostsConfig ghosts = { .host = { .base = f.base, .poller = f.poller, .packed_bytes_max = MIB } };
        DispatchConfig config = { .base = f.base, .poller = f.poller, .staging_bytes = 4 * MIB, .packed_bytes_max = MIB,
                                  .version = "1.2.3" };
        const char *failed_call;

        disconnect_client();
        dispatch_free(f.dispatch);
        assert_int_equal(ghosts_new(&ghosts, ret_ghosts), 0);
        assert_int_equal(backend_memfd_new(FOLIO_HUGE_NEVER, &backend, &failed_call), 0);
        assert_int_equal(daemon_beacon_new(backend, 4711, ret_beacon), 0);
        config.beacon = *ret_beacon;
        config.ghosts = *ret_ghosts;
        assert_int_equal(dispatch_new(&config, &f.dispatch), 0);
        connect_client();
}

static void test_hello_resumes(void **state)
{
        static const struct {
                uint64_t resume;
                bool is_resumed;
        } rows[] = { { 0, false }, { 1, false }, { UINT64_MAX, false }, { 4242, true }, { 4242, false } };
        DaemonBeacon *beacon;
        Ghosts *ghosts;

        (void)fake_make_ghost(4242, 5, -1);
        begin_again(&beacon, &ghosts);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                ProtoRequest request = { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1,
                                         .client_name = { "", 0 }, .resume = rows[i].resume };
                ProtoReply reply;
                struct stat found, expected;

                send_request(&request);
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.status, STATUS_OK);
                assert_true(reply.is_resumed == rows[i].is_resumed);
                assert_true((reply.session_token == 4242) == rows[i].is_resumed);
                assert_int_equal(reply.session_number, session_number(peer_get_session(f.peer)));
                /* The staging memory of a session that is resumed its client has; the beacon is the last. */
                assert_int_equal(f.n_fds, rows[i].is_resumed ? 1 : 2);
                assert_int_equal(fstat(f.fds[f.n_fds - 1], &found), 0);
                assert_int_equal(fstat(daemon_beacon_fd(beacon), &expected), 0);
                assert_true(found.st_ino == expected.st_ino);
                close_fds();
                disconnect_client();
                connect_client();
        }
        disconnect_client();
        dispatch_free(f.dispatch);
        f.dispatch = NULL;
        ghosts_free(ghosts);
        daemon_beacon_free(beacon);
        backend_free(backend);
        {
                DispatchConfig config = { .base = f.base, .poller = f.poller, .version = "1.2.3" };

                assert_int_equal(dispatch_new(&config, &f.dispatch), 0);
        }
}

/* Origins tell sessions, requests and items apart. */
static void test_origins(void **state)
{
        ProtoItem items[3] = { { .key = { "a", 1 }, .flags = PROTO_ITEM_IF_EXISTS },
                               { .key = { "b", 1 }, .flags = PROTO_ITEM_IF_EXISTS },
                               { .key = { "c", 1 }, .flags = PROTO_ITEM_IF_EXISTS } };
        ProtoReply reply;

        for (size_t i = 0; i < ARRAY_SIZE(items); i++)
                items[i].metadata = items[i].content_type = (Key){ "", 0 };
        hello();
        fake.is_deferring = true;
        for (uint64_t id = 7; id < 9; id++) {
                ProtoRequest request = { .id = id, .verb = VERB_DELETE, .namespace_id = 1, .n_items = 3, .items = items,
                                         .client_name = { "", 0 }, .after = { "", 0 } };

                send_request(&request);
        }
        assert_int_equal(fake.n_waiting, 6);
        for (size_t i = 0; i < 6; i++)
                assert_true(fake.waiting[i]->origin ==
                            layout_origin_of_message(session_number(peer_get_session(f.peer)), 7 + i / 3,
                                                     (uint32_t)(i % 3)));
        for (size_t i = 0; i < 6; i++)
                fake_end(i);
        assert_true(receive_reply(&reply));
        assert_true(receive_reply(&reply));
}

static void test_hello_of_other_versions(void **state)
{
        static const uint32_t versions[][2] = { { 2, 9 }, { 0, 0 }, { UINT32_MAX, UINT32_MAX } };

        for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
                ProtoRequest request = { .id = 1, .verb = VERB_HELLO, .version_min = versions[i][0],
                                         .version_max = versions[i][1], .client_name = { "n", 1 } };
                ProtoReply reply;

                send_request(&request);
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.status, STATUS_PROTOCOL);
                assert_true(reply.detail.n_bytes > 0);
                assert_null(f.peer);
                assert_int_equal(fake.n_sessions_made, 0);
                disconnect_client();
                connect_client();
        }
}

/* E11: a first message that is that of a tool, and whatever is not. */
static void test_e11_tools_say_so(void **state)
{
        const struct {
                ProtoRequest request;
                bool is_tool;
        } rows[] = {
                { { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1, .is_tool = true }, true },
                { { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1 }, false },
                { { .id = 1, .verb = VERB_PING, .version_min = 1, .version_max = 1, .is_tool = true }, false },
        };
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_true(proto_encode_request(&rows[i].request, bytes, &n_bytes));
                assert_int_equal(dispatch_is_tool(f.dispatch, bytes, n_bytes), rows[i].is_tool);
                assert_false(dispatch_is_tool(f.dispatch, bytes, n_bytes - 1)); /* cut off */
                assert_false(dispatch_is_tool(f.dispatch, bytes, 0));
        }
        assert_int_equal(fake.n_sessions_made, 0); /* it was only looked at */
}

static void test_hello_over_a_limit(void **state)
{
        ProtoRequest request = { .id = 5, .verb = VERB_HELLO, .version_min = 1, .version_max = 1 };
        ProtoReply reply;

        fake.session_status = STATUS_LIMIT;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.id, 5);
        assert_int_equal(reply.status, STATUS_LIMIT);
        assert_key(reply.detail, "no session for you");
        assert_null(f.peer);
}

static void test_garbage(void **state)
{
        assert_int_equal(channel_send(f.client, "garbage", 7, NULL, 0), CHANNEL_OK);
        turn();
        assert_null(f.peer);
}

static ProtoItem slot_item(void)
{
        return (ProtoItem){ .slot = 1, .generation = 2, .flags = PROTO_ITEM_BY_SLOT };
}

static void test_breaches_disconnect(void **state)
{
        ProtoRequest ping = { .id = 1, .verb = VERB_PING }, silent_ping = { .verb = VERB_PING },
                     again = { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1 };
        const ProtoRequest *breaches[] = { &silent_ping, &again };
        ProtoReply reply;

        send_request(&ping); /* before HELLO */
        assert_null(f.peer);
        assert_false(receive_reply(&reply));
        for (size_t i = 0; i < ARRAY_SIZE(breaches); i++) {
                disconnect_client();
                connect_client();
                hello();
                send_request(&ping);
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.id, 1);
                assert_int_equal(reply.status, STATUS_OK);
                send_request(breaches[i]);
                assert_null(f.peer);
                assert_false(receive_reply(&reply));
                assert_int_equal(fake.n_sessions_open, 0);
        }
}

static void fill_by_key(StoreOp *op)
{
        /* The key is "<number>": its item gets results by it. */
        unsigned number = 0;

        for (size_t i = 0; i < op->item->key.n_bytes; i++)
                number = number * 10 + (unsigned)(op->item->key.bytes[i] - '0');

        op->slot = number;
        op->generation = number + 1000;
        op->region_id = number + 2000;
        op->region_bytes = number + 3000;
        op->offset_bytes = number + 4000;
        op->placement = FOLIO_PLACEMENT_PACKED;
        if (number % 3 == 1) {
                op->status = STATUS_EXISTS;
                op->detail = strdup("it is there");
        }
}

static void make_items(ProtoItem *items, char (*keys)[8], size_t n)
{
        for (size_t i = 0; i < n; i++) {
                snprintf(keys[i], 8, "%u", (unsigned)(i % 1000));
                items[i] = (ProtoItem){ .key = { keys[i], strlen(keys[i]) } };
        }
}

static void test_items_in_their_places(void **state)
{
        static ProtoItem items[PROTO_ITEMS_MAX];
        static char keys[PROTO_ITEMS_MAX][8];
        ProtoRequest request = { .id = 9, .verb = VERB_PUT, .namespace_id = 3, .n_items = PROTO_ITEMS_MAX,
                .items = items };
        ProtoReply reply;

        make_items(items, keys, PROTO_ITEMS_MAX);
        items[10].flags = 1u << 30; /* a fault among them */
        hello();
        fake.fill = fill_by_key;
        for (int pass = 0; pass < 3; pass++) {
                fake.is_deferring = pass > 0;
                fake.n_submitted = fake.n_waiting = 0;
                send_request(&request);
                assert_int_equal(fake.n_submitted, PROTO_ITEMS_MAX - 1);
                for (size_t i = 0; i < fake.n_waiting; i++) {
                        assert_false(receive_reply(&reply));
                        fake_end(pass == 1 ? i : fake.n_waiting - 1 - i);
                }
                turn();
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.id, 9);
                assert_int_equal(reply.status, STATUS_OK);
                assert_int_equal(reply.n_items, PROTO_ITEMS_MAX);
                for (size_t i = 0; i < PROTO_ITEMS_MAX; i++) {
                        if (i == 10) {
                                assert_int_equal(reply.items[i].status, STATUS_INVALID);
                        } else if (i % 3 == 1) {
                                assert_int_equal(reply.items[i].status, STATUS_EXISTS);
                                assert_int_equal(reply.items[i].slot, 0);
                        } else {
                                assert_int_equal(reply.items[i].status, STATUS_OK);
                                assert_int_equal(reply.items[i].slot, i);
                                assert_int_equal(reply.items[i].generation, i + 1000);
                                assert_int_equal(reply.items[i].region_id, i + 2000);
                                assert_int_equal(reply.items[i].region_bytes, i + 3000);
                                assert_int_equal(reply.items[i].offset_bytes, i + 4000);
                                assert_int_equal(reply.items[i].descriptor, 0);
                        }
                }
                assert_key(reply.items[1].detail, "it is there");
        }
}

/* What an operation borrows stays, while other messages come and go. */
static void test_operations_keep_their_items(void **state)
{
        ProtoItem item = { .key = { "the key", 7 }, .metadata = { "meta\0data", 9 }, .content_type = { "type", 4 },
                           .size_bytes = 5 };
        ProtoRequest request = { .id = 9, .verb = VERB_PUT, .namespace_id = 3, .n_items = 1, .items = &item };
        ProtoRequest ping = { .id = 10, .verb = VERB_PING };
        ProtoReply reply;
        const StoreOp *op;

        hello();
        fake.is_deferring = true;
        send_request(&request);
        for (int i = 0; i < 5; i++) {
                send_request(&ping);
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.id, 10);
        }
        op = fake.waiting[0];
        assert_int_equal(op->namespace_id, 3);
        assert_int_equal(op->verb, VERB_PUT);
        assert_key(op->item->key, "the key");
        assert_int_equal(op->item->metadata.n_bytes, 9);
        assert_memory_equal(op->item->metadata.bytes, "meta\0data", 9);
        assert_key(op->item->content_type, "type");
        fake_end(0);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.id, 9);
}

static void test_hangup_with_operations_under_way(void **state)
{
        ProtoItem items[3];
        char keys[3][8];
        ProtoRequest request = { .id = 9, .verb = VERB_CREATE, .n_items = 3, .items = items };

        make_items(items, keys, 3);
        hello();
        fake.is_deferring = true;
        send_request(&request);
        send_request(&request);
        close(f.client);
        f.client = -1;
        turn();
        assert_null(f.peer);
        assert_int_equal(fake.n_sessions_open, 0);
        fake.fill = fill_by_key;
        for (size_t i = 0; i < fake.n_waiting; i++)
                fake_end(i);
}

/* --- messages that are longer than a turn -------------------------------------------------------------------------- */

static uint64_t fake_now_ns;

static uint64_t fake_clock(void)
{
        return fake_now_ns;
}

/* Each operation takes so long that a turn has room for three. */
static void fill_slowly(StoreOp *op)
{
        fill_by_key(op);
        fake_now_ns += PEER_TURN_NS * 2 / 5;
}

/* One pass of the loop: what is ready, and what was put off before. */
static void one_turn(void)
{
        assert_true(event_base_loop(f.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

static void send_only(int fd, const ProtoRequest *request)
{
        size_t n_bytes;

        assert_true(proto_encode_request(request, f.bytes, &n_bytes));
        assert_int_equal(channel_send(fd, f.bytes, n_bytes, NULL, 0), CHANNEL_OK);
}

static void start_slow_client(void)
{
        disconnect_client();
        fake_now_ns = 1;
        connect_client_by(fake_clock);
        hello();
        fake.fill = fill_slowly;
}

static void test_a_message_is_cut(void **state)
{
        enum { N = 100 };
        ProtoItem items[N];
        char keys[N][8];
        ProtoRequest request = { .id = 9, .verb = VERB_PUT, .n_items = N, .items = items };
        ProtoRequest ping = { .id = 10, .verb = VERB_PING };
        ProtoReply reply;
        size_t n_before = 0;
        int other, first;
        Peer *first_peer;

        make_items(items, keys, N);
        start_slow_client();
        first = f.client;
        first_peer = f.peer;
        connect_client();
        hello();
        other = f.client;
        /* The long one, and behind it a short one, which must not overtake it. */
        send_only(first, &request);
        send_only(first, &ping);
        for (unsigned i = 0; fake.n_submitted < N; i++) {
                assert_true(i < N);
                send_only(other, &ping);
                one_turn();
                assert_in_range(fake.n_submitted - n_before, 1, 3);
                n_before = fake.n_submitted;
                /* Whoever else is there is answered in the same turn, and the first one not before all of it is done. */
                f.client = other;
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.id, 10);
                f.client = first;
                assert_int_equal(receive_reply(&reply), fake.n_submitted == N);
        }
        assert_int_equal(reply.id, 9);
        assert_int_equal(reply.n_items, N);
        for (size_t i = 0; i < N; i++) {
                assert_int_equal(reply.items[i].status, i % 3 == 1 ? STATUS_EXISTS : STATUS_OK);
                assert_int_equal(reply.items[i].slot, i % 3 == 1 ? 0 : i);
        }
        turn();
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.id, 10);
        peer_close(f.peer);
        close(other);
        f.peer = first_peer;
}

static void test_hangup_between_two_slices(void **state)
{
        ProtoItem items[20];
        char keys[20][8];
        ProtoRequest request = { .id = 9, .verb = VERB_PUT, .n_items = 20, .items = items };
        size_t n;

        make_items(items, keys, 20);
        start_slow_client();
        send_only(f.client, &request);
        one_turn();
        n = fake.n_submitted;
        assert_in_range(n, 1, 3);
        /* What was sent whole is carried out whole, though its sender has gone. */
        close(f.client);
        f.client = -1;
        one_turn();
        assert_true(fake.n_submitted > n);
        assert_non_null(f.peer);
        /* The daemon ends the connection: nothing more is begun, and nothing is left; teardown asserts that. */
        n = fake.n_submitted;
        peer_close(f.peer);
        assert_null(f.peer);
        assert_int_equal(fake.n_submitted, n);
        turn();
        assert_int_equal(fake.n_submitted, n);
}

/* Some have ended, some are with a worker, some have not been begun: all end once, when the last does. */
static void test_hangup_with_all_kinds_of_items(void **state)
{
        ProtoItem items[20];
        char keys[20][8];
        ProtoRequest request = { .id = 9, .verb = VERB_CREATE, .n_items = 20, .items = items };

        make_items(items, keys, 20);
        start_slow_client();
        send_only(f.client, &request);
        one_turn();
        fake.is_deferring = true;
        fake_now_ns += PEER_TURN_NS;
        one_turn();
        assert_in_range(fake.n_waiting, 1, 17);
        peer_close(f.peer);
        for (size_t i = 0; i < fake.n_waiting; i++)
                fake_end(i);
        turn();
}

static void test_sender_gone_after_a_whole_message(void **state)
{
        ProtoItem items[20];
        char keys[20][8];
        ProtoRequest request = { .id = 9, .verb = VERB_DELETE, .n_items = 20, .items = items };

        make_items(items, keys, 20);
        start_slow_client();
        send_only(f.client, &request);
        close(f.client);
        f.client = -1;
        for (int i = 0; i < 40 && f.peer; i++)
                one_turn();
        assert_int_equal(fake.n_submitted, 20);
        assert_null(f.peer);
}

static void test_silent_requests(void **state)
{
        ProtoItem item = slot_item(), wrong = { .key = { "k", 1 } };
        ProtoRequest request = { .verb = VERB_ABORT, .n_items = 1, .items = &item };
        ProtoReply reply;

        hello();
        send_request(&request);
        request.verb = VERB_RELEASE;
        send_request(&request);
        request.id = 5; /* RELEASE is never answered */
        send_request(&request);
        assert_int_equal(fake.n_submitted, 3);
        request.id = 0;
        request.items = &wrong;
        send_request(&request);
        assert_int_equal(fake.n_submitted, 3);
        assert_false(receive_reply(&reply));
        assert_non_null(f.peer);
        request = (ProtoRequest){ .id = 6, .verb = VERB_ABORT, .n_items = 1, .items = &item };
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.id, 6);
        assert_int_equal(reply.n_items, 1);
}

static void fill_long_detail(StoreOp *op)
{
        op->status = STATUS_FULL;
        op->detail = malloc(1000);
        assert_non_null(op->detail);
        memset(op->detail, 'd', 999);
        op->detail[999] = '\0';
}

static void fill_largest(StoreOp *op)
{
        op->slot = UINT32_MAX;
        op->generation = op->region_id = op->region_bytes = op->offset_bytes = UINT64_MAX;
        op->placement = FOLIO_PLACEMENT_OWN;
}

static void test_replies_fit(void **state)
{
        static ProtoItem items[PROTO_ITEMS_MAX];
        static char keys[PROTO_ITEMS_MAX][8];
        ProtoRequest request = { .id = UINT64_MAX, .verb = VERB_DELETE, .n_items = PROTO_ITEMS_MAX, .items = items };
        ProtoReply reply;

        make_items(items, keys, PROTO_ITEMS_MAX);
        hello();
        fake.fill = fill_long_detail;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.items[0].detail.n_bytes, PROTO_DETAIL_BYTES_MAX);
        assert_int_equal(reply.items[20].detail.n_bytes, PROTO_DETAIL_BYTES_MAX);
        assert_int_equal(reply.items[PROTO_ITEMS_MAX - 1].detail.n_bytes, 0);
        for (size_t i = 0; i < PROTO_ITEMS_MAX; i++)
                assert_int_equal(reply.items[i].status, STATUS_FULL);
        fake.fill = fill_largest;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.n_items, PROTO_ITEMS_MAX);
        assert_true(reply.items[PROTO_ITEMS_MAX - 1].generation == UINT64_MAX);
}

static int region_fd = -1;

static void fill_region(StoreOp *op)
{
        op->region_id = op->item->slot / 2; /* two objects in each region */
        op->fd = fcntl(region_fd, F_DUPFD_CLOEXEC, 3);
        if (op->item->slot == 6)
                op->status = STATUS_DELETED; /* and its descriptor must not go, nor stay */
}

static void test_descriptors_go_once(void **state)
{
        ProtoItem items[8];
        ProtoRequest request = { .id = 9, .verb = VERB_REGION, .n_items = 8, .items = items };
        static const uint32_t expected[8] = { 1, 1, 2, 3, 4, 4, 0, 5 };
        ProtoReply reply;

        for (uint32_t i = 0; i < 8; i++)
                items[i] = (ProtoItem){ .slot = i, .flags = PROTO_ITEM_BY_SLOT };
        items[3].flags |= PROTO_ITEM_WRITABLE; /* of the same region as 2, but another descriptor */
        region_fd = memfd_create("region", MFD_CLOEXEC);
        hello();
        fake.fill = fill_region;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(f.n_fds, 5);
        for (size_t i = 0; i < 8; i++)
                assert_int_equal(reply.items[i].descriptor, expected[i]);
        close_fds();
        close(region_fd);
}

static void fill_own_region(StoreOp *op)
{
        op->region_id = op->item->key.n_bytes;
        op->fd = fcntl(region_fd, F_DUPFD_CLOEXEC, 3);
}

static void test_creates_with_descriptors(void **state)
{
        static ProtoItem items[PROTO_ITEMS_MAX];
        static char keys[PROTO_ITEMS_MAX][8];
        ProtoRequest request = { .id = 9, .verb = VERB_CREATE, .n_items = 250, .items = items };
        ProtoReply reply;

        make_items(items, keys, PROTO_ITEMS_MAX);
        region_fd = memfd_create("region", MFD_CLOEXEC);
        hello();
        fake.fill = fill_own_region;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(f.n_fds, 250);
        for (size_t i = 0; i < 250; i++)
                assert_int_equal(reply.items[i].descriptor, i + 1);
        close_fds();
        request.n_items = 251;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_INVALID);
        assert_int_equal(reply.n_items, 0);
        assert_int_equal(fake.n_submitted, 250);
        fake.fill = NULL;
        items[0].flags = PROTO_ITEM_STAGED;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_OK);
        close(region_fd);
}

static void test_namespaces(void **state)
{
        ProtoRequest request = { .id = 9, .verb = VERB_NAMESPACE_OPEN, .has_namespace = true, .ns = {
                .name = "nsname" } };
        ProtoReply reply;
        int file = memfd_create("index", MFD_CLOEXEC);

        hello();
        fake.index_fd = fake.pins_fd = file;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_OK);
        assert_int_equal(reply.n_namespaces, 1);
        assert_string_equal(reply.namespaces[0].name, "nsname");
        assert_int_equal(f.n_fds, 2);
        close_fds();
        fake.index_fd = fake.pins_fd = -1;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(f.n_fds, 0);
        fake.verb_status = STATUS_NOT_FOUND;
        for (ProtoVerb verb = VERB_NAMESPACE_ADD; verb <= VERB_NAMESPACE_REMOVE; verb++) {
                request.verb = verb;
                send_request(&request);
                assert_true(receive_reply(&reply));
                assert_int_equal(reply.status, STATUS_NOT_FOUND);
                assert_key(reply.detail, "because the test says so");
                assert_int_equal(reply.n_namespaces, 0);
        }
        fake.verb_status = STATUS_OK;
        request.verb = VERB_NAMESPACE_ADD;
        request.ns.fields = FOLIO_NAMESPACE_FIELD_MODE;
        request.ns.mode = 0777;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.namespaces[0].mode, 0777);
        fake.n_verb_calls = 0;
        request.ns.mode = 01000;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_INVALID);
        assert_int_equal(fake.n_verb_calls, 0);
        close(file);
}

static void test_lists_are_shortened(void **state)
{
        ProtoItem item = { .key = { "k", 1 } };
        ProtoRequest list = { .id = 9, .verb = VERB_NAMESPACE_LIST };
        ProtoRequest holders = { .id = 9, .verb = VERB_HOLDERS, .n_items = 1, .items = &item };
        ProtoRequest status = { .id = 9, .verb = VERB_STATUS };
        ProtoReply reply;

        hello();
        fake.n_namespaces = 64; /* of more bytes than a packet has */
        send_request(&list);
        assert_true(receive_reply(&reply));
        assert_in_range(reply.n_namespaces, 40, 64);
        fake.n_namespaces = 0;
        send_request(&list);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.n_namespaces, 0);

        fake.n_holders = 3;
        send_request(&holders);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.n_holders, 3);
        assert_int_equal(reply.n_more, 0);
        assert_int_equal(reply.holders[2].n_pins, 2);
        assert_int_equal(reply.holders[2].pid, 77);
        assert_int_equal(reply.holders[2].uid, 7);
        assert_int_equal(reply.holders[2].connected_ns, 777);
        assert_key(reply.holders[2].comm, "a holder");
        fake.n_holders = 1000;
        send_request(&holders);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.n_holders + reply.n_more, 1000);
        assert_int_equal(reply.n_holders, PROTO_HOLDERS_MAX);

        fake.n_facts = 4;
        send_request(&status);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.n_facts, 5);
        assert_key(reply.facts[0].name, "daemon.version");
        assert_key(reply.facts[0].text, "1.2.3");
        assert_int_equal(reply.facts[1].text.n_bytes, 127);
        assert_int_equal(reply.facts[2].value, 1);
        assert_int_equal(reply.facts[2].text.n_bytes, 0);
        fake.n_facts = 1000;
        send_request(&status);
        assert_true(receive_reply(&reply));
        assert_in_range(reply.n_facts, 64, PROTO_FACTS_MAX);
}

static void test_watch_and_holders_refused(void **state)
{
        ProtoItem item = { .key = { "k", 1 }, .flags = PROTO_ITEM_STAGED };
        ProtoRequest watch = { .id = 9, .verb = VERB_WATCH, .namespace_id = 3 };
        ProtoRequest holders = { .id = 9, .verb = VERB_HOLDERS, .n_items = 1, .items = &item };
        ProtoReply reply;

        hello();
        fake.watch_fd = memfd_create("watch", MFD_CLOEXEC);
        send_request(&watch);
        assert_true(receive_reply(&reply));
        assert_int_equal(f.n_fds, 1);
        close_fds();
        close(fake.watch_fd);
        fake.watch_fd = -1;
        fake.verb_status = STATUS_ACCESS;
        send_request(&watch);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_ACCESS);
        send_request(&holders);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_INVALID);
        item.flags = 0;
        send_request(&holders);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_ACCESS);
}

/* --- rings and leases --------------------------------------------------------------------------------------------- */

static ino_t inode_of(int fd)
{
        struct stat status;

        assert_int_equal(fstat(fd, &status), 0);
        return status.st_ino;
}

static void test_ring(void **state)
{
        ProtoRequest request = { .id = 9, .verb = VERB_RING };
        ProtoReply reply;
        char link[64], target[64] = "";

        hello();
        fake.ring_status = STATUS_LIMIT;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_LIMIT);
        assert_key(reply.detail, "no ring for you");
        assert_int_equal(f.n_fds, 0);
        fake.ring_status = STATUS_OK;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.id, 9);
        assert_int_equal(reply.status, STATUS_OK);
        assert_int_equal(reply.n_items, 0);
        assert_int_equal(f.n_fds, 2);
        assert_int_equal(lseek(f.fds[0], 0, SEEK_END), RING_REGION_BYTES); /* the memory first */
        snprintf(link, sizeof(link), "/proc/self/fd/%d", f.fds[1]);
        assert_true(readlink(link, target, sizeof(target) - 1) > 0);
        assert_string_equal(target, "anon_inode:[eventfd]");
        close_fds();
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_STATE);
        assert_true(reply.detail.n_bytes > 0);
        assert_int_equal(f.n_fds, 0);
        assert_non_null(f.peer);
}

static void test_no_ring_where_there_is_no_poller(void **state)
{
        DispatchConfig config = { .version = "1.2.3" };
        ProtoRequest request = { .id = 9, .verb = VERB_RING };
        ProtoReply reply;

        disconnect_client();
        dispatch_free(f.dispatch);
        assert_int_equal(dispatch_new(&config, &f.dispatch), 0);
        connect_client();
        hello();
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.status, STATUS_UNSUPPORTED);
}

static int lease_fds[2];

static void fill_lease(StoreOp *op)
{
        assert_int_equal(op->verb, VERB_LEASE);
        assert_int_equal(op->namespace_id, 3);
        assert_int_equal(op->item->size_bytes, 4096);
        assert_int_equal(op->item->offset_bytes, 2 * MIB);
        op->slot = 63;
        op->generation = 7;
        op->region_id = 8;
        op->region_bytes = 2 * MIB;
        op->fd = fcntl(lease_fds[0], F_DUPFD_CLOEXEC, 3);
        op->book_fd = fcntl(lease_fds[1], F_DUPFD_CLOEXEC, 3);
        if (fake.n_submitted == 2)
                op->status = STATUS_FULL; /* and what it has is closed */
}

static void test_lease(void **state)
{
        ProtoItem item = { .size_bytes = 4096, .offset_bytes = 2 * MIB };
        ProtoRequest request = { .id = 9, .verb = VERB_LEASE, .namespace_id = 3, .n_items = 1, .items = &item };
        ProtoRequest ring = { .id = 1, .verb = VERB_RING };
        ProtoReply reply;

        hello();
        lease_fds[0] = memfd_create("region", MFD_CLOEXEC);
        lease_fds[1] = memfd_create("book", MFD_CLOEXEC);
        fake.fill = fill_lease;
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.items[0].status, STATUS_STATE); /* without a ring */
        assert_int_equal(fake.n_submitted, 0);
        send_request(&ring);
        assert_true(receive_reply(&reply));
        close_fds();
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.n_items, 1);
        assert_int_equal(reply.items[0].status, STATUS_OK);
        assert_int_equal(reply.items[0].slot, 63);
        assert_int_equal(reply.items[0].generation, 7);
        assert_int_equal(reply.items[0].region_id, 8);
        assert_int_equal(reply.items[0].region_bytes, 2 * MIB);
        assert_int_equal(reply.items[0].descriptor, 1);
        assert_int_equal(f.n_fds, 2);
        assert_int_equal(inode_of(f.fds[0]), inode_of(lease_fds[0]));
        assert_int_equal(inode_of(f.fds[1]), inode_of(lease_fds[1]));
        close_fds();
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.items[0].status, STATUS_FULL);
        assert_int_equal(reply.items[0].descriptor, 0);
        assert_int_equal(f.n_fds, 0);
        close(lease_fds[0]);
        close(lease_fds[1]);
}

static void test_budget_can_change(void **state)
{
        ProtoRequest request = { .id = 1, .verb = VERB_HELLO, .version_min = 1, .version_max = 1 };
        ProtoReply reply;

        dispatch_set_budget(f.dispatch, 7 * GIB);
        send_request(&request);
        assert_true(receive_reply(&reply));
        assert_int_equal(reply.budget_bytes, 7 * GIB);
        close_fds();
        assert_int_equal(dispatch_n_requests(f.dispatch), 1);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                DISPATCH_TEST(test_hello),
                DISPATCH_TEST(test_hello_resumes),
                DISPATCH_TEST(test_origins),
                DISPATCH_TEST(test_hello_of_other_versions),
                DISPATCH_TEST(test_e11_tools_say_so),
                DISPATCH_TEST(test_hello_over_a_limit),
                DISPATCH_TEST(test_garbage),
                DISPATCH_TEST(test_breaches_disconnect),
                DISPATCH_TEST(test_items_in_their_places),
                DISPATCH_TEST(test_operations_keep_their_items),
                DISPATCH_TEST(test_hangup_with_operations_under_way),
                DISPATCH_TEST(test_a_message_is_cut),
                DISPATCH_TEST(test_hangup_between_two_slices),
                DISPATCH_TEST(test_hangup_with_all_kinds_of_items),
                DISPATCH_TEST(test_sender_gone_after_a_whole_message),
                DISPATCH_TEST(test_silent_requests),
                DISPATCH_TEST(test_replies_fit),
                DISPATCH_TEST(test_descriptors_go_once),
                DISPATCH_TEST(test_creates_with_descriptors),
                DISPATCH_TEST(test_namespaces),
                DISPATCH_TEST(test_lists_are_shortened),
                DISPATCH_TEST(test_watch_and_holders_refused),
                DISPATCH_TEST(test_ring),
                DISPATCH_TEST(test_no_ring_where_there_is_no_poller),
                DISPATCH_TEST(test_lease),
                DISPATCH_TEST(test_budget_can_change),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
