/* SPDX-License-Identifier: Apache-2.0 */
/* To look or to sleep, with made-up times: what is chosen after a while is what ends sooner. */
#include "tests/unit/harness.h"

#include <stdbool.h>

#include "client/lib/spin.h"

/* Waits that end when one looks for @seen_ns, and else take @slept_ns: in how many of @n is looking chosen? */
static unsigned count_looks(Spin *spin, uint32_t seen_ns, uint64_t slept_ns, unsigned n)
{
        unsigned n_looks = 0;

        for (unsigned i = 0; i < n; i++) {
                uint32_t chosen = spin_choose(spin);

                assert_true(chosen <= SPIN_NS_MAX);
                n_looks += chosen > 0;
                if (chosen == 0)
                        spin_learn(spin, chosen, false, slept_ns);
                else if (chosen >= seen_ns)
                        spin_learn(spin, chosen, true, seen_ns);
                else
                        spin_learn(spin, chosen, false, chosen + slept_ns);
        }
        return n_looks;
}

static void test_spin(void **state)
{
        Spin spin;

        spin_init(&spin, false);
        assert_int_equal(count_looks(&spin, 100, 20000, 1000), 0);

        /* A daemon that answers in a microsecond is never slept for. */
        spin_init(&spin, true);
        assert_int_equal(count_looks(&spin, 1000, 20000, 1000), 1000);
        assert_true(spin_choose(&spin) <= 6000);
        /* Then it takes 10 ms: a few looks now and then, short ones. */
        (void)count_looks(&spin, UINT32_MAX, 10 * 1000 * 1000, 1000);
        assert_true(count_looks(&spin, UINT32_MAX, 10 * 1000 * 1000, 1000) <= 1000 / 16);
        /* And is fast again. */
        (void)count_looks(&spin, 1500, 20000, 2000);
        assert_int_equal(count_looks(&spin, 1500, 20000, 1000), 1000);
        /* Looking keeps the daemon from running: it comes sooner when we sleep. */
        (void)count_looks(&spin, 25000, 13000, 1000);
        assert_true(count_looks(&spin, 25000, 13000, 1000) <= 1000 / 16);
        /* It pays: 12 us instead of 30. */
        (void)count_looks(&spin, 12000, 30000, 2000);
        assert_true(count_looks(&spin, 12000, 30000, 1000) >= 1000 - 1000 / 16);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_spin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
