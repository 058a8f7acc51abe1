/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of whole objects that a client keeps though it holds the objects no longer: for the next get. An object
 * can be deleted meanwhile by anybody, and then the mapping is all that keeps its memory from being given back. So
 * each says which object it is of, and whoever comes by looks whether that is still there. How many are kept, and for how
 * long, is for the cache of mappings.
 */
#ifndef CLIENT_IDLE_H
#define CLIENT_IDLE_H

#include <stdint.h>

#include "client/lib/maps.h"
#include "client/lib/space.h"

/* A handle of an object that is still there has let go of its region, which is all the object's. */
void idle_release(Maps *maps, Mapping *mapping, Space *space, uint32_t slot, uint64_t generation);

/* Drops the mappings of those that have gone. Costs a load for each where nothing has happened; of many it looks at some in turn. */
void idle_sweep(Maps *maps);

#endif
