/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that keeps: this program is also what it starts. As the child it keeps some memory, checks what it finds
 * of it, and reports through a pipe; the test kills it, and asks it to end, and looks at what becomes of it.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/macro.h"
#include "daemon/service/keeper-process.h"
#include "daemon/service/keeper.h"
#include "daemon/service/log.h"

enum { PARKED = 40, DIRECT = 3, BLOCK_BYTES = 10000, WAIT_MS = 20000, REPORT_FD = 200 };

/* --- the child ---------------------------------------------------------------------------------------------------- */

typedef struct Report {
        pid_t pid;
        uint32_t n_told;
        uint32_t n_wrong;            /* of these: not byte by byte what was kept */
        uint32_t n_sockets;
} Report;

static Report report;

static void fill(uint8_t *bytes, uint64_t id)
{
        for (size_t i = 0; i < BLOCK_BYTES; i++)
                bytes[i] = (uint8_t)(i * (id + 3) + (i >> 8));
}

static void on_told(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept)
{
        uint8_t expected[BLOCK_BYTES], found[BLOCK_BYTES];

        fill(expected, record->id);
        report.n_told++;
        report.n_wrong += pread(consume_fd, found, sizeof(found), 0) != sizeof(found) ||
                          memcmp(expected, found, sizeof(found)) != 0;
        close(consume_fd);
}

static void keep_all(Keeper *keeper)
{
        for (uint64_t id = 0; id < PARKED + DIRECT; id++) {
                KeptRecord record = { .kind = id < PARKED ? KEPT_OWN : KEPT_INDEX, .id = id };
                uint8_t bytes[BLOCK_BYTES];
                int fd = memfd_create("kept", MFD_CLOEXEC);
                Kept *kept;

                fill(bytes, id);
                if (fd < 0 || write(fd, bytes, sizeof(bytes)) != sizeof(bytes) ||
                    keeper_keep(keeper, &record, fd, id >= PARKED, &kept) != 0)
                        _exit(90);
                close(fd);
        }
}

/* Somebody else than the child: nobody stores anything for it. */
static void send_as_a_stranger(void)
{
        pid_t pid = fork();

        if (pid == 0) {
                int fd = STDERR_FILENO;

                (void)sd_pid_notify_with_fds(0, 0, "FDSTORE=1\nFDNAME=stranger\nFDPOLL=0", &fd, 1);
                _exit(0);
        }
        if (pid < 0 || waitpid(pid, NULL, 0) != pid)
                _exit(91);
}

static void on_end(int number)
{
        _exit(number == SIGHUP ? 7 : 0);
}

/* As a daemon does it. @text: the number of the pipe, and what to do. */
static int child_main(int report_fd, const char *what)
{
        KeeperConfig config = { .n_stored_max = (unsigned)atoi(getenv("FDSTORE")) };
        uint64_t n_bad = 0;
        Keeper *keeper;

        if (keeper_process_of_child() != getppid())
                return 92;
        if (strncmp(what, "end", 3) == 0)
                return atoi(what + 3);
        if (strcmp(what, "abort") == 0)
                (void)raise(SIGKILL);
        if (strcmp(what, "deaf") != 0)
                (void)signal(SIGTERM, on_end);
        (void)signal(SIGUSR1, on_end);
        (void)signal(SIGHUP, on_end);
        if (keeper_new(&config, &keeper) != 0)
                return 93;
        for (int fd; (fd = keeper_take_socket(keeper)) >= 0; report.n_sockets++)
                close(fd);
        if (keeper_take_all(keeper, on_told, NULL, &n_bad) != 0 || n_bad != 0)
                return 94;
        if (report.n_told == 0)
                keep_all(keeper);
        send_as_a_stranger();
        if (sd_notify(0, "READY=1\nSTATUS=here") <= 0)
                return 95;
        report.pid = getpid();
        if (write(report_fd, &report, sizeof(report)) != sizeof(report))
                return 96;
        for (;;)
                (void)pause();
}

/* --- the test ----------------------------------------------------------------------------------------------------- */

typedef struct Fixture {
        pid_t pid;                   /* of the keeper */
        int reports;
        int ready;
        int log;
} Fixture;

static Fixture f;

static void run_keeper(const char *path, const char *what, int report_fd, int ready_fd, int log_fd)
{
        char number[16], ready[16];
        char *argv[] = { (char *)(uintptr_t)"test", (char *)(uintptr_t)"--keeper", number,
                         (char *)(uintptr_t)what, ready, NULL };

        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        /* What is stored is handed over at the low numbers. */
        report_fd = dup2(report_fd, REPORT_FD);
        (void)fcntl(ready_fd, F_SETFD, 0);
        (void)dup2(log_fd, STDERR_FILENO);
        (void)snprintf(number, sizeof(number), "%d", report_fd);
        (void)snprintf(ready, sizeof(ready), "%d", ready_fd);
        (void)execv(path, argv);
        _exit(97);
}

static void start_as(const char *path, const char *what)
{
        int reports[2], ready[2], log[2];

        assert_int_equal(pipe2(reports, O_CLOEXEC), 0);
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        assert_int_equal(pipe2(log, O_CLOEXEC), 0);
        f.pid = fork();
        assert_true(f.pid >= 0);
        if (f.pid == 0)
                run_keeper(path, what, reports[1], ready[1], log[1]);
        close(reports[1]);
        close(ready[1]);
        close(log[1]);
        f.reports = reports[0];
        f.ready = ready[0];
        f.log = log[0];
}

static void start(const char *what)
{
        start_as("/proc/self/exe", what);
}

/* The next child's. */
static Report await_report(void)
{
        struct pollfd wait = { .fd = f.reports, .events = POLLIN };
        Report next = { 0 };

        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        assert_int_equal(read(f.reports, &next, sizeof(next)), sizeof(next));
        return next;
}

static void await_whole(Report *ret)
{
        *ret = await_report();
        assert_int_equal(ret->n_told, PARKED + DIRECT);
        assert_int_equal(ret->n_wrong, 0);
        assert_int_equal(ret->n_sockets, 0);
}

static void await_ready(bool expected)
{
        struct pollfd wait = { .fd = f.ready, .events = POLLIN };
        char byte;

        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        assert_int_equal(read(f.ready, &byte, 1), expected ? 1 : 0);
}

static void await_log(const char *text)
{
        static char log[65536];
        size_t n = 0;

        while (!strstr(log, text)) {
                struct pollfd wait = { .fd = f.log, .events = POLLIN };
                ssize_t more = 0;

                if (poll(&wait, 1, WAIT_MS) == 1)
                        more = read(f.log, log + n, sizeof(log) - 1 - n);
                if (more <= 0)
                        fail_msg("'%s' is not in: %s", text, log);
                n += (size_t)more;
                log[n] = '\0';
        }
        memset(log, 0, sizeof(log));
}

static void await_end(int expected)
{
        int status;

        assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), expected);
        close(f.reports);
        close(f.ready);
        close(f.log);
}

static void stop(void)
{
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        await_end(0);
}

static void test_killed_50_times(void **state)
{
        Report before, now;

        start("stay");
        before = await_report();
        assert_int_equal(before.n_told, 0);
        await_ready(true);
        await_ready(false); /* and it is closed */
        for (unsigned i = 0; i < 50; i++) {
                assert_int_equal(kill(before.pid, SIGKILL), 0);
                await_whole(&now);
                assert_int_not_equal(now.pid, before.pid);
                before = now;
        }
        stop();
}

static void test_ends_in_order(void **state)
{
        Report child;

        start("stay");
        child = await_report();
        assert_int_equal(kill(child.pid, SIGTERM), 0);
        await_end(0);
}

/* Asked to end before it could listen to that, as one is that has just been started again. */
static void test_asked_too_early(void **state)
{
        start("deaf");
        (void)await_report();
        stop();
}

static void test_ends_before_it_was_ready(void **state)
{
        static const struct {
                const char *what;
                int status;
        } rows[] = { { "end0", 0 }, { "end1", 1 }, { "end2", 2 }, { "end3", 3 }, { "end42", 42 }, { "abort", 1 } };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                start(rows[i].what);
                await_ready(false);
                await_end(rows[i].status);
        }
}

/* With a status that is not 0, after it was ready. */
static void test_ends_in_disorder(void **state)
{
        Report child;

        start("stay");
        child = await_report();
        assert_int_equal(kill(f.pid, SIGHUP), 0); /* goes on to the child */
        await_log("foliod ended with status 7");
        await_whole(&child);
        stop();
}

static void test_started_again_for_an_upgrade(void **state)
{
        Report before, now;

        start("stay");
        before = await_report();
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(kill(f.pid, SIGUSR1), 0);
                await_whole(&now);
                assert_int_not_equal(now.pid, before.pid);
                before = now;
        }
        stop();
}

/* In the middle of an upgrade there is no program. */
static void test_program_is_not_there_for_a_while(void **state)
{
        char directory[] = "/tmp/test-keeper-XXXXXX", path[64], aside[64], command[256], self[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        Report child;

        assert_true(n > 0);
        self[n] = '\0';
        assert_non_null(mkdtemp(directory));
        snprintf(path, sizeof(path), "%s/program", directory);
        snprintf(aside, sizeof(aside), "%s/aside", directory);
        snprintf(command, sizeof(command), "cp '%.150s' %s", self, path);
        assert_int_equal(system(command), 0);
        start_as(path, "stay");
        child = await_report();
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(kill(child.pid, SIGKILL), 0);
        await_log("cannot run ");
        assert_int_equal(rename(aside, path), 0);
        await_whole(&child);
        stop();
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(directory), 0);
}

static void test_told_to_end_while_there_is_no_child(void **state)
{
        Report child;

        start("stay");
        child = await_report();
        /* Stopped, it cannot start another. */
        assert_int_equal(kill(f.pid, SIGSTOP), 0);
        assert_int_equal(waitpid(f.pid, NULL, WUNTRACED), f.pid);
        assert_int_equal(kill(child.pid, SIGKILL), 0);
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        assert_int_equal(kill(f.pid, SIGCONT), 0);
        {
                int status;

                assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
                assert_true(WIFEXITED(status));
                close(f.reports);
                close(f.ready);
                close(f.log);
        }
}

static void test_nobodys_child(void **state)
{
        char text[64];

        unsetenv("FOLIO_KEEPER");
        assert_int_equal(keeper_process_of_child(), 0);
        setenv("FOLIO_KEEPER", "systemd", 1);
        assert_int_equal(keeper_process_of_child(), 0);
        setenv("FOLIO_KEEPER", "process:1:2", 1);
        assert_int_equal(keeper_process_of_child(), 0);
        snprintf(text, sizeof(text), "process:17:%d", (int)getpid());
        setenv("FOLIO_KEEPER", text, 1);
        assert_int_equal(keeper_process_of_child(), 17);
        unsetenv("FOLIO_KEEPER");
}

/* One that served is back soon, however often it ends; one that cannot start is tried ever more seldom. */
static void test_delays(void **state)
{
        static const struct {
                unsigned n_quick;
                uint64_t ready_ms, unready_ms;
        } rows[] = {
                { 0, 5, 5 },        { 1, 10, 10 },      { 2, 20, 20 },          { 3, 40, 40 },
                { 4, 80, 80 },      { 5, 100, 160 },    { 6, 100, 320 },        { 9, 100, 2560 },
                { 10, 100, 4000 },  { 16, 100, 4000 },  { 1000, 100, 4000 },    { UINT_MAX, 100, 4000 },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(keeper_process_delay_ms(true, rows[i].n_quick), rows[i].ready_ms);
                assert_int_equal(keeper_process_delay_ms(false, rows[i].n_quick), rows[i].unready_ms);
        }
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_killed_50_times),
                UNIT_TEST(test_ends_in_order),
                UNIT_TEST(test_asked_too_early),
                UNIT_TEST(test_ends_before_it_was_ready),
                UNIT_TEST(test_ends_in_disorder),
                UNIT_TEST(test_started_again_for_an_upgrade),
                UNIT_TEST(test_program_is_not_there_for_a_while),
                UNIT_TEST(test_told_to_end_while_there_is_no_child),
                UNIT_TEST(test_nobodys_child),
                UNIT_TEST(test_delays),
        };

        log_configure(LOG_LEVEL_INFO, LOG_TARGET_STDERR);
        if (argc == 5 && strcmp(argv[1], "--keeper") == 0) {
                KeeperProcessConfig config = { argv, atoi(argv[4]), 64 };

                return keeper_process_of_child() > 0 ? child_main(atoi(argv[2]), argv[3]) : keeper_process_run(&config);
        }
        unsetenv("NOTIFY_SOCKET");
        return cmocka_run_group_tests(tests, NULL, NULL);
}
