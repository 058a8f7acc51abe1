/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-child.h. */
#include "client/ctl/bench-child.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

typedef struct Report {
        int error;
        BenchSample sample;
} Report;

int bench_child_run(int (*work)(void *argument, BenchSample *sample), void *argument, BenchSample *ret)
{
        Report report = { 0 };
        int sockets[2];
        ssize_t n;
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
                return -errno;
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                /* It holds as much memory as we do: it is not to outlive us. */
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                report.error = work(argument, &report.sample);
                (void)send(sockets[1], &report, sizeof(report), MSG_NOSIGNAL);
                _exit(0);
        }
        (void)close(sockets[1]);
        n = pid < 0 ? -1 : recv(sockets[0], &report, sizeof(report), MSG_WAITALL);
        (void)close(sockets[0]);
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        if (n != sizeof(report))
                return -ECHILD;
        if (report.error == 0) {
                *ret = report.sample;
                ret->is_taken = true;
        }
        return report.error;
}
