/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a setting to a number, and back. Each parser takes the whole text or nothing; *@ret is written only on
 * success. Knows no setting's name.
 */
#ifndef DAEMON_SERVICE_VALUE_H
#define DAEMON_SERVICE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Words that stand for numbers; a table of them ends with a NULL word. */
typedef struct ValueWord {
        const char *word;
        uint64_t value;
} ValueWord;

bool value_parse_count(const char *text, uint64_t *ret);    /* decimal digits */
bool value_parse_size(const char *text, uint64_t *ret);     /* "64M", "1.5G", "4096"; K M G T of 1024 each */
bool value_parse_seconds(const char *text, uint64_t *ret);  /* "90", "90s", "15m", "2h" */
bool value_parse_mode(const char *text, uint64_t *ret);     /* octal, at most 0777 */
bool value_parse_user(const char *text, uint64_t *ret);     /* a number, or a name that this host knows */
bool value_parse_group(const char *text, uint64_t *ret);
bool value_parse_word(const ValueWord *words, const char *text, uint64_t *ret);

const char *value_find_word(const ValueWord *words, uint64_t value); /* NULL: none */

#define VALUE_TEXT_BYTES 32
/* In the largest unit that says it exactly. */
void value_print_size(uint64_t n_bytes, char text[VALUE_TEXT_BYTES]);

#endif
