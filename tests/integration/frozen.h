/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod stopped in the middle of a change to an index: no signal finds it there but by luck, so it is stopped anywhere,
 * and the index is made what it would be, in foliod's own memory.
 */
#ifndef TESTS_INTEGRATION_FROZEN_H
#define TESTS_INTEGRATION_FROZEN_H

#include "tests/integration/harness.h"

typedef struct Frozen {
        const Foliod *foliod;
        int memory_fd;
        uint64_t index;              /* where foliod has it */
        uint64_t buckets_offset, slots_offset;
        uint32_t n_buckets, n_slots;
} Frozen;

/* Stopped, and everything in the index of namespace @name is being changed. */
Frozen frozen_begin(const Foliod *foliod, const char *name);

/* The changes end, and foliod goes on. In any thread. */
void frozen_end(Frozen *frozen);

/* Only what is ours: foliod stays as it is, or is dead. */
void frozen_forget(Frozen *frozen);

#endif
