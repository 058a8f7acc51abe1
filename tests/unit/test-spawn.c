/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses by environment, whose directory is safe, and starting a daemon: shell scripts play its part. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/spawn.h"
#include "tests/unit/harness.h"

#define SECOND UINT64_C(1000000000)

/* A fresh directory, which is also $FOLIO_TEST_DIR; nothing of the environment that addresses go by. */
static char directory[64];

static void setup_directory(void)
{
        static const char *const names[] = { "FOLIO_SOCKET", "XDG_RUNTIME_DIR", "FOLIO_DAEMON" };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                unsetenv(names[i]);
        snprintf(directory, sizeof(directory), "/tmp/folio-test-spawn-XXXXXX");
        assert_non_null(mkdtemp(directory));
        setenv("FOLIO_TEST_DIR", directory, 1);
}

static const char *in_directory(const char *name)
{
        static char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        return path;
}

static void remove_directory(void)
{
        static const char *const names[] = { "foliod", "facts", "fifo", "link", "folio", "lock", "file" };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (unlink(in_directory(names[i])) < 0)
                        (void)rmdir(in_directory(names[i]));
        assert_int_equal(rmdir(directory), 0);
}

static uint64_t in_ns(uint64_t ns)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec + ns;
}

/* -- addresses ---------------------------------------------------------------------------------------------------- */

static void test_given_addresses(void **state)
{
        static const struct {
                const char *address, *variable, *expected;
                bool is_wanted;
        } rows[] = {
                { "/a/b", NULL, "/a/b", false },     { "/a/b", "/c/d", "/a/b", false }, { NULL, "/c/d", "/c/d", false },
                { "relative", NULL, "relative", false }, { "", NULL, NULL, false },     { "", "/c/d", NULL, false },
        };
        SpawnAddress addresses[SPAWN_ADDRESSES_MAX];
        char longest[109];

        setup_directory();
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                if (rows[i].variable)
                        setenv("FOLIO_SOCKET", rows[i].variable, 1);
                else
                        unsetenv("FOLIO_SOCKET");
                assert_int_equal(spawn_candidate_addresses(rows[i].address, addresses), rows[i].expected ? 1 : 0);
                if (rows[i].expected)
                        assert_string_equal(addresses[0].path, rows[i].expected);
                assert_int_equal(spawn_is_wanted(rows[i].address), rows[i].is_wanted);
        }
        memset(longest, 'x', 108);
        longest[108] = '\0';
        assert_int_equal(spawn_candidate_addresses(longest, addresses), 0);
        longest[107] = '\0';
        assert_int_equal(spawn_candidate_addresses(longest, addresses), 1);
        assert_string_equal(addresses[0].path, longest);
        /* Empty is not set. */
        setenv("FOLIO_SOCKET", "", 1);
        assert_true(spawn_is_wanted(NULL));
        assert_true(spawn_candidate_addresses(NULL, addresses) >= 1);
        unsetenv("FOLIO_SOCKET");
        remove_directory();
}

static void test_runtime_directory(void **state)
{
        SpawnAddress addresses[SPAWN_ADDRESSES_MAX], own;
        char expected[128], deep[200], text[400];

        setup_directory();
        setenv("XDG_RUNTIME_DIR", directory, 1);
        snprintf(expected, sizeof(expected), "%s/folio/folio.sock", directory);
        /* Nothing there yet: nothing to try, but a place for one to come. */
        assert_int_equal(spawn_candidate_addresses(NULL, addresses), 1);
        assert_string_equal(addresses[0].path, "/run/folio/folio.sock");
        assert_true(spawn_find_user_address(&own));
        assert_string_equal(own.path, expected);
        assert_int_equal(mkdir(in_directory("folio"), 0700), 0);
        assert_int_equal(spawn_candidate_addresses(NULL, addresses), 2);
        assert_string_equal(addresses[0].path, expected);
        assert_string_equal(addresses[1].path, "/run/folio/folio.sock");
        assert_true(spawn_find_user_address(&own));
        /* Others may put a socket there. */
        assert_int_equal(chmod(in_directory("folio"), 0770), 0);
        assert_int_equal(spawn_candidate_addresses(NULL, addresses), 1);
        assert_string_equal(addresses[0].path, "/run/folio/folio.sock");
        assert_false(spawn_find_user_address(&own));
        spawn_describe_directory(text, sizeof(text));
        assert_non_null(strstr(text, "/folio has mode 0770"));
        spawn_describe_addresses(NULL, text, sizeof(text));
        assert_non_null(strstr(text, "has mode 0770"));
        assert_non_null(strstr(text, " or /run/folio/folio.sock"));
        assert_int_equal(chmod(in_directory("folio"), 0700), 0);
        spawn_describe_directory(text, sizeof(text));
        assert_string_equal(text, "");
        spawn_describe_addresses("/given", text, sizeof(text));
        assert_string_equal(text, "/given");
        /* Too long for a socket: the system's is left. */
        memset(deep, 'd', sizeof(deep));
        deep[0] = '/';
        deep[108 - sizeof("/folio/folio.sock") + 1] = '\0';
        setenv("XDG_RUNTIME_DIR", deep, 1);
        assert_false(spawn_find_user_address(&own));
        assert_int_equal(spawn_candidate_addresses(NULL, addresses), 1);
        deep[108 - sizeof("/folio/folio.sock")] = '\0';
        setenv("XDG_RUNTIME_DIR", deep, 1);
        assert_true(spawn_find_user_address(&own));
        assert_int_equal(strlen(own.path), 107);
        /* Without the variable, or with one that is no absolute path. */
        snprintf(expected, sizeof(expected), "/tmp/folio-%u/folio.sock", (unsigned)geteuid());
        setenv("XDG_RUNTIME_DIR", "run", 1);
        if (spawn_find_user_address(&own))
                assert_string_equal(own.path, expected);
        unsetenv("XDG_RUNTIME_DIR");
        if (spawn_find_user_address(&own))
                assert_string_equal(own.path, expected);
        remove_directory();
}

static void test_safe_directories(void **state)
{
        setup_directory();
        assert_true(spawn_is_safe_directory(directory));
        assert_false(spawn_is_safe_directory(in_directory("missing")));
        for (unsigned bit = 1; bit <= 040; bit <<= 1) {
                assert_int_equal(chmod(directory, 0700 | bit), 0);
                assert_false(spawn_is_safe_directory(directory));
        }
        assert_int_equal(chmod(directory, 0700), 0);
        assert_int_equal(symlink(directory, in_directory("link")), 0);
        assert_false(spawn_is_safe_directory(in_directory("link")));
        assert_int_equal(close(open(in_directory("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
        assert_false(spawn_is_safe_directory(in_directory("file")));
        assert_false(spawn_is_safe_directory(""));
        if (geteuid() == 0) {
                assert_int_equal(chown(directory, 65534, 65534), 0);
                assert_false(spawn_is_safe_directory(directory));
                assert_int_equal(chown(directory, 0, 0), 0);
        } else {
                assert_false(spawn_is_safe_directory("/root"));
        }
        remove_directory();
}

/* -- starting ----------------------------------------------------------------------------------------------------- */

/* The script that is foliod from now on. */
static void be_daemon(const char *script, unsigned mode)
{
        int fd = open(in_directory("foliod"), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, script, strlen(script)), strlen(script));
        assert_int_equal(fchmod(fd, mode), 0);
        close(fd);
        setenv("FOLIO_DAEMON", in_directory("foliod"), 1);
}

static void read_facts(char ret[4096])
{
        FILE *file = fopen(in_directory("facts"), "re");
        size_t n;

        assert_non_null(file);
        n = fread(ret, 1, 4095, file);
        ret[n] = '\0';
        fclose(file);
}

static void assert_no_child(void)
{
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
}

static void test_outcomes(void **state)
{
        static const struct {
                const char *script;
                unsigned mode;
                int outcome;
        } rows[] = {
                { "#!/bin/sh\nprintf x >&3\n", 0700, 0 },
                { "#!/bin/sh\nprintf xyz >&3\n", 0700, 0 },
                { "#!/bin/sh\nexit 3\n", 0700, SPAWN_E_LOST },
                { "#!/bin/sh\nexit 0\n", 0700, SPAWN_E_FAILED },
                { "#!/bin/sh\nexit 1\n", 0700, SPAWN_E_FAILED },
                { "#!/bin/sh\nkill -KILL $$\n", 0700, SPAWN_E_FAILED },
                { "#!/bin/sh\nexec 3>&-\nexit 3\n", 0700, SPAWN_E_LOST },
                { "#!/nowhere/sh\n", 0700, SPAWN_E_NOT_FOUND },
                { "", 0700, SPAWN_E_NOT_FOUND },
                { "#!/bin/sh\nprintf x >&3\n", 0600, SPAWN_E_NOT_FOUND },
        };

        setup_directory();
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                be_daemon(rows[i].script, rows[i].mode);
                assert_int_equal(spawn_daemon(in_ns(60 * SECOND)), rows[i].outcome);
                assert_no_child();
        }
        setenv("FOLIO_DAEMON", in_directory("missing"), 1);
        assert_int_equal(spawn_daemon(in_ns(60 * SECOND)), SPAWN_E_NOT_FOUND);
        setenv("FOLIO_DAEMON", directory, 1);
        assert_int_equal(spawn_daemon(in_ns(60 * SECOND)), SPAWN_E_NOT_FOUND);
        unsetenv("FOLIO_DAEMON");
        remove_directory();
}

static const char script_facts[] =
        "#!/bin/sh\n"
        "{\n"
        "echo \"args: $*\"\n"
        "echo \"cwd: $(readlink /proc/$$/cwd)\"\n"
        "echo \"stdin: $(readlink /proc/$$/fd/0)\"\n"
        "echo \"stderr: $(readlink /proc/$$/fd/2)\"\n"
        "for i in 4 5 16 17 18 19 200 201; do [ -e /proc/$$/fd/$i ] && echo \"open: $i\"; done\n"
        "grep -E '^Sig(Ign|Blk)' /proc/$$/status | tr '\\t' ' '\n"
        "echo \"session: $(cut -d ' ' -f 6 /proc/$$/stat)\"\n"
        "env | grep -E '^(NOTIFY_SOCKET|LISTEN_FDS|FOLIO_TEST_KEPT)='\n"
        "} > \"$FOLIO_TEST_DIR/facts\"\n"
        "printf x >&3\n";

static void test_what_the_daemon_finds(void **state)
{
        struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
        sigset_t blocked, mask;
        char facts[4096];
        int fd;
        long session = -1;

        setup_directory();
        be_daemon(script_facts, 0700);
        setenv("NOTIFY_SOCKET", "/run/notify", 1);
        setenv("LISTEN_FDS", "1", 1);
        setenv("FOLIO_TEST_KEPT", "yes", 1);
        /* Inherited by anything that is not careful. */
        fd = open("/dev/zero", O_RDONLY);
        assert_int_equal(dup2(fd, 200), 200);
        assert_int_equal(dup2(fd, 201), 201);
        sigaction(SIGUSR1, &ignore, &before);
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR2);
        pthread_sigmask(SIG_BLOCK, &blocked, &mask);
        assert_int_equal(spawn_daemon(in_ns(60 * SECOND)), 0);
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        assert_true(sigismember(&blocked, SIGUSR2));
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        sigaction(SIGUSR1, &before, NULL);
        close(fd);
        close(200);
        close(201);
        read_facts(facts);
        assert_non_null(strstr(facts, "args: --user --idle-exit 60 --ready-fd 3\n"));
        assert_non_null(strstr(facts, "cwd: /\n"));
        assert_non_null(strstr(facts, "stdin: /dev/null\n"));
        assert_non_null(strstr(facts, "stderr: /dev/null\n"));
        assert_null(strstr(facts, "open: "));
        assert_non_null(strstr(facts, "SigBlk: 0000000000000000\n"));
        assert_non_null(strstr(facts, "SigIgn: 0000000000000000\n"));
        assert_non_null(strstr(facts, "FOLIO_TEST_KEPT=yes\n"));
        assert_null(strstr(facts, "NOTIFY_SOCKET"));
        assert_null(strstr(facts, "LISTEN_FDS"));
        assert_int_equal(sscanf(strstr(facts, "session: "), "session: %ld", &session), 1);
        assert_true(session > 0 && session != getsid(0));
        assert_no_child();
        remove_directory();
}

/* With the standard three closed, and so the pipes in their places. */
static void test_low_descriptors(void **state)
{
        int saved[3];

        setup_directory();
        be_daemon(script_facts, 0700);
        for (int i = 0; i < 3; i++)
                assert_true((saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 100)) >= 100);
        for (int i = 0; i < 3; i++)
                close(i);
        int r = spawn_daemon(in_ns(60 * SECOND));
        for (int i = 0; i < 3; i++) {
                dup2(saved[i], i);
                close(saved[i]);
        }
        assert_int_equal(r, 0);
        remove_directory();
}

static void on_child(int number)
{
        int before = errno;

        (void)number;
        while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
        errno = before;
}

/* A program that collects every child itself does not take the answer away. */
static void test_programs_that_reap(void **state)
{
        static const struct sigaction rows[] = {
                { .sa_handler = SIG_IGN },
                { .sa_handler = on_child },
                { .sa_handler = on_child, .sa_flags = SA_RESTART },
        };
        struct sigaction before;

        setup_directory();
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                sigaction(SIGCHLD, &rows[i], &before);
                be_daemon("#!/bin/sh\nexit 3\n", 0700);
                int lost = spawn_daemon(in_ns(60 * SECOND));
                be_daemon("#!/bin/sh\nprintf x >&3\n", 0700);
                int ready = spawn_daemon(in_ns(60 * SECOND));
                sigaction(SIGCHLD, &before, NULL);
                assert_int_equal(lost, SPAWN_E_LOST);
                assert_int_equal(ready, 0);
        }
        remove_directory();
}

/* Lets a script go on that reads from the fifo; waits until it is there. */
static void release_script(void)
{
        int fd = open(in_directory("fifo"), O_WRONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        close(fd);
}

static void test_deadline(void **state)
{
        setup_directory();
        assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
        be_daemon("#!/bin/sh\nread line < \"$FOLIO_TEST_DIR/fifo\"\n", 0700);
        assert_int_equal(spawn_daemon(in_ns(SECOND / 50)), SPAWN_E_TIMEOUT);
        assert_no_child();
        release_script();
        /* One that neither says that it is ready nor ends: given up a second later. */
        be_daemon("#!/bin/sh\nexec 3>&-\nread line < \"$FOLIO_TEST_DIR/fifo\"\n", 0700);
        assert_int_equal(spawn_daemon(in_ns(SECOND / 50)), SPAWN_E_TIMEOUT);
        assert_no_child();
        release_script();
        remove_directory();
}

static void *spawn_one(void *userdata)
{
        atomic_uint *counts = userdata;
        int r = spawn_daemon(in_ns(60 * SECOND));

        atomic_fetch_add(&counts[r >= 0 && r <= SPAWN_E_TIMEOUT ? r : SPAWN_E_FAILED], 1);
        return NULL;
}

static void test_many_at_once(void **state)
{
        enum { N = 20 };
        atomic_uint counts[SPAWN_E_TIMEOUT + 1] = { 0 };
        pthread_t threads[N];

        setup_directory();
        be_daemon("#!/bin/sh\nmkdir \"$FOLIO_TEST_DIR/lock\" || exit 3\nprintf x >&3\n", 0700);
        for (unsigned i = 0; i < N; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, spawn_one, counts), 0);
        for (unsigned i = 0; i < N; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(counts[0], 1);
        assert_int_equal(counts[SPAWN_E_LOST], N - 1);
        assert_no_child();
        remove_directory();
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_given_addresses),
                UNIT_TEST(test_runtime_directory),
                UNIT_TEST(test_safe_directories),
                UNIT_TEST(test_outcomes),
                UNIT_TEST(test_what_the_daemon_finds),
                UNIT_TEST(test_low_descriptors),
                UNIT_TEST(test_programs_that_reap),
                UNIT_TEST(test_deadline),
                UNIT_TEST(test_many_at_once),
        };

        return cmocka_run_group_tests_name("spawn", tests, NULL, NULL);
}
