/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of a pin table (proto/layout.h): one for each connection and namespace, written by the client,
 * only ever read here. Whatever a client writes into it, the worst is that memory is kept which that client could
 * have kept anyway. The file has a fixed, sealed size, so reading it cannot fail.
 */
#ifndef DAEMON_STORE_PINS_H
#define DAEMON_STORE_PINS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/region.h"

typedef struct Pins Pins;

/* The size of the file for @n_slots_max slots; false: it does not fit into a number. */
bool pins_plan_bytes(uint32_t n_slots_max, uint64_t *ret_bytes);

/* @backend can seal. */
int pins_new(Backend *backend, uint32_t n_slots_max, Pins **ret);
void pins_free(Pins *pins);

/*
 * One that an earlier foliod has made with the same @n_slots_max, of a client that has it still. @consume_fd goes over
 * in any case. PINS_E_FOREIGN: it is not, by its size and its seals. What stands in it is the client's, as always.
 */
enum { PINS_E_FOREIGN = 1 };
int pins_restore(Backend *backend, uint32_t n_slots_max, int consume_fd, Pins **ret);

int pins_fd(const Pins *pins);             /* read-write, for the client; borrowed */
uint64_t pins_region_bytes(const Pins *pins);
uint64_t pins_allocated_bytes(const Pins *pins); /* what of it is there; all, if nobody can say */

/*
 * How many pins the client says it has on @slot. The caller has retracted the slot and fenced before, where it wants
 * to free it. Never touches a counter whose summary byte is 0: that part of the file may be a hole, and stays one.
 */
uint32_t pins_count(const Pins *pins, uint32_t slot);

/* Does the client say that it has a pin on anything? */
bool pins_is_untouched(const Pins *pins); /* nothing was ever counted in it */

/*
 * Does the client say that it sleeps on a word of the index? The caller has changed the word and fenced before. One
 * that lies is woken for nothing, or is not.
 */
bool pins_is_waiting(const Pins *pins);

#endif
