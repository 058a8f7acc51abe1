/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: a command with a store of its own, which is there when the command begins and gone when it has ended. Its status
 * is the command's: 128 and the number where a signal ended it, 127 where there is no such command.
 *
 * Signals are waited for, not handled: blocked from before the store starts, so that none is lost between the fork and
 * the wait, and given back to the command as they were. What came from a terminal has reached the command already, being of the same
 * process group; what a process sent to us alone is passed on.
 */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "client/ctl/private.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

#define STATUS_NOT_FOUND 127
#define STATUS_NOT_RUNNABLE 126
#define STATUS_SIGNAL 128

enum {
        RUN_BUDGET = 1,
};

static const CtlOption options[] = {
        { RUN_BUDGET, 0, "budget", "SIZE", "how much memory the private store may take" },
        { 0 },
};

static void watched_signals(sigset_t *ret)
{
        sigemptyset(ret);
        sigaddset(ret, SIGINT);
        sigaddset(ret, SIGTERM);
        sigaddset(ret, SIGHUP);
        sigaddset(ret, SIGQUIT);
        sigaddset(ret, SIGCHLD);
}

/* In the child: never returns. */
static void become_command(char **argv, const char *socket_path, const sigset_t *mask)
{
        int error;

        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        if (setenv("FOLIO_SOCKET", socket_path, 1) < 0)
                _exit(STATUS_NOT_RUNNABLE);
        execvp(argv[0], argv);
        error = errno;
        fprintf(stderr, "folioctl: cannot run %s: %s\n", argv[0], strerror(error));
        _exit(error == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUNNABLE);
}

/* Takes what has ended; true when that was the command, with its status. */
static bool reap(Ctl *ctl, Private *private, pid_t command, int *ret_status)
{
        bool is_over = false;
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                if (pid == command) {
                        *ret_status = WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
                        is_over = true;
                } else if (pid == private->pid) {
                        private->pid = 0;
                        if (WIFSIGNALED(status))
                                ctl_note(ctl,
                                         "the private foliod was ended by signal %d; the command goes on without it",
                                         WTERMSIG(status));
                        else
                                ctl_note(ctl, "the private foliod ended with status %d; the command goes on without it",
                                         WEXITSTATUS(status));
                }
        }
        return is_over;
}

static int run_command(Ctl *ctl, Private *private, char **argv, const sigset_t *watched, const sigset_t *before)
{
        siginfo_t info;
        int status = 0;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        if (pid < 0)
                return ctl_complain(ctl, "cannot start another process: %s", strerror(errno));
        if (pid == 0)
                become_command(argv, private->socket_path, before);
        for (;;) {
                int signal_number = sigwaitinfo(watched, &info);

                if (signal_number == SIGCHLD && reap(ctl, private, pid, &status))
                        return status;
                if (signal_number > 0 && signal_number != SIGCHLD && info.si_code != SI_KERNEL)
                        (void)kill(pid, signal_number);
        }
}

static int run_run(Ctl *ctl)
{
        _ctl_cleanup_(private_end) Private private = PRIVATE_NULL;
        const char *argument;
        sigset_t watched, before;
        uint64_t budget_bytes = 0;
        int id, r;

        while ((id = ctl_next_option(ctl, &argument)) > 0)
                if (!ctl_take_size(ctl, "--budget", argument, &budget_bytes))
                        return ctl->status;
        if (id < 0 || !ctl_check_arguments(ctl, 1, 1 << 30))
                return ctl->status;
        if (ctl->socket_path)
                return ctl_usage_error(ctl, "it makes a socket of its own; --socket has no place here");
        /* From here on nothing ends us before the daemon and its directory are gone. */
        watched_signals(&watched);
        (void)sigprocmask(SIG_BLOCK, &watched, &before);
        (void)signal(SIGCHLD, SIG_DFL);
        r = private_start(ctl, &private, budget_bytes);
        return r == CTL_OK ? run_command(ctl, &private, ctl->arguments, &watched, &before) : r;
}

const CtlVerb verb_run = {
        .name = "run",
        .usage = "[--] COMMAND [ARGUMENT...]",
        .summary = "run a command with a private store, which ends with it",
        .options = options,
        .is_command = true,
        .run = run_run,
};
