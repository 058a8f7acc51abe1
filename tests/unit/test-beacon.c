/* SPDX-License-Identifier: Apache-2.0 */
/* The beacon: who sees its owner end, in whatever way, and who can do what to the page. Owners are children. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/server/beacon.h"
#include "proto/beacon.h"
#include "proto/channel.h"

typedef enum End {
        END_KILLED,
        END_EXITED,
        END_ABORTED,
        END_EXECUTED,
        END_FREED,
        _END_MAX
} End;

static Backend *backend;

static int make_backend(void **state)
{
        const char *failed_call;

        return backend_memfd_new(FOLIO_HUGE_NEVER, &backend, &failed_call);
}

static int free_backend(void **state)
{
        backend_free(backend);
        return 0;
}

static void own(int socket, End end)
{
        char *const argv[] = { (char *)"sleep", (char *)"1000", NULL };
        DaemonBeacon *beacon;
        int fd;
        char byte;

        if (daemon_beacon_new(backend, 4711, &beacon) != 0)
                _exit(1);
        fd = daemon_beacon_fd(beacon);
        if (channel_send(socket, "b", 1, &fd, 1) != CHANNEL_OK)
                _exit(1);
        if (read(socket, &byte, 1) != 1)
                _exit(1);
        switch (end) {
        case END_KILLED:
                (void)raise(SIGKILL);
                break;
        case END_ABORTED:
                (void)signal(SIGABRT, SIG_DFL);
                (void)raise(SIGABRT);
                break;
        case END_EXECUTED:
                (void)execvp(argv[0], argv);
                break;
        case END_FREED:
                daemon_beacon_free(beacon);
                (void)pause();
                break;
        case END_EXITED:
        case _END_MAX:
                break;
        }
        _exit(0);
}

/* Until the page says so, which for an exec is after the descriptor has gone: bounded, and no time is asserted. */
static bool wait_for_dark(const Beacon *page)
{
        for (unsigned i = 0; i < 20000; i++) {
                struct timespec moment = { .tv_nsec = 500000 };

                if (!beacon_is_lit(page))
                        return true;
                (void)nanosleep(&moment, NULL);
        }
        return false;
}

static pid_t start_owner(End end, int *ret_socket, int *ret_fd)
{
        int sockets[2], r;
        size_t n_bytes, n_fds;
        char byte;
        pid_t pid;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                own(sockets[1], end);
        close(sockets[1]);
        assert_int_equal(poll(&(struct pollfd){ sockets[0], POLLIN, 0 }, 1, 60000), 1);
        r = channel_receive(sockets[0], &byte, 1, &n_bytes, ret_fd, 1, &n_fds, NULL);
        assert_int_equal(r, CHANNEL_OK);
        assert_int_equal(n_fds, 1);
        *ret_socket = sockets[0];
        return pid;
}

static void test_every_end_shows(void **state)
{
        for (End end = 0; end < _END_MAX; end++) {
                int socket, fd, status;
                pid_t pid = start_owner(end, &socket, &fd);
                const Beacon *page = mmap(NULL, BEACON_BYTES, PROT_READ, MAP_SHARED, fd, 0);

                assert_true(page != MAP_FAILED);
                assert_true(page->magic == BEACON_MAGIC);
                assert_int_equal(page->version, BEACON_VERSION);
                assert_true(page->instance == 4711);
                assert_true(beacon_is_lit(page));
                assert_int_equal(atomic_load(&((Beacon *)page)->owner), pid);
                assert_int_equal(write(socket, "x", 1), 1);
                assert_true(wait_for_dark(page));
                (void)kill(pid, SIGKILL);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_false(beacon_is_lit(page));
                assert_int_equal(munmap((void *)page, BEACON_BYTES), 0);
                close(fd);
                close(socket);
        }
}

/* A child of its owner that ends is not its end: the kernel's list is not inherited. */
static void test_children_do_not_matter(void **state)
{
        DaemonBeacon *beacon;
        const Beacon *page;
        pid_t pid;

        assert_int_equal(daemon_beacon_new(backend, 1, &beacon), 0);
        page = mmap(NULL, BEACON_BYTES, PROT_READ, MAP_SHARED, daemon_beacon_fd(beacon), 0);
        assert_true(page != MAP_FAILED);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                _exit(0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(beacon_is_lit(page));
        daemon_beacon_free(beacon);
        assert_false(beacon_is_lit(page));
        assert_int_equal(munmap((void *)page, BEACON_BYTES), 0);
}

/* Who has the descriptor can map it to read, and nothing else. */
static void test_nobody_else_can_write(void **state)
{
        DaemonBeacon *beacon;
        char path[64];
        int fd;

        assert_int_equal(daemon_beacon_new(backend, 1, &beacon), 0);
        fd = daemon_beacon_fd(beacon);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_true(mmap(NULL, BEACON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
        assert_int_equal(pwrite(fd, "x", 1, 0), -1);
        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(ftruncate(fd, 2 * BEACON_BYTES), -1);
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BEACON_BYTES), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
                assert_true(mmap(NULL, BEACON_BYTES, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
                close(fd);
        }
        daemon_beacon_free(beacon);
}

/* Each start has a number of its own, and one after the other works. */
static void test_starts_differ(void **state)
{
        uint64_t starts[8];

        for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
                DaemonBeacon *beacon;
                Beacon page;

                assert_int_equal(daemon_beacon_new(backend, 1, &beacon), 0);
                assert_int_equal(pread(daemon_beacon_fd(beacon), &page, sizeof(page), 0), sizeof(page));
                starts[i] = page.start;
                for (size_t j = 0; j < i; j++)
                        assert_true(starts[i] != starts[j]);
                daemon_beacon_free(beacon);
        }
}

static void test_without_descriptors(void **state)
{
        DaemonBeacon *beacon = NULL;
        int fds[4096];
        size_t n = 0;

        while (n < ARRAY_SIZE(fds) && (fds[n] = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0)
                n++;
        if (n < ARRAY_SIZE(fds)) {
                assert_int_equal(daemon_beacon_new(backend, 1, &beacon), -EMFILE);
                assert_null(beacon);
        }
        while (n > 0)
                close(fds[--n]);
        daemon_beacon_free(NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_every_end_shows),
                UNIT_TEST(test_children_do_not_matter),
                UNIT_TEST(test_nobody_else_can_write),
                UNIT_TEST(test_starts_differ),
                UNIT_TEST(test_without_descriptors),
        };

        return cmocka_run_group_tests_name("beacon", tests, make_backend, free_backend);
}
