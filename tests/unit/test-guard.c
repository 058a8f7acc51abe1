/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard, on memory that truly raises SIGBUS: a mapped file that was cut short. The guard takes over the signal
 * once in a process, and cmocka catches it anew in every test: each runs in a child of its own.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/copy-kernels.h"
#include "client/lib/guard.h"
#include "tests/unit/harness.h"
#include "tests/unit/child.h"

/* The thread sanitizer calls handlers from one of its own, which blocks all signals, SIGBUS too. */
#define HANDLERS_BLOCK_ALL 0
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#undef HANDLERS_BLOCK_ALL
#define HANDLERS_BLOCK_ALL 1
#endif
#endif

enum { N_PAGE = 4096, N_PAGES = 16, N_BYTES = N_PAGE * N_PAGES };

/* N_PAGES of which the first @n_good are there: all ones. NULL where it cannot be had. */
static uint8_t *map_short(unsigned n_good)
{
        int fd = memfd_create("short", MFD_CLOEXEC);
        uint8_t *bytes = MAP_FAILED;

        if (fd >= 0 && ftruncate(fd, N_BYTES) == 0)
                bytes = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (bytes != MAP_FAILED) {
                memset(bytes, 1, N_BYTES);
                if (ftruncate(fd, (off_t)n_good * N_PAGE) < 0) {
                        munmap(bytes, N_BYTES);
                        bytes = MAP_FAILED;
                }
        }
        if (fd >= 0)
                close(fd);
        return bytes == MAP_FAILED ? NULL : bytes;
}

static void copy_plain(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        memcpy(to, from, n_bytes);
}

static int guard_good(void)
{
        uint8_t from[8] = { 7 }, to[8] = { 0 };
        int r = guard_call(copy_plain, to, from, sizeof(to), 0);

        return r == 0 && to[0] == 7 ? 0 : -1;
}

static int load(const uint8_t *byte)
{
        return *(const volatile uint8_t *)byte;
}

/* --- what is not ours; each in a child --- */

static sigjmp_buf jump_place;
static void *volatile seen_address;
static volatile sig_atomic_t n_seen, seen_mask_usr1, seen_mask_bus, seen_code;

static void note(void)
{
        sigset_t mask;

        n_seen++;
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        seen_mask_usr1 = sigismember(&mask, SIGUSR1);
        seen_mask_bus = sigismember(&mask, SIGBUS);
}

static void on_bus_full(int number, siginfo_t *info, void *context)
{
        note();
        seen_address = info->si_addr;
        seen_code = info->si_code;
        if (info->si_code > 0)
                siglongjmp(jump_place, 1);
}

static void on_bus_plain(int number)
{
        note();
        if (number != SIGBUS)
                _exit(3);
        if (n_seen > 1)
                siglongjmp(jump_place, 1);
}

static void install_before(void *handler, int flags, bool has_usr1)
{
        struct sigaction action = { .sa_flags = flags };

        if (flags & SA_SIGINFO)
                action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
        else
                action.sa_handler = (void (*)(int))handler;
        sigemptyset(&action.sa_mask);
        if (has_usr1)
                sigaddset(&action.sa_mask, SIGUSR1);
        CHECK(sigaction(SIGBUS, &action, NULL) == 0);
        CHECK(guard_good() == 0);
}

static void child_handler_with_info(void *userdata)
{
        uint8_t *bytes = map_short(1), to[8];
        sigset_t mask;

        CHECK(bytes);
        install_before((void *)on_bus_full, SA_SIGINFO, true);
        for (int i = 1; i <= 3; i++) {
                if (sigsetjmp(jump_place, 1) == 0) {
                        (void)load(bytes + i * N_PAGE + 5);
                        _exit(2);
                }
                CHECK(n_seen == i && seen_address == bytes + i * N_PAGE + 5);
                CHECK(seen_code == BUS_ADRERR && seen_mask_usr1 == 1 && seen_mask_bus == 1);
                /* The handler's jump has taken the mask back; ours goes on working. */
                CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
                CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGBUS));
                CHECK(guard_call(copy_plain, to, bytes + N_PAGE, 8, 0) == -EIO);
                CHECK(n_seen == i);
        }
        /* Sent by a process: never ours, also in the midst of a guarded call, and the handler's return goes on. */
        CHECK(raise(SIGBUS) == 0 && n_seen == 4 && seen_code <= 0 && seen_mask_usr1 == 1);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
        CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGBUS));
}

static void copy_and_raise(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        raise(SIGBUS);
        memcpy(to, from, n_bytes);
}

static void child_sent_while_guarded(void *userdata)
{
        uint8_t from[4] = "abc", to[4] = "";

        install_before((void *)on_bus_full, SA_SIGINFO | SA_NODEFER, false);
        CHECK(guard_call(copy_and_raise, to, from, 4, 0) == 0 && n_seen == 1);
        CHECK(memcmp(to, "abc", 4) == 0 && seen_mask_usr1 == HANDLERS_BLOCK_ALL && seen_mask_bus == HANDLERS_BLOCK_ALL);
}

static void child_handler_plain(void *userdata)
{
        uint8_t *bytes = map_short(0);

        CHECK(bytes);
        install_before((void *)on_bus_plain, 0, false);
        CHECK(raise(SIGBUS) == 0 && n_seen == 1 && seen_mask_bus == 1 && seen_mask_usr1 == HANDLERS_BLOCK_ALL);
        if (sigsetjmp(jump_place, 1) == 0) {
                (void)load(bytes);
                _exit(2);
        }
        CHECK(n_seen == 2);
}

/* The destination is the program's own: its fault is passed on, with the range of the source told apart. */
static void child_bad_destination(void *userdata)
{
        uint8_t *bytes = map_short(1);

        CHECK(bytes);
        install_before((void *)on_bus_full, SA_SIGINFO, false);
        if (sigsetjmp(jump_place, 1) == 0) {
                (void)guard_call(copy_plain, bytes + N_PAGE, bytes, 8, 0);
                _exit(2);
        }
        CHECK(n_seen == 1 && seen_address == bytes + N_PAGE);
}

static void child_ignored(void *userdata)
{
        install_before((void *)SIG_IGN, 0, false);
        CHECK(raise(SIGBUS) == 0);
        CHECK(guard_good() == 0);
}

static void test_earlier_handlers(void **state)
{
        static void (*const children[])(void *) = { child_handler_with_info, child_sent_while_guarded,
                                                    child_handler_plain, child_bad_destination, child_ignored };

        for (size_t i = 0; i < ARRAY_SIZE(children); i++)
                child_run(children[i], NULL);
}

static void dies_default_load(uint8_t *bytes)
{
        install_before((void *)SIG_DFL, 0, false);
        (void)load(bytes);
}

static void dies_default_sent(uint8_t *bytes)
{
        install_before((void *)SIG_DFL, 0, false);
        raise(SIGBUS);
}

static void dies_default_sent_by_kill(uint8_t *bytes)
{
        install_before((void *)SIG_DFL, 0, false);
        kill(getpid(), SIGBUS);
        pause();
}

/* The kernel lets no load be ignored. */
static void dies_ignored_load(uint8_t *bytes)
{
        install_before((void *)SIG_IGN, 0, false);
        (void)load(bytes);
}

static void dies_at_the_second(uint8_t *bytes)
{
        install_before((void *)on_bus_plain, (int)SA_RESETHAND, false);
        if (raise(SIGBUS) == 0 && n_seen == 1)
                raise(SIGBUS);
}

static void dies_in_a_thread_that_blocks(uint8_t *bytes)
{
        sigset_t mask;

        install_before((void *)on_bus_plain, 0, false);
        sigemptyset(&mask);
        sigaddset(&mask, SIGBUS);
        pthread_sigmask(SIG_BLOCK, &mask, NULL);
        (void)load(bytes);
}

static void test_default_kills(void **state)
{
        static void (*const deaths[])(uint8_t *) = { dies_default_load,         dies_default_sent,
                                                     dies_default_sent_by_kill, dies_ignored_load,
                                                     dies_at_the_second,        dies_in_a_thread_that_blocks };

        for (size_t i = 0; i < ARRAY_SIZE(deaths); i++) {
                uint8_t *bytes = map_short(0);
                int status = 0;
                pid_t pid;

                assert_non_null(bytes);
                fflush(NULL);
                pid = fork();
                assert_true(pid >= 0);
                if (pid == 0) {
                        static const struct rlimit none = { 0, 0 };

                        setrlimit(RLIMIT_CORE, &none);
                        alarm(60);
                        deaths[i](bytes);
                        _exit(0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS)
                        print_error("death %zu: status %x\n", i, (unsigned)status);
                assert_true(WIFSIGNALED(status));
                assert_int_equal(WTERMSIG(status), SIGBUS);
                munmap(bytes, N_BYTES);
        }
}

/* --- what is ours --- */

static void child_bad_pages(void *userdata)
{
        /* good pages, from, length, result */
        static const struct {
                unsigned n_good;
                size_t from, n_bytes;
                int result;
        } cases[] = {
                { 0, 0, 1, -EIO },
                { 0, 0, N_BYTES, -EIO },
                { 0, N_BYTES - 1, 1, -EIO },
                { 0, 0, 0, 0 },
                { 1, 0, N_PAGE, 0 },
                { 1, 0, N_PAGE + 1, -EIO },
                { 1, N_PAGE - 1, 1, 0 },
                { 1, N_PAGE - 1, 2, -EIO },
                { 1, N_PAGE, 1, -EIO },
                { 8, 3, 8 * N_PAGE - 3, 0 },
                { 8, 3, 8 * N_PAGE - 2, -EIO },
                { 15, 0, N_BYTES, -EIO },
                { 15, 0, N_BYTES - N_PAGE, 0 },
                { 15, 77, N_BYTES - 77, -EIO },
                { 16, 0, N_BYTES, 0 },
        };
        uint8_t *to = malloc(N_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                uint8_t *bytes = map_short(cases[i].n_good);

                CHECK(bytes);
                for (unsigned kernel = 0; kernel < 2 * _COPY_KERNEL_MAX; kernel++) {
                        CopyFn copy = kernel < _COPY_KERNEL_MAX ? copy_kernel_find(kernel)
                                                                : copy_kernel_find_narrow(kernel - _COPY_KERNEL_MAX);
                        int r;

                        if (!copy)
                                continue;
                        memset(to, 0, N_BYTES);
                        /* What is said to be ahead is not there: a hint only. */
                        r = guard_call(copy, to, bytes + cases[i].from, cases[i].n_bytes, N_BYTES);
                        if (r != cases[i].result)
                                fprintf(stderr, "# case %zu, kernel %u\n", i, kernel);
                        CHECK(r == cases[i].result);
                        if (r == 0)
                                CHECK(memcmp(to, bytes + cases[i].from, cases[i].n_bytes) == 0);
                }
                munmap(bytes, N_BYTES);
        }
        free(to);
}

static void child_a_thousand_times(void *userdata)
{
        uint8_t *bytes = map_short(1), to[64];
        sigset_t before, after;

        CHECK(bytes);
        pthread_sigmask(SIG_BLOCK, NULL, &before);
        for (unsigned i = 0; i < 1000; i++) {
                CHECK(guard_call(copy_plain, to, bytes + N_PAGE - i % 8, 64, 0) == -EIO);
                CHECK(guard_call(copy_plain, to, bytes + i, 64, 0) == 0);
        }
        pthread_sigmask(SIG_BLOCK, NULL, &after);
        for (int number = 1; number < 32; number++)
                CHECK(sigismember(&after, number) == sigismember(&before, number));
        munmap(bytes, N_BYTES);
}

/* A guarded call in which another fails, and which then fails, or does not, itself. */
static uint8_t *inner_bytes;
static int inner_result;

static void copy_with_inner(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        uint8_t buffer[8];

        inner_result = guard_call(copy_plain, buffer, inner_bytes, sizeof(buffer), 0);
        memcpy(to, from, n_bytes);
}

static void on_usr1(int number)
{
        uint8_t buffer[8];

        (void)number;
        inner_result = guard_call(copy_plain, buffer, inner_bytes, sizeof(buffer), 0);
}

static void copy_and_be_interrupted(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        raise(SIGUSR1);
        memcpy(to, from, n_bytes);
}

static void child_nested(void *userdata)
{
        static const GuardedFn ways[] = { copy_with_inner, copy_and_be_interrupted };
        uint8_t *bytes = map_short(1), to[8];
        struct sigaction action = { .sa_handler = on_usr1 }, before;

        CHECK(bytes);
        sigaction(SIGUSR1, &action, &before);
        for (unsigned i = 0; i < (HANDLERS_BLOCK_ALL ? 4 : 8); i++) {
                bool is_inner_good = i & 1, is_outer_good = i & 2;

                inner_bytes = bytes + (is_inner_good ? 0 : N_PAGE);
                inner_result = 1;
                CHECK(guard_call(ways[i >> 2], to, bytes + (is_outer_good ? 0 : 2 * N_PAGE), 8, 0) ==
                      (is_outer_good ? 0 : -EIO));
                CHECK(inner_result == (is_inner_good ? 0 : -EIO));
        }
        sigaction(SIGUSR1, &before, NULL);
        munmap(bytes, N_BYTES);
}

static void *fail_and_succeed(void *userdata)
{
        uint8_t *bytes = map_short(2), *to = malloc(N_BYTES);
        void *result = bytes && to ? userdata : NULL;

        for (unsigned i = 0; result && i < 300; i++) {
                if (guard_call(copy_plain, to, bytes + i, 2 * N_PAGE, 0) != (i == 0 ? 0 : -EIO))
                        result = NULL;
                memset(to, 0, N_PAGE);
                if (guard_call(copy_plain, to, bytes + i, N_PAGE, 0) != 0 || to[0] != 1 || to[N_PAGE - 1] != 1)
                        result = NULL;
        }
        free(to);
        if (bytes)
                munmap(bytes, N_BYTES);
        return result;
}

static void child_many_threads(void *userdata)
{
        enum { N = 8 };
        pthread_t threads[N];
        int mark;

        for (unsigned i = 0; i < N; i++)
                CHECK(pthread_create(&threads[i], NULL, fail_and_succeed, &mark) == 0);
        for (unsigned i = 0; i < N; i++) {
                void *result;

                CHECK(pthread_join(threads[i], &result) == 0);
                CHECK(result == &mark);
        }
}

/* Where the thread has a stack for its signals the handler runs there, and leaves it each time. */
static void child_other_stack(void *userdata)
{
        enum { N_STACK = 64 << 10 };
        uint8_t *bytes = map_short(0), to[8];
        stack_t stack = { .ss_sp = malloc(N_STACK), .ss_size = N_STACK }, before, now;

        CHECK(bytes);
        CHECK(stack.ss_sp && sigaltstack(&stack, &before) == 0);
        for (unsigned i = 0; i < 100; i++) {
                CHECK(guard_call(copy_plain, to, bytes, 8, 0) == -EIO);
                CHECK(sigaltstack(NULL, &now) == 0);
                CHECK((now.ss_flags & SS_ONSTACK) == 0);
        }
        CHECK(sigaltstack(&before, NULL) == 0);
        free(stack.ss_sp);
        munmap(bytes, N_BYTES);
}

static void child_forks(void *userdata)
{
        uint8_t *bytes = map_short(0), to[8];
        int status = 0;
        pid_t pid;

        CHECK(bytes && guard_call(copy_plain, to, bytes, 8, 0) == -EIO);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                _exit(guard_call(copy_plain, to, bytes, 8, 0) == -EIO && guard_good() == 0 ? 0 : 1);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void test_bad_pages(void **state)
{
        child_run(child_bad_pages, NULL);
}

static void test_a_thousand_times(void **state)
{
        child_run(child_a_thousand_times, NULL);
}

static void test_nested(void **state)
{
        child_run(child_nested, NULL);
}

static void test_many_threads(void **state)
{
        child_run(child_many_threads, NULL);
}

static void test_other_stack(void **state)
{
        child_run(child_other_stack, NULL);
}

static void test_after_fork(void **state)
{
        child_run(child_forks, NULL);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_earlier_handlers), UNIT_TEST(test_default_kills), UNIT_TEST(test_bad_pages),
                UNIT_TEST(test_a_thousand_times), UNIT_TEST(test_nested),        UNIT_TEST(test_many_threads),
                UNIT_TEST(test_other_stack),      UNIT_TEST(test_after_fork),
        };

        return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
