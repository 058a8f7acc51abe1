/* SPDX-License-Identifier: Apache-2.0 */
/* See private.h. */
#include "client/ctl/private.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define READY_FD 3
#define START_MS_MAX 30000
#define DAEMON_STATUS_SETTINGS 2 /* with which foliod says that it was asked wrongly */
/* A daemon that gives much memory back may take a while; one that takes longer is stuck. */
#define END_MS_MAX 20000

static bool is_program(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool find_beside(char ret[PATH_MAX])
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
        return is_program(ret);
}

static bool find_in_path(char ret[PATH_MAX])
{
        const char *path = getenv("PATH");

        while (path && *path) {
                size_t n = strcspn(path, ":");
                int length = snprintf(ret, PATH_MAX, "%.*s/foliod", (int)n, path);

                /* Absolute ones only: what lies in the working directory may be anybody's. */
                if (*path == '/' && length > 0 && length < PATH_MAX && is_program(ret))
                        return true;
                path += n + (path[n] == ':');
        }
        return false;
}

/* As libfolio looks for it, in the same order. */
static int find_program(Ctl *ctl, char ret[PATH_MAX])
{
        const char *given = getenv("FOLIO_DAEMON");

        if (given && *given) {
                if (snprintf(ret, PATH_MAX, "%s", given) < PATH_MAX && is_program(ret))
                        return CTL_OK;
                (void)ctl_complain(ctl, "cannot start foliod: FOLIO_DAEMON names '%s', which is no program", given);
                return CTL_NO_DAEMON;
        }
        if (snprintf(ret, PATH_MAX, "%s", CTL_FOLIOD_PATH) < PATH_MAX && is_program(ret))
                return CTL_OK;
        if (find_beside(ret) || find_in_path(ret))
                return CTL_OK;
        (void)ctl_complain(ctl,
                           "cannot start foliod: it is not at %s, not beside folioctl and not in PATH; "
                           "FOLIO_DAEMON can say where it is",
                           CTL_FOLIOD_PATH);
        return CTL_NO_DAEMON;
}

static int make_directory(Ctl *ctl, Private *private)
{
        const char *runtime = getenv("XDG_RUNTIME_DIR");

        for (unsigned i = 0; i < 2; i++) {
                const char *parent = i == 0 ? runtime : "/tmp";

                if (!parent || *parent != '/')
                        continue;
                if (asprintf(&private->directory, "%s/folio-run-XXXXXX", parent) < 0) {
                        private->directory = NULL;
                        return ctl_out_of_memory(ctl);
                }
                /* The path of a socket must fit into its address; a long XDG_RUNTIME_DIR may leave no room. */
                if (strlen(private->directory) + sizeof("/sock") <= sizeof(((struct sockaddr_un *)0)->sun_path) &&
                    mkdtemp(private->directory)) {
                        if (asprintf(&private->socket_path, "%s/sock", private->directory) < 0) {
                                private->socket_path = NULL;
                                return ctl_out_of_memory(ctl);
                        }
                        return CTL_OK;
                }
                free(private->directory);
                private->directory = NULL;
        }
        return ctl_complain(ctl, "cannot make a directory for the private foliod in $XDG_RUNTIME_DIR or /tmp: %s",
                            strerror(errno));
}

/*
 * In the child: never returns. A file of settings, and a keeper, are for the store that lasts; this one is the same
 * everywhere, and ends with the command.
 */
static void become_daemon(const char *program, const Private *private, uint64_t budget_bytes, int ready_fd,
                          pid_t parent)
{
        const char *argv[] = { "foliod",     "--user", "--config",    "/dev/null", "--socket", private->socket_path,
                               "--ready-fd", "3",      "--log-level", "warning",   "--keeper", "none",
                               NULL,         NULL,     NULL };
        char budget[24];
        sigset_t none;

        if (budget_bytes) {
                snprintf(budget, sizeof(budget), "%llu", (unsigned long long)budget_bytes);
                argv[12] = "--budget";
                argv[13] = budget;
        }
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)setpgid(0, 0);
        /* kill -9 of folioctl must not leave a daemon that nobody knows. */
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
                _exit(CTL_NO_DAEMON);
        if (ready_fd == READY_FD ? fcntl(ready_fd, F_SETFD, 0) < 0 : dup2(ready_fd, READY_FD) < 0)
                _exit(CTL_NO_DAEMON);
        execv(program, (char *const *)(uintptr_t)argv);
        fprintf(stderr, "folioctl: cannot run %s: %s\n", program, strerror(errno));
        _exit(CTL_NO_DAEMON);
}

/* It has hung up before it was ready. Wrong settings can only be ours: what was asked for. */
static int take_failure(Ctl *ctl, Private *private, const char *program)
{
        int status = 0;
        pid_t pid = waitpid(private->pid, &status, WNOHANG);

        /* Its end of the pipe closes on its way out: a moment before it can be waited for. */
        for (unsigned i = 0; pid == 0 && i < 200; i++) {
                (void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
                pid = waitpid(private->pid, &status, WNOHANG);
        }
        if (pid != 0)
                private->pid = 0;
        if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == DAEMON_STATUS_SETTINGS)
                return CTL_USAGE;
        (void)ctl_complain(ctl, "cannot start foliod: %s did not come up; what it says above is the reason", program);
        return CTL_NO_DAEMON;
}

/* True when the daemon says that clients can connect; false when it ended before that, or takes too long. */
static bool await_ready(int ready_fd)
{
        struct pollfd poll_fd = { .fd = ready_fd, .events = POLLIN };
        char byte;
        int n;

        do
                n = poll(&poll_fd, 1, START_MS_MAX);
        while (n < 0 && errno == EINTR);
        return n == 1 && read(ready_fd, &byte, 1) == 1;
}

int private_start(Ctl *ctl, Private *private, uint64_t budget_bytes)
{
        _ctl_cleanup_(ctl_cleanup_fd) int read_fd = -1;
        char program[PATH_MAX];
        int fds[2], r = find_program(ctl, program);
        pid_t self = getpid(), pid;

        if (r == CTL_OK)
                r = make_directory(ctl, private);
        if (r != CTL_OK)
                return r;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return ctl_complain(ctl, "cannot make a pipe: %s", strerror(errno));
        read_fd = fds[0];
        fflush(NULL);
        pid = fork();
        if (pid == 0)
                become_daemon(program, private, budget_bytes, fds[1], self);
        (void)close(fds[1]);
        if (pid < 0)
                return ctl_complain(ctl, "cannot start another process: %s", strerror(errno));
        private->pid = pid;
        return await_ready(read_fd) ? CTL_OK : take_failure(ctl, private, program);
}

/* Has it ended by then? SIGCHLD is not ours to wait for here: others may have taken it. */
static bool await_end(pid_t pid, unsigned ms_max)
{
        const struct timespec pause = { .tv_nsec = 5000000 };

        for (unsigned n_ms = 0; n_ms <= ms_max; n_ms += 5) {
                pid_t r = waitpid(pid, NULL, WNOHANG);

                if (r == pid || (r < 0 && errno != EINTR))
                        return true;
                (void)nanosleep(&pause, NULL);
        }
        return false;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *place)
{
        (void)st;
        (void)type;
        (void)place;
        /* What cannot be removed stays: there is nobody to tell at the end. */
        (void)remove(path);
        return 0;
}

void private_end(Private *private)
{
        if (private->pid > 0) {
                (void)kill(private->pid, SIGTERM);
                if (!await_end(private->pid, END_MS_MAX)) {
                        (void)kill(private->pid, SIGKILL);
                        (void)waitpid(private->pid, NULL, 0);
                }
        }
        if (private->directory)
                (void)nftw(private->directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        free(private->socket_path);
        free(private->directory);
        *private = (Private)PRIVATE_NULL;
}
