/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The items of a batch on a belt. Each passes four stations, some items apart: its name is hashed, and its bucket of
 * the index on its way; the slot that the bucket names is on its way; the slot is looked at, and what it leads to is on
 * its way; it is used. So what one item waits for from memory comes while others are worked on. No system call, no
 * lock, no write. Only good news is kept: a name that is not plainly there is used as one that was not found, to be
 * looked up alone, by who can say why. Does not know what is done with what is found.
 */
#ifndef CLIENT_AHEAD_H
#define CLIENT_AHEAD_H

#include "client/lib/lookup.h"
#include "client/names.h"
#include "client/resume.h"

/* Found: sealed or mutable, and does not expire. */
typedef struct AheadName {
        Space *space;
        const Beacon *beacon;        /* of before it was looked up: see resume.h. Where it is not lit, what was done with it is not */
        Lookup look;
} AheadName;

typedef struct AheadUse {
        bool is_to_pin;              /* pins_hold() comes at the last station */
        /* NULL: the item has none, or shall not be looked up. */
        const char *(*name)(void *userdata, size_t index);
        /* The third station. @found is NULL where there was no name, or it was not found. May itself be NULL. */
        void (*fetch)(void *userdata, size_t index, const AheadName *found);
        void (*use)(void *userdata, size_t index, const AheadName *found);
} AheadUse;

/* Items @begin up to @end, in order. */
void ahead_run(Client *client, const AheadUse *use, void *userdata, size_t begin, size_t end);

/* Between fetch() and use() of an item there are as many others. */
enum { AHEAD_STEP = 4 };

#endif
