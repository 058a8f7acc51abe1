/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of whole objects that this client keeps though it holds the objects no longer: for the next get. An object
 * can be deleted meanwhile by anybody, and then the mapping is all that keeps its memory from being given back. So
 * here stands which object each of them is, and whoever comes by looks whether it is still there.
 */
#ifndef CLIENT_IDLE_H
#define CLIENT_IDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/maps.h"
#include "client/lib/space.h"

enum { IDLE_MAX = 64 };              /* one more, and the one that has been here longest goes */

typedef struct IdleMapping {
        Space *space;                /* borrowed: the client keeps it */
        uint64_t region_id;
        uint64_t generation;
        uint64_t event;              /* the newest of the namespace when we last looked */
        uint32_t slot;
        bool is_writable;
} IdleMapping;

typedef struct Idle {
        pthread_mutex_t lock;
        size_t n_mappings;
        IdleMapping mappings[IDLE_MAX]; /* the longest here first */
} Idle;

void idle_init(Idle *idle);
void idle_deinit(Idle *idle);

/* The last handle of an object that is still there has let go of its region. */
void idle_add(Idle *idle, Maps *maps, Space *space, uint32_t slot, uint64_t generation, uint64_t region_id, bool writable);

/* Drops the mappings of those that have gone. Costs a load for each where nothing has happened. */
void idle_sweep(Idle *idle, Maps *maps);

#endif
