/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order a program sees what it does, where some of it goes through the ring and some through the socket, and all
 * of it is looked for in the index.
 *
 * Socket after ring needs nothing: the daemon carries out what is in the ring before each message. So what is sent must be
 * sent at once: who waits for something first is overtaken by what is asked for next. Ring after socket: only where all that
 * this client has sent and that changes something has been answered. Index after ring: who looks for a key waits first, where
 * something under way may be about it; and after a word that is not answered (ABORT), whatever it was about, until foliod has
 * answered something else. That is two loads for clients that have asked for nothing.
 */
#ifndef CLIENT_ORDER_H
#define CLIENT_ORDER_H

#include "client/operation.h"

/* Has all been answered that this client has sent by the socket, and that changes something? */
static inline bool order_is_free(Client *client)
{
        return LIKELY(atomic_load_explicit(&client->n_changing, memory_order_acquire) == 0 &&
                      atomic_load_explicit(&client->told_id, memory_order_acquire) == 0);
}

/* A word that is not answered, and changes something, has been sent. */
void order_told(Client *client);

/* What ring_catch_up() calls a key; 0, which stands for everything, of a namespace that may not be read, or of no key. */
uint64_t order_hash(const Space *space, Key key);

/*
 * Waits until what this client has asked for about @hash shows in the index; @ring may be NULL. 0, or an error with the
 * thread's sentence.
 */
int order_wait(Client *client, Ring *ring, uint64_t hash);

static inline int order_catch_up(Client *client, const Space *space, Key key)
{
        Ring *ring = atomic_load_explicit(&client->ring, memory_order_acquire);

        if (LIKELY(!ring && atomic_load_explicit(&client->told_id, memory_order_acquire) == 0))
                return 0;
        return order_wait(client, ring, order_hash(space, key));
}

/* Does it show already, as far as can be told without waiting? */
bool order_is_caught_up(Client *client, uint64_t hash);

/* The same as a step of an operation: goes on with @step, which finds op->error set where that failed; never blocks an asynchronous one. */
void order_step(Op *op, uint64_t hash, OpStep step);

/* FOLIO_E_TIMEOUT or FOLIO_E_DAEMON_GONE, with the thread's sentence, for a RING_E_*. */
int order_fail(Client *client, int r);

#endif
