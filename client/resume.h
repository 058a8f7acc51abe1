/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a client outlives its foliod. The connection is made anew (reconnect.h), and what the next foliod of the same
 * store gives instead takes the place of what was there, at the same addresses: indexes, and where the session could
 * not be had again, pin tables and staging memory. So handles, lists and watches go on with what they point at.
 *
 * A look-up is one of the old index, or of the new one, or by bad luck of both. Who looks takes the beacon first, and
 * asks it afterwards: where it is not lit, the look-up is done once more between resume_enter() and resume_leave(),
 * during which nothing is replaced. That is also how a client that only reads finds out that its foliod has ended. It
 * goes on with the last index of that one until there is a next one, which says so in the session's memory before it
 * gives anything away: then nothing is held by the index of before any more, and the connection is waited for.
 */
#ifndef CLIENT_RESUME_H
#define CLIENT_RESUME_H

#include "client/context.h"

/* 0 or a negative errno. A client that is being made has one, which does nothing before resume_begin(). */
int resume_new(Client *client);
void resume_free(Client *client);

/* What the first welcome has brought: from here on there is something to be resumed. @consume_beacon_fd: -1: foliod has none. 0 or an error with the thread's sentence. */
int resume_begin(Client *client, const ProtoReply *welcome, int consume_beacon_fd);

/* All is in place, and foliod may have no beacon. For greeting.c. */
void resume_end(Client *client);

static inline const Beacon *resume_beacon(const Client *client)
{
        return atomic_load_explicit(&client->beacon, memory_order_acquire);
}

/* @beacon was taken before the look-up that is over now. */
static inline bool resume_is_lit(const Beacon *beacon)
{
        atomic_thread_fence(memory_order_acquire);
        return LIKELY(beacon_is_lit(beacon));
}

/*
 * For who has found it out. Moves the reconnect on, never waiting for it; then, until resume_leave(), nothing is
 * replaced: nobody may wait in between, nor ask foliod for anything.
 */
void resume_enter(Client *client);
void resume_leave(Client *client);

/*
 * In between, and behind a pin: is there a next foliod that has taken over, while the index is the one of before? Then
 * what was held may be given away already.
 */
static inline bool resume_is_outdated(const Client *client)
{
        return staging_is_taken_over(client->staging);
}

enum { RESUME_GAP = 1 };             /* not connected now, and it is being tried for */

/* How long who waits on shared memory should sleep before the next resume_check(). */
uint64_t resume_slice_ns(const Client *client, uint64_t usual_ns);

/*
 * For who does: 0: foliod is there; RESUME_GAP: the reconnect has been moved on; else the error, without a sentence. Never
 * waits.
 */
int resume_check(Client *client);

/* Waits for the reconnect as any request would, and runs nothing of the program's meanwhile. 0 or the error, without a sentence. */
int resume_wait(Client *client);

/*
 * For who looks for long, or waits in between: a number that is raised before and after things are replaced. True: since
 * @count, which was resume_count() then, all was of one index.
 */
unsigned resume_count(const Client *client);

static inline bool resume_is_same(const Client *client, unsigned count)
{
        atomic_thread_fence(memory_order_acquire);
        return LIKELY(count % 2 == 0 && resume_count(client) == count);
}

/* False: @space is of a store that this client has no connection to any more. */
static inline bool resume_is_current(const Client *client, const Space *space)
{
        return LIKELY(space->instance == atomic_load_explicit(&client->instance, memory_order_relaxed));
}

/* The sentence for FOLIO_E_DAEMON_GONE. */
void resume_explain(const Client *client, char *sentence);

#endif
