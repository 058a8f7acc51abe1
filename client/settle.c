/* SPDX-License-Identifier: Apache-2.0 */
/* See settle.h. */
#include "client/settle.h"

#include <sched.h>

#include "client/lib/connection.h"
#include "client/resume.h"

#define SETTLE_LOOKS 64u             /* before the first sleep */
#define SETTLE_SLICE_NS UINT64_C(1000000)
#define SETTLE_ASKS_MAX 64u          /* of one operation: each time foliod was in the middle of another change */

/* 0: sleep for a slice, and look again. */
static int settle_check(Settle *settle)
{
        Client *client = settle->client;
        char sentence[ERROR_SENTENCE_BYTES];
        uint64_t now_ns = connection_now_ns();
        int r;

        if (settle->begun_ns == 0)
                settle->begun_ns = now_ns;
        /* One that has died in the middle of a change is followed by one whose index is whole. */
        r = resume_check(client);
        if (r < 0) {
                operation_explain(client, r, sentence);
                return error_set_sentence(r, sentence);
        }
        if (now_ns - settle->begun_ns < client->timeout_ns)
                return 0;
        return error_set(FOLIO_E_TIMEOUT,
                         "foliod has been in the middle of a change to the index of namespace %s for %llu ms; has it "
                         "been stopped?", settle->space->name, (unsigned long long)(now_ns - settle->begun_ns) / 1000000);
}

/* 1: sleep. 0: look at once. */
static int settle_look(Settle *settle)
{
        int r;

        if (settle->n_looks < SETTLE_LOOKS) {
                settle->n_looks++;
                (void)sched_yield();
                return 0;
        }
        if (!settle->may_wait)
                return SETTLE_ASK;
        r = settle_check(settle);
        return r < 0 ? r : 1;
}

int settle_bucket(Settle *settle, const Lookup *found)
{
        int r = settle_look(settle);

        if (r != 1)
                return r;
        lookup_pause_bucket(settle->space, found->bucket, SETTLE_SLICE_NS);
        return 0;
}

static int settle_slot(Settle *settle, uint32_t slot)
{
        int r = settle_look(settle);

        if (r != 1)
                return r;
        lookup_pause_slot(settle->space, slot, SETTLE_SLICE_NS);
        return 0;
}

int settle_read_slot(Client *client, const Space *space, uint32_t slot, bool may_wait, LayoutSlot *ret)
{
        Settle settle = settle_begin(client, space, may_wait);
        int r = 0;

        while (r == 0) {
                unsigned count = resume_count(client);

                if (LIKELY(lookup_read_slot(space, slot, ret))) {
                        if (resume_is_same(client, count))
                                return 1;
                        continue;
                }
                if (slot >= lookup_n_slots(space))
                        return 0;
                r = settle_slot(&settle, slot);
        }
        return r;
}

void settle_ask(Op *op, OpStep step)
{
        ProtoRequest message = { .verb = VERB_PING };

        if (op->n_settles++ < SETTLE_ASKS_MAX) {
                op_send(op, &message, NULL, step);
                return;
        }
        op_fail(op, FOLIO_E_PROTOCOL, "an index is in the middle of a change that does not end, says foliod");
        step(op);
}
