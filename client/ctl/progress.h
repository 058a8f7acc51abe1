/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line that says how far a copy is, how fast it goes and how long it will take. It is drawn on standard error, where
 * that is a terminal, for what takes over a second, at most ten times a second; it is gone when the copy is over.
 */
#ifndef CTL_PROGRESS_H
#define CTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Progress {
        const char *label; /* borrowed; as text_escape() made it */
        uint64_t total_bytes; /* PROGRESS_TOTAL_UNKNOWN */
        uint64_t begun_ns;
        uint64_t drawn_ns;
        bool is_enabled;
        bool is_drawn;
} Progress;

#define PROGRESS_TOTAL_UNKNOWN UINT64_MAX

void progress_begin(Progress *progress, const char *label, uint64_t total_bytes);
void progress_update(Progress *progress, uint64_t done_bytes);
/* Wipes the line. Legal at any time, also for one that was never begun but is all zero. */
void progress_end(Progress *progress);

/* The line itself, for a terminal of @n_columns; writes at most @buffer_bytes with the NUL. */
void progress_render(char *buffer, size_t buffer_bytes, size_t n_columns, const char *label, uint64_t done_bytes,
                     uint64_t total_bytes, uint64_t elapsed_ns);

/* Is it worth a line yet? Yes when it has taken a second, or it is plain after a quarter that it will. */
bool progress_is_due(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ns);

#endif
