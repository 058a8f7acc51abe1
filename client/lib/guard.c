/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guard lives on the stack of its call and is linked from a word of the thread, which the handler reads: no lock, no
 * memory, nothing that a signal handler may not do. The word is in the thread's static block (initial-exec), since the
 * other way of finding it may allocate, and costs a call.
 *
 * The handler leaves by a jump that restores no signal mask: SA_NODEFER and an empty sa_mask keep it as it was at the
 * load. GCC's own jump costs a fraction of sigsetjmp(), but the sanitizers have to see the jump to keep their books,
 * clang's crashed where the function has no frame pointer, and other machines' compilers do not all have it.
 */
#include "client/lib/guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GUARD_THREADS_ARE_WATCHED 1
#endif
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define GUARD_MEMORY_IS_WATCHED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define GUARD_THREADS_ARE_WATCHED 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define GUARD_MEMORY_IS_WATCHED 1
#endif

/* Sanitizers look after the stack at a jump that they know, so not at the compiler's own. */
#if defined(GUARD_THREADS_ARE_WATCHED)
/* This one calls the handler from one of its own, which blocks all signals: so the mask is kept, by a system call. */
typedef sigjmp_buf GuardPlace;
#define GUARD_SET(place) sigsetjmp(place, 1)
#define GUARD_JUMP(place) siglongjmp(place, 1)
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(GUARD_MEMORY_IS_WATCHED)
/* Five words, by the compiler's manual. */
typedef void *GuardPlace[5];
#define GUARD_SET(place) __builtin_setjmp(place)
#define GUARD_JUMP(place) __builtin_longjmp(place, 1)
#else
typedef sigjmp_buf GuardPlace;
#define GUARD_SET(place) sigsetjmp(place, 0)
#define GUARD_JUMP(place) siglongjmp(place, 1)
#endif

/* Not every C library can load a library that says so later than at its start; glibc keeps some room for it. */
#if defined(__GLIBC__)
#define GUARD_TLS __attribute__((tls_model("initial-exec")))
#else
#define GUARD_TLS
#endif

typedef struct Guard Guard;

struct Guard {
        uintptr_t from;
        size_t n_bytes;
        Guard *outer;
        GuardPlace place;
};

static _Thread_local Guard *guard_innermost GUARD_TLS;

static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static atomic_bool guard_is_installed;
static struct sigaction guard_before;
static atomic_bool guard_before_is_spent; /* it asked for SA_RESETHAND, and has been called */

/* Raised by the kernel for a load or store that would be made again if the handler returned. */
static bool is_synchronous(const siginfo_t *info)
{
        return info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
}

/* Does what @info tells of touch the guarded range? A poisoned page is told by its first byte and its size. */
static bool is_in_range(const Guard *guard, const siginfo_t *info)
{
        uintptr_t first = (uintptr_t)info->si_addr, last = first;

        if (info->si_code <= 0 || info->si_code == SI_KERNEL)
                return false;
        if ((info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO) && info->si_addr_lsb > 0 &&
            info->si_addr_lsb < 8 * (int)sizeof(uintptr_t)) {
                uintptr_t mask = ((uintptr_t)1 << info->si_addr_lsb) - 1;

                first &= ~mask;
                last = first | mask;
        }
        return last >= guard->from && first <= guard->from + (guard->n_bytes - 1);
}

/* As if nobody had handled it: a synchronous one comes again at once; another is sent again, as it was. */
static void die_of(const siginfo_t *info)
{
        struct sigaction action = { .sa_handler = SIG_DFL };

        (void)sigaction(SIGBUS, &action, NULL);
        if (is_synchronous(info))
                return;
        if (syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), SIGBUS, info) < 0)
                (void)raise(SIGBUS);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
        const struct sigaction *before = &guard_before;
        bool has_handler =
                (before->sa_flags & SA_SIGINFO) || (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN);
        sigset_t blocked = before->sa_mask;

        /* The kernel lets no load that fails be ignored. */
        if (!has_handler && before->sa_handler == SIG_IGN && !is_synchronous(info))
                return;
        if (!has_handler ||
            ((before->sa_flags & (int)SA_RESETHAND) && atomic_exchange(&guard_before_is_spent, true))) {
                die_of(info);
                return;
        }
        /* Our return, or its own jump, takes this back. */
        if (!(before->sa_flags & SA_NODEFER))
                (void)sigaddset(&blocked, SIGBUS);
        (void)pthread_sigmask(SIG_BLOCK, &blocked, NULL);
        if (before->sa_flags & SA_SIGINFO)
                before->sa_sigaction(number, info, context);
        else
                before->sa_handler(number);
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
        Guard *guard = guard_innermost;

        if (guard && is_in_range(guard, info))
                GUARD_JUMP(guard->place);
        pass_on(number, info, context);
}

static void install(void)
{
        struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };
        struct sigaction found;

        /* Asked for first: another thread's may come between the change and its answer. */
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(SIGBUS, NULL, &guard_before) == 0 && sigaction(SIGBUS, &action, &found) == 0)
                guard_before = found;
        atomic_store_explicit(&guard_is_installed, true, memory_order_release);
}

/*
 * Not inlined: what a jump back leaves undefined is then these few variables, of which the second half uses only
 * memory that nothing wrote after the place was set.
 */
__attribute__((noinline)) int guard_call(GuardedFn copy, void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        Guard guard;

        if (n_bytes == 0)
                return 0;
        if (UNLIKELY(!atomic_load_explicit(&guard_is_installed, memory_order_acquire)))
                (void)pthread_once(&guard_once, install);
        guard.from = (uintptr_t)from;
        guard.n_bytes = n_bytes;
        guard.outer = guard_innermost;
        if (GUARD_SET(guard.place) != 0) {
                guard_innermost = guard_innermost->outer;
                return -EIO;
        }
        atomic_signal_fence(memory_order_seq_cst);
        guard_innermost = &guard;
        atomic_signal_fence(memory_order_seq_cst);
        copy(to, from, n_bytes, n_ahead);
        atomic_signal_fence(memory_order_seq_cst);
        guard_innermost = guard.outer;
        return 0;
}
