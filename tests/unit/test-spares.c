/* SPDX-License-Identifier: Apache-2.0 */
/* Spares: what is given is taken once, by one; nothing is lost when it ends. */
#include <pthread.h>
#include <stdlib.h>

#include "client/lib/spares.h"
#include "tests/unit/harness.h"

static unsigned n_ended;

static void count_end(void *item)
{
        *(int *)item = 0;
        n_ended++;
}

static void test_give_and_take(void **state)
{
        static const uint64_t numbers[] = { 0, 1, 2, 63, 64, UINT32_MAX, INT64_MAX, UINT64_MAX };
        Spares *spares = test_calloc(1, sizeof(*spares));
        int item = 1, other = 2;

        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                assert_null(spares_take(spares, numbers[i]));
                assert_true(spares_give(spares, numbers[i], &item));
                assert_false(spares_give(spares, numbers[i], &other));
                assert_ptr_equal(spares_take(spares, numbers[i]), &item);
                assert_null(spares_take(spares, numbers[i]));
        }
        spares_close(spares, count_end);
        test_free(spares);
}

static void test_close(void **state)
{
        Spares *spares = test_calloc(1, sizeof(*spares));
        int items[1000];
        unsigned n_given = 0;

        n_ended = 0;
        for (unsigned i = 0; i < 1000; i++) {
                items[i] = 1;
                n_given += spares_give(spares, i, &items[i]);
        }
        assert_true(n_given > 1 && n_given <= SPARES_MAX);
        spares_close(spares, count_end);
        assert_int_equal(n_ended, n_given);
        for (unsigned i = 0; i < 1000; i++) {
                assert_null(spares_take(spares, i));
                assert_false(spares_give(spares, i, &items[i]));
        }
        /* Once more: nothing is there to end. */
        spares_close(spares, count_end);
        assert_int_equal(n_ended, n_given);
        test_free(spares);
}

enum { N_THREADS = 4, N_TURNS = 50000, N_NUMBERS = 3 };

typedef struct Race {
        Spares spares;
        atomic_uint n_bad;
        atomic_uint n_ready;
} Race;

/* An item is a number that only its owner changes: of two owners at once one would see the other's. */
static void *race_run(void *userdata)
{
        Race *race = userdata;
        unsigned *own = NULL;

        atomic_fetch_add(&race->n_ready, 1);
        while (atomic_load(&race->n_ready) < N_THREADS)
                ;
        for (unsigned i = 0; i < N_TURNS; i++) {
                if (!own)
                        own = spares_take(&race->spares, i % N_NUMBERS);
                if (!own) {
                        own = malloc(sizeof(*own));
                        if (!own)
                                break;
                }
                *own = i;
                if (*(volatile unsigned *)own != i)
                        atomic_fetch_add(&race->n_bad, 1);
                if (spares_give(&race->spares, i % N_NUMBERS, own))
                        own = NULL;
        }
        free(own);
        return NULL;
}

static void test_threads(void **state)
{
        Race *race = test_calloc(1, sizeof(*race));
        pthread_t threads[N_THREADS];

        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, race_run, race), 0);
        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(race->n_bad, 0);
        spares_close(&race->spares, free);
        test_free(race);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_give_and_take),
                UNIT_TEST(test_close),
                UNIT_TEST(test_threads),
        };

        return cmocka_run_group_tests_name("spares", tests, NULL, NULL);
}
