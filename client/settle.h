/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patience with an index that is being changed. Mostly a change is over in less than a microsecond; but foliod may have
 * lost the processor in the middle of it, may have been stopped there, or have died. Who cannot tell what a name or a
 * slot is looks again: at once a few times, then after short sleeps, for as long as the client's timeout, and no longer
 * than foliod lives. Who must not wait asks foliod for an answer instead: when it has come, that change is over.
 *
 * Knows nothing of what is looked for.
 */
#ifndef CLIENT_SETTLE_H
#define CLIENT_SETTLE_H

#include "client/lib/lookup.h"
#include "client/operation.h"

/* Not an error and not an answer: settle_ask() is to be called, by who must not wait. Passed on by all who get it. */
enum { SETTLE_ASK = 2 };

typedef struct Settle {
        Client *client;
        const Space *space;
        bool may_wait;
        unsigned n_looks;
        uint64_t begun_ns;           /* the sleeping; 0: not yet */
} Settle;

static inline Settle settle_begin(Client *client, const Space *space, bool may_wait)
{
        return (Settle){ .client = client, .space = space, .may_wait = may_wait };
}

/*
 * @found told nothing. 0: look again. SETTLE_ASK, where it may not wait. FOLIO_E_TIMEOUT or
 * FOLIO_E_DAEMON_GONE, with the thread's sentence.
 */
int settle_bucket(Settle *settle, const Lookup *found);

/* A slot by number, waited for. 1: read; 0: there is no such slot; SETTLE_ASK or an error as above. */
int settle_read_slot(Client *client, const Space *space, uint32_t slot, bool may_wait, LayoutSlot *ret);

/* @step runs when foliod has answered; it finds op->error set where it has not, or where this is no use any more. */
void settle_ask(Op *op, OpStep step);

#endif
