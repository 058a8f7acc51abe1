/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines for the operator: to stderr, or to the journal. Only peer, listener, daemon and main log above debug;
 * everything lower returns what happened. A message says what was asked, what stood in the way, and what to do.
 *
 * What an operator may want to search for, or to be told about, is an *event*: a line with an id of its own and with
 * fields beside it. In the journal `journalctl MESSAGE_ID=` finds it and `journalctl -x` explains it, by the text that
 * packaging/systemd/folio.catalog has for the id; on stderr it is a line like any other.
 */
#ifndef DAEMON_SERVICE_LOG_H
#define DAEMON_SERVICE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

typedef enum LogLevel {
        LOG_LEVEL_ERROR = 3,  /* the journal's numbers */
        LOG_LEVEL_WARNING = 4,
        LOG_LEVEL_NOTICE = 5,
        LOG_LEVEL_INFO = 6,
        LOG_LEVEL_DEBUG = 7,
} LogLevel;

typedef enum LogTarget {
        LOG_TARGET_AUTO, /* the journal where stderr is connected to it, else stderr */
        LOG_TARGET_STDERR,
        LOG_TARGET_JOURNAL,
} LogTarget;

/* Ids are for ever: somebody has rules that look for them. */
#define LOG_EVENTS(X) \
        X(STARTED, "18cfbe16cf7c4bc1be3e9f720368ecc2") \
        X(RESTORED, "cc26614685814f0b9af002c10c233685") \
        X(OBJECT_DROPPED, "2c08c18d49d94782bffc562796c57722") \
        X(STORE_FULL, "7defd3d111f246878fcb107f2bfa59a8") \
        X(CLIENT_DROPPED, "f590314328a849c3910a7e638bcc66b2") \
        X(MEMORY_PRESSURE, "c63a0928adf04b01aeefe316aa622918") \
        X(KEEPER_GONE, "b4e0fdc3ed0a4e6686a1b86cc7021fef")

typedef enum LogEvent {
#define LOG_EVENT_NAME(name, id) LOG_EVENT_##name,
        LOG_EVENTS(LOG_EVENT_NAME)
#undef LOG_EVENT_NAME
        _LOG_EVENT_MAX
} LogEvent;

#define LOG_FIELDS_MAX 8
#define LOG_FIELD_BYTES_MAX 512

/* FOLIO_SOMETHING: and its text, of which no more than LOG_FIELD_BYTES_MAX are kept; or, with text NULL, its number. */
typedef struct LogField {
        const char *name;
        const char *text;
        uint64_t number;
} LogField;

#define LOG_FIELD_TEXT(name_, text_) { .name = (name_), .text = (text_) }
#define LOG_FIELD_NUMBER(name_, number_) { .name = (name_), .number = (number_) }

void log_configure(LogLevel level, LogTarget target);
void log_line(LogLevel level, const char *format, ...) _printf_(2, 3);

/* At most LOG_FIELDS_MAX of them. */
void log_event(LogEvent event, LogLevel level, const LogField *fields, size_t n_fields, const char *format, ...)
        _printf_(5, 6);

/*
 * For lines that somebody outside can cause as often as they like: at most @n_per_s in a second. @now_ns is monotonic.
 * True: say it; *@ret_n_dropped lines were not said since the last that was. Zeroed is a fresh one.
 */
typedef struct LogLimit {
        uint64_t second;             /* the one that is counted, + 1 */
        unsigned n_said;
        uint64_t n_dropped;
} LogLimit;

bool log_limit_pass(LogLimit *limit, unsigned n_per_s, uint64_t now_ns, uint64_t *ret_n_dropped);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...) log_line(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
