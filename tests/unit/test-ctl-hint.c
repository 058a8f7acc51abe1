/* SPDX-License-Identifier: Apache-2.0 */
/* What folioctl says can be done: of the same number different things, by what was tried and what the sentence names. */
#include "client/ctl/hint.h"

#include <string.h>

#include <folio/folio.h>

#include "tests/unit/harness.h"

static void test_by_what_was_tried(void **state)
{
        static const struct {
                int error;
                const char *what, *sentence, *wanted, *unwanted;
        } rows[] = {
                { FOLIO_E_NOT_FOUND, "get", "x: there is no namespace x", "ns add", "folioctl ls" },
                { FOLIO_E_NOT_FOUND, "get", "there is no object x", "folioctl ls", "ns add" },
                { FOLIO_E_NOT_FOUND, "remove", "x: no object of that name", "folioctl ls", "wait" },
                { FOLIO_E_NOT_FOUND, "remove namespace", "there is no namespace x", "ns ls", "ns add" },
                { FOLIO_E_DELETED, "remove", "x: the object was deleted", "folioctl ls", "put it again" },
                { FOLIO_E_DELETED, "get", "x was deleted", "put it again", "folioctl ls" },
                { FOLIO_E_EXISTS, "put", "x: the name is taken", "--replace", "ns set" },
                { FOLIO_E_EXISTS, "add namespace", "there is a namespace x already", "ns set", "--replace" },
                { FOLIO_E_TOO_LARGE, "truncate", "9 bytes are more than the object's capacity of 8", "folioctl stat",
                  "status memory" },
                { FOLIO_E_TOO_LARGE, "put", "9 bytes are more than the store's budget", "status memory", "--quota" },
                { FOLIO_E_TOO_LARGE, "put", "9 bytes are more than the quota of namespace x", "--quota SIZE",
                  "status memory" },
                { FOLIO_E_LIMIT, "put", "its quota is 2; delete some, or raise its quota-objects", "--quota-objects N",
                  "--quota SIZE" },
                { FOLIO_E_LIMIT, "put", "8 bytes of its quota of 9 are in use", "--quota SIZE", "--quota-objects" },
                { FOLIO_E_TIMEOUT, "get", "x is not there within the time given", "--wait", "--timeout" },
                { FOLIO_E_TIMEOUT, "get", "foliod at /x has not answered within 5 ms", "--timeout", "--wait" },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                const char *advice = hint_find(rows[i].error, rows[i].what, rows[i].sentence);

                assert_non_null(advice);
                if (!strstr(advice, rows[i].wanted) || strstr(advice, rows[i].unwanted))
                        fail_msg("row %zu: %s", i, advice);
        }
}

static void test_nothing_to_say(void **state)
{
        assert_null(hint_find(FOLIO_E_INVALID, "put", "the name is empty"));
        assert_null(hint_find(FOLIO_E_ACCESS, "connect to foliod", "/x has mode 0755"));
        assert_null(hint_find(0, "put", ""));
        assert_null(hint_find(-123456, "put", ""));
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_by_what_was_tried),
                UNIT_TEST(test_nothing_to_say),
        };

        return cmocka_run_group_tests_name("ctl-hint", tests, NULL, NULL);
}
