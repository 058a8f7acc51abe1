/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The namespaces that a client has opened, found by name without a lock: a list that only grows, at its head, and a pointer
 * to the entry used last. A namespace that was closed by the daemon is opened anew, as a new entry before the old one;
 * old ones stay, as handles and readers may be looking at them, until the client's end.
 */
#ifndef CLIENT_NAMES_H
#define CLIENT_NAMES_H

#include "client/operation.h"

struct Name {
        Name *next;
        Space *space;
        size_t n_bytes;              /* of space->name */
        uint32_t writers;            /* enum folio_writers */
        struct Leases *_Atomic leases; /* NULL: none taken yet; whoever made them frees them: see leases.h */
        /* Under the client's lock: a timerfd that tells of events, for asynchronous waits. */
        int watch_fd;                /* -1: none yet */
        bool is_asked;               /* it is on its way */
};

/* The namespace's number is still good. */
static inline bool names_is_open(const Space *space)
{
        return LIKELY(space->shared) ? atomic_load_explicit(&space->shared->is_closed, memory_order_relaxed) == 0 :
                                       !atomic_load_explicit(&space->is_gone, memory_order_relaxed);
}

/* The space of @namespace, borrowed for as long as the client lives; NULL: not opened yet, or closed. */
Space *names_find(Client *client, Key namespace);

/* The same, with what else is known of it. */
Name *names_find_entry(Client *client, Key namespace);

/* The entry that @space stands in. */
Name *names_entry(Client *client, const Space *space);

/* Sets op->space, asking the daemon where it must, and goes on with @step; that one finds op->error set where it failed. */
void names_open(Op *op, Key namespace, OpStep step);

/* The same for who looks op->key up in the index: what this client has asked for about it shows there first. */
void names_open_to_look(Op *op, Key namespace, OpStep step);

/* At the client's end. */
void names_free(Client *client);

#endif
