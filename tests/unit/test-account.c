/* SPDX-License-Identifier: Apache-2.0 */
/* Limits and charges: at the limit, one over, far over, along a chain of parents, and back to zero. */
#include "harness.h"

#include "base/macro.h"
#include "daemon/store/account.h"

static void test_limits(void **state)
{
        static const struct {
                uint64_t bytes_max, count_max, bytes_used, count_used, n_bytes, n_count;
                int outcome;
        } rows[] = {
                { 100, 10, 0, 0, 100, 10, 0 },
                { 100, 10, 0, 0, 101, 1, ACCOUNT_E_NEVER },
                { 100, 10, 0, 0, 1, 11, ACCOUNT_E_NEVER },
                { 100, 10, 1, 0, 99, 1, 0 },
                { 100, 10, 1, 0, 100, 1, ACCOUNT_E_BYTES },
                { 100, 10, 0, 9, 0, 1, 0 },
                { 100, 10, 0, 9, 0, 2, ACCOUNT_E_COUNT },
                { 100, 10, 50, 5, UINT64_MAX, 0, ACCOUNT_E_NEVER },
                { 100, 10, 50, 5, 0, UINT64_MAX, ACCOUNT_E_NEVER },
                { UINT64_MAX, UINT64_MAX, UINT64_MAX - 1, 0, 1, 1, 0 },
                { UINT64_MAX, UINT64_MAX, UINT64_MAX - 1, 0, 2, 1, ACCOUNT_E_BYTES },
                { UINT64_MAX, UINT64_MAX, 1, 0, UINT64_MAX, 0, ACCOUNT_E_BYTES },
                { 0, 0, 0, 0, 0, 0, 0 },
                { 0, 0, 0, 0, 1, 0, ACCOUNT_E_NEVER },
                { 100, 10, 200, 20, 0, 0, 0 },
                { 100, 10, 200, 20, 1, 0, ACCOUNT_E_BYTES },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                const Account *culprit = NULL;
                Charge charge = CHARGE_NULL;
                Account account;

                account_init(&account, NULL, rows[i].bytes_max, rows[i].count_max);
                account.bytes_used = rows[i].bytes_used;
                account.count_used = rows[i].count_used;
                assert_int_equal(account_charge(&account, rows[i].n_bytes, rows[i].n_count, &charge, &culprit),
                                 rows[i].outcome);
                if (rows[i].outcome) {
                        assert_ptr_equal(culprit, &account);
                        assert_null(charge.account);
                        assert_int_equal(account.bytes_used, rows[i].bytes_used);
                        assert_int_equal(account.count_used, rows[i].count_used);
                }
                charge_release(&charge);
                charge_release(&charge);
                assert_int_equal(account.bytes_used, rows[i].bytes_used);
                assert_int_equal(account.count_used, rows[i].count_used);
        }
}

/* All of the chain or none; the culprit is who has no room. */
static void test_chain(void **state)
{
        Account root, middle, leaf;
        const Account *culprit = NULL;
        Charge a = CHARGE_NULL, b = CHARGE_NULL;

        (void)state;
        account_init(&root, NULL, 100, UINT64_MAX);
        account_init(&middle, &root, UINT64_MAX, 2);
        account_init(&leaf, &middle, 80, UINT64_MAX);
        assert_int_equal(account_charge(&leaf, 60, 1, &a, &culprit), 0);
        assert_int_equal(root.bytes_used, 60);
        assert_int_equal(middle.count_used, 1);
        assert_int_equal(account_charge(&leaf, 90, 1, &b, &culprit), ACCOUNT_E_NEVER);
        assert_ptr_equal(culprit, &leaf);
        assert_int_equal(account_charge(&leaf, 10, 2, &b, &culprit), ACCOUNT_E_COUNT);
        assert_ptr_equal(culprit, &middle);
        assert_int_equal(account_charge(&middle, 50, 1, &b, &culprit), ACCOUNT_E_BYTES);
        assert_ptr_equal(culprit, &root);
        assert_int_equal(root.bytes_used, 60);
        assert_int_equal(middle.bytes_used, 60);
        assert_int_equal(account_charge(&middle, 40, 1, &b, &culprit), 0);
        assert_int_equal(account_free_bytes(&root), 0);
        charge_release(&a);
        charge_release(&b);
        account_deinit(&leaf);
        account_deinit(&middle);
        account_deinit(&root);
}

static void test_resize(void **state)
{
        const Account *culprit = NULL;
        Charge a = CHARGE_NULL, b = CHARGE_NULL;
        Account account;

        (void)state;
        account_init(&account, NULL, 100, 2);
        assert_int_equal(account_charge(&account, 10, 1, &a, &culprit), 0);
        assert_int_equal(account_charge(&account, 10, 1, &b, &culprit), 0);
        assert_int_equal(charge_resize(&a, 90, &culprit), 0);
        assert_int_equal(charge_resize(&a, 91, &culprit), ACCOUNT_E_BYTES);
        assert_int_equal(a.n_bytes, 90);
        assert_int_equal(charge_resize(&a, 101, &culprit), ACCOUNT_E_NEVER);
        assert_int_equal(charge_resize(&a, UINT64_MAX, &culprit), ACCOUNT_E_NEVER);
        assert_int_equal(account.bytes_used, 100);
        account.bytes_max = 5;
        assert_int_equal(charge_resize(&a, 20, &culprit), 0);
        assert_int_equal(account.bytes_used, 30);
        assert_int_equal(charge_resize(&a, 0, &culprit), 0);
        charge_release(&a);
        charge_release(&b);
        account_deinit(&account);
}

static void test_move(void **state)
{
        const Account *culprit = NULL;
        Charge a = CHARGE_NULL, b = CHARGE_NULL;
        Account account;

        (void)state;
        account_init(&account, NULL, 100, 1);
        assert_int_equal(account_charge(&account, 100, 1, &a, &culprit), 0);
        charge_move(&a, &b, 30);
        charge_move(&a, &b, 30);
        assert_int_equal(a.n_bytes, 40);
        assert_int_equal(b.n_bytes, 60);
        assert_int_equal(account.bytes_used, 100);
        charge_release(&a);
        assert_int_equal(account.bytes_used, 60);
        charge_move(&b, &a, 60);
        charge_release(&b);
        charge_release(&a);
        account_deinit(&account);
}

/* What is there already is counted whatever the limit says; then there is no room, until it has gone. */
static void test_set(void **state)
{
        Charge charge = CHARGE_NULL, other = CHARGE_NULL;
        Account parent, account;
        const Account *culprit;

        (void)state;
        account_init(&parent, NULL, UINT64_MAX, UINT64_MAX);
        account_init(&account, &parent, 100, UINT64_MAX);
        assert_int_equal(account_charge(&account, 10, 0, &charge, &culprit), 0);
        charge_set(&charge, 150);
        assert_int_equal(account.bytes_used, 150);
        assert_int_equal(parent.bytes_used, 150);
        assert_int_equal(account_free_bytes(&account), 0);
        assert_int_equal(account_charge(&account, 1, 0, &other, &culprit), ACCOUNT_E_BYTES);
        charge_set(&charge, 99);
        assert_int_equal(account_charge(&account, 1, 0, &other, &culprit), 0);
        charge_set(&charge, 0);
        assert_int_equal(parent.bytes_used, 1);
        charge_release(&other);
        charge_release(&charge);
        account_deinit(&account);
        account_deinit(&parent);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_limits),
                UNIT_TEST(test_chain),
                UNIT_TEST(test_resize),
                UNIT_TEST(test_move),
                UNIT_TEST(test_set),
        };

        return cmocka_run_group_tests_name("account", tests, NULL, NULL);
}
