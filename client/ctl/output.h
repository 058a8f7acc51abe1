/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts on standard output. An array of JSON is written as it comes, an element a line, so that a million objects need
 * no memory for all of them at once.
 */
#ifndef CTL_OUTPUT_H
#define CTL_OUTPUT_H

#include <jansson.h>

#include "client/ctl/ctl.h"
#include "client/ctl/table.h"

/* Consumes @value, which may be NULL: no memory. CTL_OK, or the status to end with: told. */
int output_json(Ctl *ctl, json_t *value);
/* The same on one line: for what goes on and on. */
int output_json_line(Ctl *ctl, json_t *value);

typedef struct OutputArray {
        size_t n_items;
} OutputArray;

int output_array_add(Ctl *ctl, OutputArray *array, json_t *value);
/* One that is text already. */
void output_array_add_text(OutputArray *array, const char *text);
void output_array_end(OutputArray *array);

/* Prints with titles, and frees. */
void output_table(Ctl *ctl, Table *table);

/* "name" of a uid or gid, or its digits. */
#define OUTPUT_ID_BYTES 64
char *output_user(uint32_t uid, char buffer[OUTPUT_ID_BYTES]);
char *output_group(uint32_t gid, char buffer[OUTPUT_ID_BYTES]);

#endif
