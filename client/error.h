/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentence of the last failed call, one for each thread (a phrase where there is no memory for it), and the phrases of the error numbers. A sentence
 * says what was asked, what stood in the way, with numbers, and what can be done. Control characters, which can come
 * in with names, are shown as '?'.
 */
#ifndef CLIENT_ERROR_H
#define CLIENT_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"
#include "folio/types.h"

enum { ERROR_SENTENCE_BYTES = 512 };

/* Into the caller's buffer of ERROR_SENTENCE_BYTES. */
void error_format(char *sentence, const char *format, ...) _printf_(2, 3);
void error_format_v(char *sentence, const char *format, va_list arguments) _printf_(2, 0);

/* The thread's own sentence; returns @error. */
int error_set(int error, const char *format, ...) _printf_(2, 3);
int error_set_sentence(int error, const char *sentence);
const char *error_get_sentence(void);

/*
 * FOLIO_E_INVALID, with a sentence of the thread's that says which rule @name breaks: key_split_name() has refused it,
 * or it is NULL.
 */
int error_set_name(const char *name, bool is_prefix);

/* A failed system call or allocation of this process, as a number of the public list. */
int error_from_errno(int negative_errno);

#endif
