/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warm pool over real memfds, and over a backend that fails when told. After every test what was paid has been
 * repaid or is carried by a region in the test's hands.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/memory/pool.h"
#include "tests/unit/fail-alloc.h"

static struct event_base *base;
static WorkerPool *workers;
static Backend *memfd;
static Pool *pool;
static uint64_t paid_bytes, budget_bytes;
static int n_pay_calls;

static bool pay(void *userdata, uint64_t n_bytes)
{
        n_pay_calls++;
        if (n_bytes > budget_bytes - paid_bytes)
                return false;
        paid_bytes += n_bytes;
        return true;
}

static void repay(void *userdata, uint64_t n_bytes)
{
        assert_true(paid_bytes >= n_bytes);
        paid_bytes -= n_bytes;
}

/* --- a backend that fails on order -------------------------------------------------------------------------------- */

typedef struct FakeBackend {
        Backend backend;
        atomic_int n_create_calls;
        int fails_at;                /* the call of create_file() that fails; 0: none */
        bool gives_unusable_file;    /* then it is the reservation that fails */
} FakeBackend;

static int fake_create_file(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd)
{
        FakeBackend *fake = CONTAINER_OF(backend, FakeBackend, backend);

        if (atomic_fetch_add(&fake->n_create_calls, 1) + 1 == fake->fails_at)
                return -EMFILE;
        if (!fake->gives_unusable_file)
                return memfd->ops->create_file(memfd, label, size_bytes, ret_fd);
        *ret_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

static const BackendOps fake_ops = { .name = "fake", .create_file = fake_create_file };

static FakeBackend *reset_fake(void)
{
        static FakeBackend fake; /* jobs may look at it until the workers are drained, after the test has returned */

        fake = (FakeBackend){ .backend = { .ops = &fake_ops, .capabilities = BACKEND_SEALABLE | BACKEND_PUNCHABLE } };
        return &fake;
}

/* --- set-up ------------------------------------------------------------------------------------------------------- */

static int make_backend(void **state)
{
        const char *call;

        return backend_memfd_new(FOLIO_HUGE_ALWAYS, &memfd, &call);
}

static int free_backend(void **state)
{
        backend_free(memfd);
        return 0;
}

static int set_up(void **state)
{
        harness_setup(state);
        base = event_base_new();
        budget_bytes = 256 * MIB;
        paid_bytes = 0;
        n_pay_calls = 0;
        pool = NULL;
        return worker_pool_new(base, 2, &workers);
}

static int tear_down(void **state)
{
        worker_pool_drain(workers);
        pool_free(pool);
        assert_int_equal(paid_bytes, 0);
        worker_pool_free(workers);
        event_base_free(base);
        return harness_teardown(state);
}

static void start(uint64_t bytes_max)
{
        const PoolConfig config = { .workers = workers, .bytes_max = bytes_max, .pay = pay, .repay = repay };

        assert_int_equal(pool_new(&config, &pool), 0);
}

static PoolUsage usage(void)
{
        PoolUsage now;

        pool_get_usage(pool, &now);
        assert_int_equal(now.bytes, paid_bytes); /* while the test holds no region */
        return now;
}

static void free_taken(Region *region)
{
        repay(NULL, region->size_bytes);
        region_unref(region);
}

static Region *make_region(uint64_t size_bytes)
{
        Region *region = NULL;

        assert_int_equal(region_new(memfd, "test", size_bytes, &region), 0);
        assert_int_equal(region_map(region, true), 0);
        assert_true(pay(NULL, size_bytes));
        return region;
}

/* --- blanks ------------------------------------------------------------------------------------------------------- */

static void test_blanks_are_ready_to_use(void **state)
{
        uint64_t allocated, huge;
        Region *region;
        bool is_blank = false;

        start(64 * MIB);
        pool_want(pool, memfd, 2 * HUGE_BYTES, true, 2);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_blank, 2);
        assert_int_equal(usage().bytes, 4 * HUGE_BYTES);

        region = pool_take(pool, memfd, HUGE_BYTES, true, 0, &is_blank);
        assert_non_null(region);
        assert_true(is_blank);
        assert_int_equal(region->size_bytes, 2 * HUGE_BYTES);
        assert_true(region->is_writable);
        assert_int_equal(region->seals & F_SEAL_FUTURE_WRITE, F_SEAL_FUTURE_WRITE);
        for (uint64_t i = 0; i < region->size_bytes; i++)
                assert_int_equal(region->data[i], 0);
        assert_int_equal(region_measure(region, &allocated, &huge), 0);
        assert_int_equal(allocated, 2 * HUGE_BYTES);
        if (memfd->capabilities & BACKEND_COLLAPSIBLE)
                assert_int_equal(huge, 2 * HUGE_BYTES);
        free_taken(region);

        worker_pool_drain(workers); /* what was taken is made again */
        assert_int_equal(usage().n_blank, 2);
        assert_int_equal(usage().n_hits, 1);
        assert_int_equal(usage().n_misses, 0);
        assert_int_equal(usage().n_collapse_failed, 0);
}

static void test_blanks_for_clients_are_unmapped(void **state)
{
        Region *region;
        bool is_blank;

        start(64 * MIB);
        pool_want(pool, memfd, HUGE_BYTES, false, 1);
        worker_pool_drain(workers);
        region = pool_take(pool, memfd, HUGE_BYTES, false, 0, &is_blank);
        assert_non_null(region);
        assert_null(region->data);
        assert_int_equal(region->seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
        assert_false(region->seals & F_SEAL_FUTURE_WRITE);
        assert_int_equal(region_seal_finally(region), 0); /* it can still become an object */
        free_taken(region);
}

static void test_what_fits_by_table(void **state)
{
        static const struct {
                uint64_t n_bytes;
                bool for_packed, is_hit;
        } rows[] = {
                { 4 * HUGE_BYTES, false, true },
                { 4 * HUGE_BYTES + 1, false, false },
                { 4 * HUGE_BYTES - 4 * HUGE_BYTES / 9, false, true },
                { 4 * HUGE_BYTES - 4 * HUGE_BYTES / 8, false, false }, /* more than an eighth of it would be wasted */
                { 2 * HUGE_BYTES, false, false },
                { 1, false, false },
                { UINT64_MAX, false, false },
                { 4 * HUGE_BYTES, true, false },
        };
        uint64_t n_misses = 0;

        start(64 * MIB);
        pool_want(pool, memfd, 4 * HUGE_BYTES, false, 1);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Region *region;
                bool is_blank;

                worker_pool_drain(workers);
                region = pool_take(pool, memfd, rows[i].n_bytes, rows[i].for_packed, 0, &is_blank);
                assert_int_equal(region != NULL, rows[i].is_hit);
                n_misses += !rows[i].is_hit;
                if (region)
                        free_taken(region);
        }
        assert_int_equal(usage().n_misses, n_misses);
}

static void test_the_smallest_that_fits(void **state)
{
        Region *region;
        bool is_blank;

        start(64 * MIB);
        pool_want(pool, memfd, 4 * HUGE_BYTES, true, 1);
        pool_want(pool, memfd, 3 * HUGE_BYTES, true, 1);
        worker_pool_drain(workers);
        region = pool_take(pool, memfd, 2 * HUGE_BYTES, true, 0, &is_blank);
        assert_int_equal(region->size_bytes, 3 * HUGE_BYTES);
        free_taken(region);
}

static void test_limits(void **state)
{
        start(5 * HUGE_BYTES);
        pool_want(pool, memfd, 2 * HUGE_BYTES, false, 100);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_blank, 2); /* a third would be over */
        pool_want(pool, memfd, HUGE_BYTES, false, 100);
        worker_pool_drain(workers);
        assert_int_equal(usage().bytes, 5 * HUGE_BYTES); /* exactly at the limit is allowed */
        pool_want(pool, memfd, HUGE_BYTES, false, 0);
        pool_want(pool, memfd, 2 * HUGE_BYTES, false, 1);
        assert_int_equal(usage().n_blank, 1);
        assert_int_equal(usage().bytes, 2 * HUGE_BYTES);
}

static void test_nothing_is_kept_with_a_limit_of_zero(void **state)
{
        bool is_blank;

        start(0);
        pool_want(pool, memfd, HUGE_BYTES, true, 5);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_blank, 0);
        assert_int_equal(n_pay_calls, 0);
        assert_null(pool_take(pool, memfd, HUGE_BYTES, true, 0, &is_blank));
        pool_give(pool, make_region(HUGE_BYTES), 7);
        assert_int_equal(usage().n_kept, 0);
        assert_int_equal(paid_bytes, 0);
}

static void test_no_room_in_the_budget(void **state)
{
        Region *region;
        bool is_blank;

        budget_bytes = 3 * HUGE_BYTES;
        start(64 * MIB);
        pool_want(pool, memfd, HUGE_BYTES, false, 10);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_blank, 3);
        assert_int_equal(n_pay_calls, 4); /* refused once, not asked again */
        region = pool_take(pool, memfd, HUGE_BYTES, false, 0, &is_blank);
        worker_pool_drain(workers);
        assert_int_equal(paid_bytes, 3 * HUGE_BYTES); /* the taken one is still paid for */
        free_taken(region);
}

static void test_making_fails(void **state)
{
        static const int n_targets = 3;

        for (int fails_at = 1; fails_at <= n_targets; fails_at++) {
                FakeBackend *fake = reset_fake();
                bool is_blank;

                fake->fails_at = fails_at;
                start(64 * MIB);
                pool_want(pool, &fake->backend, HUGE_BYTES, false, n_targets);
                worker_pool_drain(workers);
                assert_int_equal(usage().n_blank, n_targets - 1);
                assert_int_equal(usage().bytes, (n_targets - 1) * HUGE_BYTES);
                assert_int_equal(fake->n_create_calls, n_targets); /* no hot loop */
                free_taken(pool_take(pool, &fake->backend, HUGE_BYTES, false, 0, &is_blank));
                worker_pool_drain(workers); /* but another try when somebody asks */
                assert_int_equal(usage().n_blank, n_targets);
                pool_free(pool);
                pool = NULL;
                assert_int_equal(paid_bytes, 0);
        }
}

static void test_reserving_fails(void **state)
{
        FakeBackend *fake = reset_fake();
        bool is_blank;

        fake->gives_unusable_file = true;
        start(64 * MIB);
        pool_want(pool, &fake->backend, HUGE_BYTES, true, 2);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_blank, 0);
        assert_int_equal(paid_bytes, 0);
        assert_null(pool_take(pool, &fake->backend, HUGE_BYTES, true, 0, &is_blank));
}

/* The workers end before the jobs have run: each is cancelled, and its payment comes back. */
static void test_cancelled_jobs_clean_up(void **state)
{
        start(128 * MIB);
        pool_want(pool, memfd, 2 * HUGE_BYTES, true, 20);
        assert_int_equal(paid_bytes, 40 * HUGE_BYTES);
        worker_pool_free(workers);
        assert_int_equal(paid_bytes, usage().n_blank * 2 * HUGE_BYTES);
        assert_int_equal(worker_pool_new(base, 2, &workers), 0);
}

/* --- kept --------------------------------------------------------------------------------------------------------- */

static void test_kept_regions_go_to_their_tag_only(void **state)
{
        Region *given = make_region(HUGE_BYTES), *taken;
        bool is_blank = true;

        start(64 * MIB);
        given->data[0] = 's'; /* a secret of namespace 7 */
        pool_give(pool, given, 7);
        assert_int_equal(usage().n_kept, 1);
        assert_null(pool_take(pool, memfd, HUGE_BYTES, true, 0, &is_blank));
        assert_null(pool_take(pool, memfd, HUGE_BYTES, true, 8, &is_blank));
        assert_null(pool_take(pool, memfd, HUGE_BYTES, false, 7, &is_blank));
        taken = pool_take(pool, memfd, HUGE_BYTES, true, 7, &is_blank);
        assert_ptr_equal(taken, given);
        assert_false(is_blank);
        assert_int_equal(taken->data[0], 's');
        free_taken(taken);
        assert_int_equal(usage().n_kept, 0);
}

static void test_kept_before_blank(void **state)
{
        Region *given = make_region(HUGE_BYTES), *taken;
        bool is_blank;

        start(64 * MIB);
        pool_want(pool, memfd, HUGE_BYTES, true, 1);
        worker_pool_drain(workers);
        pool_give(pool, given, 7);
        taken = pool_take(pool, memfd, HUGE_BYTES, true, 7, &is_blank);
        assert_ptr_equal(taken, given);
        free_taken(taken);
        taken = pool_take(pool, memfd, HUGE_BYTES, true, 7, &is_blank);
        assert_non_null(taken);
        assert_true(is_blank);
        free_taken(taken);
}

static void test_forgetting_a_tag(void **state)
{
        bool is_blank;

        start(64 * MIB);
        for (uint64_t i = 0; i < 6; i++)
                pool_give(pool, make_region(HUGE_BYTES), 7 + i % 2);
        assert_int_equal(usage().n_kept, 6);
        pool_forget(pool, 7);
        assert_int_equal(usage().n_kept, 3);
        assert_int_equal(paid_bytes, 3 * HUGE_BYTES);
        assert_null(pool_take(pool, memfd, HUGE_BYTES, true, 7, &is_blank));
        pool_forget(pool, 8);
        pool_forget(pool, 9);
        assert_int_equal(paid_bytes, 0);
}

static void test_given_beyond_the_limit_is_freed(void **state)
{
        start(2 * HUGE_BYTES);
        for (int i = 0; i < 3; i++)
                pool_give(pool, make_region(HUGE_BYTES), 7);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_kept, 2);
        assert_int_equal(paid_bytes, 2 * HUGE_BYTES);
        pool_give(pool, make_region(HUGE_BYTES), 0); /* of no namespace: freed */
        assert_int_equal(usage().n_kept, 2);
}

/* --- draining ----------------------------------------------------------------------------------------------------- */

static void test_drain_gives_back_what_is_asked(void **state)
{
        start(64 * MIB);
        pool_want(pool, memfd, HUGE_BYTES, false, 4);
        worker_pool_drain(workers);
        pool_give(pool, make_region(HUGE_BYTES), 7);
        assert_int_equal(pool_drain(pool, 0), 0);
        assert_int_equal(pool_drain(pool, 1), HUGE_BYTES); /* whole regions */
        assert_int_equal(usage().n_kept, 0);
        assert_int_equal(pool_drain(pool, 2 * HUGE_BYTES), 2 * HUGE_BYTES);
        assert_int_equal(usage().n_blank, 2);
        assert_int_equal(pool_drain(pool, UINT64_MAX), 2 * HUGE_BYTES);
        assert_int_equal(paid_bytes, 0);
        assert_int_equal(pool_drain(pool, UINT64_MAX), 0);
        worker_pool_drain(workers);
        assert_int_equal(usage().n_blank, 0); /* and nothing is made again before somebody asks */
}

static void test_large_ones_go_by_a_worker(void **state)
{
        FakeBackend *fake = reset_fake(); /* of small pages: 8 MiB at once */
        uint64_t n_at_once;

        start(64 * MIB);
        pool_want(pool, &fake->backend, 6 * MIB, false, 3);
        worker_pool_drain(workers);
        assert_int_equal(paid_bytes, 18 * MIB);
        n_at_once = pool_drain(pool, 18 * MIB);
        assert_int_equal(n_at_once, 6 * MIB);
        assert_int_equal(paid_bytes, 12 * MIB);
        assert_int_equal(pool_drain(pool, 12 * MIB), 0); /* it is on its way */
        worker_pool_drain(workers);
        assert_int_equal(paid_bytes, 0);
}

static void test_drain_stops_what_is_being_made(void **state)
{
        start(128 * MIB);
        pool_want(pool, memfd, 2 * HUGE_BYTES, false, 10);
        (void)pool_drain(pool, UINT64_MAX);
        worker_pool_drain(workers);
        assert_int_equal(paid_bytes, 0);
        assert_int_equal(usage().n_blank, 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int attempt(void)
{
        const PoolConfig config = { .workers = workers, .bytes_max = 64 * MIB, .pay = pay, .repay = repay };
        Region *region = NULL;
        Pool *one = NULL;
        bool is_blank;
        int r;

        r = pool_new(&config, &one);
        if (r < 0)
                return r;
        pool_want(one, memfd, HUGE_BYTES, true, 1);
        worker_pool_drain(workers);
        region = pool_take(one, memfd, HUGE_BYTES, true, 0, &is_blank);
        if (region)
                pool_give(one, region, 3);
        worker_pool_drain(workers);
        pool_free(one);
        assert_int_equal(paid_bytes, 0);
        return region ? 0 : -ENOMEM;
}

static void test_allocation_failures(void **state)
{
        fail_alloc_sweep(attempt);
}

#define POOL_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                POOL_TEST(test_blanks_are_ready_to_use),
                POOL_TEST(test_blanks_for_clients_are_unmapped),
                POOL_TEST(test_what_fits_by_table),
                POOL_TEST(test_the_smallest_that_fits),
                POOL_TEST(test_limits),
                POOL_TEST(test_nothing_is_kept_with_a_limit_of_zero),
                POOL_TEST(test_no_room_in_the_budget),
                POOL_TEST(test_making_fails),
                POOL_TEST(test_reserving_fails),
                POOL_TEST(test_cancelled_jobs_clean_up),
                POOL_TEST(test_kept_regions_go_to_their_tag_only),
                POOL_TEST(test_kept_before_blank),
                POOL_TEST(test_forgetting_a_tag),
                POOL_TEST(test_given_beyond_the_limit_is_freed),
                POOL_TEST(test_drain_gives_back_what_is_asked),
                POOL_TEST(test_large_ones_go_by_a_worker),
                POOL_TEST(test_drain_stops_what_is_being_made),
                POOL_TEST(test_allocation_failures),
        };

        return cmocka_run_group_tests(tests, make_backend, free_backend);
}
