/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: good ones, stale ones, made-up ones, and many threads at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/macro.h"
#include "client/lib/handle.h"
#include "tests/unit/harness.h"

static int targets[4096];

static void test_find_and_take(void **state)
{
        struct folio_object *a = handle_new(&targets[0]), *b = handle_new(&targets[1]);

        assert_non_null(a);
        assert_ptr_not_equal(a, b);
        assert_ptr_equal(handle_find(a), &targets[0]);
        assert_ptr_equal(handle_find(b), &targets[1]);
        assert_ptr_equal(handle_take(a), &targets[0]);
        assert_null(handle_take(a));
        assert_null(handle_find(a));
        assert_ptr_equal(handle_find(b), &targets[1]);
        assert_ptr_equal(handle_take(b), &targets[1]);
}

static void test_looks_like_no_pointer_of_ours(void **state)
{
        struct folio_object *handles[4096];

        for (unsigned i = 0; i < 4096; i++) {
                handles[i] = handle_new(&targets[i]);
                assert_int_equal((uintptr_t)handles[i] & 1, 1);
                assert_true(sizeof(void *) < 8 || (uint64_t)(uintptr_t)handles[i] < UINT64_C(1) << 47);
        }
        for (unsigned i = 0; i < 4096; i++)
                assert_ptr_equal(handle_take(handles[i]), &targets[i]);
}

/* A place that is used again does not answer to its former handles, whoever has it now. */
static void test_stale(void **state)
{
        struct folio_object *former[2000];

        for (unsigned i = 0; i < 2000; i++) {
                former[i] = handle_new(&targets[i]);
                for (unsigned j = 0; j < i; j++)
                        assert_null(handle_find(former[j]));
                assert_ptr_equal(handle_take(former[i]), &targets[i]);
                assert_null(handle_take(former[i]));
        }
}

static void test_made_up(void **state)
{
        static const uint64_t rows[] = {
                0, 1, 2, 3, 0x1001, UINT32_MAX, UINT32_MAX - 1, 1u << 24, UINT64_C(1) << 46, UINT64_C(1) << 47,
                UINT64_C(0x7fffffffffff), UINT64_C(0x800000000001), UINT64_MAX, UINT64_MAX - 1, INT64_MAX,
        };
        struct folio_object *good = handle_new(&targets[0]);
        uintptr_t bits = (uintptr_t)good;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct folio_object *handle = (struct folio_object *)(uintptr_t)rows[i];

                if (handle == good)
                        continue;
                assert_null(handle_find(handle));
                assert_null(handle_take(handle));
        }
        for (unsigned i = 0; i < sizeof(bits) * 8; i++) {
                assert_null(handle_find((struct folio_object *)(bits ^ (uintptr_t)1 << i)));
                assert_null(handle_take((struct folio_object *)(bits ^ (uintptr_t)1 << i)));
        }
        assert_null(handle_find((struct folio_object *)(void *)&good));
        assert_ptr_equal(handle_take(good), &targets[0]);
}

/* A place that is kept is nobody else's, answers to no handle, and gives another one each time. */
static void test_keep_and_renew(void **state)
{
        struct folio_object *first = handle_new(&targets[0]), *handle = first, *other;

        for (unsigned i = 0; i < 2000; i++) {
                struct folio_object *kept = handle;

                assert_ptr_equal(handle_keep(kept), &targets[0]);
                assert_null(handle_find(kept));
                assert_null(handle_keep(kept));
                assert_null(handle_take(kept));
                other = handle_new(&targets[1]);
                assert_ptr_equal(handle_take(other), &targets[1]);
                handle = handle_renew(kept);
                assert_ptr_not_equal(handle, kept);
                assert_null(handle_find(kept));
                assert_ptr_equal(handle_find(handle), &targets[0]);
        }
        assert_null(handle_find(first));
        assert_ptr_equal(handle_keep(handle), &targets[0]);
        handle_drop(handle);
        /* Free again: what comes next has the place, and the old handles find nothing. */
        other = handle_new(&targets[2]);
        assert_null(handle_find(handle));
        assert_ptr_equal(handle_find(other), &targets[2]);
        assert_ptr_equal(handle_take(other), &targets[2]);
        assert_null(handle_keep(NULL));
}

static void test_many(void **state)
{
        enum { N = 300000 };
        struct folio_object **handles = test_calloc(N, sizeof(*handles));

        for (unsigned i = 0; i < N; i++) {
                handles[i] = handle_new(&targets[i % 4096]);
                assert_non_null(handles[i]);
        }
        for (unsigned i = 0; i < N; i++)
                assert_ptr_equal(handle_find(handles[i]), &targets[i % 4096]);
        for (unsigned i = 0; i < N; i++)
                assert_ptr_equal(handle_take(handles[i]), &targets[i % 4096]);
        for (unsigned i = 0; i < N; i++)
                assert_null(handle_find(handles[i]));
        test_free(handles);
}

/* -- threads ------------------------------------------------------------------------------------------------------ */

enum { N_THREADS = 4, N_TURNS = 30000, N_SHARED = 64 };

typedef struct Race {
        struct folio_object *_Atomic shared[N_SHARED];
        atomic_uint n_taken[N_SHARED];
        atomic_uint n_bad;
        atomic_uint n_ready;
} Race;

static void *race_take(void *userdata)
{
        Race *race = userdata;
        int own = 0;

        atomic_fetch_add(&race->n_ready, 1);
        while (atomic_load(&race->n_ready) < N_THREADS)
                ;
        for (unsigned i = 0; i < N_SHARED; i++) {
                int *target = handle_take(race->shared[i]);

                if (target && target != &targets[i])
                        atomic_fetch_add(&race->n_bad, 1);
                if (target)
                        atomic_fetch_add(&race->n_taken[i], 1);
        }
        for (unsigned i = 0; i < N_TURNS; i++) {
                struct folio_object *handle = handle_new(&own);

                /* What others have given up must not become ours under its old handle. */
                if (handle_find(handle) != &own || handle_find(race->shared[i % N_SHARED]) ||
                    handle_keep(handle) != &own)
                        atomic_fetch_add(&race->n_bad, 1);
                handle = handle_renew(handle);
                if (handle_find(handle) != &own || handle_take(handle) != &own)
                        atomic_fetch_add(&race->n_bad, 1);
        }
        return NULL;
}

static void test_of_many_one_takes(void **state)
{
        Race *race = test_calloc(1, sizeof(*race));
        pthread_t threads[N_THREADS];

        for (unsigned i = 0; i < N_SHARED; i++)
                race->shared[i] = handle_new(&targets[i]);
        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, race_take, race), 0);
        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (unsigned i = 0; i < N_SHARED; i++)
                assert_int_equal(race->n_taken[i], 1);
        assert_int_equal(race->n_bad, 0);
        test_free(race);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_find_and_take), UNIT_TEST(test_looks_like_no_pointer_of_ours),
                UNIT_TEST(test_stale),         UNIT_TEST(test_made_up),
                UNIT_TEST(test_keep_and_renew), UNIT_TEST(test_many),
                UNIT_TEST(test_of_many_one_takes),
        };

        return cmocka_run_group_tests_name("handle", tests, NULL, NULL);
}
