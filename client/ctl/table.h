/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table: rows of cells in columns that line up, whatever stands in them. Cells are copied, packed one behind the
 * other, so that a million rows cost what their letters cost. Knows nothing of what it shows.
 */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Table Table;

typedef struct TableColumn {
        const char *title;
        bool is_right; /* numbers stand on the right */
} TableColumn;

#define TABLE_COLUMNS_MAX 20

/* @columns is borrowed until table_free(). NULL: no memory. */
Table *table_new(const TableColumn *columns, size_t n_columns);
void table_free(Table *table);

/* One text for each column, as it is to be shown. 0, or -ENOMEM. */
int table_add(Table *table, uint64_t sort_key, const char *const *cells);

/* By the sort keys, the greatest first; rows of the same key stay in the order they came in. */
void table_sort(Table *table);

/* With @has_header a line of titles first, bold with @is_color. Nothing follows the last column's text. */
void table_print(const Table *table, FILE *out, bool has_header, bool is_color);

/* The text of one cell, borrowed. */
const char *table_peek(const Table *table, size_t row_index, size_t column_index);
size_t table_n_rows(const Table *table);

#endif
