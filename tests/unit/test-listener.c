/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gets a connection, who does not and is told so, and that being out of descriptors is a pause, not a spin (E01,
 * E02).
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/macro.h"
#include "daemon/server/listener.h"
#include "daemon/service/log.h"
#include "proto/channel.h"
#include "proto/status.h"

#define TURNS_MAX 500

typedef struct Fixture {
        struct event_base *base;
        Listener *listener;
        unsigned n_messages;
        unsigned n_hangups;
        bool has_tools;
        Cred cred;
        char comm[64];
        char directory[64];
        char path[96];
} Fixture;

static Fixture f;

static void on_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata)
{
        f.n_messages++;
        f.cred = *peer_get_cred(peer);
        snprintf(f.comm, sizeof(f.comm), "%s", peer_get_comm(peer));
        peer_send(peer, bytes, n_bytes, NULL, 0);
}

static void on_hangup(void *userdata)
{
        assert_ptr_equal(userdata, &f);
        f.n_hangups++;
}

static bool is_tool(const void *bytes, size_t n_bytes, void *userdata)
{
        assert_ptr_equal(userdata, &f);
        return n_bytes == 1 && *(const char *)bytes == 't';
}

static void start(uint64_t clients_max, uint64_t per_uid_max, int activated_fd)
{
        ListenerConfig config = {
                .base = f.base, .socket_path = f.path, .socket_mode = 0666, .activated_fd = activated_fd,
                .clients_max = clients_max, .clients_per_uid_max = per_uid_max, .on_message = on_message,
                .on_hangup = on_hangup, .hangup_userdata = &f,
                .is_tool = f.has_tools ? is_tool : NULL, .tool_userdata = &f,
        };
        char *message = NULL;

        assert_int_equal(listener_new(&config, &f.listener, &message), 0);
        assert_null(message);
}

static int setup(void **state)
{
        harness_setup(state);
        f = (Fixture){ .listener = NULL };
        snprintf(f.directory, sizeof(f.directory), "/tmp/test-listener-XXXXXX");
        if (!mkdtemp(f.directory))
                return -1;
        snprintf(f.path, sizeof(f.path), "%s/s", f.directory);
        f.base = event_base_new();
        return f.base ? 0 : -1;
}

static int teardown(void **state)
{
        if (f.listener)
                listener_free(f.listener); /* asserts that all accounts are at zero */
        event_base_free(f.base);
        assert_int_equal(rmdir(f.directory), 0); /* so nothing is left in it */
        return harness_teardown(state);
}

#define LISTENER_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static void turn(void)
{
        assert_true(event_base_loop(f.base, EVLOOP_NONBLOCK) >= 0);
}

#define WAIT_FOR(condition)                                                                                            \
        do {                                                                                                           \
                unsigned n_turns = 0;                                                                                  \
                while (!(condition)) {                                                                                 \
                        assert_true(n_turns++ < TURNS_MAX);                                                            \
                        assert_true(event_base_loop(f.base, EVLOOP_ONCE) >= 0);                                        \
                }                                                                                                      \
        } while (0)

static int connect_client(void)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f.path);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

static bool echoes(int fd)
{
        char byte;
        size_t n_bytes;

        if (channel_send(fd, "x", 1, NULL, 0) != CHANNEL_OK)
                return false;
        turn();
        return channel_receive(fd, &byte, 1, &n_bytes, NULL, 0, NULL, NULL) == CHANNEL_OK;
}

static void assert_refused(int fd, const char *expected)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        ProtoDecoder *decoder;
        ProtoReply reply;
        size_t n_bytes;

        assert_int_equal(channel_receive(fd, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, NULL), CHANNEL_OK);
        assert_int_equal(proto_decoder_new(&decoder), 0);
        assert_true(proto_decode_reply(decoder, bytes, n_bytes, &reply));
        assert_int_equal(reply.status, STATUS_LIMIT);
        assert_non_null(memmem(reply.detail.bytes, reply.detail.n_bytes, expected, strlen(expected)));
        proto_decoder_free(decoder);
}

static void test_clients_come_and_go(void **state)
{
        int fds[10];

        start(100, 100, -1);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = connect_client();
                assert_true(echoes(fds[i]));
                assert_int_equal(listener_n_peers(f.listener), i + 1);
        }
        assert_int_equal(f.cred.uid, geteuid());
        assert_int_equal(f.cred.gid, getegid());
        assert_int_equal(f.cred.pid, getpid());
        assert_int_equal(f.cred.n_groups, getgroups(0, NULL));
        assert_int_equal(strncmp(f.comm, "test-listener", 13), 0);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
        WAIT_FOR(listener_n_peers(f.listener) == 0);
        assert_int_equal(f.n_hangups, 10);
        assert_int_equal(listener_n_accepted(f.listener), 10);
        assert_int_equal(listener_n_refused(f.listener), 0);
}

static void test_stopped_with_clients(void **state)
{
        int fds[5];
        char byte;

        start(100, 100, -1);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                assert_true(echoes(fds[i] = connect_client()));
        listener_free(f.listener);
        f.listener = NULL;
        assert_int_equal(f.n_hangups, 5);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                assert_int_equal(recv(fds[i], &byte, 1, 0), 0);
                close(fds[i]);
        }
}

/* Another foliod comes: the connections end, and nobody gets in any more. */
static void test_left_with_clients(void **state)
{
        int fds[5], late;
        char byte;

        start(100, 100, -1);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                assert_true(echoes(fds[i] = connect_client()));
        listener_leave(f.listener);
        assert_int_equal(f.n_hangups, 5);
        assert_int_equal(listener_n_peers(f.listener), 0);
        late = connect_client(); /* waits in the socket's queue */
        turn();
        assert_int_equal(listener_n_peers(f.listener), 0);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                assert_int_equal(recv(fds[i], &byte, 1, 0), 0);
                close(fds[i]);
        }
        close(late);
}

/* The refused one is told, also when its own message had been sent before; who is connected does not notice. */
static void test_limit_of_the_whole(void **state)
{
        int fds[4], refused;

        start(4, 100, -1);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                assert_true(echoes(fds[i] = connect_client()));
        for (int pass = 0; pass < 2; pass++) {
                refused = connect_client();
                if (pass == 1)
                        assert_int_equal(channel_send(refused, "hello", 5, NULL, 0), CHANNEL_OK);
                turn();
                assert_refused(refused, "clients-max: 4 clients");
                close(refused);
                assert_true(echoes(fds[0]));
        }
        assert_int_equal(listener_n_refused(f.listener), 2);
        close(fds[3]);
        WAIT_FOR(listener_n_peers(f.listener) == 3);
        assert_true(echoes(fds[3] = connect_client()));
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
}

/* As another uid, in a child: its own limit, and the places kept for an administrator. */
static void test_limit_of_a_uid(void **state)
{
        int go[2], status;
        pid_t child;

        if (geteuid() != 0)
                skip();
        assert_int_equal(chmod(f.directory, 0755), 0);
        start(16, 3, -1);
        assert_int_equal(pipe2(go, O_CLOEXEC), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                int fds[5];
                char byte;

                if (setuid(61234) < 0)
                        _exit(1);
                for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                        fds[i] = connect_client();
                close(go[1]);
                for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                        struct pollfd wait = { .fd = fds[i], .events = POLLIN };

                        if (i >= 3) {
                                if (poll(&wait, 1, 10000) != 1)
                                        _exit(2);
                                assert_refused(fds[i], "clients-per-uid-max: 3 clients of this uid");
                        } else if (recv(fds[i], &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
                                _exit(3);
                        }
                }
                _exit(0);
        }
        close(go[1]);
        WAIT_FOR(listener_n_accepted(f.listener) == 3 && listener_n_refused(f.listener) == 2);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        WAIT_FOR(listener_n_peers(f.listener) == 0);
        close(go[0]);
}

static void test_limits_can_change(void **state)
{
        int fds[3];

        start(100, 100, -1);
        for (size_t i = 0; i < 2; i++)
                assert_true(echoes(fds[i] = connect_client()));
        listener_set_limits(f.listener, 2, 2);
        fds[2] = connect_client();
        turn();
        assert_refused(fds[2], "clients");
        close(fds[2]);
        assert_true(echoes(fds[0]));
        listener_set_limits(f.listener, 3, 3);
        assert_true(echoes(fds[2] = connect_client()));
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
}

/* E02: with no descriptor left the loop sleeps between its tries, and is well as soon as there are some again. */
static void test_e02_out_of_descriptors(void **state)
{
        struct rlimit before, tight;
        int fds[12], n_told = 0, highest;

        start(1000, 1000, -1);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = connect_client();
        highest = fcntl(fds[0], F_DUPFD, 0);
        close(highest);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        tight = before;
        tight.rlim_cur = (rlim_t)highest + 2; /* room for two */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        for (int i = 0; i < 5; i++) {
                struct timeval timeout = { .tv_usec = 100000 };

                assert_int_equal(event_base_loopexit(f.base, &timeout), 0);
                assert_true(event_base_dispatch(f.base) >= 0);
        }
        assert_true(listener_n_accepted(f.listener) <= 2);
        assert_true(listener_n_refused(f.listener) >= 1);
        assert_true(listener_n_refused(f.listener) <= 10); /* each try cost a pause */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        WAIT_FOR(listener_n_accepted(f.listener) + listener_n_refused(f.listener) == ARRAY_SIZE(fds));
        assert_true(listener_n_accepted(f.listener) >= 2);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                char byte;

                n_told += recv(fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
                close(fds[i]);
        }
        assert_int_equal(n_told, listener_n_refused(f.listener));
        WAIT_FOR(listener_n_peers(f.listener) == 0);
}

static void test_a_flood_of_refused(void **state)
{
        int fds[60];

        start(1, 1, -1);
        fds[0] = connect_client();
        assert_true(echoes(fds[0]));
        for (size_t i = 1; i < ARRAY_SIZE(fds); i++)
                fds[i] = connect_client();
        WAIT_FOR(listener_n_refused(f.listener) == ARRAY_SIZE(fds) - 1);
        for (size_t i = 1; i < ARRAY_SIZE(fds); i++) {
                assert_refused(fds[i], "clients");
                close(fds[i]);
        }
        assert_true(echoes(fds[0]));
        close(fds[0]);
}

static void say(int fd, const char *text)
{
        assert_int_equal(channel_send(fd, text, strlen(text), NULL, 0), CHANNEL_OK);
}

/* E11: whatever has used up the connections, a few tools of the same uid get in, each for as long as it lasts. */
static void test_e11_tools_beyond_the_limit(void **state)
{
        enum { N_TOOLS = 4 };
        int fds[2], tools[N_TOOLS], other;

        f.has_tools = true;
        start(ARRAY_SIZE(fds), 100, -1);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                assert_true(echoes(fds[i] = connect_client()));
        /* Who is none is told when it has spoken. */
        other = connect_client();
        turn();
        assert_int_equal(listener_n_refused(f.listener), 0);
        say(other, "hello");
        turn();
        assert_refused(other, "clients-max: 2 clients");
        close(other);
        for (int pass = 0; pass < 2; pass++) {
                for (size_t i = 0; i < N_TOOLS; i++) {
                        size_t n_peers = listener_n_peers(f.listener);

                        say(tools[i] = connect_client(), "t");
                        WAIT_FOR(listener_n_peers(f.listener) == n_peers + 1);
                        assert_true(echoes(tools[i]));
                }
                say(other = connect_client(), "t");
                WAIT_FOR(listener_n_refused(f.listener) == 2 + (uint64_t)pass);
                assert_refused(other, "clients-max: 2 clients");
                close(other);
                for (size_t i = 0; i < N_TOOLS; i++)
                        close(tools[i]);
                WAIT_FOR(listener_n_peers(f.listener) == ARRAY_SIZE(fds));
        }
        /* Where there is room it counts as any other. */
        close(fds[1]);
        WAIT_FOR(listener_n_peers(f.listener) == 1);
        say(tools[0] = connect_client(), "t");
        WAIT_FOR(listener_n_peers(f.listener) == 2);
        say(other = connect_client(), "hello");
        WAIT_FOR(listener_n_refused(f.listener) == 4);
        close(other);
        close(tools[0]);
        close(fds[0]);
}

/* E11: connections that say nothing do not take the place of a tool, and are told when their time is over. */
static void test_e11_a_tool_in_a_flood(void **state)
{
        int fd, silent[80], tool;

        f.has_tools = true;
        start(1, 1, -1);
        assert_true(echoes(fd = connect_client()));
        for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
                silent[i] = connect_client();
        say(tool = connect_client(), "t");
        WAIT_FOR(listener_n_peers(f.listener) == 2);
        assert_true(echoes(tool));
        WAIT_FOR(listener_n_refused(f.listener) == ARRAY_SIZE(silent));
        for (size_t i = 0; i < ARRAY_SIZE(silent); i++) {
                assert_refused(silent[i], "clients");
                close(silent[i]);
        }
        /* One is left waiting: told at the end, and nothing of it stays. */
        fd = (close(fd), connect_client());
        turn();
        close(tool);
        close(fd);
}

/* A socket that the service manager made stays where it is. */
static void test_activation(void **state)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), client;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f.path);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 10), 0);
        client = connect_client(); /* before anybody is there */
        start(10, 10, fd);
        turn();
        assert_true(echoes(client));
        close(client);
        listener_free(f.listener);
        f.listener = NULL;
        assert_int_equal(unlink(f.path), 0);
}

static void test_second_listener(void **state)
{
        ListenerConfig config = { .base = f.base, .socket_path = f.path, .socket_mode = 0600, .activated_fd = -1,
                                  .clients_max = 1, .clients_per_uid_max = 1, .on_message = on_message };
        Listener *second;
        char *message = NULL;

        start(10, 10, -1);
        assert_int_equal(listener_new(&config, &second, &message), LISTENER_E_RUNNING);
        assert_non_null(strstr(message, "another foliod"));
        free(message);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                LISTENER_TEST(test_clients_come_and_go),
                LISTENER_TEST(test_stopped_with_clients),
                LISTENER_TEST(test_left_with_clients),
                LISTENER_TEST(test_limit_of_the_whole),
                LISTENER_TEST(test_limit_of_a_uid),
                LISTENER_TEST(test_limits_can_change),
                LISTENER_TEST(test_e02_out_of_descriptors),
                LISTENER_TEST(test_a_flood_of_refused),
                LISTENER_TEST(test_e11_tools_beyond_the_limit),
                LISTENER_TEST(test_e11_a_tool_in_a_flood),
                LISTENER_TEST(test_activation),
                LISTENER_TEST(test_second_listener),
        };

        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_STDERR);
        return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
