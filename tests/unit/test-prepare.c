/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions made whole by several workers: that all of it is there, that one part at a time is done so that others come
 * between, and what becomes of it when it is cancelled, fails, or loses its workers.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>

#include "daemon/memory/prepare.h"
#include "tests/unit/fail-alloc.h"
#include "tests/unit/region-fixture.h"

typedef struct Outcome {
        unsigned n_calls;
        int result;
        uint64_t n_huge, n_failed;
        pthread_t by;
} Outcome;

static struct event_base *base;
static WorkerPool *workers;

static int set_up(void **state)
{
        harness_setup(state);
        base = event_base_new();
        workers = NULL;
        return base ? 0 : -1;
}

static int tear_down(void **state)
{
        worker_pool_free(workers);
        event_base_free(base);
        return harness_teardown(state);
}

static void start(unsigned n_threads)
{
        assert_int_equal(worker_pool_new(base, n_threads, &workers), 0);
}

static void note(void *userdata, int result, uint64_t n_huge, uint64_t n_failed)
{
        Outcome *outcome = userdata;

        outcome->n_calls++;
        outcome->result = result;
        outcome->n_huge = n_huge;
        outcome->n_failed = n_failed;
        outcome->by = pthread_self();
}

static Prepare *begin(Region *region, uint64_t n_bytes, bool want_huge, Outcome *outcome)
{
        PrepareConfig config = {
                .workers = workers, .region = region, .n_bytes = n_bytes, .want_huge = want_huge, .done = note,
                .userdata = outcome,
        };
        Prepare *prepare = NULL;

        *outcome = (Outcome){ 0 };
        assert_int_equal(prepare_begin(&config, &prepare), 0);
        assert_int_equal(outcome->n_calls, 0);
        return prepare;
}

static void test_all_of_it_is_there(void **state)
{
        const struct {
                uint64_t n_bytes, n_more;
                unsigned n_jobs;
        } rows[] = {
                { PAGE_BYTES, 0, 1 },
                { HUGE_BYTES, HUGE_BYTES, 1 },
                { REGION_PART_BYTES, 0, 1 },
                { REGION_PART_BYTES + PAGE_BYTES, HUGE_BYTES - PAGE_BYTES, 2 },
                { 3 * REGION_PART_BYTES, 0, 3 },
                { 5 * REGION_PART_BYTES, 2 * HUGE_BYTES, 3 },
        };

        start(4);
        for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
                bool want_huge = i % 2;
                uint64_t n_bytes = rows[i / 2].n_bytes;
                Region *region = new_region(memfd, n_bytes + rows[i / 2].n_more);
                Outcome outcome;

                begin(region, n_bytes, want_huge, &outcome);
                assert_int_equal(worker_pool_n_pending(workers), rows[i / 2].n_jobs);
                worker_pool_drain(workers);
                assert_int_equal(outcome.n_calls, 1);
                assert_int_equal(outcome.result, 0);
                assert_true(pthread_equal(outcome.by, pthread_self()));
                assert_int_equal(allocated_bytes(region), n_bytes);
                assert_bytes(region, 0, PAGE_BYTES, 0);
                if (!want_huge || memfd->capabilities & BACKEND_HUGE_AT_ALLOCATION)
                        assert_int_equal(outcome.n_huge + outcome.n_failed, 0);
                else
                        assert_int_equal(outcome.n_huge + outcome.n_failed, n_bytes / HUGE_BYTES);
                region_unref(region);
        }
}

/* --- others come between --------------------------------------------------------------------------------------------- */

typedef struct Between {
        WorkerJob job;
        Region *region;
        uint64_t allocated_bytes;
        sem_t *gate;
        bool is_done;
} Between;

static void look(WorkerJob *job)
{
        Between *between = CONTAINER_OF(job, Between, job);

        if (between->gate)
                sem_wait(between->gate);
        else
                between->allocated_bytes = allocated_bytes(between->region);
}

static void looked(WorkerJob *job)
{
        CONTAINER_OF(job, Between, job)->is_done = true;
}

static void test_b02_a_small_job_waits_for_one_part_only(void **state)
{
        Region *region, *other;
        Between gate = { .job = { .run = look, .done = looked } }, small = gate;
        Outcome outcome, other_outcome;
        sem_t open;

        start(1);
        region = new_region(memfd, 4 * REGION_PART_BYTES);
        other = new_region(memfd, 2 * REGION_PART_BYTES);
        sem_init(&open, 0, 0);
        gate.gate = &open;
        small.region = region;
        /* All of them are in the queue before the first is carried out. */
        worker_pool_submit(workers, WORKER_URGENT, &gate.job);
        begin(region, 4 * REGION_PART_BYTES, false, &outcome);
        begin(other, 2 * REGION_PART_BYTES, false, &other_outcome);
        worker_pool_submit(workers, WORKER_URGENT, &small.job);
        sem_post(&open);
        worker_pool_drain(workers);
        assert_true(gate.is_done && small.is_done);
        assert_int_equal(small.allocated_bytes, REGION_PART_BYTES);
        assert_int_equal(outcome.result, 0);
        assert_int_equal(other_outcome.result, 0);
        assert_int_equal(allocated_bytes(region), 4 * REGION_PART_BYTES);
        assert_int_equal(allocated_bytes(other), 2 * REGION_PART_BYTES);
        sem_destroy(&open);
        region_unref(region);
        region_unref(other);
}

/* --- the other ends -------------------------------------------------------------------------------------------------- */

static void test_cancelled_before_it_began(void **state)
{
        Between gate = { .job = { .run = look, .done = looked } };
        Outcome outcome;
        Region *region;
        sem_t open;

        start(1);
        region = new_region(memfd, 4 * REGION_PART_BYTES);
        sem_init(&open, 0, 0);
        gate.gate = &open;
        worker_pool_submit(workers, WORKER_URGENT, &gate.job);
        prepare_cancel(begin(region, 4 * REGION_PART_BYTES, true, &outcome));
        sem_post(&open);
        worker_pool_drain(workers);
        assert_int_equal(outcome.n_calls, 1);
        assert_int_equal(outcome.result, -ECANCELED);
        /* Not even all pieces of the first part have a page. */
        assert_true(allocated_bytes(region) < REGION_PART_BYTES);
        sem_destroy(&open);
        region_unref(region);
}

static void test_the_workers_end_first(void **state)
{
        Region *region;
        Outcome outcome;

        start(3);
        region = new_region(memfd, 8 * REGION_PART_BYTES);
        begin(region, 8 * REGION_PART_BYTES, false, &outcome);
        worker_pool_free(workers);
        workers = NULL;
        assert_int_equal(outcome.n_calls, 1);
        if (outcome.result == 0)
                assert_int_equal(allocated_bytes(region), 8 * REGION_PART_BYTES);
        else
                assert_int_equal(outcome.result, -ECANCELED);
        region_unref(region);
}

static int unusable_file(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd)
{
        *ret_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

static void test_a_part_that_fails_ends_it(void **state)
{
        static const BackendOps ops = { .name = "unusable", .create_file = unusable_file };
        Backend backend = { .ops = &ops };
        Region *region;
        Outcome outcome;

        start(3);
        region = new_region(&backend, 64 * REGION_PART_BYTES);
        begin(region, 64 * REGION_PART_BYTES, false, &outcome);
        worker_pool_drain(workers);
        assert_int_equal(outcome.n_calls, 1);
        assert_true(outcome.result == -ENODEV || outcome.result == -EINVAL || outcome.result == -EOPNOTSUPP);
        region_unref(region);
}

static Region *sweep_region;

static int attempt(void)
{
        PrepareConfig config = { .workers = workers, .region = sweep_region, .n_bytes = PAGE_BYTES, .done = note };
        Outcome outcome = { 0 };
        Prepare *prepare;
        int r;

        config.userdata = &outcome;
        r = prepare_begin(&config, &prepare);
        assert_int_equal(worker_pool_n_pending(workers), r == 0);
        worker_pool_drain(workers);
        assert_int_equal(outcome.n_calls, r == 0);
        return r;
}

static void test_no_memory_for_it(void **state)
{
        fail_alloc_skip_sanitized();
        start(1);
        sweep_region = new_region(memfd, PAGE_BYTES);
        fail_alloc_sweep(attempt);
        region_unref(sweep_region);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_all_of_it_is_there),
                TEST(test_b02_a_small_job_waits_for_one_part_only),
                TEST(test_cancelled_before_it_began),
                TEST(test_the_workers_end_first),
                TEST(test_a_part_that_fails_ends_it),
                TEST(test_no_memory_for_it),
        };

        return cmocka_run_group_tests_name("prepare", tests, make_backends, free_backends);
}
