/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of times against a sorted model, with removals from anywhere. */
#include "harness.h"

#include <stdlib.h>

#include "base/macro.h"
#include "daemon/store/expiry.h"

enum { N = 2000 };

static void test_order(void **state)
{
        Expiry expiry = EXPIRY_NULL;
        Object *objects = calloc(N, sizeof(*objects));
        uint64_t *times = calloc(N, sizeof(*times));
        uint64_t random = 7, last = 0;
        size_t n_there = 0;

        (void)state;
        assert_int_equal(expiry_next_ns(&expiry), UINT64_MAX);
        assert_null(expiry_peek(&expiry));
        for (int i = 0; i < N; i++) {
                random = random * UINT64_C(6364136223846793005) + 1;
                times[i] = random >> 54; /* many are equal */
                objects[i].expiry_place = OBJECT_NOT_PLACED;
                assert_int_equal(expiry_reserve(&expiry), 0);
                expiry_add(&expiry, &objects[i], times[i]);
        }
        for (int i = 0; i < N; i += 3) {
                expiry_remove(&expiry, &objects[i]);
                expiry_remove(&expiry, &objects[i]);
                assert_int_equal(objects[i].expiry_place, OBJECT_NOT_PLACED);
        }
        while (expiry_peek(&expiry)) {
                Object *object = expiry_peek(&expiry);
                size_t i = (size_t)(object - objects);

                assert_true(i % 3 != 0);
                assert_int_equal(expiry_next_ns(&expiry), times[i]);
                assert_true(times[i] >= last);
                last = times[i];
                expiry_remove(&expiry, object);
                n_there++;
        }
        assert_int_equal(n_there, N - (N + 2) / 3);
        expiry_deinit(&expiry);
        free(objects);
        free(times);
}

/* A promise is kept whatever is added meanwhile, and can be given back. */
static void test_reservations(void **state)
{
        Expiry expiry = EXPIRY_NULL;
        Object *objects = calloc(100, sizeof(*objects));

        (void)state;
        for (int i = 0; i < 100; i++)
                assert_int_equal(expiry_reserve(&expiry), 0);
        assert_true(expiry.n_room >= 100);
        for (int i = 0; i < 99; i++) {
                size_t n_room = expiry.n_room;

                objects[i].expiry_place = OBJECT_NOT_PLACED;
                expiry_add(&expiry, &objects[i], (uint64_t)(100 - i));
                assert_int_equal(expiry.n_room, n_room);
        }
        expiry_cancel_reservation(&expiry);
        assert_int_equal(expiry_next_ns(&expiry), 2);
        for (int i = 0; i < 99; i++)
                expiry_remove(&expiry, &objects[i]);
        expiry_deinit(&expiry);
        free(objects);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_order),
                UNIT_TEST(test_reservations),
        };

        return cmocka_run_group_tests_name("expiry", tests, NULL, NULL);
}
