/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outcomes as they travel: the one table of (name, wire number, errno that libfolio returns, phrase). Wire numbers
 * are for ever: a new outcome gets a new number, none is used again.
 */
#ifndef PROTO_STATUS_H
#define PROTO_STATUS_H

#include "folio/types.h"

#define STATUS_TABLE(X)                                                                                                \
        X(OK, 0, 0, "done")                                                                                            \
        X(NOT_FOUND, 1, FOLIO_E_NOT_FOUND, "no such name")                                                             \
        X(DELETED, 2, FOLIO_E_DELETED, "the object was deleted")                                                       \
        X(EVICTED, 3, FOLIO_E_EVICTED, "the object was evicted")                                                       \
        X(EXPIRED, 4, FOLIO_E_EXPIRED, "the object has expired")                                                       \
        X(WRITING, 5, FOLIO_E_WRITING, "the object is still being written")                                            \
        X(WRITER_DIED, 6, FOLIO_E_WRITER_DIED, "the writer died before it sealed the object")                          \
        X(EXISTS, 7, FOLIO_E_EXISTS, "the name is taken")                                                              \
        X(ACCESS, 8, FOLIO_E_ACCESS, "permission denied")                                                              \
        X(FULL, 9, FOLIO_E_FULL, "the store is full")                                                                  \
        X(TOO_LARGE, 10, FOLIO_E_TOO_LARGE, "too large to ever fit")                                                   \
        X(LIMIT, 11, FOLIO_E_LIMIT, "a limit is reached")                                                              \
        X(RANGE, 12, FOLIO_E_RANGE, "outside the object")                                                              \
        X(INVALID, 13, FOLIO_E_INVALID, "invalid argument")                                                            \
        X(STATE, 14, FOLIO_E_STATE, "not possible in the state the object is in")                                      \
        X(UNSUPPORTED, 15, FOLIO_E_UNSUPPORTED, "not supported here")                                                  \
        X(MAPPED, 16, FOLIO_E_WRITING, "the object is still mapped writable")                                          \
        X(CANCELLED, 17, FOLIO_E_CANCELLED, "cancelled")                                                               \
        X(INTERNAL, 18, FOLIO_E_IO, "an internal failure; foliod's log has the reason")                                \
        X(PROTOCOL, 19, FOLIO_E_PROTOCOL, "protocol error")                                                            \
        X(GONE, 20, FOLIO_E_DAEMON_GONE, "foliod ended before it had answered") /* never sent: a client's own finding */

typedef enum Status {
#define X(name, number, error, text) STATUS_##name = number,
        STATUS_TABLE(X)
#undef X
        _STATUS_MAX
} Status;

/* The errno that libfolio returns for a wire number; numbers of a newer daemon become FOLIO_E_PROTOCOL. */
static inline int status_to_error(uint32_t status)
{
        switch (status) {
#define X(name, number, error, text)                                                                                   \
        case number:                                                                                                   \
                return error;
                STATUS_TABLE(X)
#undef X
        }
        return FOLIO_E_PROTOCOL;
}

static inline const char *status_to_text(uint32_t status)
{
        switch (status) {
#define X(name, number, error, text)                                                                                   \
        case number:                                                                                                   \
                return text;
                STATUS_TABLE(X)
#undef X
        }
        return "an outcome this library does not know";
}

#endif
