/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end: that its end shows, and that a number is nobody. Others are children. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/server/process.h"

static struct {
        struct sockaddr_un address;
        socklen_t n_address;
        int listener;
} f;

static void begin(void)
{
        f.address = (struct sockaddr_un){ .sun_family = AF_UNIX };
        snprintf(f.address.sun_path + 1, sizeof(f.address.sun_path) - 1, "folio-test-process-%d", (int)getpid());
        f.n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(f.address.sun_path + 1));
        f.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_true(f.listener >= 0);
        assert_int_equal(bind(f.listener, (struct sockaddr *)&f.address, f.n_address), 0);
        assert_int_equal(listen(f.listener, 8), 0);
}

static void connect_and_wait(void)
{
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        char byte;

        if (fd < 0 || connect(fd, (struct sockaddr *)&f.address, f.n_address) < 0)
                _exit(1);
        (void)!read(fd, &byte, 1);
        for (;;)
                (void)pause();
}

static int accept_one(void)
{
        int fd;

        assert_int_equal(poll(&(struct pollfd){ f.listener, POLLIN, 0 }, 1, 60000), 1);
        fd = accept4(f.listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        return fd;
}

static bool has_ended(int process_fd, int timeout_ms)
{
        return poll(&(struct pollfd){ process_fd, POLLIN, 0 }, 1, timeout_ms) == 1;
}

static void test_end_shows(void **state)
{
        pid_t pid;
        int fd, process_fd;

        begin();
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                connect_and_wait();
        fd = accept_one();
        process_fd = process_open(fd);
        assert_true(process_fd >= 0);
        assert_true(fcntl(process_fd, F_GETFD) & FD_CLOEXEC);
        assert_false(has_ended(process_fd, 0));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_true(has_ended(process_fd, 60000)); /* also before anybody has waited for it */
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(has_ended(process_fd, 0));
        close(process_fd);
        close(fd);
        close(f.listener);
}

/* It had gone before we asked: whatever there is says that it has, or there is nothing. Never somebody else. */
static void test_gone_already(void **state)
{
        int fd, process_fd;
        pid_t pid;

        begin();
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                connect_and_wait();
        fd = accept_one();
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        process_fd = process_open(fd);
        if (process_fd >= 0)
                assert_true(has_ended(process_fd, 0));
        (void)close_fd(process_fd);
        close(fd);
        close(f.listener);
}

/*
 * One that has a child in its own pid namespace connect, so that the number we are told would be ours to misread: seen
 * from a namespace beside it there is none.
 */
static void test_other_namespace(void **state)
{
        int pair[2], result = -1;
        pid_t outer;

        begin();
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        outer = fork();
        assert_true(outer >= 0);
        if (outer == 0) {
                /* The daemon's part is played in a pid namespace in which the client is not. */
                struct ucred cred;
                socklen_t n_bytes = sizeof(cred);
                int fd, process_fd, answer;
                pid_t inner;

                if (unshare(CLONE_NEWPID) < 0) {
                        answer = 77; /* not allowed here */
                        (void)!write(pair[1], &answer, sizeof(answer));
                        _exit(0);
                }
                inner = fork();
                if (inner == 0) {
                        fd = accept4(f.listener, NULL, NULL, SOCK_CLOEXEC);
                        answer = 1;
                        if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n_bytes) == 0 && cred.pid == 0) {
                                process_fd = process_open(fd);
                                answer = process_fd < 0 ? 2 : has_ended(process_fd, 0) ? 3 : 0;
                        }
                        (void)!write(pair[1], &answer, sizeof(answer));
                        _exit(0);
                }
                (void)waitpid(inner, NULL, 0);
                _exit(0);
        }
        {
                int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

                assert_true(fd >= 0);
                assert_int_equal(connect(fd, (struct sockaddr *)&f.address, f.n_address), 0);
                assert_int_equal(poll(&(struct pollfd){ pair[0], POLLIN, 0 }, 1, 60000), 1);
                assert_int_equal(read(pair[0], &result, sizeof(result)), sizeof(result));
                close(fd);
        }
        assert_int_equal(waitpid(outer, NULL, 0), outer);
        close(pair[0]);
        close(pair[1]);
        close(f.listener);
        if (result == 77)
                skip();
        /* 2: a kernel that cannot tell, where nobody is waited for by a number that is somebody else's. */
        assert_true(result == 0 || result == 2);
}

static void test_no_socket(void **state)
{
        int fd = memfd_create("t", MFD_CLOEXEC);

        assert_int_equal(process_open(-1), -1);
        assert_int_equal(process_open(fd), -1);
        close(fd);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_end_shows),
                UNIT_TEST(test_gone_already),
                UNIT_TEST(test_other_namespace),
                UNIT_TEST(test_no_socket),
        };

        return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
