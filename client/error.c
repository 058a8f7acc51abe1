/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentences. The buffer is the thread's, so nothing is locked and nothing allocated: an error about memory can be told
 * without any. The table of phrases is written as a switch, so that a number that stands for two things would not compile.
 */
#include "client/error.h"

#include <stdio.h>
#include <string.h>

#include "folio/client.h"

static _Thread_local char sentence_of_thread[ERROR_SENTENCE_BYTES];

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
        va_list arguments;

        va_start(arguments, format);
        error_format_v(sentence_of_thread, format, arguments);
        va_end(arguments);
        return error;
}

int error_set_sentence(int error, const char *sentence)
{
        if (sentence != sentence_of_thread)
                (void)snprintf(sentence_of_thread, sizeof(sentence_of_thread), "%s", sentence);
        return error;
}

const char *error_get_sentence(void)
{
        return sentence_of_thread;
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
