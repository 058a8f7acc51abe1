/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker pool: where run() and done() happen, which queue goes first, what stays free for whom, and what becomes of
 * jobs at the end. Waiting is bounded by a timer on the loop, which fails the test.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/macro.h"
#include "daemon/service/worker.h"
#include "tests/unit/fail-alloc.h"

typedef struct TestJob {
        WorkerJob job;
        pthread_t run_by;
        pthread_t done_by;
        bool has_run;
        bool is_done;
        int order;                   /* of running */
        sem_t *started;              /* posted at the beginning of run() */
        sem_t *gate;                 /* waited for in run() */
        sem_t *opens;                /* posted at the end of run() */
} TestJob;

static atomic_int n_run, n_done;
static struct event_base *base;
static WorkerPool *pool;

static void run_job(WorkerJob *job)
{
        TestJob *test = CONTAINER_OF(job, TestJob, job);

        test->run_by = pthread_self();
        test->has_run = true;
        test->order = atomic_fetch_add(&n_run, 1);
        if (test->started)
                sem_post(test->started);
        if (test->gate)
                sem_wait(test->gate);
        if (test->opens)
                sem_post(test->opens);
}

static void done_job(WorkerJob *job)
{
        TestJob *test = CONTAINER_OF(job, TestJob, job);

        assert_false(test->is_done);
        test->is_done = true;
        test->done_by = pthread_self();
        n_done++;
}

#define TEST_JOB { .job.run = run_job, .job.done = done_job }

static void give_up(evutil_socket_t fd, short what, void *userdata)
{
        fail_msg("the loop waited too long");
}

static int set_up(void **state)
{
        harness_setup(state);
        n_run = n_done = 0;
        base = event_base_new();
        return base ? 0 : -1;
}

static int tear_down(void **state)
{
        event_base_free(base);
        return harness_teardown(state);
}

static void start(unsigned n_threads)
{
        assert_int_equal(worker_pool_new(base, n_threads, &pool), 0);
}

/* Runs the loop until *@flag, for at most a minute. */
static void wait_for(const bool *flag)
{
        struct event *timer = evtimer_new(base, give_up, NULL);

        evtimer_add(timer, &(struct timeval){ .tv_sec = 60 });
        while (!*flag)
                assert_int_equal(event_base_loop(base, EVLOOP_ONCE), 0);
        event_free(timer);
}

static void test_runs_elsewhere_and_completes_on_the_loop(void **state)
{
        TestJob job = TEST_JOB;

        start(2);
        assert_int_equal(worker_pool_n_pending(pool), 0);
        worker_pool_submit(pool, WORKER_URGENT, &job.job);
        assert_int_equal(worker_pool_n_pending(pool), 1);
        assert_false(job.is_done);
        wait_for(&job.is_done);
        assert_int_equal(worker_pool_n_pending(pool), 0);
        assert_true(job.has_run);
        assert_false(pthread_equal(job.run_by, pthread_self()));
        assert_true(pthread_equal(job.done_by, pthread_self()));
        assert_false(list_is_linked(&job.job.link));
        worker_pool_free(pool);
}

static void test_urgent_goes_first_with_one_thread(void **state)
{
        sem_t started, gate;
        TestJob first = TEST_JOB, idle = TEST_JOB, urgent = TEST_JOB;

        sem_init(&started, 0, 0);
        sem_init(&gate, 0, 0);
        start(1);
        first.started = &started;
        first.gate = &gate;
        worker_pool_submit(pool, WORKER_IDLE, &first.job); /* one thread does idle jobs too */
        sem_wait(&started);
        worker_pool_submit(pool, WORKER_IDLE, &idle.job);
        worker_pool_submit(pool, WORKER_URGENT, &urgent.job);
        sem_post(&gate);
        worker_pool_drain(pool);
        assert_int_equal(first.order, 0);
        assert_int_equal(urgent.order, 1);
        assert_int_equal(idle.order, 2);
        worker_pool_free(pool);
        sem_destroy(&started);
        sem_destroy(&gate);
}

/* If idle jobs could take every thread, nobody would be left to open the gate they wait at. */
static void test_idle_jobs_leave_one_thread(void **state)
{
        for (unsigned n_threads = 2; n_threads <= 4; n_threads++) {
                TestJob idle[8], urgent = TEST_JOB;
                sem_t gate;

                n_run = 0;
                sem_init(&gate, 0, 0);
                start(n_threads);
                for (size_t i = 0; i < ARRAY_SIZE(idle); i++) {
                        idle[i] = (TestJob)TEST_JOB;
                        idle[i].gate = idle[i].opens = &gate;
                        worker_pool_submit(pool, WORKER_IDLE, &idle[i].job);
                }
                urgent.opens = &gate;
                worker_pool_submit(pool, WORKER_URGENT, &urgent.job);
                wait_for(&urgent.is_done);
                worker_pool_drain(pool);
                for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
                        assert_true(idle[i].is_done);
                assert_true(urgent.order < (int)n_threads);
                worker_pool_free(pool);
                sem_destroy(&gate);
        }
}

typedef struct SlowJob {
        WorkerJob job;
        sem_t started;
        atomic_bool is_finished;
        bool was_finished_at_done;
} SlowJob;

static void run_slow(WorkerJob *job)
{
        SlowJob *slow = CONTAINER_OF(job, SlowJob, job);
        volatile uint64_t sum = 0;

        sem_post(&slow->started);
        for (uint64_t i = 0; i < 20 * 1000 * 1000; i++)
                sum = sum + i;
        atomic_store(&slow->is_finished, sum > 0);
}

static void done_slow(WorkerJob *job)
{
        SlowJob *slow = CONTAINER_OF(job, SlowJob, job);

        slow->was_finished_at_done = atomic_load(&slow->is_finished);
        assert_false(atomic_load(&job->is_cancelled));
        n_done++;
}

/* Behind a slow job on the only thread: each has either run or been cancelled, and is done, once, here. */
static void test_freeing_cancels_what_is_queued(void **state)
{
        SlowJob slow = { .job.run = run_slow, .job.done = done_slow };
        TestJob queued[3] = { TEST_JOB, TEST_JOB, TEST_JOB };

        sem_init(&slow.started, 0, 0);
        start(1);
        worker_pool_submit(pool, WORKER_URGENT, &slow.job);
        sem_wait(&slow.started);
        worker_pool_submit(pool, WORKER_URGENT, &queued[0].job);
        worker_pool_submit(pool, WORKER_IDLE, &queued[1].job);
        worker_pool_submit(pool, WORKER_IDLE, &queued[2].job);
        worker_pool_free(pool);
        assert_int_equal(n_done, 4);
        for (size_t i = 0; i < ARRAY_SIZE(queued); i++) {
                assert_true(queued[i].is_done);
                assert_int_equal(queued[i].has_run, !atomic_load(&queued[i].job.is_cancelled));
                assert_true(pthread_equal(queued[i].done_by, pthread_self()));
        }
        sem_destroy(&slow.started);
}

static void test_freeing_waits_for_what_runs(void **state)
{
        SlowJob slow = { .job.run = run_slow, .job.done = done_slow };

        sem_init(&slow.started, 0, 0);
        start(2);
        worker_pool_submit(pool, WORKER_URGENT, &slow.job);
        sem_wait(&slow.started);
        worker_pool_free(pool);
        assert_int_equal(n_done, 1);
        assert_true(slow.was_finished_at_done);
        sem_destroy(&slow.started);
}

#define CHAIN_LENGTH 1000

static void done_chain(WorkerJob *job)
{
        n_done++;
        if (n_done < CHAIN_LENGTH)
                worker_pool_submit(pool, n_done % 2 ? WORKER_URGENT : WORKER_IDLE, job);
        else
                free(CONTAINER_OF(job, TestJob, job));
}

static void test_done_may_submit_and_may_free(void **state)
{
        TestJob *job = calloc(1, sizeof(*job));

        job->job.run = run_job;
        job->job.done = done_chain;
        start(2);
        worker_pool_submit(pool, WORKER_URGENT, &job->job);
        worker_pool_drain(pool);
        assert_int_equal(n_done, CHAIN_LENGTH);
        assert_int_equal(n_run, CHAIN_LENGTH);
        worker_pool_free(pool);
}

static void test_many_jobs_each_once(void **state)
{
        enum { N = 20000 };
        TestJob *jobs = calloc(N, sizeof(*jobs));

        assert_non_null(jobs);
        start(4);
        for (int i = 0; i < N; i++) {
                jobs[i] = (TestJob)TEST_JOB;
                worker_pool_submit(pool, i % 3 ? WORKER_URGENT : WORKER_IDLE, &jobs[i].job);
        }
        worker_pool_drain(pool);
        assert_int_equal(n_run, N);
        assert_int_equal(n_done, N);
        worker_pool_free(pool);
        free(jobs);
}

static void drain_in_event(evutil_socket_t fd, short what, void *userdata)
{
        worker_pool_drain(pool);
        *(bool *)userdata = true;
}

/* Also when done() itself drains: the others are not on some list of the one that called it. */
static void drain_in_done(WorkerJob *job)
{
        n_done++;
        worker_pool_drain(pool);
        assert_int_equal(worker_pool_n_pending(pool), 0);
}

static void test_drain_from_inside_the_loop(void **state)
{
        TestJob jobs[50];
        struct event *event;
        bool is_drained = false;

        start(2);
        for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
                jobs[i] = (TestJob)TEST_JOB;
                if (i % 10 == 3)
                        jobs[i].job.done = drain_in_done;
                worker_pool_submit(pool, WORKER_URGENT, &jobs[i].job);
        }
        event = event_new(base, -1, 0, drain_in_event, &is_drained);
        event_active(event, 0, 0);
        wait_for(&is_drained);
        assert_int_equal(n_done, ARRAY_SIZE(jobs));
        event_free(event);
        worker_pool_free(pool);
}

typedef struct LookJob {
        WorkerJob job;
        sigset_t blocked;
        size_t stack_bytes;
        bool is_done;
} LookJob;

static void run_look(WorkerJob *job)
{
        LookJob *look = CONTAINER_OF(job, LookJob, job);
        pthread_attr_t attributes;

        pthread_sigmask(SIG_BLOCK, NULL, &look->blocked);
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstacksize(&attributes, &look->stack_bytes);
        pthread_attr_destroy(&attributes);
}

static void done_look(WorkerJob *job)
{
        CONTAINER_OF(job, LookJob, job)->is_done = true;
}

static void test_threads_are_small_and_get_no_signals(void **state)
{
        LookJob look = { .job.run = run_look, .job.done = done_look };
        sigset_t before, after;

        pthread_sigmask(SIG_BLOCK, NULL, &before);
        start(1);
        pthread_sigmask(SIG_BLOCK, NULL, &after);
        assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
        worker_pool_submit(pool, WORKER_URGENT, &look.job);
        wait_for(&look.is_done);
        assert_true(sigismember(&look.blocked, SIGTERM));
        assert_true(sigismember(&look.blocked, SIGUSR1));
        assert_true(sigismember(&look.blocked, SIGCHLD));
        assert_false(sigismember(&look.blocked, SIGBUS));
        assert_true(look.stack_bytes <= 512 * KIB);
        worker_pool_free(pool);
}

static void test_numbers_of_threads(void **state)
{
        static const struct {
                unsigned n_threads;
                int result;
        } rows[] = { { 0, -EINVAL }, { 1, 0 }, { 64, 0 }, { UINT16_MAX + 1u, -EINVAL }, { UINT_MAX, -EINVAL } };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                WorkerPool *one = NULL;

                assert_int_equal(worker_pool_new(base, rows[i].n_threads, &one), rows[i].result);
                assert_int_equal(one != NULL, rows[i].result == 0);
                worker_pool_free(one);
        }
        worker_pool_free(NULL);
}

static void test_no_descriptor_left(void **state)
{
        struct rlimit before, low;
        WorkerPool *one = NULL;
        int r;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        low = before;
        low.rlim_cur = 0;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        r = worker_pool_new(base, 2, &one);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(r, -EMFILE);
        assert_null(one);
}

typedef struct PieceJob {
        WorkerJob job;
        unsigned n_pieces, n_run;
        unsigned turns[4];           /* of all runs, which were ours */
        bool is_done;
} PieceJob;

static void run_piece(WorkerJob *job)
{
        PieceJob *piece = CONTAINER_OF(job, PieceJob, job);

        piece->turns[piece->n_run] = (unsigned)atomic_fetch_add(&n_run, 1);
        job->is_unfinished = ++piece->n_run < piece->n_pieces;
}

static void pieces_done(WorkerJob *job)
{
        PieceJob *piece = CONTAINER_OF(job, PieceJob, job);

        assert_false(piece->is_done);
        piece->is_done = true;
}

static void test_pieces_let_others_between(void **state)
{
        for (int queue = 0; queue < _WORKER_QUEUE_MAX; queue++) {
                PieceJob pieces = { .job = { .run = run_piece, .done = pieces_done }, .n_pieces = 4 };
                PieceJob others = { .job = { .run = run_piece, .done = pieces_done }, .n_pieces = 2 };
                TestJob gate = TEST_JOB, small = TEST_JOB;
                sem_t open;

                n_run = 0;
                sem_init(&open, 0, 0);
                start(1);
                gate.gate = &open;
                worker_pool_submit(pool, (WorkerQueue)queue, &gate.job);
                worker_pool_submit(pool, (WorkerQueue)queue, &pieces.job);
                worker_pool_submit(pool, (WorkerQueue)queue, &others.job);
                worker_pool_submit(pool, (WorkerQueue)queue, &small.job);
                sem_post(&open);
                worker_pool_drain(pool);
                assert_true(pieces.is_done && others.is_done && small.is_done);
                assert_int_equal(pieces.n_run, 4);
                assert_int_equal(others.n_run, 2);
                assert_int_equal(pieces.turns[0], 1);
                assert_int_equal(others.turns[0], 2);
                assert_int_equal(small.order, 3);
                assert_int_equal(pieces.turns[1], 4);
                assert_int_equal(others.turns[1], 5);
                assert_int_equal(pieces.turns[3], 7);
                worker_pool_free(pool);
                sem_destroy(&open);
        }
}

/* Nothing ends a job that says each time that it is not finished, but the end of the pool. */
static void run_for_ever(WorkerJob *job)
{
        job->is_unfinished = true;
        sem_post(&CONTAINER_OF(job, SlowJob, job)->started);
}

static void done_for_ever(WorkerJob *job)
{
        assert_true(atomic_load(&job->is_cancelled));
        n_done++;
}

static void test_freeing_ends_what_is_unfinished(void **state)
{
        SlowJob job = { .job = { .run = run_for_ever, .done = done_for_ever } };

        sem_init(&job.started, 0, 0);
        start(2);
        worker_pool_submit(pool, WORKER_URGENT, &job.job);
        sem_wait(&job.started);
        sem_wait(&job.started);
        worker_pool_free(pool);
        assert_int_equal(n_done, 1);
        sem_destroy(&job.started);
}

static int attempt_new(void)
{
        WorkerPool *one = NULL;
        int r = worker_pool_new(base, 2, &one);

        if (r == 0)
                worker_pool_free(one);
        return r;
}

static void test_allocation_failures(void **state)
{
        fail_alloc_sweep(attempt_new);
}

#define WORKER_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                WORKER_TEST(test_runs_elsewhere_and_completes_on_the_loop),
                WORKER_TEST(test_urgent_goes_first_with_one_thread),
                WORKER_TEST(test_idle_jobs_leave_one_thread),
                WORKER_TEST(test_freeing_cancels_what_is_queued),
                WORKER_TEST(test_freeing_waits_for_what_runs),
                WORKER_TEST(test_done_may_submit_and_may_free),
                WORKER_TEST(test_pieces_let_others_between),
                WORKER_TEST(test_freeing_ends_what_is_unfinished),
                WORKER_TEST(test_many_jobs_each_once),
                WORKER_TEST(test_drain_from_inside_the_loop),
                WORKER_TEST(test_threads_are_small_and_get_no_signals),
                WORKER_TEST(test_numbers_of_threads),
                WORKER_TEST(test_no_descriptor_left),
                WORKER_TEST(test_allocation_failures),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
