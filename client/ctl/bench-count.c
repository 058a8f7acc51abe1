/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-count.h. */
#include "client/ctl/bench-count.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

/* A traced system call takes some 10 us: what makes more than these is not waited for. */
#define CALLS_MAX 20000u
/* A harmless system call with arguments that nobody else gives it: where counting begins, and ends. */
#define MARK_BEGIN 0x666f6c01ul
#define MARK_END 0x666f6c02ul

/* --- time, faults, misses ----------------------------------------------------------------------------------------- */

uint64_t bench_now_ns(void)
{
        struct timespec now;

        /* Cannot fail for this clock. */
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t count_faults(void)
{
        struct rusage usage;

        return getrusage(RUSAGE_THREAD, &usage) < 0 ? 0 : (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

void bench_counter_init(BenchCounter *counter)
{
        struct perf_event_attr attributes = {
                .type = PERF_TYPE_HW_CACHE,
                .size = sizeof(attributes),
                .config = PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                          PERF_COUNT_HW_CACHE_RESULT_MISS << 16,
                .exclude_kernel = 1,
                .exclude_hv = 1,
        };

        counter->misses_fd = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void bench_counter_deinit(BenchCounter *counter)
{
        if (counter->misses_fd >= 0)
                (void)close(counter->misses_fd);
        counter->misses_fd = -1;
}

static uint64_t count_misses(const BenchCounter *counter)
{
        uint64_t n;

        if (counter->misses_fd < 0 || read(counter->misses_fd, &n, sizeof(n)) != sizeof(n))
                return BENCH_UNKNOWN;
        return n;
}

void bench_counter_begin(BenchCounter *counter, BenchSample *sample)
{
        sample->is_taken = false;
        sample->n_tlb_misses = count_misses(counter);
        sample->n_faults = count_faults();
        sample->time_ns = bench_now_ns();
}

void bench_counter_end(BenchCounter *counter, BenchSample *sample)
{
        uint64_t now_ns = bench_now_ns(), n_misses;

        if (sample->is_taken)
                return;
        sample->time_ns = now_ns - sample->time_ns;
        sample->n_faults = count_faults() - sample->n_faults;
        n_misses = count_misses(counter);
        if (n_misses == BENCH_UNKNOWN || sample->n_tlb_misses == BENCH_UNKNOWN)
                sample->n_tlb_misses = BENCH_UNKNOWN;
        else
                sample->n_tlb_misses = n_misses - sample->n_tlb_misses;
}

/* --- system calls ------------------------------------------------------------------------------------------------- */

static bool is_mark(const struct __ptrace_syscall_info *info, unsigned long mark)
{
        return info->entry.nr == SYS_getppid && info->entry.args[0] == mark;
}

/* The tracee is stopped and goes on; its next stop, or false when it is gone. A signal is passed on. */
static bool step(pid_t pid, int *ret_status)
{
        int signal_number = 0;

        if (WIFSTOPPED(*ret_status) && WSTOPSIG(*ret_status) != (SIGTRAP | 0x80) && *ret_status >> 16 == 0)
                signal_number = WSTOPSIG(*ret_status);
        if (ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal_number) < 0)
                return false;
        while (waitpid(pid, ret_status, __WALL) < 0)
                if (errno != EINTR)
                        return false;
        return WIFSTOPPED(*ret_status);
}

/* From the stop in @status on: how many calls the tracee makes between the marks. */
static uint64_t count_calls(pid_t pid, int status)
{
        struct __ptrace_syscall_info info;
        bool is_counting = false;
        uint64_t n = 0;

        while (step(pid, &status)) {
                if (WSTOPSIG(status) != (SIGTRAP | 0x80))
                        continue;
                if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) < 0)
                        return BENCH_UNKNOWN;
                if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
                        continue;
                if (is_mark(&info, MARK_BEGIN))
                        is_counting = true;
                else if (is_mark(&info, MARK_END))
                        return n;
                else if (is_counting && ++n > CALLS_MAX)
                        return BENCH_UNKNOWN;
        }
        return BENCH_UNKNOWN;
}

/* In the child: never returns. */
static void trace_parent(pid_t parent, int fd)
{
        uint64_t n = BENCH_UNKNOWN;
        bool is_tracing;
        int status = 0;
        char go;

        /* The parent lets itself be traced by this child first. */
        if (read(fd, &go, 1) != 1)
                _exit(1);
        is_tracing = ptrace(PTRACE_SEIZE, parent, NULL, (void *)PTRACE_O_TRACESYSGOOD) == 0 &&
                     ptrace(PTRACE_INTERRUPT, parent, NULL, NULL) == 0;
        while (is_tracing && waitpid(parent, &status, __WALL) < 0)
                is_tracing = errno == EINTR;
        if (send(fd, &is_tracing, sizeof(is_tracing), MSG_NOSIGNAL) < 0 || !is_tracing)
                _exit(1);
        n = count_calls(parent, status);
        (void)ptrace(PTRACE_DETACH, parent, NULL, NULL);
        (void)send(fd, &n, sizeof(n), MSG_NOSIGNAL);
        _exit(0);
}

static void end_child(BenchTracer *tracer)
{
        (void)close(tracer->fd);
        tracer->fd = -1;
        while (tracer->pid > 0 && waitpid(tracer->pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

void bench_tracer_begin(BenchTracer *tracer)
{
        pid_t parent = getpid();
        bool is_tracing = false;
        int sockets[2];

        *tracer = (BenchTracer){ .fd = -1 };
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
                return;
        tracer->pid = fork();
        if (tracer->pid == 0) {
                (void)close(sockets[0]);
                trace_parent(parent, sockets[1]);
        }
        (void)close(sockets[1]);
        tracer->fd = sockets[0];
        /* Where Yama is, only those may trace us that we name; elsewhere this fails, and nothing is amiss. */
        if (tracer->pid > 0)
                (void)prctl(PR_SET_PTRACER, (unsigned long)tracer->pid, 0, 0, 0);
        if (tracer->pid > 0 && send(tracer->fd, "", 1, MSG_NOSIGNAL) == 1 &&
            recv(tracer->fd, &is_tracing, sizeof(is_tracing), MSG_WAITALL) == sizeof(is_tracing) && is_tracing) {
                (void)syscall(SYS_getppid, MARK_BEGIN);
                return;
        }
        end_child(tracer);
}

uint64_t bench_tracer_end(BenchTracer *tracer)
{
        uint64_t n = BENCH_UNKNOWN;

        if (tracer->fd < 0)
                return n;
        (void)syscall(SYS_getppid, MARK_END);
        if (recv(tracer->fd, &n, sizeof(n), MSG_WAITALL) != sizeof(n))
                n = BENCH_UNKNOWN;
        end_child(tracer);
        return n;
}
