/* SPDX-License-Identifier: Apache-2.0 */
/* Work that a new process does, and measures itself: what it finds is not warmed by what this one did before. */
#ifndef CTL_BENCH_CHILD_H
#define CTL_BENCH_CHILD_H

#include "client/ctl/bench-count.h"

/*
 * @work runs in a child, which ends with it; it fills the sample between a bench_counter_begin() and a _end() of a
 * counter of its own, and returns 0 or a negative errno. That is returned here; -ECHILD where the child did not come to
 * its end.
 */
int bench_child_run(int (*work)(void *argument, BenchSample *sample), void *argument, BenchSample *ret);

#endif
