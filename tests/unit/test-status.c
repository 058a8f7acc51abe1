/* SPDX-License-Identifier: Apache-2.0 */
/* The table of outcomes: complete, without gaps, every outcome an errno of the public list, numbers for ever. */
#include "harness.h"

#include <stdbool.h>

#include "proto/status.h"

static void test_table_has_no_gap(void **state)
{
        uint32_t n = 0;

#define X(name, number, error, text)                                                                                   \
        assert_int_equal(number, n);                                                                                   \
        assert_int_equal(STATUS_##name, number);                                                                       \
        n++;
        STATUS_TABLE(X)
#undef X
        assert_int_equal(n, _STATUS_MAX);
}

static void test_errors_are_public(void **state)
{
        static const int public[] = {
                FOLIO_E_NOT_FOUND, FOLIO_E_DELETED, FOLIO_E_EVICTED, FOLIO_E_EXPIRED, FOLIO_E_WRITING,
                FOLIO_E_WRITER_DIED, FOLIO_E_EXISTS, FOLIO_E_ACCESS, FOLIO_E_FULL, FOLIO_E_TOO_LARGE, FOLIO_E_LIMIT,
                FOLIO_E_PROTOCOL, FOLIO_E_RANGE, FOLIO_E_INVALID, FOLIO_E_STATE, FOLIO_E_UNSUPPORTED,
                FOLIO_E_CANCELLED, FOLIO_E_IO, FOLIO_E_DAEMON_GONE,
        };

        assert_int_equal(status_to_error(STATUS_OK), 0);
        for (uint32_t status = 1; status < _STATUS_MAX; status++) {
                int error = status_to_error(status);
                bool is_public = false;

                for (size_t i = 0; i < sizeof(public) / sizeof(public[0]); i++)
                        is_public = is_public || public[i] == error;
                assert_true(is_public);
                assert_true(strlen(status_to_text(status)) > 0);
        }
}

static void test_numbers_of_a_newer_daemon(void **state)
{
        static const uint32_t unknown[] = { _STATUS_MAX, _STATUS_MAX + 1, 255, UINT32_MAX };

        for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
                assert_int_equal(status_to_error(unknown[i]), FOLIO_E_PROTOCOL);
                assert_non_null(status_to_text(unknown[i]));
        }
}

static void test_numbers_are_for_ever(void **state)
{
        assert_int_equal(STATUS_NOT_FOUND, 1);
        assert_int_equal(STATUS_ACCESS, 8);
        assert_int_equal(STATUS_FULL, 9);
        assert_int_equal(STATUS_INVALID, 13);
        assert_int_equal(STATUS_MAPPED, 16);
        assert_int_equal(STATUS_PROTOCOL, 19);
        assert_int_equal(STATUS_GONE, 20);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_table_has_no_gap),
                UNIT_TEST(test_errors_are_public),
                UNIT_TEST(test_numbers_of_a_newer_daemon),
                UNIT_TEST(test_numbers_are_for_ever),
        };

        return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
