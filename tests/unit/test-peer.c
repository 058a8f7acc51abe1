/* SPDX-License-Identifier: Apache-2.0 */
/* One connection over a socketpair: turns, throttling, descriptors, and that its end comes once and leaves nothing. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/server/peer.h"
#include "daemon/service/log.h"
#include "fake-store.h"
#include "proto/channel.h"

#define TURNS_MAX 2000

typedef struct Fixture {
        struct event_base *base;
        int client;
        Peer *peer;                  /* NULL: it has hung up */
        unsigned n_messages;
        unsigned n_hangups;
        size_t n_last_bytes;
        void (*on_message)(void);
} Fixture;

static Fixture f;

static void on_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata)
{
        assert_ptr_equal(userdata, &f);
        f.n_messages++;
        f.n_last_bytes = n_bytes;
        if (f.on_message)
                f.on_message();
}

static void on_hangup(Peer *peer, void *userdata)
{
        assert_ptr_equal(peer, f.peer);
        f.n_hangups++;
        f.peer = NULL;
        peer_unref(peer);
}

/* A machine so fast that no turn is ever over. */
static uint64_t still_clock(void)
{
        return 1;
}

static void start(unsigned stall_s, unsigned fds_in_flight_max, bool with_session)
{
        gid_t groups[3] = { 1, 2, 3 };
        PeerConfig config = {
                .base = f.base, .cred = { .uid = 5, .pid = 6, .n_groups = 3, .groups = groups }, .comm = "tester",
                .stall_s = stall_s, .fds_in_flight_max = fds_in_flight_max, .on_message = on_message,
                .now_ns = still_clock, .message_userdata = &f, .on_hangup = on_hangup, .hangup_userdata = &f,
        };
        int sockets[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
        f.client = sockets[0];
        assert_int_equal(peer_new(&config, sockets[1], &f.peer), 0);
        groups[0] = 99; /* it has its own copy */
        assert_int_equal(peer_get_cred(f.peer)->groups[0], 1);
        assert_string_equal(peer_get_comm(f.peer), "tester");
        if (with_session) {
                SessionConfig session_config = { .comm = "tester" };
                Session *session;
                char *detail;

                assert_int_equal(session_new(NULL, &session_config, &session, &detail), STATUS_OK);
                peer_set_session(f.peer, session);
        }
}

static int setup(void **state)
{
        harness_setup(state);
        f = (Fixture){ .client = -1 };
        fake_reset();
        f.base = event_base_new();
        return f.base ? 0 : -1;
}

static int teardown(void **state)
{
        if (f.peer)
                peer_close(f.peer);
        assert_int_equal(fake.n_sessions_open, 0);
        if (f.client >= 0)
                close(f.client);
        event_base_free(f.base);
        return harness_teardown(state);
}

#define PEER_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static void turn(void)
{
        assert_true(event_base_loop(f.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

/* Waits for events, timers too, until @condition or the connection's end. */
#define WAIT_FOR(condition)                                                                                            \
        do {                                                                                                           \
                unsigned n_turns = 0;                                                                                  \
                while (!(condition)) {                                                                                 \
                        assert_true(n_turns++ < TURNS_MAX);                                                            \
                        assert_int_equal(event_base_loop(f.base, EVLOOP_ONCE), 0);                                     \
                }                                                                                                      \
        } while (0)

static void client_send(size_t n_bytes)
{
        static uint8_t bytes[PROTO_MESSAGE_BYTES_MAX + 1];

        assert_int_equal(channel_send(f.client, bytes, n_bytes, NULL, 0), CHANNEL_OK);
}

static int client_receive(size_t *ret_n_bytes, int *fds, size_t n_fds_max, size_t *ret_n_fds)
{
        static uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];

        return channel_receive(f.client, bytes, sizeof(bytes), ret_n_bytes, fds, n_fds_max, ret_n_fds, NULL);
}

static unsigned client_receive_all(void)
{
        size_t n_bytes;
        unsigned n = 0;

        while (client_receive(&n_bytes, NULL, 0, NULL) == CHANNEL_OK)
                n++;
        return n;
}

static void test_turns_are_bounded(void **state)
{
        start(0, 100, true);
        for (int i = 0; i < PEER_PACKETS_PER_TURN + 5; i++)
                client_send(1 + (size_t)i);
        turn();
        assert_int_equal(f.n_messages, PEER_PACKETS_PER_TURN);
        turn();
        assert_int_equal(f.n_messages, PEER_PACKETS_PER_TURN + 5);
        assert_int_equal(f.n_last_bytes, PEER_PACKETS_PER_TURN + 5);
        client_send(PROTO_MESSAGE_BYTES_MAX);
        turn();
        assert_int_equal(f.n_last_bytes, PROTO_MESSAGE_BYTES_MAX);
        assert_int_equal(f.n_hangups, 0);
}

static void test_client_goes(void **state)
{
        start(0, 100, true);
        close(f.client);
        f.client = -1;
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_hangups, 1);
        assert_int_equal(fake.n_sessions_open, 0);
}

static void test_too_long_a_message(void **state)
{
        start(0, 100, true);
        client_send(PROTO_MESSAGE_BYTES_MAX + 1);
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_messages, 0);
        assert_int_equal(f.n_hangups, 1);
}

static void test_e09_uninvited_descriptors(void **state)
{
        int fds[20];
        start(0, 100, true);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = f.client;
        assert_int_equal(channel_send(f.client, "x", 1, fds, ARRAY_SIZE(fds)), CHANNEL_OK);
        client_send(1); /* is not looked at any more */
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_messages, 0);
}

static void breach_it(void)
{
        peer_breach(f.peer, "rule %d", 7);
        assert_int_equal(f.n_hangups, 0); /* not from inside */
        peer_breach(f.peer, "once is enough");
        peer_send(f.peer, "not sent", 8, NULL, 0);
}

static void test_breach_from_inside(void **state)
{
        size_t n_bytes;

        start(0, 100, true);
        f.on_message = breach_it;
        client_send(1);
        client_send(1);
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_messages, 1);
        assert_int_equal(f.n_hangups, 1);
        assert_int_not_equal(client_receive(&n_bytes, NULL, 0, NULL), CHANNEL_OK);
}

static unsigned fill_queue(void)
{
        static const uint8_t reply[PROTO_MESSAGE_BYTES_MAX] = { 1 };
        unsigned n = 0;

        for (; n < PEER_REPLIES_MAX + 100; n++)
                peer_send(f.peer, reply, sizeof(reply), NULL, 0);
        return n;
}

static void test_who_does_not_read_is_not_read(void **state)
{
        unsigned n_sent, n_received = 0;

        start(0, 100, true);
        n_sent = fill_queue();
        client_send(1);
        turn();
        turn();
        assert_int_equal(f.n_messages, 0);
        /* Reading its replies is all that is asked. */
        for (int i = 0; i < TURNS_MAX && n_received < n_sent; i++) {
                n_received += client_receive_all();
                turn();
        }
        assert_int_equal(n_received, n_sent);
        WAIT_FOR(f.n_messages == 1);
        assert_int_equal(f.n_hangups, 0);
}

static void test_who_never_reads_is_dropped(void **state)
{
        start(1, 100, true);
        (void)fill_queue();
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_hangups, 1);
        assert_int_equal(fake.n_sessions_open, 0);
}

static void test_who_never_says_hello_is_dropped(void **state)
{
        start(1, 100, false);
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_hangups, 1);
}

static void test_requests_outlive_the_connection(void **state)
{
        Peer *peer;

        start(0, 100, true);
        peer = f.peer;
        peer_begin_request(peer, 1000);
        peer_begin_request(peer, 2000);
        close(f.client);
        f.client = -1;
        WAIT_FOR(!f.peer);
        assert_false(peer_is_open(peer));
        assert_int_equal(fake.n_sessions_open, 0);
        peer_send(peer, "to nobody", 9, NULL, 0);
        peer_breach(peer, "nobody");
        peer_finish(peer);
        peer_end_request(peer, 1000);
        peer_end_request(peer, 2000); /* frees it */
}

/* What it has is left to another; all else is as at any end. */
static void test_left_to_another(void **state)
{
        int process_fd;
        Peer *peer;

        start(0, 100, true);
        peer = f.peer;
        process_fd = peer_open_process(peer);
        (void)close_fd(process_fd);
        peer_begin_request(peer, 1000);
        peer_leave(peer);
        assert_null(f.peer);
        assert_int_equal(fake.n_left, 1);
        assert_int_equal(fake.n_sessions_open, 0);
        assert_null(peer_get_session(peer));
        assert_int_equal(peer_open_process(peer), -1);
        peer_send(peer, "to nobody", 9, NULL, 0);
        peer_leave(peer);
        peer_close(peer);
        assert_int_equal(fake.n_left, 1);
        peer_end_request(peer, 1000); /* frees it */
}

static void test_many_requests_under_way_pause_reading(void **state)
{
        start(0, 100, true);
        peer_begin_request(f.peer, PEER_REQUEST_BYTES_MAX - 1);
        client_send(1);
        turn();
        assert_int_equal(f.n_messages, 1);
        peer_begin_request(f.peer, 1);
        client_send(1);
        turn();
        assert_int_equal(f.n_messages, 1);
        peer_end_request(f.peer, 1);
        turn();
        assert_int_equal(f.n_messages, 2);
        peer_end_request(f.peer, PEER_REQUEST_BYTES_MAX - 1);
}

static void test_sending_to_who_is_gone(void **state)
{
        start(0, 100, true);
        close(f.client);
        f.client = -1;
        peer_send(f.peer, "x", 1, NULL, 0);
        assert_int_equal(f.n_hangups, 0); /* only on the loop */
        assert_false(peer_is_open(f.peer));
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_hangups, 1);
}

/* Descriptors in the queue are its own: the caller's can be closed meanwhile. */
static void test_queued_descriptors(void **state)
{
        int file = memfd_create("peer", MFD_CLOEXEC), got[4], r;
        size_t n_bytes, n_fds = 0;

        start(0, 100, true);
        (void)fill_queue();
        peer_send(f.peer, "with", 4, (int[]){ file, file }, 2);
        close(file);
        for (int i = 0; i < TURNS_MAX && n_fds == 0; i++) {
                turn();
                while ((r = client_receive(&n_bytes, got, 4, &n_fds)) == CHANNEL_OK && n_fds == 0)
                        ;
        }
        assert_int_equal(n_fds, 2);
        close(got[0]);
        close(got[1]);
}

static void test_hangup_with_queued_descriptors(void **state)
{
        int file = memfd_create("peer", MFD_CLOEXEC);

        start(0, 100, true);
        (void)fill_queue();
        for (int i = 0; i < 10; i++)
                peer_send(f.peer, "with", 4, (int[]){ file, file }, 2);
        close(file);
        peer_close(f.peer);
        assert_int_equal(f.n_hangups, 1);
        /* The harness counts descriptors. */
}

static void test_no_descriptor_left_for_the_queue(void **state)
{
        int file = memfd_create("peer", MFD_CLOEXEC);
        struct rlimit before, tight;

        start(0, 100, true);
        (void)fill_queue();
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        tight = before;
        tight.rlim_cur = 4;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        peer_send(f.peer, "with", 4, &file, 1);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        close(file);
        assert_false(peer_is_open(f.peer));
        WAIT_FOR(!f.peer);
}

static void test_descriptors_in_flight_are_bounded(void **state)
{
        int file = memfd_create("peer", MFD_CLOEXEC), fds[20], got[20];
        size_t n_bytes, n_fds;

        start(0, 10, true);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = file;
        peer_send(f.peer, "a", 1, fds, 6);
        peer_send(f.peer, "b", 1, fds, 6);  /* 12 would be too many */
        peer_send(f.peer, "c", 1, NULL, 0); /* stays behind b */
        peer_send(f.peer, "d", 1, fds, 20); /* too many on its own, so alone */
        for (int i = 0; i < 20; i++)
                turn();
        assert_int_equal(client_receive(&n_bytes, got, 20, &n_fds), CHANNEL_OK);
        assert_int_equal(n_fds, 6);
        for (size_t i = 0; i < n_fds; i++)
                close(got[i]);
        assert_int_equal(client_receive(&n_bytes, got, 20, &n_fds), CHANNEL_E_AGAIN);
        for (unsigned n_messages = 0; n_messages < 3;) {
                assert_int_equal(event_base_loop(f.base, EVLOOP_ONCE), 0);
                while (client_receive(&n_bytes, got, 20, &n_fds) == CHANNEL_OK) {
                        static const size_t expected[] = { 6, 0, 20 };

                        assert_int_equal(n_fds, expected[n_messages++]);
                        for (size_t i = 0; i < n_fds; i++)
                                close(got[i]);
                }
        }
        close(file);
}

static void test_descriptors_never_picked_up(void **state)
{
        int file = memfd_create("peer", MFD_CLOEXEC), fds[20];

        start(1, 100, true);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = file;
        peer_send(f.peer, "a", 1, fds, 20);
        close(file);
        WAIT_FOR(!f.peer);
        assert_int_equal(f.n_hangups, 1);
}

/* Each message is read, but whenever somebody looks the next one is there, and as long. */
static void test_descriptors_picked_up_steadily(void **state)
{
        int file = memfd_create("peer", MFD_CLOEXEC), fds[20], got[20];
        size_t n_bytes, n_fds;

        start(1, 1000, true);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = file;
        peer_send(f.peer, "a", 1, fds, 20);
        for (unsigned round = 0; round < 2; round++) {
                assert_int_equal(client_receive(&n_bytes, got, 20, &n_fds), CHANNEL_OK);
                assert_int_equal(n_fds, 20);
                for (size_t i = 0; i < n_fds; i++)
                        close(got[i]);
                peer_send(f.peer, "b", 1, fds, 20);
                /* There is nothing to come but the timer. */
                assert_int_equal(event_base_loop(f.base, EVLOOP_ONCE), 0);
                assert_int_equal(f.n_hangups, 0);
                assert_true(peer_is_open(f.peer));
        }
        close(file);
        WAIT_FOR(!f.peer); /* from here on nothing is read */
        assert_int_equal(f.n_hangups, 1);
}

static void test_finish(void **state)
{
        unsigned n_sent, n_received = 0;
        size_t n_bytes;

        start(0, 100, true);
        n_sent = fill_queue();
        peer_finish(f.peer);
        client_send(1);
        for (int i = 0; i < TURNS_MAX && f.peer; i++) {
                n_received += client_receive_all();
                turn();
        }
        n_received += client_receive_all();
        assert_null(f.peer);
        assert_int_equal(n_received, n_sent);
        assert_int_equal(f.n_messages, 0);
        assert_int_equal(client_receive(&n_bytes, NULL, 0, NULL), CHANNEL_E_HANGUP);
}

static void test_finish_of_who_never_reads(void **state)
{
        start(1, 100, true);
        (void)fill_queue();
        peer_finish(f.peer);
        WAIT_FOR(!f.peer);
}

/* E08: as an ordinary user at the limit in flight, a reply waits, and goes when there is room again. */
static void test_e08_too_many_references(void **state)
{
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0) {
                struct rlimit limit = { 64, 64 };
                int pair[2], got[8], result = CHANNEL_OK, file = memfd_create("peer", 0);
                size_t n_bytes, n_fds = 0;

                f.base = event_base_new(); /* the parent's epoll is the parent's */
                /* A uid that nobody else counts on. */
                if (geteuid() == 0 && setuid(61000 + (uid_t)getpid() % 4000) < 0)
                        _exit(2);
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                start(0, 1000, true);
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
                        _exit(3);
                for (int i = 0; i < 200 && result == CHANNEL_OK; i++)
                        result = channel_send(pair[0], "x", 1, &pair[0], 1);
                if (result != CHANNEL_E_TOO_MANY)
                        _exit(4);
                peer_send(f.peer, "with", 4, (int[]){ file, file }, 2);
                for (int i = 0; i < 10; i++)
                        turn();
                if (!peer_is_open(f.peer) || client_receive(&n_bytes, got, 8, &n_fds) != CHANNEL_E_AGAIN)
                        _exit(5);
                /* Whoever clogs the limit goes away. */
                close(pair[1]);
                for (int i = 0; i < 100 && n_fds == 0; i++) {
                        if (event_base_loop(f.base, EVLOOP_ONCE) != 0)
                                _exit(6);
                        if (client_receive(&n_bytes, got, 8, &n_fds) == CHANNEL_OK)
                                break;
                }
                _exit(n_fds == 2 ? 0 : 7);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                PEER_TEST(test_turns_are_bounded),
                PEER_TEST(test_client_goes),
                PEER_TEST(test_too_long_a_message),
                PEER_TEST(test_e09_uninvited_descriptors),
                PEER_TEST(test_breach_from_inside),
                PEER_TEST(test_who_does_not_read_is_not_read),
                PEER_TEST(test_who_never_reads_is_dropped),
                PEER_TEST(test_who_never_says_hello_is_dropped),
                PEER_TEST(test_requests_outlive_the_connection),
                PEER_TEST(test_left_to_another),
                PEER_TEST(test_many_requests_under_way_pause_reading),
                PEER_TEST(test_sending_to_who_is_gone),
                PEER_TEST(test_queued_descriptors),
                PEER_TEST(test_hangup_with_queued_descriptors),
                PEER_TEST(test_no_descriptor_left_for_the_queue),
                PEER_TEST(test_descriptors_in_flight_are_bounded),
                PEER_TEST(test_descriptors_picked_up_steadily),
                PEER_TEST(test_descriptors_never_picked_up),
                PEER_TEST(test_finish),
                PEER_TEST(test_finish_of_who_never_reads),
                PEER_TEST(test_e08_too_many_references),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
