/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a blocking call needs to go by the ring: nothing of it is allocated, no operation is set up, and where anything is
 * in the way the call goes by the socket, which finds out what.
 */
#ifndef CLIENT_DIRECT_H
#define CLIENT_DIRECT_H

#include "client/get.h"
#include "client/leases.h"
#include "client/pipe.h"

typedef struct Direct {
        Client *client;
        Ring *ring;                  /* NULL before direct_want() */
        Name *entry;
        Space *space;
        bool is_in_gap;              /* what was looked up is of a foliod that has ended: what is not there may have come since */
        const char *name;            /* as the program gave it; borrowed */
        Key key;                     /* in it */
        uint64_t hash;
} Direct;

/* Of functions that answer with 0 or an error: neither, the call is to go by the socket. */
enum { DIRECT_NOT = 1 };

/* From this size on a call waits for its result: that is nothing beside the copy. */
#define DIRECT_WAIT_BYTES (64 * KIB)

/* False: not by the ring. True: the namespace is open, may be read and written, and nothing on the socket must come first. */
bool direct_begin(Direct *direct, Client *client, const char *name);

/* What the index could not answer is to go by the ring, which may have to be made for it. False: not now. */
bool direct_want(Direct *direct);

/* What the index says of the name, with all that this client has done. 0, DIRECT_NOT where it cannot tell, or an error. */
int direct_look(Direct *direct, bool is_to_explain, LookupOutcome *ret_outcome, Lookup *ret);

/* May there be a new object of that name? 0; DIRECT_NOT: it is being written, or the like; FOLIO_E_EXISTS, or another error. */
int direct_check_free(Direct *direct, uint32_t flags);

/* All of @record, for a verb that names its object by key. */
void direct_fill(const Direct *direct, RingVerb verb, RingRecord *record);

/* The same, of a new object. */
void direct_fill_new(const Direct *direct, RingVerb verb, const ProtoItem *item, RingRecord *record);

#endif
