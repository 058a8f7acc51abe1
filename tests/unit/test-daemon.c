/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as a whole, in a child: it says when it is ready, serves, reads its settings again, ends when told or when
 * it is of no use, and says what is wrong when it cannot start.
 */
#include "harness.h"
#include "urgent-pair.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/daemon.h"
#include "daemon/service/log.h"
#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/status.h"

#define WAIT_MS 20000

typedef struct Fixture {
        char directory[64];
        char path[96];
        char file[96];
        char root[96];               /* of the files that tell of the machine; empty: the machine's own */
        int pressure_fd;             /* -1: the kernel's */
        pid_t pid;
        int log_fd;                  /* what it wrote to stderr */
        char log[16384];
        size_t n_log;
} Fixture;

static Fixture f;

static int setup(void **state)
{
        harness_setup(state);
        f = (Fixture){ .log_fd = -1, .pressure_fd = -1 };
        snprintf(f.directory, sizeof(f.directory), "/tmp/test-daemon-XXXXXX");
        if (!mkdtemp(f.directory))
                return -1;
        snprintf(f.path, sizeof(f.path), "%s/s", f.directory);
        snprintf(f.file, sizeof(f.file), "%s/conf", f.directory);
        return 0;
}

static int teardown(void **state)
{
        char command[128];

        if (f.pid > 0) {
                kill(f.pid, SIGKILL);
                waitpid(f.pid, NULL, 0);
        }
        if (f.log_fd >= 0)
                close(f.log_fd);
        snprintf(command, sizeof(command), "rm -rf %s", f.directory);
        if (system(command) != 0)
                return -1;
        return harness_teardown(state);
}

#define DAEMON_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static void put_file(const char *text)
{
        FILE *stream = fopen(f.file, "we");

        assert_non_null(stream);
        fputs(text, stream);
        assert_int_equal(fclose(stream), 0);
}

/* As main() does it; 100 more than its outcome, to be told from a crash. */
static void run_child(const char *option, int ready_fd)
{
        char ready[32], socket_option[128], config_option[128];
        char *argv[] = { (char *)(uintptr_t)"foliod", socket_option, config_option, ready, (char *)(uintptr_t)"--user",
                         (char *)(uintptr_t)"--objects-max=4096", (char *)(uintptr_t)"--log-target=stderr",
                         (char *)(uintptr_t)option, NULL };
        Config config = CONFIG_NULL;
        Daemon *daemon;
        char *message = NULL;
        int argc = option ? 8 : 7, r;

        snprintf(ready, sizeof(ready), "--ready-fd=%d", ready_fd);
        snprintf(socket_option, sizeof(socket_option), "--socket=%s", f.path);
        snprintf(config_option, sizeof(config_option), "--config=%s", f.file);
        r = config_read(&config, argc, argv, &message);
        if (r != 0) {
                fprintf(stderr, "%s\n", message);
                _exit(99);
        }
        config.host_root = f.root;
        config.pressure_fd = f.pressure_fd;
        r = daemon_new(&config, argc, argv, &daemon);
        config_deinit(&config);
        if (r == 0) {
                r = daemon_run(daemon);
                daemon_free(daemon);
        }
        _exit(100 + r);
}

/* True: it is ready. False: it has ended. */
static bool start(const char *option)
{
        int ready[2], log[2];
        bool is_ready;
        char byte;

        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        assert_int_equal(pipe2(log, O_CLOEXEC), 0);
        f.pid = fork();
        assert_true(f.pid >= 0);
        if (f.pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                dup2(log[1], STDERR_FILENO);
                close(ready[0]);
                close(log[0]);
                run_child(option, ready[1]);
        }
        close(ready[1]);
        close(log[1]);
        f.log_fd = log[0];
        is_ready = read(ready[0], &byte, 1) == 1;
        close(ready[0]);
        return is_ready;
}

/* Reads its log until @text is in it. */
static void wait_for_log(const char *text)
{
        while (!strstr(f.log, text)) {
                struct pollfd wait = { .fd = f.log_fd, .events = POLLIN };
                ssize_t n;

                if (poll(&wait, 1, WAIT_MS) != 1)
                        fail_msg("'%s' is not in: %s", text, f.log);
                n = read(f.log_fd, f.log + f.n_log, sizeof(f.log) - 1 - f.n_log);
                if (n <= 0)
                        fail_msg("'%s' is not in: %s", text, f.log);
                f.n_log += (size_t)n;
        }
}

static void wait_for_end(int expected)
{
        int status;

        assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
        f.pid = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 100 + expected)
                fail_msg("status 0x%x; %s", status, f.log);
        assert_int_equal(access(f.path, F_OK), -1);
        close(f.log_fd);
        f.log_fd = -1;
}

static int connect_client(void)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f.path);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* The reply's status; STATUS_CANCELLED: no reply. @ret_budget: of a HELLO. */
static uint32_t ask(int fd, ProtoVerb verb, uint64_t *ret_budget)
{
        ProtoRequest request = { .id = 7, .verb = verb };
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        ProtoDecoder *decoder;
        ProtoReply reply;
        size_t n_bytes, n_fds = 0;
        uint32_t status = STATUS_CANCELLED;
        int fds[4];

        if (verb == VERB_HELLO)
                request.version_min = request.version_max = 1;
        assert_true(proto_encode_request(&request, bytes, &n_bytes));
        if (channel_send(fd, bytes, n_bytes, NULL, 0) != CHANNEL_OK || poll(&wait, 1, WAIT_MS) != 1 ||
            channel_receive(fd, bytes, sizeof(bytes), &n_bytes, fds, 4, &n_fds, NULL) != CHANNEL_OK)
                return status;
        assert_int_equal(proto_decoder_new(&decoder), 0);
        assert_true(proto_decode_reply(decoder, bytes, n_bytes, &reply));
        status = reply.status;
        if (ret_budget)
                *ret_budget = reply.budget_bytes;
        proto_decoder_free(decoder);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        return status;
}

static void test_serves_until_it_is_told(void **state)
{
        int fd;

        put_file("[memory]\nbudget = 64M\n[namespace one]\nquota = 1M\n");
        assert_true(start(NULL));
        wait_for_log("is ready: socket ");
        wait_for_log("budget 64 MiB\n");
        wait_for_log("foliod: info: memory: ");
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, NULL), STATUS_OK);
        assert_int_equal(ask(fd, VERB_PING, NULL), STATUS_OK);
        assert_int_equal(ask(fd, VERB_STATUS, NULL), STATUS_OK);
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        wait_for_end(0);
        assert_int_not_equal(ask(fd, VERB_PING, NULL), STATUS_OK);
        close(fd);
}

static void test_reads_settings_again(void **state)
{
        uint64_t budget = 0;
        int fd;

        put_file("[memory]\nbudget = 64M\n");
        assert_true(start(NULL));
        put_file("[memory]\nbudget = 96M\nevents = 64\n[namespace new]\nmode = 0700\n");
        assert_int_equal(kill(f.pid, SIGHUP), 0);
        wait_for_log("read again; the budget is 96 MiB");
        wait_for_log("events has changed; that takes a restart");
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, &budget), STATUS_OK);
        assert_int_equal(budget, 96 * MIB);
        put_file("[memory]\nbudgte = 1M\n");
        assert_int_equal(kill(f.pid, SIGHUP), 0);
        wait_for_log("settings stay as they are: ");
        assert_int_equal(ask(fd, VERB_PING, NULL), STATUS_OK);
        assert_int_equal(kill(f.pid, SIGINT), 0);
        wait_for_end(0);
        close(fd);
}

static void test_ends_when_of_no_use(void **state)
{
        int fd;

        put_file("[memory]\nbudget = 64M\n");
        assert_true(start("--idle-exit=1"));
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, NULL), STATUS_OK);
        close(fd);
        wait_for_log("empty and unused for 1 s");
        wait_for_end(0);
}

static void test_second_daemon(void **state)
{
        pid_t first;
        int first_log;

        put_file("[memory]\nbudget = 64M\n");
        assert_true(start(NULL));
        first = f.pid;
        first_log = f.log_fd;
        assert_false(start(NULL));
        wait_for_log("not started: another foliod has ");
        {
                int status;

                assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
                assert_int_equal(WEXITSTATUS(status), 100 + DAEMON_E_RUNNING);
                close(f.log_fd);
        }
        f.pid = first;
        f.log_fd = first_log;
        f.n_log = 0;
        memset(f.log, 0, sizeof(f.log));
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        wait_for_end(0);
}

static void test_what_is_in_the_way_is_told(void **state)
{
        put_file("[memory]\nbudget = 64M\n");
        assert_int_equal(mkdir(f.path, 0700), 0);
        assert_false(start(NULL));
        wait_for_log("cannot start: ");
        wait_for_log("is no socket; it stays");
        assert_int_equal(rmdir(f.path), 0);
        wait_for_end(DAEMON_E_FAILED);
}

/* A12: more than there is, is not promised. */
static void test_a12_budget_is_clamped(void **state)
{
        uint64_t budget = 0;
        int fd;

        put_file("[memory]\nbudget = 1048576T\npool = 0\n");
        assert_true(start(NULL));
        wait_for_log("is more than there is: ");
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, &budget), STATUS_OK);
        assert_true(budget < UINT64_C(1) << 50);
        close(fd);
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        wait_for_end(0);
}

/* E01: the soft limit is raised; more connections than descriptors end nothing, and it is well afterwards. */
static void test_e01_few_descriptors(void **state)
{
        struct rlimit before, tight = { 32, 64 };
        int fds[100], first, last;

        put_file("[memory]\nbudget = 64M\n");
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        first = fork(); /* a hard limit cannot be raised again but by root: in a process of its own */
        assert_true(first >= 0);
        if (first == 0) {
                int n_ok = 0;

                if (!start(NULL) || prlimit(f.pid, RLIMIT_NOFILE, &tight, NULL) < 0)
                        _exit(1);
                for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                        fds[i] = connect_client();
                for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                        n_ok += i < 4 && ask(fds[i], VERB_HELLO, NULL) == STATUS_OK;
                        close(fds[i]);
                }
                last = connect_client();
                for (int i = 0; i < 50 && ask(last, VERB_HELLO, NULL) != STATUS_OK; i++) {
                        close(last);
                        last = connect_client();
                }
                if (ask(last, VERB_PING, NULL) != STATUS_OK)
                        _exit(2);
                kill(f.pid, SIGTERM);
                if (waitpid(f.pid, &n_ok, 0) != f.pid || WEXITSTATUS(n_ok) != 100)
                        _exit(3);
                _exit(0);
        }
        assert_int_equal(waitpid(first, &last, 0), first);
        assert_int_equal(last, 0);
}

/* --- the machine's memory -------------------------------------------------------------------------------------------- */

/* UINT64_MAX: no such fact. */
static uint64_t ask_fact(int fd, const char *name)
{
        ProtoRequest request = { .id = 8, .verb = VERB_STATUS };
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        uint64_t value = UINT64_MAX;
        size_t n_bytes, n_fds = 0;
        ProtoDecoder *decoder;
        ProtoReply reply;
        int fds[4];

        assert_true(proto_encode_request(&request, bytes, &n_bytes));
        assert_int_equal(channel_send(fd, bytes, n_bytes, NULL, 0), CHANNEL_OK);
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        assert_int_equal(channel_receive(fd, bytes, sizeof(bytes), &n_bytes, fds, 4, &n_fds, NULL), CHANNEL_OK);
        assert_int_equal(proto_decoder_new(&decoder), 0);
        assert_true(proto_decode_reply(decoder, bytes, n_bytes, &reply));
        for (size_t i = 0; i < reply.n_facts; i++)
                if (reply.facts[i].name.n_bytes == strlen(name) &&
                    memcmp(reply.facts[i].name.bytes, name, strlen(name)) == 0)
                        value = reply.facts[i].value;
        proto_decoder_free(decoder);
        return value;
}

/* It has nobody to tell: asked again and again, for a bounded time. */
static void wait_for_fact(int fd, const char *name, uint64_t least)
{
        for (unsigned i = 0; ask_fact(fd, name) < least; i++) {
                if (i == WAIT_MS)
                        fail_msg("%s stays below %llu", name, (unsigned long long)least);
                (void)poll(NULL, 0, 1);
        }
}

static void test_pressure_empties_the_pool(void **state)
{
        int urgent[2], fd;

        put_file("[memory]\nbudget = 64M\npool = 8M\n");
        urgent_pair_make(urgent);
        f.pressure_fd = urgent[1];
        assert_true(start(NULL));
        close(urgent[1]);
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, NULL), STATUS_OK);
        wait_for_fact(fd, "pool.blank", 1);
        assert_int_equal(ask_fact(fd, "pressure.events"), 0);
        assert_int_equal(send(urgent[0], "!", 1, MSG_OOB), 1);
        wait_for_log("the machine is short of memory");
        assert_true(ask_fact(fd, "pressure.events") > 0);
        assert_int_equal(ask_fact(fd, "pool.blank"), 0);
        assert_in_range(ask_fact(fd, "pool.drained_bytes"), HUGE_BYTES, 8 * MIB);
        close(fd);
        close(urgent[0]);
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        wait_for_end(0);
}

static void put_host_file(const char *path, const char *text)
{
        char full[PATH_MAX];
        FILE *file;

        snprintf(full, sizeof(full), "%s%s", f.root, path);
        for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                (void)mkdir(full, 0700);
                *slash = '/';
        }
        file = fopen(full, "we");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);
}

static void make_host(void)
{
        snprintf(f.root, sizeof(f.root), "%s/root", f.directory);
        put_host_file("/proc/meminfo", "MemTotal:       16777216 kB\n");
        put_host_file("/proc/self/cgroup", "0::/job\n");
        put_host_file("/proc/self/mountinfo", "30 22 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
        put_host_file("/cg/job/memory.max", "104857600\n");
        put_host_file("/cg/job/memory.current", "1000000\n");
}

/* What was left to the daemon follows the limit of the cgroup, and of those above it; down, up, and away. */
static void test_the_budget_follows_the_limit(void **state)
{
        uint64_t budget = 0;
        int fd;

        make_host();
        put_file("");
        assert_true(start(NULL));
        wait_for_log("memory pressure cannot be watched");
        wait_for_log("budget 80 MiB\n");
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, NULL), STATUS_OK);
        assert_int_equal(ask_fact(fd, "memory.limit_bytes"), 100 * MIB);
        put_host_file("/cg/memory.max", "52428800\n");
        wait_for_log("limit of memory has changed; the budget is now 40 MiB");
        assert_int_equal(ask_fact(fd, "memory.budget_bytes"), 40 * MIB);
        close(fd);
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, &budget), STATUS_OK);
        assert_int_equal(budget, 40 * MIB);
        put_host_file("/cg/memory.max", "max\n");
        wait_for_log("the budget is now 80 MiB");
        close(fd);
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        wait_for_end(0);
}

/* What was asked for comes back when the limit allows it; SIGHUP looks at once; the pool stays away from the limit. */
static void test_a_budget_that_was_given_is_clamped_for_as_long_as_need_be(void **state)
{
        int fd;

        make_host();
        put_file("[memory]\nbudget = 64M\npool = 8M\n");
        assert_true(start(NULL));
        fd = connect_client();
        assert_int_equal(ask(fd, VERB_HELLO, NULL), STATUS_OK);
        wait_for_fact(fd, "pool.blank", 1);
        put_host_file("/cg/job/memory.high", "41943040\n");
        put_host_file("/cg/job/memory.current", "41000000\n");
        assert_int_equal(kill(f.pid, SIGHUP), 0);
        wait_for_log("read again; the budget is 32 MiB");
        assert_int_equal(ask_fact(fd, "pool.blank"), 0);
        put_host_file("/cg/job/memory.current", "1000000\n");
        put_host_file("/cg/job/memory.high", "max\n");
        wait_for_log("the budget is now 64 MiB");
        wait_for_fact(fd, "pool.blank", 1);
        close(fd);
        assert_int_equal(kill(f.pid, SIGTERM), 0);
        wait_for_end(0);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                DAEMON_TEST(test_serves_until_it_is_told),
                DAEMON_TEST(test_reads_settings_again),
                DAEMON_TEST(test_ends_when_of_no_use),
                DAEMON_TEST(test_second_daemon),
                DAEMON_TEST(test_what_is_in_the_way_is_told),
                DAEMON_TEST(test_a12_budget_is_clamped),
                DAEMON_TEST(test_e01_few_descriptors),
                DAEMON_TEST(test_pressure_empties_the_pool),
                DAEMON_TEST(test_the_budget_follows_the_limit),
                DAEMON_TEST(test_a_budget_that_was_given_is_clamped_for_as_long_as_need_be),
        };

        return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
