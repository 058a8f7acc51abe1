/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and names as people write and read them: sizes, durations, moments, names with odd bytes in them. Pure
 * functions: no output, no state but the locale and the time zone of the process.
 */
#ifndef CTL_TEXT_H
#define CTL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_SIZE_BYTES 16 /* room for what text_format_size() writes */
#define TEXT_DURATION_BYTES 24
#define TEXT_TIME_BYTES 40

/* "4096", "64M", "1.5G", "2MiB"; K M G T P E of 1024 each, in either case. False: no whole number, or too large. */
bool text_parse_size(const char *text, uint64_t *ret_bytes);

/* A few digits and a letter: "100", "1.5K", "64M". Rounded to the nearest; writes to, and returns, @buffer. */
char *text_format_size(uint64_t size_bytes, char buffer[TEXT_SIZE_BYTES]);

/* "30" and "30s", "250ms", "1.5h", "2d". False: not a duration, or one of more than 2^63 ns. */
bool text_parse_duration(const char *text, uint64_t *ret_ns);

/* The same for a wait of the library: "forever" too; what does not fit waits as long as it can. */
bool text_parse_timeout(const char *text, int *ret_ms);

/* Two units at most: "850ms", "12s", "3m05s", "2h10m", "5d03h". */
char *text_format_duration(uint64_t duration_ns, char buffer[TEXT_DURATION_BYTES]);

/* Of CLOCK_REALTIME: local and to the second for people; UTC, RFC 3339, with nanoseconds for programs. */
char *text_format_time(uint64_t time_ns, char buffer[TEXT_TIME_BYTES]);
char *text_format_time_utc(uint64_t time_ns, char buffer[TEXT_TIME_BYTES]);

/* Digits only, up to UINT64_MAX. */
bool text_parse_number(const char *text, uint64_t *ret);

/*
 * A name as it can be shown: control characters, what is no UTF-8 and what turns the direction of writing round
 * become `\n`, `\x1b`, `\u202e`; a backslash becomes two. NULL: no memory. To be freed.
 */
char *text_escape(const char *name);

/* A name as JSON can carry it: what is no UTF-8 becomes U+FFFD. *@ret_is_exact: nothing had to. NULL: no memory. */
char *text_to_utf8(const char *name, bool *ret_is_exact);

/* Columns that @text, which text_escape() made, takes on a terminal. */
size_t text_width(const char *text);

#endif
