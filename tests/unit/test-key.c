/* SPDX-License-Identifier: Apache-2.0 */
/* Names and keys: every limit from both sides, how names split, and that the hash is the one written down here. */
#include "harness.h"

#include <stdlib.h>

#include "folio/types.h"
#include "proto/key.h"

static void test_namespace_lengths(void **state)
{
        char name[FOLIO_NAMESPACE_BYTES_MAX + 2];

        memset(name, 'a', sizeof(name));
        assert_false(key_is_valid_namespace(name, 0));
        assert_true(key_is_valid_namespace(name, 1));
        assert_true(key_is_valid_namespace(name, FOLIO_NAMESPACE_BYTES_MAX));
        assert_false(key_is_valid_namespace(name, FOLIO_NAMESPACE_BYTES_MAX + 1));
        assert_false(key_is_valid_namespace(name, SIZE_MAX));
}

static void test_namespace_alphabet(void **state)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";

        for (int c = 0; c < 256; c++) {
                char name[3] = { 'x', (char)c, 'y' };
                bool is_allowed = c != 0 && strchr(allowed, c);

                assert_int_equal(key_is_valid_namespace(name, 3), is_allowed);
        }
}

static void test_key_lengths_and_bytes(void **state)
{
        char key[FOLIO_KEY_BYTES_MAX + 1];

        memset(key, '/', sizeof(key));
        assert_false(key_is_valid(key, 0));
        assert_true(key_is_valid(key, 1));
        assert_true(key_is_valid(key, FOLIO_KEY_BYTES_MAX));
        assert_false(key_is_valid(key, FOLIO_KEY_BYTES_MAX + 1));
        assert_false(key_is_valid(key, SIZE_MAX));
        for (int c = 0; c < 256; c++) {
                key[7] = (char)c;
                assert_int_equal(key_is_valid(key, 20), c != 0);
        }
        /* A NUL behind the end is nobody's business. */
        key[7] = '\0';
        assert_true(key_is_valid(key, 7));
}

static void assert_split(const char *name, bool is_prefix, const char *ns, const char *key)
{
        Key ret_ns = { "untouched", 9 }, ret_key = { "untouched", 9 };
        bool ok = key_split_name(name, is_prefix, &ret_ns, &ret_key);

        if (!ns) {
                assert_false(ok);
                assert_string_equal(ret_ns.bytes, "untouched");
                assert_string_equal(ret_key.bytes, "untouched");
                return;
        }
        assert_true(ok);
        assert_int_equal(ret_ns.n_bytes, strlen(ns));
        assert_memory_equal(ret_ns.bytes, ns, strlen(ns));
        assert_int_equal(ret_key.n_bytes, strlen(key));
        assert_memory_equal(ret_key.bytes, key, strlen(key));
}

static void test_split(void **state)
{
        assert_split("key", false, "default", "key");
        assert_split("ns:key", false, "ns", "key");
        assert_split("default:the:key", false, "default", "the:key");
        assert_split("ns::", false, "ns", ":");
        assert_split("ns:", false, NULL, NULL);
        assert_split("ns:", true, "ns", "");
        assert_split("", false, NULL, NULL);
        assert_split("", true, "default", "");
        assert_split(":key", false, NULL, NULL);
        assert_split(":", true, NULL, NULL);
        assert_split("NS:key", false, NULL, NULL);
        assert_split("a b:key", false, NULL, NULL);
        assert_split("../x", false, "default", "../x");
        assert_split("\xc3\xa9", false, "default", "\xc3\xa9");
}

static void test_split_lengths(void **state)
{
        for (size_t n_ns = 0; n_ns <= FOLIO_NAMESPACE_BYTES_MAX + 1; n_ns++) {
                for (size_t n_key = FOLIO_KEY_BYTES_MAX - 1; n_key <= FOLIO_KEY_BYTES_MAX + 1; n_key++) {
                        char name[FOLIO_NAME_BYTES_MAX + 8];
                        Key ns, key;
                        bool is_valid = n_ns >= 1 && n_ns <= FOLIO_NAMESPACE_BYTES_MAX && n_key <= FOLIO_KEY_BYTES_MAX;

                        memset(name, 'n', n_ns);
                        name[n_ns] = ':';
                        memset(name + n_ns + 1, 'k', n_key);
                        name[n_ns + 1 + n_key] = '\0';
                        assert_int_equal(key_split_name(name, false, &ns, &key), is_valid);
                }
        }
}

static void test_split_of_something_endless(void **state)
{
        size_t n_bytes = 1u << 20;
        char *name = malloc(n_bytes);
        Key ns, key;

        assert_non_null(name);
        memset(name, 'k', n_bytes);
        name[n_bytes - 1] = '\0';
        assert_false(key_split_name(name, false, &ns, &key));
        name[1] = ':';
        assert_false(key_split_name(name, false, &ns, &key));
        free(name);
}

static void test_hash_is_for_ever(void **state)
{
        /* The published XXH3 of nothing; and that seed and every byte count. */
        assert_true(key_hash("", 0, 0) == UINT64_C(0x2d06800538d394c2));
        assert_true(key_hash("a", 1, 0) != key_hash("a", 1, 1));
        assert_true(key_hash("a", 1, 0) != key_hash("b", 1, 0));
        assert_true(key_hash("ab", 2, 7) == key_hash("ab", 2, 7));
        for (size_t at = 0; at < 255; at++) {
                char key[255];
                uint64_t before;

                memset(key, 'k', sizeof(key));
                before = key_hash(key, sizeof(key), 42);
                key[at] ^= 1;
                assert_true(key_hash(key, sizeof(key), 42) != before);
        }
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_namespace_lengths),
                UNIT_TEST(test_namespace_alphabet),
                UNIT_TEST(test_key_lengths_and_bytes),
                UNIT_TEST(test_split),
                UNIT_TEST(test_split_lengths),
                UNIT_TEST(test_split_of_something_endless),
                UNIT_TEST(test_hash_is_for_ever),
        };

        return cmocka_run_group_tests_name("key", tests, NULL, NULL);
}
