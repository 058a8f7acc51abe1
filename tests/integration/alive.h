/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the daemon as it was? What it holds before a case and after it: descriptors, mappings of files, memory, objects,
 * charges. A case begins with alive_begin() and ends, when every client of it is gone, with alive_check().
 *
 * Memory is counted by the blocks of the files foliod has open, each inode once: what the kernel says, not what foliod
 * says.
 */
#ifndef TESTS_INTEGRATION_ALIVE_H
#define TESTS_INTEGRATION_ALIVE_H

#include "tests/integration/harness.h"

typedef struct Alive {
        Foliod *foliod;
        pid_t pid;
        unsigned n_fds;
        unsigned n_mappings;
        uint64_t memory_bytes;
        uint64_t used_bytes;
        uint64_t n_objects;
        uint64_t held_bytes;
        uint64_t unsealed_bytes;
} Alive;

/*
 * Uses what is only made at its first use, waits until nothing moves any more, and counts. foliod should keep no warm
 * pool, which would go on moving: ALIVE_NO_POOL among its options.
 */
Alive alive_begin(Foliod *foliod);

/* A fresh client is answered, by the same process, and everything counted is back. */
void alive_check(const Alive *before);

/* alive_check() but for memory and charges: for cases that leave objects behind on purpose. */
void alive_check_answers(const Alive *before);

/* Charges of all namespaces, as foliod says. */
typedef struct Charges {
        uint64_t used_bytes;
        uint64_t n_objects;
        uint64_t held_bytes;
        uint64_t n_held;
        uint64_t unsealed_bytes;
        uint64_t n_unsealed;
} Charges;

Charges alive_charges(struct folio_client *client);

/* Memory in the files foliod has open. */
uint64_t alive_memory_bytes(const Foliod *foliod);

/* Makes a namespace `tmpfs` of that backing; false, and a line that says so, where there is none to be had. */
bool alive_add_tmpfs(struct folio_client *client);

/* Where FOLIO_TEST_SLOW is set (sanitizers) a count is divided by ten. */
unsigned alive_scaled(unsigned n);

#define ALIVE_NO_POOL "--pool", "0"

#endif
