/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting the per-user foliod. Three processes: the caller's; a supervisor, its child, which leads a new session and
 * has nothing of ours open; and foliod, the supervisor's child, which init inherits when the supervisor ends. The
 * supervisor lives only until foliod has said that it is ready (a byte through the ready pipe) or has ended (the pipe
 * is at its end, and the supervisor, as its parent, learns the status), and reports one of SPAWN_E_* through another
 * pipe: the caller's own handling of SIGCHLD cannot come between.
 *
 * After fork() in a program with threads only calls that are safe in a signal handler are made: everything that needs
 * memory is prepared before. Which of many daemons wins is settled among them, not here.
 */
#include "client/lib/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"

#ifndef FOLIOD_PATH
#define FOLIOD_PATH "/usr/sbin/foliod"
#endif

#define SPAWN_STATUS_LOST 3          /* with which a foliod ends that found another in its place */
#define SPAWN_STATUS_NO_EXEC 127
#define SPAWN_GRACE_NS (UINT64_C(1000) * 1000 * 1000) /* for the supervisor to say that the time has passed */
#define SPAWN_FDS_MAX 65536          /* to close one by one, where the kernel has no close_range() */

enum {
        SPAWN_FD_READY_WRITE = 3,    /* of foliod: everything above is closed on exec */
        SPAWN_FD_READY_READ = 4,
        SPAWN_FD_REPORT = 5,
};

static_assert(SPAWN_FD_READY_WRITE == 3, "what argv says");

typedef struct SpawnPlan {
        char path[PATH_MAX];
        char *const *argv;
        char **envp;
        uint64_t deadline_ns;
        int ready[2];
        int report[2];
} SpawnPlan;

/* -- addresses ---------------------------------------------------------------------------------------------------- */

/* An empty variable is one that is not set; of a program with more rights than its caller, all are. */
static const char *spawn_getenv(const char *name)
{
        const char *value = secure_getenv(name);

        return value && *value ? value : NULL;
}

static bool spawn_copy_address(const char *path, SpawnAddress *ret)
{
        size_t n = strlen(path);

        if (n == 0 || n >= sizeof(ret->path))
                return false;
        memcpy(ret->path, path, n + 1);
        return true;
}

/* The user's directory for the socket, and the socket in it. False: too long. */
static bool spawn_name_user_address(SpawnAddress *ret_directory, SpawnAddress *ret)
{
        const char *runtime = spawn_getenv("XDG_RUNTIME_DIR");
        int n;

        if (runtime && *runtime == '/')
                n = snprintf(ret_directory->path, sizeof(ret_directory->path), "%s/folio", runtime);
        else
                n = snprintf(ret_directory->path, sizeof(ret_directory->path), "/tmp/folio-%u", (unsigned)geteuid());
        if (n < 0 || (size_t)n >= sizeof(ret_directory->path) ||
            (size_t)n + sizeof("/folio.sock") > sizeof(ret->path))
                return false;
        memcpy(ret->path, ret_directory->path, (size_t)n);
        memcpy(ret->path + n, "/folio.sock", sizeof("/folio.sock"));
        return true;
}

bool spawn_is_safe_directory(const char *path)
{
        struct stat st;

        return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

bool spawn_is_wanted(const char *address)
{
        return !address && !spawn_getenv("FOLIO_SOCKET");
}

size_t spawn_candidate_addresses(const char *address, SpawnAddress ret[SPAWN_ADDRESSES_MAX])
{
        const char *given = address ? address : spawn_getenv("FOLIO_SOCKET");
        SpawnAddress directory;
        size_t n = 0;

        if (given)
                return spawn_copy_address(given, &ret[0]) ? 1 : 0;
        /* No directory, no socket; and between this look and the connection nobody can put another in its place. */
        if (spawn_name_user_address(&directory, &ret[n]) && spawn_is_safe_directory(directory.path))
                n++;
        if (spawn_copy_address("/run/folio/folio.sock", &ret[n]))
                n++;
        return n;
}

bool spawn_find_user_address(SpawnAddress *ret)
{
        SpawnAddress directory, address;
        struct stat st;

        if (!spawn_name_user_address(&directory, &address))
                return false;
        /* Where it is missing, foliod makes it. */
        if (lstat(directory.path, &st) == 0 ? !spawn_is_safe_directory(directory.path) : errno != ENOENT)
                return false;
        *ret = address;
        return true;
}

void spawn_describe_directory(char *text, size_t n_text)
{
        const char *runtime = spawn_getenv("XDG_RUNTIME_DIR");
        SpawnAddress directory, address;
        struct stat st;

        text[0] = '\0';
        if (!spawn_name_user_address(&directory, &address))
                (void)snprintf(text, n_text, "the path in XDG_RUNTIME_DIR is too long for a socket: %.120s", runtime);
        else if (runtime && *runtime == '/' && stat(runtime, &st) < 0)
                (void)snprintf(text, n_text, "XDG_RUNTIME_DIR names %s: %s", runtime, strerror(errno));
        else if (lstat(directory.path, &st) < 0) {
                if (errno != ENOENT)
                        (void)snprintf(text, n_text, "%s: %s", directory.path, strerror(errno));
        } else if (!S_ISDIR(st.st_mode))
                (void)snprintf(text, n_text, "%s is no directory", directory.path);
        else if (st.st_uid != geteuid())
                (void)snprintf(text, n_text, "%s belongs to uid %u instead of %u", directory.path, (unsigned)st.st_uid,
                               (unsigned)geteuid());
        else if (st.st_mode & 077)
                (void)snprintf(text, n_text, "%s has mode %04o, which lets others in, instead of 0700", directory.path,
                               (unsigned)st.st_mode & 07777);
}

void spawn_describe_addresses(const char *address, char *text, size_t n_text)
{
        const char *given = address ? address : spawn_getenv("FOLIO_SOCKET");
        SpawnAddress directory, own;
        char wrong[256];

        if (given) {
                (void)snprintf(text, n_text, "%s%s", given, address ? "" : " (FOLIO_SOCKET)");
                return;
        }
        spawn_describe_directory(wrong, sizeof(wrong));
        if (!spawn_name_user_address(&directory, &own))
                (void)snprintf(text, n_text, "/run/folio/folio.sock (%s)", wrong);
        else
                (void)snprintf(text, n_text, "%s%s%s%s or /run/folio/folio.sock", own.path, *wrong ? " (" : "", wrong,
                               *wrong ? ")" : "");
}

/* -- finding foliod ----------------------------------------------------------------------------------------------- */

static bool spawn_is_program(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool spawn_find_beside(char ret[PATH_MAX])
{
        ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
        char *slash;

        if (n <= 0)
                return false;
        ret[n] = '\0';
        slash = strrchr(ret, '/');
        if (!slash || (size_t)(slash + 1 - ret) + sizeof("foliod") > PATH_MAX)
                return false;
        memcpy(slash + 1, "foliod", sizeof("foliod"));
        return spawn_is_program(ret);
}

static bool spawn_find_in_path(char ret[PATH_MAX])
{
        const char *at = spawn_getenv("PATH");

        while (at) {
                const char *end = strchrnul(at, ':');
                int n = snprintf(ret, PATH_MAX, "%.*s/foliod", (int)MIN(end - at, PATH_MAX), at);

                /* Not from the working directory, whoever owns that. */
                if (*at == '/' && n > 0 && n < PATH_MAX && spawn_is_program(ret))
                        return true;
                at = *end ? end + 1 : NULL;
        }
        return false;
}

static bool spawn_find_program(char ret[PATH_MAX])
{
        const char *given = spawn_getenv("FOLIO_DAEMON");

        if (given || spawn_is_program(FOLIOD_PATH)) {
                int n = snprintf(ret, PATH_MAX, "%s", given ? given : FOLIOD_PATH);

                return n > 0 && n < PATH_MAX && spawn_is_program(ret);
        }
        return spawn_find_beside(ret) || spawn_find_in_path(ret);
}

void spawn_describe_program(char *text, size_t n_text)
{
        const char *given = spawn_getenv("FOLIO_DAEMON");

        if (given)
                (void)snprintf(text, n_text, "FOLIO_DAEMON names %.120s, which is no program", given);
        else
                (void)snprintf(text, n_text, "there is no foliod to start at %s, beside this program or in PATH", FOLIOD_PATH);
}

/* What a service manager said to the caller's program, and not to foliod. */
static bool spawn_is_private_variable(const char *variable)
{
        static const char *const names[] = { "NOTIFY_SOCKET=", "LISTEN_", "WATCHDOG_", "FDSTORE=", "MAINPID=" };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strncmp(variable, names[i], strlen(names[i])) == 0)
                        return true;
        return false;
}

/* The environment for foliod: borrowed strings in a new array. */
static char **spawn_new_environment(void)
{
        size_t n = 0, n_kept = 0;
        char **envp;

        while (environ && environ[n])
                n++;
        envp = calloc(n + 1, sizeof(*envp));
        if (!envp)
                return NULL;
        for (size_t i = 0; i < n; i++)
                if (!spawn_is_private_variable(environ[i]))
                        envp[n_kept++] = environ[i];
        return envp;
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */

/* Until @fd can be read, or is at its end; false: not by the deadline. */
static bool spawn_wait_readable(int fd, uint64_t deadline_ns)
{
        for (;;) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                struct timespec ts;
                uint64_t now_ns, left_ms;
                int n;

                (void)clock_gettime(CLOCK_MONOTONIC, &ts);
                now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
                left_ms = now_ns >= deadline_ns ? 0 : (deadline_ns - now_ns - 1) / 1000000 + 1;
                n = poll(&p, 1, (int)MIN(left_ms, (uint64_t)INT_MAX));
                if (n > 0)
                        return true;
                if (n == 0 && left_ms <= (uint64_t)INT_MAX)
                        return false;
                if (n < 0 && errno != EINTR)
                        return false;
        }
}

static ssize_t spawn_read_byte(int fd, uint8_t *ret)
{
        ssize_t n;

        do
                n = read(fd, ret, 1);
        while (n < 0 && errno == EINTR);
        return n;
}

/* -- after fork() ------------------------------------------------------------------------------------------------- */

static void spawn_close_from(unsigned first)
{
#ifdef SYS_close_range
        if (syscall(SYS_close_range, first, ~0u, 0) == 0)
                return;
#endif
        for (int fd = (int)first; fd < SPAWN_FDS_MAX; fd++)
                (void)close(fd);
}

/* The standard three on /dev/null, ours in their places, nothing else. */
static bool spawn_arrange_fds(const SpawnPlan *plan)
{
        int from[] = { plan->ready[1], plan->ready[0], plan->report[1] };
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0)
                return false;
        /* Out of the way first: one may lie where another belongs. */
        for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
                from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 16);
                if (from[i] < 0)
                        return false;
        }
        null = fcntl(null, F_DUPFD_CLOEXEC, 16);
        if (null < 0)
                return false;
        for (int fd = 0; fd < 3; fd++)
                if (dup2(null, fd) < 0)
                        return false;
        for (size_t i = 0; i < ARRAY_SIZE(from); i++)
                if (dup3(from[i], SPAWN_FD_READY_WRITE + (int)i, O_CLOEXEC) < 0)
                        return false;
        spawn_close_from(SPAWN_FD_REPORT + 1);
        return true;
}

/* As a program finds them that was started from a terminal. Signals are still blocked when this is called. */
static void spawn_reset_signals(void)
{
        struct sigaction action = { .sa_handler = SIG_DFL };
        sigset_t none;

        sigemptyset(&action.sa_mask);
        for (int i = 1; i < NSIG; i++)
                (void)sigaction(i, &action, NULL); /* not those that have no other handling */
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static uint8_t spawn_await(pid_t pid, uint64_t deadline_ns)
{
        uint8_t byte;
        int status;

        if (!spawn_wait_readable(SPAWN_FD_READY_READ, deadline_ns))
                return SPAWN_E_TIMEOUT;
        if (spawn_read_byte(SPAWN_FD_READY_READ, &byte) == 1)
                return 0;
        /*
         * At its end: foliod has ended. Where it only closed the pipe, the caller's patience is the bound of this wait.
         */
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return SPAWN_E_FAILED;
        if (WIFEXITED(status) && WEXITSTATUS(status) == SPAWN_STATUS_LOST)
                return SPAWN_E_LOST;
        if (WIFEXITED(status) && WEXITSTATUS(status) == SPAWN_STATUS_NO_EXEC)
                return SPAWN_E_NOT_FOUND;
        return SPAWN_E_FAILED;
}

static _Noreturn void spawn_supervise(const SpawnPlan *plan)
{
        uint8_t outcome = SPAWN_E_FAILED;
        pid_t pid;

        (void)setsid(); /* cannot fail: a new child leads no group */
        spawn_reset_signals();
        if (!spawn_arrange_fds(plan) || chdir("/") < 0)
                _exit(1);
        pid = vfork();
        if (pid == 0) {
                (void)fcntl(SPAWN_FD_READY_WRITE, F_SETFD, 0);
                (void)execve(plan->path, plan->argv, plan->envp);
                _exit(SPAWN_STATUS_NO_EXEC);
        }
        (void)close(SPAWN_FD_READY_WRITE);
        if (pid > 0)
                outcome = spawn_await(pid, plan->deadline_ns);
        (void)!write(SPAWN_FD_REPORT, &outcome, 1); /* where nobody reads it any more nobody needs it */
        _exit(0);
}

/* -- starting ----------------------------------------------------------------------------------------------------- */

static int spawn_fork(const SpawnPlan *plan, pid_t *ret)
{
        sigset_t all, before;
        pid_t pid;
        int r;

        /* No handler of the caller's program may run in the child, which still has them for a moment. */
        sigfillset(&all);
        r = pthread_sigmask(SIG_SETMASK, &all, &before);
        if (r != 0)
                return -r;
        pid = fork();
        if (pid == 0)
                spawn_supervise(plan);
        r = pid < 0 ? -errno : 0;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r == 0)
                *ret = pid;
        return r;
}

/* What the supervisor reports. Takes it from the process table, whatever it does. */
static int spawn_collect(pid_t pid, int report_fd, uint64_t deadline_ns)
{
        uint64_t last_ns = deadline_ns > UINT64_MAX - SPAWN_GRACE_NS ? UINT64_MAX : deadline_ns + SPAWN_GRACE_NS;
        uint8_t outcome = SPAWN_E_TIMEOUT;

        if (!spawn_wait_readable(report_fd, last_ns))
                /* It has not closed the pipe, so it is there, and the pid is its. */
                (void)kill(pid, SIGKILL);
        else if (spawn_read_byte(report_fd, &outcome) != 1)
                outcome = SPAWN_E_FAILED;
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ; /* a program that waits for any child may have been faster: ECHILD */
        return outcome;
}

int spawn_daemon(uint64_t deadline_ns)
{
        static char *const argv[] = { (char *)"foliod", (char *)"--user", (char *)"--idle-exit", (char *)"60",
                                      (char *)"--ready-fd", (char *)"3", NULL };
        _cleanup_(cleanup_fd) int ready_read = -1, ready_write = -1, report_read = -1, report_write = -1;
        _cleanup_(cleanup_free) char **envp = NULL;
        SpawnPlan plan = { .argv = argv, .deadline_ns = deadline_ns };
        pid_t pid = -1;
        int r;

        if (!spawn_find_program(plan.path))
                return SPAWN_E_NOT_FOUND;
        plan.envp = envp = spawn_new_environment();
        if (!envp)
                return -ENOMEM;
        if (pipe2(plan.ready, O_CLOEXEC) < 0)
                return -errno;
        ready_read = plan.ready[0];
        ready_write = plan.ready[1];
        if (pipe2(plan.report, O_CLOEXEC) < 0)
                return -errno;
        report_read = plan.report[0];
        report_write = plan.report[1];
        r = spawn_fork(&plan, &pid);
        if (r < 0)
                return r;
        /* Only the other ends stay open, so that the end of each is seen. */
        ready_read = close_fd(ready_read);
        ready_write = close_fd(ready_write);
        report_write = close_fd(report_write);
        return spawn_collect(pid, report_read, deadline_ns);
}
