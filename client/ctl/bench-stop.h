/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal that ends the program, kept until what was made has been taken back. Between bench_stop_begin() and
 * bench_stop_end() such a signal is only remembered; what measures asks between two measurements.
 */
#ifndef CTL_BENCH_STOP_H
#define CTL_BENCH_STOP_H

#include <stdbool.h>

void bench_stop_begin(void);
bool bench_stop_is_wanted(void);
/* The signals are again what they were; one that came meanwhile is raised, and mostly this does not return then. */
void bench_stop_end(void);

#endif
