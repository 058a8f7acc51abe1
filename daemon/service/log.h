/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines for the operator: to stderr, or to the journal. Only peer, listener, daemon and main log above debug;
 * everything lower returns what happened. A message says what was asked, what stood in the way, and what to do.
 */
#ifndef DAEMON_SERVICE_LOG_H
#define DAEMON_SERVICE_LOG_H

#include <stdbool.h>
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

void log_configure(LogLevel level, LogTarget target);
void log_line(LogLevel level, const char *format, ...) _printf_(2, 3);

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
