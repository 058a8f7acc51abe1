/* SPDX-License-Identifier: Apache-2.0 */
/* The channel: packets with their descriptors, and everything that can go wrong with either, without a leak. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "proto/channel.h"

typedef struct Pair {
        int a;
        int b;
} Pair;

static Pair pair_open(void)
{
        int sockets[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        return (Pair){ sockets[0], sockets[1] };
}

static void pair_close(Pair pair)
{
        if (pair.a >= 0)
                close(pair.a);
        if (pair.b >= 0)
                close(pair.b);
}

static int some_file(void)
{
        int fd = memfd_create("channel", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static ino_t inode_of(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return st.st_ino;
}

static void test_packets_keep_their_edges(void **state)
{
        Pair pair = pair_open();
        char bytes[64];
        size_t n_bytes = 99, n_fds = 99, n_uninvited = 99;

        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, NULL), CHANNEL_E_AGAIN);
        assert_int_equal(n_bytes, 99);
        assert_int_equal(channel_send(pair.a, "one", 3, NULL, 0), CHANNEL_OK);
        assert_int_equal(channel_send(pair.a, "two!", 4, NULL, 0), CHANNEL_OK);
        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, NULL, 0, &n_fds, &n_uninvited),
                CHANNEL_OK);
        assert_int_equal(n_bytes, 3);
        assert_memory_equal(bytes, "one", 3);
        assert_int_equal(n_fds, 0);
        assert_int_equal(n_uninvited, 0);
        assert_int_equal(channel_receive(pair.b, bytes, 4, &n_bytes, NULL, 0, NULL, NULL), CHANNEL_OK);
        assert_int_equal(n_bytes, 4);
        pair_close(pair);
}

static void test_descriptors_travel(void **state)
{
        static const size_t counts[] = { 1, 2, 28, 29, 250, 253 };
        Pair pair = pair_open();
        int file = some_file();

        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
                int fds[253], got[253];
                size_t n_bytes, n_fds;
                char byte;

                for (size_t j = 0; j < counts[i]; j++)
                        fds[j] = file;
                assert_int_equal(channel_send(pair.a, "x", 1, fds, counts[i]), CHANNEL_OK);
                assert_int_equal(channel_receive(pair.b, &byte, 1, &n_bytes, got, counts[i], &n_fds, NULL), CHANNEL_OK);
                assert_int_equal(n_fds, counts[i]);
                for (size_t j = 0; j < n_fds; j++) {
                        assert_int_equal(inode_of(got[j]), inode_of(file));
                        assert_true(fcntl(got[j], F_GETFD) & FD_CLOEXEC);
                        close(got[j]);
                }
        }
        close(file);
        pair_close(pair);
}

/* E04, E09: more than was asked for: the descriptors go, the bytes stay. */
static void test_too_many_descriptors_are_closed(void **state)
{
        Pair pair = pair_open();
        int file = some_file(), fds[4] = { file, file, file, file }, got[2];
        size_t n_bytes = 0, n_fds = 99, n_uninvited = 0;
        char bytes[8];

        assert_int_equal(channel_send(pair.a, "abc", 3, fds, 4), CHANNEL_OK);
        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, got, 2, &n_fds, NULL),
                CHANNEL_E_FDS_LOST);
        assert_int_equal(n_bytes, 3);
        assert_memory_equal(bytes, "abc", 3);
        assert_int_equal(n_fds, 99);

        assert_int_equal(channel_send(pair.a, "abc", 3, fds, 4), CHANNEL_OK);
        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, &n_uninvited),
                CHANNEL_OK);
        assert_int_equal(n_uninvited, 4);
        close(file);
        pair_close(pair);
}

static void send_two_controls(int socket, int fd)
{
        union { struct cmsghdr align; char bytes[2 * CMSG_SPACE(20 * sizeof(int))]; } control = { 0 };
        struct iovec iov = { (void *)(uintptr_t)"x", 1 };
        struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes) };
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);

        for (int i = 0; i < 2; i++, header = CMSG_NXTHDR(&message, header)) {
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(20 * sizeof(int));
                for (int j = 0; j < 20; j++)
                        memcpy(CMSG_DATA(header) + (size_t)j * sizeof(int), &fd, sizeof(int));
        }
        assert_int_equal(sendmsg(socket, &message, 0), 1);
}

static void test_e09_two_control_messages(void **state)
{
        Pair pair = pair_open();
        int file = some_file(), n_before = harness_count_fds();

        for (int i = 0; i < 1000; i++) {
                size_t n_bytes, n_uninvited = 0;
                char byte;

                send_two_controls(pair.a, file);
                assert_int_equal(channel_receive(pair.b, &byte, 1, &n_bytes, NULL, 0, NULL, &n_uninvited), CHANNEL_OK);
                assert_int_equal(n_uninvited, 40);
        }
        assert_int_equal(harness_count_fds(), n_before);
        close(file);
        pair_close(pair);
}

/* Other control messages than descriptors do not confuse it. */
static void test_credentials_are_passed_over(void **state)
{
        Pair pair = pair_open();
        int file = some_file(), one = 1, got[4];
        size_t n_bytes, n_fds = 0;
        char byte;

        assert_int_equal(setsockopt(pair.b, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)), 0);
        assert_int_equal(channel_send(pair.a, "x", 1, &file, 1), CHANNEL_OK);
        assert_int_equal(channel_receive(pair.b, &byte, 1, &n_bytes, got, 4, &n_fds, NULL), CHANNEL_OK);
        assert_int_equal(n_fds, 1);
        close(got[0]);
        close(file);
        pair_close(pair);
}

static void test_truncated_packet(void **state)
{
        Pair pair = pair_open();
        int file = some_file(), fds[2] = { file, file }, got[2];
        size_t n_bytes = 99, n_fds;
        char bytes[4];

        assert_int_equal(channel_send(pair.a, "12345", 5, fds, 2), CHANNEL_OK);
        assert_int_equal(channel_receive(pair.b, bytes, 4, &n_bytes, got, 2, &n_fds, NULL), CHANNEL_E_TRUNCATED);
        assert_int_equal(n_bytes, 99);
        close(file);
        pair_close(pair);
}

static void test_hang_up(void **state)
{
        Pair pair = pair_open();
        size_t n_bytes;
        char byte;

        close(pair.a);
        assert_int_equal(channel_receive(pair.b, &byte, 1, &n_bytes, NULL, 0, NULL, NULL), CHANNEL_E_HANGUP);
        /* No SIGPIPE: its default action would end this test. */
        assert_true(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
        assert_int_equal(channel_send(pair.b, "x", 1, NULL, 0), CHANNEL_E_HANGUP);
        pair_close((Pair){ -1, pair.b });

        /* Closed with something unread. */
        pair = pair_open();
        assert_int_equal(channel_send(pair.b, "x", 1, NULL, 0), CHANNEL_OK);
        close(pair.a);
        assert_int_equal(channel_receive(pair.b, &byte, 1, &n_bytes, NULL, 0, NULL, NULL), CHANNEL_E_HANGUP);
        pair_close((Pair){ -1, pair.b });

        /* An empty packet, with a descriptor in it. */
        pair = pair_open();
        {
                union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int))]; } control = { 0 };
                struct msghdr message = { .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes) };
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);

                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(header), &pair.a, sizeof(int));
                assert_int_equal(sendmsg(pair.a, &message, 0), 0);
                assert_int_equal(channel_receive(pair.b, &byte, 1, &n_bytes, NULL, 0, NULL, NULL), CHANNEL_E_HANGUP);
        }
        pair_close(pair);
}

static void test_no_room_is_again(void **state)
{
        static char bytes[8192];
        Pair pair = pair_open();
        int result = CHANNEL_OK, n_sent = 0;
        size_t n_bytes;

        while (n_sent < 10000 && (result = channel_send(pair.a, bytes, sizeof(bytes), NULL, 0)) == CHANNEL_OK)
                n_sent++;
        assert_int_equal(result, CHANNEL_E_AGAIN);
        /* All or nothing: what was taken arrives whole. */
        for (int i = 0; i < n_sent; i++) {
                assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, NULL),
                        CHANNEL_OK);
                assert_int_equal(n_bytes, sizeof(bytes));
        }
        assert_int_equal(channel_receive(pair.b, bytes, 1, &n_bytes, NULL, 0, NULL, NULL), CHANNEL_E_AGAIN);
        pair_close(pair);
}

static void test_failures_are_failures(void **state)
{
        static char bytes[1u << 20];
        Pair pair = pair_open();
        size_t n_bytes;
        int bad = -1;

        assert_int_equal(channel_send(pair.a, bytes, sizeof(bytes), NULL, 0), -EMSGSIZE);
        assert_int_equal(channel_send(pair.a, bytes, 1, &bad, 1), -EBADF);
        assert_int_equal(channel_send(-1, bytes, 1, NULL, 0), -EBADF);
        assert_int_equal(channel_receive(-1, bytes, 1, &n_bytes, NULL, 0, NULL, NULL), -EBADF);
        pair_close(pair);
}

/* E04: the receiver is at its limit of descriptors: what came is closed, and the connection goes on. */
static void test_e04_receiver_out_of_descriptors(void **state)
{
        Pair pair = pair_open();
        int file = some_file(), fds[8] = { file, file, file, file, file, file, file, file }, got[8];
        size_t n_bytes = 0, n_fds = 99, n_uninvited = 0;
        struct rlimit before, tight;
        char bytes[4];
        int highest = dup(file);

        close(highest);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        tight = before;
        tight.rlim_cur = (rlim_t)highest + 3;
        assert_int_equal(channel_send(pair.a, "abc", 3, fds, 8), CHANNEL_OK);
        assert_int_equal(channel_send(pair.a, "abc", 3, fds, 8), CHANNEL_OK);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, got, 8, &n_fds, NULL),
                CHANNEL_E_FDS_LOST);
        assert_int_equal(n_bytes, 3);
        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, &n_uninvited),
                CHANNEL_OK);
        assert_true(n_uninvited > 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(channel_send(pair.a, "abc", 3, fds, 8), CHANNEL_OK);
        assert_int_equal(channel_receive(pair.b, bytes, sizeof(bytes), &n_bytes, got, 8, &n_fds, NULL), CHANNEL_OK);
        assert_int_equal(n_fds, 8);
        for (int i = 0; i < 8; i++)
                close(got[i]);
        close(file);
        pair_close(pair);
}

/* E08: as an ordinary user, more in flight than RLIMIT_NOFILE. In a child, which may give its uid away. */
static void test_e08_too_many_in_flight(void **state)
{
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0) {
                struct rlimit limit = { 64, 64 };
                int sockets[2], result = CHANNEL_OK;

                /* A uid that nobody else counts on. */
                if (geteuid() == 0 && setuid(61000 + (uid_t)getpid() % 4000) < 0)
                        _exit(2);
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) < 0)
                        _exit(3);
                for (int i = 0; i < 200 && result == CHANNEL_OK; i++)
                        result = channel_send(sockets[0], "x", 1, &sockets[0], 1);
                _exit(result == CHANNEL_E_TOO_MANY ? 0 : 4);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_packets_keep_their_edges),
                UNIT_TEST(test_descriptors_travel),
                UNIT_TEST(test_too_many_descriptors_are_closed),
                UNIT_TEST(test_e09_two_control_messages),
                UNIT_TEST(test_credentials_are_passed_over),
                UNIT_TEST(test_truncated_packet),
                UNIT_TEST(test_hang_up),
                UNIT_TEST(test_no_room_is_again),
                UNIT_TEST(test_failures_are_failures),
                UNIT_TEST(test_e04_receiver_out_of_descriptors),
                UNIT_TEST(test_e08_too_many_in_flight),
        };

        return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
