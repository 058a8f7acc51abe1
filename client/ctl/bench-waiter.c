/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-waiter.h. */
#include "client/ctl/bench-waiter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/bench-count.h"

/* A waiter that takes longer than this is not coming. */
#define WAIT_NS_MAX UINT64_C(20000000000)
/* So long it is looked whether they sleep; on a machine without /proc, or a busy one, it is done without that. */
#define ASLEEP_NS_MAX UINT64_C(1000000000)
/* From when a poller has begun to wait until it certainly looks for the first time. */
#define POLLING_NS UINT64_C(50000)
#define SLOTS_BYTES (BENCH_WAITERS_MAX * sizeof(BenchWaiterSlot))

/* In memory that both have; of one waiter. */
struct BenchWaiterSlot {
        atomic_uint turn; /* told; waited at by the waiter */
        atomic_uint n_entered; /* the turn it is about to wait in */
        atomic_uint n_done; /* the turn it has had; waited at by us. What follows is written before. */
        uint32_t kind, number;
        int error;
        uint64_t time_ns, cpu_ns;
};

/* 0: it is another value; -ETIMEDOUT. */
static int wait_while(atomic_uint *word, unsigned value, uint64_t timeout_ns)
{
        uint64_t begun_ns = bench_now_ns();

        while (atomic_load(word) == value) {
                const struct timespec pause = { .tv_sec = 1 };

                if (bench_now_ns() - begun_ns > timeout_ns)
                        return -ETIMEDOUT;
                (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &pause, NULL, 0);
        }
        return 0;
}

static void set_and_wake(atomic_uint *word, unsigned value)
{
        atomic_store(word, value);
        (void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* --- in a waiter -------------------------------------------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
        struct timespec used;

        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        return (uint64_t)used.tv_sec * UINT64_C(1000000000) + (uint64_t)used.tv_nsec;
}

/* Never returns: it is ended by us, or with us. */
static void run_waiter(BenchWaiterSlot *slot, const BenchWaiting *waiting, unsigned index, pid_t parent)
{
        uint32_t turn = 0;
        int r;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        r = waiting->open ? waiting->open(waiting->argument, index) : 0;
        for (;;) {
                uint64_t begun_ns;

                slot->error = r;
                set_and_wake(&slot->n_done, turn + 1);
                while (wait_while(&slot->turn, turn, WAIT_NS_MAX) < 0)
                        ;
                turn = atomic_load(&slot->turn);
                begun_ns = cpu_ns();
                atomic_store(&slot->n_entered, turn);
                r = waiting->wait(waiting->argument, index, slot->kind, slot->number, &slot->time_ns);
                slot->cpu_ns = cpu_ns() - begun_ns;
        }
}

/* --- in the process that measures --------------------------------------------------------------------------------- */

/* What it was told last is done, without an error. */
static int wait_for_turn(BenchWaiters *waiters)
{
        int r = 0;

        for (unsigned i = 0; i < waiters->n_waiters; i++) {
                BenchWaiterSlot *slot = &waiters->slots[i];
                int r_one = wait_while(&slot->n_done, waiters->turn, WAIT_NS_MAX);

                if (r_one == 0)
                        r_one = slot->error;
                r = r < 0 ? r : r_one;
        }
        return r;
}

static int begin_waiter(BenchWaiters *waiters, const BenchWaiting *waiting)
{
        unsigned index = waiters->n_waiters;
        pid_t pid, parent = getpid();
        char path[48];

        fflush(NULL);
        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                run_waiter(&waiters->slots[index], waiting, index, parent);
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        waiters->pids[index] = pid;
        waiters->stat_fds[index] = open(path, O_RDONLY | O_CLOEXEC);
        waiters->n_waiters++;
        return 0;
}

int bench_waiters_init(BenchWaiters *waiters, unsigned n_waiters, const BenchWaiting *waiting)
{
        int r = 0;

        *waiters = (BenchWaiters){ .is_polling = waiting->is_polling };
        waiters->slots = mmap(NULL, SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (waiters->slots == MAP_FAILED) {
                waiters->slots = NULL;
                return -errno;
        }
        while (r == 0 && waiters->n_waiters < n_waiters)
                r = begin_waiter(waiters, waiting);
        return r < 0 ? r : wait_for_turn(waiters);
}

/* "4711 (name) S ..."; a name can hold anything. */
static char state_of(int fd)
{
        char line[512];
        ssize_t n = fd < 0 ? -1 : pread(fd, line, sizeof(line) - 1, 0);
        const char *end;

        if (n <= 0)
                return '?';
        line[n] = '\0';
        end = strrchr(line, ')');
        return end && end[1] == ' ' ? end[2] : '?';
}

static bool is_waiting(const BenchWaiters *waiters, unsigned index)
{
        if (atomic_load(&waiters->slots[index].n_entered) != waiters->turn)
                return false;
        return waiters->is_polling || state_of(waiters->stat_fds[index]) == 'S';
}

int bench_waiters_expect(BenchWaiters *waiters, uint32_t kind, uint32_t number)
{
        uint64_t begun_ns = bench_now_ns();

        waiters->turn++;
        for (unsigned i = 0; i < waiters->n_waiters; i++) {
                waiters->slots[i].kind = kind;
                waiters->slots[i].number = number;
                set_and_wake(&waiters->slots[i].turn, waiters->turn);
        }
        for (unsigned i = 0; i < waiters->n_waiters; i++)
                while (!is_waiting(waiters, i) && bench_now_ns() - begun_ns < ASLEEP_NS_MAX)
                        (void)sched_yield();
        begun_ns = bench_now_ns();
        while (waiters->is_polling && bench_now_ns() - begun_ns < POLLING_NS)
                (void)sched_yield();
        return 0;
}

int bench_waiters_collect(BenchWaiters *waiters, BenchWaited *ret)
{
        BenchWaited waited = { .first_ns = UINT64_MAX };
        int r = wait_for_turn(waiters);

        if (r < 0)
                return r;
        for (unsigned i = 0; i < waiters->n_waiters; i++) {
                const BenchWaiterSlot *slot = &waiters->slots[i];

                waited.first_ns = slot->time_ns < waited.first_ns ? slot->time_ns : waited.first_ns;
                waited.last_ns = slot->time_ns > waited.last_ns ? slot->time_ns : waited.last_ns;
                waited.cpu_ns += slot->cpu_ns;
        }
        *ret = waited;
        return 0;
}

void bench_waiters_deinit(BenchWaiters *waiters)
{
        for (unsigned i = 0; i < waiters->n_waiters; i++)
                (void)kill(waiters->pids[i], SIGKILL);
        for (unsigned i = 0; i < waiters->n_waiters; i++) {
                while (waitpid(waiters->pids[i], NULL, 0) < 0 && errno == EINTR)
                        ;
                if (waiters->stat_fds[i] >= 0)
                        (void)close(waiters->stat_fds[i]);
        }
        if (waiters->slots)
                (void)munmap(waiters->slots, SLOTS_BYTES);
        *waiters = (BenchWaiters){ 0 };
}
