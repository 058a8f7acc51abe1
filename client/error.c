/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentences. The buffer is the thread's, so nothing is locked; it is allocated with the thread's first failure, and
 * goes with the thread. What lies in a thread's own block is a pointer: a program that loads us while it runs may have
 * little room left there. Where there is no memory, or no key to free it by, a phrase stands for the sentence. The
 * table of phrases is written as a switch, so that a number that stands for two things would not compile.
 */
#include "client/error.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folio/client.h"
#include "proto/key.h"

static const char no_room[] = "there is no memory for the sentence that tells why";

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t sentence_key;
static bool has_key;

/* NULL: nothing has failed in this thread; no_room, which is not to be written; or the thread's buffer. */
static _Thread_local const char *sentence_of_thread;

/* Whoever fails later, in another destructor of the thread, gets another buffer, and this is called again. */
static void free_sentence(void *buffer)
{
        sentence_of_thread = NULL;
        free(buffer);
}

static void make_key(void)
{
        has_key = pthread_key_create(&sentence_key, free_sentence) == 0;
}

/* To be written; NULL: a phrase stands there instead, and may not the next time. */
static char *get_buffer(void)
{
        char *buffer;

        if (LIKELY(sentence_of_thread && sentence_of_thread != no_room))
                return (char *)(uintptr_t)sentence_of_thread;
        sentence_of_thread = no_room;
        if (pthread_once(&key_once, make_key) != 0 || !has_key)
                return NULL;
        buffer = calloc(1, ERROR_SENTENCE_BYTES);
        if (!buffer || pthread_setspecific(sentence_key, buffer) != 0) {
                free(buffer);
                return NULL;
        }
        sentence_of_thread = buffer;
        return buffer;
}

static void tidy(char *sentence)
{
        for (unsigned char *c = (unsigned char *)sentence; *c; c++)
                if (*c < 0x20 || *c == 0x7f)
                        *c = '?';
}

void error_format_v(char *sentence, const char *format, va_list arguments)
{
        /* Composed aside: an argument may be the old sentence. */
        char text[ERROR_SENTENCE_BYTES];

        if (vsnprintf(text, sizeof(text), format, arguments) < 0)
                text[0] = '\0';
        tidy(text);
        memcpy(sentence, text, strlen(text) + 1);
}

void error_format(char *sentence, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        error_format_v(sentence, format, arguments);
        va_end(arguments);
}

int error_set(int error, const char *format, ...)
{
        char *sentence = get_buffer();
        va_list arguments;

        if (!sentence)
                return error;
        va_start(arguments, format);
        error_format_v(sentence, format, arguments);
        va_end(arguments);
        return error;
}

int error_set_sentence(int error, const char *sentence)
{
        char *buffer = sentence == sentence_of_thread ? NULL : get_buffer();

        if (buffer)
                (void)snprintf(buffer, ERROR_SENTENCE_BYTES, "%s", sentence);
        return error;
}

const char *error_get_sentence(void)
{
        return sentence_of_thread ? sentence_of_thread : "";
}

/* Of a text that may be endless: as much as helps to know it again. */
enum { SHOWN_BYTES_MAX = 48, COUNTED_BYTES_MAX = 1 << 20 };

static const char *ellipsis(size_t n_bytes)
{
        return n_bytes > SHOWN_BYTES_MAX ? "..." : "";
}

static bool is_namespace_byte(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

static void explain_namespace(const char *name, size_t n_namespace, char *sentence)
{
        size_t at = 0;

        if (n_namespace == 0) {
                error_format(sentence, "\"%.48s%s\" has nothing before its colon, where the namespace stands", name,
                             ellipsis(strnlen(name, COUNTED_BYTES_MAX)));
                return;
        }
        while (at < n_namespace && is_namespace_byte(name[at]))
                at++;
        if (at < n_namespace)
                error_format(sentence, "the namespace \"%.*s%s\" holds '%c', and may be of a-z 0-9 . _ - only (a key with a "
                                       "colon in it is written %s:KEY)",
                             (int)(n_namespace < SHOWN_BYTES_MAX ? n_namespace : SHOWN_BYTES_MAX), name,
                             ellipsis(n_namespace), name[at], FOLIO_NAMESPACE_DEFAULT);
        else
                error_format(sentence, "the namespace \"%.48s%s\" has %zu bytes, and %d is the most", name,
                             ellipsis(n_namespace), n_namespace, FOLIO_NAMESPACE_BYTES_MAX);
}

static void explain_name(const char *name, bool is_prefix, char *sentence)
{
        size_t n_bytes = name ? strnlen(name, COUNTED_BYTES_MAX) : 0, n_key;
        const char *colon = n_bytes > 0 ? memchr(name, ':', n_bytes) : NULL;

        if (n_bytes == 0 && !is_prefix) {
                error_format(sentence, "the name is %s: it takes `key` or `namespace:key`", name ? "empty" : "NULL");
                return;
        }
        if (!name) {
                error_format(sentence, "the prefix is NULL: it takes `namespace:`, and maybe the beginning of a key");
                return;
        }
        if (colon && !key_is_valid_namespace(name, (size_t)(colon - name))) {
                explain_namespace(name, (size_t)(colon - name), sentence);
                return;
        }
        n_key = colon ? n_bytes - (size_t)(colon - name) - 1 : n_bytes;
        if (n_key == 0)
                error_format(sentence, "\"%.*s\" is a namespace: the key behind the colon is missing", (int)n_bytes, name);
        else
                error_format(sentence, "the key of \"%.48s%s\" has %zu bytes%s, and %d is the most", name, ellipsis(n_bytes),
                             n_key, n_bytes == COUNTED_BYTES_MAX ? " or more" : "", FOLIO_KEY_BYTES_MAX);
}

int error_set_name(const char *name, bool is_prefix)
{
        char *sentence = get_buffer();

        if (sentence)
                explain_name(name, is_prefix, sentence);
        return FOLIO_E_INVALID;
}

int error_from_errno(int negative_errno)
{
        switch (-negative_errno) {
        case ENOMEM:
                return FOLIO_E_NO_MEMORY;
        case EMFILE:
        case ENFILE:
                return FOLIO_E_LIMIT;
        case EPROTO:
                return FOLIO_E_PROTOCOL;
        }
        return FOLIO_E_IO;
}

_public_ const char *folio_strerror_full(void)
{
        return error_get_sentence();
}

_public_ const char *folio_strerror(int error)
{
        switch (error) {
        case 0:
                return "done";
        case FOLIO_E_NOT_FOUND:
                return "no such name";
        case FOLIO_E_DELETED:
                return "the object was deleted";
        case FOLIO_E_EVICTED:
                return "the object was evicted";
        case FOLIO_E_EXPIRED:
                return "the object has expired";
        case FOLIO_E_WRITING:
                return "the object is still being written, or still mapped writable";
        case FOLIO_E_WRITER_DIED:
                return "the writer died before it sealed the object";
        case FOLIO_E_EXISTS:
                return "the name is taken";
        case FOLIO_E_ACCESS:
                return "permission denied";
        case FOLIO_E_FULL:
                return "the store is full";
        case FOLIO_E_TOO_LARGE:
                return "too large to ever fit";
        case FOLIO_E_LIMIT:
                return "a limit is reached";
        case FOLIO_E_DAEMON_GONE:
                return "no foliod answers";
        case FOLIO_E_PROTOCOL:
                return "the other side does not speak as agreed";
        case FOLIO_E_TIMEOUT:
                return "the time asked for has passed";
        case FOLIO_E_RANGE:
                return "outside the object";
        case FOLIO_E_INVALID:
                return "invalid argument";
        case FOLIO_E_STATE:
                return "not possible in the state the object is in";
        case FOLIO_E_UNSUPPORTED:
                return "not supported here";
        case FOLIO_E_FORKED:
                return "the client belongs to the parent process";
        case FOLIO_E_CANCELLED:
                return "the client was closed";
        case FOLIO_E_NO_MEMORY:
                return "this process has no memory left";
        case FOLIO_E_IO:
                return "the kernel failed to read or keep the bytes, or an internal failure";
        }
        return "a number that libfolio does not return";
}
