/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a path: what is stale goes, what is not ours stays, and of many that want it one has it (E13, D22). */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/server/socket.h"

static char directory[64], path[96], lock[104];

static int setup(void **state)
{
        harness_setup(state);
        snprintf(directory, sizeof(directory), "/tmp/test-socket-XXXXXX");
        if (!mkdtemp(directory))
                return -1;
        snprintf(path, sizeof(path), "%s/d/folio.sock", directory);
        snprintf(lock, sizeof(lock), "%s.lock", path);
        return 0;
}

static int teardown(void **state)
{
        char command[128];

        snprintf(command, sizeof(command), "rm -rf %s", directory);
        if (system(command) != 0)
                return -1;
        return harness_teardown(state);
}

#define SOCKET_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static int connect_to(const char *to)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", to);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
                return fd;
        close(fd);
        return -1;
}

static mode_t mode_of(const char *of)
{
        struct stat st;

        assert_int_equal(lstat(of, &st), 0);
        return st.st_mode;
}

/* Opens, expecting @expected, and closes. */
static void try_open(int expected)
{
        Socket self = SOCKET_NULL;
        char *message = NULL;
        int r = socket_open(&self, path, 0600, &message);

        if (r != expected)
                fail_msg("%d instead of %d: %s", r, expected, message ? message : "-");
        if (r != 0)
                assert_true(message && strlen(message) > 0);
        else
                assert_null(message);
        free(message);
        socket_close(&self);
}

static void test_open_and_close(void **state)
{
        static const uint32_t modes[] = { 0600, 0660, 0666 };

        for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
                Socket self = SOCKET_NULL;
                char *message = NULL, dir[80];
                mode_t before = umask(i == 0 ? 0 : 0077);
                int client;

                assert_int_equal(socket_open(&self, path, modes[i], &message), 0);
                assert_int_equal(umask(before), i == 0 ? 0 : 0077);
                assert_int_equal(mode_of(path), S_IFSOCK | modes[i]);
                assert_int_equal(mode_of(lock), S_IFREG | 0600);
                assert_true(fcntl(self.fd, F_GETFL) & O_NONBLOCK);
                assert_true(fcntl(self.fd, F_GETFD) & FD_CLOEXEC);
                client = connect_to(path);
                assert_true(client >= 0);
                close(client);
                socket_close(&self);
                assert_int_equal(access(path, F_OK), -1);
                assert_int_equal(access(lock, F_OK), -1);
                snprintf(dir, sizeof(dir), "%s/d", directory);
                if (i == 0)
                        assert_int_equal(mode_of(dir), S_IFDIR | 0700);
        }
}

static void test_second_is_told(void **state)
{
        Socket first = SOCKET_NULL;
        char *message = NULL;
        int client;

        assert_int_equal(socket_open(&first, path, 0600, &message), 0);
        try_open(SOCKET_E_RUNNING);
        client = connect_to(path); /* and the first has not been harmed */
        assert_true(client >= 0);
        close(client);
        socket_close(&first);
        try_open(0);
}

static void test_e13_stale_socket_is_removed(void **state)
{
        pid_t child;
        int status;

        try_open(0); /* makes the directory */
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                Socket self = SOCKET_NULL;
                char *message;

                _exit(socket_open(&self, path, 0600, &message) == 0 ? 0 : 1); /* as kill -9 would leave it */
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(access(lock, F_OK), 0);
        try_open(0);
}

static void test_e13_what_is_no_socket_stays(void **state)
{
        char target[96];
        int fd;

        try_open(0);
        snprintf(target, sizeof(target), "%s/target", directory);
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        close(fd);
        try_open(SOCKET_E_REFUSED);
        assert_int_equal(mode_of(path), S_IFREG | 0600);
        assert_int_equal(access(lock, F_OK), -1); /* nothing is left of the try */
        unlink(path);
        assert_int_equal(mkdir(path, 0700), 0);
        try_open(SOCKET_E_REFUSED);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(symlink(target, path), 0);
        try_open(SOCKET_E_REFUSED);
        assert_true(S_ISLNK(mode_of(path)));
        assert_int_equal(access(target, F_OK), -1);
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        try_open(SOCKET_E_REFUSED);
        assert_true(S_ISFIFO(mode_of(path)));
}

/* Somebody who knows of no lock listens there: alive, so it stays; also with its queue full, which is ambiguous. */
static void test_e13_a_foreign_listener_stays(void **state)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), clients[8];
        size_t n_clients = 0;

        try_open(0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 1), 0);
        try_open(SOCKET_E_RUNNING);
        while (n_clients < ARRAY_SIZE(clients) && (clients[n_clients] = connect_to(path)) >= 0)
                n_clients++;
        assert_true(n_clients < ARRAY_SIZE(clients));
        try_open(SOCKET_E_REFUSED);
        assert_true(S_ISSOCK(mode_of(path)));
        while (n_clients > 0)
                close(clients[--n_clients]);
        close(fd);
        try_open(0);
}

static void test_d22_lock_that_is_not_ours(void **state)
{
        char target[96];

        try_open(0);
        snprintf(target, sizeof(target), "%s/target", directory);
        assert_int_equal(symlink(target, lock), 0);
        try_open(SOCKET_E_REFUSED);
        assert_int_equal(access(target, F_OK), -1);
        unlink(lock);
        assert_int_equal(mkfifo(lock, 0600), 0);
        try_open(SOCKET_E_REFUSED);
        unlink(lock);
        assert_int_equal(mkdir(lock, 0700), 0);
        try_open(SOCKET_E_REFUSED);
}

static void test_d22_directories_that_are_not_safe(void **state)
{
        char dir[80], other[96];

        try_open(0);
        snprintf(dir, sizeof(dir), "%s/d", directory);
        assert_int_equal(chmod(dir, 0777), 0);
        try_open(SOCKET_E_REFUSED);
        assert_int_equal(chmod(dir, 0770), 0);
        try_open(SOCKET_E_REFUSED);
        assert_int_equal(chmod(dir, 01777), 0); /* like /tmp: others cannot touch what is ours */
        try_open(0);
        assert_int_equal(chmod(dir, 0700), 0);
        if (geteuid() == 0) {
                assert_int_equal(chown(dir, 61234, (gid_t)-1), 0);
                try_open(SOCKET_E_REFUSED);
                assert_int_equal(chown(dir, 0, (gid_t)-1), 0);
        }
        snprintf(other, sizeof(other), "%s/other", directory);
        assert_int_equal(rename(dir, other), 0);
        assert_int_equal(symlink(other, dir), 0);
        try_open(SOCKET_E_REFUSED);
        unlink(dir);
        snprintf(path, sizeof(path), "%s/no/such/folio.sock", directory);
        try_open(-ENOENT);
}

static void test_paths_too_long(void **state)
{
        Socket self = SOCKET_NULL;
        char endless[300], *message = NULL;

        memset(endless, 'x', sizeof(endless));
        endless[0] = '/';
        endless[108] = '\0';
        assert_int_equal(socket_open(&self, endless, 0600, &message), -ENAMETOOLONG);
        free(message);
}

/* E13: twenty at once; exactly one has it at a time, and afterwards somebody can. */
static void test_e13_twenty_at_once(void **state)
{
        enum { N = 20 };
        pid_t children[N];
        int gate[2], hold[2], n_won = 0;

        assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
        assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
        for (int i = 0; i < N; i++) {
                children[i] = fork();
                assert_true(children[i] >= 0);
                if (children[i] == 0) {
                        Socket self = SOCKET_NULL;
                        char *message, byte;
                        int r;

                        close(gate[1]);
                        close(hold[1]);
                        (void)!read(gate[0], &byte, 1);
                        r = socket_open(&self, path, 0600, &message);
                        /* The winner stays until all have tried. */
                        if (r == 0)
                                (void)!read(hold[0], &byte, 1);
                        _exit(r == 0 ? 0 : r == SOCKET_E_RUNNING ? 3 : 4);
                }
        }
        close(gate[1]);
        for (int i = 0, n_lost = 0; i < N; i++) {
                int status;
                pid_t pid;

                if (n_lost == N - 1) {
                        close(hold[1]);
                        hold[1] = -1;
                }
                pid = waitpid(-1, &status, 0);
                assert_true(pid > 0);
                assert_true(WIFEXITED(status));
                assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
                n_won += WEXITSTATUS(status) == 0;
                n_lost += WEXITSTATUS(status) == 3;
        }
        assert_int_equal(n_won, 1);
        close(gate[0]);
        close(hold[0]);
        try_open(0);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                SOCKET_TEST(test_open_and_close),
                SOCKET_TEST(test_second_is_told),
                SOCKET_TEST(test_e13_stale_socket_is_removed),
                SOCKET_TEST(test_e13_what_is_no_socket_stays),
                SOCKET_TEST(test_e13_a_foreign_listener_stays),
                SOCKET_TEST(test_d22_lock_that_is_not_ours),
                SOCKET_TEST(test_d22_directories_that_are_not_safe),
                SOCKET_TEST(test_paths_too_long),
                SOCKET_TEST(test_e13_twenty_at_once),
        };

        return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
