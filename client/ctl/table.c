/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. A row is its sort key and where its first cell begins in the text; the others follow it. */
#include "client/ctl/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/text.h"

#define GAP "  "

typedef struct Row {
        uint64_t sort_key;
        size_t text_offset;
} Row;

struct Table {
        const TableColumn *columns;
        size_t n_columns;
        size_t widths[TABLE_COLUMNS_MAX];
        Row *rows;
        size_t n_rows, n_rows_max;
        char *text;
        size_t text_bytes, text_bytes_max;
};

Table *table_new(const TableColumn *columns, size_t n_columns)
{
        Table *table = calloc(1, sizeof(*table));

        if (!table)
                return NULL;
        table->columns = columns;
        table->n_columns = n_columns < TABLE_COLUMNS_MAX ? n_columns : TABLE_COLUMNS_MAX;
        for (size_t i = 0; i < table->n_columns; i++)
                table->widths[i] = text_width(columns[i].title);
        return table;
}

void table_free(Table *table)
{
        if (!table)
                return;
        free(table->rows);
        free(table->text);
        free(table);
}

/* Room for @n more of @item_bytes each; doubles, so that adding is cheap on the average. */
static void *grow(void *memory, size_t n_used, size_t n, size_t *n_max, size_t item_bytes)
{
        size_t n_new = *n_max ? *n_max : 64;
        void *larger;

        if (memory && *n_max - n_used >= n)
                return memory;
        while (n_new - n_used < n)
                n_new *= 2;
        larger = reallocarray(memory, n_new, item_bytes);
        if (larger)
                *n_max = n_new;
        return larger;
}

int table_add(Table *table, uint64_t sort_key, const char *const *cells)
{
        size_t n_bytes = 0;
        void *larger;

        for (size_t i = 0; i < table->n_columns; i++)
                n_bytes += strlen(cells[i]) + 1;
        larger = grow(table->rows, table->n_rows, 1, &table->n_rows_max, sizeof(Row));
        if (!larger)
                return -ENOMEM;
        table->rows = larger;
        larger = grow(table->text, table->text_bytes, n_bytes, &table->text_bytes_max, 1);
        if (!larger)
                return -ENOMEM;
        table->text = larger;

        table->rows[table->n_rows++] = (Row){ .sort_key = sort_key, .text_offset = table->text_bytes };
        for (size_t i = 0; i < table->n_columns; i++) {
                size_t width = text_width(cells[i]), cell_bytes = strlen(cells[i]) + 1;

                if (width > table->widths[i])
                        table->widths[i] = width;
                memcpy(table->text + table->text_bytes, cells[i], cell_bytes);
                table->text_bytes += cell_bytes;
        }
        return 0;
}

static int compare_rows(const void *a, const void *b)
{
        const Row *x = a, *y = b;

        if (x->sort_key != y->sort_key)
                return x->sort_key > y->sort_key ? -1 : 1;
        /* qsort() keeps no order of equals; where their text lies does. */
        return x->text_offset < y->text_offset ? -1 : x->text_offset > y->text_offset;
}

void table_sort(Table *table)
{
        if (table->n_rows > 1)
                qsort(table->rows, table->n_rows, sizeof(Row), compare_rows);
}

static void print_cell(const Table *table, size_t column_index, const char *cell, FILE *out)
{
        size_t width = text_width(cell), n_pad = table->widths[column_index] - width;

        if (column_index > 0)
                fputs(GAP, out);
        if (table->columns[column_index].is_right)
                fprintf(out, "%*s%s", (int)n_pad, "", cell);
        else if (column_index + 1 < table->n_columns)
                fprintf(out, "%s%*s", cell, (int)n_pad, "");
        else
                fputs(cell, out);
}

void table_print(const Table *table, FILE *out, bool has_header, bool is_color)
{
        if (has_header) {
                if (is_color)
                        fputs("\033[1m", out);
                for (size_t i = 0; i < table->n_columns; i++)
                        print_cell(table, i, table->columns[i].title, out);
                fputs(is_color ? "\033[0m\n" : "\n", out);
        }
        for (size_t row = 0; row < table->n_rows; row++) {
                const char *cell = table->text + table->rows[row].text_offset;

                for (size_t i = 0; i < table->n_columns; i++) {
                        print_cell(table, i, cell, out);
                        cell += strlen(cell) + 1;
                }
                fputc('\n', out);
        }
}

const char *table_peek(const Table *table, size_t row_index, size_t column_index)
{
        const char *cell = table->text + table->rows[row_index].text_offset;

        while (column_index-- > 0)
                cell += strlen(cell) + 1;
        return cell;
}

size_t table_n_rows(const Table *table)
{
        return table->n_rows;
}
