/* SPDX-License-Identifier: Apache-2.0 */
/* Columns that line up, rows in order, and the progress line: what is drawn, never when. */
#include "harness.h"

#include <stdlib.h>

#include "client/ctl/progress.h"
#include "client/ctl/table.h"
#include "client/ctl/text.h"

static const TableColumn columns[] = { { "SIZE", true }, { "STATE", false }, { "NAME", false } };

static char *print(const Table *table, bool has_header, bool is_color)
{
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);

        assert_non_null(out);
        table_print(table, out, has_header, is_color);
        assert_int_equal(fclose(out), 0);
        return text;
}

static void add(Table *table, uint64_t key, const char *size, const char *state, const char *name)
{
        assert_int_equal(table_add(table, key, (const char *const[]){ size, state, name }), 0);
}

static void test_columns_line_up(void **state)
{
        Table *table = table_new(columns, 3);
        char *text;

        add(table, 0, "1.5G", "sealed", "default:a");
        add(table, 0, "12", "mutable", "default:gr\303\274n");
        add(table, 0, "1000K", "?", "");
        text = print(table, true, false);
        assert_string_equal(text, " SIZE  STATE    NAME\n"
                                  " 1.5G  sealed   default:a\n"
                                  "   12  mutable  default:gr\303\274n\n"
                                  "1000K  ?        \n");
        free(text);
        text = print(table, false, true);
        assert_null(strchr(text, '\033'));
        free(text);
        text = print(table, true, true);
        assert_int_equal(strncmp(text, "\033[1m", 4), 0);
        free(text);
        table_free(table);
        (void)state;
}

/* A wide letter takes the room of two: what follows it still lines up. */
static void test_columns_line_up_with_letters_of_many_bytes(void **state)
{
        static const TableColumn two[] = { { "A", false }, { "B", false } };
        Table *table = table_new(two, 2);
        char *text;

        assert_int_equal(table_add(table, 0, (const char *const[]){ "\303\274\303\274", "x" }), 0);
        assert_int_equal(table_add(table, 0, (const char *const[]){ "abc", "x" }), 0);
        text = print(table, false, false);
        assert_string_equal(text, "\303\274\303\274   x\nabc  x\n");
        free(text);
        table_free(table);
        (void)state;
}

static void test_empty(void **state)
{
        Table *table = table_new(columns, 3);
        char *text;

        table_sort(table);
        assert_int_equal(table_n_rows(table), 0);
        text = print(table, true, false);
        assert_string_equal(text, "SIZE  STATE  NAME\n");
        free(text);
        text = print(table, false, false);
        assert_string_equal(text, "");
        free(text);
        table_free(table);
        table_free(NULL);
        (void)state;
}

static void test_sort(void **state)
{
        Table *table = table_new(columns, 3);
        static const char *const expected[] = { "max", "nine-1", "nine-2", "nine-3", "one", "zero" };

        add(table, 1, "", "", "one");
        add(table, 9, "", "", "nine-1");
        add(table, UINT64_MAX, "", "", "max");
        add(table, 9, "", "", "nine-2");
        add(table, 0, "", "", "zero");
        add(table, 9, "", "", "nine-3");
        table_sort(table);
        for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
                assert_string_equal(table_peek(table, i, 2), expected[i]);
        table_free(table);
        (void)state;
}

static void test_many_rows(void **state)
{
        Table *table = table_new(columns, 3);
        char size[TEXT_SIZE_BYTES], name[32];

        for (unsigned i = 0; i < 100000; i++) {
                snprintf(name, sizeof(name), "object-%u", i);
                add(table, i, text_format_size(i, size), "sealed", name);
        }
        assert_int_equal(table_n_rows(table), 100000);
        assert_string_equal(table_peek(table, 77777, 2), "object-77777");
        table_sort(table);
        assert_string_equal(table_peek(table, 0, 2), "object-99999");
        assert_string_equal(table_peek(table, 99999, 1), "sealed");
        table_free(table);
        (void)state;
}

#define S UINT64_C(1000000000)

static void test_progress_line(void **state)
{
        char line[512];

        progress_render(line, sizeof(line), 100, "default:a", 256 << 20, UINT64_C(1) << 30, S);
        assert_non_null(strstr(line, "default:a  [==="));
        assert_non_null(strstr(line, " 25%  256M of 1G  256M/s  3s left"));
        progress_render(line, sizeof(line), 100, "default:a", 1 << 20, PROGRESS_TOTAL_UNKNOWN, 2 * S);
        assert_string_equal(line, "default:a  1M  512K/s  2s");
        /* Nothing done, nothing to do, no time, more than there was. */
        progress_render(line, sizeof(line), 100, "a", 0, 100, S);
        assert_non_null(strstr(line, "? left"));
        progress_render(line, sizeof(line), 100, "a", 0, 0, 0);
        assert_non_null(strstr(line, "100%"));
        progress_render(line, sizeof(line), 100, "a", 200, 100, S);
        assert_non_null(strstr(line, "100%  100 of 100"));
        (void)state;
}

/* Whatever the width of the terminal, the line stays on one of its lines. */
static void test_progress_fits(void **state)
{
        static const char name[] =
                "default:a-rather-long-name-of-an-object-that-somebody-has-made-by-a-program-and-not-by-hand";
        static const uint64_t dones[] = { 0, 1, UINT64_C(1) << 30, UINT64_C(1) << 46 };
        char line[512];

        for (size_t width = 0; width < 300; width++)
                for (size_t i = 0; i < 4; i++) {
                        progress_render(line, sizeof(line), width, name, dones[i], UINT64_C(1) << 46, 90 * S);
                        assert_true(strlen(line) < (width ? width : 1));
                        progress_render(line, sizeof(line), width, name, dones[i], PROGRESS_TOTAL_UNKNOWN, 90 * S);
                        assert_true(strlen(line) < (width ? width : 1));
                }
        progress_render(line, 8, 80, name, 1, 2, S);
        assert_true(strlen(line) < 8);
        (void)state;
}

static void test_progress_is_due_after_a_second(void **state)
{
        assert_false(progress_is_due(0, 100, 0));
        assert_false(progress_is_due(50, 100, S / 3));
        assert_true(progress_is_due(50, 100, S / 2));
        assert_true(progress_is_due(10, 100, S / 4));
        assert_false(progress_is_due(10, 100, S / 4 - 1));
        assert_true(progress_is_due(99, 100, S));
        assert_false(progress_is_due(99, PROGRESS_TOTAL_UNKNOWN, S - 1));
        assert_true(progress_is_due(99, PROGRESS_TOTAL_UNKNOWN, S));
        assert_true(progress_is_due(1, UINT64_MAX - 1, S - 1));
        (void)state;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_columns_line_up), UNIT_TEST(test_columns_line_up_with_letters_of_many_bytes),
                UNIT_TEST(test_empty),           UNIT_TEST(test_sort),
                UNIT_TEST(test_many_rows),       UNIT_TEST(test_progress_line),
                UNIT_TEST(test_progress_fits),   UNIT_TEST(test_progress_is_due_after_a_second),
        };

        return cmocka_run_group_tests_name("ctl-table", tests, NULL, NULL);
}
