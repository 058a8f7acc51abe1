/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, durations and names as folioctl reads and writes them: each limit at, one over, and far over. */
#include "harness.h"

#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <time.h>

#include "client/ctl/text.h"

static void test_sizes_read(void **state)
{
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = {
                { "0", 0 },
                { "1", 1 },
                { "4096", 4096 },
                { "007", 7 },
                { "1K", 1024 },
                { "1k", 1024 },
                { "64M", 64 << 20 },
                { "64MB", 64 << 20 },
                { "64MiB", 64 << 20 },
                { "1.5G", UINT64_C(1610612736) },
                { "0.5K", 512 },
                { "0.1G", UINT64_C(107374182) },
                { "1.000000001K", 1024 },
                { "12B", 12 },
                { "15E", UINT64_C(15) << 60 },
                { "16383P", UINT64_C(16383) << 50 },
                { "18446744073709551615", UINT64_MAX },
                { "17179869183.999999999G", UINT64_MAX - 1 },
        };

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                uint64_t bytes = 12345;

                assert_true(text_parse_size(good[i].text, &bytes));
                assert_int_equal(bytes, good[i].bytes);
        }
        (void)state;
}

static void test_sizes_refused(void **state)
{
        static const char *const bad[] = {
                "",
                " ",
                "-1",
                "+1",
                " 1",
                "1 ",
                "1 K",
                "K",
                ".5K",
                "5.",
                "1.5",
                "1.5B",
                "0x10",
                "1e3",
                "1KK",
                "1iB",
                "1Kx",
                "1KiBs",
                "one",
                "1,5G",
                "18446744073709551616",
                "16E",
                "17179869184G",
                "99999999999999999999999999",
                "1.0000000001K",
                "1..5K",
        };

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                uint64_t bytes = 12345;

                assert_false(text_parse_size(bad[i], &bytes));
                assert_int_equal(bytes, 12345);
        }
        (void)state;
}

static void test_sizes_written(void **state)
{
        static const struct {
                uint64_t bytes;
                const char *text;
        } table[] = {
                { 0, "0" },
                { 1023, "1023" },
                { 1024, "1K" },
                { 1025, "1K" },
                { 1536, "1.5K" },
                { 10239, "10K" },
                { 10240, "10K" },
                { (1 << 20) - 1, "1M" },
                { 1 << 20, "1M" },
                { 1000 << 10, "1000K" },
                { 64 << 20, "64M" },
                { UINT64_C(1610612736), "1.5G" },
                { UINT64_C(1) << 40, "1T" },
                { UINT64_C(1) << 50, "1P" },
                { UINT64_C(1) << 60, "1E" },
                { UINT64_MAX, "16E" },
        };
        char buffer[TEXT_SIZE_BYTES];

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                assert_string_equal(text_format_size(table[i].bytes, buffer), table[i].text);
        (void)state;
}

/* What is written is a size again, and near what it was. */
static void test_sizes_come_back(void **state)
{
        char buffer[TEXT_SIZE_BYTES];

        for (unsigned shift = 0; shift < 64; shift++)
                for (int more = -1; more <= 1; more++) {
                        uint64_t bytes = (UINT64_C(1) << shift) + (uint64_t)(int64_t)more, again;

                        text_format_size(bytes, buffer);
                        assert_true(strlen(buffer) < 7);
                        if (strcmp(buffer, "16E") == 0)
                                continue;
                        assert_true(text_parse_size(buffer, &again));
                        assert_true((again > bytes ? again - bytes : bytes - again) <= bytes / 20);
                }
        (void)state;
}

static void test_durations(void **state)
{
        static const struct {
                const char *text;
                uint64_t ns;
        } good[] = {
                { "0", 0 },
                { "30", UINT64_C(30000000000) },
                { "30s", UINT64_C(30000000000) },
                { "1.5s", UINT64_C(1500000000) },
                { "250ms", 250000000 },
                { "7us", 7000 },
                { "7ns", 7 },
                { "2m", UINT64_C(120000000000) },
                { "2min", UINT64_C(120000000000) },
                { "1.5h", UINT64_C(5400000000000) },
                { "1d", UINT64_C(86400000000000) },
                { "9223372036854775807ns", INT64_MAX },
        };
        static const char *const bad[] = { "",        "s",
                                           "-1s",     "1 s",
                                           "1y",      "1.5ns",
                                           "1sm",     "9223372036854775808ns",
                                           "106752d", "99999999999999999999s",
                                           "forever" };
        uint64_t ns;

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                assert_true(text_parse_duration(good[i].text, &ns));
                assert_int_equal(ns, good[i].ns);
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                ns = 77;
                assert_false(text_parse_duration(bad[i], &ns));
                assert_int_equal(ns, 77);
        }
        (void)state;
}

static void test_timeouts(void **state)
{
        int ms = 5;

        assert_true(text_parse_timeout("forever", &ms));
        assert_int_equal(ms, -1);
        assert_true(text_parse_timeout("0", &ms));
        assert_int_equal(ms, 0);
        /* Shorter than the library can wait is not "not at all". */
        assert_true(text_parse_timeout("1ns", &ms));
        assert_int_equal(ms, 1);
        assert_true(text_parse_timeout("1.0001s", &ms));
        assert_int_equal(ms, 1001);
        assert_true(text_parse_timeout("2147483647ms", &ms));
        assert_int_equal(ms, INT_MAX);
        assert_true(text_parse_timeout("2147483648ms", &ms));
        assert_int_equal(ms, INT_MAX);
        assert_false(text_parse_timeout("-1", &ms));
        assert_false(text_parse_timeout("", &ms));
        (void)state;
}

static void test_durations_written(void **state)
{
        static const struct {
                uint64_t s;
                const char *text;
        } table[] = { { 1, "1s" },       { 59, "59s" },       { 60, "1m00s" },    { 185, "3m05s" },
                      { 3600, "1h00m" }, { 86399, "23h59m" }, { 86400, "1d00h" }, { 5 * 86400 + 3 * 3600, "5d03h" } };
        char buffer[TEXT_DURATION_BYTES];

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                assert_string_equal(text_format_duration(table[i].s * UINT64_C(1000000000), buffer), table[i].text);
        assert_string_equal(text_format_duration(999999999, buffer), "999ms");
        assert_string_equal(text_format_duration(0, buffer), "0ms");
        text_format_duration(UINT64_MAX, buffer);
        assert_true(strlen(buffer) < TEXT_DURATION_BYTES);
        (void)state;
}

static void test_times_written(void **state)
{
        char buffer[TEXT_TIME_BYTES];

        assert_string_equal(text_format_time_utc(UINT64_C(1700000000123456789), buffer),
                            "2023-11-14T22:13:20.123456789Z");
        assert_string_equal(text_format_time_utc(UINT64_MAX, buffer), "2554-07-21T23:34:33.709551615Z");
        assert_int_equal(setenv("TZ", "UTC", 1), 0);
        tzset();
        assert_string_equal(text_format_time(UINT64_C(1700000000123456789), buffer), "2023-11-14 22:13:20");
        (void)state;
}

static void test_numbers(void **state)
{
        uint64_t number = 7;

        assert_true(text_parse_number("18446744073709551615", &number));
        assert_int_equal(number, UINT64_MAX);
        assert_true(text_parse_number("0", &number));
        assert_int_equal(number, 0);
        assert_false(text_parse_number("18446744073709551616", &number));
        assert_false(text_parse_number("1.0", &number));
        assert_false(text_parse_number("1K", &number));
        assert_false(text_parse_number("", &number));
        assert_false(text_parse_number("-1", &number));
        assert_int_equal(number, 0);
        (void)state;
}

static void test_names_shown(void **state)
{
        static const struct {
                const char *name;
                const char *text;
        } table[] = {
                { "", "" },
                { "plain/name.0", "plain/name.0" },
                { "two\nlines", "two\\nlines" },
                { "\033[31mred", "\\x1b[31mred" },
                { "tab\tdel\177", "tab\\tdel\\x7f" },
                { "back\\slash", "back\\\\slash" },
                { "gr\303\274n", "gr\303\274n" },
                { "\360\237\230\200", "\360\237\230\200" },
                { "\303", "\\xc3" },
                { "\303(", "\\xc3(" },
                { "\300\257", "\\xc0\\xaf" }, /* overlong */
                { "\355\240\200", "\\xed\\xa0\\x80" }, /* a surrogate */
                { "\364\220\200\200", "\\xf4\\x90\\x80\\x80" },
                { "\377", "\\xff" },
                { "\302\233K", "\\x9bK" }, /* CSI of one character */
                { "a\342\200\256b", "a\\u202eb" }, /* turns the writing round */
        };

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
                char *text = text_escape(table[i].name);

                assert_string_equal(text, table[i].text);
                free(text);
        }
        (void)state;
}

/* Every byte, alone and in a row: shown, it has no control character and is as wide as it is long. */
static void test_every_byte_is_shown(void **state)
{
        char all[256];

        for (unsigned byte = 1; byte < 256; byte++) {
                char one[2] = { (char)byte, '\0' }, *text = text_escape(one);

                assert_non_null(text);
                for (const char *s = text; *s; s++)
                        assert_true((unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f);
                assert_int_equal(text_width(text), strlen(text));
                free(text);
                all[byte - 1] = (char)byte;
        }
        all[255] = '\0';
        free(text_escape(all));
        (void)state;
}

static void test_names_for_json(void **state)
{
        bool is_exact = false;
        char *text = text_to_utf8("gr\303\274n\n", &is_exact);

        assert_string_equal(text, "gr\303\274n\n");
        assert_true(is_exact);
        free(text);
        text = text_to_utf8("a\377\303b", &is_exact);
        assert_string_equal(text, "a\357\277\275\357\277\275b");
        assert_false(is_exact);
        free(text);
        (void)state;
}

static void test_width(void **state)
{
        assert_int_equal(text_width(""), 0);
        assert_int_equal(text_width("four"), 4);
        assert_int_equal(text_width("gr\303\274n"), 4);
        /* Where the machine has such a locale, letters of two columns are known. */
        if (MB_CUR_MAX > 1)
                assert_int_equal(text_width("\346\274\242\345\255\227"), 4);
        (void)state;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_sizes_read),
                UNIT_TEST(test_sizes_refused),
                UNIT_TEST(test_sizes_written),
                UNIT_TEST(test_sizes_come_back),
                UNIT_TEST(test_durations),
                UNIT_TEST(test_timeouts),
                UNIT_TEST(test_durations_written),
                UNIT_TEST(test_times_written),
                UNIT_TEST(test_numbers),
                UNIT_TEST(test_names_shown),
                UNIT_TEST(test_every_byte_is_shown),
                UNIT_TEST(test_names_for_json),
                UNIT_TEST(test_width),
        };

        /* Before the tests: the C library maps its tables now, and keeps them. */
        (void)setlocale(LC_CTYPE, "C.UTF-8");
        return cmocka_run_group_tests_name("ctl-text", tests, NULL, NULL);
}
