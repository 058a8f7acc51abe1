/* SPDX-License-Identifier: Apache-2.0 */
/* Text to numbers: what is taken, what is refused, and that what is printed is taken again. */
#include "harness.h"

#include "base/macro.h"
#include "daemon/service/value.h"

typedef struct Row {
        const char *text;
        bool is_valid;
        uint64_t value;
} Row;

static void check(const Row *rows, size_t n_rows, bool (*parse)(const char *text, uint64_t *ret))
{
        for (size_t i = 0; i < n_rows; i++) {
                uint64_t value = 77;

                if (parse(rows[i].text, &value) != rows[i].is_valid || (rows[i].is_valid && value != rows[i].value))
                        fail_msg("'%s' gave %llu", rows[i].text, (unsigned long long)value);
                if (!rows[i].is_valid)
                        assert_int_equal(value, 77);
        }
}

static void test_sizes(void **state)
{
        static const Row rows[] = {
                { "0", true, 0 }, { "1", true, 1 }, { "4096", true, 4096 }, { "64M", true, 64 * MIB },
                { "64MiB", true, 64 * MIB }, { "1.5G", true, GIB + GIB / 2 }, { "1.25K", true, 1280 },
                { "2T", true, GIB << 11 }, { "3k", true, 3072 }, { "5B", true, 5 }, { "0.5G", true, GIB / 2 },
                { "18446744073709551615", true, UINT64_MAX }, { "18446744073709551616", false, 0 },
                { "16777215T", true, UINT64_C(16777215) << 40 }, { "16777216T", false, 0 },
                { "16777215.999999T", true, (UINT64_C(16777215) << 40) + UINT64_C(999999) * (GIB << 10) / 1000000 },
                { "", false, 0 }, { "M", false, 0 }, { "-1", false, 0 }, { "+1", false, 0 }, { " 1", false, 0 },
                { "1 ", false, 0 }, { "1 M", false, 0 }, { "1.M", false, 0 }, { ".5M", false, 0 }, { "1.5", false, 0 },
                { "1.5B", false, 0 }, { "1.0000001M", false, 0 }, { "0x10", false, 0 }, { "1e3", false, 0 },
                { "1MB", false, 0 }, { "1P", false, 0 }, { "1M1", false, 0 }, { "99999999999999999999999", false, 0 },
        };

        check(rows, ARRAY_SIZE(rows), value_parse_size);
}

static void test_counts_modes_seconds(void **state)
{
        static const Row counts[] = {
                { "0", true, 0 }, { "007", true, 7 }, { "18446744073709551615", true, UINT64_MAX },
                { "18446744073709551616", false, 0 }, { "", false, 0 }, { "1K", false, 0 }, { "-0", false, 0 },
        };
        static const Row modes[] = {
                { "0", true, 0 }, { "760", true, 0760 }, { "0777", true, 0777 }, { "1000", false, 0 }, { "8", false,
                        0 },
                { "", false, 0 }, { "7a", false, 0 }, { "rwx", false, 0 }, { "7777777777777777777777777", false, 0 },
        };
        static const Row seconds[] = {
                { "90", true, 90 }, { "90s", true, 90 }, { "15m", true, 900 }, { "2h", true, 7200 }, { "1d", false, 0 },
                { "s", false, 0 }, { "18446744073709551615h", false, 0 }, { "-1", false, 0 },
        };

        check(counts, ARRAY_SIZE(counts), value_parse_count);
        check(modes, ARRAY_SIZE(modes), value_parse_mode);
        check(seconds, ARRAY_SIZE(seconds), value_parse_seconds);
}

static void test_users_and_groups(void **state)
{
        static const Row rows[] = {
                { "0", true, 0 }, { "root", true, 0 }, { "4294967294", true, UINT32_MAX - 1 }, { "4294967295", false,
                        0 },
                { "4294967296", false, 0 }, { "18446744073709551615", false, 0 }, { "", false, 0 }, { "-1", false, 0 },
                { "nobody at all", false, 0 },
        };

        check(rows, ARRAY_SIZE(rows), value_parse_user);
        check(rows, ARRAY_SIZE(rows), value_parse_group);
}

static void test_printed_sizes_are_sizes(void **state)
{
        static const uint64_t sizes[] = {
                0, 1, 1023, 1024, 1025, MIB - 1, MIB, 3 * MIB, GIB, GIB + 1, GIB << 10, UINT64_MAX, UINT64_C(1) << 63,
        };

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                char text[VALUE_TEXT_BYTES];
                uint64_t value = 77;

                value_print_size(sizes[i], text);
                assert_true(value_parse_size(text, &value));
                assert_true(value == sizes[i]);
        }
}

static void test_words(void **state)
{
        static const ValueWord words[] = { { "auto", 0 }, { "many", 7 }, { NULL, 0 } };
        uint64_t value = 77;

        assert_true(value_parse_word(words, "many", &value));
        assert_int_equal(value, 7);
        assert_false(value_parse_word(words, "Many", &value));
        assert_false(value_parse_word(words, "", &value));
        assert_string_equal(value_find_word(words, 0), "auto");
        assert_null(value_find_word(words, 1));
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_counts_modes_seconds),
                UNIT_TEST(test_users_and_groups),
                UNIT_TEST(test_printed_sizes_are_sizes),
                UNIT_TEST(test_words),
        };

        return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
