/* SPDX-License-Identifier: Apache-2.0 */
/* A crew: each piece once, errors end the work, one caller has the threads, and none are needed. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/crew.h"
#include "tests/unit/harness.h"
#include "tests/unit/child.h"
#include "tests/unit/fail-alloc.h"

enum { N_PIECES_MAX = 1000 };

typedef struct Count {
        atomic_uint seen[N_PIECES_MAX];
        atomic_uint n;
        size_t bad_piece; /* SIZE_MAX: none */
} Count;

static int count_piece(void *userdata, size_t piece)
{
        Count *count = userdata;

        atomic_fetch_add(&count->seen[piece], 1);
        atomic_fetch_add(&count->n, 1);
        return piece == count->bad_piece ? -EIO : 0;
}

/* 0: all as it should be. Also for children, where there is no cmocka. */
static int run_and_check(Crew *crew, size_t n_pieces)
{
        Count count = { .bad_piece = SIZE_MAX };

        if (crew_run(crew, count_piece, &count, n_pieces) != 0 || atomic_load(&count.n) != n_pieces)
                return -1;
        for (size_t i = 0; i < n_pieces; i++)
                if (atomic_load(&count.seen[i]) != 1)
                        return -1;
        return 0;
}

static void test_each_piece_once(void **state)
{
        static const size_t ns[] = { 0, 1, 2, 3, 16, 17, 100, N_PIECES_MAX };
        Crew *crew = NULL;

        assert_int_equal(crew_new(3, &crew), 0);
        for (unsigned round = 0; round < 20; round++)
                for (size_t i = 0; i < ARRAY_SIZE(ns); i++)
                        assert_int_equal(run_and_check(crew, ns[i]), 0);
        assert_null(crew_free(crew));
        assert_null(crew_free(NULL));
}

static void test_how_many(void **state)
{
        static const struct {
                uint32_t asked, got;
        } cases[] = { { 0, 1 }, { 1, 1 }, { 2, 2 }, { CREW_THREADS_MAX, CREW_THREADS_MAX },
                      { CREW_THREADS_MAX + 1, CREW_THREADS_MAX }, { UINT32_MAX, CREW_THREADS_MAX } };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                Crew *crew = NULL;

                assert_int_equal(crew_new(cases[i].asked, &crew), 0);
                /* Not before there is something for them. */
                assert_int_equal(crew_count_threads(crew), 0);
                assert_int_equal(run_and_check(crew, 1), 0);
                assert_int_equal(crew_count_threads(crew), 0);
                assert_int_equal(run_and_check(crew, 2), 0);
                assert_int_equal(crew_count_threads(crew), cases[i].got);
                assert_int_equal(run_and_check(crew, 50), 0);
                assert_int_equal(crew_count_threads(crew), cases[i].got);
                crew_free(crew);
        }
}

static void test_error_ends_it(void **state)
{
        static const size_t bad_pieces[] = { 0, 1, 500, N_PIECES_MAX - 1 };
        Crew *crew = NULL;

        assert_int_equal(crew_new(2, &crew), 0);
        for (size_t i = 0; i < ARRAY_SIZE(bad_pieces); i++) {
                Count count = { .bad_piece = bad_pieces[i] };

                assert_int_equal(crew_run(crew, count_piece, &count, N_PIECES_MAX), -EIO);
                assert_int_equal(atomic_load(&count.seen[bad_pieces[i]]), 1);
                for (size_t piece = 0; piece < N_PIECES_MAX; piece++)
                        assert_true(atomic_load(&count.seen[piece]) <= 1);
                /* And alone: at the very next. */
                count = (Count){ .bad_piece = 0 };
                assert_int_equal(crew_run(crew, count_piece, &count, 1), -EIO);
                assert_int_equal(run_and_check(crew, 10), 0);
        }
        crew_free(crew);
}

/* Three pieces, none of which ends before all three have begun: only three threads can do it. */
static int meet(void *userdata, size_t piece)
{
        sigset_t mask;

        (void)piece;
        pthread_barrier_wait(userdata);
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        /* The caller blocks nothing here; helpers all but what a load may raise. */
        if (sigismember(&mask, SIGBUS) || sigismember(&mask, SIGSEGV))
                return -EINVAL;
        return 0;
}

static void test_helpers_help(void **state)
{
        pthread_barrier_t barrier;
        Crew *crew = NULL;

        assert_int_equal(pthread_barrier_init(&barrier, NULL, 3), 0);
        assert_int_equal(crew_new(2, &crew), 0);
        for (unsigned i = 0; i < 50; i++)
                assert_int_equal(crew_run(crew, meet, &barrier, 3), 0);
        crew_free(crew);
        pthread_barrier_destroy(&barrier);
}

static pthread_t caller;

static int note_mask(void *userdata, size_t piece)
{
        sigset_t mask;

        (void)piece;
        pthread_barrier_wait(userdata);
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        return pthread_equal(caller, pthread_self()) || sigismember(&mask, SIGUSR1) ? 0 : -EINVAL;
}

static void test_signals_are_the_programs(void **state)
{
        pthread_barrier_t barrier;
        sigset_t before, after;
        Crew *crew = NULL;

        caller = pthread_self();
        assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
        assert_int_equal(crew_new(1, &crew), 0);
        pthread_sigmask(SIG_BLOCK, NULL, &before);
        assert_int_equal(crew_run(crew, note_mask, &barrier, 2), 0);
        pthread_sigmask(SIG_BLOCK, NULL, &after);
        assert_int_equal(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
        crew_free(crew);
        pthread_barrier_destroy(&barrier);
}

/* Within a piece the crew is its caller's: another call, from the same thread even, is done alone. */
static int run_within(void *userdata, size_t piece)
{
        (void)piece;
        return run_and_check(userdata, 20);
}

static void test_within_a_piece(void **state)
{
        Crew *crew = NULL;

        assert_int_equal(crew_new(2, &crew), 0);
        assert_int_equal(crew_run(crew, run_within, crew, 10), 0);
        crew_free(crew);
}

static void *run_often(void *userdata)
{
        for (unsigned i = 0; i < 200; i++)
                if (run_and_check(userdata, 1 + i) != 0)
                        return NULL;
        return userdata;
}

static void test_many_callers(void **state)
{
        pthread_t threads[6];
        Crew *crew = NULL;

        assert_int_equal(crew_new(3, &crew), 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, run_often, crew), 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
                void *result;

                assert_int_equal(pthread_join(threads[i], &result), 0);
                assert_ptr_equal(result, crew);
        }
        crew_free(crew);
}

static void child_of_fork(void *userdata)
{
        CHECK(crew_count_threads(userdata) == 0);
        CHECK(run_and_check(userdata, 100) == 0);
        CHECK(crew_count_threads(userdata) == 0);
        crew_free(userdata);
}

/* The fork may come while another thread's work goes on. */
static void test_fork(void **state)
{
        Crew *crew = NULL;
        pthread_t thread;
        void *result;

        assert_int_equal(crew_new(2, &crew), 0);
        child_run(child_of_fork, crew);
        assert_int_equal(run_and_check(crew, 100), 0);
        child_run(child_of_fork, crew);
        assert_int_equal(pthread_create(&thread, NULL, run_often, crew), 0);
        for (unsigned i = 0; i < 10; i++)
                child_run(child_of_fork, crew);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, crew);
        crew_free(crew);
}

static void child_without_threads(void *userdata)
{
        Crew *crew = NULL;

        CHECK(crew_new(2, &crew) == 0);
        child_filter(SYS_clone3, 0, 0, SECCOMP_RET_ERRNO | EAGAIN);
        child_filter(SYS_clone, 0, 0, SECCOMP_RET_ERRNO | EAGAIN);
        CHECK(run_and_check(crew, 100) == 0);
        CHECK(crew_count_threads(crew) == 0);
        crew_free(crew);
}

static void test_no_thread_to_be_had(void **state)
{
        child_run(child_without_threads, NULL);
}

static int make_and_free(void)
{
        Crew *crew = NULL;
        int r = crew_new(2, &crew);

        crew_free(crew);
        return r;
}

static void test_allocation_failure(void **state)
{
        fail_alloc_sweep(make_and_free);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_each_piece_once),
                UNIT_TEST(test_how_many),
                UNIT_TEST(test_error_ends_it),
                UNIT_TEST(test_helpers_help),
                UNIT_TEST(test_within_a_piece),
                UNIT_TEST(test_signals_are_the_programs),
                UNIT_TEST(test_many_callers),
                UNIT_TEST(test_fork),
                UNIT_TEST(test_no_thread_to_be_had),
                UNIT_TEST(test_allocation_failure),
        };

        return cmocka_run_group_tests_name("crew", tests, NULL, NULL);
}
