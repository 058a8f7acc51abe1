/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a foliod with its keeper hold what it held? What the daemon says it keeps, charges and knows, and the descriptors
 * of both processes, whichever process serves now. For stories in which it is killed; alive.h is for those in which it
 * must not die.
 */
#ifndef TESTS_INTEGRATION_BASELINE_H
#define TESTS_INTEGRATION_BASELINE_H

#include "tests/integration/harness.h"

enum { BASELINE_FACTS = 10 };

typedef struct Baseline {
        uint64_t facts[BASELINE_FACTS];
        uint64_t n_kept; /* direct or parked: which of them is the keeper's to choose */
        uint64_t n_segments;
        unsigned n_daemon_fds, n_keeper_fds;
} Baseline;

/* Waits until one client, this one, is all there is, whom nothing was given yet. */
Baseline baseline_take(const Foliod *foliod);

/* It is so again, or will be in a while; else says what is not, and fails the test. */
void baseline_check(const Foliod *foliod, const Baseline *before);

/* kill -9 of the one that serves, and waits until another one does. */
void baseline_kill(const Foliod *foliod);

/* The same by a process that asks at once: the microseconds from the kill to the first answer of the next one. */
uint64_t baseline_kill_and_ask(const Foliod *foliod);

#endif
