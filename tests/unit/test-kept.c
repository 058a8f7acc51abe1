/* SPDX-License-Identifier: Apache-2.0 */
/* Kept results against an array that knows which are there: found, found once, and found after others have moved. */
#include "tests/unit/harness.h"

#include <errno.h>
#include <stdlib.h>

#include "client/lib/kept.h"
#include "tests/unit/fail-alloc.h"

static void test_kept(void **state)
{
        enum { N = 3000 };
        Kept kept = KEPT_NULL;
        bool is_in[N] = { false };
        uint64_t random = 1;
        KeptResult result;

        assert_false(kept_take(&kept, 0, &result));
        for (unsigned i = 0; i < 40000; i++) {
                uint64_t n;

                random = random * 6364136223846793005u + 1442695040888963407u;
                n = random >> 40 & 1 ? (random >> 33) % N : (random >> 33) % (N / 64) * 64;
                if (is_in[n]) {
                        assert_true(kept_take(&kept, n, &result));
                        assert_int_equal(result.sequence_end, n + 1);
                        assert_int_equal(result.slot, n * 3);
                } else {
                        assert_false(kept_take(&kept, n, &result));
                        assert_true(kept_push(&kept, &(KeptResult){ .sequence_end = n + 1, .slot = (uint32_t)n * 3 }));
                }
                is_in[n] = !is_in[n];
        }
        for (uint64_t n = 0; n < N; n++)
                assert_int_equal(kept_take(&kept, n, &result), is_in[n]);
        assert_int_equal(kept.n_results, 0);
        assert_true(kept_push(&kept, &(KeptResult){ .sequence_end = 1, .failure = calloc(1, sizeof(KeptFailure)) }));
        kept_deinit(&kept);
}

static int attempt_push(void)
{
        Kept kept = KEPT_NULL;
        KeptResult result;
        int r = 0;

        for (uint64_t n = 0; n < 200; n++) {
                if (!kept_push(&kept, &(KeptResult){ .sequence_end = n + 1 })) {
                        r = -ENOMEM;
                        break;
                }
                /* What could not be put in changed nothing. */
                assert_true(kept_take(&kept, n / 2, &result));
                assert_true(kept_push(&kept, &result));
        }
        kept_deinit(&kept);
        return r;
}

static void test_no_memory(void **state)
{
        fail_alloc_sweep(attempt_push);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_kept),
                UNIT_TEST(test_no_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
