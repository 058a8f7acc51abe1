/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spares: things that were in use a moment ago and will be wanted again, a few of them, found by a number. Take one out
 * and it is the caller's alone; give one back and it is anybody's. One atomic exchange each, no lock, no system call.
 * Does not know what they are, nor that what is found by a number is what was meant: two numbers may share a place.
 */
#ifndef CLIENT_LIB_SPARES_H
#define CLIENT_LIB_SPARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macro.h"

enum { SPARES_MAX = 64 };            /* a power of two */

/* All zeros: empty. On cache lines of their own: threads that are after different things do not meet. */
typedef struct Spares {
        struct {
                void *_Atomic item;
                uint8_t unused[64 - sizeof(void *)];
        } places[SPARES_MAX];
} Spares;

/* NULL: there is none. */
void *spares_take(Spares *spares, uint64_t number);

/* False: no room, or closed: @item is still the caller's. */
bool spares_give(Spares *spares, uint64_t number, void *item);

/* From now on none is taken in; those that are there go to @end. */
void spares_close(Spares *spares, void (*end)(void *item));

#endif
