/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which object expires next: a heap by time, in which each object knows its place, so that one that goes early is
 * taken out at once. What it means to expire is not known here.
 */
#ifndef DAEMON_STORE_EXPIRY_H
#define DAEMON_STORE_EXPIRY_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/store/object.h"

typedef struct ExpiryEntry {
        uint64_t expires_ns;
        Object *object;
} ExpiryEntry;

typedef struct Expiry {
        ExpiryEntry *entries;
        size_t n_entries;
        size_t n_reserved;           /* places promised besides */
        size_t n_room;
} Expiry;

#define EXPIRY_NULL { 0 }

void expiry_deinit(Expiry *expiry); /* asserts that it is empty */

/* Promises a place, so that adding cannot fail. 0 or -ENOMEM. */
int expiry_reserve(Expiry *expiry);
void expiry_cancel_reservation(Expiry *expiry);

void expiry_add(Expiry *expiry, Object *object, uint64_t expires_ns); /* uses up a reservation */
void expiry_remove(Expiry *expiry, Object *object);                  /* one that is not in it is legal */

/* NULL: none. UINT64_MAX: never. */
Object *expiry_peek(const Expiry *expiry);
uint64_t expiry_next_ns(const Expiry *expiry);

#endif
