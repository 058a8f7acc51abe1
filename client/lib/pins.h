/* SPDX-License-Identifier: Apache-2.0 */
/* A client's holds on objects: counters in its own pin table, which the daemon reads before it frees anything. */
#ifndef CLIENT_LIB_PINS_H
#define CLIENT_LIB_PINS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/space.h"

/* True: the object of @generation in @slot is held now, and stays until pins_drop(). False: it has gone before. Any thread. */
bool pins_hold(Space *space, uint32_t slot, uint64_t generation);

/*
 * True: the object has lost its name and this was our last pin: tell the daemon (RELEASE), of *@generation, which is by then
 * what stands in the slot. One that was held before its seal may have got another since, of which its handle has not heard.
 */
bool pins_drop(Space *space, uint32_t slot, uint64_t *generation);

#endif
