/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graves of an index: why a name is not there any more, by its hash. One place for each of many names, and the newest
 * has it, so it forgets; it never tells of a name what is another's, but for names whose hashes share 56 bits.
 */
#ifndef DAEMON_STORE_INDEX_GRAVES_H
#define DAEMON_STORE_INDEX_GRAVES_H

#include <stdint.h>

#include "proto/layout.h"

typedef struct IndexGraves {
        LayoutGrave *graves;
        uint32_t n_graves;           /* a power of two */
        uint64_t n_written;
} IndexGraves;

/* How many there are for @n_slots_max objects. */
uint32_t index_graves_plan(uint32_t n_slots_max);

void index_graves_write(IndexGraves *graves, uint64_t hash, uint8_t reason);

/* 0: not known. */
uint8_t index_graves_read(const IndexGraves *graves, uint64_t hash);

/* Of their memory, what is in use: nothing, or, as they lie at random, all of it. */
uint64_t index_graves_used_bytes(const IndexGraves *graves);

#endif
