/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which system calls does a process make? strace, attached to a running process and all its threads, writing to a
 * file in the daemon's directory. Where strace is not there, or may not attach, a test has to be skipped.
 */
#ifndef TESTS_INTEGRATION_TRACE_H
#define TESTS_INTEGRATION_TRACE_H

#include "tests/integration/harness.h"

typedef struct Trace {
        pid_t pid; /* of strace */
        char path[160];
} Trace;

/* @calls: as strace's -e trace=; NULL: all. False: it cannot be done here. */
bool trace_begin(Trace *trace, const Foliod *foliod, pid_t pid, const char *calls);

/* Detaches, and waits until everything is written. */
void trace_end(Trace *trace);

/* After trace_end(): the lines that contain @text, and the lines at all. Shows the first ones with @is_loud. */
unsigned trace_count(const Trace *trace, const char *text, bool is_loud);

/* After trace_end(): the calls between the lines that contain @from and @to; UINT_MAX where either is missing. */
unsigned trace_count_between(const Trace *trace, const char *from, const char *to);

#endif
