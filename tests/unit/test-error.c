/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about names: which rule is broken, and by how much. */
#include "client/error.h"

#include <stdlib.h>
#include <string.h>

#include "proto/key.h"
#include "tests/unit/harness.h"

static void test_names(void **state)
{
        static const struct {
                const char *name, *wanted;
        } rows[] = {
                { NULL, "the name is NULL" },
                { "", "the name is empty" },
                { ":x", "\":x\" has nothing before its colon" },
                { ":", "nothing before its colon" },
                { "default:", "\"default:\" is a namespace: the key behind the colon is missing" },
                { "a b:x", "the namespace \"a b\" holds ' '" },
                { "Upper:x", "holds 'U'" },
                { "a\nb:x", "holds '?'" },
        };
        Key ignored, key;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_true(!rows[i].name || !key_split_name(rows[i].name, false, &ignored, &key));
                assert_int_equal(error_set_name(rows[i].name, false), FOLIO_E_INVALID);
                if (!strstr(error_get_sentence(), rows[i].wanted))
                        fail_msg("row %zu: %s", i, error_get_sentence());
        }
        assert_int_equal(error_set_name(NULL, true), FOLIO_E_INVALID);
        assert_non_null(strstr(error_get_sentence(), "the prefix is NULL"));
}

static void check_length(size_t n_namespace, size_t n_key, const char *wanted)
{
        char *name = malloc(n_namespace + 1 + n_key + 1), *at = name;
        Key ignored, key;

        assert_non_null(name);
        memset(at, 'n', n_namespace);
        at += n_namespace;
        if (n_namespace > 0)
                *at++ = ':';
        memset(at, 'k', n_key);
        at[n_key] = '\0';
        assert_int_equal(key_split_name(name, false, &ignored, &key), !wanted);
        if (wanted) {
                assert_int_equal(error_set_name(name, false), FOLIO_E_INVALID);
                if (!strstr(error_get_sentence(), wanted) || !strstr(error_get_sentence(), "...\" has"))
                        fail_msg("%zu, %zu: %s", n_namespace, n_key, error_get_sentence());
        }
        free(name);
}

static void test_lengths(void **state)
{
        check_length(0, FOLIO_KEY_BYTES_MAX, NULL);
        check_length(0, FOLIO_KEY_BYTES_MAX + 1, "has 256 bytes, and 255 is the most");
        check_length(FOLIO_NAMESPACE_BYTES_MAX, FOLIO_KEY_BYTES_MAX, NULL);
        check_length(FOLIO_NAMESPACE_BYTES_MAX, FOLIO_KEY_BYTES_MAX + 1, "has 256 bytes, and 255 is the most");
        check_length(FOLIO_NAMESPACE_BYTES_MAX + 1, 1, "has 64 bytes, and 63 is the most");
        check_length(0, 10000, "has 10000 bytes, and 255 is the most");
        check_length(0, 2 << 20, "has 1048576 bytes or more");
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_names),
                UNIT_TEST(test_lengths),
        };

        return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
